"""What PyTensor calls for nodes that run in Python: functions that do no more than the node needs.

An Op's ``perform`` finds out at each call what is the same at all of them: indices, shapes, types.
A sweep over a hundred rows would spend as much time there as in its kernels. So the thunk of a
node is a closure, made when the graph is compiled.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial, singledispatch
from operator import itemgetter
from pathlib import Path
from typing import Any, override

import numpy as np
from pytensor import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.basic import Join
from pytensor.tensor.blas import Dot22, Dot22Scalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import Subtensor, unflatten_index_variables
from scipy.linalg import get_lapack_funcs

from pymc_nnsteps.compile import native

Function = Callable[..., Any]


class OwnThunk(Op):
    """An Op that makes the thunks of its nodes itself, but for those that it leaves to PyTensor."""

    def thunk(self, node: Apply, *maps: Any) -> Any:
        """The thunk of a node, by PyTensor's maps of variables; None if it is PyTensor's own."""
        raise NotImplementedError

    @override
    def make_thunk(
        self, node: Apply, storage_map: Any, compute_map: Any, no_recycling: Any, impl: Any = None
    ) -> Any:
        own = self.thunk(node, storage_map, compute_map)
        return own or super().make_thunk(node, storage_map, compute_map, no_recycling, impl)


class Substitute(OwnThunk):
    """An Op that does what ``op`` does, in another way."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.view_map = op.view_map
        self.destroy_map = op.destroy_map

    @override
    def make_node(self, *inputs: Variable) -> Apply:
        return self.in_place_of(self.op.make_node(*inputs))

    def in_place_of(self, node: Apply) -> Apply:
        """The same as a node of ``op``, whose inputs are not looked at again."""
        return Apply(self, node.inputs, [output.type() for output in node.outputs])


def storing(
    function: Function, inputs: Sequence[Variable], outputs: Sequence[Variable], *maps: Any
) -> Any:
    """A thunk that stores what ``function`` gives for ``inputs``: one array, or a tuple."""
    return _thunk(loops().call if config.cxx else _call, function, inputs, outputs, *maps)


def in_c(node: Apply, make: Function, what: Any, *maps: Any) -> Any:
    """A thunk that runs the step that ``make``, a function of ``loops.cpp``, gives for ``what``."""
    return _thunk(make, what, node.inputs, node.outputs, *maps)


def _call(function: Function, given: Sequence[Any], stored: Sequence[Any]) -> Callable[[], None]:
    """A step that calls a function of Python, where there is no compiler."""

    def run() -> None:
        found = function(*[x[0] for x in given])
        for output, result in zip(stored, found if len(stored) > 1 else (found,), strict=True):
            output[0] = result

    return run


def _thunk(
    make: Function,
    what: Any,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    storage_map: Any,
    compute_map: Any,
) -> Any:
    """What PyTensor calls for a node: its machine in C a function in C, others this one."""
    given, stored = (tuple(storage_map[v] for v in each) for each in (inputs, outputs))
    done = () if compute_map is None else tuple(compute_map[v] for v in outputs)
    step = make(what, given, stored)
    run = partial(loops().run, step) if config.cxx else step

    def call() -> None:
        run()
        for cell in done:
            cell[0] = True

    call.inputs = list(given)  # type: ignore[attr-defined]
    call.outputs = list(stored)  # type: ignore[attr-defined]
    call.lazy = False  # type: ignore[attr-defined]
    if config.cxx:
        call.cthunk = step  # type: ignore[attr-defined]
    return call


@cache
def loops() -> Any:
    """The extension module of ``loops.cpp``."""
    return native.module(Path(__file__).with_name("loops.cpp"))


@singledispatch
def step_of(op: Op, node: Apply) -> tuple[Callable[..., Any], Any] | None:
    """A function of ``loops.cpp`` that makes the step of a node in C, and what it is given."""
    return None


@step_of.register
def _rearrange(op: DimShuffle, node: Apply) -> tuple[Callable[..., Any], Any]:
    return loops().view, tuple(-1 if axis == "x" else axis for axis in op.new_order)


@step_of.register
def _sum(op: Sum, node: Apply) -> tuple[Callable[..., Any], Any] | None:
    [array], [output] = node.inputs, node.outputs
    axes = range(array.type.ndim) if op.axis is None else op.axis
    dtypes = {array.type.dtype, op.acc_dtype or output.type.dtype, output.type.dtype}
    if len(dtypes) > 1 or not array.type.dtype.startswith("float"):
        return None
    return loops().sum, prepared(node, np.add, [sum(1 << axis for axis in axes)])


def repeated_axes(node: Apply) -> list[int]:
    """The axes along which each input has length one, as bits of a number."""
    return [
        sum(is_one << axis for axis, is_one in enumerate(v.type.broadcastable)) for v in node.inputs
    ]


