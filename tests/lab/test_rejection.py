"""Rejection sampling: exact laws, what a run returns and costs, and what is refused."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import integrate, special, stats

import pymc_nnsteps as nns
from pymc_nnsteps.lab import rejection
from tests.cases import quick
from tests.modes import FAST
from tests.statistics import assert_moments, assert_proportion, assert_uniform

transforms = pm.distributions.transforms
DRAWS = 20_000


@pytest.fixture(autouse=True)
def compiled_fast(monkeypatch):
    """Compile in a tenth of a second; a test that undoes this compiles as users do."""
    monkeypatch.setattr(rejection, "c_by_default", lambda: {"mode": FAST})


def sample(model, draws=DRAWS, seed=0, **options):
    return nns.lab.rejection_sample(model, draws, random_seed=seed, progressbar=False, **options)


def numbers(tree, name):
    """Draws of a variable."""
    [chain] = tree.posterior[name].values
    return chain


def grid_cdf(log_density, low, high):
    """CDF of an unnormalised density by the trapezoidal rule."""
    grid = np.linspace(low, high, 20_001)
    log_values = log_density(grid)
    mass = integrate.cumulative_trapezoid(np.exp(log_values - log_values.max()), grid, initial=0)
    return lambda x: np.interp(x, grid, mass / mass[-1])


def assert_law(tree, cdfs):
    """Fail unless each variable, transformed by its CDF, is uniform in each of its entries."""
    for name, cdf in cdfs.items():
        u = cdf(numbers(tree, name))
        for column in np.reshape(u, (len(u), -1)).T:
            assert_uniform(column)


Y = np.array([0.4, -1.1, 0.9])
SQUARES = np.sum(Y**2)
LAWS = {}


def law_of(function):
    LAWS[function.__name__] = function
    return function


@law_of
def normal_mean():
    pm.Normal("y", pm.Normal("mu", 0.5, 2), 0.7, observed=Y)
    precision = 1 / 4 + 3 / 0.49
    mean = (0.5 / 4 + Y.sum() / 0.49) / precision
    return {"mu": stats.norm(mean, precision**-0.5).cdf}


@law_of
def precision():
    pm.Normal("y", 0, tau=pm.Gamma("v", 2, 4), observed=Y)
    return {"v": stats.gamma(3.5, scale=1 / (4 + SQUARES / 2)).cdf}


@law_of
def exponential_precision():
    pm.Normal("y", 0, tau=pm.Exponential("v", 2), observed=Y)
    return {"v": stats.gamma(2.5, scale=1 / (2 + SQUARES / 2)).cdf}


@law_of
def variance():
    pm.Normal("y", 0, pt.sqrt(pm.InverseGamma("v", 2, 1)), observed=Y)
    return {"v": stats.invgamma(3.5, scale=1 + SQUARES / 2).cdf}


@law_of
def laplace():
    pm.Laplace("y", 0, pm.InverseGamma("v", 2, 1), observed=Y)
    return {"v": stats.invgamma(5, scale=1 + np.abs(Y).sum()).cdf}


@law_of
def student_t():
    pm.StudentT("y", 3, pm.Normal("mu"), sigma=0.5, observed=Y)

    def log_density(mu):
        residual = stats.t(3).logpdf((Y[:, None] - mu) / 0.5)
        return stats.norm.logpdf(mu) + residual.sum(0)

    return {"mu": grid_cdf(log_density, -6, 6)}


@law_of
def student_t_of_unknown_scale():
    pm.StudentT("y", 3, 0, lam=pm.Gamma("v", 2, 1), observed=Y)

    def log_density(v):
        residual = stats.t(3).logpdf(Y[:, None] * np.sqrt(v)) + np.log(v) / 2
        return stats.gamma(2).logpdf(v) + residual.sum(0)

    return {"v": grid_cdf(log_density, 1e-9, 40)}


@law_of
def normal_and_counts_of_one_scale():
    v = pm.Gamma("v", 2, 4)
    pm.Normal("y", 0, tau=v, observed=Y)
    pm.Poisson("n", v, observed=[1, 0])
    pm.Laplace("z", 0.1, 1 / v, observed=[0.3])
    return {"v": stats.gamma(2 + 1.5 + 1 + 1, scale=1 / (4 + SQUARES / 2 + 2 + 0.2)).cdf}


@law_of
def beta_bernoulli():
    pm.Bernoulli("y", pm.Beta("p", 2, 0.8), observed=[1, 0, 0])
    return {"p": stats.beta(3, 2.8).cdf}


@law_of
def gamma_poisson_of_groups():
    rate = pm.Gamma("rate", 2, 1, shape=2)
    pm.Poisson("y", rate[[0, 1, 1]], observed=[0, 2, 3])
    return {"rate": stats.gamma([2, 7], scale=[1 / 2, 1 / 3]).cdf}


@law_of
def dirichlet_categorical():
    p = pm.Dirichlet("p", [1, 2, 0.5])
    pm.Categorical("y", p, observed=[0, 0, 2])
    return {"p": stats.beta([3, 2, 1.5], [3.5, 4.5, 5]).cdf}


@law_of
def truncated():
    pm.Normal("y", pm.Truncated("a", pm.Gumbel.dist(0, 1), lower=0), 1, observed=0.5)
    return {"a": grid_cdf(lambda a: stats.gumbel_r.logpdf(a) - (a - 0.5) ** 2 / 2, 0, 20)}


@law_of
def mixture():
    a = pm.Mixture("a", [0.3, 0.7], [pm.Normal.dist(-1, 0.3), pm.Normal.dist(1, 0.5)])
    pm.Normal("y", a, 1, observed=-0.2)

    def log_density(a):
        prior = 0.3 * stats.norm(-1, 0.3).pdf(a) + 0.7 * stats.norm(1, 0.5).pdf(a)
        return np.log(prior) - (a + 0.2) ** 2 / 2

    return {"a": grid_cdf(log_density, -4, 6)}


@law_of
def correlation_matrix():
    pm.LKJCholeskyCov("c", eta=1, n=2, sd_dist=pm.Exponential.dist(1.0))
    with pm.modelcontext(None) as model:
        rho = pm.Deterministic("rho", model["c_corr"][0, 1])
    pm.Bernoulli("y", (1 + rho) / 2, observed=1)
    return {"rho": lambda rho: (1 + rho) ** 2 / 4}


@law_of
def custom_distribution_by_its_graph():
    def twice(mu, size):
        return 2 * pm.Normal.dist(mu, 1, size=size)

    pm.Normal("y", pm.CustomDist("a", pm.Normal("mu"), dist=twice), 1, observed=1.5)
    return {
        "a": stats.norm(1.5 * 8 / 9, np.sqrt(8 / 9)).cdf,
        "mu": stats.norm(1.5 * 2 / 9, np.sqrt(1 - 4 / 9)).cdf,
    }


@law_of
def tilted_beside_one_of_its_own_graph():
    v = pm.Gamma("v", 2, 4)
    pm.Truncated("a", pm.Gumbel.dist(0, 1), lower=0)
    pm.Normal("y", 0, tau=v, observed=Y)
    return {"v": stats.gamma(3.5, scale=1 / (4 + SQUARES / 2)).cdf}


@law_of
def custom_distribution_by_its_function():
    def random(mu, rng=None, size=None):
        return rng.normal(mu, 1, size=size)

    def logp(x, mu):
        return -((x - mu) ** 2) / 2

    pm.Normal("y", pm.CustomDist("a", pm.Normal("mu"), logp=logp, random=random), 1, observed=1.5)
    return {"a": stats.norm(1, np.sqrt(2 / 3)).cdf, "mu": stats.norm(0.5, np.sqrt(2 / 3)).cdf}


@law_of
def observed_custom_distribution():
    def counts(mu, size):
        return pm.Poisson.dist(mu, size=size)

    pm.CustomDist("y", pm.Gamma("v", 2, 1), dist=counts, observed=[2, 1])
    return {"v": stats.gamma(5, scale=1 / 3).cdf}


@law_of
def observed_covariate():
    x = pm.Normal("x", [0, 0, 0], 1, observed=[1.0, 2.0, 0.5])
    pm.Normal("y", pm.Normal("b") * x, 1, observed=Y)
    precision = 1 + 1 + 4 + 0.25
    return {"b": stats.norm(Y @ [1, 2, 0.5] / precision, precision**-0.5).cdf}


@law_of
def observed_hyperparameter():
    h = pm.Normal("h", observed=0.7)
    pm.Normal("y", 0, tau=pm.Gamma("v", 2, pt.exp(h)), observed=Y)
    return {"v": stats.gamma(3.5, scale=1 / (np.exp(0.7) + SQUARES / 2)).cdf}


@law_of
def observed_groups():
    group = pm.Categorical("group", [0.5, 0.2, 0.3], observed=[0, 2, 2])
    pm.Normal("y", 0, tau=pm.Gamma("v", 2, 4, shape=3)[group], observed=Y)
    half_squares = np.array([Y[0] ** 2, 0, Y[1] ** 2 + Y[2] ** 2]) / 2
    return {"v": stats.gamma([2.5, 2, 3], scale=1 / (4 + half_squares)).cdf}


@law_of
def chain_through_observed():
    x = pm.Normal("x", observed=1.0)
    y = pm.Normal("y", x, observed=2.0)
    z = pm.Normal("z", x + y)
    pm.Normal("w", z, observed=2.0)
    return {"z": stats.norm(2.5, 0.5**0.5).cdf}


@law_of
def likelihood_of_nothing():
    pm.Normal("a")
    pm.Normal("y", 0, 1, observed=2.0)
    return {"a": stats.norm.cdf}


@law_of
def shape_of_another():
    v = pm.Gamma("v", 2, 4, shape=3)
    w = pm.Normal("w", 0, 1, shape=v.shape)
    pm.Normal("y", 0, tau=v, observed=Y)
    pm.Normal("z", w, 1, observed=Y)
    return {
        "v": lambda v: stats.gamma(2.5, scale=1 / (4 + Y**2 / 2)).cdf(v),
        "w": lambda w: stats.norm(Y / 2, 0.5**0.5).cdf(w),
    }


@law_of
def size_and_shape_and_dims():
    with pm.modelcontext(None) as model:
        model.add_coords({"row": range(2), "column": range(3)})
    a = pm.Normal("a", Y)
    b = pm.Normal("b", a, shape=(2, 3))
    c = pm.Normal("c", b, dims=("row", "column"))
    pm.Normal("y", c.sum(), 1, observed=Y.sum())
    a_variance, total = 3 * 4 + 6 * 2 + 1, Y.sum()
    gain = -total / a_variance
    return {
        "a": stats.norm(Y + 2 * gain, np.sqrt(1 - 4 / a_variance)).cdf,
        "c": stats.norm(Y + 4 * gain, np.sqrt(3 - 16 / a_variance)).cdf,
    }


@law_of
def data_containers():
    with pm.modelcontext(None) as model:
        X = pm.Data("X", np.ones((3, 1)))
        scale = pm.Data("scale", 2.0)
        y = pm.Data("targets", np.zeros(2))
        model["X"].set_value(np.ones((2, 1)))
        y.set_value(Y[:2])
    pm.Normal("y", X @ pm.Normal("b", 0, scale, shape=1), 1, observed=y)
    precision = 1 / 4 + 2
    return {"b": stats.norm(Y[:2].sum() / precision, precision**-0.5).cdf}


@law_of
def missing_observations():
    p = pm.Beta("p", 1, 1)
    y = np.ma.masked_array([1, 1, 0, 1], [0, 0, 0, 1])
    with pytest.warns(pm.exceptions.ImputationWarning):
        pm.Bernoulli("y", p, observed=y)
    return {"p": stats.beta(3, 2).cdf}


@law_of
def potential():
    x = pm.Normal("x")
    pm.Potential("sharpen", -1.5 * pt.sqr(x - 1))
    return {"x": stats.norm(0.75, 0.5).cdf}


@law_of
def potentials_and_observations():
    x = pm.Normal("x", shape=2)
    pm.Potential("sharpen", -0.5 * pt.sqr(x))
    pm.Potential("sharpen_first", -pt.sqr(x[0]))
    pm.Bernoulli("y", 0.5, observed=1)
    return {"x": stats.norm(0, [0.5, 0.5**0.5]).cdf}


@law_of
def exponential_observation():
    pm.Exponential("y", pm.Gamma("v", 2, 4), observed=[0.5, 1.5])
    return {"v": stats.gamma(4, scale=1 / 6).cdf}


@law_of
def impossible_probability():
    p = pm.Normal("p", 0.5, 0.7, shape=2)
    pm.Binomial("y", 3, p, observed=[2, 1])

    def cdf(k):
        weight = stats.norm(0.5, 0.7).logpdf
        return grid_cdf(lambda p: weight(p) + stats.binom(3, p).logpmf(k), 1e-9, 1 - 1e-9)

    cdfs = [cdf(2), cdf(1)]
    return {"p": lambda p: np.stack([cdfs[0](p[:, 0]), cdfs[1](p[:, 1])], axis=1)}


@law_of
def impossible_scale():
    pm.Normal("y", 0, pm.Normal("s"), observed=Y)

    def log_density(s):
        return stats.norm.logpdf(s) - 3 * np.log(s) - SQUARES / s**2 / 2

    return {"s": grid_cdf(log_density, 1e-2, 8)}


@law_of
def impossible_order():
    c = pm.Normal("c", shape=2)
    pm.OrderedLogistic("y", eta=0.0, cutpoints=c, observed=[1])
    c, upper = np.linspace(-7, 7, 1401), np.linspace(-7, 7, 1401)[:, None]
    between = np.where(upper > c, special.expit(upper) - special.expit(c), 0)
    density = stats.norm.pdf(c) * stats.norm.pdf(upper) * between
    lower, upper = (np.cumsum(density.sum(axis)) / density.sum() for axis in (0, 1))
    return {
        "c": lambda x: np.stack([np.interp(x[:, 0], c, lower), np.interp(x[:, 1], c, upper)], 1)
    }


@law_of
def impossible_covariance():
    a = pm.Normal("a")
    pm.MvNormal("y", np.zeros(2), pt.stack([[1.0, a], [a, 1.0]]), observed=Y[:2])

    def log_density(a):
        square = Y[:2] @ Y[:2] - 2 * a * Y[0] * Y[1]
        return stats.norm.logpdf(a) - np.log(1 - a**2) / 2 - square / (1 - a**2) / 2

    return {"a": grid_cdf(log_density, -1 + 1e-9, 1 - 1e-9)}


@law_of
def impossible_bounds():
    x = pm.Normal("x", pm.Normal("a"), shape=2)
    pm.CustomDist("u", x[0], x[1], logp=_between, random=_anything, default_transform=None)
    pm.Bernoulli("y", 0.5, observed=1)
    return {"u": stats.uniform.cdf}


def _between(u, low, high):
    density = pt.switch((u >= 0) & (u <= 1), 0.0, -np.inf)
    return pm.distributions.dist_math.check_parameters(density, low < high, msg="low < high")


def _anything(low, high, rng=None, size=None):
    return np.where(low < high, rng.uniform(size=size), 5.0)


@law_of
def student_t_of_fewer_scales():
    s = pm.Gamma("s", 3, 3, shape=2)
    x = pm.StudentT("x", np.array([[3.0]]), 0, sigma=s[:, None], shape=(2, 3))
    v = pm.InverseGamma("v", np.array([[2.0]]), s[:, None], shape=(2, 3))
    pm.Deterministic("t", x / s[:, None])
    pm.Deterministic("u", v / s[:, None])
    pm.Bernoulli("y", 0.5, observed=1)
    return {"t": stats.t(3).cdf, "u": stats.invgamma(2).cdf}


LOG_BOUND = {
    "impossible_scale": -1.5 * np.log(2 * np.pi * SQUARES / 3) - 1.5,
    "impossible_covariance": -2.2,
    "potential": 0.0,
    "potentials_and_observations": 0,
    "exponential_observation": 2 * np.log(2 / 2.0) - 2,
}

SLOWER = {
    "dirichlet_categorical",
    "truncated",
    "mixture",
    "correlation_matrix",
    "custom_distribution_by_its_graph",
    "tilted_beside_one_of_its_own_graph",
    "impossible_covariance",
    "impossible_bounds",
}
"""Models that are drawn one at a time, or looked at one at a time."""


QUICK = {
    "normal_mean", "precision", "laplace", "student_t_of_unknown_scale", "beta_bernoulli",
    "dirichlet_categorical", "mixture", "correlation_matrix",
    "custom_distribution_by_its_graph", "custom_distribution_by_its_function",
    "observed_covariate", "observed_groups", "size_and_shape_and_dims", "missing_observations",
    "potentials_and_observations", "impossible_probability", "impossible_covariance",
    "impossible_bounds",
}  # fmt: skip


@pytest.mark.parametrize("name", quick(LAWS, QUICK))
def test_law(name):
    """Another law: a wrong bound, tilt, copy of a variable, or value of an observation."""
    with pm.Model() as model:
        cdfs = LAWS[name]()
    draws = 1500 if name in SLOWER else 8000
    assert_law(sample(model, draws, log_bound=LOG_BOUND.get(name)), cdfs)


def build_normal_gamma():
    with pm.Model() as model:
        tau = pm.Gamma("tau", 2, 1)
        mu = pm.Normal("mu", 0.3, tau=2 * tau)
        pm.Normal("y", mu, tau=tau, observed=Y)
    return model


def test_mean_whose_scale_is_that_of_the_observations():
    """A factor of the weights' prior in the tilt; a joint law that is off in one variable only."""
    tree = sample(build_normal_gamma())
    mu, tau = numbers(tree, "mu"), numbers(tree, "tau")
    k, shape = 2 + 3, 2 + 1.5
    mean = (2 * 0.3 + Y.sum()) / k
    rate = 1 + np.sum((Y - Y.mean()) ** 2) / 2 + 2 * 3 / k * (Y.mean() - 0.3) ** 2 / 2
    assert_uniform(stats.gamma(shape, scale=1 / rate).cdf(tau))
    assert_uniform(special.ndtr((mu - mean) * np.sqrt(k * tau)))


