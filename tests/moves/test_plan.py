"""The plan of a sweep: `explain` shows what Gibbs runs, whatever the options."""

import re
from html import escape

import numpy as np
import pymc as pm
import pytest
from pymc.sampling import mcmc

import pymc_nnsteps as nns
from pymc_nnsteps.laws.conditional import Move
from pymc_nnsteps.steps import gibbs
from tests.cases import quick
from tests.moves import gated_layers
from tests.zoo import (
    ZOO,
    bow_tie_network,
    hierarchical_network,
    regression,
    relu_network,
    smooth_network,
)

X = np.random.default_rng(0).normal(size=(7, 2))


MOVED = ("deep_network", "bow_tie_network", "gates_and_pieces")
"""Models with joint moves of each kind, which options add and take away."""

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


@pytest.mark.parametrize("name", ZOO)
def test_explain_is_the_plan_that_is_run(name, monkeypatch):
    """A draw, a partner or an integral that the table does not show, or shows and is not run."""
    model = ZOO[name]()
    for options in OPTIONS if name in MOVED else OPTIONS[:1]:
        explained = nns.explain(model, **options).rows
        assert [row[0] for row in explained] == [rv.name for rv in model.free_RVs]
        if all(row[1] is None for row in explained):
            with pytest.raises(nns.laws.NotConjugate, match="No variable of the model"):
                nns.Gibbs(model=model, **options)
            continue
        plan = planned(monkeypatch, model, **options)
        table = plan.explanation.rows
        assert tuple(row for row in explained if row[1] is not None) == table
        assert {row[0] for row in table} == {rv.name for d in plan.sweep for rv in d.draws}
        for drawn, found, why in table:
            drawing = [draw for draw in plan.sweep if model[drawn] in draw.draws]
            drawing = [draw for draw in drawing if not draw.supplements]
            moves = [draw for draw in drawing if isinstance(draw, Move)]
            [*_, law] = [draw for draw in drawing if not isinstance(draw, Move)] or moves
            assert found == law.name
            assert why.count("interwoven with") == len([d for d in moves if d is not law])
            laws = [draw for draw in drawing if draw is law or not isinstance(draw, Move)]
            assert ("integrated out" in why) == any(draw.integrates_out for draw in laws)


UNLIKE = [name for name in ZOO if not hasattr(gated_layers, name)]
"""Models without those that differ in a layer of gates only."""
QUICK = {
    "relu_network", "probit_network", "by_hand", "regression", "bow_tie_network",
    "smooth_network", "gates_and_pieces", "gates_by_chance",
}  # fmt: skip


@pytest.mark.parametrize("name", quick([*UNLIKE, "gates_by_chance"], QUICK))
def test_explain_names_the_steps_that_sample_assigns(name, monkeypatch):
    """A step that the note below the table does not name; a law of Gibbs that is another beside it.

    PyMC asks itself what to assign, as `pm.sample` does.
    """
    model = ZOO[name]()
    _, selected = mcmc.assign_step_methods(model)
    assigned = {
        model.values_to_rvs[value].name: step.__name__
        for step, values in selected.items()
        for value in values
    }
    explained = nns.explain(model, details=True)
    noted = {variable: step for variable, step, _ in explained.beside}
    assert {rv.name: noted.get(rv.name, "Gibbs") for rv in model.free_RVs} == assigned
    for variable, step, why in explained.beside:
        assert f"to {step}: {why}" in str(explained)
        assert variable in str(explained).partition("pm.sample gives")[2]
    if ours := [variable for variable, step in assigned.items() if step == "Gibbs"]:
        table = planned(monkeypatch, model, vars=ours).explanation
        assert table.rows == tuple(row for row in explained.rows if row[0] in ours)
        assert not table.beside


def test_laws_of_what_hmc_draws_are_not_in_the_table(monkeypatch):
    """Effects and their scale beside a network of functions, and moves that need them."""
    with pm.Model(coords={"depot": range(3)}) as model:
        effects = pm.Normal("effects", 0, pm.HalfNormal("sd_depot"), dims="depot")
        f = nns.blocks.hierarchical(X, hidden=(2,))
        pm.Normal("y", f + effects[np.arange(7) % 3], pm.HalfNormal("s"), observed=X[:, 0])
    explained = nns.explain(model)
    others = {variable: step for variable, step, _ in explained.beside}
    assert others["sd_depot"] == others["effects"] == "HMC"
    rows = {variable: (law, how) for variable, law, how in explained.rows}
    assert all(rows[variable][0] is None for variable in others)
    assert rows["sd_depot"][1].startswith("given to HMC; its full conditional is known: root of a")
    ours = [rv.name for rv in model.free_RVs if rv.name not in others]
    table = planned(monkeypatch, model, vars=ours).explanation.rows
    assert table == tuple(row for row in explained.rows if row[0] in ours)


