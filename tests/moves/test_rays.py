"""Moves of scales along rays with what they scale, against the model's own density.

The oracle is the model's log density at the point where the ray leads, with the Jacobian of the
move: of a log-transformed scale it is in PyMC's density already.
"""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import LogTransform
from pymc.exceptions import ImputationWarning

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.any_scales import Powers
from pymc_nnsteps.laws.gaussian import BinaryObservation
from pymc_nnsteps.moves import rays
from tests.laws.graphs import draw_graph, sweep_of
from tests.moves.densities import built, density_of, random_point
from tests.planting import plant

RNG = np.random.default_rng(19)
N = 9
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=N)
GROUPS, OTHERS = np.array([0, 1, 1, 0, 2, 2, 0, 1, 0]), np.arange(N) % 2
SHIFTS = np.array([-1.3, -0.2, 0.0, 0.4, 1.1])


def intercepts():
    """About a mean that is drawn, beside a layer, with a scale of the response."""
    tau, sigma = pm.Gamma("tau", 2, 1), pm.HalfNormal("sigma", 1.3)
    a = pm.Normal("a", pm.Normal("mu"), tau=tau, shape=3)
    pm.Normal("y", a[GROUPS] + X @ pm.Normal("v", shape=2), sigma, observed=Y)


def gaps():
    """Rows whose response is missing, which are seen as they have been drawn."""
    s = pm.HalfNormal("s")
    a = pm.Normal("a", 0.2, s, shape=3)
    y = np.where(np.arange(N) % 4 == 1, np.nan, Y)
    with pytest.warns(ImputationWarning):
        pm.Normal("y", a[GROUPS] + X @ pm.Normal("v", shape=2), 0.6, observed=y)


def crossed_with_slopes():
    """One standard deviation of two kinds of effects, which two responses see."""
    s = pm.HalfCauchy("s", 0.7)
    a, d = pm.Normal("a", 0.3, 2 * s, shape=(3, 2)), pm.Normal("d", 0, s, shape=2)
    mean = a[GROUPS, 0] + a[GROUPS, 1] * X[:, 0] + d[OTHERS]
    pm.Normal("y", mean, np.linspace(0.5, 2, N), observed=Y)
    pm.LogNormal("u", 2 * mean, 0.8, observed=np.exp(Y))


def logistic():
    s = pm.Exponential("s", 1.2)
    a = pm.Normal("a", 0, s, shape=3)
    logit = a[GROUPS] + pm.Normal("b")
    pm.Bernoulli("y", p=pm.math.sigmoid(logit), observed=(Y > 0).astype(int))


def zero_sum():
    """One entry less is free; other effects have the same scale."""
    s = pm.HalfNormal("s", 0.8)
    a, d = pm.ZeroSumNormal("a", s, shape=3), pm.ZeroSumNormal("d", 2 * s, shape=2)
    pm.Normal("y", a[GROUPS] + d[OTHERS] + pm.Normal("c"), 0.7, observed=Y)


def levels():
    """Precisions at three levels: all, groups, effects."""
    top = pm.Gamma("top", 3, 2)
    middle = pm.Gamma("middle", 2, 2 / top, shape=2)
    a = pm.Normal("a", 0, tau=middle[:, None], shape=(2, 3))
    pm.Normal("y", a[OTHERS, GROUPS], 0.7, observed=Y)


def local():
    """A global scale against local ones."""
    tau = pm.InverseGamma("tau", 2, 1)
    psi = pm.InverseGamma("psi", 1.5, 0.5, shape=(2,))
    v = pm.Normal("v", 0, pt.sqrt(tau * psi))
    pm.Normal("y", X @ v, 0.4, observed=Y)


def mediated():
    """What one response is observed to be is a part of the mean of another."""
    s = pm.HalfNormal("s", 0.8)
    a = pm.Normal("a", 0, s, shape=3)
    y = pm.Normal("y", a[GROUPS], 0.7, observed=Y)
    pm.Normal("u", a[GROUPS] + 2 * y, 0.5, observed=Y[::-1])


CASES = {
    "intercepts": (intercepts, ("tau", "a")),
    "gaps": (gaps, ("s", "a")),
    "crossed": (crossed_with_slopes, ("s", "a", "d")),
    "logistic": (logistic, ("s", "a")),
    "zero sum": (zero_sum, ("s", "a", "d")),
    "levels": (levels, ("top", "middle", "a")),
    "a level": (levels, ("top", "middle")),
    "local": (local, ("tau", "psi")),
    "beside local": (local, ("tau", "v")),
    "mediated": (mediated, ("s", "a")),
}


def ray_of(model, names):
    [ray] = [
        draw
        for draw in sweep_of(model)
        if isinstance(draw, rays.Ray) and {rv.name for rv in draw.draws} == set(names)
    ]
    return ray


