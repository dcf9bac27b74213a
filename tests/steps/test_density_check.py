"""The log density of trajectories against the model's, and errors in it."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.steps import flat, terms
from pymc_nnsteps.steps.density_check import Target, require_density
from tests.cases import slow

RNG = np.random.default_rng(0)
X = RNG.normal(size=(9, 2))
PYTHON = {"mode": "FAST_COMPILE"}


def check(model, **options):
    with model:
        step = nns.HMC(list(model.free_RVs), compile_kwargs=PYTHON, **options)
    points = [
        {name: value + 0.3 * RNG.normal(size=value.shape) for name, value in point.items()}
        for point in [model.initial_point()] * 2
    ]
    require_density(Target(model), step, *points)
    return step


def network():
    return nns.hierarchical_mlp(X, np.stack([X[:, 0], X[:, 1] ** 2], axis=1), hidden=(2,))


@pytest.mark.parametrize("collapse", [slow(True), False])
def test_right_densities(collapse):
    step = check(network(), collapse=collapse)
    assert bool(step.integrated_out) is collapse


def tempered_integral(patch):
    integral = terms.log_integral
    patch.setattr(terms, "log_integral", lambda *given: 0.7 * integral(*given))


def no_jacobian(patch):
    density = terms.log_density

    def plain(model, factors):
        return density(model, [f for f in factors if "tau" not in f.name])

    patch.setattr(terms, "log_density", plain)


def one_factor_less(patch):
    factors = flat.dependent_factors
    patch.setattr(flat, "dependent_factors", lambda *given: factors(*given)[:-1])


@pytest.mark.parametrize(
    ("plant", "collapse"),
    [slow(tempered_integral, True), (no_jacobian, True), (one_factor_less, False)],
)
def test_an_error_is_seen(plant, collapse, monkeypatch):
    """An integral to a power, precisions without their priors, a factor that is left out."""
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"the log density of HMC differs .* the model's by"):
        check(network(), collapse=collapse)


def test_a_chain_is_checked(monkeypatch):
    """``verify`` looks at the density of trajectories, whatever its chain says."""
    tempered_integral(monkeypatch)
    with pm.Model() as model:
        w = pm.Normal("w", shape=2)
        v = pm.Normal("v", shape=2)
        pm.Normal("y", pm.math.tanh(X * w) @ v, 0.5, observed=X[:, 0])
    with model:
        step = nns.HMC([w, v], collapse=True, longest=8)
    with pytest.raises(AssertionError, match=r"^w: the log density of HMC"):
        nns.verify(model, sweeps=10, step=step, random_seed=1)
