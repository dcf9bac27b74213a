"""Sweeps of networks beside effects of groups: joint distribution tests."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.moves import residual_scales
from tests.steps.joint import assert_joint

RNG = np.random.default_rng(12)
N = 8
X = RNG.normal(size=(N, 2))
GROUPS, OTHERS = np.array([0, 2, 2, 1, 0, 1, 2, 1]), np.array([0, 1, 1, 0, 1, 0, 0, 0])


def hidden(noise=0.3):
    z = pm.Normal("z", X @ pm.Normal("W", shape=(2, 2)), 0.4)
    h = pm.Normal("h", pt.maximum(z, 0), noise)
    return h @ pm.Normal("v", shape=2)


def data():
    return pm.Data("targets", np.zeros(N))


def random_intercept():
    """With a group that has no rows."""
    tau, sigma = pm.Gamma("tau", 3, 2), pm.HalfNormal("sigma", 0.5)
    a = pm.Normal("a", 0, tau=tau, shape=4)
    pm.Normal("y", a[GROUPS] + hidden() + pm.Normal("b"), sigma, observed=data())


def crossed_with_slopes():
    """And with a noise of the activations that is learnt."""
    eta = pm.InverseGamma("eta", 4, 1)
    a, d = pm.Normal("a", 0.3, 0.7, shape=(3, 2)), pm.Normal("d", shape=2)
    effects = a[GROUPS, 0] + a[GROUPS, 1] * X[:, 0] + d[OTHERS]
    pm.Normal("y", effects + hidden(pt.sqrt(eta)), 0.4, observed=data())


def nested_with_missing_rows():
    """Groups within groups; rows whose response is missing; another child of the groups."""
    tau, sigma = pm.Gamma("tau", 3, 2), pm.HalfNormal("sigma", 0.5)
    a, c = pm.Normal("a", 0, tau=tau, shape=3), pm.Normal("c", 0.2, 0.6, shape=2)
    mean = a[GROUPS] + c[np.array([0, 1, 1])[GROUPS]] + hidden()
    pm.Normal("another", 0.5 * a, 0.7)
    pm.Normal("y_missing", mean[:3], sigma)
    pm.Normal("y", mean[3:], sigma, observed=pm.Data("targets", np.zeros(N - 3)))


def build(function):
    with pm.Model() as model:
        function()
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "transitions"),
    [
        (random_intercept, 2000),
        (crossed_with_slopes, 2000),
        (nested_with_missing_rows, 8000),  # the missing rows move slowly
    ],
)
def test_joint_distribution(function, transitions):
    """A scale drawn given activations that are out of date, effects of another group."""
    model = build(function)
    assert_joint(nns.Gibbs(model=model), model, "targets", transitions=transitions)


@pytest.mark.slow
def test_planted_error_is_seen(monkeypatch):
    """The noise of the activations taken for smaller than it is."""
    right = residual_scales.find_residual_scales

    def smaller(likelihood, *others):
        layer = replace(likelihood.layer, precision=3 * likelihood.layer.precision)
        return right(replace(likelihood, layer=layer), *others)

    monkeypatch.setattr("pymc_nnsteps.moves.responses.find_residual_scales", smaller)
    model = build(random_intercept)
    with pytest.raises(AssertionError, match="z-scores beyond"):
        assert_joint(nns.Gibbs(model=model), model, "targets", transitions=2000)
