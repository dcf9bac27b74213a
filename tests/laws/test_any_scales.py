"""Scales under priors that give them no known law: density, draws, and what is declined."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_nnsteps as nns
from pymc_nnsteps.laws import any_scales, match
from pymc_nnsteps.laws.any_scales import AnyScale
from pymc_nnsteps.steps.networks import needs_gibbs
from tests.planting import plant
from tests.statistics import assert_chain_moments
from tests.steps.chains import chain

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(6, 2)), RNG.normal(size=(6, 3))
T = {"mu": 0, "sigma": 1}

PRIORS = {
    "log_normal": lambda name: pm.LogNormal(name, pm.Normal(f"{name}_mean"), 1),
    "inverse_gamma": lambda name: pm.InverseGamma(name, 3, 1),
    "gamma": lambda name: pm.Gamma(name, 2, 2, shape=(1,)),
    "weibull": lambda name: pm.Weibull(name, 1.5, 1),
    "normal": lambda name: pm.TruncatedNormal(name, 0.5, 1, lower=0),
    "truncated": lambda name: pm.Truncated(name, pm.StudentT.dist(3, **T), lower=0, initval=1.0),
    "between": lambda name: pm.Truncated(name, pm.Gamma.dist(2, 1), lower=0.1, upper=3),
    "pareto": lambda name: pm.Pareto(name, 2, m=0.1),
    "beta": lambda name: pm.Beta(name, 2, 2),
    "rice": lambda name: pm.Rice(name, 1, 1),
    "wald": lambda name: pm.Wald(name, 1, 1),
    "mixture": lambda name: pm.Mixture(
        name, [0.3, 0.7], [pm.Gamma.dist(2, 1), pm.Gamma.dist(9, 3)]
    ),
    "flat": lambda name: pm.HalfFlat(name),
}


def under_any_prior():
    """Also with several children, of powers of both signs, and of which one is Student-t."""
    scales = {name: prior(name) for name, prior in PRIORS.items()}
    for name, v in scales.items():
        pm.Normal(f"y of {name}", 0.3, 2 * v, observed=Y)
    pm.StudentT("t", 4, mu=0, sigma=scales["normal"] ** 2, observed=Y)
    pm.Poisson("n", 3 * scales["weibull"], observed=[1, 0, 2])
    pm.Normal("u", 0, tau=pm.HalfNormal("precision", 2), observed=Y)
    v = pm.Exponential("square", 1)
    pm.Normal("a", 0, v, observed=Y)
    pm.Normal("b", 0, pt.sqrt(v), observed=Y)


def build(function):
    with pm.Model() as model:
        function()
    return model


def test_log_density_is_the_models():
    table = nns.verify(build(under_any_prior), random_seed=0)
    rows = {name: (law, found) for name, law, found in table.rows}
    for name in (*PRIORS, "precision", "square"):
        law, difference = rows[name]
        assert law == "step on a lattice"
        assert difference < 1


def half_of_what_children_say(right, *args):
    rng, (order, *rates) = right(*args)
    return rng, (order, *(rate / 2 for rate in rates))


PLANTS = {
    "no Jacobian": (AnyScale, "log_density", lambda right, *args: right(*args) - args[-1]),
    "rates halved": (AnyScale, "sums", half_of_what_children_say),
    "powers mistaken": (any_scales, "_power", lambda right, seen: -right(seen)),
}


@pytest.mark.parametrize("error", PLANTS)
def test_a_planted_error_is_found(error, monkeypatch):
    plant(monkeypatch, *PLANTS[error])
    model = build(lambda: pm.Normal("y", 0, pm.LogNormal("v", 0, 1), observed=Y))
    with pytest.raises(AssertionError, match=r"^v: "):
        nns.verify(model, random_seed=0)


PLAIN = {"default_transform": None}
LAWS = {
    "log-Normal": (
        lambda: pm.LogNormal("v", -1, 0.8, **PLAIN),
        stats.lognorm(0.8, scale=np.exp(-1)),
    ),
    "inverse Gamma": (lambda: pm.InverseGamma("v", 3, 1, **PLAIN), stats.invgamma(3)),
}


@pytest.mark.parametrize("name", LAWS)
def test_draws_by_quadrature(name):
    prior, law = LAWS[name]
    y = np.array([0.4, -1.1, 0.7])
    model = build(lambda: pm.Normal("y", 0, prior(), observed=y))
    step = nns.Gibbs(model=model)
    drawn = np.log(chain(step, model.initial_point(), 10_000, seed=1, burn=20)[0])
    grid = np.linspace(-6, 6, 20_001)
    at = np.exp(grid)
    log_density = law.logpdf(at) + grid + stats.norm.logpdf(y[:, None], 0, at).sum(0)
    weight = np.exp(log_density - log_density.max())
    mean = np.average(grid, weights=weight)
    variance = np.average((grid - mean) ** 2, weights=weight)
    assert_chain_moments(drawn, [mean], [[variance]])


def test_it_stays_where_effects_start_at_zero():
    """They would send it to a number so small that they never leave zero."""

    def effects():
        a = pm.Normal("a", 0, pm.LogNormal("v", 0, 3), shape=50)
        pm.Normal("y", a, 1, observed=np.arange(50.0))

    model = build(effects)
    point = model.initial_point()
    step = nns.Gibbs([model["v"]], model=model)
    drawn, _ = chain(step, point, 20)
    assert np.all(drawn == point["v_log__"])
    drawn, _ = chain(step, {**point, "a": np.arange(50.0)}, 20)
    assert np.any(drawn != point["v_log__"])


def noisy_network(prior):
    def network():
        f = nns.blocks.intermediate_noise(X, hidden=(3,), noise=0.1)
        pm.Normal("y", f, prior("sigma"), observed=Y[:, 0])

    return build(network)


@pytest.mark.parametrize("prior", ["log_normal", "inverse_gamma", "normal"])
def test_scale_of_a_response_is_drawn_without_activations(prior):
    model = noisy_network(PRIORS[prior])
    table = nns.explain(model)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["sigma"][0] == "step on a lattice"
    assert rows["sigma"][1].startswith("f::X2 integrated out, given which it moves by small steps")
    assert "gives sigma to NUTS" not in str(table)
    assert needs_gibbs(model, model["sigma"])


@pytest.mark.slow
def test_sweeps_beside_a_network():
    nns.verify(noisy_network(PRIORS["normal"]), sweeps=1500, random_seed=1)


DECLINED = {
    "several entries": (lambda: pm.LogNormal("v", 0, 1, shape=3), "a scale of several entries"),
    "of either sign": (
        lambda: pm.TruncatedNormal("v", 1, 1, lower=-1),
        "TruncatedNormal, is not known to be positive",
    ),
    "cut": (
        lambda: pm.LogNormal("v", default_transform=pm.distributions.transforms.Interval(0.5, 2)),
        "the transform Interval constrains it",
    ),
}


@pytest.mark.parametrize("case", DECLINED)
def test_declines(case):
    prior, reason = DECLINED[case]
    model = build(lambda: pm.Normal("y", 0, prior(), observed=Y))
    with pytest.raises(nns.laws.NotConjugate, match=reason):
        match(model, model["v"])
