"""Indexing and reshapes in an affine form: entries that are taken, put in, or reshaped."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.scalar import basic as scalar
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.shape import Reshape
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
from pymc_nnsteps.graphs.linear_terms import (
    Length,
    Link,
    PickedRows,
    Term,
    add,
    axis_lengths,
    cut_links,
    scale,
    shuffle,
    take,
)
from pymc_nnsteps.graphs.search import operands as operands_of
from pymc_nnsteps.graphs.shapes import present_length

Index = tuple[Any, ...]


@reads(Subtensor)
@reads(AdvancedSubtensor)
def _read_index(op: Any, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    source, *index_inputs = node.inputs
    indices = integer_indices(indices_from_subtensor(index_inputs, op.idx_list))
    is_of_slices = all(isinstance(index, slice) for index in indices)
    arrays = None if is_of_slices else IndexArrays.of(indices, source)

    def index_term(rv: TensorVariable, term: Term) -> Term:
        for axis, index in enumerate(indices):
            if isinstance(index, slice) and index != slice(None):
                term = take(term, axis, pt.arange(source.shape[axis])[index])
        return term if arrays is None else _gather(term, arrays, rv)

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
    """Integer arrays, not negative, that broadcast and index axes of a source at once.

    In the result their axes begin at a position.
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


def _picked(term: Term, arrays: IndexArrays) -> PickedRows | None:
    """Entries of a matrix with one axis of the variable and one of the map."""
    if term.out_ndim != 2 or len(arrays.axes) != 2 or arrays.ndim != 1:
        return None
    ways = [axis for axis in arrays.axes if term.varies_along(axis)]
    if len(ways) != 1 or term.links[ways[0]] is not None:
        return None
    index = arrays.arrays[arrays.axes.index(ways[0])]
    source = term.coefficient.dimshuffle(*ways, *range(term.out_ndim, term.coefficient.ndim))
    return None if index.type.broadcastable[0] else PickedRows(source, index)


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
    """Extend a map of a part of a target, whose axes are ``kept`` or None, by zeros elsewhere."""
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


Groups = list[tuple[range, range]]


def trivial_reshape(node: Any) -> list[Any] | None:
    """Dimshuffle equal to a reshape that only adds or drops axes of length one."""
    source, [out] = node.inputs[0], node.outputs
    long_source = [axis for axis, one in enumerate(source.type.broadcastable) if not one]
    long_out = [axis for axis, one in enumerate(out.type.broadcastable) if not one]
    pairs = list(zip(long_source, long_out, strict=False))
    same = len(long_source) == len(long_out) and (
        len(pairs) <= 1
        or all(
            source.type.shape[a] is not None and source.type.shape[a] == out.type.shape[b]
            for a, b in pairs
        )
    )
    if not same:
        return None
    order: list[Any] = ["x"] * out.ndim
    for a, b in pairs:
        order[b] = a
    return order


def reshaped_axes(node: Any) -> Groups:
    """Shortest runs of axes of a reshape's input, and the axes of its output that they become."""
    source, shape = node.inputs
    [out] = node.outputs
    before, after = source.type.shape, out.type.shape
    fewer = min(source.ndim, out.ndim)

    def same(i: int, j: int) -> bool:
        if before[i] is None or after[j] is None:
            return _states_length(shape, j % out.ndim, source, i % source.ndim)
        return bool(before[i] == after[j])

    n_first = next((i for i in range(fewer) if not same(i, i)), fewer)
    n_last = next((i for i in range(fewer - n_first) if not same(-1 - i, -1 - i)), fewer - n_first)
    first = [(range(i, i + 1), range(i, i + 1)) for i in range(n_first)]
    last = [
        (range(source.ndim - i, source.ndim - i + 1), range(out.ndim - i, out.ndim - i + 1))
        for i in range(n_last, 0, -1)
    ]
    inner = range(n_first, source.ndim - n_last), range(n_first, out.ndim - n_last)
    return [*first, *_split_run(before, after, *inner), *last]


