"""Moves of factors against what they multiply, against the model's own density."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.kernels.compiling import ONCE
from pymc_nnsteps.moves import product_rays
from pymc_nnsteps.moves.product_rays import ProductRay
from tests.laws.graphs import draw_graph, sweep_of
from tests.moves.densities import built, density_of, random_point
from tests.planting import plant
from tests.steps.joint import assert_joint

RNG = np.random.default_rng(23)
N = 9
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=N)
GROUPS, OTHERS = np.array([0, 1, 1, 0, 2, 2, 0, 1, 0]), np.arange(N) % 2
SHIFTS = np.array([-1.3, -0.2, 0.0, 0.4, 1.1])


def intercepts(y=Y):
    """About a mean that is drawn, beside coefficients, with a scale of the response."""
    sd, raw = pm.HalfNormal("sd", 1.3), pm.Normal("raw", shape=3)
    a = pm.Normal("mu") + sd * raw
    sigma = pm.Gamma("sigma", 4, 4)
    pm.Normal("y", a[GROUPS] + X @ pm.Normal("v", shape=2), sigma, observed=y)


def crossed_with_slopes():
    """One factor of two kinds of effects with laws of their own, which two responses see."""
    sd = pm.Gamma("sd", 2, 1, shape=(1,))
    raw = pm.Normal("raw", pm.Normal("m"), [[1.0], [0.5], [2.0]], shape=(3, 2))
    d = pm.Normal("d", 0.4, pm.HalfNormal("tau"), shape=2)
    mean = sd * (raw[GROUPS, 0] + raw[GROUPS, 1] * X[:, 0] + 3 * d[OTHERS]) + X[:, 1]
    pm.Normal("y", mean, np.linspace(0.5, 2, N), observed=Y)
    pm.Bernoulli("b", logit_p=-mean, observed=(Y > 0).astype(int))


def zero_sum():
    """One row and one column less is free."""
    sd, raw = pm.Exponential("sd", 1), pm.ZeroSumNormal("raw", 1.4, shape=(3, 2), n_zerosum_axes=2)
    pm.Normal("y", sd * raw[GROUPS, OTHERS] + pm.Normal("c"), 0.7, observed=Y)


CASES = {
    "intercepts": (intercepts, ("sd", "raw")),
    "crossed": (crossed_with_slopes, ("sd", "raw", "d")),
    "zero sum": (zero_sum, ("sd", "raw")),
}


def ray_of(model):
    [ray] = [draw for draw in sweep_of(model) if isinstance(draw, product_rays.ProductRay)]
    return ray


def log_densities(model, ray, point):
    """As the move has them, and as they should be."""
    signs = [1, *[-1] * (len(ray.draws) - 1)]
    moved = []
    for rv, sign in zip(ray.draws, signs, strict=True):
        transform = model.rvs_to_transforms[rv]
        places = [rv * np.exp(sign * shift) for shift in SHIFTS]
        stay = transform is None
        moved.append([there if stay else transform.forward(there) for there in places])
    graphs = [ray.log_density(pt.as_tensor(SHIFTS)), *(each for part in moved for each in part)]
    inputs = list(model.value_vars)
    graphs = substitute(graphs, natural_values(model))
    function = pytensor.function(inputs, graphs, mode=ONCE, on_unused_input="ignore")
    found, *values = function(*(point[v.name] for v in inputs))
    density, expected = density_of(model, ray.draws, {}), []
    names = [model.rvs_to_values[rv].name for rv in ray.draws]
    for i, shift in enumerate(SHIFTS):
        placed = dict(zip(names, values[i :: len(SHIFTS)], strict=True))
        jacobian = -shift * sum(placed[name].size for name in names[1:])
        expected.append(density({**point, **placed})[0] + jacobian)
    return found, np.array(expected)


def differ(case):
    build, names = CASES[case]
    model = built(build)
    ray = ray_of(model)
    assert tuple(rv.name for rv in ray.draws) == names
    found, expected = log_densities(model, ray, random_point(model, 2))
    return not np.allclose(found - found[2], expected - expected[2], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_log_density_is_the_models(case):
    assert not differ(case)


def with_priors(change):
    """A density with other means and precisions of what is multiplied."""
    return lambda right, ray, shifts: right(
        replace(ray, priors={rv: change(*prior) for rv, prior in ray.priors.items()}), shifts
    )


NO_JACOBIAN = ProductRay, "_size", property(lambda ray: pt.ones(()))
PLANTS = {
    "mean forgotten": (
        *("crossed", ProductRay, "log_density"),
        with_priors(lambda mean, precision: (0 * mean, precision)),
    ),
    "not halved": (
        *("intercepts", ProductRay, "log_density"),
        with_priors(lambda mean, precision: (mean, 2 * precision)),
    ),
    "all entries": ("zero sum", product_rays, "_free_entries", lambda right, rv: rv.size),
}


def test_a_lost_jacobian_is_found(monkeypatch):
    monkeypatch.setattr(*NO_JACOBIAN)
    assert differ("intercepts")


@pytest.mark.parametrize("error", PLANTS)
def test_a_planted_error_is_found(error, monkeypatch):
    case, *planted = PLANTS[error]
    plant(monkeypatch, *planted)
    assert differ(case)


def seen_apart():
    sd, raw = pm.HalfNormal("sd"), pm.Normal("raw", shape=3)
    pm.Normal("y", (sd * raw)[GROUPS] + raw[GROUPS], 0.5, observed=Y)


def about_one():
    sd, raw = pm.HalfNormal("sd"), pm.Normal("raw", shape=3)
    pm.Normal("y", sd * (1 + raw[GROUPS]), 0.5, observed=Y)


def seen_elsewhere():
    sd, raw = pm.HalfNormal("sd"), pm.Normal("raw", shape=3)
    pm.Normal("y", sd * raw[GROUPS], 0.5, observed=Y)
    pm.Normal("u", raw, 0.5, observed=Y[:3])


def in_two_ways():
    sd, raw, d = pm.HalfNormal("sd"), pm.Normal("raw", shape=3), pm.Normal("d", shape=3)
    pm.Normal("y", sd * raw[GROUPS] + d[GROUPS], 0.5, observed=Y)
    pm.Normal("u", sd * d[GROUPS] + raw[GROUPS], 0.5, observed=Y)


@pytest.mark.parametrize("function", [seen_apart, about_one, seen_elsewhere, in_two_ways])
def test_what_is_not_of_this_form_is_left(function):
    assert not [draw for draw in sweep_of(built(function)) if isinstance(draw, ProductRay)]


def test_they_come_last_and_can_be_left_out():
    model = built(intercepts)
    assert isinstance(sweep_of(model, scan="parallel")[-1], ProductRay)
    assert not [draw for draw in sweep_of(model, rays=False) if isinstance(draw, ProductRay)]


def test_products_stay_as_they_are():
    """And all of it does where the effects are zero: the factor would go to zero."""
    model = built(crossed_with_slopes)
    rng, next_rng, values = draw_graph(model, ray_of(model))
    point = random_point(model, 2)
    names = list(model.value_vars)
    draw = pytensor.function(
        [rng, *names], [next_rng, *values], mode=ONCE, on_unused_input="ignore"
    )
    sd = np.exp(point["sd_log__"])
    for size in (1, 0):
        there = {**point, "raw": size * point["raw"], "d": size * point["d"]}
        _, new, raw, d = draw(np.random.default_rng(1), *(there[v.name] for v in names))
        assert (abs(new / sd - 1) > 1e-9) == (size > 0)
        np.testing.assert_allclose(new * raw, sd * there["raw"])
        np.testing.assert_allclose(new * d, sd * there["d"])


TRANSITIONS = 10_000


def joint_model():
    return built(lambda: intercepts(pm.Data("targets", np.zeros(N))))


@pytest.mark.slow
def test_joint_distribution():
    model = joint_model()
    assert_joint(nns.Gibbs(model=model), model, "targets", transitions=TRANSITIONS)


@pytest.mark.slow
def test_joint_distribution_test_sees_a_planted_error(monkeypatch):
    monkeypatch.setattr(*NO_JACOBIAN)
    model = joint_model()
    with pytest.raises(AssertionError, match="z-scores beyond"):
        assert_joint(nns.Gibbs(model=model), model, "targets", transitions=TRANSITIONS)
