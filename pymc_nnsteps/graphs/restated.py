"""Composite operations, written in terms of operations that the readers know."""

from functools import singledispatch
from typing import Any

import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Constant
from pytensor.graph.op import Op
from pytensor.tensor.basic import AllocDiag, ExtractDiag, MakeVector, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.math import Dot
from pytensor.tensor.signal.conv import Convolve1d, Convolve2d
from pytensor.tensor.variable import TensorVariable


def restated(expression: TensorVariable) -> TensorVariable | None:
    """The expression in terms of simpler operations on the same inputs, if there is such a form."""
    return _restate(expression.owner.op, expression.owner, expression)


@singledispatch
def _restate(op: Op, node: Any, out: TensorVariable) -> TensorVariable | None:
    return None


@_restate.register(MakeVector)
def _restate_vector(op: MakeVector, node: Any, out: TensorVariable) -> TensorVariable:
    return pt.join(0, *(entry[None] for entry in node.inputs))


@_restate.register(OpFromGraph)
def _restate_graph(op: OpFromGraph, node: Any, out: TensorVariable) -> TensorVariable | None:
    if isinstance(op, SymbolicRandomVariable):
        return None
    inner = op.fgraph.bind(dict(zip(op.fgraph.inputs, node.inputs, strict=True)))
    return inner[node.outputs.index(out)]


@_restate.register(AllocDiag)
def _restate_diagonal(op: AllocDiag, node: Any, out: TensorVariable) -> TensorVariable | None:
    if op.offset != 0:
        return _restate_graph(op, node, out)
    [entries] = node.inputs
    square = entries[..., None] * pt.eye(entries.shape[-1], dtype=entries.dtype)
    return pt.moveaxis(square, (-2, -1), (op.axis1, op.axis2))


@_restate.register(ExtractDiag)
def _restate_entries(op: ExtractDiag, node: Any, out: TensorVariable) -> TensorVariable:
    [matrix] = node.inputs
    last = pt.moveaxis(matrix, (op.axis1, op.axis2), (-2, -1))
    below, above = max(-op.offset, 0), max(op.offset, 0)
    entries = pt.arange(pt.minimum(last.shape[-2] - below, last.shape[-1] - above))
    return last[..., entries + below, entries + above]


@_restate.register(Blockwise)
def _restate_blockwise(op: Blockwise, node: Any, out: TensorVariable) -> TensorVariable | None:
    if isinstance(op.core_op, Dot):
        return _restate_product(op, node, out)
    if isinstance(op.core_op, Convolve1d | Convolve2d):
        return _restate_convolution(node, op.core_op.ndim)
    return None


@_restate.register(Dot)
def _restate_product(op: Any, node: Any, out: TensorVariable) -> TensorVariable | None:
    """Product with a diagonal matrix, as a scaling of rows or columns."""
    left, right = node.inputs
    if (entries := _diagonal_of(right)) is not None:
        return left * entries[None, :]
    if (entries := _diagonal_of(left)) is not None:
        return right * entries[:, None]
    return None


def _diagonal_of(matrix: TensorVariable) -> TensorVariable | None:
    if matrix.ndim != 2 or matrix.owner is None or not isinstance(matrix.owner.op, AllocDiag):
        return None
    return matrix.owner.inputs[0] if matrix.owner.op.offset == 0 else None


@_restate.register(Repeat)
def _restate_repeat(op: Repeat, node: Any, out: TensorVariable) -> TensorVariable:
    source, repeats = node.inputs
    entries = pt.repeat(pt.arange(source.shape[op.axis]), repeats, axis=0)
    return source[(slice(None),) * op.axis + (entries,)]


@_restate.register(Split)
def _restate_split(op: Split, node: Any, out: TensorVariable) -> TensorVariable | None:
    source, lengths = node.inputs
    if not isinstance(lengths, Constant):
        return None
    position = node.outputs.index(out)
    start = int(lengths.data[:position].sum())
    part = slice(start, start + int(lengths.data[position]))
    return source[(slice(None),) * op.axis + (part,)]


@_restate.register(CumOp)
def _restate_cumulative(op: CumOp, node: Any, out: TensorVariable) -> TensorVariable | None:
    [source] = node.inputs
    return CumOp(0, op.mode)(source.ravel()) if op.axis is None else None


def _restate_convolution(node: Any, ndim: int) -> TensorVariable | None:
    """Convolution as sums over windows: ``out[o] = sum_k kernel[k] image[o + K - 1 - k]``."""
    image, kernel, full_mode = node.inputs
    lengths = [x.type.shape[-ndim:] for x in (image, kernel)]
    full = pt.as_tensor(full_mode).flatten()
    while full.owner is not None:
        full = full.owner.inputs[0]
    if not isinstance(full, Constant) or any(None in stated for stated in lengths):
        return None
    sizes = list(zip(*lengths, strict=True))
    if not full.data and any(n < k for n, k in sizes):
        return None
    if full.data:
        around = [(k - 1, k - 1) for _, k in sizes]
        width = [(0, 0)] * (image.ndim - ndim) + around
        image = pt.pad(image, width, mode="constant", constant_values=0)
        sizes = [(n + 2 * (k - 1), k) for n, k in sizes]
    windows = []
    for position, (n, k) in enumerate(sizes):
        window = pt.arange(n - k + 1)[:, None] + pt.arange(k)[::-1][None, :]
        order: list[Any] = ["x"] * (2 * ndim)
        order[position], order[ndim + position] = 0, 1
        windows.append(window.dimshuffle(order))
    patches = image[(..., *windows)]
    weights = pt.expand_dims(kernel, tuple(range(-2 * ndim, -ndim)))
    return (patches * weights).sum(tuple(range(-ndim, 0)))