def test_independent_mean_and_precision():
    """Against the marginal of the precision, and the mean given it."""
    with pm.Model() as model:
        tau = pm.Gamma("tau", 2, 1)
        pm.Normal("y", pm.Normal("mu"), 1 / pt.sqrt(tau), observed=Y)
    tree = sample(model)
    mu, tau = numbers(tree, "mu"), numbers(tree, "tau")

    def log_density(t):
        residual = SQUARES - (Y.sum() ** 2) * t / (1 + 3 * t)
        return stats.gamma(2).logpdf(t) + 1.5 * np.log(t) - t * residual / 2 - np.log1p(3 * t) / 2

    assert_uniform(grid_cdf(log_density, 1e-9, 40)(tau))
    precision = 1 + 3 * tau
    assert_uniform(special.ndtr((mu - tau * Y.sum() / precision) * np.sqrt(precision)))


def test_schools():
    """Against two-dimensional quadrature: a scale of latent means takes no part in the tilt."""
    y, s = np.array([1.4, -0.3, 0.8]), np.array([1.0, 0.6, 0.9])
    with pm.Model() as model:
        v = pm.InverseGamma("v", 3, 2)
        mu = pm.Normal("mu", 0, 1)
        theta = pm.Normal("theta", mu, pt.sqrt(v), shape=3)
        pm.Normal("y", theta, s, observed=y)
    tree = sample(model)
    mu, log_v = np.linspace(-5, 5, 401)[:, None], np.linspace(-4, 7, 801)
    v = np.exp(log_v)
    log_weight = stats.norm.logpdf(mu) + stats.invgamma(3, scale=2).logpdf(v) + log_v
    for y_j, s_j in zip(y, s, strict=True):
        log_weight = log_weight + stats.norm(mu, np.sqrt(v + s_j**2)).logpdf(y_j)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()

    def assert_moments_of(draws, mean, square):
        mean = np.sum(weight * mean)
        assert_moments(draws, mean, np.sum(weight * square) - mean**2)

    assert_moments_of(numbers(tree, "mu"), mu, mu**2)
    assert_moments_of(np.log(numbers(tree, "v")), log_v, log_v**2)
    for draws, y_j, s_j in zip(numbers(tree, "theta").T, y, s, strict=True):
        variance = 1 / (1 / v + 1 / s_j**2)
        mean = variance * (mu / v + y_j / s_j**2)
        assert_moments_of(draws, mean, variance + mean**2)


