"""Thunks give what ``perform`` of the same Ops gives, also where something is out of order."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.linalg import cholesky, solve_triangular

from pymc_nnsteps.compile.compiling import InPython, c_by_default
from pymc_nnsteps.compile.thunks import function_of
from pymc_nnsteps.random.op import uniform
from tests.modes import AS_WRITTEN

MATRIX = np.random.default_rng(0).normal(size=(4, 6))

VIEWS = {
    "column": lambda x: x[:, 2],
    "number": lambda x: x[1, 2],
    "backwards": lambda x: x[::-1, 1:-1:2],
    "nothing": lambda x: x[:0],
    "given": lambda x: x[pt.lscalar("row") :],
    "flat": lambda x: x.reshape((24,)),
    "any length": lambda x: x.T.reshape((3, -1)),
    "to a number": lambda x: x[:1, :1].reshape(()),
    "shape of another": lambda x: x.reshape((x.shape[1], x.shape[0])),
    "lengths": lambda x: pt.specify_shape(x, (4, 6)),
    "one length": lambda x: pt.specify_shape(x, (None, 6)),
    "joined": lambda x: pt.concatenate([x, x[:, :0], x[:, ::2]], axis=1),
    "joined to integers": lambda x: pt.concatenate([x, pt.lmatrix("more")]),
    "sum": lambda x: x.sum(),
    "sum of columns": lambda x: x.sum(axis=0),
    "sum of rows of a view": lambda x: x.T[::2].sum(axis=1),
    "sum in more digits": lambda x: pt.sum(pt.cast(x, "float32"), axis=0, acc_dtype="float64"),
    "sums of a stack": lambda x: x.reshape((2, 2, 6)).sum(axis=(0, 2)),
    "sums of nothing": lambda x: x[:0].sum(axis=0),
    "sum of single numbers": lambda x: pt.cast(x, "float32").sum(axis=0),
    "largest": lambda x: pt.max(x, axis=1),
    "whether all": lambda x: pt.all(x > -9, axis=0),
    "product": lambda x: pt.dot(x, x.T),
    "product times a number": lambda x: pt.dot(x, x.T) * pt.exp(x[0, 0]),
    "factor": lambda x: cholesky(pt.dot(x, x.T)),
    "no factor": lambda x: cholesky(-pt.dot(x, x.T)),
    "factor of nothing": lambda x: cholesky(x[:0, :0]),
    "solved": lambda x: solve_triangular(cholesky(pt.dot(x, x.T)), x, lower=True),
    "solved by a view": lambda x: solve_triangular(x[:, :4].T, x[:, 0], lower=False),
    "not solved": lambda x: solve_triangular(x[:, :4] * 0, x, lower=True),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_and_sums(name):
    x = pt.matrix("x", shape=(None, None))
    view = VIEWS[name](x)
    more = [v for v in pytensor.graph.traversal.explicit_graph_inputs([view]) if v is not x]
    given = MATRIX, *({0: 2, 2: np.ones((2, 6), int)}[v.type.ndim] for v in more)
    found, expected = (
        pytensor.function([x, *more], view, mode=mode)(*given)
        for mode in (c_by_default()["mode"], AS_WRITTEN)
    )
    assert isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-14)


OWN = ("column", "flat", "lengths", "joined", "sum", "factor", "product times a number")


def test_which_ops_have_thunks_of_their_own():
    """Else the nodes of a sweep would be slow, and nothing else would tell."""
    x = pt.matrix("x")
    outputs = [VIEWS[name](x) for name in OWN]
    function = pytensor.function([x], outputs, **c_by_default())
    nodes = function.maker.fgraph.apply_nodes
    own = {
        type(node.op.op).__name__
        for node in nodes
        if isinstance(node.op, InPython) and function_of(node.op.op, node)
    }
    assert own >= {"Subtensor", "Reshape", "SpecifyShape", "Join", "Sum", "Cholesky", "Dot22Scalar"}


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("number", IndexError, "out of bounds"),
        ("flat", ValueError, "cannot reshape"),
        ("lengths", AssertionError, r"Got shape \(1, 2\), expected \(4, 6\)"),
        ("one length", AssertionError, r"Got shape \(1, 2\), expected \(None, 6\)"),
    ],
)
def test_arrays_of_another_shape(name, error, words):
    x = pt.matrix("x", shape=(None, None))
    function = pytensor.function([x], VIEWS[name](x), **c_by_default())
    with pytest.raises(error, match=words):
        function(np.zeros((1, 2)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_leave_a_generator_that_others_hold(dtype):
    """Only a generator that may change is drawn from; draws have the type of the graph."""
    rng = pt.random.rng("rng")
    with pytensor.config.change_flags(floatX=dtype):
        next_rng, draw = uniform(rng, (3, 2))
        kept = pytensor.function([rng], draw, **c_by_default())
        given = pytensor.In(rng, mutable=True)
        changed = pytensor.function([given], [next_rng, draw], **c_by_default())
    generator = np.random.default_rng(1)
    expected = np.random.default_rng(1).random((3, 2)).astype(dtype)
    for _ in range(2):
        np.testing.assert_array_equal(kept(generator), expected)
    same, drawn = changed(generator)
    np.testing.assert_array_equal(drawn, expected)
    assert same is generator
    assert drawn.dtype == dtype
    assert not np.array_equal(kept(generator), expected)
