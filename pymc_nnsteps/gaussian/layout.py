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
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.arrays import align, concatenate, expand, flatten
from pymc_nnsteps.graphs.linear_terms import Length
from pymc_nnsteps.graphs.shapes import lengths
from pymc_nnsteps.graphs.values import typed_like


@dataclass(frozen=True)
class Layout:
    """Variable of the block and its axes in the order (labels, dense).

    Along the axes ``contrasts`` its entries sum to zero. The block holds their coordinates there,
    of which there is one less.
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