def test_free_mv_normal():
    """Tries that share noise, or a covariance spread over them."""
    prior = np.array([[2, 0.5, 0], [0.5, 1, 0.3], [0, 0.3, 0.7]])
    with pm.Model() as model:
        a = pm.MvNormal("a", np.zeros(3), prior)
        b = pm.MvNormal("b", a, np.eye(3), shape=(2, 3))
        pm.MvNormal("y", b.sum(0), 2 * np.eye(3), observed=Y)
    tree = sample(model)
    sum_and_noise = 2 * np.eye(3) + 2 * np.eye(3)
    gain = 2 * prior @ np.linalg.inv(4 * prior + sum_and_noise)
    assert_moments(numbers(tree, "a"), gain @ Y, np.diag(prior - 2 * gain @ prior))
    assert numbers(tree, "b").shape == (DRAWS, 2, 3)


@pytest.mark.slow
def test_free_zero_sum_normal():
    """A constraint that a copy of the variable does not keep."""
    with pm.Model() as model:
        pm.Normal("y", pm.ZeroSumNormal("a", 1, shape=3), 1, observed=Y)
    draws = numbers(sample(model, 5000), "a")
    np.testing.assert_allclose(draws.sum(1), 0, atol=1e-12)
    assert_moments(draws, (Y - Y.mean()) / 2, np.full(3, 1 / 3))


