r"""What is seen of a layer of activations from above, for draws without these activations.

Model, for N samples of D units, with whatever the means u depend on:

.. math::

    a_n \sim N(u_n, \Sigma), \qquad y_n \sim N(C a_n, \text{diag}(w_n)^{-1})

where y is what all children say of a; logistic ones say it by Polya-Gamma variables, which are
drawn first and then held until a is drawn afresh. With a integrated out, y is Normal with mean
:math:`C u_n` and covariance :math:`\text{diag}(w_n)^{-1} + C \Sigma C^T`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable, equal_computations
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.layout import Member, by_label
from pymc_nnsteps.gaussian.observation import (
    Child,
    Evidence,
    Observation,
    SharedDesign,
    evidence_of,
    rows_of,
)
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import align, expand, varies
from pymc_nnsteps.graphs.search import given_any
from pymc_nnsteps.graphs.values import array_constant
from pymc_nnsteps.laws.conditional import Conditional, Draw, Group, Shapes
from pymc_nnsteps.laws.gaussian import BinaryObservation, Gaussian, with_any_precision
from pymc_nnsteps.moves.loops.rows import Above


@dataclass(frozen=True)
class Augmentation(Conditional):
    """Polya-Gamma variables of logistic children, held until they are drawn again."""

    name = "Polya-Gamma"
    fixed: Mapping[TensorVariable, BinaryObservation]

    @override
    def group(self, model: pm.Model) -> Group:
        return Group.POST_ACTIVATIONS

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        drawn = {}
        for omega, child in self.fixed.items():
            rng, drawn[omega] = child.draw_precision(rng)
        return Draw(rng, {}, auxiliary=drawn)


@dataclass(frozen=True)
class MarginalLikelihood:
    """What the children of a layer's activations say of them."""

    layer: Member  # the activations, one axis of samples and one of units
    rows: SharedDesign
    # What is to be drawn before anything that uses ``rows``, if anything is.
    before: tuple[Augmentation, ...]
    fresh: Gaussian  # the draw of the activations given everything, that included

    @property
    def activations(self) -> TensorVariable:
        """The random variable."""
        return self.layer.rv

    @property
    def units(self) -> int:
        """The axis of units."""
        return self.layer.dense[0]

    @property
    def samples(self) -> int:
        """The axis of samples."""
        return self.layer.labels[0]

    @property
    def has_one_output(self) -> bool:
        """Whether the layer is seen through one design of one row."""
        return bool(self.rows.design.type.broadcastable[0])

    @property
    def has_outputs_of_samples(self) -> bool:
        """Whether there are several outputs with noise that differs between samples."""
        return not self.has_one_output and varies(self.rows.weight, [0])

    @property
    def apart(self) -> "MarginalLikelihood":
        """The same with rows of its own for each child, and for each of its outputs."""
        evidence = [self.evidence_by(seen.child) for seen in self.fresh.observations]
        rows = rows_of(evidence, in_part=True, apart=True)
        assert rows is not None
        return replace(self, rows=rows)

    def are_of(self, children: Collection[TensorVariable]) -> TensorVariable:
        """One for each of these rows that is of some of the children, else zero, shape (m,)."""
        flags = []
        for seen in self.fresh.observations:
            rows = self.evidence_by(seen.child).rows(in_part=True)
            assert rows is not None
            flags.append(pt.full(rows.design.shape[:1], float(seen.child in children)))
        return pt.concatenate(flags)

    @property
    def sees_entries_once(self) -> bool:
        """Whether no two entries of a child share what they see.

        Their means would be enough for the activations, but not for the scale of the noise.
        """
        return self._has_no_repeats and all(
            _are_apart([_entries_of(child)]) for child in self.fresh.observations
        )

    def has_no_zero_factor(self, child: TensorVariable) -> bool:
        """Whether no entry of a child may see the activations times zero: the rows lack these."""
        factor = self.evidence_by(child).factor
        known = None if factor is None else array_constant(factor)
        return factor is None or (known is not None and bool(np.all(known)))

    @property
    def sees_samples_once(self) -> bool:
        """Whether no two entries of the children see the same sample."""
        return self._has_no_repeats and _are_apart(
            [samples_of(child) for child in self.fresh.observations]
        )

    def are_apart(self, children: Sequence[TensorVariable]) -> bool:
        """Whether it is known that no entries of children see the same sample of an output."""
        seen = [self.seen_by(child) for child in children]
        picked = [each.terms[0].picked for each in seen]
        sources = [row.source for row in picked if row is not None]
        alike = len(sources) in (0, len(seen)) and all(
            equal_computations([source], [sources[0]]) for source in sources
        )
        return len(seen) == 1 or (alike and _are_apart([_entries_of(each) for each in seen]))

    @property
    def sees_in_order(self) -> bool:
        """Whether each child sees all samples in their order, and each of them once."""
        return self._has_no_repeats and all(
            samples_of(child) is None for child in self.fresh.observations
        )

    @property
    def _has_no_repeats(self) -> bool:
        """Whether the entries of each child see parts of the activations of their own."""
        for seen in self.fresh.observations:
            looked_at = (*seen.label_axes, *seen.varying_axes)
            one = seen.child.type.broadcastable
            if not all(axis in looked_at or one[axis] for axis in range(seen.child.ndim)):
                return False
        return True

    def evidence_by(self, child: TensorVariable) -> Evidence:
        """What one of the children says of the activations, by a design."""
        return evidence_of([self.layer], self.seen_by(child))

    def seen_by(self, child: TensorVariable) -> Observation:
        """What one of the children says of the activations."""
        [seen] = [seen for seen in self.fresh.observations if seen.child is child]
        assert isinstance(seen, Observation)
        return seen

    def depends_on(self, rvs: Sequence[TensorVariable]) -> bool:
        """Whether what the children say is itself a matter of some variables."""
        return given_any([self.rows.design, self.rows.weight, self.rows.score], rvs)

    @property
    def variance(self) -> TensorVariable:
        """``Sigma``, shape (units,)."""
        return pt.reciprocal(by_label(self.layer, self.layer.precision).dimshuffle(1))

    @property
    def weight_in_part(self) -> TensorVariable:
        """Shape (n_obs, m), or (1, m) if it is the same for all samples; zero: it is not seen."""
        return expand(self.rows.weight, {1: self.rows.design.shape[0]})

    @property
    def weight(self) -> TensorVariable:
        """The same, not zero."""
        full = self.weight_in_part
        return pt.maximum(full, np.finfo(full.dtype).tiny)

    def above(self, response: TensorVariable, *, in_part: bool = False) -> Above[TensorVariable]:
        """What is seen, ``in_part`` with weights of zero, and the noise that is integrated out."""
        weight = self.weight_in_part if in_part else self.weight
        return Above(self.rows.design, weight, response, self.variance)

    def response(self, offset: TensorVariable | None) -> TensorVariable:
        """What is seen through the design, without the part of the activations' offset."""
        response = self.rows.score / self.weight
        if offset is None:
            return response
        of_units = by_label(self.layer, offset).astype(response.dtype)
        return response - pt.dot(of_units, self.rows.design.T)

    @property
    def residual(self) -> TensorVariable:
        """What is seen through the design, without the part of the activations' mean."""
        return self.response(self.layer.mean)