def log_densities(model, ray, point):
    """As the move has them, and as they should be."""
    rng = np.random.default_rng(3)
    omegas, observations = {}, []
    for child, _ in ray.linear:
        if isinstance(child, BinaryObservation):
            omegas[child.child] = rng.gamma(2.0, size=N)
            child = child.given(pt.as_tensor(omegas[child.child]))
        observations.append(child)
    graph = ray.log_density(observations, pt.as_tensor(SHIFTS))
    moved = [ray._moved(rv, pt.as_tensor(shift)) for shift in SHIFTS for rv in ray.draws]
    inputs = list(model.value_vars)
    function = pytensor.function(
        inputs,
        substitute([graph, *moved], natural_values(model)),
        mode=ONCE,
        on_unused_input="ignore",
    )
    found, *values = function(*(point[v.name] for v in inputs))
    density, expected = density_of(model, ray.draws, omegas), []
    for i, shift in enumerate(SHIFTS):
        there = dict(point)
        jacobian = 0.0
        for rv, value in zip(ray.draws, values[i * len(ray.draws) :], strict=False):
            transform = model.rvs_to_transforms[rv]
            free = value if transform is None else transform.forward(pt.as_tensor(value)).eval()
            there[model.rvs_to_values[rv].name] = free
            is_log = isinstance(transform, LogTransform)
            jacobian += 0.0 if is_log else ray.degrees[rv] * shift * free.size
        expected.append(density(there)[0] + jacobian)
    return found, np.array(expected)


def differ(case):
    build, names = CASES[case]
    model = built(build)
    found, expected = log_densities(model, ray_of(model, names), random_point(model, 2))
    return not np.allclose(found - found[2], expected - expected[2], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_log_density_is_the_models(case):
    assert not differ(case)


def no_jacobian(right, ray, rv, shifts):
    return right(ray, rv, shifts) - rv.size * ray.degrees[rv] * shifts


def mean_forgotten(right, ray, *args):
    return right(replace(ray, about={}), *args)


def not_halved(right, *args):
    a, b = right(*args)
    return a, 2 * b


def no_weights(right, ray, child, observation):
    return right(ray, child, replace(observation, precision=pt.ones_like(observation.precision)))


PLANTS = {
    "no Jacobian": ("intercepts", rays.Ray, "_prior", no_jacobian),
    "mean forgotten": ("intercepts", rays.Ray, "_moved", mean_forgotten),
    "not halved": ("logistic", rays.Ray, "_squares", not_halved),
    "no weights": ("crossed", rays.Ray, "_squares", no_weights),
    "level below lost": ("a level", rays, "of_scaled", lambda right, *args: Powers(0.0)),
}


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    case, *planted = PLANTS[error]
    plant(monkeypatch, *planted)
    assert differ(case)


def of_half_the_groups():
    s = pm.HalfNormal("s")
    a = pm.Normal("a", 0, pt.concatenate([s * np.ones(2), [0.3]]), shape=3)
    pm.Normal("y", a[GROUPS], 0.5, observed=Y)


def of_mean_too():
    """Effects whose mean is another scale's child."""
    s = pm.HalfNormal("s")
    m = pm.Normal("m", 0, s)
    a = pm.Normal("a", m, s, shape=3)
    pm.Normal("y", a[GROUPS], 0.5, observed=Y)


def of_rows():
    """As many effects as rows: noise."""
    s = pm.HalfNormal("s")
    pm.Normal("y", pm.Normal("a", 0, s, shape=N), 0.5, observed=Y)


def of_responses():
    """Effects whose scale is that of the response."""
    s = pm.HalfNormal("s")
    pm.Normal("y", pm.Normal("a", 0, s, shape=3)[GROUPS], 0.5 * s, observed=Y)


def of_hidden_weights():
    s = pm.HalfNormal("s")
    z = pm.Normal("z", X @ pm.Normal("w", 0, s, shape=2), 0.1)
    pm.Normal("y", z, 0.5, observed=Y)


@pytest.mark.parametrize(
    "function", [of_half_the_groups, of_mean_too, of_rows, of_responses, of_hidden_weights]
)
def test_what_is_not_of_this_form_is_left(function):
    assert not [draw for draw in sweep_of(built(function)) if isinstance(draw, rays.Ray)]


def test_rays_come_last_and_can_be_left_out():
    model = built(levels)
    *_, first, second = sweep_of(model, scan="parallel")
    assert all(isinstance(draw, rays.Ray) for draw in (first, second))
    assert not [draw for draw in sweep_of(model, rays=False) if isinstance(draw, rays.Ray)]


def test_scales_wait_for_weights_that_are_zero():
    """They would go to zero themselves."""
    model = built(levels)
    rng, next_rng, values = draw_graph(model, ray_of(model, ("top", "middle")))
    point = random_point(model, 2)
    names = list(model.value_vars)
    draw = pytensor.function([rng, *names], [next_rng, *values], mode=ONCE)
    for a in (point["a"], 0 * point["a"]):
        there = {**point, "a": a}
        _, top, _ = draw(np.random.default_rng(1), *(there[v.name] for v in names))
        assert (np.abs(np.log(top) - point["top_log__"]) > 1e-9) == np.any(a)


def test_they_are_explained():
    [tau, _, _, a, _] = nns.explain(built(intercepts)).rows
    assert tau == ("tau", "generalised inverse Gaussian", "along a ray with a; children: a")
    assert "; along a ray with tau; " in a[2]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["crossed", "levels"])
def test_sweeps_leave_the_posterior_invariant(case):
    build, _ = CASES[case]
    model = built(build)
    with model:
        nns.verify(model, sweeps=1000, step=[nns.Gibbs()], random_seed=3)
