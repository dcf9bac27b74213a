"""Arrays of a Gaussian block: its axes (labels, dense), its prior, its children's evidence.

*Labels* are the axes that every child carries along entry by entry: given the rest, entries of
the block at different labels are independent. *Dense* axes (flattened, size d) are the ones that
some child sums over. Arrays here have one axis per label axis first, of length one where they do
not vary with the label.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import constant_fold
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.axes import (
    align,
    concatenate,
    expand,
    flatten,
    matmul_last,
    varies,
)
from pymc_nnsteps.conditionals.structure import (
    lengths,
    scalar_constant,
    stated_lengths,
    typed_like,
)
from pymc_nnsteps.conditionals.terms import Length, Term


@dataclass(frozen=True)
class Member:
    """A variable of the block, its prior, and its axes in the order (labels, dense)."""

    rv: TensorVariable
    mean: TensorVariable
    precision: TensorVariable
    labels: tuple[int, ...]
    dense: tuple[int, ...]

    @property
    def lengths(self) -> list[Length]:
        """Lengths of the variable's axes."""
        return lengths(self.rv)


@dataclass(frozen=True)
class Observation:
    """A Gaussian child: ``residual = sum of terms + noise``, with the noise's precision.

    Of a Bernoulli child with a ``logit`` (the sum of terms and ``offset``), ``residual`` is
    ``y - 1/2`` until its precision has been drawn (:func:`.gates.augmented`).
    """

    child: TensorVariable
    residual: TensorVariable
    precision: TensorVariable
    terms: tuple[Term, ...]
    logit: TensorVariable | None = None
    offset: TensorVariable | None = None

    @property
    def label_axes(self) -> list[int]:
        """Axes of the child that carry an axis of the block's first variable, in child order."""
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
class Prior:
    """Independent Normal prior: mean (None: zero) and precision with axes (labels, d)."""

    mean: TensorVariable | None
    precision: TensorVariable
    label_lengths: tuple[Length, ...]

    @property
    def shared(self) -> bool:
        """Whether the precision does not vary with the label."""
        return not varies(self.precision, range(len(self.label_lengths)))

    @property
    def shape(self) -> tuple[Length, ...]:
        """True shape of the block."""
        return (*self.label_lengths, self.precision.shape[-1])

    def shared_precision(self) -> TensorVariable:
        """The precision (d,) that all labels share."""
        return self.precision.dimshuffle(len(self.label_lengths))


@dataclass(frozen=True)
class Evidence:
    """What one child says of the block: ``response ~ N(design v, 1 / weight)`` at each label.

    Axes: design (labels, n, d), response and weight (labels, n). ``index`` holds, for a label
    axis at which the child picks entries of the block, the entries and the block's length.
    """

    design: TensorVariable
    response: TensorVariable
    weight: TensorVariable
    index: tuple[tuple[TensorVariable, Length] | None, ...]

    @property
    def n_label_axes(self) -> int:
        """Number of label axes."""
        return len(self.index)

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
        indexed = any(index is not None for index in self.index)
        return not (indexed or varies(self.design, labels) or varies(self.weight, labels))

    def information(self) -> TensorVariable:
        """``C^T P C``, with axes (labels, d, d)."""
        design = self.shared_design
        if design is not None and not varies(self.weight, [self.n_label_axes]):
            gram = pt.dot(design.T, design).dimshuffle(*["x"] * self.n_label_axes, 0, 1)
            return self._gather(gram * self.weight[..., None])
        weighted = self.design * self.weight[..., None]
        return self._gather(weighted.mT @ self.design)

    def information_diagonal(self) -> TensorVariable:
        """Diagonal of :meth:`information`, with axes (labels, d)."""
        return self._gather((pt.sqr(self.design) * self.weight[..., None]).sum(-2))

    def linear(self) -> TensorVariable:
        """``C^T P (y - o)``, with axes (labels, d)."""
        design = self.shared_design
        if design is None:
            weighted = self.weight * self.response
            return self._gather((self.design * weighted[..., None]).sum(-2))
        if varies(self.weight, [self.n_label_axes]):
            return self._gather(matmul_last(self.weight * self.response, design))
        return self._gather(self.weight * matmul_last(self.response, design))

    def _gather(self, array: TensorVariable) -> TensorVariable:
        """Sum what the child's labels say into the block's labels."""
        for axis, index in enumerate(self.index):
            if index is not None:
                entries, length = index
                spread = expand(array, {axis: entries.shape[0]})
                front = pt.moveaxis(spread, axis, 0)
                zeros = pt.zeros((length, *list(front.shape)[1:]), dtype=array.dtype)
                array = pt.moveaxis(zeros[entries].inc(front), 0, axis)
        return array


