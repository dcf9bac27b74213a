"""What the default mode makes of a graph."""

import gc
import time

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import view_op
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.blas import Gemm
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from pymc_nnsteps.compile import jit, native
from pymc_nnsteps.compile.compiling import (
    InPython,
    OfMatrix,
    c_by_default,
    drawing,
    numba_by_default,
    without_bookkeeping,
)
from pymc_nnsteps.random.truncated_normal import truncated_normal
from tests.modes import AS_WRITTEN

FUNCTIONS = [pt.exp, pt.tanh, pt.erf, pt.erfc]


def ops(function):
    return [node.op for node in function.maker.fgraph.toposort()]


@pytest.mark.parametrize("f", FUNCTIONS)
def test_functions_of_matrices(f):
    x = pt.matrix("x", dtype="float64")
    function = pytensor.function([x], 2 * f(x), **c_by_default())
    assert any(isinstance(op, OfMatrix) for op in ops(function))
    values = np.random.default_rng(0).normal(0, 3, size=(40, 30))
    expected = pytensor.function([x], 2 * f(x), mode="FAST_COMPILE")(values)
    np.testing.assert_allclose(function(values), expected, rtol=1e-14)
    strange = np.array([[np.inf, -np.inf, np.nan, 1e3, -1e3, 0.0]])
    expected = pytensor.function([x], 2 * f(x), mode="FAST_COMPILE")(strange)
    np.testing.assert_array_equal(function(strange), expected)


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("x", [pt.vector("x", dtype="float64"), pt.matrix("x", dtype="float32")])
def test_functions_of_others_stay(f, x):
    """Another dtype out than in, or a call from Python for three numbers."""
    function = pytensor.function([x], f(x), **c_by_default())
    assert not any(isinstance(op, OfMatrix) for op in ops(function))
    assert function(np.ones((1,) * x.ndim, x.dtype)).dtype == x.dtype


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_larger_of_matrix_and_number(dtype):
    """Two matrices, whose lengths nobody would compare; a NaN that is lost."""
    x, y = pt.matrix("x", dtype=dtype), pt.matrix("y", dtype=dtype)
    outputs = [pt.maximum(x, 0), pt.maximum(np.float32(0.5), x.T), pt.maximum(x, y)]
    function = pytensor.function([x, y], outputs, **c_by_default())
    assert sum(isinstance(op, OfMatrix) for op in ops(function)) == 2
    values = np.array([[1.5, -2.0, np.nan], [np.inf, -0.0, 0.25]], dtype)
    expected = pytensor.function([x, y], outputs, mode="FAST_COMPILE")(values, values[::-1])
    for found, value in zip(function(values, values[::-1]), expected, strict=True):
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, value)


def test_gradient_of_gelu():
    """The functions are replaced after differentiation."""
    x = pt.matrix("x", dtype="float64")
    gelu = x * pt.erfc(-x / np.sqrt(2)) / 2
    slope = pt.grad(gelu.sum(), x)
    values = np.random.default_rng(0).normal(size=(5, 4))
    expected = pytensor.function([x], slope, mode="FAST_COMPILE")(values)
    function = pytensor.function([x], slope, **c_by_default())
    np.testing.assert_allclose(function(values), expected, rtol=1e-13)


def test_a_product_and_a_sum_stay_apart():
    x, y, z = pt.matrices("x", "y", "z")
    function = pytensor.function([x, y, z], x @ y + z, **c_by_default())
    assert not any(isinstance(op, Gemm) for op in ops(function))


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-14), ("float32", 5e-7)])
def test_tangents_of_matrices_in_numba(dtype, rtol):
    x = pt.matrix("x", dtype=dtype)
    function = pytensor.function([x], 2 * pt.tanh(x.T), **numba_by_default())
    assert any(isinstance(op, OfMatrix) for op in ops(function))
    values = np.random.default_rng(0).normal(0, 3, size=(4, 3)).astype(dtype)
    found = function(values)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, 2 * np.tanh(values.T), rtol=rtol)


def test_views_are_run_in_python():
    """Also those of views, which are replaced at once with them."""
    x, v = pt.matrix("x"), pt.vector("v")
    results = [pt.join(0, x.T[1:], v[None])[::-1], pt.stack([x[0, 0], v[1]])]
    function = pytensor.function([x, v], results, **c_by_default())
    views = [op for op in ops(function) if isinstance(op, InPython)]
    assert len(views) > 4
    x, v = np.arange(6.0).reshape(2, 3), np.array([7.0, 8.0])
    joined, stacked = function(x, v)
    np.testing.assert_array_equal(joined, np.vstack([x.T[1:], v])[::-1])
    np.testing.assert_array_equal(stacked, [0, 8])


