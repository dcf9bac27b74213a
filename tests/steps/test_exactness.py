"""Does a sweep leave the posterior invariant? Joint distribution tests and independent oracles."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

import pymc_nnsteps as nns
from pymc_nnsteps.gaussian.observation import Evidence
from pymc_nnsteps.laws import piecewise
from tests.cases import quick
from tests.statistics import Z_LIMIT, assert_moments, batch_means_z_scores
from tests.steps.joint import assert_joint

RNG = np.random.default_rng(20)
X = RNG.normal(size=(5, 2))
TRANSITIONS = 5_000

STAIRS = nns.activations.PiecewiseLinear(
    knots=[-0.5, 0.5], slopes=[0.3, 0.0, -1.0], values=[-1.0, 0.4, 1.5]
)


def network(n_outputs=None, **options):
    y = X[:, 0] if n_outputs is None else np.resize(X[:, 0], (n_outputs, 5)).T
    options = {"hidden": (3,), "noise": 1.0} | options
    return nns.intermediate_noise_mlp(X, y, **options)


def classifier(likelihood, labels):
    return nns.intermediate_noise_mlp(X, labels, hidden=(3,), noise=1.0, likelihood=likelihood)


NETWORKS = {
    "jumps": lambda: network(activation=STAIRS),
    "all settings": lambda: network(
        2,
        hidden=(3, 2),
        noise={"pre": (0.4, 1.5), "post": (1.2, 0.3), "output": 0.7},
        weight_precision=(1.0, 2.0, 0.5),
        bias_precision=(3.0, 0.7, 1.5),
    ),
}


def by_hand():
    """A network as a user writes it: other operations, other orientations, a tau, no targets."""
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0.3, 0.8, shape=(2, 3))
        Z = pm.Normal("Z", pm.math.dot(X, W1), 0.9)
        A = pm.Normal("A", pt.abs(Z) - 0.5, tau=1.7)
        W2 = pm.Normal("W2", 0, tau=0.8, shape=3)
        b2 = pm.Normal("b2", -1.0, 0.6)
        F = pm.Deterministic("F", (A * W2).sum(axis=-1) + b2)
        pm.Normal("y", F, 0.8, observed=pm.Data("targets", np.zeros(5)))
    return model


GROUPS = np.array([0, 2, 2, 1, 0, 2])


def random_intercepts():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.5, 1.0)
        theta = pm.Normal("theta", mu, 0.7, shape=3)
        slope = pm.Normal("slope", 0, 0.8)
        mean = theta[GROUPS] + slope * np.linspace(-1, 1, 6)
        pm.Normal("y", mean, 0.9, observed=pm.Data("targets", np.zeros(6)))
    return model


def factor_analysis():
    with pm.Model() as model:
        loadings = pm.Normal("loadings", 0, 0.8, shape=(4, 2))
        factors = pm.Normal("factors", 0, 1, shape=(5, 2))
        offset = pm.Normal("offset", 1.0, 0.5, shape=4)
        mean = factors @ loadings.T + offset
        pm.Normal("y", mean, [1.0, 0.7, 1.3, 0.9], observed=pm.Data("targets", np.zeros((5, 4))))
    return model


def more_coefficients_than_rows():
    design = np.random.default_rng(3).normal(size=(3, 6))
    with pm.Model() as model:
        common = pm.Normal("common", 0, 1)
        W = pm.Normal("W", common, [0.5, 1.0, 0.7, 0.4, 1.2, 0.9], shape=(2, 6))
        pm.Normal("y", design @ W.T, 0.7, observed=pm.Data("targets", np.zeros((3, 2))))
    return model


ORDINARY = {
    "network by hand": by_hand,
    "random intercepts": random_intercepts,
    "factor analysis": factor_analysis,
    "p > n": more_coefficients_than_rows,
}


def images(*convolutions, noise=1.0):
    """Images of 4 x 4 pixels."""
    X = RNG.normal(size=(3, 4, 4))
    y = X[:, 0, 0]
    return nns.intermediate_noise_cnn(X, y, convolutions=convolutions, noise=noise)


IMAGES = {
    "pooled convolution": lambda: images(
        nns.models.Conv2D(2, 2, padding=(0, 1), pool=(1, 2)), noise=0.05
    ),
}

CASES = {name: (build, {}, {}) for name, build in (NETWORKS | ORDINARY | IMAGES).items()}
CASES["parallel scan"] = (NETWORKS["all settings"], {"scan": "parallel"}, {})
CASES["multinomial probit"] = (
    lambda: classifier("multinomial_probit", [0, 1, 2, 0, 1]),
    {"sweeps": 2},
    {"decide": lambda z: z.argmax(1)},
)


@pytest.mark.parametrize("case", quick(CASES, {"factor analysis"}))
def test_joint_distribution(case):
    build, options, how = CASES[case]
    model = build()
    step = nns.Gibbs(model=model, **options)
    assert len(step.vars) == len(model.free_RVs)
    assert_joint(step, model, "targets", transitions=TRANSITIONS, seed=TRANSITIONS, **how)


def scaled_information(monkeypatch):
    exact = Evidence.information
    monkeypatch.setattr(Evidence, "information", lambda self: 1.1 * exact(self))


def scaled_pre_activation_noise(monkeypatch):
    exact = piecewise.piecewise_normal
    monkeypatch.setattr(
        piecewise,
        "piecewise_normal",
        lambda rng, mean, sigma, *rest, **size: exact(rng, mean, 1.05 * sigma, *rest, **size),
    )


@pytest.mark.slow
@pytest.mark.parametrize("plant", [scaled_information, scaled_pre_activation_noise])
def test_joint_distribution_test_sees_a_planted_error(plant, monkeypatch):
    plant(monkeypatch)
    model = network()
    with pytest.raises(AssertionError, match="z-scores beyond"):
        assert_joint(nns.Gibbs(model=model), model, "targets", transitions=TRANSITIONS)


# --- oracles -------------------------------------------------------------------------------


def chain(model, draws, seed=0, **options):
    """Draws of a single chain after a short burn-in, as a dict of arrays."""
    step = nns.Gibbs(model=model, **options)
    point = model.initial_point()
    step.setup_chain(np.random.default_rng(seed), 100, draws)
    history = {name: [] for name in point}
    for i in range(100 + draws):
        point, _ = step.step(point)
        if i >= 100:
            for name, value in point.items():
                history[name].append(value)
    return {name: np.asarray(values) for name, values in history.items()}


def assert_means(samples, expected, error):
    """Compare the means of a chain's statistics with an oracle's, given its standard error."""
    n_batches = 50
    z = batch_means_z_scores(samples - expected, n_batches)
    se = np.abs((samples.mean(0) - expected) / np.where(z == 0, np.inf, z))
    combined = (samples.mean(0) - expected) / np.hypot(se, error)
    assert np.all(np.abs(combined) < Z_LIMIT), combined


def test_regression_in_closed_form():
    """One block: the draws are independent, and their mean and covariance are known."""
    rng = np.random.default_rng(4)
    design, y = rng.normal(size=(8, 3)), rng.normal(size=8)
    with pm.Model() as model:
        beta = pm.Normal("beta", [0.5, 0.0, -1.0], [1.0, 2.0, 0.5])
        intercept = pm.Normal("intercept", 2.0, 1.5)
        pm.Normal("y", intercept + pt.dot(design, beta), 0.4, observed=y)
    draws = chain(model, 20_000)
    both = np.column_stack([draws["beta"], draws["intercept"]])
    full = np.column_stack([design, np.ones(8)])
    prior = np.array([1.0, 2.0, 0.5, 1.5]) ** -2.0
    precision = full.T @ full / 0.4**2 + np.diag(prior)
    mean = np.linalg.solve(precision, full.T @ y / 0.4**2 + prior * [0.5, 0.0, -1.0, 2.0])
    standard = (both - mean) @ np.linalg.cholesky(precision)
    assert_moments(standard, 0.0, 1.0)
    for i in range(4):
        assert_moments(standard[:, i] * standard[:, (i + 1) % 4], 0.0, 1.0)


@pytest.mark.slow
def test_tiny_network_against_importance_sampling():
    """1-1-1: draws from the prior of all variables, weighted by the likelihood."""
    x, y = np.array([[-1.0], [0.7], [1.5]]), np.array([0.8, -0.3, 1.2])
    model = nns.intermediate_noise_mlp(x, y, hidden=(1,), noise=0.3)
    draws = chain(model, 8_000)

    rng, n, sd = np.random.default_rng(5), 300_000, 0.3**0.5
    W1, b1, W2, b2 = rng.normal(size=(4, n, 1))
    Z2 = W1 * x[:, 0] + b1 + sd * rng.normal(size=(n, 3))
    X2 = np.maximum(Z2, 0) + sd * rng.normal(size=(n, 3))
    log_weight = -np.sum((y - W2 * X2 - b2) ** 2, axis=1) / (2 * 0.3)
    prior = np.column_stack([W1, b1, Z2, X2, W2, b2])
    sampled = np.column_stack([draws[name].reshape(8_000, -1) for name in model.initial_point()])
    _compare(sampled, prior, log_weight)


@pytest.mark.slow
def test_tiny_probit_network_against_importance_sampling():
    x, y = np.array([[-1.0], [0.4], [1.5]]), np.array([1, 0, 1])
    model = nns.intermediate_noise_mlp(
        x, y, hidden=(1,), noise=0.5, activation="abs", likelihood="probit"
    )
    draws = chain(model, 8_000)

    rng, n, sd = np.random.default_rng(6), 300_000, 0.5**0.5
    W1, b1, W2, b2 = rng.normal(size=(4, n, 1))
    Z2 = W1 * x[:, 0] + b1 + sd * rng.normal(size=(n, 3))
    X2 = np.abs(Z2) + sd * rng.normal(size=(n, 3))
    log_weight = stats.norm.logcdf((W2 * X2 + b2) * np.where(y, 1, -1) / sd).sum(1)
    prior = np.column_stack([W1, b1, Z2, X2, W2, b2])
    names = [name for name in model.initial_point() if name != "Z3"]
    sampled = np.column_stack([draws[name].reshape(8_000, -1) for name in names])
    _compare(sampled, prior, log_weight)


def _compare(sampled, prior, log_weight):
    """Means, squares and neighbouring products of a chain against weighted prior draws.

    Weights of both layers share a sign symmetry or are at least skewed, so cubes are left out.
    """
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    assert 1 / np.sum(weight**2) > 10_000

    def statistics(v):
        v = np.tanh(v)
        return np.column_stack([v, v**2, v * np.roll(v, 1, axis=1)])

    reference = statistics(prior)
    expected = weight @ reference
    error = np.sqrt(weight**2 @ (reference - expected) ** 2)
    assert_means(statistics(sampled), expected, error)


def test_probit_mean_against_quadrature():
    successes, n = 6, 7
    with pm.Model() as model:
        mu = pm.Normal("mu", -0.5, 1.2)
        z = pm.Normal("z", mu, 1.0, shape=n)
        pm.Bernoulli("y", p=pt.gt(z, 0), observed=np.arange(n) < successes)
    draws = chain(model, 20_000)["mu"]

    def density(m):
        binomial = stats.norm.cdf(m) ** successes * stats.norm.cdf(-m) ** (n - successes)
        return stats.norm.pdf(m, -0.5, 1.2) * binomial

    moments = [integrate.quad(lambda m, k=k: m**k * density(m), -8, 8)[0] for k in range(3)]
    expected = np.array(moments[1:]) / moments[0]
    assert_means(np.column_stack([draws, draws**2]), expected, 0.0)
