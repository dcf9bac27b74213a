"""Effects of groups drawn with all else that is linear, against the model's own density."""

import time
from copy import copy
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.gaussian.groups import Eliminated
from pymc_nnsteps.gaussian.layout import Member
from pymc_nnsteps.graphs.centred import about_mean
from pymc_nnsteps.graphs.rearranging import as_stated
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.laws import effects
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves import responses
from pymc_nnsteps.moves.plan import Context, Options
from tests.laws.graphs import (
    assert_exact_gaussian,
    gaussian_law,
    integrand_of,
    point_of,
    put,
    shapes_of,
)
from tests.planting import plant

RNG = np.random.default_rng(8)
N = 9
X, Y = RNG.normal(size=(N, 3)), RNG.normal(size=N)
SCHOOL = np.array([0, 3, 1, 1, 4, 0, 3, -1, 1])
TEACHER = np.array([1, 0, 0, 1, 1, 1, 0, 0, 1])
SPREAD = np.exp(RNG.normal(size=N))


def beside_a_network():
    """A mean of the effects, a group without rows, an output that is picked."""
    z = pm.Normal("z", X @ pm.Normal("W", shape=(3, 2)), 0.6)
    h = pm.Normal("h", pt.maximum(z, 0), 0.5)
    a = pm.Normal("a", pm.Normal("mu"), 0.7, shape=6)
    v, b = pm.Normal("v", 0, 0.8, shape=(1, 2)), pm.Normal("b", 0.3, 2, shape=1)
    pm.Normal("y", a[SCHOOL] + (h @ v.T + b)[:, 0], pm.HalfNormal("sigma"), observed=Y)


def crossed_with_weights_of_rows():
    a, b = pm.Normal("a", 0.4, 0.7, shape=5), pm.Normal("b", 0, [0.5, 2.0], shape=2)
    beta = pm.Normal("beta", [1.0, 0, -1], 0.9, shape=3)
    pm.Normal("y", 0.3 + a[SCHOOL] + 2 * b[TEACHER] + X @ beta, SPREAD, observed=Y)


def slopes():
    """Three entries of each group: of two variables, one with the groups in its second axis."""
    a = pm.Normal("a", 0.4, 0.7, shape=5)
    b = pm.Normal("b", [[0.2], [-0.4]], np.exp(RNG.normal(size=(2, 5))), shape=(2, 5))
    mean = a[SCHOOL] - (b[:, SCHOOL] * X[:, :2].T).sum(0) + pm.Normal("c")
    pm.Normal("y", mean, SPREAD, observed=Y)


def slopes_not_eliminated():
    """Slopes of fewer groups than the effects beside them."""
    b = pm.Normal("b", 0.1, 1, shape=(2, 2))
    a = pm.Normal("a", 0.4, 0.7, shape=5)
    pm.Normal("y", (b[TEACHER] * X[:, :2]).sum(1) + a[SCHOOL], 0.8, observed=Y)


def nested_in_two_children():
    """Groups within groups, a column and a vector, an index of data, a logarithm."""
    index = pm.Data("index", SCHOOL % 5)
    a, d = pm.Normal("a", 0, 0.7, shape=5), pm.Normal("d", 0, 1.5, shape=2)
    mean = a[index] + d[(index > 2).astype("int64")]
    pm.Normal("y", mean[:, None], SPREAD[:, None], observed=Y[:, None])
    pm.LogNormal("u", 0.5 - a[TEACHER] + d[TEACHER], 0.9, observed=np.exp(Y))


def centred():
    """Effects about their mean: of most groups, of fewer, and of groups without rows."""
    a, s = pm.Normal("a", 0.4, 0.7, shape=5), pm.Normal("s", -0.3, 0.9, shape=5)
    b, slope = pm.Normal("b", 0.5, 1.5, shape=2), s - s.mean()
    mean = (
        a[SCHOOL]
        + slope[SCHOOL] * X[:, 0]
        + (b - b.mean(0))[TEACHER]
        + X[:, 1:] @ pm.Normal("beta", shape=2)
    )
    pm.Normal("y", mean, SPREAD, observed=Y)


def centred_alone():
    a, s = pm.Normal("a", 0.4, 0.7, shape=5), pm.Normal("s", 1, 0.9, shape=5)
    pm.Normal(
        "y", (s - s.mean())[SCHOOL] * X[:, 0] + (a - a.mean(keepdims=True))[SCHOOL], 0.5, observed=Y
    )


