"""The linear part of an affine form: which axes carry a variable along, and which sum over it.

A :class:`Term` keeps the structure of a linear map. The functions here index, sum, multiply, stack
and reshape its output.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import equal_computations
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.values import scalar_constant

Length = TensorVariable | int

MOST_JOINED = 4000
"""Upper limit of the length of a joined axis that is read by a square selection matrix."""


@dataclass(frozen=True)
class Link:
    """Output axis that carries axis ``axis`` of a variable, entry by entry.

    Entry ``i`` carries entry ``index[i]``. With ``inner``, inside the reader of affine forms, it
    carries further axes too, flattened.
    """

    axis: int
    index: TensorVariable | None = None
    inner: tuple[int, ...] = ()

    @property
    def axes(self) -> tuple[int, ...]:
        """All axes of the variable that the output axis carries."""
        return (self.axis, *self.inner)


Links = tuple[Link | None, ...]


@dataclass(frozen=True)
class PickedRows:
    """Rows of a coefficient: the source (rows, axes of the variable), and the row of each entry."""

    source: TensorVariable
    index: TensorVariable


@dataclass(frozen=True)
class Term:
    """One variable's part: ``out[o] = factor[o] * sum_a coefficient[o, a] * v[a]``.

    An output axis with a :class:`Link` fixes an axis of the variable instead of leaving it to the
    sum.
    """

    links: Links  # one per output axis
    # Array with the axes of the output, then those of the variable. Linked axes of the variable
    # have length one, and so has every axis along which the coefficient does not vary.
    coefficient: TensorVariable
    # Last factor of the sum (gates, a temperature), with the axes of the output; None: one. It is
    # kept apart so that labels may still share the coefficient.
    factor: TensorVariable | None = None
    # Rows that make up the coefficient, where the output picks entries of a matrix with one map for
    # each column (targets of a table with gaps).
    picked: PickedRows | None = None

    @property
    def out_ndim(self) -> int:
        """Number of output axes."""
        return len(self.links)

    @property
    def rv_ndim(self) -> int:
        """Number of axes of the variable."""
        return self.coefficient.ndim - self.out_ndim

    @property
    def linked_axes(self) -> set[int]:
        """Axes of the variable that output axes carry."""
        return {link.axis for link in self.links if link is not None and not link.inner}

    def varies_along(self, axis: int) -> bool:
        """Whether the map may vary along an axis of the output."""
        parts = [self.coefficient] if self.factor is None else [self.coefficient, self.factor]
        return any(not part.type.broadcastable[axis] for part in parts)

    def length_along(self, axis: int) -> TensorVariable:
        """Length of an axis of the output along which the map varies."""
        if self.factor is None or not self.coefficient.type.broadcastable[axis]:
            return self.coefficient.shape[axis]
        return self.factor.shape[axis]

    def whole(self) -> "Term":
        """The map with its factor multiplied into the coefficient."""
        if self.factor is None:
            return self
        lifted = self.factor.dimshuffle(*range(self.out_ndim), *["x"] * self.rv_ndim)
        return Term(self.links, _times(self.coefficient, lifted))


def cut_link(term: Term, out_axis: int, rv: TensorVariable) -> Term:
    """Sum over the variable's axes that are linked to ``out_axis``, with a selection matrix."""
    link, term = term.links[out_axis], term.whole()
    if link is None:
        return term
    links = with_link(term.links, out_axis, None)
    if all(rv.type.broadcastable[axis] for axis in link.axes) and link.index is None:
        return Term(links, term.coefficient)
    lengths = axis_lengths(rv, link.axes)
    size = reduce(lambda a, b: a * b, lengths)
    if link.inner and link.index is None and isinstance(size, int) and size > MOST_JOINED:
        raise NotConjugate(
            f"axes of {describe(rv)} are flattened into one of {size} entries, more than the "
            f"{MOST_JOINED} that are supported; keep the axes, and reshape the data instead"
        )
    index = pt.arange(size) if link.index is None else link.index
    selection = pt.eq(index[:, None], pt.arange(size)[None, :]).astype(term.coefficient.dtype)
    order: list[Any] = ["x"] * term.coefficient.ndim
    order[out_axis] = 0
    for position, axis in enumerate(link.axes, 1):
        order[term.out_ndim + axis] = position
    if link.inner:
        selection = selection.reshape((index.shape[0], *lengths))
    return Term(links, _times(term.coefficient, selection.dimshuffle(order)))


