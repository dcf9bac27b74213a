"""Moves of factors against what they multiply, against the model's own density."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import LogTransform

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.any_scales import Powers
from pymc_nnsteps.moves import rays
from pymc_nnsteps.moves.rays import Ray
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


ITEMS, USERS = np.array([0, 1, 2, 3, 3, 1, 0, 2, 1]), GROUPS


def matrix():
    """With a scale each, rows and columns of their own level."""
    lam, tau = pm.HalfNormal("lam", 0.7), pm.Gamma("tau", 3, 2)
    U, V = pm.Normal("U", 0, lam, shape=(4, 2)), pm.Normal("V", 0, tau=tau, shape=(3, 2))
    mean = pm.Normal("mu") + pm.Normal("b", shape=4)[:, None] + U @ V.T
    pm.Normal("y", mean, pm.HalfNormal("s"), observed=RNG.normal(size=(4, 3)))


def ratings():
    """A variance and a prior mean for each column of the users, in long form."""
    lam = pm.InverseGamma("lam", 3, [1.0, 2.0], shape=2)
    U = pm.Normal("U", pm.Normal("m", shape=2), pt.sqrt(lam), shape=(3, 2))
    V = pm.Normal("V", 0, [[1.0], [0.5], [2.0], [1.0]], shape=(4, 2))
    pm.Normal("y", (U[USERS] * V[ITEMS]).sum(-1), 0.6, observed=Y)


def one_scale():
    """Of both factors and of effects, in logits of three products of columns."""
    lam = pm.Exponential("lam", 1)
    U, V = pm.Normal("U", 0, lam, shape=(3, 2)), pm.Normal("V", 0.3, lam, shape=(4, 2))
    a = pm.Normal("a", 0, 2 * lam, shape=3)
    logit = U[USERS, 0] * V[ITEMS, 0] + U[USERS, 1] * V[ITEMS, 1] + a[USERS]
    pm.Bernoulli("y", logit_p=logit, observed=Y > 0)


def not_centred():
    """Three factors, of which two are matrices."""
    lam = pm.HalfCauchy("lam", 1)
    U, V = pm.Normal("U", shape=(4, 2)), pm.Normal("V", shape=(3, 2))
    pm.Normal("y", lam * pt.dot(U, V.T), 0.5, observed=RNG.normal(size=(4, 3)))


def two_tables():
    """One factor of two tables, and effects that it multiplies as well."""
    lam = pm.HalfNormal("lam")
    U, V = pm.Normal("U", 0, lam, shape=(4, 2)), pm.Normal("V", shape=(3, 2))
    W = pm.Normal("W", 0, pm.HalfNormal("tau", [1.0, 2.0], shape=2), shape=(2, 2))
    pm.Normal("y", pt.tensordot(U, V + pm.Normal("c"), [[1], [1]]), 0.5, observed=np.ones((4, 3)))
    pm.Normal("z", 2 * U @ W.T, 0.5, observed=np.ones((4, 2)))


CASES = {
    "intercepts": (intercepts, "sd raw"),
    "crossed": (crossed_with_slopes, "sd raw d"),
    "zero sum": (zero_sum, "sd raw"),
    "matrix": (matrix, "lam U V"),
    "the other scale": (matrix, "tau V U"),
    "both scales": (matrix, "lam tau U V"),
    "columns": (ratings, "lam U V"),
    "no scale": (ratings, "V U"),
    "one scale": (one_scale, "lam U V"),
    "no centre": (not_centred, "lam U"),
    "no scale of products": (not_centred, "U V"),
    "two tables": (two_tables, "lam U V c W"),
    "both scales of three": (two_tables, "lam tau U V c W"),
}


def rays_of(model, **options):
    found = [draw for draw in sweep_of(model, **options) if isinstance(draw, Ray)]
    return {" ".join(rv.name for rv in ray.draws): ray for ray in found if ray.against}


def log_densities(model, ray, point):
    """As the move has them, and as they should be."""
    n_columns = [point[rv.name].shape[axis] for rv, axis in ray.columns.items() if rv.ndim == 2]
    shifts = SHIFTS if not n_columns else SHIFTS[:, None] * np.linspace(1, -0.4, n_columns[0])
    moved = [ray._moved(rv, pt.as_tensor(shift)) for shift in shifts for rv in ray.draws]
    graphs = substitute([ray.log_density([], pt.as_tensor(shifts)), *moved], natural_values(model))
    inputs = list(model.value_vars)
    function = pytensor.function(inputs, graphs, mode=ONCE, on_unused_input="ignore")
    found, *values = function(*(point[v.name] for v in inputs))
    density, expected = density_of(model, ray.draws, {}), []
    for i, shift in enumerate(shifts):
        there, jacobian = dict(point), 0.0
        for rv, value in zip(ray.draws, values[i * len(ray.draws) :], strict=False):
            transform = model.rvs_to_transforms[rv]
            free = value if transform is None else transform.forward(pt.as_tensor(value)).eval()
            there[model.rvs_to_values[rv].name] = free
            is_log = isinstance(transform, LogTransform)
            each = shift if np.ndim(shift) == 0 else shift.mean()
            jacobian += 0.0 if is_log else ray.degrees[rv] * each * free.size
        expected.append(density(there)[0] + jacobian)
    return found.reshape(len(shifts), -1).sum(1), np.array(expected)


def differ(case):
    build, names = CASES[case]
    model = built(build)
    ray = rays_of(model)[names]
    found, expected = log_densities(model, ray, random_point(model, 2))
    return not np.allclose(found - found[2], expected - expected[2], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_log_density_is_the_models(case):
    assert not differ(case)


def with_prior(change):
    """A density with other priors of what moves apart from its scale."""
    return lambda right, ray, *args: right(
        replace(ray, apart={rv: replace(each, **change(each)) for rv, each in ray.apart.items()}),
        *args,
    )


OF_APART = Ray, "_of_apart"
NO_JACOBIAN = Ray, "_free_entries", lambda right, ray, rv: pt.zeros(())
PLANTS = {
    "no Jacobian": ("intercepts", *NO_JACOBIAN),
    "no Jacobian of a matrix": ("matrix", *NO_JACOBIAN),
    "no prior": ("matrix", *OF_APART, lambda right, ray, rv: Powers(0.0)),
    "mean forgotten": ("crossed", *OF_APART, with_prior(lambda each: {"mean": pt.zeros(())})),
    "scale stays": ("one scale", *OF_APART, with_prior(lambda each: {"degree": 0.0})),
    "twice as precise": (
        *("columns", *OF_APART),
        with_prior(lambda each: {"precision": 2 * each.precision}),
    ),
    "columns mixed": (
        *("columns", Ray, "_prior"),
        lambda right, ray, rv, shifts: right(ray, rv, shifts[:, ::-1]),
    ),
    "others of the scale lost": (
        *("one scale", rays, "of_scaled"),
        lambda right, *args: Powers(0.0),
    ),
    "all entries": ("zero sum", rays, "zero_sum_axes", lambda right, rv: ()),
}


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


def factors(mean, more=None):
    U, V = pm.Normal("U", 0, pm.HalfNormal("lam"), shape=(4, 2)), pm.Normal("V", shape=(3, 2))
    pm.Normal("y", mean(U, V), 0.5, observed=np.ones((4, 3)))
    if more is not None:
        more(U, V)


DECLINED = {
    "seen apart": (seen_apart, "sd", "raw: y depends on raw besides the product"),
    "about one": (about_one, "sd", "raw: y depends on sd besides the product"),
    "seen elsewhere": (seen_elsewhere, "sd", "raw: u depends on raw alone"),
    "in two ways": (in_two_ways, "sd", "y depends on"),
    "a factor beside": (
        lambda: factors(lambda U, V: U @ V.T + U[:, :1]),
        *("lam", "V: y depends on U besides the product"),
    ),
    "a factor alone": (
        lambda: factors(
            lambda U, V: U @ V.T, lambda U, V: pm.Normal("z", V[0], 1, observed=[1.0, 2.0])
        ),
        *("lam", "V: z depends on V alone"),
    ),
}


@pytest.mark.parametrize("case", DECLINED)
def test_what_is_not_of_this_form_is_left_with_a_reason(case):
    function, _, reason = DECLINED[case]
    model = built(function)
    assert not rays_of(model)
    assert reason in str(nns.explain(model, details=True))


def test_layers_are_no_factors():
    """Their own rays know the means of activations."""

    def network():
        H = pm.Normal("H", X @ pm.Normal("W", shape=(2, 3)), 0.3)
        pm.Normal("y", H @ pm.Normal("v", shape=3), 0.5, observed=Y)

    assert not rays_of(built(network), collapse=False)


def test_they_come_last_and_can_be_left_out():
    model = built(intercepts)
    assert sweep_of(model, scan="parallel")[-1].against
    assert not rays_of(model, rays=False)


def test_they_are_explained():
    rows = {row[0]: row[2] for row in nns.explain(built(matrix)).rows}
    assert "along a ray with U against V; along a ray with U against tau, V" in rows["lam"]
    assert "along a ray with lam against V; " in rows["U"]


def test_products_stay_as_they_are():
    """And all of it does where the effects are zero: the factor would go to zero."""
    model = built(crossed_with_slopes)
    rng, next_rng, values = draw_graph(model, rays_of(model)["sd raw d"])
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


def test_each_column_moves_by_itself():
    model = built(ratings)
    rng, next_rng, values = draw_graph(model, rays_of(model)["lam U V"])
    point, names = random_point(model, 2), list(model.value_vars)
    draw = pytensor.function([rng, *names], [next_rng, *values], mode=ONCE)
    _, lam, U, V = draw(np.random.default_rng(1), *(point[v.name] for v in names))
    np.testing.assert_allclose(U[USERS] * V[ITEMS], point["U"][USERS] * point["V"][ITEMS])
    by = np.sqrt(lam / np.exp(point["lam_log__"]))
    np.testing.assert_allclose(U, point["U"] * by)
    assert abs(np.log(by[0] / by[1])) > 1e-3


TRANSITIONS = 10_000


def joint_model():
    return built(lambda: intercepts(pm.Data("targets", np.zeros(N))))


@pytest.mark.slow
def test_joint_distribution():
    model = joint_model()
    assert_joint(nns.Gibbs(model=model), model, "targets", transitions=TRANSITIONS)


@pytest.mark.slow
def test_joint_distribution_test_sees_a_planted_error(monkeypatch):
    plant(monkeypatch, *NO_JACOBIAN)
    model = joint_model()
    with pytest.raises(AssertionError, match="z-scores beyond"):
        assert_joint(nns.Gibbs(model=model), model, "targets", transitions=TRANSITIONS)


@pytest.mark.slow
@pytest.mark.parametrize("build", [matrix, ratings, one_scale, two_tables])
def test_sweeps_leave_the_posterior_invariant(build):
    with built(build) as model:
        nns.verify(model, sweeps=1000, step=[nns.Gibbs()], random_seed=3)


@pytest.mark.parametrize(("function", "is_said"), [(matrix, True), (intercepts, False)])
def test_explain_says_that_products_are_for_gibbs(function, is_said):
    said = "the scales of U and V are known by their products only"
    with built(function) as model:
        assert any(note.startswith(said) for note in nns.explain(model).notes) == is_said
