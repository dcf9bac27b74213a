"""Layers as functions of noise have the law that PyMC samples."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.network.layers import Gates, Mixture, Normal, layer_of

N = 1_000_000
RNG = np.random.default_rng(0)


def normal():
    return pm.Normal("x", [1.0, -1.0], [0.5, 2.0])


def gates():
    return pm.Bernoulli("x", [0.2, 0.7])


WEIGHTS = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
MEANS = np.array([[-3.0, 0.0, 2.0], [1.0, 4.0, -1.0]])
SDS = np.array([0.5, 1.0, 2.0])


def mixture():
    return pm.Mixture("x", WEIGHTS, pm.Normal.dist(MEANS, SDS))


def moments_of_normal(mean, sd):
    return np.array([mean, mean**2 + sd**2, mean**3 + 3 * mean * sd**2])


@pytest.mark.parametrize(
    ("build", "kind", "moments"),
    [
        (normal, Normal, moments_of_normal(np.array([1.0, -1.0]), np.array([0.5, 2.0]))),
        (gates, Gates, np.array([[0.2, 0.7]] * 3)),
        (mixture, Mixture, (WEIGHTS * moments_of_normal(MEANS, SDS)).sum(-1)),
    ],
    ids=["normal", "gates", "mixture"],
)
def test_a_layer_is_a_function_of_its_noise(build, kind, moments):
    """Its mean, and the first three moments of draws within five errors."""
    with pm.Model() as model:
        x = build()
    layer = layer_of(model, x)
    assert isinstance(layer, kind)
    draws = {"normal": RNG.normal(size=(N, 2)), "uniform": RNG.uniform(size=(N, 2))}
    noise = {name: pt.constant(draws[name]) for name in layer.noise}
    own = layer.given(**noise).eval(mode="FAST_COMPILE").astype(float)
    np.testing.assert_allclose(layer.mean.eval(mode="FAST_COMPILE"), moments[0])
    for power, expected in enumerate(moments, 1):
        powers = own**power
        np.testing.assert_array_less(abs(powers.mean(0) - expected), 5 * powers.std(0) / N**0.5)


def test_another_law_is_no_layer():
    with pm.Model() as model:
        x = pm.Normal("x")
        y = pm.StudentT("y", 4)
        pm.Potential("p", 2 * x)
    with pytest.raises(
        nns.laws.NotConjugate, match=r"x .* is Normal with the potential p; a layer"
    ):
        layer_of(model, x)
    with pytest.raises(nns.laws.NotConjugate, match=r"y .* is StudentT; a layer must be"):
        layer_of(model, y)