def prepared(node: Apply, loop: Any, repeated: Sequence[int]) -> Any:
    """What ``loops.cpp`` is told of a node: the address of a loop, or NumPy's function."""
    in_place = [node.op.destroy_map.get(k, [-1])[0] for k in range(len(node.outputs))]
    dtypes = [np.dtype(v.type.dtype).num for v in node.outputs]
    n_axes = node.inputs[0].type.ndim
    return loops().prepare(loop, n_axes, tuple(repeated), tuple(dtypes), tuple(in_place))


@singledispatch
def function_of(op: Op, node: Apply) -> tuple[Function, list[Variable]] | None:
    """What computes a node's only output, of which inputs, where ``op.perform`` does more."""
    return None


def _constants(variables: Sequence[Variable]) -> list[Any] | None:
    """Values of constants, if all are."""
    if not all(isinstance(v, Constant) for v in variables):
        return None
    return [v.data for v in variables]  # type: ignore[attr-defined]


@function_of.register
def _index(op: Subtensor, node: Apply) -> tuple[Function, list[Variable]] | None:
    array, *variables = node.inputs
    values = _constants(variables)
    if values is None:
        return None
    index = unflatten_index_variables([int(value) for value in values], op.idx_list)
    if node.outputs[0].type.ndim:
        return itemgetter(index), [array]
    return lambda x: np.asarray(x[index]), [array]


@function_of.register
def _reshape(op: Reshape, node: Apply) -> tuple[Function, list[Variable]] | None:
    array, shape = node.inputs
    values = _constants([shape])
    if values is None:
        return None
    lengths = tuple(values[0].tolist())
    return lambda x: x.reshape(lengths), [array]


@function_of.register
def _specify_shape(op: SpecifyShape, node: Apply) -> tuple[Function, list[Variable]] | None:
    array, *variables = node.inputs
    values = _constants(variables)
    axes = [axis for axis, value in enumerate(values or []) if value is not None]
    if values is None or not axes:
        return None
    lengths = itemgetter(*axes)
    expected = lengths([None if value is None else int(value) for value in values])

    def same(x: np.ndarray) -> np.ndarray:
        if lengths(x.shape) != expected:
            op.perform(node, [x, *values], [[None]])
        return x

    return same, [array]


@function_of.register
def _join(op: Join, node: Apply) -> tuple[Function, list[Variable]]:
    axis, dtype = op.axis, np.dtype(node.outputs[0].type.dtype)
    return lambda *arrays: np.concatenate(arrays, axis, dtype=dtype), node.inputs


@function_of.register
def _reduce(op: CAReduce, node: Apply) -> tuple[Function, list[Variable]] | None:
    [array], [output] = node.inputs, node.outputs
    if {array.type.dtype, op.acc_dtype or output.type.dtype} != {output.type.dtype}:
        return None
    reduce, axis = op.ufunc.reduce, op.axis
    if output.type.ndim:
        return lambda x: reduce(x, axis), [array]
    return lambda x: np.asarray(reduce(x, axis)), [array]


@function_of.register
def _multiply(op: Dot22, node: Apply) -> tuple[Function, list[Variable]]:
    return np.ndarray.dot, node.inputs


@function_of.register
def _multiply_scaled(op: Dot22Scalar, node: Apply) -> tuple[Function, list[Variable]]:
    def multiply(x: np.ndarray, y: np.ndarray, factor: np.ndarray) -> np.ndarray:
        product: np.ndarray = x.dot(y)
        product *= factor
        return product

    return multiply, node.inputs


@function_of.register
def _factorise(op: Cholesky, node: Apply) -> tuple[Function, list[Variable]]:
    [potrf] = get_lapack_funcs(("potrf",), dtype=node.outputs[0].type.dtype)

    def factorise(x: np.ndarray) -> np.ndarray:
        if not x.size:
            return np.empty_like(x, potrf.dtype)
        if op.overwrite_a and x.flags.c_contiguous:
            factor, failed = potrf(x.T, not op.lower, True, True)
            factor = factor.T
        else:
            factor, failed = potrf(x, op.lower, True, op.overwrite_a)
        if failed:
            factor[...] = np.nan
        return factor

    return factorise, node.inputs


@function_of.register
def _solve(op: SolveTriangular, node: Apply) -> tuple[Function, list[Variable]]:
    [trtrs] = get_lapack_funcs(("trtrs",), dtype=node.outputs[0].type.dtype)
    lower, unit, overwrite = op.lower, op.unit_diagonal, op.overwrite_b

    def solve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if not b.size:
            return np.empty_like(b, trtrs.dtype)
        if a.flags.f_contiguous:
            x, failed = trtrs(a, b, lower, 0, unit, overwrite_b=overwrite)
        else:
            x, failed = trtrs(a.T, b, not lower, 1, unit, overwrite_b=overwrite)
        if failed:
            x[...] = np.nan
        return x

    return solve, node.inputs
