"""Sweeps of the bow-tie network: joint distribution tests, NUTS without gates, sampling."""

import numpy as np
import pytest

import pymc_nnsteps as nns
from tests.steps.joint import assert_joint

X = np.random.default_rng(3).normal(size=(2, 2))
LIGHT = {
    "student_t": {"nu_global": -3, "nu_local": -3, "delta_global": 2, "delta_local": 2},
    "laplace": {"lambda_global": 1.5, "lambda_local": 1.5},
    "normal_gamma": {"nu_global": 2, "nu_local": 1.5, "lambda_global": 2, "lambda_local": 2},
    "nig": {"delta_global": 1, "delta_local": 1.2, "lambda_global": 1.4, "lambda_local": 1},
    "gaussian": {"weight_var": 0.8},
}
"""Priors under which weights, gates and the data are all in doubt."""


def tiny(shrinkage, hidden=(2, 2), **options):
    return nns.bow_tie(
        X,
        [-1.0, 1.0],
        hidden=hidden,
        temperature=0.7,
        shrinkage=shrinkage,
        bias_var=0.7,
        hidden_alpha=4,
        hidden_beta=1.5,
        noise_alpha=4,
        noise_beta=2,
        **LIGHT[shrinkage],
        **options,
    )


def assert_sweep_is_valid(shrinkage, collapse, transitions):
    model = tiny(shrinkage)
    step = nns.Gibbs(model=model, collapse=collapse)
    assert_joint(step, model, "targets", transitions=transitions)


@pytest.mark.parametrize("collapse", [False, True])
def test_joint_distribution(collapse):
    """A sweep that does not leave the posterior of two layers invariant."""
    assert_sweep_is_valid("student_t", collapse, 4_000)


@pytest.mark.slow
@pytest.mark.parametrize("collapse", [False, True])
@pytest.mark.parametrize("shrinkage", LIGHT)
def test_joint_distribution_of_all_families(shrinkage, collapse):
    """The same at length, which sees errors of a few per cent, for all priors of the scales."""
    assert_sweep_is_valid(shrinkage, collapse, 30_000)
