"""Whole sweeps by Stein's identities, compiled to C and by Numba, where variables have two places.

Laws that are right one by one may be put together wrongly in one mode alone: what is inlined, what
is computed once, what overwrites its input.
"""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.moves import residual_scales
from tests.planting import plant

RNG = np.random.default_rng(3)
N = 8
X, OTHER = RNG.normal(size=(2, N, 2))
Y, U = abs(X[:, 0]) + 0.3 * RNG.normal(size=N), OTHER[:, 1] + 0.3 * RNG.normal(size=N)


def layer(inputs, weights, noise=0.4, name=""):
    z = pm.Normal(f"Z{name}", inputs @ weights, noise)
    return pm.Normal(f"H{name}", pm.math.maximum(z, 0), 0.3)


def shared_weights():
    """Two networks that share their hidden weights and the scale of their responses."""
    with pm.Model() as model:
        weights, s = pm.Normal("W", shape=(2, 2)), pm.HalfNormal("s")
        for name, inputs, targets in (("1", X, Y), ("2", OTHER, U)):
            v = pm.Normal(f"v{name}", shape=2)
            pm.Normal(f"y{name}", layer(inputs, weights, name=name) @ v, s, observed=targets)
    return model


def effect_of_two_scales():
    with pm.Model() as model:
        weights, v, s = pm.Normal("W", shape=(2, 2)), pm.Normal("v", shape=2), pm.HalfNormal("s")
        effects = pm.Normal("a", 0, pm.HalfNormal("t") * pm.Gamma("r", 2, 2), shape=3)
        pm.Normal("y", layer(X, weights) @ v + effects[np.arange(N) % 3], s, observed=Y)
    return model


def scale_in_two_places():
    """Of the noise of pre-activations and of the response."""
    with pm.Model() as model:
        weights, v = pm.Normal("W", shape=(2, 2)), pm.Normal("v", shape=2)
        s = pm.HalfNormal("s", 0.5)
        pm.Normal("y", layer(X, weights, s) @ v, 2 * s, observed=Y)
    return model


def two_responses():
    """Of one layer and one scale, the second for some rows."""
    with pm.Model() as model:
        weights, v = pm.Normal("W", shape=(2, 2)), pm.Normal("v", shape=(2, 2))
        s, f = pm.HalfNormal("s"), layer(X, weights) @ v
        pm.Normal("y", f[:, 0], s, observed=Y)
        pm.Normal("u", f[:5, 1], 2 * s, observed=U[:5])
    return model


MODELS = [shared_weights, effect_of_two_scales, scale_in_two_places, two_responses]


def check(model, **options):
    nns.verify(model, sweeps=1000, step=nns.Gibbs(model=model, **options), random_seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("build", MODELS)
def test_sweeps_in_c(build):
    check(build())


@pytest.mark.release
@pytest.mark.parametrize("build", MODELS)
def test_sweeps_by_numba(build):
    check(build(), compile_kwargs={"mode": "NUMBA"})


@pytest.mark.slow
def test_a_planted_error_is_seen(monkeypatch):
    """Residuals of responses, without the activations, that are taken for larger than they are."""

    def larger(right, *args):
        weight, residual, *others = right(*args)
        return weight, 1.3 * residual, *others

    plant(monkeypatch, residual_scales.ResidualScale, "_by_output", larger)
    with pytest.raises(AssertionError, match="s "):
        check(two_responses())


@pytest.mark.parametrize("step", [nns.Gibbs, nns.HMC, nns.PCN, nns.MALA])
def test_jax_is_refused(step):
    model = two_responses()
    with pytest.raises(ValueError, match=r'mode with a JAXLinker, .* or pass \{"mode": "NUMBA"\}'):
        step([model["W"], model["v"]], model=model, compile_kwargs={"mode": "JAX"})