def cut_links(term: Term, out_axes: Iterable[int], rv: TensorVariable) -> Term:
    """Sum over the variable's axes that are linked to any of several output axes."""
    return reduce(lambda cut, axis: cut_link(cut, axis, rv), out_axes, term)


def cut_inner_links(term: Term, rv: TensorVariable) -> Term:
    """Cut the links of output axes that carry several axes of the variable."""
    inner = [axis for axis, link in enumerate(term.links) if link is not None and link.inner]
    return cut_links(term, inner, rv)


def axis_lengths(rv: TensorVariable, axes: Iterable[int]) -> list[Length]:
    """Lengths of axes of an array, as numbers where its type states them."""
    stated = ((rv.type.shape[axis], axis) for axis in axes)
    return [rv.shape[axis] if length is None else length for length, axis in stated]


def repeat_axis(term: Term, axis: int, rv: TensorVariable) -> Term:
    """Cut the link of an output axis of length one that is now repeated."""
    link = term.links[axis]
    if link is not None and link.index is None:
        return replace(term, links=with_link(term.links, axis, None))
    return cut_link(term, axis, rv)


def apply_along(
    term: Term,
    axes: Iterable[int],
    source: TensorVariable,
    rv: TensorVariable,
    operation: Callable[[TensorVariable], TensorVariable],
) -> TensorVariable:
    """Coefficient of a linear operation that mixes, selects or repeats entries along some axes."""
    axes = list(axes)
    whole = cut_links(term, axes, rv).whole().coefficient
    shape: list[Length] = list(whole.shape)
    for axis in axes:
        shape[axis] = source.shape[axis]
    behind = [1 if one else None for one in whole.type.broadcastable[source.ndim :]]
    applied = operation(pt.broadcast_to(whole, shape)).astype(whole.dtype)
    static: list[Any] = list(applied.type.shape[: applied.ndim - len(behind)])
    return pt.specify_shape(applied, [*static, *behind])


def with_link(links: Links, axis: int, link: Link | None) -> Links:
    """Links, with that of one output axis replaced."""
    return (*links[:axis], link, *links[axis + 1 :])


def without_link(links: Links, axis: int) -> Links:
    """Links without an output axis."""
    return (*links[:axis], *links[axis + 1 :])


def shuffle(term: Term, order: Sequence[Any], rv: TensorVariable) -> Term:
    """Permute, insert ("x") and drop output axes; a dropped axis may hold a picked entry."""
    if list(order) == list(range(term.out_ndim)):
        return term
    for axis, link in reversed(list(enumerate(term.links))):
        if axis not in order and link is not None and link.index is not None:
            term = pick(term, axis, 0, rv)
            order = [i - 1 if i != "x" and i > axis else i for i in order]
    trailing = range(term.out_ndim, term.coefficient.ndim)
    return Term(
        tuple(None if axis == "x" else term.links[axis] for axis in order),
        term.coefficient.dimshuffle(*order, *trailing),
        None if term.factor is None else term.factor.dimshuffle(order),
    )


def scale(term: Term, factor: TensorVariable) -> Term:
    """Multiply by a factor that has the output's axes."""
    return replace(term, factor=factor if term.factor is None else term.factor * factor)


def negate(term: Term) -> Term:
    """Negate by the factor; the coefficient does not change."""
    minus = pt.constant(-1, dtype=term.coefficient.dtype)
    return scale(term, minus.dimshuffle(["x"] * term.out_ndim))


def _times(coefficient: TensorVariable, factor: TensorVariable) -> TensorVariable:
    """Product, without an initial coefficient of one."""
    if all(coefficient.type.broadcastable) and scalar_constant(coefficient) == 1:
        return factor.astype(coefficient.dtype)
    return coefficient * factor


def add(rv: TensorVariable, terms: Mapping[TensorVariable, Term], term: Term) -> Term:
    """Add a term to that of the same variable; an axis that one alone carries is summed over."""
    if rv not in terms:
        return term
    term, other = term.whole(), terms[rv].whole()
    for axis in range(term.out_ndim):
        if not same_link(other.links[axis], term.links[axis]):
            term, other = (cut_link(t, axis, rv) for t in (term, other))
    return Term(term.links, other.coefficient + term.coefficient)


