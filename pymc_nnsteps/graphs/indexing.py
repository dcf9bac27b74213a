"""Indexing in an affine form: taking entries, and putting entries into an array."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, equal_computations
from pytensor.scalar import basic as scalar
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import AffineMap, broadcast, full, linear, reads
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.lengths import present_length
from pymc_nnsteps.graphs.linear_terms import (
    Length,
    Link,
    Picked,
    Term,
    add,
    cut_links,
    pick,
    scale,
    take,
)
from pymc_nnsteps.graphs.search import operands as operands_of

Index = tuple[Any, ...]


@reads(Subtensor)
def _read_subtensor(op: Subtensor, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    source, *index_inputs = node.inputs
    indices = indices_from_subtensor(index_inputs, op.idx_list)

    def index_term(rv: TensorVariable, term: Term) -> Term:
        for axis, index in reversed(list(enumerate(indices))):
            if not isinstance(index, slice):
                term = pick(term, axis, index, rv)
            elif index != slice(None):
                term = take(term, axis, pt.arange(source.shape[axis])[index])
        return term

    return linear(node, operands, index_term)


@reads(AdvancedSubtensor)
def _read_advanced(op: Any, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    source, *index_inputs = node.inputs
    indices = integer_indices(indices_from_subtensor(index_inputs, op.idx_list))
    arrays = IndexArrays.of(indices, source)

    def index_term(rv: TensorVariable, term: Term) -> Term:
        for axis, index in enumerate(indices):
            if isinstance(index, slice) and index != slice(None):
                term = take(term, axis, pt.arange(source.shape[axis])[index])
        return _gather(term, arrays, rv)

    return linear(node, operands, index_term)


def integer_indices(indices: Sequence[Any]) -> Index:
    """Replace boolean indices by integers."""
    found: list[Any] = []
    for index in indices:
        if isinstance(index, slice) or index.dtype != "bool":
            found.append(index)
        elif isinstance(index, Constant):
            found.extend(map(pt.constant, np.nonzero(index.data)))
        else:
            found.extend(pt.nonzero(index))
    return tuple(found)


@dataclass(frozen=True)
class IndexArrays:
    """Integer arrays that index several axes at once.

    Attributes
    ----------
    axes : tuple of int
        Indexed axes of the source.
    arrays : tuple of TensorVariable
        Indices, not negative, with axes that broadcast.
    position : int
        Position of the first of their axes in the result.
    """

    axes: tuple[int, ...]
    arrays: tuple[TensorVariable, ...]
    position: int

    @classmethod
    def of(cls, indices: Index, source: TensorVariable) -> "IndexArrays":
        """The integer arrays among the indices of a source."""
        axes = [axis for axis, index in enumerate(indices) if not isinstance(index, slice)]
        adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
        ndim = max(indices[axis].ndim for axis in axes)
        arrays = (
            pt.atleast_Nd(_not_negative(indices[axis], source.shape[axis]), n=ndim) for axis in axes
        )
        return cls(tuple(axes), tuple(arrays), axes[0] if adjacent else 0)

    @property
    def ndim(self) -> int:
        """Number of axes that they add to the result."""
        return self.arrays[0].ndim

    def carried(self, ndim: int) -> list[int | None]:
        """Axis of the source for each axis of the result; None for new axes."""
        kept: list[int | None] = [axis for axis in range(ndim) if axis not in self.axes]
        return [*kept[: self.position], *[None] * self.ndim, *kept[self.position :]]


def _not_negative(index: TensorVariable, length: TensorVariable) -> TensorVariable:
    if isinstance(index, Constant) and (index.data >= 0).all():
        return index
    return pt.switch(pt.lt(index, 0), index + length, index)


def as_stated(index: TensorVariable, source: TensorVariable, axis: int) -> TensorVariable:
    """An index of an axis as the model states it, with negative entries for those from the end."""
    parts = operands_of(index, scalar.Switch)
    if parts is None:
        return index
    same = equal_computations([index], [_not_negative(parts[2], source.shape[axis])])
    return parts[2] if same else index


def _gather(term: Term, arrays: IndexArrays, rv: TensorVariable) -> Term:
    """Entries of output axes; the longest may stay linked if the result is a vector of entries."""
    if len(arrays.axes) == arrays.ndim == 1:
        return take(term, arrays.axes[0], arrays.arrays[0])
    linked = [axis for axis in arrays.axes if term.links[axis] is not None]
    kept = linked if arrays.ndim == 1 else []
    if len(kept) > 1:
        kept = [max(linked, key=lambda axis: _present_length(term.links[axis], rv))]
    term = cut_links(term.whole(), [axis for axis in linked if axis not in kept], rv)
    new: list[Link | None] = [None] * arrays.ndim
    for axis in kept:
        position = arrays.axes.index(axis)
        index = arrays.arrays[position]
        if index.type.broadcastable[0]:
            index = pt.broadcast_arrays(*arrays.arrays)[position]
        new = [take(term, axis, index).links[axis]]
    order = arrays.carried(term.out_ndim)
    links = [None if axis is None else term.links[axis] for axis in order]
    links[arrays.position : arrays.position + arrays.ndim] = new
    return Term(tuple(links), _gathered(term, arrays, order), picked=_picked(term, arrays))


def _present_length(link: Link | None, rv: TensorVariable) -> int:
    assert link is not None
    return present_length(rv, link.axis)


def _picked(term: Term, arrays: IndexArrays) -> Picked | None:
    """Entries of a matrix with one axis of the variable and one of the map."""
    if term.out_ndim != 2 or len(arrays.axes) != 2 or arrays.ndim != 1:
        return None
    ways = [axis for axis in arrays.axes if term.varies_along(axis)]
    if len(ways) != 1 or term.links[ways[0]] is not None:
        return None
    index = arrays.arrays[arrays.axes.index(ways[0])]
    source = term.coefficient.dimshuffle(*ways, *range(term.out_ndim, term.coefficient.ndim))
    return None if index.type.broadcastable[0] else Picked(source, index)


def _gathered(term: Term, arrays: IndexArrays, order: Sequence[int | None]) -> TensorVariable:
    """Coefficient at the entries; only the axes along which it varies are indexed."""
    coefficient = term.coefficient
    behind = range(term.out_ndim, coefficient.ndim)
    if not any(term.varies_along(axis) for axis in arrays.axes):
        return coefficient.dimshuffle(*("x" if axis is None else axis for axis in order), *behind)
    indices: list[Any] = [slice(None)] * term.out_ndim
    for axis, array in zip(arrays.axes, arrays.arrays, strict=True):
        indices[axis] = array if term.varies_along(axis) else pt.zeros((1,) * array.ndim, "int64")
    return coefficient[tuple(indices)]


@reads(IncSubtensor)
@reads(AdvancedIncSubtensor)
def _read_put(op: Any, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    target, part, *index_inputs = node.inputs
    if any(other.terms for other in operands[2:]):
        raise NotConjugate("it is used as an index")
    around, within = operands[0], operands[1]
    indices = indices_from_subtensor(index_inputs, op.idx_list)
    if isinstance(op, AdvancedIncSubtensor):
        indices = integer_indices(indices)
        order = IndexArrays.of(indices, target).carried(target.ndim)
    else:
        order = [
            axis
            for axis in range(target.ndim)
            if axis >= len(indices) or isinstance(indices[axis], slice)
        ]
    touched = {axis for axis, index in enumerate(indices) if index != slice(None)}

    def put(array: TensorVariable, entries: Any) -> TensorVariable:
        new: TensorVariable = op(array, entries, *index_inputs)
        return new

    terms = dict(around.terms)
    if op.set_instead_of_inc:
        shape = [target.shape[axis] if axis in touched else 1 for axis in range(target.ndim)]
        rest = put(pt.ones(shape, dtype=target.dtype), 0)
        static: list[Any] = [None if axis in touched else 1 for axis in range(target.ndim)]
        rest = pt.specify_shape(rest, static)
        terms = {rv: scale(term, rest) for rv, term in terms.items()}
    place = target[indices]
    kept = [None if axis in touched else axis for axis in order]
    for rv, term in broadcast(within, part, place).terms.items():
        terms[rv] = add(rv, terms, _embedded(term, kept, target, put, rv))
    offset = None
    if around.offset is not None or within.offset is not None:
        before = pt.zeros_like(target) if around.offset is None else full(around.offset, target)
        offset = put(before, 0 if within.offset is None else within.offset)
    return AffineMap(offset, terms)


def _embedded(
    term: Term,
    kept: Sequence[int | None],
    target: TensorVariable,
    put: Callable[[TensorVariable, Any], TensorVariable],
    rv: TensorVariable,
) -> Term:
    """Extend a map of a part of a target to the target, with zeros elsewhere.

    ``kept`` holds the axis of the target for each axis of the part, None where it is not whole.
    """
    term = cut_links(term.whole(), [i for i, axis in enumerate(kept) if axis is None], rv)
    coefficient = term.coefficient
    position = {axis: i for i, axis in enumerate(kept) if axis is not None}
    axes = [position.get(axis) for axis in range(target.ndim)]
    axes += range(term.out_ndim, coefficient.ndim)
    shape: list[Length] = list(target.shape)
    shape += [1] * term.rv_ndim
    static: list[Any] = [None] * len(shape)
    for i, axis in enumerate(axes):
        if axis is not None:
            shape[i] = coefficient.shape[axis]
            static[i] = 1 if coefficient.type.broadcastable[axis] else None
    embedded = put(pt.zeros(shape, dtype=coefficient.dtype), coefficient)
    links = tuple(None if axis is None else term.links[axis] for axis in axes[: target.ndim])
    return Term(links, pt.specify_shape(embedded, static))
