"""Loops of this package in place of PyTensor's."""

import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_nnsteps.compile import native
from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.compile.elementwise import Loop
from tests.modes import AS_WRITTEN

RNG = np.random.default_rng(0)
CUBE = RNG.normal(size=(4, 3, 5))


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (CUBE[0], RNG.normal(size=5)),
        (CUBE[0].T, RNG.normal(size=3)),
        (CUBE[:, ::2, 1], RNG.normal(size=2)),
        (CUBE[0, :0], RNG.normal(size=5)),
    ],
    ids=["rows", "columns", "parts", "none"],
)
def test_loops_over_arrays_in_any_order(X, y):
    """Several results, with sums of rows, columns and numbers, some of them in place."""
    matrix, vector, integers = pt.matrix("matrix"), pt.vector("vector"), pt.lvector("integers")
    z = pt.exp(-abs(matrix)) * vector + integers[:, None]
    outputs = [z + z.T.T.sum(), pt.switch(matrix > vector, z, -matrix), pt.sqrt(vector**2 + 1)]
    given = X, y, np.arange(len(X))
    loops, plain = (
        pytensor.function([matrix, vector, integers], outputs, mode=mode)
        for mode in (c_by_default()["mode"], AS_WRITTEN)
    )
    assert any(isinstance(node.op, Loop) for node in loops.maker.fgraph.toposort())
    for _ in range(2):
        for found, expected in zip(loops(*given), plain(*given), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_loops_that_the_compiler_refuses_are_left_to_pytensor(monkeypatch, caplog):
    def refuse(units):
        raise native.CompilerError("too hard")

    x = pt.vector("x")
    monkeypatch.setattr(native, "build", refuse)
    with caplog.at_level("INFO", "pymc.nnsteps"):
        function = pytensor.function([x], x + 1, **c_by_default())
    assert caplog.messages == ["PyTensor compiles functions of numbers one by one: too hard"]
    np.testing.assert_array_equal(function(np.ones(2)), [2, 2])


def test_lengths_that_do_not_fit():
    x, y = pt.vectors("x", "y")
    function = pytensor.function([x, y], pt.exp(x) + y, **c_by_default())
    with pytest.raises(ValueError, match="Input dimension mismatch"):
        function(np.zeros(3), np.zeros(1))


def test_views_that_exchange_add_and_drop_axes():
    """Views of parts of arrays; an array is given back when its views go."""
    x = pt.tensor3("x", shape=(None, None, None))
    views = [x.dimshuffle(2, "x", 0, 1), x.dimshuffle(1, 2), x[:, ::-1].dimshuffle(2, 1, "x", 0)]
    outputs = [pytensor.Out(view, borrow=True) for view in views]
    function = pytensor.function([pytensor.In(x, borrow=True)], outputs, **c_by_default())
    given = np.arange(12.0).reshape(1, 3, 4)
    found = function(given)
    np.testing.assert_array_equal(found[0], given.transpose(2, 0, 1)[:, None])
    np.testing.assert_array_equal(found[1], given[0])
    np.testing.assert_array_equal(found[2], given[:, ::-1].transpose(2, 1, 0)[:, :, None])
    held = sys.getrefcount(given)
    for _ in range(10):
        found = function(given)
    assert sys.getrefcount(given) == held
    with pytest.raises(ValueError, match="only axes of length one can be dropped"):
        function(np.zeros((2, 3, 4)))