def zero_sums():
    """Effects whose priors fix their sum: of most groups, of fewer, beside others about a mean."""
    a, b = pm.ZeroSumNormal("a", 0.7, shape=5), pm.ZeroSumNormal("b", [1.5], shape=2)
    s, beta = pm.Normal("s", -0.3, 0.9, shape=5), pm.Normal("beta", 0.2, shape=2)
    slope = (s - s.mean())[SCHOOL] * X[:, 0]
    pm.Normal("y", a[SCHOOL] + slope + 2 * b[TEACHER] + X[:, 1:] @ beta, SPREAD, observed=Y)


def zero_sum_matrices():
    """Sums along the last axis or both: of most groups, of fewer, and of what all rows see."""
    u = pm.ZeroSumNormal("u", [[0.6], [1]], shape=(2, 5))
    t, w, b = (
        pm.ZeroSumNormal(name, 0.8, shape=(groups, 3), n_zerosum_axes=2)
        for name, groups in {"t": 5, "w": 2, "b": 2}.items()
    )
    mean = u[TEACHER, SCHOOL] + ((t[SCHOOL] + w[TEACHER]) * X).sum(1) + pm.Normal("c", 0.2)
    seen = X[:, :2, None] * X[:, None, :]
    pm.Normal("y", mean + (seen * b).sum((1, 2)), SPREAD, observed=Y)


def centred_matrices():
    """About means of columns and of all: of most groups, of fewer, and of what all rows see."""
    d, e = pm.Normal("d", [0.2, -0.4], [0.7, 1], shape=(5, 2)), pm.Normal("e", 0.3, shape=(5, 2))
    w, b = pm.Normal("w", 0.1, 0.8, shape=(3, 2)), pm.Normal("b", 1, 0.6, shape=(3, 2))
    mean = ((d - d.mean(0))[SCHOOL] * X[:, :2]).sum(1) + (e - e.mean())[SCHOOL, TEACHER]
    mean += ((w - w.mean(0))[:, TEACHER].T * X).sum(1)
    mean += (X @ (b - b.mean(-1)[:, None]) * X[:, :2]).sum(1)
    pm.Normal("y", mean, SPREAD, observed=Y)


def centred_rows():
    """About the mean of each group, which has a law of its own."""
    r = pm.Normal("r", X[:5, :1], SPREAD[:5, None], shape=(5, 3))
    mean = ((r - r.mean(1, keepdims=True))[SCHOOL] * X).sum(1)
    pm.Normal("y", mean + pm.Normal("c"), SPREAD, observed=Y)


def sums_of_outputs():
    """Effects of each output whose sums are zero, beside weights of the outputs."""
    z = pm.ZeroSumNormal("z", 0.7, shape=(5, 3), n_zerosum_axes=2)
    d, v = pm.Normal("d", 0.4, 0.7, shape=(2, 3)), pm.Normal("v", 0, 0.8, shape=(3, 3))
    mean = z[SCHOOL] + (d - d.mean(0))[TEACHER] + X @ v
    y = np.stack([Y, -Y[::-1], Y**2], 1)
    pm.Normal("y", mean, SPREAD[:, None] * np.array([0.5, 2, 1]), observed=y)


def by_data_and_dims():
    """Lengths and an index that may change: levels, slopes, and sums by the model's dims."""
    coords = {"group": range(5), "output": range(3), "row": range(N)}
    pm.modelcontext(None).add_coords(coords)
    index = pm.Data("index", SCHOOL % 5)
    a, s = pm.Normal("a", dims=("group", "output")), pm.Normal("s", 0.3, dims="group")
    mean = a[index] + ((s - s.mean())[index] * X[:, 0])[:, None]
    mean += pm.ZeroSumNormal("z", dims=("output", "group"))[:, index].T
    pm.Normal("y", mean, 0.6, observed=np.stack([Y, -Y, Y**2], 1), dims=("row", "output"))


def several_outputs():
    """Effects of each output, one that all share, and the weights of a network's outputs."""
    v, b = pm.Normal("v", 0, 0.8, shape=(2, 3)), pm.Normal("b", 0.3, 2, shape=2)
    a, s = pm.Normal("a", 0.4, 0.7, shape=(5, 2)), pm.Normal("s", 0, 1, shape=5)
    mean = a[SCHOOL] + (s[SCHOOL] * X[:, 0])[:, None] + X @ v.T + b
    pm.Normal("y", mean, SPREAD[:, None] * np.array([0.5, 2]), observed=np.stack([Y, -Y[::-1]], 1))


def one_group():
    a = pm.Normal("a", 0, 0.7, shape=1)
    pm.Normal("y", a[np.zeros(N, int)] + X @ pm.Normal("beta", shape=3), 0.5, observed=Y)


