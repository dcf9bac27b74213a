"""Pairs of a prior and children that belong together: exact laws, draws, and what is declined."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.pytensorf import resolve_backend_compile_kwargs
from scipy import stats

import pymc_nnsteps as nns
from pymc_nnsteps.laws import match, multivariate, pairs, scales
from pymc_nnsteps.laws.conditional import summed
from tests.cases import quick
from tests.statistics import assert_chain_moments, assert_uniform
from tests.steps.chains import chain

RNG = np.random.default_rng(0)
GROUP = np.array([0, 2, 2, 1, 0, 1])
Y = RNG.normal(size=(6, 3))
DRAWS = 4000


def probabilities():
    p = pm.Beta("p", 2, 1.5, shape=3)
    q = pm.Beta("q", mu=0.3, sigma=0.1)
    pm.Bernoulli("a", p[GROUP], observed=[0, 1, 1, 0, 1, 1])
    pm.Binomial("b", n=np.array([4, 5, 6]), p=p, observed=[1, 2, 6])
    pm.Binomial("c", 5, 1 - p[1], observed=[[1, 2, 5], [2, 2, 2]])
    pm.NegativeBinomial("d", n=2.5, p=q, observed=[1, 3, 4])
    pm.Geometric("e", 1 - q, observed=[1, 2, 7])
    pm.Bernoulli("f", p[2], shape=2)


def shares_of_classes():
    p = pm.Dirichlet("p", [1, 2, 0.5])
    q = pm.Dirichlet("q", np.ones((2, 3)))
    pm.Categorical("a", p, observed=[0, 1, 2, 2, 1])
    pm.Multinomial("b", n=6, p=p, observed=[[1, 2, 3], [4, 0, 2]])
    pm.Categorical("c", q[np.array([0, 1, 1])], observed=[0, 1, 2])
    pm.Multinomial("d", n=4, p=q[1], observed=[1, 1, 2])


def standard_deviations():
    a = pm.HalfCauchy("a", 1.5, shape=3)
    b = pm.HalfStudentT("b", nu=4, sigma=2.0)
    c = pm.Exponential("c", 0.7)
    d = pm.Uniform("d", 0, 1.7, shape=3)
    e = pm.Uniform("e", 0.1, [3, 4.0])
    pm.Normal("s", 0, a[GROUP][:, None], observed=Y)
    pm.Normal("t", 0, tau=1 / b**2, observed=Y[0])
    pm.Laplace("u", 0, b**2, observed=Y[1])
    pm.Normal("v", 0, 2 * c, observed=Y[1])
    pm.HalfNormal("w", 1 / c)
    pm.Normal("x", 0, d, observed=Y)
    pm.Normal("y", 0, tau=e, observed=Y[:, :2])
    pm.Gamma("z", 2, 1 / e)


def weibull_and_log_normal():
    rate = pm.Gamma("rate", 2, 1)
    square = pm.InverseGamma("square", 2, 1)
    tau = pm.Gamma("tau", 2, 2)
    mean = pm.Normal("mean", 0, 2, shape=3)
    pm.Weibull("a", alpha=1.5, beta=rate ** (-1 / 1.5), observed=abs(Y))
    pm.Weibull("b", 2, pt.sqrt(square), observed=abs(Y))
    pm.LogNormal("c", mean + 1, 1 / pt.sqrt(tau), observed=abs(Y))


COVARIANCE = np.array([[2, 0.5, 0], [0.5, 1, 0.3], [0, 0.3, 1.5]])


def vectors():
    mean = pm.MvNormal("mean", [1, 2, 3.0], cov=COVARIANCE)
    pm.MvNormal("a", mean, chol=np.linalg.cholesky(COVARIANCE + 1), observed=Y)
    centre = pm.Normal("centre", 0.5, 2, shape=3)
    effects = pm.MvNormal("effects", centre, cov=COVARIANCE * pm.Gamma("s", 2, 2), shape=(6, 3))
    pm.Normal("b", (Y * effects).sum(-1) + 1, 0.4, observed=Y[:, 0])
    slopes = pm.MvNormal("slopes", np.zeros(3), tau=COVARIANCE)
    pm.Normal("c", Y @ slopes + 0.3, 0.7, observed=Y[:, 1])
    pm.MvNormal("d", slopes[:2] * 2 + 1, np.eye(2), observed=Y[:, :2])
    level = pm.Normal("level")
    pm.MvNormal("e", level, COVARIANCE, observed=Y)


def precision_matrix():
    W = pm.Wishart("W", nu=5, V=COVARIANCE)
    mean = pm.Normal("mean", 0, 2, shape=3)
    pm.MvNormal("a", mean, tau=W, observed=Y)
    pm.MvNormal("b", [0.0, 1, 0], tau=W)


MODELS = {
    vectors: ["mean", "centre", "effects", "slopes", "level"],
    precision_matrix: ["W", "mean", "b"],
    probabilities: ["p", "q"],
    shares_of_classes: ["p", "q"],
    standard_deviations: ["a", "b", "c", "d", "e", "z"],
    weibull_and_log_normal: ["rate", "square", "tau", "mean"],
}


def build(function):
    with pm.Model() as model:
        function()
    return model


@pytest.mark.parametrize(
    "function",
    quick(MODELS, {vectors, probabilities, standard_deviations}),
    ids=lambda f: f.__name__,
)
def test_laws_are_the_models(function):
    rows = nns.verify(build(function), random_seed=0).rows
    assert {name for name, _, _ in rows} >= set(MODELS[function])
    assert all(difference < 0.1 for _, _, difference in rows)


def _successes_and_failures(patch):
    right = pairs.TRIALS[pairs.BinomialRV]
    patch.setitem(pairs.TRIALS, pairs.BinomialRV, lambda y, n: right(y, n + 1))


def _a_class_too_far(patch):
    def shifted(array, *given):
        return summed(pt.roll(array, 1, axis=-1), *given)

    patch.setattr(pairs, "summed", shifted)


def _an_auxiliary_of_another_width(patch):
    right = scales.MIXTURES[scales.HalfCauchyRV]
    wrong = scales.ScaleMixture(lambda v, sigma: right.auxiliary(v, 2 * sigma), right.square)
    patch.setitem(scales.MIXTURES, scales.HalfCauchyRV, wrong)


def _vectors_too_long(patch):
    right = pairs._residual
    patch.setattr(pairs, "_residual", lambda *given: 1.1 * right(*given))


def _the_covariance_for_its_inverse(patch):
    patch.setattr(multivariate, "inverted", lambda matrix: matrix)


PLANTED = [
    (vectors, _the_covariance_for_its_inverse, "mean"),
    (precision_matrix, _vectors_too_long, "W"),
    (probabilities, _successes_and_failures, "p"),
    (shares_of_classes, _a_class_too_far, "p"),
    (standard_deviations, _an_auxiliary_of_another_width, "a"),
]


@pytest.mark.parametrize(("function", "plant", "name"), PLANTED)
def test_a_planted_error_is_found(function, plant, name, monkeypatch):
    model = build(function)
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=rf"^{name}: "):
        nns.verify(model, random_seed=0)


def draws_of(model, backend="c", draws=DRAWS, **options):
    step = nns.Gibbs(
        model=model, compile_kwargs=resolve_backend_compile_kwargs(backend, None), **options
    )
    return chain(step, model.initial_point(), draws, seed=1, burn=20)[0]


def test_draws_of_probabilities_and_shares():
    with pm.Model() as model:
        p = pm.Beta("p", 2, 1.5, default_transform=None)
        q = pm.Dirichlet("q", [1, 2, 0.5], default_transform=None)
        pm.Binomial("a", n=6, p=p, observed=[1, 5])
        pm.Geometric("b", 1 - p, observed=4)
        pm.Multinomial("c", n=6, p=q, observed=[1, 2, 3])
    drawn = draws_of(model)
    assert drawn.shape == (DRAWS, 4)
    assert_uniform(stats.beta(2 + 6 + 3, 1.5 + 6 + 1).cdf(drawn[:, 0]))
    for share, a in zip(drawn[:, 1:].T, [2, 4, 3.5], strict=True):
        assert_uniform(stats.beta(a, 9.5 - a).cdf(share))
    np.testing.assert_allclose(draws_of(model, "numba", 20), drawn[:20], rtol=1e-12)


def test_draws_of_a_precision_matrix_and_a_vector():
    with pm.Model() as model:
        W = pm.Wishart("W", nu=5, V=COVARIANCE[:2, :2], default_transform=None)
        v = pm.MvNormal("v", [1.0, 2.0], cov=COVARIANCE[:2, :2])
        pm.MvNormal("a", np.zeros(2), tau=W, observed=Y[:, :2])
        pm.MvNormal("b", v, cov=np.eye(2), observed=Y[:, 1:])
    drawn = draws_of(model)
    inverse = np.linalg.inv(COVARIANCE[:2, :2]) + Y[:, :2].T @ Y[:, :2]
    for i in range(2):
        row = np.eye(2)[i]
        scale = row @ np.linalg.inv(inverse) @ row
        assert_uniform(stats.chi2(5 + 6, scale=scale).cdf(drawn[:, 3 * i]))
    precision = np.linalg.inv(COVARIANCE[:2, :2]) + 6 * np.eye(2)
    linear = np.linalg.solve(COVARIANCE[:2, :2], [1, 2]) + Y[:, 1:].sum(0)
    standard = (drawn[:, 4:] - np.linalg.solve(precision, linear)) @ np.linalg.cholesky(precision)
    assert_uniform(stats.norm.cdf(standard.ravel()))


PLAIN = {"default_transform": None}

PRIORS = {
    "half-Cauchy": (lambda: pm.HalfCauchy("v", 0.3, **PLAIN), stats.halfcauchy(scale=0.3)),
    "half Student-t": (lambda: pm.HalfStudentT("v", 3, 0.4, **PLAIN), stats.t(3, scale=0.4)),
    "exponential": (lambda: pm.Exponential("v", 4.0, **PLAIN), stats.expon(scale=1 / 4.0)),
    "uniform": (lambda: pm.Uniform("v", 0.2, 1.1, **PLAIN), stats.uniform(0.2, 0.9)),
}


@pytest.mark.parametrize("name", PRIORS)
def test_standard_deviations_by_quadrature(name):
    """An auxiliary variable of the wrong law, or used before it is drawn."""
    prior, law = PRIORS[name]
    y = np.array([0.4, -1.1, 0.7])
    with pm.Model() as model:
        v = prior()
        pm.Normal("y", 0, v, observed=y)
    drawn = np.log(draws_of(model, draws=10_000))
    grid = np.linspace(-6, 6, 20_001)
    at = np.exp(grid)
    log_density = law.logpdf(at) + grid + stats.norm.logpdf(y[:, None], 0, at).sum(0)
    weight = np.exp(log_density - log_density.max())
    mean = np.average(grid, weights=weight)
    variance = np.average((grid - mean) ** 2, weights=weight)
    assert_chain_moments(drawn, [mean], [[variance]])


def beta_of_a_sum():
    p = pm.Beta("v", 1, 1, shape=2)
    pm.Bernoulli("y", p.sum() / 2, observed=1)


def half_a_probability():
    pm.Binomial("y", n=4, p=0.5 * pm.Beta("v", 1, 1), observed=1)


def trials_that_depend():
    p = pm.Beta("v", 1, 1)
    pm.NegativeBinomial("y", n=1 + p, p=p, observed=1)


def probability_of_another_kind():
    pm.VonMises("y", pm.Beta("v", 1, 1), 1, observed=1)


def shares_in_another_order():
    pm.Categorical("y", pm.Dirichlet("v", np.ones(3))[::-1], observed=1)


def shares_as_means():
    pm.Normal("y", pm.Dirichlet("v", np.ones(3)), 1, observed=np.ones(3))


def uniform_of_either_sign():
    pm.Normal("y", 0, pm.Uniform("v", -1, 1), observed=1)


def weibull_of_free_shape():
    v = pm.Gamma("v", 2, 1)
    pm.Weibull("y", pm.Gamma("shape", 2, 1), 1 / v, observed=1)


def wishart_covariance():
    pm.MvNormal("y", np.zeros(2), pm.Wishart("v", nu=4, V=np.eye(2)), observed=np.ones(2))


def wishart_elsewhere():
    pm.Normal("y", pm.Wishart("v", nu=4, V=np.eye(2)), observed=np.ones((2, 2)))


def vector_in_a_covariance():
    v = pm.MvNormal("v", np.zeros(2), np.eye(2))
    pm.MvNormal("y", v, pt.diag(pt.exp(v)), observed=np.ones(2))


def square_and_variance():
    v = pm.Exponential("v", 1, shape=3)
    pm.Normal("y", 0, v, observed=Y)
    pm.Normal("z", 0, pt.sqrt(v), observed=Y)


DECLINED = {
    wishart_covariance: "it is not the precision matrix tau= of child y",
    wishart_elsewhere: "child y is Normal, not MvNormal",
    vector_in_a_covariance: "the scale of child y depends on it",
    beta_of_a_sum: "the probability of child y is neither it nor one minus it",
    half_a_probability: "neither it nor one minus it: it does not enter unchanged",
    trials_that_depend: "a parameter other than the probability of child y depends on it",
    probability_of_another_kind: "child y is VonMises, not Bernoulli, Binomial, NegativeBi",
    shares_in_another_order: "child y reorders or mixes its classes",
    shares_as_means: "child y is Normal, not Categorical or Multinomial",
    uniform_of_either_sign: "its prior, Uniform, is not known to be positive",
    weibull_of_free_shape: "the shape of child y is not one known number",
    square_and_variance: "with different powers: y, z",
}


@pytest.mark.parametrize("function", DECLINED, ids=lambda f: f.__name__)
def test_declines(function):
    model = build(function)
    with pytest.raises(nns.laws.NotConjugate, match=DECLINED[function]):
        match(model, model["v"])
