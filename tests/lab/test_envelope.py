"""Envelopes: proposal times bound is prior times likelihood, and what is declined."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import log
from pytensor.graph.replace import vectorize_graph
from scipy import stats

import pymc_nnsteps as nns
from pymc_nnsteps.lab.rejection import envelope
from tests.cases import quick
from tests.graphs.foreign import Tempered
from tests.laws.graphs import evaluate

pytestmark = pytest.mark.filterwarnings("error")

RNG = np.random.default_rng(0)
Y = RNG.normal(size=(6, 3))
X = RNG.normal(size=(6, 2))
POSITIVE = RNG.gamma(2.0, size=(6, 3))
COUNTS = RNG.poisson(2.0, size=6)
BITS = np.array([0, 1, 1, 0, 1, 0])
GROUP = np.array([0, 2, 2, 0, 0, 2])

MODELS = {}


def model_of(function):
    MODELS[function.__name__] = function
    return function


@model_of
def fixed_noise():
    pm.Normal("y", X @ pm.Normal("beta", shape=2), 0.5, observed=Y[:, 0])


@model_of
def noise_of_each_case():
    pm.Normal("y", pm.Normal("mu"), POSITIVE, observed=Y)


@model_of
def precision():
    pm.Normal("y", pm.Normal("mu"), tau=pm.Gamma("v", 2, 4), observed=Y)


@model_of
def standard_deviation_by_precision():
    v = pm.Gamma("v", mu=2, sigma=0.7)
    pm.Normal("y", X @ pm.Normal("beta", shape=2), 1 / pt.sqrt(v), observed=Y[:, 0])


@model_of
def variance():
    v = pm.InverseGamma("v", 2.5, 0.3)
    pm.Normal("y", pm.Normal("mu"), pt.sqrt(v), observed=Y[:, 0])


@model_of
def variance_with_a_gamma_prior():
    v = pm.Gamma("v", 3.2, 2)
    pm.Normal("y", pm.Normal("mu"), pt.sqrt(v), observed=Y[:, 0])


@model_of
def precision_with_an_inverse_gamma_prior():
    v = pm.InverseGamma("v", 3.2, 2)
    pm.Normal("y", pm.Normal("mu"), tau=v, observed=Y[:, 0])


@model_of
def exponential_precision():
    v = pm.Exponential("v", 0.7)
    pm.Normal("y", pm.Normal("mu"), tau=v, observed=Y)


@model_of
def chi_squared_precisions():
    v = pm.ChiSquared("v", 3, shape=3)
    pm.Normal("y", pm.Normal("mu"), tau=v, observed=Y)


@model_of
def precision_of_each_row():
    v = pm.Gamma("v", 2, 4, shape=(6, 1))
    pm.Normal("y", pm.Normal("mu", shape=3), tau=v, observed=Y)


@model_of
def length_one():
    v = pm.Gamma("v", 2, 4, shape=1)
    pm.Normal("y", 0.2, tau=v, observed=Y[:, 0])


@model_of
def scaled_by_data():
    v = pm.Gamma("v", 2, 4)
    pm.Normal("y", pm.Normal("mu"), POSITIVE / pt.sqrt(3 * v), observed=Y)


@model_of
def groups():
    v = pm.Gamma("v", 2, 4, shape=3)
    pm.Normal("y", pm.Normal("mu", shape=3)[GROUP], tau=v[GROUP], observed=Y[:, 0])


@model_of
def single_entries():
    v = pm.Gamma("v", 2, 4, shape=3)
    pm.Normal("y", pm.Normal("mu"), tau=v[0], observed=Y[:, 0])
    pm.Normal("z", 0, pt.sqrt(1 / v[2]), observed=Y[0])


@model_of
def product_of_scales():
    v = pm.Gamma("v", 2, 4, shape=3)
    other = pm.InverseGamma("other", 2, 4, shape=(6, 1))
    pm.Normal("y", 0, pt.sqrt(other / v), observed=Y)


@model_of
def scale_of_weights_too():
    v = pm.Gamma("v", 2, 4)
    w = pm.Normal("w", 0, 1 / pt.sqrt(v), shape=2)
    pm.Normal("y", X @ w, tau=v, observed=Y[:, 0])


@model_of
def student_t():
    v = pm.Gamma("v", 2, 4)
    pm.StudentT("y", nu=4, mu=pm.Normal("mu", 3), lam=v, observed=Y)


@model_of
def student_t_of_fixed_scale():
    pm.StudentT("y", nu=[1, 3, 8], mu=pm.Normal("mu"), sigma=0.3, observed=Y)


@model_of
def laplace():
    pm.Laplace("y", pm.Normal("mu"), pm.InverseGamma("v", 2, 1), observed=Y)


@model_of
def laplace_by_rate():
    pm.Laplace("y", pm.Normal("mu"), 1 / pm.Gamma("v", 2, 1, shape=3), observed=Y)


@model_of
def mv_normal():
    cov = np.array([[2, 0.4, 0], [0.4, 1, 0.1], [0, 0.1, 0.5]])
    pm.MvNormal("y", pm.Normal("mu", shape=3), cov, observed=Y)


@model_of
def mv_normal_by_precision():
    pm.MvNormal("y", pm.Normal("mu", shape=3), tau=np.diag([1.0, 2, 3]), observed=Y[0])


@model_of
def several_observed():
    v = pm.Gamma("v", 2, 4, shape=3)
    mu = pm.Normal("mu")
    pm.Normal("y", mu, tau=v, observed=Y)
    pm.Laplace("z", mu, 1 / v, observed=Y[:2])
    pm.StudentT("t", 5, mu, lam=v[None] * 2, observed=Y[3:])


@model_of
def real_and_discrete():
    v = pm.Gamma("v", 2, 4)
    pm.Poisson("n", v, observed=COUNTS)
    pm.Normal("y", pm.Normal("mu"), tau=v, observed=Y)


@model_of
def bernoulli():
    pm.Bernoulli("y", logit_p=X @ pm.Normal("beta", shape=2), observed=BITS)


@model_of
def categorical():
    pm.Categorical("y", pm.Dirichlet("p", [1, 2, 0.5]), observed=GROUP)


@model_of
def poisson():
    pm.Poisson("y", pm.Gamma("rate", 2, 1), observed=COUNTS)


@model_of
def binomial():
    pm.Binomial("y", 9, pm.Beta("p", 1, 2), observed=COUNTS)


@model_of
def discrete_mixture():
    w = pm.Dirichlet("w", [1, 1])
    rates = pm.Gamma("rates", 2, 1, shape=2)
    pm.Mixture("y", w, pm.Poisson.dist(rates), observed=COUNTS)


@model_of
def whole_numbers():
    pm.Normal("y", pm.Normal("mu"), tau=pm.Gamma("v", 2, 4), observed=COUNTS)


@model_of
def dims():
    with pm.modelcontext(None) as model:
        model.add_coords({"obs": range(6), "output": range(3)})
        y = pm.Data("targets", Y, dims=("obs", "output"))
        v = pm.Gamma("v", 2, 2, dims="output")
        pm.Normal("y", pm.Normal("mu"), tau=v, observed=y, dims=("obs", "output"))


@model_of
def observed_hyperparameter():
    h = pm.Normal("h", observed=0.7)
    pm.Normal("y", pm.Normal("mu"), tau=pm.Gamma("v", 2, pt.exp(h)), observed=Y)


@model_of
def observed_groups():
    group = pm.Categorical("group", [0.5, 0.2, 0.3], observed=GROUP)
    pm.Normal("y", 0, tau=pm.Gamma("v", 2, 4, shape=3)[group], observed=Y[:, 0])


@model_of
def network():
    nns.hierarchical_mlp(X[:, :1], Y[:, 0], hidden=(2,), priors={"noise": "0.5:4"})


def build(name):
    with pm.Model() as model:
        MODELS[name]()
    return model


def densities(model):
    """log prior times likelihood, log proposal and log ratio, of the model's value variables."""
    found = envelope(model)
    for rv, proposal in found.proposals.items():
        assert (proposal.dtype, proposal.ndim) == (rv.dtype, rv.ndim)
    proposed = [found.proposals.get(rv, rv) for rv in model.free_RVs]
    proposal = sum(
        pm.logp(q, rv, warn_rvs=False).sum() for q, rv in zip(proposed, model.free_RVs, strict=True)
    )
    rest = model.replace_rvs_by_values([proposal, found.log_ratio])
    return [model.logp(jacobian=False), *rest]


