"""Sweeps of the bow-tie network: joint distribution tests, and what is assigned."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from tests.steps.joint import assert_joint
from tests.steps.priors import LIGHT

X = np.random.default_rng(3).normal(size=(2, 2))


def tiny(shrinkage, hidden=(2, 2), **options):
    return nns.bow_tie(
        X,
        [-1.0, 1.0],
        hidden=hidden,
        temperature=0.7,
        shrinkage=LIGHT[shrinkage],
        bias_var=0.7,
        hidden_alpha=4,
        hidden_beta=0.4,
        noise_alpha=4,
        noise_beta=0.3,
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shrinkage", "collapse", "transitions"),
    [("student_t", "auto", 2_500), ("nig", False, 8_000)],
)
def test_joint_distribution(shrinkage, collapse, transitions):
    """A sweep that does not leave the posterior of two layers invariant.

    All families, at little noise, are in
    ``test_interwoven_gates.py``.
    """
    model = tiny(shrinkage)
    step = nns.Gibbs(model=model, collapse=collapse)
    assert_joint(step, model, "targets", transitions=transitions)


def test_everything_is_assigned_to_gibbs():
    """A gate, a scale or a bias that PyMC gives to a step of its own."""
    model = tiny("laplace")
    with model:
        idata = pm.sample(
            5, tune=5, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True
        )
    posterior = idata["posterior"]
    assert set(posterior.data_vars) == {rv.name for rv in model.free_RVs}
    assert posterior["gamma1"].dtype == "int64"
    moves = {"interweaving_acceptance", "interweaving_rho"}
    assert set(idata["sample_stats"].data_vars) == {"n_sweeps"} | moves