def test_free_random_walk():
    """Innovations of one try in the walk of another."""
    with pm.Model() as model:
        walk = pm.GaussianRandomWalk("a", init_dist=pm.Normal.dist(), steps=2)
        pm.Normal("y", walk, 1, observed=Y)
    prior = np.minimum.outer([1, 2, 3], [1, 2, 3])
    gain = prior @ np.linalg.inv(prior + np.eye(3))
    covariance = prior - gain @ prior
    draws, ones = numbers(sample(model, 5000), "a"), np.ones(3)
    assert_moments(draws, gain @ Y, np.diag(covariance))
    assert_moments(draws @ ones, ones @ gain @ Y, ones @ covariance @ ones)


def test_discrete_free_variables():
    """Against enumeration."""
    with pm.Model() as model:
        n = pm.Poisson("n", 2)
        z = pm.Categorical("z", [0.2, 0.5, 0.3], shape=2)
        mu = pt.as_tensor([0.0, 1.0, 2.0])
        pm.Binomial("k", n + 1, 0.5, observed=2)
        pm.Normal("y", mu[z], 1, observed=[1.5, 0.0])
    tree = sample(model)
    counts = np.arange(60)
    weights = stats.poisson(2).pmf(counts) * stats.binom(counts + 1, 0.5).pmf(2)
    for count, weight in zip(counts[:6], weights / weights.sum(), strict=False):
        assert_proportion(numbers(tree, "n") == count, weight)
    weights = np.array([0.2, 0.5, 0.3]) * stats.norm(np.arange(3), 1).pdf([[1.5], [0.0]])
    weights /= weights.sum(1, keepdims=True)
    for entry in (0, 1):
        for value in range(3):
            assert_proportion(numbers(tree, "z")[:, entry] == value, weights[entry, value])
    assert numbers(tree, "z").dtype.kind == "i"


