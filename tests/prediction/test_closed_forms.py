"""Networks whose readout has been integrated out are known by their laws, not by names."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.prediction.laws import read_readout

X = np.random.default_rng(0).normal(size=(12, 2))


@pytest.mark.parametrize("floatX", ["float64", "float32"])
@pytest.mark.parametrize("units", [20, 4])
def test_networks_of_the_builder(units, floatX):
    """The readout is read where it is integrated out by rows and by columns."""
    with pytensor.config.change_flags(floatX=floatX):
        model = nns.wide_mlp(X, X, hidden=(units,))
        f, sigma = read_readout(model, model["y"], model["inputs"])
    assert f is model["f"]
    assert sigma.eval() == pytest.approx(0.1)


def by_hand(sd=1.0, mean=1.0, spread=1.0, function=1.0, centre=0.0, share=0.0):
    """The same by hand, with one part of it changed."""
    noise = 0.3
    with pm.Model() as model:
        psi = pm.math.tanh(pm.Data("inputs", X) @ pm.Normal("W", 0, 1, shape=(2, 20)))
        phi = pm.Normal("phi", 0, sd, shape=20)
        precision = pt.eye(20) + psi.T @ psi / noise**2
        root = pt.linalg.cholesky(precision)
        expected = pt.linalg.solve(precision, psi.T @ X[:, 0]) / noise**2
        drawn = pt.linalg.solve_triangular(root.T, phi, lower=False)
        pm.Deterministic("f", function * psi @ (mean * expected + spread * drawn))
        covariance = psi @ ((1 + share) * psi.T) + noise**2 * np.eye(12)
        pm.MvNormal("y", centre, covariance, observed=X[:, 0])
    return model


def test_a_network_by_hand():
    model = by_hand()
    assert read_readout(model, model["y"], model["inputs"])[0] is model["f"]


PARTS = ("sd", "mean", "spread", "function", "centre", "share")


@pytest.mark.parametrize("part", PARTS)
def test_what_is_called_f_but_is_another_function(part):
    model = by_hand(**{part: 0.01 if part in ("centre", "share") else 1.01})
    assert read_readout(model, model["y"], model["inputs"]) is None


def test_a_density_under_the_name_of_the_builder():
    with pm.Model() as model:
        psi = pm.Data("inputs", X) @ pm.Normal("W", shape=(2, 2))
        pm.Deterministic("f", psi @ pm.Normal("phi", shape=2))
        pm.CustomDist(
            "y",
            psi,
            0.3,
            logp=lambda value, psi, sigma: -pt.sqr(value - psi.sum(1)).sum() / sigma,
            signature="(n,p),()->(n)",
            class_name="LinearNormal",
            observed=X[:, 0],
        )
    assert read_readout(model, model["y"], model["inputs"]) is None
