"""Axes of a Gaussian block: labels, along which its entries are independent, and dense ones.

*Labels* are the axes that every child carries along entry by entry: given the rest, entries of
the block at different labels are independent. *Dense* axes (flattened, size d) are those that
some child sums over. The first axes of an array are the label axes; they have length one where
the array does not vary with the label.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.contrasts import entries
from pymc_nnsteps.graphs.arrays import align, concatenate, expand, flatten
from pymc_nnsteps.graphs.lengths import lengths
from pymc_nnsteps.graphs.linear_terms import Length
from pymc_nnsteps.graphs.values import typed_like


@dataclass(frozen=True)
class Layout:
    """Variable of the block and its axes in the order (labels, dense).

    Along the axes ``contrasts`` its entries sum to zero. The block holds their coordinates there
    (:mod:`.contrasts`), of which there is one less.
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