def test_choice_by_a_single_index():
    """A graph that PyTensor cannot vectorise."""
    with pm.Model() as model:
        z = pm.Categorical("z", [0.2, 0.5, 0.3])
        pm.Normal("y", pt.as_tensor([0.0, 1.0, 2.0])[z], 1, observed=1.5)
    z = numbers(sample(model, 3000), "z")
    weights = np.array([0.2, 0.5, 0.3]) * stats.norm(np.arange(3), 1).pdf(1.5)
    for value, weight in enumerate(weights / weights.sum()):
        assert_proportion(z == value, weight)


def test_deterministics():
    """Values of another try than the variables', of none, or of the prior."""
    with pm.Model() as model:
        v = pm.Gamma("v", 2, 1)
        a = pm.Normal("a", shape=3)
        y = pm.Normal("y", a, tau=v, observed=Y)
        pm.Deterministic("constant", pt.as_tensor([1.0, 2.0]))
        pm.Deterministic("number", pt.as_tensor(3))
        pm.Deterministic("residual", y - a)
        pm.Deterministic("sigma", 1 / pt.sqrt(v))
        pm.Deterministic("outer", a[:, None] * a)
        pm.Deterministic("sorted", pt.sort(a))
        pm.Deterministic("inverse", pt.linalg.inv(a[:, None] * a + pt.eye(3)))
        steps = pytensor.scan(lambda x: x / 2, outputs_info=a, n_steps=2, return_updates=False)
        pm.Deterministic("steps", steps)
    with pytensor.config.change_flags(cxx=""):
        tree = sample(model, 500)
    a, v = numbers(tree, "a"), numbers(tree, "v")
    outer = a[:, :, None] * a[:, None, :]
    np.testing.assert_array_equal(numbers(tree, "constant"), np.tile([1.0, 2.0], (500, 1)))
    np.testing.assert_array_equal(numbers(tree, "number"), np.full(500, 3))
    np.testing.assert_allclose(numbers(tree, "residual"), Y - a)
    np.testing.assert_allclose(numbers(tree, "sigma"), v**-0.5)
    np.testing.assert_allclose(numbers(tree, "outer"), outer)
    np.testing.assert_array_equal(numbers(tree, "sorted"), np.sort(a))
    np.testing.assert_allclose(numbers(tree, "inverse"), np.linalg.inv(outer + np.eye(3)))
    np.testing.assert_allclose(numbers(tree, "steps"), np.stack([a / 2, a / 4], 1))


def test_independence():
    """Tries, variables or entries that share random numbers; a draw that is returned twice."""
    with pm.Model() as model:
        a = pm.Normal("a", shape=2)
        v = pm.Gamma("v", 2, 1, shape=2)
        b = pm.Normal("b")
        w = pm.Gamma("w", 2, 1)
        pm.Normal("y", pt.stack([a[0], a[1], b]), 1, observed=[0.0, 0.0, 0.0])
        pm.Normal("z", 0, tau=v, observed=[1.0, 1.0])
        pm.Normal("u", 0, tau=w, observed=1.0)
    tree = sample(model)
    columns = [np.reshape(numbers(tree, name), (DRAWS, -1)) for name in "abvw"]
    draws = np.hstack(columns)
    assert all(len(np.unique(column)) == DRAWS for column in draws.T)
    scores = special.ndtri(stats.rankdata(draws, axis=0) / (DRAWS + 1))
    for lag in (0, 1, 2, 7):
        products = scores[lag:].T @ scores[: DRAWS - lag] / np.sqrt(DRAWS)
        if lag == 0:
            products -= np.diag(np.diag(products))
        assert np.max(np.abs(products)) < 5


