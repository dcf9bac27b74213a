"""Children of a Gaussian block as they are read, and how their likelihood is arranged by labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pytensor.graph.basic import equal_computations
from pytensor.scalar import upcast
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.evidence import Evidence
from pymc_nnsteps.gaussian.layout import Layout
from pymc_nnsteps.graphs.linear_terms import (
    Length,
    PickedRows,
    Term,
    align,
    concatenate,
    expand,
    flatten,
    varies,
)
from pymc_nnsteps.graphs.shapes import stated_lengths


@dataclass(frozen=True)
class Child:
    """Child of a block, with its mean or logit: ``offset + sum of terms``."""

    child: TensorVariable
    offset: TensorVariable | None
    terms: tuple[Term, ...]

    @property
    def label_axes(self) -> list[int]:
        """Axes of the child, in its order, that carry an axis of the block's first variable."""
        return [axis for axis, link in enumerate(self.terms[0].links) if link is not None]

    @property
    def varying_axes(self) -> list[int]:
        """Other axes of the child, along which the design varies."""
        return [
            axis
            for axis in range(self.child.ndim)
            if axis not in self.label_axes and any(t.varies_along(axis) for t in self.terms)
        ]


@dataclass(frozen=True)
class Observation(Child):
    """Gaussian child: ``value = offset + sum of terms + noise``, with the noise's precision."""

    value: TensorVariable
    precision: TensorVariable

    @property
    def residual(self) -> TensorVariable:
        """The value without its offset."""
        return self.value if self.offset is None else self.value - self.offset


def evidence_of(members: Sequence[Layout], seen: Observation) -> Evidence:
    """Arrange the likelihood of one child by labels, in the block's dtype.

    Axes of the child along which the design does not vary are averaged first: the mean,
    weighted by the precisions, is a sufficient statistic.
    """
    dtype = _dtype(members, seen)
    axes = _child_axes(members[0], seen)
    n, n_rows = len(axes.labels), len(axes.rows)
    lengths_of_rows = _lengths_of_rows(seen, axes)
    response, weight = _averaged(seen, axes)
    factor, terms = common_factor(seen.terms)
    designs = [
        _design(member, term, axes, lengths_of_rows).astype(dtype)
        for member, term in zip(members, terms, strict=True)
    ]

    def by_row(array: TensorVariable) -> TensorVariable:
        if varies(array, lengths_of_rows):
            return flatten(expand(array, lengths_of_rows), n, n_rows)
        return array.dimshuffle(*range(n), "x")

    return Evidence(
        concatenate(designs, [seen.child.shape[axis] for axis in axes.labels]),
        tuple(designs),
        flatten(response.astype(dtype), n, n_rows),
        by_row(weight.astype(dtype)),
        None
        if factor is None
        else by_row(factor.dimshuffle(*axes.labels, *axes.rows)).astype(dtype),
        tuple(_picked_labels(members[0], seen, axis) for axis in axes.labels),
        _picked_rows(members, terms, dtype),
    )


def common_factor(terms: Sequence[Term]) -> tuple[TensorVariable | None, Sequence[Term]]:
    """Common factor of all terms, and the terms without it."""
    [factor, *others] = [term.factor for term in terms]
    if factor is not None and all(
        other is not None and equal_computations([other], [factor]) for other in others
    ):
        return factor, [replace(term, factor=None) for term in terms]
    return None, [term.whole() for term in terms]


@dataclass(frozen=True)
class _ChildAxes:
    """Axes of a child: labels in the block's order, those of the design's rows, and the others."""

    labels: tuple[int, ...]
    rows: tuple[int, ...]
    repeated: tuple[int, ...]


def _dtype(members: Sequence[Layout], seen: Observation) -> str:
    """Dtype of a block of floats; the child's dtype for a block of discrete variables."""
    floating = [member.rv.dtype for member in members if member.rv.dtype.startswith("float")]
    return str(upcast(*floating)) if floating else str(seen.precision.dtype)


def _child_axes(first: Layout, seen: Observation) -> _ChildAxes:
    links = seen.terms[0].links
    labels = sorted(
        seen.label_axes,
        key=lambda axis: first.labels.index(links[axis].axis),  # type: ignore[union-attr]
    )
    rows = seen.varying_axes
    repeated = [a for a in range(seen.child.ndim) if a not in labels and a not in rows]
    return _ChildAxes(tuple(labels), tuple(rows), tuple(repeated))