def at_points(model, expressions, scales, seed=0):
    """Values of expressions at random points of the model's value space, of these scales."""
    rng = np.random.default_rng(seed)
    points = {}
    for v in model.value_vars:
        shape = model.initial_point()[v.name].shape
        noise = rng.normal(size=(len(scales), *shape)).T * scales
        points[v] = pt.as_tensor(noise.T.astype(v.dtype))
    return evaluate(vectorize_graph(expressions, points))


QUICK = {
    "fixed_noise", "noise_of_each_case", "precision", "variance", "chi_squared_precisions",
    "length_one", "groups", "single_entries", "product_of_scales", "student_t",
    "laplace_by_rate", "mv_normal_by_precision", "several_observed", "real_and_discrete",
    "categorical", "binomial", "discrete_mixture", "observed_hyperparameter", "network",
}  # fmt: skip


@pytest.mark.parametrize("name", quick(MODELS, QUICK))
def test_prior_times_likelihood_is_proposal_times_probability(name):
    """A power of the wrong sign or variable, a lost observation, another mode."""
    model = build(name)
    near, far = np.ones(50), np.repeat([0.3, 2.0, 4.0], 1000)
    target, proposal, ratio = at_points(model, densities(model), np.append(near, far))
    assert np.max(ratio) <= 1e-9
    assert np.ptp(ratio[:50]) > 1e-3
    constant = (target - proposal - ratio)[:50]
    np.testing.assert_allclose(constant, constant[0], rtol=1e-9, atol=1e-9)