@pytest.mark.slow
@pytest.mark.parametrize("draws", [1, 30])
def test_number_of_tries(draws):
    """Tries counted by blocks; uniforms that tries share; a bound above one."""
    with pm.Model() as model:
        pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=[1, 1, 0])
    probability = special.beta(3, 2)
    attributes = [sample(model, draws, seed).posterior.attrs for seed in range(30)]
    tries = np.array([attribute["tries"] for attribute in attributes])
    rates = np.array([attribute["acceptance_rate"] for attribute in attributes])
    np.testing.assert_allclose(rates, draws / tries)
    variance = draws * (1 - probability) / probability**2
    assert_moments(tries, draws / probability, variance)


def test_acceptance_rate_is_the_marginal_likelihood_over_the_bound():
    """Tries that the bound wastes."""
    with pm.Model() as model:
        tau = pm.Gamma("tau", 2, 4)
        pm.Normal("y", 0, tau=tau, observed=Y)
    attributes = sample(model).posterior.attrs
    expected = (4 / (4 + SQUARES / 2)) ** 3.5
    hits = np.arange(attributes["tries"]) < DRAWS
    assert_proportion(hits, expected)


@pytest.mark.slow
def test_blocks(monkeypatch):
    """Draws lost or repeated where a block of tries ends."""
    monkeypatch.setattr(rejection, "BLOCK_ENTRIES", 60)
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=3)
        pm.Normal("y", mu, 1, observed=Y)
    tree = sample(model, 4000)
    mu = numbers(tree, "mu")
    assert len(np.unique(mu[:, 0])) == 4000
    assert_moments(mu, Y / 2, 0.5)
    marginal = np.prod(np.exp(-(Y**2) / 4) / 2**0.5)
    assert_proportion(np.arange(tree.posterior.attrs["tries"]) < 4000, marginal)


def test_compiled_as_users_do(monkeypatch):
    """A warning, an Op without a vectorised form, or another law in C."""
    monkeypatch.undo()
    tree = sample(build_normal_gamma(), 2000)
    rate = 1 + np.sum((Y - Y.mean()) ** 2) / 2 + 2 * 3 / 5 * (Y.mean() - 0.3) ** 2 / 2
    assert_uniform(stats.gamma(3.5, scale=1 / rate).cdf(numbers(tree, "tau")))


NETWORK = {"ih": 1.0, "bh": 1.0, "ho": 1.0, "bo": 1.0, "noise": "0.5:2"}


def build_network():
    X = np.array([[-1.0], [0.0], [1.0]])
    return nns.hierarchical_mlp(X, [-0.5, 0.1, 0.4], hidden=(2,), priors=NETWORK)


def test_network():
    """What a posterior of pm.sample allows: a summary, predictions of both kinds."""
    model = build_network()
    tree = sample(model, 50)
    f = nns.predict(tree, model["inputs"].get_value(), model=model)
    np.testing.assert_allclose(f.values.ravel(), tree.posterior["f"].values.ravel(), atol=1e-12)
    summary = az.summary(tree, round_to="none")
    assert np.isfinite(summary["mean"].astype(float)).all()
    with model:
        predicted = pm.sample_posterior_predictive(tree, random_seed=0, progressbar=False)
    assert predicted.posterior_predictive["y"].shape[:2] == (1, 50)


def test_result():
    """Names, dims or coordinates that differ from those of pm.sample."""
    coords = {"place": ["a", "b", "c"], "kind": [10, 20]}
    with pm.Model(coords=coords) as model:
        x = pm.Data("x", [1.0, 2.0, 3.0], dims="place")
        a = pm.Normal("a", dims=("place", "kind"))
        v = pm.Gamma("v", 2, 1)
        pm.Deterministic("total", a.sum(1), dims="place")
        pm.Normal("y", a[:, 0] * x, tau=v, observed=Y, dims="place")
        pm.Bernoulli("z", 0.5, observed=[1, 0], dims="kind")
    tree = sample(model, 30)
    assert isinstance(tree, xr.DataTree)
    assert set(tree.children) == {"posterior", "observed_data", "constant_data"}
    assert dict(tree.posterior.sizes) == {"chain": 1, "draw": 30, "place": 3, "kind": 2}
    assert set(tree.posterior.data_vars) == {"a", "v", "total"}
    assert tree.posterior["a"].dims == ("chain", "draw", "place", "kind")
    assert tree.posterior["total"].dims == ("chain", "draw", "place")
    assert list(tree.posterior["place"].values) == ["a", "b", "c"]
    assert list(tree.posterior["kind"].values) == [10, 20]
    np.testing.assert_array_equal(tree.observed_data["y"], Y)
    assert tree.observed_data["y"].dims == ("place",)
    np.testing.assert_array_equal(tree.constant_data["x"], [1, 2, 3])
    assert set(tree.observed_data.data_vars) == {"y", "z"}


def test_result_without_data():
    """An empty group."""
    with pm.Model() as model:
        pm.Potential("p", -pt.sqr(pm.Normal("x")))
    assert set(sample(model, 5, log_bound=0.0).children) == {"posterior"}


def build_mean():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1, observed=Y)
    return model


