"""Positive numbers that multiply what children see: density, draws, and what is declined."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_nnsteps as nns
from pymc_nnsteps.laws import any_scales, match
from pymc_nnsteps.laws.any_scales import Factor
from tests.planting import plant
from tests.statistics import assert_chain_moments
from tests.steps.chains import chain

RNG = np.random.default_rng(0)
N = 9
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=N)
GROUPS = np.array([0, 1, 1, 0, 2, 2, 0, 1, 0])

PRIORS = {
    "half_normal": lambda name: pm.HalfNormal(name, pm.Gamma(f"{name}_scale", 2, 2)),
    "exponential": lambda name: pm.Exponential(name, 1),
    "half_cauchy": lambda name: pm.HalfCauchy(name, 1),
    "uniform": lambda name: pm.Uniform(name, 0, 4),
    "gamma": lambda name: pm.Gamma(name, 2, 2, shape=(1,)),
    "log_normal": lambda name: pm.LogNormal(name, -1, 1),
    "truncated": lambda name: pm.TruncatedNormal(name, 0.5, 1, lower=0, shape=(1, 1)),
}


def build(function):
    with pm.Model() as model:
        function()
    return model


def under_any_prior():
    for name, prior in PRIORS.items():
        raw = pm.Normal(f"{name}_raw", shape=3)
        pm.Normal(f"{name}_y", (0.3 + prior(name) * raw)[..., GROUPS], 0.7, observed=Y[None])


def in_several_children():
    """Slopes and coefficients of two responses, weights of rows, and logits."""
    sd, raw = pm.HalfNormal("sd"), pm.Normal("raw", 0.2, 1.5, shape=(3, 2))
    effects = sd * raw
    mean = effects[GROUPS, 0] + effects[GROUPS, 1] * X[:, 0] - X[:, 1] / 2
    pm.Normal("y", mean, np.linspace(0.5, 2, N), observed=Y)
    pm.LogNormal("u", 2 * mean, 0.8, observed=np.exp(Y))
    pm.Bernoulli("b", logit_p=mean, observed=(Y > 0).astype(int))
    pm.Binomial("n", 4, logit_p=-sd, observed=[1, 3])


@pytest.mark.parametrize("function", [under_any_prior, in_several_children])
def test_log_density_is_the_models(function):
    table = nns.verify(build(function), random_seed=0)
    rows = {name: (law, found) for name, law, found in table.rows}
    for name in PRIORS if function is under_any_prior else ("sd",):
        law, difference = rows[name]
        assert law == "step on a lattice"
        assert difference < 1


def said_with(**changed):
    """What children say, with some of it changed."""

    def planted(right, *args):
        rng, seen = right(*args)
        return rng, replace(seen, **{name: change(seen) for name, change in changed.items()})

    return planted


PLANTS = {
    "no Jacobian": (Factor, "log_density", lambda right, *args: right(*args) - args[-1]),
    "not halved": (
        *(any_scales, "of_linear"),
        lambda right, a, b, degree: right(a, 2 * b, degree),
    ),
    "offset lost": (any_scales, "augmented", said_with(offset=lambda seen: None)),
    "no weights": (
        any_scales,
        "augmented",
        said_with(precision=lambda seen: pt.ones_like(seen.value)),
    ),
}


@pytest.mark.parametrize("error", PLANTS)
def test_a_planted_error_is_found(error, monkeypatch):
    plant(monkeypatch, *PLANTS[error])
    with pytest.raises(AssertionError, match=r"^sd: "):
        nns.verify(build(in_several_children), random_seed=0)


@pytest.mark.parametrize("sign", [1, -1])
def test_draws_by_quadrature(sign):
    """Also where the children would have it negative."""
    y, h = sign * np.array([0.4, 1.1, 0.7]), np.array([0.5, 1.0, 1.5])

    def line():
        v = pm.LogNormal("v", -1, 0.8, default_transform=None)
        pm.Normal("y", v * h, 0.3, observed=y)

    model = build(line)
    step = nns.Gibbs(model=model)
    drawn = np.log(chain(step, model.initial_point(), 10_000, seed=1, burn=20)[0])
    grid = np.linspace(-8, 4, 20_001)
    at = np.exp(grid)
    log_density = stats.norm.logpdf(grid, -1, 0.8)
    log_density += stats.norm.logpdf(y[:, None], at * h[:, None], 0.3).sum(0)
    weight = np.exp(log_density - log_density.max())
    mean = np.average(grid, weights=weight)
    variance = np.average((grid - mean) ** 2, weights=weight)
    assert_chain_moments(drawn, [mean], [[variance]])


def effects_beside(network):
    def function():
        sd, raw = pm.Exponential("sd", 1), pm.Normal("raw", shape=3)
        f = network(X, hidden=(3,))
        pm.Normal("y", sd * raw[GROUPS] + f, pm.HalfNormal("sigma"), observed=Y)

    return build(function)


def test_it_keeps_its_value_where_effects_are_zero():
    """There it would be drawn from its prior, however wide that is."""
    model = effects_beside(nns.blocks.intermediate_noise)
    point = model.initial_point()
    step = nns.Gibbs([model["sd"]], model=model)
    for raw in (np.zeros(3), np.ones(3)):
        drawn, _ = chain(step, {**point, "raw": raw}, 20)
        assert np.any(drawn != point["sd_log__"]) == np.any(raw)


def test_gibbs_takes_it_beside_a_network_with_latent_layers():
    table = nns.explain(effects_beside(nns.blocks.intermediate_noise))
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["sd"] == ("step on a lattice", "along a ray against raw; children: y")
    assert not table.beside


def test_hmc_moves_it_with_what_it_multiplies():
    """Without its effects Gibbs would hold it by them."""
    table = nns.explain(effects_beside(nns.blocks.hierarchical))
    given = {variable: step for variable, step, _ in table.beside}
    assert given["sd"] == given["raw"] == "HMC"


DECLINED = {
    "several entries": (lambda: pm.HalfNormal("v", shape=3)[GROUPS], "must be a scalar"),
    "of either sign": (lambda: pm.Uniform("v", -1, 1), "not known to be positive"),
    "not linear": (lambda: pm.HalfNormal("v") ** 2, "the mean of child y is not affine in it"),
}


@pytest.mark.parametrize("case", DECLINED)
def test_declines(case):
    part, reason = DECLINED[case]
    model = build(lambda: pm.Normal("y", part() * X[:, 0], 1, observed=Y))
    with pytest.raises(nns.laws.NotConjugate, match=reason):
        match(model, model["v"])
