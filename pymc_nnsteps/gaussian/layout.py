r"""Axes of a Gaussian block: labels, along which its entries are independent, and dense ones.

*Labels* are the axes that every child carries along entry by entry: given the rest, entries of
the block at different labels are independent. *Dense* axes (flattened, size d) are those that
some child sums over. The first axes of an array are the label axes; they have length one where
the array does not vary with the label.

Numbers that sum to zero are held by one coordinate less than there are numbers. The columns of

.. math::

    Q = \begin{pmatrix} I - a\, 1 1^T \\ -b\, 1^T \end{pmatrix}, \qquad
    b = n^{-1/2}, \quad a = (n + n^{1/2})^{-1},

are an orthonormal basis of the vectors of n entries that sum to zero. So independent
:math:`N(0, s^2)`, given that their sum is zero, are :math:`Q u` with n - 1 independent
:math:`u_i \sim N(0, s^2)`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.linear_terms import Length, align, concatenate, expand, flatten, varies
from pymc_nnsteps.graphs.shapes import lengths
from pymc_nnsteps.graphs.values import array_constant, scalar_constant, typed_like
from pymc_nnsteps.random.standard_normal import standard_normal


@dataclass(frozen=True)
class Layout:
    """Variable of the block and its axes (labels, dense); along ``contrasts`` it sums to zero.

    The block holds coordinates there, of which there is one less.
    """

    rv: TensorVariable
    labels: tuple[int, ...]
    dense: tuple[int, ...]
    contrasts: tuple[int, ...] = field(default=(), kw_only=True)

    @property
    def lengths(self) -> list[Length]:
        """Lengths of the variable's axes in the block."""
        return [n - 1 if i in self.contrasts else n for i, n in enumerate(lengths(self.rv))]


@dataclass(frozen=True)
class Member(Layout):
    """Variable of a Gaussian block, with its prior."""

    mean: TensorVariable
    precision: TensorVariable

    @property
    def center(self) -> TensorVariable:
        """Prior mean of what the block holds."""
        return pt.zeros((), self.rv.dtype) if self.contrasts else self.mean


def dense_size(members: Sequence[Layout], shapes: Mapping[TensorVariable, tuple[int, ...]]) -> int:
    """Number of entries of a block at each label."""
    return sum(
        math.prod(shapes[m.rv][axis] - (axis in m.contrasts) for axis in m.dense) for m in members
    )


def block_of(members: Sequence[Layout]) -> TensorVariable:
    """Present values of a block, with axes (labels, d)."""
    label_lengths = tuple(members[0].lengths[axis] for axis in members[0].labels)
    return concatenate([by_label(member, member.rv) for member in members], label_lengths)


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
        for axis in member.contrasts:
            value = entries(value, axis, lengths(member.rv)[axis])
        values[member.rv] = typed_like(member.rv, value)
        start = start + size
    return values


def by_label(member: Layout, parameter: TensorVariable) -> TensorVariable:
    """Parameter of a variable, with axes (labels, d)."""
    n = len(member.labels)
    ordered = align(parameter, member.rv.ndim).dimshuffle(*member.labels, *member.dense)
    full = expand(ordered, {n + i: member.lengths[a] for i, a in enumerate(member.dense)})
    return flatten(full, n, len(member.dense))


def coordinates(array: TensorVariable, axis: int, n: Length) -> TensorVariable:
    """``Q^T`` times an array of n entries along an axis."""
    before = (slice(None),) * axis
    first, last = array[(*before, slice(None, -1))], pt.expand_dims(array[(*before, -1)], axis)
    a, b = _numbers(n, array.dtype)
    return first - (a * first.sum(axis, keepdims=True) + b * last)


def entries(array: TensorVariable, axis: int, n: Length) -> TensorVariable:
    """``Q`` times an array of n - 1 coordinates along an axis."""
    total = array.sum(axis, keepdims=True)
    a, b = _numbers(n, array.dtype)
    return pt.concatenate([array - a * total, -b * total], axis=axis)


def _numbers(n: Length, dtype: str) -> tuple[TensorVariable, TensorVariable]:
    """``a`` and ``b``."""
    number = pt.as_tensor(n).astype(dtype)
    root = pt.sqrt(number)
    return pt.reciprocal(number + root), pt.reciprocal(root)


@dataclass(frozen=True)
class BlockPrior:
    """Independent Normal prior: mean (None: zero) and precision with axes (labels, d)."""

    mean: TensorVariable | None
    precision: TensorVariable
    label_lengths: tuple[Length, ...]

    @property
    def n_label_axes(self) -> int:
        """Number of label axes."""
        return len(self.label_lengths)

    @property
    def shared(self) -> bool:
        """Whether the precision does not vary with the label."""
        return not varies(self.precision, range(self.n_label_axes))

    @property
    def shape(self) -> tuple[Length, ...]:
        """Full shape of the block."""
        return (*self.label_lengths, self.precision.shape[-1])

    @property
    def center(self) -> TensorVariable:
        """The mean as an array."""
        return pt.zeros_like(self.precision) if self.mean is None else self.mean

    def shared_precision(self) -> TensorVariable:
        """The precision (d,) that all labels share."""
        return self.precision.dimshuffle(self.n_label_axes)

    def linear(self, score: TensorVariable | None) -> TensorVariable:
        """``h``, with axes (labels, d), from the linear part of the children, if there are any."""
        if self.mean is None:
            return pt.zeros_like(self.precision) if score is None else score
        own = self.precision * self.mean
        return own if score is None else score + own

    def noise(self, rng: Variable) -> tuple[Variable, TensorVariable]:
        """Draw a standard normal for each entry of the block."""
        return standard_normal(rng, self.shape, self.precision.dtype)

    def with_every_label(self, array: TensorVariable) -> TensorVariable:
        """Array (labels, ...) repeated along the labels that it does not vary with."""
        return expand(array, dict(enumerate(self.label_lengths)))

    def cases(self, array: TensorVariable) -> TensorVariable:
        """Array (labels, ...) with all labels in one axis."""
        return flatten(self.with_every_label(array), 0, self.n_label_axes)

    def cases_or_one(self, array: TensorVariable) -> TensorVariable:
        """Array (labels, ...) with its labels in one axis, of length one if all share it."""
        n = self.n_label_axes
        spread = n > 1 and varies(array, range(n))
        return self.cases(array) if spread else flatten(array, 0, n)

    def block(self, cases: TensorVariable) -> TensorVariable:
        """Entries (cases, d) in the block's axes (labels, d)."""
        return cases if self.n_label_axes == 1 else cases.reshape(self.shape)


def prior_of(members: Sequence[Member]) -> BlockPrior:
    """Prior of a block."""
    label_lengths = tuple(members[0].lengths[axis] for axis in members[0].labels)
    zero = all(scalar_constant(member.center) == 0 for member in members)
    means = [by_label(m, m.center.astype(m.rv.dtype)) for m in members]
    mean = None if zero else concatenate(means, label_lengths)
    precision = concatenate([by_label(m, m.precision) for m in members], label_lengths)
    folded = array_constant(precision)
    return BlockPrior(mean, precision if folded is None else pt.as_tensor(folded), label_lengths)


def with_labels(array: TensorVariable, prior: BlockPrior) -> TensorVariable:
    """Array of a block with an axis of labels, of length one where the block has no labels."""
    return array if prior.label_lengths else array[None]