@pytest.mark.parametrize(("n", "in_python"), [(3, True), (2000, False)])
def test_few_constant_places_are_visited_in_python(n, in_python):
    """Many are read and written faster in C."""
    x, y = pt.vector("x"), pt.vector("y")
    places = np.random.default_rng(0).permutation(n)
    twice = x[np.array([[0, 0]])].inc(y[None, :2])
    results = [x[places], x[places].inc(y), x[places].set(y), twice]
    function = pytensor.function([x, y], results, **c_by_default())
    visiting = [
        op for op in ops(function) if isinstance(op, AdvancedSubtensor | AdvancedIncSubtensor)
    ]
    assert (visiting == []) == in_python
    x, y = np.arange(n) + 0.5, np.arange(n) * 2.0
    read, added, written, twice = function(x, y)
    np.testing.assert_array_equal(read, x[places])
    np.testing.assert_array_equal(added[places], x[places] + y)
    np.testing.assert_array_equal(written[places], y)
    np.testing.assert_array_equal(twice, [2.5, *x[1:]])


def test_views_of_all_draws_are_one():
    """PyTensor makes one for each draw in turn."""
    x, draws = pt.matrix("x"), pt.tensor3("draws")
    many = vectorize_graph(view_op(x) + 1, {x: draws})
    function = pytensor.function([draws], many, **c_by_default())
    assert not any(isinstance(op, Blockwise) for op in ops(function))
    values = np.arange(6.0).reshape(1, 2, 3)
    np.testing.assert_array_equal(function(values), values + 1)
    np.testing.assert_array_equal(values, np.arange(6.0).reshape(1, 2, 3))


@pytest.mark.parametrize("options", [{}, {"mode": "NUMBA"}])
def test_graphs_are_compiled_without_a_search_for_special_matrices(options):
    x = pt.vector("x")
    function = pytensor.function([x], pt.diag(x) @ pt.diag(x), **c_by_default(options))
    assert any("ot" in str(op) for op in ops(function))
    np.testing.assert_allclose(function(np.array([2.0, 3.0])), np.diag([4.0, 9.0]))


def test_bookkeeping_is_left_out_for_a_while():
    """Traces or garbage collection that do not come back."""
    with pytensor.config.change_flags(traceback__limit=8):
        with without_bookkeeping():
            assert not gc.isenabled()
            untraced = pt.vector("x") + 1
        traced = pt.vector("x") + 1
    assert not untraced.tag.trace
    assert traced.tag.trace
    assert gc.isenabled()


def test_garbage_collection_that_was_off_stays_off():
    gc.disable()
    try:
        with without_bookkeeping():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_draws_of_scipy_are_those_of_the_graph_as_written():
    """Their parameters are constants, of which they are given copies."""
    rng = pt.random.rng("rng")
    _, x = rng.t(3.0, 0.0, 1.0, size=(3,))
    function = pytensor.function([rng], x, **drawing(c_by_default()))
    assert sum(isinstance(op, InPython) for op in ops(function)) == 3
    expected = pytensor.function([rng], x, mode=AS_WRITTEN)(np.random.default_rng(1))
    np.testing.assert_array_equal(function(np.random.default_rng(1)), expected)


def test_a_long_wait_is_announced_once(monkeypatch, caplog):
    """After a while, and not where all is soon there."""
    monkeypatch.setattr(native, "PATIENCE", 0.01)
    monkeypatch.setattr(native, "WAITING", native.CompilerWait())
    with caplog.at_level("INFO", "pymc.nnsteps"):
        for _ in range(2):
            with native.announced("trajectories", 40):
                time.sleep(0.1)
        monkeypatch.setattr(native, "PATIENCE", 60.0)
        with native.announced("something else", 40):
            pass
    assert caplog.messages == ["compiling trajectories; about 40 s the first time on this machine"]


def test_kernels_of_a_graph_are_built_with_its_loops(monkeypatch):
    """With the types that they are called with: nothing is left to the first call."""
    rng, mu = pt.random.rng("rng"), pt.matrix("mu", dtype="float32")
    _, z = truncated_normal(rng, mu, 1.0, 0.0, np.inf)
    function = pytensor.function([rng, mu], pt.exp(z), **c_by_default())
    nodes = function.maker.fgraph.toposort()
    [(kernel, types)] = [call for node in nodes if (call := jit.called(node.op, node))]
    monkeypatch.setattr(native, "_compile", None)
    function(np.random.default_rng(0), np.zeros((3, 2), np.float32))
    assert kernel.types == types