def _lengths_of_rows(seen: Observation, axes: _ChildAxes) -> dict[int, Length]:
    """Lengths of the axes of rows, by position after the labels."""
    lengths_of_rows: dict[int, Length] = {}
    stated = stated_lengths(seen.child)
    for position, axis in enumerate(axes.rows, len(axes.labels)):
        [term, *_] = [term for term in seen.terms if term.varies_along(axis)]
        length = stated[axis]
        lengths_of_rows[position] = term.length_along(axis) if length is None else length
    return lengths_of_rows


def _averaged(seen: Observation, axes: _ChildAxes) -> tuple[TensorVariable, TensorVariable]:
    """Mean of the response over repeated axes, and its precision, with axes (labels, rows)."""
    order = (*axes.labels, *axes.rows, *axes.repeated)
    weight = align(seen.precision, len(order)).dimshuffle(order)
    response = seen.residual.dimshuffle(order)
    if not axes.repeated:
        return response, weight
    last = tuple(range(len(order) - len(axes.repeated), len(order)))
    repeats = [
        seen.child.shape[axis]
        for axis, position in zip(axes.repeated, last, strict=True)
        if not varies(weight, [position])
    ]
    total = reduce(lambda a, b: a * b, repeats, weight.sum(last)).astype(weight.dtype)
    return (weight * response).sum(last) / total, total


def _design(
    member: Layout, term: Term, axes: _ChildAxes, lengths_of_rows: dict[int, Length]
) -> TensorVariable:
    """Columns of the design for a variable of the block, shape (labels, n, entries)."""
    n, n_rows, n_dense = len(axes.labels), len(axes.rows), len(member.dense)
    dense = tuple(term.out_ndim + axis for axis in member.dense)
    entries = [member.lengths[axis] for axis in member.dense]
    if _lies_before(term.coefficient, dense, axes.rows):
        ordered = term.coefficient.dimshuffle(*axes.labels, *dense, *axes.rows)
        of_entries = {n + i: length for i, length in enumerate(entries)}
        of_rows = {axis + n_dense: length for axis, length in lengths_of_rows.items()}
        flat = flatten(expand(ordered, of_entries | of_rows), n + n_dense, n_rows)
        return flatten(flat, n, n_dense).mT
    ordered = term.coefficient.dimshuffle(*axes.labels, *axes.rows, *dense)
    of_entries = {n + n_rows + i: length for i, length in enumerate(entries)}
    flat = flatten(expand(ordered, lengths_of_rows | of_entries), n + n_rows, n_dense)
    return flatten(flat, n, n_rows)


def _lies_before(array: TensorVariable, first: Sequence[int], others: Sequence[int]) -> bool:
    """Whether axes lie before others in memory, as far as a transpose at the top tells."""
    if array.owner is None or not isinstance(array.owner.op, DimShuffle):
        return False
    order = array.owner.op.new_order
    places, behind = (
        [i for axis in axes if isinstance(i := order[axis], int)] for axes in (first, others)
    )
    return bool(places and behind) and max(places) < min(behind)


def _picked_rows(members: Sequence[Layout], terms: Sequence[Term], dtype: str) -> PickedRows | None:
    """Rows (n, d) of a design from which a child picks one at each label, and the picked ones."""
    [(member, term), *others] = zip(members, terms, strict=True)
    if others or term.picked is None:
        return None
    source = term.picked.source.astype(dtype).dimshuffle(0, *(1 + axis for axis in member.dense))
    lengths_of_entries = {1 + i: member.lengths[axis] for i, axis in enumerate(member.dense)}
    return replace(
        term.picked, source=flatten(expand(source, lengths_of_entries), 1, source.ndim - 1)
    )


def _picked_labels(
    first: Layout, seen: Observation, axis: int
) -> tuple[TensorVariable, Length] | None:
    """Entries of the block that a child picks along a label axis, and the block's length."""
    link = seen.terms[0].links[axis]
    assert link is not None
    length = first.lengths[link.axis]
    return None if link.index is None else (link.index, length)