CASES = {
    beside_a_network: ("a", "v", "b"),
    crossed_with_weights_of_rows: ("a", "b", "beta"),
    slopes: ("a", "b", "c"),
    slopes_not_eliminated: ("b", "a"),
    nested_in_two_children: ("a", "d"),
    centred: ("a", "s", "b", "beta"),
    centred_alone: ("a", "s"),
    zero_sums: ("a", "b", "s", "beta"),
    zero_sum_matrices: ("u", "t", "w", "b", "c"),
    centred_matrices: ("d", "e", "b", "w"),
    centred_rows: ("r", "c"),
    sums_of_outputs: ("z", "d", "v"),
    by_data_and_dims: ("a", "s", "z"),
    several_outputs: ("a", "s", "v", "b"),
    one_group: ("a", "beta"),
}


def joined_in(model, blocks):
    """The draw that joins effects and all else that is linear."""
    context = Context(model, Options(), shapes_of(model), blocks, blocks)
    responses.propose_joined_effects(context)
    [found] = [draw for draw in context.sweep if draw not in blocks]
    return found


def joined(function):
    """The model, and the draw of what is linear in it."""
    with pm.Model() as model:
        function()
    blocks = find_conditionals(model, [rv for rv in model.free_RVs if rv.name != "sigma"])
    found = joined_in(model, blocks)
    return model, found


@pytest.mark.parametrize("function", CASES)
def test_law_is_the_models(function):
    model, found = joined(function)
    assert tuple(rv.name for rv in found.draws) == CASES[function]
    assert_exact_gaussian(model, found, point_of(model, RNG))


def test_groups_by_data_are_eliminated_together():
    """The index is the same, though negative entries count from the end of several variables."""
    _, found = joined(by_data_and_dims)
    assert [member.labels for member in found.members] == [(0,), (0,), (1,)]
    with pm.Model():
        b = pm.Normal("b", shape=5)
        index = pm.Data("index", SCHOOL)
        form = pt.switch(pt.lt(index, 0), index + 7, index)
        assert as_stated(form, b, 0) is form


def test_law_of_logistic_children():
    with pm.Model() as model:
        a, beta = pm.Normal("a", 0.2, 0.7, shape=5), pm.Normal("beta", shape=3)
        pm.Bernoulli("y", logit_p=a[SCHOOL] + X @ beta, observed=Y > 0)
    blocks = find_conditionals(model, model.free_RVs)
    found = joined_in(model, blocks)
    point, omega = point_of(model, RNG), RNG.gamma(2.0, size=N)
    density = integrand_of(model, {model["y"]: omega})
    # the draw of the Polya-Gamma variables is given the logit: the law given these is not
    law = gaussian_law(model, found, point, held=[omega])
    start = density(put(point, model, found.draws, law.mean))
    for noise in RNG.normal(size=(6, len(law.mean))):
        other = law.mean + law.factor @ noise
        difference = density(put(point, model, found.draws, other)) - start
        np.testing.assert_allclose(law.log_density(other), difference, rtol=1e-9)


def without_prior_mean(right, eliminated, *args):
    """Of the effects of groups."""
    other = copy(eliminated)
    other._prior = replace(eliminated._prior, mean=None)
    return right(other, *args)


def weights_of_the_first_output(right, *args):
    rng, seen = right(*args)
    return rng, replace(seen, precision=seen.precision[:, :1])


def sums_of_a_sum_uncoupled(right, eliminated, rest, root, of_groups, of_rest):
    _, found = right(eliminated, rest, root, of_groups, of_rest)
    return eliminated.solve(of_groups), found


PLANTS = {
    "coupling lost": (
        *(slopes, Eliminated, "draw"),
        lambda right, eliminated, rng, rest, drawn: right(eliminated, rng, rest, None),
    ),
    "prior mean lost": (
        *(crossed_with_weights_of_rows, Eliminated, "complement_by_rows"),
        without_prior_mean,
    ),
    "coupling of a sum lost": (centred, Eliminated, "solve_with", sums_of_a_sum_uncoupled),
    "weights of the first output": (
        *(several_outputs, effects, "augmented"),
        weights_of_the_first_output,
    ),
    "a sum left open": (
        *(zero_sums, effects.Effects, "_conditioned_on"),
        lambda right, law: right(law)[1:],
    ),
    "coordinates of another basis": (
        *(centred_rows, effects, "coordinates"),
        lambda right, array, axis, n: array[(slice(None),) * axis + (slice(None, -1),)],
    ),
    "mean of one effect": (
        *(centred_alone, effects, "_mean_of"),
        lambda right, rng, member, axes: right(
            rng, replace(member, precision=member.precision / 5), axes
        ),
    ),
}


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    function, *planted = PLANTS[error]
    plant(monkeypatch, *planted)
    model, found = joined(function)
    with pytest.raises(AssertionError, match="log density differs"):
        assert_exact_gaussian(model, found, point_of(model, RNG))