def prior_of(members: Sequence[Member]) -> Prior:
    """Prior of a block."""
    label_lengths = tuple(members[0].lengths[axis] for axis in members[0].labels)
    zero = all(scalar_constant(member.mean) == 0 for member in members)
    mean = None if zero else concatenate([_flat(m, m.mean) for m in members], label_lengths)
    precision = concatenate([_flat(m, m.precision) for m in members], label_lengths)
    [folded] = constant_fold([precision], raise_not_constant=False)
    if isinstance(folded, np.ndarray):
        precision = pt.as_tensor(folded)
    return Prior(mean, precision, label_lengths)


def _flat(member: Member, parameter: TensorVariable) -> TensorVariable:
    """A prior parameter with axes (labels, d)."""
    n = len(member.labels)
    ordered = align(parameter, member.rv.ndim).dimshuffle(*member.labels, *member.dense)
    full = expand(ordered, {n + i: member.lengths[a] for i, a in enumerate(member.dense)})
    return flatten(full, n, len(member.dense))


def evidence_of(members: Sequence[Member], seen: Observation) -> Evidence:
    """Arrange what one child says by labels.

    Axes of the child along which the design does not vary are averaged first: the mean,
    weighted by the precisions, is sufficient.
    """
    child, links = seen.child, seen.terms[0].links
    if len(members) == 1:
        label_axes = sorted(
            seen.label_axes,
            key=lambda axis: members[0].labels.index(links[axis].axis),  # type: ignore[union-attr]
        )
    else:
        label_axes = seen.label_axes
    n = len(label_axes)
    varying = seen.varying_axes
    repeated = [a for a in range(child.ndim) if a not in label_axes and a not in varying]
    order = (*label_axes, *varying, *repeated)
    n_kept = n + len(varying)
    weight = align(seen.precision, child.ndim).dimshuffle(order)
    response = seen.residual.dimshuffle(order)
    if repeated:
        total = weight.sum(tuple(range(n_kept, child.ndim)))
        count = [child.shape[a] for i, a in enumerate(repeated) if not varies(weight, [n_kept + i])]
        total = reduce(lambda a, b: a * b, count, total).astype(weight.dtype)
        response = (weight * response).sum(tuple(range(n_kept, child.ndim))) / total
        weight = total
    spread: dict[int, Length] = {}
    stated = stated_lengths(child)
    for i, axis in enumerate(varying):
        [term, *_] = [term for term in seen.terms if term.varies_along(axis)]
        length = stated[axis]
        spread[n + i] = term.coefficient.shape[axis] if length is None else length
    if varies(weight, spread):
        weight = flatten(expand(weight, spread), n, len(varying))
    else:
        weight = weight.dimshuffle(*range(n), "x")
    designs = []
    for member, term in zip(members, seen.terms, strict=True):
        dense = [child.ndim + axis for axis in member.dense]
        design = term.coefficient.dimshuffle(*label_axes, *varying, *dense)
        full = {n_kept + i: member.lengths[axis] for i, axis in enumerate(member.dense)}
        design = flatten(expand(design, spread | full), n_kept, len(dense))
        designs.append(flatten(design, n, len(varying)))
    index = []
    for axis in label_axes:
        link = links[axis]
        assert link is not None
        length = members[0].lengths[link.axis]
        index.append(None if link.index is None else (link.index, length))
    design = concatenate(designs, [child.shape[axis] for axis in label_axes])
    return Evidence(design, flatten(response, n, len(varying)), weight, tuple(index))


def split(block: TensorVariable, members: Sequence[Member]) -> dict[TensorVariable, TensorVariable]:
    """Values of the variables of a block with axes (labels, d)."""
    values: dict[TensorVariable, TensorVariable] = {}
    start: TensorVariable | int = 0
    for member in members:
        axes = (*member.labels, *member.dense)
        shape = [member.lengths[axis] for axis in axes]
        size = reduce(lambda a, b: a * b, shape[len(member.labels) :], 1)
        part = block if len(members) == 1 else block[..., start : start + size]
        if len(member.dense) != 1:
            part = part.reshape(shape)
        value = part.dimshuffle(*(axes.index(axis) for axis in range(member.rv.ndim)))
        values[member.rv] = typed_like(member.rv, value)
        start = start + size
    return values
