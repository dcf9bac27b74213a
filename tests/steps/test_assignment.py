"""Which variables Gibbs takes in `pm.sample`, and how its user has the last word."""

import logging

import numpy as np
import pymc as pm
import pytest
from pymc.sampling import mcmc

import pymc_nnsteps as nns

X = np.random.default_rng(0).normal(size=(6, 2))
QUIET = {"progressbar": False, "quiet": True, "chains": 1, "compute_convergence_checks": False}


class Reached(Exception):  # noqa: N818 (no error: how far pm.sample came)
    pass


def network(learnt_scales=True):
    if learnt_scales:
        return nns.hierarchical_mlp(X, X[:, 0], hidden=(2,))
    return nns.intermediate_noise_mlp(X, X[:, 0], hidden=(2,))


def assigned(model, step=nns.Gibbs, given=None):
    """Names of the variables that a step takes, without sampling, beside those that are given."""
    _, selected = mcmc.assign_step_methods(model, given)
    return {model.values_to_rvs[value].name for value in selected.get(step, [])}


@pytest.fixture
def no_auto_assign():
    nns.steps.set_auto_assign(False)
    yield
    nns.steps.set_auto_assign(True)


@pytest.mark.parametrize("learnt_scales", [True, False])
@pytest.mark.parametrize("sampler", ["nutpie", "numpyro", "blackjax"])
def test_an_explicit_sampler_is_honoured(sampler, learnt_scales, monkeypatch):
    """An import that makes `pm.sample(nuts_sampler=...)` fail on a network."""

    def external(**options):
        raise Reached(options["sampler"])

    monkeypatch.setattr(mcmc, "_sample_external_nuts", external)
    with network(learnt_scales), pytest.raises(Reached, match=sampler):
        pm.sample(nuts_sampler=sampler, **QUIET)


def test_turned_off(no_auto_assign):
    assert assigned(network()) == set()
    assert assigned(network(learnt_scales=False)) == set()
    assert assigned(network(), nns.HMC) == set()


def test_on_by_default():
    assert "W1" not in assigned(network())
    assert {"W1", "Z2"} <= assigned(network(learnt_scales=False))
    assert assigned(network())


WEIGHTS = {"W_ih1", "bh1", "W_h1o", "bo"}


def test_weights_are_moved_by_hmc():
    """HMC takes the weights if it reads the network, and Gibbs draws all that is left."""
    model = network()
    assert assigned(model, nns.HMC) == WEIGHTS
    assert assigned(network(learnt_scales=False), nns.HMC) == set()
    fixed = {"ih": 1, "bh": 1, "ho": 1, "noise": 1}
    for others in ({"activation": "softmax"}, {"priors": fixed}):
        one = nns.hierarchical_mlp(X, X[:, 0], hidden=(8,), **others)
        assert assigned(one, nns.HMC) == set()
    with network() as larger:
        pm.Gumbel("apart", 0, 1)
    assert assigned(larger, nns.HMC) == set()
    with model:
        given = nns.MALA(["bo"])
    assert assigned(model, nns.HMC, given) == WEIGHTS - {"bo"}


@pytest.mark.parametrize(
    "arguments",
    [{"target_accept": 0.9}, {"nuts": {"max_treedepth": 9}}, {"backend": "c"}, {}],
    ids=str,
)
def test_arguments_for_nuts_are_honoured(arguments, monkeypatch):
    def reached(model, selected_steps, **options):
        raise Reached(", ".join(sorted(step.name for step in selected_steps)))

    monkeypatch.setattr(mcmc, "instantiate_steppers", reached)
    with network(), pytest.raises(Reached, match="gibbs, nuts" if arguments else "gibbs, hmc"):
        pm.sample(**arguments, **QUIET)


@pytest.mark.parametrize("wrong", [None, 1, "no"])
def test_auto_assign_is_a_choice_of_two(wrong):
    with pytest.raises(ValueError, match="enabled must be True or False"):
        nns.steps.set_auto_assign(wrong)