def samples_of(child: Child) -> TensorVariable | None:
    """The sample that each entry of a child sees; None if it sees all of them in order."""
    [index] = [link.index for link in child.terms[0].links if link is not None] or [None]
    return index


def _entries_of(child: Child) -> TensorVariable | None:
    """The same, counted with the output where each entry of a child sees one of several."""
    index, row = samples_of(child), child.terms[0].picked
    return index if index is None or row is None else index * row.source.shape[0] + row.index


def _are_apart(picked: Sequence[TensorVariable | None]) -> bool:
    """Whether it is known that nothing is picked twice; None stands for all there is."""
    if len(picked) == 1 and picked[0] is None:
        return True
    numbers = [None if index is None else array_constant(index) for index in picked]
    known = [index for index in numbers if index is not None]
    together = np.concatenate(known) if known else np.empty(0)
    return len(known) == len(numbers) and len(np.unique(together)) == together.size


def marginal_likelihood(activations: Gaussian, *, of_positions: bool = False) -> MarginalLikelihood:
    """What the children of activations say; ``of_positions`` allows units with several axes."""
    [layer, *others] = activations.members
    a = layer.rv
    if others or len(layer.labels) != 1 or not (of_positions or len(layer.dense) == 1):
        raise NotConjugate(
            f"{describe(a)} is not a layer with one axis of samples and one of units"
        )
    if varies(align(layer.precision, a.ndim), layer.labels):
        raise NotConjugate(f"the noise of {describe(a)} differs between samples")
    held: dict[TensorVariable, BinaryObservation] = {}
    observations: list[Observation] = []
    for child in activations.observations:
        if isinstance(child, BinaryObservation):
            omega = child.half.type(name=f"omega of {describe(child.child)}")
            held[omega] = child
            observations.append(child.given(omega))
        else:
            observations.append(with_any_precision(child))
    evidence = [evidence_of(activations.members, seen) for seen in observations]
    rows = rows_of(evidence, in_part=True)
    if rows is None:
        raise NotConjugate(f"the children of {describe(a)} do not depend on all its samples alike")
    before = (Augmentation((), held),) if held else ()
    return MarginalLikelihood(
        layer, rows, before, replace(activations, observations=tuple(observations))
    )


@dataclass(frozen=True)
class WithoutLayer(Conditional):
    """A draw with a layer's activations integrated out."""

    likelihood: MarginalLikelihood

    @property
    @override
    def integrates_out(self) -> tuple[TensorVariable, ...]:
        return (self.likelihood.activations,)
