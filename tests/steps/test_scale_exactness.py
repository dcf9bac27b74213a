"""Sweeps that draw scales: joint distribution tests and quadrature."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.basic import GammaRV, LaplaceRV, NormalRV, StudentTRV
from scipy import integrate, stats

import pymc_nnsteps as nns
from pymc_nnsteps.laws import scales
from tests.cases import slow
from tests.statistics import assert_chain_moments
from tests.steps.chains import chain
from tests.steps.joint import assert_joint

RNG = np.random.default_rng(5)
X = RNG.normal(size=(8, 3))
GROUPS = np.array([0, 2, 2, 1, 0, 1, 2, 1])
TRANSITIONS = 10_000


def data(*shape):
    return pm.Data("targets", np.zeros(shape))


def hierarchical_normal():
    """The textbook's: means of groups, with both variances unknown."""
    mu = pm.Normal("mu", 0.5, 1.0)
    variance = pm.InverseGamma("variance", 4, 3)
    theta = pm.Normal("theta", mu, pt.sqrt(variance), shape=3)
    noise = pm.InverseGamma("noise", 5, 4)
    pm.Normal("y", theta[GROUPS], noise**0.5, observed=data(8))


def regression():
    beta = pm.Normal("beta", [0.0, 1.0, -1.0], 0.7)
    intercept = pm.Normal("intercept", 0, 2)
    tau = pm.Gamma("tau", 4, 3)
    pm.Normal("y", X @ beta + intercept, tau=tau, observed=data(8))


def relevance_determination():
    """Three levels of precisions, the middle one per input, and two of the noise."""
    tau = pm.Gamma("tau", 3, 2)
    tau_input = pm.Gamma("tau_input", 2, 2 / tau, shape=3)
    W = pm.Normal("W", 0, 1 / pt.sqrt(tau_input), shape=(2, 3))
    tau_noise = pm.Gamma("tau_noise", 3, 3)
    tau_output = pm.Gamma("tau_output", 2, 2 / tau_noise, shape=2)
    pm.Normal("y", X @ W.T, tau=tau_output, observed=data(8, 2))


def adjusted_units():
    """Products of a precision per column and one per row, which also scales the biases."""
    source = pm.Gamma("source", 3, 3, shape=3)
    adjustment = pm.Gamma("adjustment", 2, 2, shape=(2, 1))
    W = pm.Normal("W", 0, tau=source * adjustment, shape=(2, 3))
    b = pm.Normal("b", 0, tau=0.5 * adjustment[:, 0])
    pm.Normal("y", X @ W.T + b, 0.8, observed=data(8, 2))


def student_t_observations():
    common = pm.Gamma("common", 4, 4)
    tau = pm.Gamma("tau", 3, 3 / common, shape=2)
    pm.StudentT("y", nu=3, mu=X[:, :2], lam=tau, observed=data(8, 2))


def student_t_weights():
    variance = pm.InverseGamma("variance", 3, 2)
    pm.StudentT("y", nu=5, mu=0.3, sigma=pt.sqrt(2 * variance), observed=data(3, 4))


def laplace_and_inverse_gammas():
    top = pm.Gamma("top", 3, 2)
    scale = pm.InverseGamma("scale", 4, 3 * top, shape=3)
    pm.Laplace("y", 0.2, scale[GROUPS], observed=data(8))


MODELS = [hierarchical_normal, regression, relevance_determination, adjusted_units,
          student_t_observations, student_t_weights, laplace_and_inverse_gammas]  # fmt: skip


def build(function):
    with pm.Model() as model:
        function()
    return model


LONGER = {
    regression,
    relevance_determination,
    adjusted_units,
    student_t_observations,
    student_t_weights,
    hierarchical_normal,
}


@pytest.mark.parametrize(
    "function",
    [slow(model) if model in LONGER else model for model in MODELS],
)
def test_joint_distribution(function):
    """A wrong shape, a lost child, a sum over the wrong axis, a Jacobian forgotten."""
    model = build(function)
    assert_joint(nns.Gibbs(model=model), model, "targets", transitions=TRANSITIONS)


def half_degree_short(z, alpha, mu, s, right=scales.CHILDREN[StudentTRV].mixing):
    exponents = right(z, alpha, mu, s)
    return replace(exponents, nu=exponents.nu - 0.5)


def other_degrees(z, alpha, mu, s, right=scales.CHILDREN[StudentTRV].mixing):
    return right(z, 1.5 * alpha, mu, s)


PLANTED = {
    "squares too large": (
        regression,
        NormalRV,
        {"statistic": lambda z, mu, s: 0.65 * pt.sqr(z - mu)},
    ),
    "lower shape by half": (
        relevance_determination,
        GammaRV,
        {"order": lambda z, shape, s: shape - 0.5},
    ),
    "degrees of freedom": (student_t_observations, StudentTRV, {"mixing": other_degrees}),
    "shape of the case": (student_t_weights, StudentTRV, {"mixing": half_degree_short}),
    "order of a Laplace child": (
        laplace_and_inverse_gammas,
        LaplaceRV,
        {"order": lambda z, mu, s: 0.7 * pt.ones_like(z)},
    ),
}


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(plant, marks=pytest.mark.slow if function in LONGER else ())
        for plant, (function, *_) in PLANTED.items()
    ],
)
def test_joint_distribution_test_sees_a_planted_error(plant, monkeypatch):
    function, op, change = PLANTED[plant]
    model = build(function)
    wrong = replace(scales.CHILDREN[op], **change)
    monkeypatch.setitem(scales.CHILDREN, op, wrong)
    with pytest.raises(AssertionError, match="z-scores beyond"):
        assert_joint(nns.Gibbs(model=model), model, "targets", transitions=TRANSITIONS)


@pytest.mark.parametrize("alpha", [0.7, 3.0])
def test_scale_of_heavy_tails_by_quadrature(alpha):
    """Precisions of cases that are drawn, used and forgotten: too early, too late, not afresh."""
    y = np.array([-0.3, 0.1, 0.4, 2.5, -8.0])
    with pm.Model() as model:
        tau = pm.Gamma("tau", 2, 1.5)
        pm.StudentT("y", nu=alpha, mu=0.2, lam=tau, observed=y)

    def log_density(x):
        likelihood = stats.t.logpdf(y[:, None], alpha, 0.2, np.exp(-x / 2)).sum(0)
        return stats.gamma.logpdf(np.exp(x), 2, scale=1 / 1.5) + x + likelihood

    grid = np.linspace(-12, 6, 4001)
    weight = np.exp(log_density(grid) - log_density(grid).max())
    weight /= integrate.trapezoid(weight, grid)
    mean = integrate.trapezoid(weight * grid, grid)
    variance = integrate.trapezoid(weight * (grid - mean) ** 2, grid)
    step = nns.Gibbs([tau], model=model)
    draws, _ = chain(step, {"tau_log__": np.array(mean)}, 20_000, burn=50)
    assert_chain_moments(draws, [mean], [[variance]])
