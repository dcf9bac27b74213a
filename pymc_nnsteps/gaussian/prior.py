"""Prior of a Gaussian block."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.layout import Member, by_label
from pymc_nnsteps.graphs.arrays import concatenate, expand, flatten, varies
from pymc_nnsteps.graphs.linear_terms import Length
from pymc_nnsteps.graphs.values import array_constant, scalar_constant
from pymc_nnsteps.random.standard_normal import standard_normal


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
