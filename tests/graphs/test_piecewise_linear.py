"""Piecewise-linear functions read off a graph, against the graph's own values.

Every expression is evaluated at random points, at points beside its knots, and far out; what was
read is evaluated from knots, slopes, intercepts and offset. A wrong sign, slope, knot or side of a
comparison fails. Values at the knots themselves are a null set and not compared.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_nnsteps.activations import ACTIVATIONS, PiecewiseLinear
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.piecewise_linear import piecewise_linear
from tests.laws.graphs import evaluate

RNG = np.random.default_rng(21)
N, K = 12, 3
with pm.Model(coords={"obs": range(N), "one": ["a"]}) as MODEL:
    z = pm.Normal("z", shape=(N, K))
    column = pm.Normal("column", shape=(N, 1))
    vector = pm.Normal("vector", shape=N)
    scalar = pm.Normal("scalar")
    other = pm.Normal("other", shape=(N, K))
    effect = pm.Normal("effect", shape=K)
    data = pm.Data("data", RNG.normal(size=(N, K)))
    first, second = data[:, 0][:, None], data[:, 1][:, None]
    NAMED = pm.Deterministic("named", pt.maximum(z, 0))

STEPS = PiecewiseLinear(knots=(-1, 0.5, 2), slopes=(0, 1.5, -0.3, 0), values=(1, 0, 0.25, -4))
RELU6 = PiecewiseLinear(knots=(0, 6), slopes=(0, 1, 0), values=(0, 6))

FUNCTIONS = {
    # relu in many ways
    "maximum": lambda z: pt.maximum(z, 0),
    "maximum, other order": lambda z: pt.maximum(0.0, z),
    "minimum": lambda z: -pt.minimum(-z, 0),
    "switch": lambda z: pt.switch(z > 0, z, 0),
    "switch, other side": lambda z: pt.switch(z <= 0, 0.0, z),
    "switch, flipped": lambda z: pt.switch(pt.lt(0, z), z, 0),
    "where": lambda z: pt.where(z >= 0, z, 0),
    "clip": lambda z: pt.clip(z, 0, np.inf),
    "clip, large": lambda z: pt.clip(z, 0, 1e30),
    "indicator": lambda z: z * (z > 0),
    "indicator, cast": lambda z: z * pt.cast(z > 0, "float64"),
    "indicator, cast to int": lambda z: z * (z > 0).astype("int8"),
    "abs": lambda z: (z + pt.abs(z)) / 2,
    "sign": lambda z: z * (pt.sign(z) + 1) / 2,
    "math.maximum": lambda z: pm.math.maximum(z, 0),
    "math.switch": lambda z: pm.math.switch(pm.math.lt(z, 0), 0, z),
    "twice": lambda z: pt.maximum(pt.maximum(z, 0), 0),
    "difference": lambda z: z - pt.minimum(z, 0),
    # others
    "identity": lambda z: z,
    "constant": lambda z: 0 * z + 2,
    "linear": lambda z: 3 - z / 7,
    "leaky": lambda z: pt.switch(z > 0, z, 0.01 * z),
    "leaky, maximum": lambda z: pt.maximum(z, 0.1 * z),
    "leaky, sum": lambda z: pt.maximum(z, 0) + 0.2 * pt.minimum(z, 0),
    "prelu, negative slope": lambda z: pt.switch(z < 0, -0.5 * z, 2 * z),
    "absolute": lambda z: abs(z),
    "absolute, shifted": lambda z: abs(2 * z - 3) - abs(z),
    "sign function": lambda z: pt.sign(z),
    "sign of -z": lambda z: pt.sign(-z + 0.3),
    "sign by comparisons": lambda z: (z > 0) * 1.0 - (z < 0) * 1.0,
    "heaviside": lambda z: pt.switch(z > 0, 1.0, 0.0),
    "step down": lambda z: (z < 0.25).astype("float64"),
    "hard tanh": lambda z: pt.clip(z, -1, 1),
    "hard tanh, of 2z": lambda z: pt.clip(2 * z, -1, 1),
    "hard tanh, by maxima": lambda z: pt.maximum(z + 1, 0) - pt.maximum(z - 1, 0) - 1,
    "hard tanh, upside down": lambda z: 1 - pt.clip(1 - z, 0, 2),
    "hard sigmoid": lambda z: pt.clip(0.2 * z + 0.5, 0, 1),
    "dead zone": lambda z: pt.switch(abs(z) > 1, z - pt.sign(z), 0),
    "hat": lambda z: pt.maximum(0, 1 - abs(z)),
    "saw": lambda z: abs(abs(abs(z) - 2) - 1),
    "max of three": lambda z: pt.maximum(pt.maximum(-z - 1, 0.5 * z), 2 * z - 3),
    "minimum of two": lambda z: pt.minimum(z + 1, 2 - z),
    "interval": lambda z: pt.switch((z > -1) * (z < 1), 5.0, z),
    "nested switch": lambda z: pt.switch(z > 1, 2 - z, pt.switch(z > -1, z, -3.0)),
    "switch on a function": lambda z: pt.switch(pt.maximum(z, 0) > 1, z, -z),
    "switch on an indicator": lambda z: pt.switch((z > 0) * 1.0, z, 3.0),
    "switch, always": lambda z: pt.switch(z > -np.inf, z, 1),
    "clip from below only": lambda z: pt.clip(z, -1, np.inf),
    "clip from above only": lambda z: pt.clip(z, -np.inf, 0.5),
    "product of indicators": lambda z: (z > 0) * (z < 2) * (1.5 * z - 0.1),
    "cast": lambda z: pt.cast(pt.maximum(z, 0), "float64"),
    "divided": lambda z: pt.maximum(z, 0) / 0.3,
    "not greater, on a plateau": lambda z: (pt.maximum(z, 0) <= 0) * 1.0,
    "not less, on a plateau": lambda z: pt.switch(pt.minimum(z, 0.5) >= 0.5, z, -z),
    "clip, bounds crossed": lambda z: pt.clip(z, 1.0, -0.5),
    "far knots": lambda z: pt.clip(z, -1e20, 1e20) + (z > 1e20) * 1.0,
    "close knots": lambda z: pt.clip(z * 1e9, -1.0, 1.0),
    "builder": STEPS,
    "builder, relu6": RELU6,
    "builder, of builder": lambda z: STEPS(RELU6(z) - 1),
    "builder, no knots": PiecewiseLinear(knots=(), slopes=(2,), values=(-1,)),
    **{f"named {name}": function for name, function in ACTIVATIONS.items()},
}


def value_at(function, points):
    lines = np.array(function.lines)[np.searchsorted(function.knots, points)]
    return lines[..., 0] * points + lines[..., 1]


def assert_reads(expression, rv, form, points):
    assert list(form.function.knots) == sorted(set(form.function.knots))
    assert len(form.function.lines) == len(form.function.knots) + 1
    given = {r: RNG.normal(size=r.type.shape) for r in MODEL.free_RVs} | {rv: points}
    argument = (1.0, 0.0) if form.argument is None else (form.argument.slope, form.argument.shift)
    places = pt.arange(rv.size).reshape(expression.shape) if form.places is None else form.places
    offset = pt.zeros(()) if form.offset is None else form.offset
    outputs = [pt.as_tensor(part) for part in (expression, *argument, places, offset)]
    theirs, slope, shift, seen, offset = evaluate(outputs, given)
    assert np.all(slope != 0)
    ours = value_at(form.function, slope * points.ravel()[seen] + shift) + offset
    np.testing.assert_allclose(
        ours, theirs, rtol=1e-12, atol=1e-9 if abs(points).max() > 1e9 else 1e-12
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_the_expression(name):
    expression = FUNCTIONS[name](z)
    form = piecewise_linear(expression, z)
    assert form.offset is None
    function = form.function
    points = RNG.normal(size=(N, K)) * 2
    assert_reads(expression, z, form, points)
    assert_reads(expression, z, form, points * 1e3)
    assert_reads(expression, z, form, points * 1e-10)
    beside = [k + s * max(abs(k), 1) * 1e-6 for k in function.knots for s in (-1, 1)]
    if beside:
        assert_reads(expression, z, form, np.resize(beside, (N, K)))
    if "far" in name:
        assert_reads(expression, z, form, points * 1e21)


@pytest.mark.parametrize("name", ["maximum", "clip", "indicator", "sign function", "builder"])
def test_equal_neighbours_are_merged(name):
    """Fewer pieces, same function: the relu has two pieces however it is written."""
    pieces = {"sign function": 2, "builder": 4}.get(name, 2)
    assert len(piecewise_linear(FUNCTIONS[name](z), z).function.lines) == pieces


def test_literals_are_what_the_graph_computes_with():
    """PyTensor stores 0.1 in float32; the slope is that number, not Python's 0.1."""
    slope = piecewise_linear(pt.switch(z > 0, z, 0.1 * z), z).function.slopes[0]
    assert slope == np.float32(0.1)
    slope = piecewise_linear(pt.switch(z > 0, z, np.float64(0.1) * z), z).function.slopes[0]
    [theirs] = evaluate([np.float64(0.1) * z], {z: np.ones((N, K))})
    assert slope == theirs[0, 0]


