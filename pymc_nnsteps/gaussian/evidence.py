"""Likelihood of the children of a Gaussian block, label by label, and sums over its rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import pytensor.tensor as pt
from pytensor.graph.basic import equal_computations
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.linear_terms import Length, PickedRows, expand, matmul_last, varies


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
        """Likelihood of the child through a design that all labels share.

        None if there is no such design, or if the child picks labels without ``in_part``. With
        ``in_part``, labels that the child does not pick get weight zero.
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
    """Likelihood of children through designs that all labels share.

    The design has axes (n, d); weight and score, ``weight response``, have axes (labels, n).
    """

    design: TensorVariable
    weight: TensorVariable
    score: TensorVariable


def rows_of(
    evidence: Sequence[Evidence], *, in_part: bool = False, apart: bool = False
) -> SharedDesign | None:
    """Stack the likelihoods of children; those with the same design share its rows, if not apart.

    None if a design varies with the label, if a child picks labels without ``in_part``, or if
    there are no children.
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
    """Precision and linear part that children add to a block.

    The information has axes (labels, d, d), or (labels, d) for a block whose entries are
    independent; the linear part has axes (labels, d). Totals of other rows can be added.
    """

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
    return Total(
        reduce(
            add,
            (
                seen.information_diagonal() if elementwise else seen.information()
                for seen in evidence
            ),
        ),
        reduce(add, (seen.linear() for seen in evidence)),
    )