def test_bound_is_reached():
    """Tries that are thrown away: a real observation at its location is always accepted."""
    with pm.Model() as model:
        v = pm.Gamma("v", 2, 1)
        pm.Normal("a", 0.3, tau=v, observed=[0.3, 0.3])
        pm.StudentT("b", 4, 0.3, lam=v, observed=0.3)
        pm.Laplace("c", 0.3, 1 / v, observed=0.3)
        pm.MvNormal("d", [0.3, 0.1], [[1, 0.4], [0.4, 2]], observed=[0.3, 0.1])
    [values] = at_points(model, [densities(model)[2]], np.full(50, 2.0))
    np.testing.assert_allclose(values, 0, atol=1e-12)


def dist_params(rv):
    return rv.owner.op.dist_params(rv.owner)


@pytest.mark.parametrize(("prior", "power"), [("gamma", 3), ("exponential", 3), ("inverse", -3)])
def test_tilted_density(prior, power):
    """Against SciPy: the prior times v^(n/2), or v^(-n/2) for a variance."""
    with pm.Model() as model:
        if prior == "gamma":
            v, law = pm.Gamma("v", 0.7, 2), stats.gamma(0.7, scale=0.5)
        elif prior == "exponential":
            v, law = pm.Exponential("v", 2), stats.expon(scale=0.5)
        else:
            v, law = pm.InverseGamma("v", 0.7, 2), stats.invgamma(0.7, scale=2)
        pm.Normal("y", 0, v ** (-np.sign(power) / 2), observed=Y[:, 0])
    x = np.array([0.1, 0.5, 2.0, 7.0])
    proposal = envelope(model).proposals[v]
    found = evaluate([pm.logp(proposal, pt.as_tensor(x))])[0]
    expected = law.logpdf(x) + power * np.log(x)
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-10)


def test_nothing_is_tilted_that_the_scales_do_not_touch():
    """A group that is never observed, a location's own scale, a precision of weights."""
    with pm.Model() as model:
        t = pm.Gamma("t", 2, 2)
        w = pm.Normal("w", 0, tau=t, shape=2)
        v = pm.Gamma("v", 2, 4, shape=3)
        pm.Normal("y", X @ w, tau=v[GROUP], observed=Y[:, 0])
    proposals = envelope(model).proposals
    assert set(proposals) == {v}
    shape, _ = evaluate(dist_params(proposals[v]))
    np.testing.assert_allclose(shape, 2 + np.bincount(GROUP, minlength=3) / 2)


