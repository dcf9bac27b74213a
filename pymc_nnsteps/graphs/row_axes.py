"""Axis of the input rows in the result of each operation.

A variable on the way from the inputs to the output is either *free* of their rows (``None``), or
has :class:`Rows` along one axis such that its entries there are the same function of the inputs'
row each, or it is the number of rows (:class:`Count`) or a vector of lengths with this number in
one place (:class:`Lengths`), which serve to state shapes, or these rows are counted
(:class:`Numbers`), which serves to pick an entry of each, or it is whether something holds for all
rows (:class:`ForAll`), which may be checked and enters no value. An operation that is not known to
keep rows apart raises :class:`MixesRows`.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import singledispatch
from itertools import chain
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Cast, Identity
from pytensor.tensor.basic import (
    Alloc,
    ARange,
    Join,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import All, Argmax, Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.subtensor import (
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)
from pytensor.tensor.type_other import NoneTypeT

from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.values import scalar_constant


class MixesRows(ValueError):  # noqa: N818 (a finding more than an error)
    """It is not established that each row depends on its own input row alone.

    ``lacking`` is what has entries of its own along an axis, with which the rows are paired.
    """

    def __init__(self, reason: str, lacking: "tuple[Variable, Rows] | None" = None) -> None:
        super().__init__(reason)
        self.lacking = lacking


@dataclass(frozen=True)
class Rows:
    """One entry along ``axis`` for each row of the inputs, and of this row alone."""

    axis: int
    within: tuple[int, int] | None = None  # the first of these entries and their number, if some


@dataclass(frozen=True)
class Count:
    """The number of rows."""


@dataclass(frozen=True)
class Lengths:
    """Vector of lengths whose entry at ``position`` is the number of rows."""

    position: int


@dataclass(frozen=True)
class Numbers:
    """Numbers of the rows, from 0 on, along ``axis``."""

    axis: int


@dataclass(frozen=True)
class ForAll:
    """Whether something holds for all rows."""


RowAxis = Rows | Count | Lengths | Numbers | ForAll | None


@singledispatch
def row_axis_of(op: Op, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    """Place of the rows in the outputs of a node, given those in its inputs."""
    raise MixesRows("is not known to keep rows apart")


@row_axis_of.register
def _(op: Elemwise, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    if isinstance(op.scalar_op, Cast | Identity):
        return places[0]
    return _paired(node.inputs, places)


@row_axis_of.register
def _(op: DimShuffle, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    match places[0]:
        case Rows(axis) if axis in op.new_order:
            return Rows(op.new_order.index(axis))
        case Rows():
            raise MixesRows("drops the rows")
        case Count() if op.new_order in ((), ("x",)):
            return Lengths(0) if op.new_order else Count()
        case Lengths() if op.new_order in ((), (0,)):
            return places[0] if op.new_order else Count()
    raise MixesRows("combines all rows")


@row_axis_of.register(CAReduce)
@row_axis_of.register(Argmax)
def _(op: Any, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    n_axes = node.inputs[0].type.ndim
    reduced = {other % n_axes for other in (range(n_axes) if op.axis is None else op.axis)}
    is_for_all = isinstance(op, All) and len(reduced) == n_axes
    if is_for_all and (places[0] == ForAll() or isinstance(places[0], Rows)):
        return ForAll()
    axis = _axis(places[0])
    _require_others(axis, reduced)
    return Rows(axis - sum(other < axis for other in reduced))


@row_axis_of.register(CumOp)
@row_axis_of.register(SortOp)
@row_axis_of.register(ArgSortOp)
def _(op: Any, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    axis = _axis(places[0])
    _require_others(axis, [axis if op.axis is None else op.axis % node.inputs[0].type.ndim])
    return Rows(axis)


@row_axis_of.register
def _(op: Dot, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    return _product(places, 0)


@row_axis_of.register
def _(op: Blockwise, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    n_batch = op.batch_ndim(node)
    if isinstance(op.core_op, Dot) and any(_axis(place) >= n_batch for place in places if place):
        return _product(places, n_batch)
    if any(_axis(place) >= n_batch for place in places if place):
        raise MixesRows("is not known to keep rows apart")
    return _paired(node.inputs, places)


@row_axis_of.register
def _(op: Join, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    if any(isinstance(place, Rows) for place in places):
        [axis, *_] = (place.axis for place in places if isinstance(place, Rows))
        _require_others(axis, [op.axis % node.outputs[0].type.ndim])
        if None in places:
            lacking = node.inputs[places.index(None)], Rows(axis)
            raise MixesRows("joins rows with entries that new rows do not have", lacking)
        return _paired(node.inputs, places)
    entries = map(_entries, places, [vector.type.shape[0] for vector in node.inputs])
    return _lengths(list(chain.from_iterable(entries)))


@row_axis_of.register
def _(op: MakeVector, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    return ForAll() if {*places} <= {ForAll(), None} else _lengths(places)


@row_axis_of.register
def _(op: Alloc, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    value, n_axes = node.inputs[0], len(places) - 1
    stated = _lengths(places[1:])
    if not isinstance(stated, Lengths):
        raise MixesRows("repeats rows")
    own = stated.position - n_axes + value.type.ndim
    if places[0] is None and (own < 0 or value.type.broadcastable[own]):
        return Rows(stated.position)
    if places[0] == Rows(own):
        return Rows(stated.position)
    raise MixesRows("repeats rows")


@row_axis_of.register
def _(op: ARange, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    start, _, step = map(scalar_constant, node.inputs)
    if places[1] != Count() or (start, step) != (0.0, 1.0):
        raise MixesRows("combines all rows")
    return Numbers(0)


@row_axis_of.register
def _(op: Reshape, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    long = [i for i, length in enumerate(node.outputs[0].type.shape) if length != 1]
    if isinstance(places[0], Numbers) and len(long) == 1:
        return Numbers(long[0])
    if not isinstance(places[0], Rows):
        raise MixesRows("makes rows of entries that new rows do not have")
    axis = places[0].axis
    old, new = node.inputs[0].type.shape, node.outputs[0].type.shape
    if isinstance(places[1], Lengths):
        position = places[1].position
        whole = _same_size(old[:axis], new[:position])
    elif None in new:
        position = new.index(None)
        whole = _same_size(old[:axis], new[:position]) and _same_size(
            old[axis + 1 :], new[position + 1 :]
        )
    else:
        whole = False
    if not whole:
        raise MixesRows("is not known to keep rows whole")
    return Rows(position)


@row_axis_of.register
def _(op: JoinDims, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    axis = _axis(places[0])
    _require_others(axis, op.axis_range)
    return Rows(axis if axis < op.start_axis else axis - op.n_axes + 1)


@row_axis_of.register
def _(op: SplitDims, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    axis = _axis(places[0])
    _require_others(axis, [op.axis])
    return Rows(
        axis if axis < op.axis else axis + node.outputs[0].type.ndim - node.inputs[0].type.ndim
    )


@row_axis_of.register
def _(op: Subtensor, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    indices = indices_from_subtensor(node.inputs[1:], op.idx_list)
    if isinstance(places[0], Lengths):
        return _part_of_lengths(places[0], node.inputs[0].type.shape[0], indices)
    if any(places[1:]):
        raise MixesRows("uses the number of rows")
    return Rows(_sliced(_axis(places[0]), indices))


@row_axis_of.register
def _(op: IncSubtensor, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    changed, by, *_ = node.inputs
    indices = indices_from_subtensor(node.inputs[2:], op.idx_list)
    if any(places[2:]) or not isinstance(places[0], Rows):
        raise MixesRows("changes entries that new rows do not have")
    axis = _sliced(places[0].axis, indices)
    n_axes = changed.type.ndim - sum(not isinstance(index, slice) for index in indices)
    own = axis - n_axes + by.type.ndim
    if places[1] != Rows(own) and (places[1] or (own >= 0 and not by.type.broadcastable[own])):
        raise MixesRows(f"pairs rows with entries of {describe(by)}")
    return places[0]


@row_axis_of.register
def _(op: AdvancedSubtensor, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    indices = indices_from_subtensor(node.inputs[1:], op.idx_list)
    arrays = [(i, index) for i, index in enumerate(indices) if not isinstance(index, slice)]
    if any(index.type.dtype == "bool" for _, index in arrays):
        raise MixesRows("selects entries by a condition")
    where = [i for i, _ in arrays]
    n_axes = max(index.type.ndim for _, index in arrays)
    together = where == list(range(where[0], where[-1] + 1))
    own = dict(zip(node.inputs[1:], places[1:], strict=True))
    match [(index, own[index]) for i, index in arrays if places[0] == Rows(i)]:
        case [(number, Numbers(axis))] if [index for _, index in arrays].count(number) == 1:
            places, own[number] = [None], Rows(axis)
    if places[0] is not None:
        if any(places[1:]):
            raise MixesRows("pairs rows with each other")
        axis = _axis(places[0])
        if axis in where or (axis < len(indices) and indices[axis] != slice(None)):
            raise MixesRows("selects or reorders rows")
        before = sum(i < axis for i in where)
        if together and axis < where[0]:
            return Rows(axis)
        return Rows(axis - before + n_axes)
    if any(place and not isinstance(place, Rows) for place in own.values()):
        raise MixesRows("uses the number of rows")
    aligned = _paired(
        [pt.shape_padleft(index, n_axes - index.type.ndim) for _, index in arrays],
        [_shifted(own[index], n_axes - index.type.ndim) for _, index in arrays],
    )
    return _shifted(aligned, where[0] if together else 0)


@row_axis_of.register
def _(op: Shape, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    return Lengths(_axis(places[0]))


@row_axis_of.register
def _(op: Shape_i, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    return Count() if _axis(places[0]) == op.i else None


@row_axis_of.register
def _(op: SpecifyShape, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    axis = _axis(places[0])
    stated = node.inputs[1 + axis]
    if places[1 + axis] != Count() and not isinstance(stated.type, NoneTypeT):
        raise MixesRows("fixes the number of rows")
    return places[0]


@row_axis_of.register(TensorFromScalar)
@row_axis_of.register(ScalarFromTensor)
@row_axis_of.register(ViewOp)
@row_axis_of.register(CheckAndRaise)
def _(op: Any, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    return places[0]


@row_axis_of.register
def _(op: RandomVariable, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    raise MixesRows("is random, but not a free variable of the model")


def _axis(place: RowAxis) -> int:
    if not isinstance(place, Rows):
        raise MixesRows("combines all rows")
    return place.axis


def _shifted(place: RowAxis, n_axes: int) -> RowAxis:
    return None if place is None else Rows(_axis(place) + n_axes)


def _require_others(axis: int, worked_on: Collection[int]) -> None:
    if axis in worked_on:
        raise MixesRows("acts across the rows")


def _paired(operands: Sequence[Variable], places: Sequence[RowAxis]) -> Rows:
    """Rows of operands that are broadcast against each other."""
    axes = {_axis(place) for place in places if place is not None}
    if len(axes) > 1:
        raise MixesRows("pairs rows with each other")
    [axis] = axes
    for operand, place in zip(operands, places, strict=True):
        if place is None and not operand.type.broadcastable[axis]:
            raise MixesRows(
                f"pairs rows with entries of {describe(operand)}, which new rows do not have",
                (operand, Rows(axis)),
            )
    return Rows(axis)


def _product(places: Sequence[RowAxis], n_batch: int) -> Rows:
    """Rows of a product of matrices, the rows or the columns of one of them."""
    if all(places):
        raise MixesRows("pairs rows with each other")
    [(operand, axis)] = [(i, _axis(place)) for i, place in enumerate(places) if place]
    if axis != n_batch + operand:
        raise MixesRows("acts across the rows")
    return Rows(axis)


def _lengths(entries: Sequence[RowAxis]) -> RowAxis:
    """A vector of these entries."""
    counts = [i for i, entry in enumerate(entries) if entry is not None]
    if any(entries[i] != Count() for i in counts) or len(counts) > 1:
        raise MixesRows("combines all rows")
    return Lengths(counts[0]) if counts else None


def _entries(place: RowAxis, length: int | None) -> list[RowAxis]:
    """Entries of a vector of lengths."""
    if length is None or isinstance(place, Rows | Count):
        raise MixesRows("combines all rows")
    position = place.position if isinstance(place, Lengths) else None
    return [Count() if i == position else None for i in range(length)]


def _part_of_lengths(place: Lengths, length: int | None, indices: Sequence[Any]) -> RowAxis:
    """Entries that indices select from a vector of lengths."""
    [index] = indices
    parts = [index.start, index.stop, index.step] if isinstance(index, slice) else [index]
    if length is None or not all(part is None or isinstance(part, Constant) for part in parts):
        raise MixesRows("combines all rows")
    entries = _entries(place, length)
    if not isinstance(index, slice):
        return entries[int(index.data)]
    return _lengths(entries[slice(*(None if part is None else int(part.data) for part in parts))])


def _sliced(axis: int, indices: Sequence[Any]) -> int:
    """Position of an axis, taken as a whole, after indexing."""
    if axis < len(indices) and indices[axis] != slice(None):
        raise MixesRows("selects or reorders rows")
    return axis - sum(not isinstance(index, slice) for index in indices[:axis])


def _same_size(some: Sequence[int | None], others: Sequence[int | None]) -> bool:
    """Whether as many entries are known to be in axes of these lengths."""
    lengths = [length for length in (*some, *others) if length is not None]
    known = len(lengths) == len(some) + len(others)
    return known and math.prod(lengths[: len(some)]) == math.prod(lengths[len(some) :])