@pytest.mark.parametrize("name", ["hierarchical_network", "regression", "bow_tie_network"])
def test_explanation_fits_the_terminal(name, monkeypatch):
    """One reason for each variable in lines of the terminal; all of them in notebooks."""
    monkeypatch.setenv("COLUMNS", "72")
    explained = nns.explain(ZOO[name]())
    lines = str(explained).splitlines()
    assert max(map(len, lines)) <= 72
    assert [line for line in lines if "children: " in line] == []
    for variable, law, how in explained.rows:
        assert any(re.match(rf"{re.escape(variable)} .*{re.escape(law or '-')}", x) for x in lines)
        assert f"<td>{escape(how)}</td>" in explained._repr_html_()


def test_why_variables_are_not_given_to_hmc():
    """The reasons of a network that is not read, of one beside other variables, and of none."""

    def reason(model, variable):
        [why] = [row[1:] for row in nns.explain(model).beside if row[0] == variable]
        return ": ".join(why)

    network = hierarchical_network()
    learnt_scales = "HMC: weights of a network whose scales Gibbs draws; metric: "
    assert reason(network, "W_ih1") == learnt_scales + "expected Fisher information of y"
    with network:
        pm.Gumbel("apart", 0, 1)
    assert reason(network, "apart").startswith("NUTS: other steps are for networks")
    assert reason(network, "W_ih1").endswith("because apart would be left to other steps")
    curved = nns.hierarchical_mlp(X, X[:, 0], hidden=(2,), activation="softmax")
    assert reason(curved, "W_ih1").endswith("is not supported")
    assert reason(smooth_network(), "W1").startswith("NUTS: HMC does not take the weights")
    with pm.Model() as penalised:
        f = nns.blocks.hierarchical(X, hidden=(2,))
        pm.Potential("fit", pm.logp(pm.Normal.dist(f, 1), X[:, 0]))
    assert reason(penalised, "f::W_ih1").endswith("the model has the potential fit")
    with pm.Model() as cut:
        mean = nns.blocks.hierarchical(X, hidden=(2,))
        pm.Censored(
            "y", pm.Normal.dist(mean, pm.HalfNormal("s")), 0, None, observed=X[:, 0].clip(0)
        )
    assert reason(cut, "f::W_ih1").endswith("metric: observed Fisher information of y")
    assert (
        reason(cut, "s") == "HMC: moved with the weights of the network; metric: learnt in tuning"
    )
    nns.steps.set_auto_assign(False)
    try:
        assert "nns.steps.set_auto_assign(False)" in reason(network, "W_ih1")
    finally:
        nns.steps.set_auto_assign(True)


def test_a_step_shows_its_plan():
    model = regression()
    step = nns.Gibbs(["slopes"], model=model)
    assert step.plan.rows == (("slopes", "Gaussian", "children: y"),)


def rows(model, **options):
    return {row[0]: f"{row[1]}; {row[2]}" for row in nns.explain(model, **options).rows}


def test_what_is_integrated_out_is_shown():
    moved = rows(bow_tie_network())
    plain = rows(bow_tie_network(), collapse=False, interweave=False)
    assert "Metropolis-Hastings, interwoven; jointly with W1, b1; a1 int" in moved["gamma1"]
    assert "integrated out" not in " ".join(plain.values())


def test_why_rows_are_not_interwoven(monkeypatch):
    monkeypatch.setattr("pymc_nnsteps.moves.interweaving.LONGEST_ROW", 2)
    assert "not interwoven: a unit has 3 weights, more than 2" in rows(relu_network())["Z2"]
    assert "not interwoven" not in rows(relu_network(), interweave=True)["Z2"]


def test_wrong_options_are_refused():
    for wrong in ({"scan": "random"}, {"collapse": 1}, {"interweave": "yes"}, {"passes": 0}):
        [name] = wrong
        for call in (nns.explain, nns.Gibbs):
            with regression(), pytest.raises(ValueError, match=name):
                call(**wrong)