DECLINED = {}


def declined(reason):
    def register(function):
        DECLINED[function.__name__] = (function, reason)
        return function

    return register


@declined("the likelihood has no known bound under the prior of v, HalfNormal")
def half_normal_variance():
    pm.Normal("y", 0, pt.sqrt(pm.HalfNormal("v")), observed=Y)


@declined("no known bound under the prior of sigma, HalfNormal")
def half_normal():
    pm.Normal("y", 0, pm.HalfNormal("sigma"), observed=Y)


@declined("the likelihood is unbounded under the prior of v")
def variance_with_a_gamma_prior_of_few_degrees():
    pm.Normal("y", 0, pt.sqrt(pm.Gamma("v", 3, 2)), observed=Y[:, 0])


@declined("the likelihood is unbounded under the prior of v")
def precision_with_an_inverse_gamma_prior_of_few_degrees():
    pm.Normal("y", 0, tau=pm.InverseGamma("v", 3, 2), observed=Y[:, 0])


@declined("a parameter other than its location and scale depends on nu")
def degrees_of_freedom():
    pm.StudentT("y", nu=pm.Gamma("nu", 2, 1), mu=0, sigma=1, observed=Y)


@declined("a parameter other than its location and scale depends on v")
def covariance():
    pm.MvNormal("y", np.zeros(3), np.eye(3) * pm.InverseGamma("v", 3, 1), observed=Y)


@declined("the potential penalty has no known bound")
def potential():
    mu = pm.Normal("mu")
    pm.Potential("penalty", -(mu**2))
    pm.Normal("y", mu, 1, observed=Y)


@declined("the density of y, Gamma, has no known bound")
def positive_observation():
    pm.Gamma("y", 2, pm.Gamma("v", 2, 1), observed=POSITIVE)


@declined("the density of y, HalfNormal, has no known bound")
def half_normal_observation():
    pm.HalfNormal("y", tau=pm.Gamma("v", 2, 1), observed=POSITIVE)


@declined("the prior of v depends on tau")
def two_levels():
    v = pm.Gamma("v", 2, 2 / pm.Gamma("tau", 1, 1), shape=3)
    pm.Normal("y", 0, tau=v, observed=Y)


@declined("the prior of v depends on a")
def unknown_shape():
    v = pm.Gamma("v", pm.Exponential("a", 1), 1)
    pm.Normal("y", 0, tau=v, observed=Y)


@declined("a parameter other than the scale of child y depends on")
def location_depends_on_the_scale():
    v = pm.Gamma("v", 2, 1)
    pm.Normal("y", v, tau=v, observed=Y)


@declined("the scale of child y is not a power of")
def sum_of_variances():
    v = pm.InverseGamma("v", 2, 1)
    pm.Normal("y", 0, pt.sqrt(v + 1), observed=Y)


@declined("the scale of child y is not a power of")
def log_scale():
    pm.Normal("y", 0, pt.exp(pm.Normal("log_sigma")), observed=Y)


@declined("the scale of child y is not a power of")
def unknown_groups():
    group = pm.Categorical("group", [0.5, 0.5], shape=6)
    pm.Normal("y", 0, tau=pm.Gamma("v", 2, 4, shape=2)[group], observed=Y[:, 0])


@pytest.mark.parametrize("name", DECLINED)
def test_declines(name):
    """A likelihood without a bound, or one that is not established."""
    function, reason = DECLINED[name]
    with pm.Model() as model:
        function()
    with pytest.raises(nns.laws.NotConjugate, match=reason):
        envelope(model)


def test_densities_that_are_not_those_of_draws():
    """A prior that a user has tempered, and data that PyMC transforms."""
    with pm.Model() as tempered:
        mu = Tempered("mu", 0, 1)
        pm.Normal("y", mu, observed=[1.0])
    with pytest.raises(ValueError, match="mu is Tempered with a density that is not PyMC's"):
        envelope(tempered)
    with pm.Model() as transformed:
        pm.Normal("y", pm.Normal("mu"), transform=log, observed=[1.0])
    with pytest.raises(ValueError, match="y is observed with a transform"):
        envelope(transformed)
