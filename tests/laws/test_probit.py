"""Utilities behind a threshold or an argmax, against the model's own log density.

Density: the claimed truncated normals have the model's differences of log densities inside their
bounds, and the model's log density is -inf exactly outside of them. The wrong side, the wrong
class, a threshold with the wrong sign or entries in the wrong order fail.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.laws import match
from pymc_nnsteps.laws.piecewise import LargestUtility, UtilityBehindThreshold
from pymc_nnsteps.random.truncated_normal import ArgmaxUtilitiesRV, TruncatedNormalRV
from tests.laws.graphs import draw_graph, point_of, put, random_nodes
from tests.statistics import assert_proportion, assert_uniform

N, K = 8, 4
F = np.random.default_rng(1).normal(size=(N, K))
SCALES = np.exp(np.random.default_rng(2).normal(size=(N, K)))
Y = np.array([0, 1, 1, 0, 1, 0, 0, 1])
CLASSES = np.array([0, 3, 1, 1, 2, 0, 3, 2])


def parameters_of_draw(model, conditional, point):
    rng, next_rng, values = draw_graph(model, conditional)
    [node] = random_nodes(rng, next_rng, values)
    names = list(model.value_vars)
    function = pytensor.function(
        names, node.op.dist_params(node), mode=ONCE, on_unused_input="ignore"
    )
    raw = node.outputs[1].type()
    order = pytensor.function(
        [raw, *names],
        pytensor.graph.replace.graph_replace(values, {node.outputs[1]: raw}, strict=False),
        mode=ONCE,
        on_unused_input="ignore",
    )
    given = [point[value.name] for value in names]
    shape = point[conditional.draws[0].name].shape
    size = int(np.prod(shape))
    [placed] = order(np.arange(float(size)).reshape((size,) if raw.ndim == 1 else shape), *given)
    np.testing.assert_array_equal(placed, np.arange(size).reshape(shape))
    return node.op, [np.float64(value) for value in function(*given)]


def same_difference(mine, theirs, reference):
    return abs(mine - theirs) <= 1e-10 * (1 + abs(theirs)) + 1e-14 * abs(reference)


def bernoulli(p, observed=Y):
    pm.Bernoulli("y", p=p, observed=observed)


def _plain():
    bernoulli(pt.gt(pm.Normal("z", F[:, 0], 0.7), 0))


def _cast_and_column():
    z = pm.Normal("z", F[:, :1], SCALES[:, :1])
    bernoulli(pt.gt(z[:, 0], 0).astype("float64"))


def _switch():
    bernoulli(pt.switch(pm.Normal("z", F[:, 0], 0.7) > 0.25, 1.0, 0.0))


def _switch_down():
    bernoulli(pt.switch(pm.Normal("z", F[:, 0], 0.7) > -1, 0, 1))


def _less():
    bernoulli(1.0 * (pm.Normal("z", F[:, 0], tau=0.3) < 0))


def _scaled():
    bernoulli(pt.gt(0.3 - 0.1 * pm.Normal("z", F[:, 0], 0.7), 0))


def _sign():
    bernoulli((pt.sign(pm.Normal("z", F[:, 0], 0.7)) + 1) / 2)


def _matrix():
    z = pm.Normal("z", F, SCALES)
    bernoulli(pt.gt(z, 0), observed=(F[::-1] > 0.3).astype(int))


def _named():
    z = pm.Normal("z", 0, 1, shape=N)
    bernoulli(pm.Deterministic("p", pt.gt(z, 0) * 1.0), observed=pm.Data("labels", Y))


def _column_to_row():
    z = pm.Normal("z", F[:, :1], 1)
    bernoulli(pt.gt(z[:, 0][None, :], 0), observed=Y[None, :])


THRESHOLDS = [_plain, _cast_and_column, _switch, _switch_down, _less, _scaled, _sign, _matrix,
              _named, _column_to_row]  # fmt: skip


@pytest.mark.parametrize("build", THRESHOLDS, ids=lambda f: f.__name__.strip("_"))
def test_threshold_is_the_models(build):
    with pm.Model() as model:
        build()
    z = model["z"]
    found = match(model, z)
    assert isinstance(found, UtilityBehindThreshold)
    point = point_of(model, np.random.default_rng(0))
    op, (mu, sigma, lower, upper) = parameters_of_draw(model, found, point)
    assert isinstance(op, TruncatedNormalRV)
    logp = model.compile_logp(mode=ONCE)
    rng = np.random.default_rng(1)
    size = point["z"].size
    lower, upper, mu, sigma = (np.broadcast_to(a, size) for a in (lower, upper, mu, sigma))
    assert np.all(np.isinf(lower) != np.isinf(upper))

    def inside(scale):
        away = scale * rng.exponential(size=size)
        return np.where(np.isinf(upper), lower + away, upper - away)

    for scale in (1e-3, 1.0, 1.0, 1e4):
        first, second = inside(scale), inside(scale)
        reference = logp(put(point, model, [z], first))
        theirs = logp(put(point, model, [z], second)) - reference
        mine = np.sum(((first - mu) ** 2 - (second - mu) ** 2) / (2 * sigma**2))
        assert np.isfinite(reference)
        assert same_difference(mine, theirs, reference)
        for entry in range(size):
            outside = first.copy()
            bound = lower[entry] if np.isinf(upper[entry]) else upper[entry]
            outside[entry] = 2 * bound - outside[entry]
            assert logp(put(point, model, [z], outside)) == -np.inf


def one_hot(z):
    return pt.eq(pt.argmax(z, axis=-1, keepdims=True), pt.arange(K))


ARGMAX = {
    "keepdims": one_hot,
    "cast": lambda z: one_hot(z).astype("float64"),
    "new axis": lambda z: pt.eq(pt.argmax(z, axis=1)[:, None], pt.arange(K)),
    "numpy range": lambda z: pt.eq(pt.argmax(z, axis=1, keepdims=True), np.arange(K)),
    "range first": lambda z: pt.eq(pt.arange(K), pt.argmax(z, axis=1, keepdims=True)),
    "range as a row": lambda z: pt.eq(pt.arange(K)[None, :], pt.argmax(z, axis=1)[:, None]),
    "own length": lambda z: pt.eq(pt.argmax(z, axis=-1, keepdims=True), pt.arange(z.shape[-1])),
    "switch": lambda z: pt.switch(one_hot(z), 1.0, 0.0),
    "largest": lambda z: pt.eq(z, pt.max(z, axis=-1, keepdims=True)).astype("float64"),
    "largest, other order": lambda z: pt.eq(z.max(1)[:, None], z),
    "named": lambda z: pm.Deterministic("p", pt.cast(one_hot(z), "float64")),
}  # fmt: skip


@pytest.mark.parametrize("scale", [0.7, "per entry", "per class", "per row"])
@pytest.mark.parametrize("name", ["keepdims", "largest"])
def test_largest_utility_is_the_models(name, scale):
    sigma = {"per entry": SCALES, "per class": SCALES[0], "per row": SCALES[:, :1]}.get(
        scale, scale
    )
    with pm.Model() as model:
        z = pm.Normal("z", F, sigma)
        pm.Categorical("y", p=ARGMAX[name](z), observed=CLASSES)
    check_largest(model, z)


@pytest.mark.parametrize("name", ARGMAX)
def test_largest_utility_however_it_is_written(name):
    with pm.Model() as model:
        b = pm.Normal("b", shape=K)
        z = pm.Normal("z", b, 0.3, shape=(N, K))
        pm.Categorical("y", p=ARGMAX[name](z), observed=pm.Data("labels", CLASSES))
    check_largest(model, z)


def drawn_utilities(shape, current):
    with pm.Model() as model:
        z = pm.Normal("z", F[: len(current)].reshape((*shape, K)), SCALES[0], shape=(*shape, K))
        p = pt.eq(pt.argmax(z, axis=-1, keepdims=True), pt.arange(K))
        pm.Categorical("y", p=p, observed=CLASSES[: len(current)].reshape(shape))
    rng, _, values = draw_graph(model, match(model, z))
    draw = pytensor.function([rng, *model.value_vars], values, mode=ONCE)
    [value] = draw(np.random.default_rng(2), current.reshape((*shape, K)))
    assert value.shape == (*shape, K)
    return value.reshape((-1, K))


@pytest.mark.parametrize("shape", [(), (2, N // 2), (2, 1, N // 2)], ids=str)
def test_largest_utility_of_any_number_of_axes(shape):
    """Rows in another order than their labels, means or scales."""
    n = int(np.prod(shape))
    current = np.random.default_rng(1).normal(size=(n, K))
    expected = drawn_utilities((n,), current)
    np.testing.assert_array_equal(drawn_utilities(shape, current), expected)
    np.testing.assert_array_equal(expected.argmax(-1), CLASSES[:n])


def check_largest(model, z):
    found = match(model, z)
    assert isinstance(found, LargestUtility)
    rng = np.random.default_rng(1)
    point = point_of(model, rng)
    op, (mu, sigma, labels, current) = parameters_of_draw(model, found, point)
    assert isinstance(op, ArgmaxUtilitiesRV)
    np.testing.assert_array_equal(labels, CLASSES)
    np.testing.assert_array_equal(current, point["z"])
    assert mu.shape == (N, K)
    logp = model.compile_logp(mode=ONCE)
    previous = None
    for scale in (1e-3, 1.0, 1e4):
        for _ in range(2):
            value = scale * rng.normal(size=(N, K))
            assert logp(put(point, model, [z], value.ravel())) == -np.inf
            value[np.arange(N), CLASSES] = value.max(1) + scale
            theirs = logp(put(point, model, [z], value.ravel()))
            mine = -np.sum((value - mu) ** 2 / (2 * sigma**2))
            if previous is not None:
                assert same_difference(mine - previous[0], theirs - previous[1], theirs)
            previous = mine, theirs


def test_threshold_draws_follow_their_law():
    n = 100_000
    with pm.Model() as model:
        z = pm.Normal("z", 0.4, 0.9, shape=n)
        bernoulli(pt.gt(z, 1.5), observed=np.arange(n) % 2)
    rng, _, values = draw_graph(model, match(model, z))
    [draws] = pytensor.function([rng], values, mode=ONCE)(np.random.default_rng(5))
    law = stats.norm(0.4, 0.9)
    below = law.cdf(1.5)
    assert np.all((draws > 1.5) == (np.arange(n) % 2 == 1))
    assert_uniform(law.cdf(draws[::2]) / below)
    assert_uniform((law.cdf(draws[1::2]) - below) / (1 - below))


def test_utility_scans_leave_their_law_invariant():
    """From exact draws (by rejection) a scan leads to exact draws, far from the bulk too.

    The law of the largest utility and of another one is worked out by quadrature. A scan that
    forgot to truncate the others, or truncated to the old largest, moves both.
    """
    n, mean, scale, label = 60_000, np.array([0.5, -0.6, 0.2]), 0.8, 1
    rng = np.random.default_rng(3)
    proposals = rng.normal(mean, scale, size=(12 * n, 3))
    start = proposals[proposals.argmax(1) == label][:n]
    assert len(start) == n
    with pm.Model() as model:
        z = pm.Normal("z", mean, scale, shape=(n, 3))
        pm.Categorical("y", p=pt.eq(pt.argmax(z, 1, keepdims=True), pt.arange(3)),
                       observed=np.full(n, label))  # fmt: skip
    generator, next_rng, values = draw_graph(model, match(model, z))
    step = pytensor.function([generator, *model.value_vars], [next_rng, *values], mode=ONCE)
    numbers = np.random.default_rng(4)
    value = start
    for _ in range(3):
        numbers, value = step(numbers, value)
    assert np.all(value.argmax(1) == label)
    laws = [stats.norm(m, scale) for m in mean]
    grid = np.linspace(-6, 6, 4001)
    largest = laws[1].pdf(grid) * laws[0].cdf(grid) * laws[2].cdf(grid)
    cumulative = integrate.cumulative_trapezoid(largest, grid, initial=0)
    assert_uniform(np.interp(value[:, 1], grid, cumulative / cumulative[-1]))
    above = integrate.cumulative_trapezoid(laws[1].pdf(grid) * laws[2].cdf(grid), grid, initial=0)
    other = laws[0].pdf(grid) * (above[-1] - above)
    cumulative = integrate.cumulative_trapezoid(other, grid, initial=0)
    assert_uniform(np.interp(value[:, 0], grid, cumulative / cumulative[-1]))
    # P(z_0 > z_2, both below z_1)
    below = integrate.cumulative_trapezoid(laws[0].pdf(grid) * laws[2].cdf(grid), grid, initial=0)
    joint = integrate.trapezoid(laws[1].pdf(grid) * below, grid)
    total = integrate.trapezoid(largest, grid)
    assert_proportion(value[:, 0] > value[:, 2], joint / total)


DECLINED = {
    "probit by its link": (
        lambda z: pm.Bernoulli("y", p=pm.math.invprobit(z), observed=Y), "latent utilities"),
    "free": (
        lambda z: pm.Bernoulli("y", p=pt.gt(z, 0)), "is a free variable: given each other"),
    "by hand": (
        lambda z: pm.Bernoulli("y", p=1 / (1 + pt.exp(-z)), observed=Y), "logit_p="),
    "noisy threshold": (
        lambda z: pm.Bernoulli("y", p=pt.switch(z > 0, 0.9, 0.1), observed=Y), "of a threshold"),
    "interval": (
        lambda z: pm.Bernoulli("y", p=pt.gt(abs(z), 1), observed=Y), "of a threshold"),
    "constant": (
        lambda z: pm.Bernoulli("y", p=0.5 + 0 * z, observed=Y), "of a threshold"),
    "repeated": (
        lambda z: pm.Bernoulli("y", p=pt.gt(z, 0), shape=(3, N), observed=np.tile(Y, (3, 1))),
        "broadcasts it"),
    "two children": (
        lambda z: (pm.Bernoulli("y", p=pt.gt(z, 0), observed=Y), pm.Normal("u", z)), "u, y"),
    "binomial": (
        lambda z: pm.Binomial("y", n=3, p=pt.gt(z, 0), observed=Y), "child y is Binomial"),
    "random threshold": (
        lambda z: pm.Bernoulli("y", p=pt.gt(z, pm.Normal("t")), observed=Y), "not a threshold"),
    "threshold of data": (
        lambda z: pm.Bernoulli("y", p=pt.gt(z, F[:, 1]), observed=Y), "not a threshold"),
}  # fmt: skip


@pytest.mark.parametrize("name", DECLINED)
def test_other_decisions_are_declined(name):
    build, reason = DECLINED[name]
    with pm.Model() as model:
        z = pm.Normal("z", F[:, 0], 0.7)
        build(z)
    with pytest.raises(NotConjugate, match=reason):
        match(model, z)


NOT_ARGMAX = {
    "softmax": lambda z: pm.math.softmax(z, axis=-1),
    "over the wrong axis": lambda z: pt.eq(pt.argmax(z, 0, keepdims=True), pt.arange(N)[:, None]),
    "argmin": lambda z: pt.eq(pt.argmin(z, -1, keepdims=True), pt.arange(K)),
    "of something else": lambda z: pt.eq(pt.argmax(2 * z, -1, keepdims=True), pt.arange(K)),
    "of the negative": lambda z: pt.eq(pt.argmax(-z, -1, keepdims=True), pt.arange(K)),
    "of the rounded": lambda z: pt.eq(
        pt.argmax(z.astype("int64"), -1, keepdims=True), pt.arange(K)),
    "equal to the rounded largest": lambda z: pt.eq(
        z.astype("int64"), pt.max(z.astype("int64"), -1, keepdims=True)),
    "permuted classes": lambda z: pt.eq(
        pt.argmax(z, -1, keepdims=True), np.array([1, 0, 2, 3])),
    "shifted classes": lambda z: pt.eq(pt.argmax(z, -1, keepdims=True), pt.arange(1, K + 1)),
    "backwards": lambda z: pt.eq(pt.argmax(z, -1, keepdims=True), pt.arange(K)[::-1]),
    "complement": lambda z: pt.neq(pt.argmax(z, -1, keepdims=True), pt.arange(K)) / (K - 1.0),
    "noisy": lambda z: pt.switch(one_hot(z), 0.7, 0.1),
    "swapped": lambda z: pt.switch(one_hot(z), 0.0, 1.0),
    "largest of another": lambda z: pt.eq(z, pt.max(2 * z, -1, keepdims=True)),
    "smallest": lambda z: pt.eq(z, pt.min(z, -1, keepdims=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_ARGMAX)
def test_other_probabilities_are_declined(name):
    with pm.Model() as model:
        z = pm.Normal("z", F, 0.7)
        pm.Categorical("y", p=NOT_ARGMAX[name](z), observed=CLASSES)
    with pytest.raises(NotConjugate, match="largest entry"):
        match(model, z)


def test_several_labels_of_one_row_are_declined_or_right():
    """Two labels that are given the same utilities are not a row each."""
    with pm.Model() as model:
        z = pm.Normal("z", F, 0.7)
        pm.Categorical("y", p=one_hot(z), shape=(2, N), observed=np.tile(CLASSES, (2, 1)))
    with pytest.raises(NotConjugate):
        match(model, z)


def test_repeated_labels_are_declined():
    """One row of utilities that decides several labels is not a row for each."""
    with pm.Model() as model:
        z = pm.Normal("z", F[:1], 0.7)
        pm.Categorical("y", p=one_hot(z), observed=CLASSES)
    with pytest.raises(NotConjugate, match="child y broadcasts it along an axis"):
        match(model, z)


def test_a_free_label_is_declined():
    """A chain in which neither the utilities nor the label ever move."""
    with pm.Model() as model:
        z = pm.Normal("z", F, 0.7)
        pm.Categorical("y", p=one_hot(z))
    with pytest.raises(NotConjugate, match="is a free variable: given each other"):
        match(model, z)


@pytest.mark.parametrize(
    "law",
    [
        lambda name, z, **data: pm.OrderedProbit(name, eta=z[:, 0], cutpoints=[-1, 1], **data),
        lambda name, z, **data: pm.OrderedLogistic(name, eta=z[:, 0], cutpoints=[-1, 1], **data),
        lambda name, z, **data: pm.Categorical(name, logit_p=z, **data),
    ],
)
def test_probabilities_of_classes_are_called_what_they_are(law):
    """No word of an argmax that the model does not have."""
    with pm.Model() as model:
        z = pm.Normal("z", F, 0.7)
        law("kind", z, observed=CLASSES % 3)
    reason = "^z: child kind is Categorical with .* ordered model, not the index of its largest"
    with pytest.raises(NotConjugate, match=reason) as caught:
        match(model, z)
    assert "argmax" not in str(caught.value)
