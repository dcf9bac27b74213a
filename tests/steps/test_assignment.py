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


def assigned(model):
    """Names of the variables that Gibbs takes, without sampling."""
    _, selected = mcmc.assign_step_methods(model)
    return {model.values_to_rvs[value].name for value in selected.get(nns.Gibbs, [])}


@pytest.fixture
def no_auto_assign():
    nns.set_auto_assign(False)
    yield
    nns.set_auto_assign(True)


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


def test_on_by_default():
    assert "W1" not in assigned(network())
    assert {"W1", "Z2"} <= assigned(network(learnt_scales=False))
    assert assigned(network())


@pytest.mark.parametrize("wrong", [None, 1, "no"])
def test_auto_assign_is_a_choice_of_two(wrong):
    with pytest.raises(ValueError, match="enabled must be True or False"):
        nns.set_auto_assign(wrong)


def test_it_is_announced_once_with_the_way_to_turn_it_off(caplog):
    with caplog.at_level(logging.INFO, "pymc.nnsteps"), network(learnt_scales=False):
        pm.sample(1, tune=1, **{**QUIET, "quiet": False})
    [record] = [r for r in caplog.records if r.name == "pymc.nnsteps"]
    assert "nns.set_auto_assign(False)" in record.message


def test_it_is_not_announced_where_it_was_asked_for(caplog):
    with caplog.at_level(logging.INFO, "pymc.nnsteps"), network(learnt_scales=False):
        pm.sample(1, tune=1, step=nns.Gibbs(), **{**QUIET, "quiet": False})
    with caplog.at_level(logging.INFO, "pymc.nnsteps"), network(learnt_scales=False):
        pm.sample(1, tune=1, **QUIET)
    assert not [r for r in caplog.records if r.name == "pymc.nnsteps"]
