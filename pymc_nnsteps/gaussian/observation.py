"""Children of a Gaussian block as they are read, and their likelihood label by label."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import pytensor.tensor as pt
from pytensor.graph.basic import equal_computations
from pytensor.scalar import upcast
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.layout import Layout
from pymc_nnsteps.graphs.linear_terms import (
    Length,
    PickedRows,
    Term,
    align,
    concatenate,
    expand,
    flatten,
    matmul_last,
    varies,
)
from pymc_nnsteps.graphs.shapes import stated_lengths


@dataclass(frozen=True)
class Evidence:
    """Likelihood of one child at each label: ``response ~ N(factor design v, 1 / weight)``.

    The design has axes (labels, n, d); response, weight and factor have axes (labels, n). The
    factor None stands for one. Where a child picks entries of the block along a label axis,
    ``index`` holds these entries and the block's length. ``parts`` are the columns of the design
    for each variable; products with the parts avoid forming the whole design (patches, and a
    column of ones). Where each label has one row, out of a few, ``picked`` holds these rows (n, d)
    and the row of each label.
    """

    design: TensorVariable
    parts: tuple[TensorVariable, ...]
    response: TensorVariable
    weight: TensorVariable
    factor: TensorVariable | None
    index: tuple[tuple[TensorVariable, Length] | None, ...]
    picked: PickedRows | None = None

    @property
    def n_label_axes(self) -> int:
        """Number of label axes."""
        return len(self.index)

    def in_double(self) -> "Evidence":
        """The same in double precision, in which sums keep what the prior says."""
        return replace(
            self,
            design=self.design.astype("float64"),
            parts=tuple(part.astype("float64") for part in self.parts),
            response=self.response.astype("float64"),
            weight=self.weight.astype("float64"),
            factor=None if self.factor is None else self.factor.astype("float64"),
        )

    @property
    def shared_design(self) -> TensorVariable | None:
        """Design (n, d) if it does not vary with the label."""
        if varies(self.design, range(self.n_label_axes)):
            return None
        return self.design.dimshuffle(self.n_label_axes, self.n_label_axes + 1)

    @property
    def shared(self) -> bool:
        """Whether the information matrix does not vary with the label."""
        labels = range(self.n_label_axes)
        return not (
            self.indexed or varies(self.design, labels) or varies(self.design_weight, labels)
        )

    @property
    def weighted_by_label(self) -> bool:
        """Whether the weights of the rows vary with the label."""
        weight, n = self.design_weight, self.n_label_axes
        return varies(weight, [n]) and varies(weight, range(n))

    @property
    def indexed(self) -> bool:
        """Whether the child picks labels."""
        return any(index is not None for index in self.index)

    @property
    def whole_design(self) -> TensorVariable:
        """Design times the factor."""
        return self.design if self.factor is None else self.design * self.factor[..., None]

    @property
    def design_weight(self) -> TensorVariable:
        """Weight of the design without the factor: ``weight factor^2``."""
        return self.weight if self.factor is None else self.weight * pt.sqr(self.factor)

    @property
    def response_weight(self) -> TensorVariable:
        """Weight of the response, ``weight factor``."""
        return self.weight if self.factor is None else self.weight * self.factor

    def information(self) -> TensorVariable:
        """``C^T P C``, with axes (labels, d, d)."""
        design, weight = self.shared_design, self.design_weight
        if design is not None and not varies(weight, [self.n_label_axes]):
            blocks = [self._against_design(part.T) for part in self._shared_parts]
            stacked = blocks[0] if len(blocks) == 1 else pt.concatenate(blocks)
            gram = stacked.dimshuffle(*["x"] * self.n_label_axes, 0, 1)
            return self._gather(gram * weight[..., None])
        weighted = self.design * weight[..., None]
        return self._gather(weighted.mT @ self.design)

    def information_diagonal(self) -> TensorVariable:
        """Diagonal of :meth:`information`, with axes (labels, d)."""
        return self._gather((pt.sqr(self.design) * self.design_weight[..., None]).sum(-2))

    def linear(self) -> TensorVariable:
        """``C^T P (y - o)``, with axes (labels, d)."""
        design, weight = self.shared_design, self.response_weight
        if design is None:
            weighted = weight * self.response
            return self._gather((self.design * weighted[..., None]).sum(-2))
        if varies(weight, [self.n_label_axes]):
            return self._gather(self._against_design(weight * self.response))
        return self._gather(weight * self._against_design(self.response))

    def rows(self, *, in_part: bool) -> "SharedDesign | None":
        """Likelihood through a design that all labels share; None if there is none.

        With ``in_part``, labels that the child does not pick get weight zero; else None if it picks
        some.
        """
        design, weight = self.shared_design, self.design_weight
        score = self.response_weight * self.response
        if self.indexed and not in_part:
            return None
        if self.indexed and self.picked is not None:
            return SharedDesign(self.picked.source, self._put(weight), self._put(score))
        if design is None:
            return None
        return SharedDesign(design, self._gather(weight), self._gather(score))

    def _put(self, array: TensorVariable) -> TensorVariable:
        """Add values of picked rows, (labels, 1), into an array of all rows of all labels."""
        assert self.picked is not None
        [(labels, length)] = (index for index in self.index if index is not None)
        zeros = pt.zeros((length, self.picked.source.shape[0]), dtype=array.dtype)
        spread = expand(array, {0: labels.shape[0]})[:, 0]
        said: TensorVariable = zeros[labels, self.picked.index].inc(spread)
        return said

    @property
    def _shared_parts(self) -> list[TensorVariable]:
        return [part.dimshuffle(self.n_label_axes, self.n_label_axes + 1) for part in self.parts]

    def _against_design(self, array: TensorVariable) -> TensorVariable:
        """Product of an array (..., n) with a design that all labels share."""
        products = [matmul_last(array, part) for part in self._shared_parts]
        return products[0] if len(products) == 1 else pt.concatenate(products, axis=-1)

    def _gather(self, array: TensorVariable) -> TensorVariable:
        """Add up values by the child's labels at the block's labels."""
        for axis, index in enumerate(self.index):
            if index is not None:
                entries, length = index
                spread = expand(array, {axis: entries.shape[0]})
                front = pt.moveaxis(spread, axis, 0)
                zeros = pt.zeros((length, *list(front.shape)[1:]), dtype=array.dtype)
                array = pt.moveaxis(zeros[entries].inc(front), 0, axis)
        return array


@dataclass(frozen=True)
class SharedDesign:
    """Likelihood through shared designs (n, d); weight and score are (labels, n)."""

    design: TensorVariable
    weight: TensorVariable
    score: TensorVariable


def rows_of(
    evidence: Sequence[Evidence], *, in_part: bool = False, apart: bool = False
) -> SharedDesign | None:
    """Stack the likelihoods of children in one shared design; None if they have none.

    Those with the same design share its rows, if not apart.
    """
    found: list[SharedDesign] = []
    for seen in evidence:
        rows = seen.rows(in_part=in_part)
        if rows is None:
            return None
        for i, other in enumerate(found):
            if not apart and equal_computations([rows.design], [other.design]):
                found[i] = SharedDesign(
                    rows.design, other.weight + rows.weight, other.score + rows.score
                )
                break
        else:
            found.append(rows)
    if len(found) < 2:
        return found[0] if found else None
    last = evidence[0].n_label_axes
    full = [expand(rows.weight, {last: rows.design.shape[0]}) for rows in found]

    def labels_of(arrays: Sequence[TensorVariable]) -> dict[int, Length]:
        return {a: x.shape[a] for a in range(last) for x in arrays if varies(x, [a])}

    of_weights, of_scores = labels_of(full), labels_of([rows.score for rows in found])
    return SharedDesign(
        pt.concatenate([rows.design for rows in found]),
        pt.concatenate([expand(weight, of_weights) for weight in full], axis=-1),
        pt.concatenate([expand(rows.score, of_scores) for rows in found], axis=-1),
    )


@dataclass(frozen=True)
class Total:
    """Precision (labels, d, d), or (labels, d) if diagonal, and linear part (labels, d) added."""

    information: TensorVariable
    linear: TensorVariable

    @property
    def shared(self) -> bool:
        """Whether the information matrix does not vary with the label."""
        return not varies(self.information, range(self.linear.ndim - 1))

    def __add__(self, other: "Total") -> "Total":
        """Add the total of other children."""
        return Total(self.information + other.information, self.linear + other.linear)


def total_of(evidence: Sequence[Evidence], *, elementwise: bool) -> Total:
    """Sum the likelihoods of children of a block; ``elementwise``: its entries are independent."""
    matrices = (e.information_diagonal() if elementwise else e.information() for e in evidence)
    return Total(reduce(add, matrices), reduce(add, (e.linear() for e in evidence)))


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
    """Arrange the likelihood of one child by labels, averaged where designs do not vary."""
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