SCALES = np.array([0.5, -2.0, 1.3])
WITH_OFFSET = {
    "bias": (pt.maximum(z, 0) + effect, z),
    "bias, subtracted": (pt.maximum(z, 0) - effect, z),
    "subtracted from": (effect - pt.maximum(z, 0), z),
    "of data": (data + 2 * abs(z) + 0.1, z),
    "residual connection": (other + pt.maximum(z, 0), z),
    "skip": (pt.maximum(z, 0) + pt.tanh(other) @ np.ones((K, K)), z),
    "several": (data + (pt.clip(z, 0, 1) - other) + effect, z),
    "named": (NAMED + 1, z),
    "named with offset": (NAMED + other, z),
    "cast": (pt.cast(NAMED + other, "float64"), z),
    "column": ((pt.maximum(column, 0) + first)[:, 0], column),
    "column, part of the offset": ((pt.maximum(column, 0) + second)[:, 0] - data[:, 0], column),
    "column, squeezed": (pt.maximum(column, 0).squeeze() + data[:, 0], column),
    "column, squeezed later": ((pt.maximum(column, 0) + first).squeeze(1), column),
    "column, flattened": ((pt.maximum(column, 0) - second).flatten(), column),
    "column, reshaped": ((pt.maximum(column, 0) - second).reshape((N,)), column),
    "column, last": (pt.maximum(column[:, -1], 0), column),
    "column, first": (pt.maximum(column[:, 0], 0) + vector, column),
    "column, through dims": (pt.maximum(column[..., 0], 0) * 2 - vector, column),
    "vector to column": (pt.maximum(vector[:, None], 0) + first, vector),
    "vector to row": (pt.maximum(vector, 0)[None, :] + 1, vector),
    "offset of fewer rows": ((pt.maximum(z, 0) + effect).reshape((N, 1, K)), z),
    "scalar": (pt.maximum(scalar, 0) + 0.5, scalar),
    "specified shape": (pt.specify_shape(pt.maximum(z, 0), (N, K)) + data, z),
    "own shape": (pt.maximum(z, 0) + z.shape[0], z),
    # a function of something that is shifted and scaled entry by entry
    "shifted": (pt.maximum(z + data, 0), z),
    "shifted by a variable": (pt.clip(z - effect, -1, 1) + effect, z),
    "shifted, both sides of a switch": (pt.switch(z + data > 0, z + data, 0.1 * (z + data)), z),
    "shifted, times an indicator": ((effect - z) * (effect - z > 0), z),
    "scaled": (pt.maximum(z * SCALES, 0.3), z),
    "scaled and shifted": (abs((2 * z + data) / SCALES - 1) + other, z),
    "shifted and scaled": (pt.sign((data - z) * SCALES), z),
    # entries that are rearranged, repeated and left out
    "transposed": (pt.maximum(z, 0).T, z),
    "part": (pt.maximum(z, 0)[:, 0], z),
    "part of rows": (pt.maximum(z, 0)[1:] + data[1:], z),
    "backwards": (pt.maximum(z, 0)[::-1], z),
    "gathered": (pt.maximum(vector, 0)[np.arange(N)[::-1]], vector),
    "gathered twice": (pt.maximum(vector, 0)[np.array([0, 3, 3, -1])][[0, 0, 2]], vector),
    "rows and columns": (abs(z)[np.array([0, 2])[:, None], np.array([2, 0])], z),
    "mixing reshape": (pt.maximum(z, 0).reshape((K, N)), z),
    "flattened": (pt.maximum(z.flatten(), 0) - 1, z),
    "flattened column": (abs(column.T.flatten() - 1), column),
    "rearranged and shifted": (pt.maximum((z * SCALES).T + first.T, 0)[:, ::2] + 1, z),
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_OFFSET)
def test_function_with_an_offset(name):
    expression, rv = WITH_OFFSET[name]
    form = piecewise_linear(expression, rv, {other, effect, vector, scalar} - {rv})
    assert_reads(expression, rv, form, RNG.normal(size=rv.type.shape))