def test_a_mean_beside_contrasts_is_seen(monkeypatch):
    monkeypatch.setattr(Member, "center", property(lambda member: member.mean))
    model, found = joined(centred_rows)
    with pytest.raises(AssertionError, match="log density differs"):
        assert_exact_gaussian(model, found, point_of(model, RNG))


def test_only_what_is_seen_about_its_mean_is_centred():
    """The mean enters elsewhere; effects have laws of their own; a mean of others is taken off."""
    _, found = joined(centred)
    assert [rv.name for rv in found.centred] == ["s", "b"]
    forms = {
        "itself": lambda a, b: a[SCHOOL] + (a - a.mean())[SCHOOL],
        "another": lambda a, b: (a - b.mean())[SCHOOL] + b[SCHOOL],
        "laws": lambda a, b: (b - b.mean())[SCHOOL] + a[SCHOOL],
    }
    for form in forms.values():
        with pm.Model() as model:
            a, b = pm.Normal("a", shape=5), pm.Normal("b", np.arange(5.0), shape=5)
            pm.Normal("y", form(a, b), 0.5, observed=Y)
        rvs = [rv for rv in (a, b) if children(model, rv)]
        assert not effects.match_effects(model, rvs, shapes_of(model)).centred


@pytest.mark.parametrize(
    ("form", "axes"),
    [
        (lambda d: d - d.mean(0), (0,)),
        (lambda d: d - d.mean(-2, keepdims=True), (0,)),
        (lambda d: d - d.mean(axis=1)[:, None], (1,)),
        (lambda d: d - d.mean(-1, keepdims=True), (1,)),
        (lambda d: d - d.mean((0, 1)), (0, 1)),
        (lambda d: d - d.mean(keepdims=True), (0, 1)),
        (lambda d: d - d.mean(0)[:1], None),
        (lambda d: d - d[:2].mean(0), None),
    ],
)
def test_axes_of_means(form, axes):
    with pm.Model() as model:
        d = pm.Normal("d", shape=(3, 2))
        y = pm.Normal("y", form(d)[SCHOOL % 3, TEACHER], 0.5, observed=Y)
    found = about_mean(model, y, d)
    assert (found and found.axes) == axes


def activations():
    """Each row sees entries of its own: those are drawn apart, as a layer."""
    h = pm.Normal("h", shape=(N, 2))
    a, v = pm.Normal("a", shape=5), pm.Normal("v", shape=2)
    pm.Normal("y", a[SCHOOL] + h @ v, 0.5, observed=Y)


def test_activations_are_not_joined():
    _, found = joined(activations)
    assert [rv.name for rv in found.draws] == ["a", "v"]


def test_little_noise_loses_no_digits():
    """The intercept is left open by the effects, whose sum is known to twelve digits."""
    with pm.Model() as model:
        a, c = pm.Normal("a", shape=5), pm.Normal("c")
        y = RNG.normal(size=5)[SCHOOL] + 1e-7 * Y
        pm.Normal("y", a[SCHOOL] + c, 1e-7, observed=y)
    blocks = find_conditionals(model, model.free_RVs)
    found = joined_in(model, blocks)
    law = gaussian_law(model, found, point_of(model, RNG))
    # four groups have rows: their sums, as if without noise, tell of c by sums of independent a
    sums = np.array([y[group == SCHOOL % 5].mean() for group in (0, 1, 3, 4)])
    np.testing.assert_allclose(law.mean[-1], sums.sum() / 5, rtol=1e-6)
    np.testing.assert_allclose(law.covariance[-1, -1], 1 / 5, rtol=1e-6)


@pytest.mark.parametrize("matrix", [False, True])
def test_many_groups_are_quick(matrix):
    """1e5 rows and 1e4 groups: a matrix of both would have 8 GB."""
    n, groups = 100_000, 10_000
    with pm.Model() as model:
        index = RNG.integers(groups, size=n)
        if matrix:
            z = pm.ZeroSumNormal("z", shape=(groups, 3), n_zerosum_axes=2)
            effect = z[index, RNG.integers(3, size=n)]
        else:
            effect = pm.Normal("a", shape=groups)[index]
        beta, sigma = pm.Normal("beta", shape=6), pm.HalfNormal("sigma")
        mean = effect + RNG.normal(size=(n, 6)) @ beta
        pm.Normal("y", mean, sigma, observed=RNG.normal(size=n))
        step = nns.Gibbs()
    point, taken = point_of(model, RNG), []
    for _ in range(5):
        start = time.process_time()
        step.step(point)
        taken.append(time.process_time() - start)
    assert min(taken) < 0.05, taken