def announcements(caplog):
    """Records but for those of a compiler that runs for the first time."""
    ours = [record for record in caplog.records if record.name == "pymc.nnsteps"]
    return [record for record in ours if not record.message.startswith("compiling")]


def test_it_is_announced_once_with_the_way_to_turn_it_off(caplog):
    with caplog.at_level(logging.INFO, "pymc.nnsteps"), network(learnt_scales=False):
        pm.sample(1, tune=1, **{**QUIET, "quiet": False})
    assert [record.message for record in announcements(caplog)] == [
        "pymc_nnsteps draws the variables of a network by Gibbs: nns.explain(model) shows how, "
        "nns.steps.set_auto_assign(False) turns it off."
    ]


def test_it_is_not_announced_where_it_was_asked_for(caplog):
    with caplog.at_level(logging.INFO, "pymc.nnsteps"), network(learnt_scales=False):
        pm.sample(1, tune=1, step=nns.Gibbs(), **{**QUIET, "quiet": False})
    with caplog.at_level(logging.INFO, "pymc.nnsteps"), network(learnt_scales=False):
        pm.sample(1, tune=1, **QUIET)
    assert not announcements(caplog)


@pytest.mark.parametrize("hidden", [(256,), (3, 256)], ids=str)
def test_wide_networks_are_moved_by_pcnl(hidden):
    """A wide network that is left to NUTS, or of which `explain` says another thing."""
    model = nns.wide_mlp(X, X[:, 0], hidden=hidden)
    weights = {rv.name for rv in model.free_RVs} - {"phi"}
    assert assigned(model, nns.PCNL) == weights
    assert assigned(model) == {"phi"}
    assert {name: step for name, step, _ in nns.explain(model).beside} == dict.fromkeys(
        weights, "PCNL"
    )
    [why] = {why for *_, why in nns.explain(model).beside}
    assert "256 readout columns or more" in why
    with model:
        given = nns.MALA(["b1"])
    assert assigned(model, nns.PCNL, given) == weights - {"b1"}


@pytest.mark.parametrize(
    "others", [{"hidden": (64,)}, {"hidden": ()}, {"reparametrize": False}], ids=str
)
def test_other_networks_of_functions_are_left_to_nuts(others):
    """PCNL where its proposals are small: in narrow networks, or a readout seen by the data."""
    model = nns.wide_mlp(X, X[:, 0], **({"hidden": (256,)} | others))
    assert assigned(model, nns.PCNL) == assigned(model) == set()


def test_variables_beside_a_wide_network_leave_it_to_nuts():
    """A prior of the weights that depends on another variable, or what PCNL cannot move."""
    with nns.wide_mlp(X, X[:, 0], hidden=(256,)) as model:
        pm.HalfNormal("apart")
    assert assigned(model, nns.PCNL) == set()


@pytest.mark.parametrize("as_normal", [False, True])
def test_explain_says_how_heavy_tails_of_a_layer_are_drawn_by_gibbs(as_normal):
    """Written as it says, the same model has no variable that NUTS draws."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pm.Model() as model:
        Z = pm.Normal("Z", X @ pm.Normal("W", shape=(2, 3)), 0.3)
        mean = pm.Normal("H", pm.math.maximum(Z, 0), 0.3) @ pm.Normal("v", shape=3)
        if as_normal:
            lam = pm.Gamma("lam", 2, 2, shape=20)
            pm.Normal("y", mean, 0.5 / pm.math.sqrt(lam), observed=X[:, 0])
        else:
            pm.StudentT("y", 4, mean, sigma=0.5, observed=X[:, 0])
    found = nns.explain(model)
    said = [note for note in found.notes if note.startswith("NUTS draws what y sees")]
    assert (len(said), len(found.beside) > 0) == (not as_normal, not as_normal)
