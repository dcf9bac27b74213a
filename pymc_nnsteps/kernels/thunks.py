"""What PyTensor calls for nodes that run in Python: functions that do no more than the node needs.

An Op's ``perform`` finds out at each call what is the same at all of them: indices, shapes, types.
A sweep over a hundred rows would spend as much time there as in its kernels. So the thunk of a
node is a closure, made when the graph is compiled.
"""

from collections.abc import Callable, Sequence
from functools import singledispatch
from operator import itemgetter
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.basic import Join
from pytensor.tensor.blas import Dot22
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import Subtensor, unflatten_index_variables

Function = Callable[..., Any]


def storing(
    function: Function,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    storage_map: Any,
    compute_map: Any,
) -> Any:
    """A thunk that stores what ``function`` gives for ``inputs``: one array, or a tuple."""
    given = tuple(storage_map[v] for v in inputs)
    stored = tuple(storage_map[v] for v in outputs)
    done = computed(compute_map, outputs)

    def store_one() -> None:
        stored[0][0] = function(*[x[0] for x in given])
        for cell in done:
            cell[0] = True

    def store_all() -> None:
        for output, result in zip(stored, function(*[x[0] for x in given]), strict=True):
            output[0] = result
        for cell in done:
            cell[0] = True

    return described(store_one if len(stored) == 1 else store_all, given, stored)


def computed(compute_map: Any, outputs: Sequence[Variable]) -> tuple[list[Any], ...]:
    """Where PyTensor is told that outputs are there."""
    return () if compute_map is None else tuple(compute_map[v] for v in outputs)


def described(call: Callable[[], None], inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """The same function, with what PyTensor's machines read off a thunk."""
    call.inputs = list(inputs)  # type: ignore[attr-defined]
    call.outputs = list(outputs)  # type: ignore[attr-defined]
    call.lazy = False  # type: ignore[attr-defined]
    return call


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
    return np.dot, node.inputs