def _states_length(shape: TensorVariable, j: int, source: TensorVariable, i: int) -> bool:
    """Whether the graph of an entry of a new shape is the length of an axis of the source."""
    if shape.owner is None or not isinstance(shape.owner.op, MakeVector):
        return False
    lengths: list[Variable] = [shape.owner.inputs[j], source.shape[i]]
    graph = FunctionGraph(outputs=lengths, clone=True)
    rewrite_graph(graph, include=("ShapeOpt", "canonicalize"))
    stated, own = graph.outputs
    return stated.type == own.type and equal_computations([stated], [own])


def _split_run(
    before: Sequence[int | None], after: Sequence[int | None], source: range, out: range
) -> Groups:
    """Cut a run wherever both sides have reached the same number of entries."""
    if not source and not out:
        return []
    lengths = [before[i] for i in source], [after[j] for j in out]
    if not source or not out or any(None in side or 0 in side for side in lengths):
        return [(source, out)]
    products = [list(accumulate(side, mul)) for side in lengths]
    common = sorted(set(products[0]) & set(products[1]))
    groups, i, j = [], 0, 0
    for product in common:
        to_i, to_j = (len(side) - side[::-1].index(product) for side in products)
        groups.append((source[i:to_i], out[j:to_j]))
        i, j = to_i, to_j
    return groups


@reads(Reshape)
def _read_reshape(op: Reshape, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    order = trivial_reshape(node)
    if order is not None:
        return linear(node, operands, lambda rv, term: shuffle(term, order, rv))
    groups = reshaped_axes(node)
    return linear(node, operands, lambda rv, term: _reshaped(term, node, groups, rv))


def _reshaped(term: Term, node: Any, groups: Groups, rv: TensorVariable) -> Term:
    source, [out] = node.inputs[0], node.outputs
    links: list[Link | None] = []
    term = term.whole()
    for before, after in groups:
        carried = _carried(term, source, before, out, after, rv)
        if carried is None:
            term = cut_links(term, before, rv)
        links.extend(carried or [None] * len(after))
    coefficient = term.coefficient
    spread: list[Length] = list(coefficient.shape)
    lengths: list[Length] = []
    static: list[Any] = []
    for before, after in groups:
        varies = any(term.varies_along(axis) for axis in before)
        if varies and len(before) == len(after) == 1:
            lengths.append(coefficient.shape[before[0]])
        elif varies:
            for axis in before:
                [spread[axis]] = axis_lengths(source, [axis])
            lengths.extend(axis_lengths(out, after))
        else:
            lengths.extend([1] * len(after))
        static.extend([None if varies else 1] * len(after))
    for axis in range(term.out_ndim, coefficient.ndim):
        lengths.append(coefficient.shape[axis])
        static.append(1 if coefficient.type.broadcastable[axis] else None)
    full = pt.broadcast_to(coefficient, spread)
    return Term(tuple(links), pt.specify_shape(full.reshape(lengths), static))


def _carried(
    term: Term,
    source: TensorVariable,
    before: range,
    out: TensorVariable,
    after: range,
    rv: TensorVariable,
) -> list[Link | None] | None:
    """Links of a run of output axes; None if the links of the source have to be cut."""
    links = [link for axis in before if (link := term.links[axis]) is not None]
    if len(before) == len(after) == 1:
        return [term.links[before[0]]]
    if not links or any(link.index is not None for link in links):
        return None
    if any(term.varies_along(axis) for axis in before):
        return None
    axes = [axis for link in links for axis in link.axes]
    repeated = [axis for axis in before if term.links[axis] is None]
    if len(after) == 1 and all(source.type.broadcastable[axis] for axis in repeated):
        return [Link(axes[0], inner=tuple(axes[1:]))]
    lengths = [rv.type.shape[axis] for axis in axes]
    if len(before) == 1 and None not in lengths and lengths == [out.type.shape[a] for a in after]:
        return [Link(axis) for axis in axes]
    return None