def test_axes_of_length_one_that_only_the_model_knows():
    """``z[:, 0]`` is all of z if its dims say so, and a part of it otherwise."""
    with pm.Model(coords={"obs": range(4), "one": ["a"], "two": ["a", "b"]}):
        one = pm.Normal("one_", dims=("obs", "one"))
        two = pm.Normal("two_", dims=("obs", "two"))
    assert one.type.shape == (None, None)
    assert piecewise_linear(one[:, 0], one, shape=(4, 1)).function.slopes == (1.0,)
    for expression, shape in ((one[:, 0], (None, None)), (two[:, 0], (4, 2))):
        [rv] = [rv for rv in (one, two) if rv in expression.owner.inputs]
        with pytest.raises(NotConjugate, match="rearranged"):
            piecewise_linear(expression, rv, shape=shape).require_plain()


with MODEL:
    behind = pm.Normal("behind", pt.maximum(z, 0))


def relu(z):
    return pt.maximum(z, 0)


DECLINED = {
    "tanh": (pt.tanh(z), z, "not piecewise linear"),
    "sigmoid": (pm.math.sigmoid(z), z, "not piecewise linear"),
    "softplus": (pt.softplus(z), z, "not piecewise linear"),
    "square": (z**2, z, "not piecewise linear"),
    "product": (z * z, z, "multiplied by itself"),
    "relu squared": (pt.maximum(z, 0) * z, z, "multiplied by itself"),
    "gelu": (z * 0.5 * (1 + pt.erf(z / 2)), z, "not piecewise linear"),
    "elu": (pt.switch(z > 0, z, pt.exp(z) - 1), z, "not piecewise linear"),
    "reciprocal": (1 / z, z, "denominator"),
    "swish": (z * pm.math.sigmoid(z), z, "not piecewise linear"),
    "rounded": (pt.round(z), z, "not piecewise linear"),
    "floor": (pt.floor(z), z, "not piecewise linear"),
    "modulo": (z % 2, z, "not piecewise linear"),
    "cast to integers": (pt.cast(z, "int64") * 1.0, z, "rounds it"),
    "cast to bytes": (pt.cast(pt.maximum(z, 0), "int8"), z, "rounds it"),
    "cast to bool": (z.astype("bool") * 1.0, z, "rounds it"),
    "steps cast to integers": ((0.5 * (z > 0)).astype("int64"), z, "rounds it"),
    "cast with an offset": (pt.cast((z > 0) + other, "int64") * 1.0, z, "combines it|rounds"),
    "equality": (pt.eq(z, 0) * 1.0, z, "not piecewise linear"),
    "slopes of data": (pt.maximum(z, 0) + data * pt.minimum(z, 0), z, "combines it"),
    "slopes of a variable": (pt.switch(z > 0, z, effect * z), z, "combines it"),
    "slopes per unit": (pt.switch(z > 0, z, np.array([0.1, 0.2, 0.3]) * z), z, "combines it"),
    "knots of a variable": (pt.maximum(z, effect), z, "combines it"),
    "scaled by zeros": (pt.maximum(z * np.array([1.0, 0, 2]), 0), z, "multiplies it by zeros"),
    "scaled by a variable before": (pt.maximum(z * effect, 0), z, "combines it"),
    "two shifts": (pt.maximum(z + data, 0) + pt.maximum(z - data, 0), z, "combines it with itself"),
    "shifted and not": (pt.maximum(z + data, 0) + pt.maximum(z, 0), z, "combines it with itself"),
    "with its own neighbours": (relu(z)[1:] - relu(z)[:-1], z, "combines it with itself"),
    "indexed beside it": (relu(vector)[pt.cast(vector[0], "int64")], vector, None),
    "offset scaled": (2 * (pt.maximum(z, 0) + effect), z, "combines it"),
    "scale of a variable": (pt.maximum(z, 0) * scalar, z, "combines it"),
    "switch by a variable": (pt.switch(other > 0, z, 0), z, "combines it"),
    "repeated": (pt.maximum(vector, 0)[:, None] + pt.zeros((N, K)), vector, "broadcasts it"),
    "repeated step": ((vector > 0)[:, None] * np.ones((1, K)) + data, vector, "broadcasts it"),
    "repeated column": (pt.maximum(column, 0) + data, column, "broadcasts it"),
    "repeated scalar": (pt.maximum(scalar, 0) + data, scalar, "broadcasts it"),
    "repeated by broadcasting": (pt.broadcast_to(relu(vector), (4, N)), vector, "not an elem"),
    "product with a matrix": (pt.maximum(z, 0) @ np.eye(K), z, "not an elementwise"),
    "summed": (pt.maximum(z, 0).sum(1), z, "not an elementwise"),
    "softmax": (pm.math.softmax(z), z, "not an elementwise"),
    "sorted": (pt.sort(z, 0), z, "not an elementwise"),
    "through another variable": (behind + 1, z, "not an elementwise|random variable"),
    "concatenated": (pt.concatenate([z, z]), z, "not an elementwise"),
}  # fmt: skip


@pytest.mark.parametrize("name", DECLINED)
def test_declined_with_a_reason(name):
    """A wrong "yes" here is a wrong sampler: units with other slopes, rounding, repeats, parts."""
    expression, rv, reason = DECLINED[name]
    with pytest.raises(NotConjugate, match=reason):
        piecewise_linear(expression, rv)


def test_integer_arithmetic_that_overflows_is_not_read_as_if_it_did_not():
    """``int8`` indicators wrap around at 128."""
    expression = 100 * (z > 0) + 100 * (z > 1)
    points = np.full((N, K), 2.0)
    [theirs] = evaluate([expression], {z: points})
    assert theirs[0, 0] == -56
    with pytest.raises(NotConjugate, match="rounds it to int8"):
        piecewise_linear(expression, z)


def test_a_function_of_something_else_is_its_offset():
    form = piecewise_linear(pt.tanh(other), z, {other})
    assert form.function.lines == ((0.0, 0.0),)
    assert form.offset is not None