def same_link(first: Link | None, second: Link | None) -> bool:
    """Whether two axes carry the same entries along, as far as their graphs establish it."""
    if first is None or second is None or first.index is None or second.index is None:
        return first == second
    return first.axes == second.axes and equal_computations([first.index], [second.index])


def sum_axis(term: Term, axis: int, length: Length, rv: TensorVariable) -> Term:
    """Sum over output axis ``axis`` of the given length, which is dropped."""
    term = term.whole()
    link = term.links[axis]
    if link is not None and (link.index is not None or link.inner):
        term = cut_link(term, axis, rv)
    kept = [i for i in range(term.coefficient.ndim) if i != axis]
    link = term.links[axis]
    if link is not None:
        kept[kept.index(term.out_ndim + link.axis)] = axis
        coefficient = term.coefficient.dimshuffle(kept)
    elif term.varies_along(axis):
        coefficient = term.coefficient.sum(axis)
    else:
        coefficient = term.coefficient.dimshuffle(kept) * length
    return Term(without_link(term.links, axis), coefficient.astype(term.coefficient.dtype))


def split_axis(array: TensorVariable, axis: int, lengths: Sequence[Length]) -> TensorVariable:
    """Split an axis of an array into several, before any transpose at the top of its graph."""
    node, more = array.owner, len(lengths) - 1
    if node is None or not isinstance(node.op, DimShuffle) or node.op.new_order[axis] == "x":
        before, behind = range(axis), range(axis + 1, array.ndim)
        return array.reshape((*axis_lengths(array, before), *lengths, *axis_lengths(array, behind)))
    inner: Any = node.op.new_order[axis]
    old: Sequence[Any] = node.op.new_order
    order: list[Any] = [i if i == "x" or i < inner else i + more for i in old]
    order[axis : axis + 1] = range(inner, inner + len(lengths))
    split: TensorVariable = split_axis(node.inputs[0], inner, lengths).dimshuffle(order)
    return split


def contract(term: Term, axis: int, matrix: TensorVariable, rv: TensorVariable) -> Term:
    """Sum output axis ``axis`` against the last axis of a matrix, whose batch axes align."""
    link, term = term.links[axis], term.whole()
    if link is not None and (link.index is not None or (link.inner and term.varies_along(axis))):
        term, link = cut_link(term, axis, rv), None
    n_out, batch = term.out_ndim, list(range(term.out_ndim - 2))
    summed, replacing = n_out - 1, n_out - 2
    links = with_link(term.links, axis, None)
    order: list[Any] = [*batch, *["x"] * (2 + term.rv_ndim)]
    order[axis] = replacing
    if link is not None and link.inner:
        split = split_axis(matrix, summed, axis_lengths(rv, link.axes))
        for position, rv_axis in enumerate(link.axes, summed):
            order[n_out + rv_axis] = position
        return Term(links, _times(term.coefficient, split.dimshuffle(order)))
    if link is not None:
        moved: list[Any] = list(range(term.coefficient.ndim))
        moved[n_out + link.axis], moved[axis] = axis, "x"
        order[n_out + link.axis] = summed
        return Term(links, _times(term.coefficient.dimshuffle(moved), matrix.dimshuffle(order)))
    if not term.varies_along(axis):
        return Term(links, _times(term.coefficient, matrix.sum(-1).dimshuffle(order)))
    if all(matrix.type.broadcastable[:-2]):
        core = matrix.dimshuffle(summed, replacing)
        product = pt.tensordot(term.coefficient, core, [[axis], [0]])
        return Term(links, pt.moveaxis(product, -1, axis))
    on_variable = list(range(n_out, term.coefficient.ndim))
    if all(term.coefficient.type.broadcastable[i] for i in range(n_out) if i != axis):
        product = pt.tensordot(matrix, term.coefficient.dimshuffle(axis, *on_variable), axes=1)
        order = [*batch, "x", "x", *(i - 1 for i in on_variable)]
        order[axis] = replacing
        return Term(links, product.dimshuffle(order))
    order = [*batch, *["x"] * (3 + term.rv_ndim)]
    order[axis], order[axis + 1] = summed, replacing
    spread = pt.expand_dims(term.coefficient, axis + 1)
    return Term(links, (spread * matrix.dimshuffle(order)).sum(axis))