def test_seed():
    """Draws that a seed does not fix, or that a model or an earlier run changes."""
    model = build_mean()
    first, again, other = (numbers(sample(model, 20, seed), "mu") for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.isin(other, first).any()
    first, again = (sample(build_normal_gamma(), 20, 1).posterior for _ in range(2))
    xr.testing.assert_equal(first, again)
    unseeded = [numbers(sample(model, 20, None), "mu") for _ in range(2)]
    assert not np.isin(*unseeded).any()


def test_generator_as_seed():
    """A generator that is copied, so that a second run repeats the first."""
    model, generator = build_mean(), np.random.default_rng(3)
    first, second = (numbers(sample(model, 20, generator), "mu") for _ in range(2))
    assert not np.isin(second, first).any()
    np.testing.assert_array_equal(numbers(sample(model, 20, np.random.default_rng(3)), "mu"), first)


def test_model_of_the_context():
    """A model that is not found, or found twice."""
    with build_mean() as model:
        inside = nns.lab.rejection_sample(draws=10, random_seed=0, progressbar=False)
    np.testing.assert_array_equal(numbers(inside, "mu"), numbers(sample(model, 10), "mu"))


def test_model_is_left_as_it_was():
    """A later pm.sample of another model than the user's."""
    model = build_normal_gamma()
    before = [v.owner.inputs[1:] for v in model.basic_RVs]
    logp = model.compile_logp(mode=FAST)(model.initial_point())
    sample(model, 5)
    assert [v.owner.inputs[1:] for v in model.basic_RVs] == before
    assert model.compile_logp(mode=FAST)(model.initial_point()) == logp


def test_float32():
    """A cast to float64, or a mix of both that does not compile."""
    with pytensor.config.change_flags(floatX="float32"):
        with pm.Model() as model:
            tau = pm.Gamma("tau", 2, 1, shape=3)
            u = pm.InverseGamma("u", 2, 1)
            mu = pm.Normal("mu")
            pm.Normal("y", mu, tau=tau, observed=Y.astype("float32"))
            pm.Normal("z", 0, pt.sqrt(u), observed=Y.astype("float32"))
        tree = sample(model, 2000)
    assert {str(v.dtype) for v in tree.posterior.data_vars.values()} == {"float32"}
    assert_uniform(stats.invgamma(3.5, scale=1 + SQUARES / 2).cdf(numbers(tree, "u")))


def test_no_transforms():
    """A default transform that was taken away restricts nothing."""
    with pm.Model() as model:
        v = pm.Gamma("v", 2, 4, default_transform=None)
        pm.Normal("y", 0, tau=v, observed=Y)
    assert_law(sample(model, 5000), {"v": stats.gamma(3.5, scale=1 / (4 + SQUARES / 2)).cdf})


@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True, None])
@pytest.mark.parametrize("name", ["draws", "max_tries"])
def test_numbers_of_draws_and_tries(name, value):
    """A loop that never ends, or a draw too few."""
    with pytest.raises(ValueError, match=f"{name} must be a positive integer; got {value!r}"):
        nns.lab.rejection_sample(build_mean(), **{name: value}, progressbar=False)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, "3", True])
def test_log_bound_is_a_number(value):
    """Ten million tries before an unusable bound shows."""
    with pytest.raises(ValueError, match="log_bound must be"):
        sample(build_mean(), 5, log_bound=value, max_tries=100)


def test_not_a_model():
    """An attribute that a string lacks."""
    with pytest.raises(ValueError, match=r"model must be a pm\.Model; got str"):
        nns.lab.rejection_sample("model")


def test_nothing_observed():
    """Draws from the prior that pass for a posterior."""
    with pm.Model() as model:
        pm.Normal("x")
    with pytest.raises(ValueError, match="model has no observed variables; draw"):
        sample(model)


@pytest.mark.parametrize("prior", [pm.Flat, pm.HalfFlat])
def test_improper_prior(prior):
    """A prior that cannot be drawn from, noticed too late or not at all."""
    with pm.Model() as model:
        pm.Normal("y", prior("x"), 1, observed=Y)
    with pytest.raises(RuntimeError, match=r"Cannot sample from .*flat"):
        sample(model)


def within(x):
    return np.all((x > 0) & (x < 1), axis=1)


RESTRICTED = {
    "ordered": (
        lambda: pm.Normal("x", 0, 1, shape=3, transform=transforms.ordered, initval=Y**2),
        lambda x: np.all(np.diff(x) > 0, axis=1),
    ),
    "interval": (
        lambda: pm.Normal("x", 0, 1, shape=3, transform=transforms.Interval(0, 1)),
        within,
    ),
    "part_of_its_interval": (
        lambda: pm.Uniform("x", -2, 2, shape=3, default_transform=transforms.Interval(0, 1)),
        within,
    ),
}


@pytest.mark.parametrize("name", RESTRICTED)
def test_restricted_variable(name):
    """Draws outside what the user's transform allows, where the model has no density."""
    prior, allowed = RESTRICTED[name]
    with pm.Model() as model:
        pm.Normal("y", prior(), 1, observed=Y)
    draws = numbers(sample(model, 2_000), "x")
    assert allowed(draws).all()
    precision = 1 if name == "part_of_its_interval" else 2
    free = np.random.default_rng(0).normal(Y / precision, precision**-0.5, size=(2_000_000, 3))
    expected = free[allowed(free)]
    assert_moments(draws, expected.mean(0), expected.var(0))


def half_normal_scale():
    pm.Normal("y", 0, pm.HalfNormal("sigma"), observed=Y)


def gamma_variance():
    pm.Normal("y", 0, pt.sqrt(pm.Gamma("v", 1, 1)), observed=Y)


def degrees_of_freedom():
    pm.StudentT("y", pm.Gamma("nu", 2, 1), 0, sigma=1, observed=Y)


