"""The plan of a sweep: `explain` shows what Gibbs runs, whatever the options."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.steps import gibbs

X = np.random.default_rng(0).normal(size=(7, 2))


def intermediate_noise():
    return nns.intermediate_noise_mlp(X, X[:, 0], hidden=(2, 2))


def bow_tie():
    return nns.bow_tie(X, X[:, 0], hidden=(2, 3))


def gates_and_pieces():
    """Rows that would be interwoven by themselves, in a network some of which is collapsed."""
    with nns.bow_tie(X, X[:, 0], hidden=(2,)) as model:
        z = pm.Normal("z", X @ pm.Normal("v", shape=(2, 3)), 0.1)
        a = pm.Normal("a", pm.math.maximum(z, 0), 0.1)
        pm.Normal("u", a @ pm.Normal("w", shape=3), 0.3, observed=X[:, 1])
    return model


def partly():
    with pm.Model() as model:
        b = pm.Normal("b", shape=2)
        pm.Normal("y", X @ b, pm.LogNormal("s", 0, 1), observed=X[:, 0])
    return model


OPTIONS = [
    {},
    {"collapse": False},
    {"interweave": False},
    {"scan": "parallel"},
    {"collapse": False, "interweave": False, "scan": "parallel"},
]


class Stopped(Exception):  # noqa: N818 (no error: before anything is compiled)
    pass


def planned(monkeypatch, model, **options):
    """The plan that a step compiles."""
    plans = []

    def compiled(model, sweep, *args):
        assert sweep is plans[-1].sweep
        raise Stopped

    def plan(*args):
        plans.append(exact(*args))
        return plans[-1]

    exact = gibbs.plan
    with monkeypatch.context() as patch:
        patch.setattr(gibbs, "plan", plan)
        patch.setattr(gibbs, "Sweep", compiled)
        with pytest.raises(Stopped):
            nns.Gibbs(model=model, **options)
    return plans[-1]


@pytest.mark.parametrize("build", [intermediate_noise, bow_tie, gates_and_pieces, partly])
def test_explain_is_the_plan_that_is_run(build, monkeypatch):
    model = build()
    for options in OPTIONS:
        plan = planned(monkeypatch, model, **options)
        table = plan.explanation.rows
        explained = nns.explain(model, **options)
        assert tuple(row for row in explained.rows if row[1] is not None) == table
        assert {row[0] for row in table} == {rv.name for d in plan.sweep for rv in d.draws}
        how = " ".join(f"{law} {why}" for _, law, why in table)
        assert ("interwoven with" in how) == any(d.tuning is not None for d in plan.sweep)
        assert ("integrated out" in how) == any(
            d.integrates_out and d.tuning is None for d in plan.sweep
        )


def test_a_step_shows_its_plan():
    model = partly()
    step = nns.Gibbs(["b"], model=model)
    assert step.plan.rows == (("b", "Gaussian", "children: y"),)


def rows(model, **options):
    return {row[0]: f"{row[1]}; {row[2]}" for row in nns.explain(model, **options).rows}


def test_collapsed_draws_are_shown():
    collapsed, plain = rows(bow_tie()), rows(bow_tie(), collapse=False)
    assert "Bernoulli, collapsed; a1 integrated out" in collapsed["gamma1"]
    assert "integrated out" not in " ".join(plain.values())


def test_why_rows_are_not_interwoven(monkeypatch):
    monkeypatch.setattr("pymc_nnsteps.joint.interweaving.LONGEST_ROW", 2)
    assert "not interwoven: a unit has 3 weights, more than 2" in rows(intermediate_noise())["Z2"]
    assert "not interwoven" not in rows(intermediate_noise(), interweave=True)["Z2"]


def test_wrong_options_are_refused():
    for wrong in ({"scan": "random"}, {"collapse": 1}, {"interweave": "yes"}, {"passes": 0}):
        [name] = wrong
        for call in (nns.explain, nns.Gibbs):
            with partly(), pytest.raises(ValueError, match=name):
                call(**wrong)