def take(term: Term, axis: int, index: TensorVariable) -> Term:
    """Entries ``index`` of output axis ``axis``."""
    term = term.whole()
    coefficient, link = term.coefficient, term.links[axis]
    if term.varies_along(axis):
        coefficient = pt.take(coefficient, index, axis=axis)
    if link is None:
        return Term(term.links, coefficient)
    composed = index if link.index is None else link.index[index]
    return Term(with_link(term.links, axis, replace(link, index=composed)), coefficient)


def pick(term: Term, axis: int, index: Any, rv: TensorVariable) -> Term:
    """Entry ``index`` of output axis ``axis``, which is dropped."""
    term = term.whole()
    term = cut_link(term, axis, rv)
    links = without_link(term.links, axis)
    if term.varies_along(axis):
        return Term(links, pt.take(term.coefficient, index, axis=axis))
    kept = [i for i in range(term.coefficient.ndim) if i != axis]
    return Term(links, term.coefficient.dimshuffle(kept))


def pad(term: Term, axis: int, lengths: Sequence[Length], position: int) -> Term:
    """Embed output axis ``axis`` as the ``position``-th of parts with the given lengths."""
    term = term.whole()
    shape: list[Any] = list(term.coefficient.shape)
    blocks = []
    for i, length in enumerate(lengths):
        shape[axis] = length
        zero = pt.zeros((), dtype=term.coefficient.dtype)
        part = term.coefficient if i == position else zero
        blocks.append(pt.broadcast_to(part, shape))
    static: list[Any] = [1 if one else None for one in term.coefficient.type.broadcastable]
    static[axis] = None
    return Term(term.links, pt.specify_shape(pt.concatenate(blocks, axis=axis), static))


def matmul_last(array: TensorVariable, matrix: TensorVariable) -> TensorVariable:
    """``array @ matrix`` over the last axis of ``array``, as one matrix product."""
    if array.ndim <= 2:
        return pt.dot(array, matrix)
    leading = list(array.shape)[:-1]
    product = pt.dot(flatten(array, 0, array.ndim - 1), matrix)
    return product.reshape((*leading, matrix.shape[1]))


def varies(array: TensorVariable, axes: Iterable[int]) -> bool:
    """Whether an array may vary along any of the axes."""
    return any(not array.type.broadcastable[axis] for axis in axes)


def align(array: TensorVariable, ndim: int) -> TensorVariable:
    """Prepend axes of length one."""
    return array.dimshuffle(*["x"] * (ndim - array.ndim), *range(array.ndim))


def expand(array: TensorVariable, lengths: Mapping[int, Length]) -> TensorVariable:
    """Spread axes of length one to the given lengths."""
    one = array.type.broadcastable
    if not any(one[axis] for axis in lengths):
        return array
    shape = [lengths.get(a, 1) if one[a] else array.shape[a] for a in range(array.ndim)]
    return pt.broadcast_to(array, shape)


def flatten(array: TensorVariable, start: int, count: int) -> TensorVariable:
    """Merge ``count`` axes into one; zero axes give a new axis of length one."""
    if count == 1:
        return array
    if count == 0:
        return pt.expand_dims(array, start)
    one = array.type.broadcastable
    shape: list[Length] = [1 if one[axis] else array.shape[axis] for axis in range(array.ndim)]
    merged = reduce(lambda a, b: a * b, shape[start : start + count])
    return array.reshape((*shape[:start], merged, *shape[start + count :]))


def concatenate(
    arrays: Sequence[TensorVariable], label_lengths: Sequence[Length]
) -> TensorVariable:
    """Join along the last axis; label axes are spread where only some of the arrays vary."""
    if len(arrays) == 1:
        return arrays[0]
    spread = {
        axis: length
        for axis, length in enumerate(label_lengths)
        if any(varies(array, [axis]) for array in arrays)
    }
    return pt.concatenate([expand(array, spread) for array in arrays], axis=-1)