def potential_without_a_bound():
    pm.Potential("p", -pt.sqr(pm.Normal("x")))


def gamma_observation():
    pm.Gamma("y", 2, pm.Gamma("v", 2, 1), observed=Y**2)


@pytest.mark.parametrize(
    "build",
    [
        half_normal_scale,
        gamma_variance,
        degrees_of_freedom,
        potential_without_a_bound,
        gamma_observation,
    ],
)
def test_no_bound(build):
    """A message without a way out."""
    with pm.Model() as model:
        build()
    expected = "pass log_bound=, an upper bound of the log-likelihood; none is found: "
    with pytest.raises(nns.laws.NotConjugate, match=expected):
        sample(model)


def test_bound_is_exceeded():
    """Draws from a law that is cut off at the bound."""
    with pytest.raises(ValueError, match=r"log_bound must not be exceeded .* reached -3\.\d+; got"):
        sample(build_mean(), log_bound=-5.0)


def test_bound_is_exceeded_beside_impossible_tries():
    """NaN hides the maximum."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("p", pt.log(x))
    with pytest.raises(ValueError, match="log_bound must not be exceeded"):
        sample(model, 100, log_bound=0.0)


def test_cap():
    """Tries beyond the cap; a message that does not tell how far the run came."""
    with pm.Model() as model:
        pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=[1, 0])
    tries = sample(model, 20).posterior.attrs["tries"]
    assert len(numbers(sample(model, 20, max_tries=tries), "p")) == 20
    with pytest.raises(RuntimeError, match=rf"accepted 19 of {tries - 1} tries: draws=20 take ab"):
        sample(model, 20, max_tries=tries - 1)


def test_impossible_observation():
    """A warning, or NaN, of a likelihood that is zero."""
    with pm.Model() as model:
        pm.Uniform("x")
        pm.Binomial("y", 2, 0.5, observed=3)
    with pytest.raises(RuntimeError, match=r"accepted 0 of 500 tries: .*, but max_tries=500;"):
        sample(model, 3, max_tries=500)


# --- bounds that are no bounds, vectors of unknown parts -----------------------------------


def test_bound_that_was_found_is_exceeded():
    """A discrete distribution that is not normalised, cut off at a probability of one."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.CustomDist("y", x, logp=lambda y, x: x + 0.0 * y, dtype="int64", observed=1)
    with pytest.raises(ValueError, match=r"exceeds the bound that rejection_sample found, by \d"):
        sample(model, 100)


def test_acceptance_rate_counts_tries_one_by_one():
    """A block that is lost for one impossible try."""
    with pm.Model() as model:
        pm.Bernoulli("y", pm.Normal("p"), observed=1)
    expected = stats.norm.pdf(0) - stats.norm.pdf(1)
    tries = sample(model, 4000).posterior.attrs["tries"]
    assert_proportion(np.arange(tries) < 4000, expected)


@pytest.mark.parametrize("bound", [None, 0.0])
def test_partly_observed_vectors(bound):
    """A joint density that is counted beside the draw from it."""
    y = np.ma.masked_array([0.2, 0.3], [0, 1])
    with pm.Model() as model, pytest.warns(pm.exceptions.ImputationWarning):
        pm.MvNormal("y", np.zeros(2), np.eye(2), observed=y)
    with pytest.raises(
        ValueError, match=r"^y_observed observes parts of vectors, but rejection_sample"
    ):
        sample(model, 5, log_bound=bound)


# --- hopeless, long and interrupted runs ---------------------------------------------------


def build_hopeless():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x", shape=50), 0.1, observed=np.ones(50))
    return model


def test_hopeless():
    """Ten million tries, where a million show that they will not do."""
    expected = (
        r"^rejection_sample accepted 0 of \d{3,6} tries: draws=1000 take more than "
        r"\S+e\+\d\d tries, but max_tries=10000000; ask for fewer draws"
    )
    with pytest.raises(RuntimeError, match=expected):
        sample(build_hopeless(), 1000)


@pytest.mark.parametrize("after", [0, 2])
def test_interrupt(monkeypatch, after):
    """Hours of draws that are lost; an empty result."""
    compiled = rejection._compile

    def interrupted(*arguments):
        try_block = compiled(*arguments)
        blocks = iter(range(after))

        def block():
            if next(blocks, None) is None:
                raise KeyboardInterrupt
            return try_block()

        return block

    model = build_mean()
    monkeypatch.setattr(rejection, "BLOCK_ENTRIES", 300)
    complete = numbers(sample(model, 1000), "mu")
    monkeypatch.setattr(rejection, "_compile", interrupted)
    if not after:
        with pytest.raises(KeyboardInterrupt):
            sample(model, 1000)
        return
    tree = sample(model, 1000)
    draws, attributes = numbers(tree, "mu"), tree.posterior.attrs
    assert 0 < len(draws) < 1000
    np.testing.assert_array_equal(draws, complete[: len(draws)])
    np.testing.assert_allclose(attributes["acceptance_rate"], len(draws) / attributes["tries"])


def test_gives_up_only_where_it_must():
    """Chance in the first tries taken for hopeless, or many accepted ones for none."""
    tries = np.arange(1, 10_000)
    accepted = np.random.default_rng(0).poisson(tries * 1e-2)

    def hopeless(max_tries):
        return list(map(rejection._is_hopeless, accepted, tries * 1000 / max_tries))

    assert not any(hopeless(100_000))
    assert all(hopeless(30_000)[5_000:])
