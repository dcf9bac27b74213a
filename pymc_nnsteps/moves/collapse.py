r"""A layer's gates and weights drawn with its activations integrated out.

With little noise in a hidden layer its gates :math:`\gamma`, its weights W and its activations a
are nearly functions of each other, so that drawing each given the others moves by steps of the
size of the noise. Model, for a layer of N samples and D units with inputs :math:`\tilde x`:

.. math::

    a_n \sim N(u_n, \Sigma), \quad u_{nd} = \gamma_{nd} W_d \tilde x_n, \qquad
    y_n \sim N(C a_n, \text{diag}(w_n)^{-1})

where y is what the layer above says of a. With a integrated out, y is Normal with mean
:math:`C u_n` and covariance :math:`V_n = \text{diag}(w_n)^{-1} + C \Sigma C^T`. Then
(Sheinkman and Wade's model; with :math:`K_n = C^T V_n^{-1} C` and :math:`k_n = C^T V_n^{-1} y_n`)

.. math::

    \operatorname{logit} P(\gamma_{nd} = 1) &= \operatorname{logit} p_{nd}
    + z_d (k_d - \textstyle\sum_{d' \ne d} K_{dd'} u_{d'}) - \tfrac12 K_{dd} z_d^2,
    \qquad z_d = W_d \tilde x_n, \\
    \operatorname{vec}(W) &\sim N(P^{-1} h, P^{-1}), \quad
    P = \Lambda + \textstyle\sum_n [\text{diag}(\gamma_n) K_n \text{diag}(\gamma_n)
    + \text{diag}(\omega_n)] \otimes \tilde x_n \tilde x_n^T

with whatever else is seen of :math:`z` in :math:`\omega` and h.

A sweep draws, one after another: the precisions by which logistic children see a, which are then
held; the gates; the weights; and a itself, given these precisions. Between the first and the
last of these nothing else is drawn, so that nothing is given an activation that is not up to date
(:mod:`.contract` checks it).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import override

import pytensor.tensor as pt
from pytensor.graph.basic import Variable, equal_computations
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.evidence import rows_of
from pymc_nnsteps.gaussian.factor import draw_from_factor
from pymc_nnsteps.gaussian.layout import prior_of, split, with_labels
from pymc_nnsteps.gaussian.observation import Child, Observation, evidence_of
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import expand
from pymc_nnsteps.graphs.search import given_any
from pymc_nnsteps.graphs.shapes import lengths
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.kernels.ops import collapsed_information, draw_collapsed_gates, refuse_lost
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.laws.gates import GateConditional
from pymc_nnsteps.laws.gaussian import Gaussian, augmented, with_any_precision
from pymc_nnsteps.moves.contract import Context, proposes
from pymc_nnsteps.moves.marginal_likelihood import (
    MarginalLikelihood,
    WithoutLayer,
    marginal_likelihood,
)
from pymc_nnsteps.random.op import uniform
from pymc_nnsteps.random.standard_normal import standard_normal


@dataclass(frozen=True)
class CollapsedGates(WithoutLayer):
    """Gates in turn, with the activations behind them integrated out."""

    name = "Bernoulli, collapsed"
    gates: GateConditional

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [gates] = self.draws
        [seen] = self.gates.observations
        [term] = seen.terms
        rng, level = uniform(rng, lengths(gates))
        slope = term.whole().coefficient.dimshuffle(0, 1)
        value = draw_collapsed_gates(
            pt.broadcast_to(self.gates.logit, gates.shape),
            pt.broadcast_to(slope, gates.shape),
            gates.astype(level.dtype),
            self.likelihood.above(self.likelihood.response(seen.offset)),
            level,
        )
        return Draw(rng, {gates: typed_like(gates, value)})


@dataclass(frozen=True)
class CollapsedWeights(WithoutLayer):
    """The weights of all units of a layer jointly, with its activations integrated out."""

    name = "Gaussian, collapsed"
    weights: Gaussian
    seen: Observation

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        members = self.weights.members
        evidence = []
        for child in self.weights.observations:
            if child.child is not self.likelihood.activations:
                rng, observation = augmented(rng, child)
                evidence.append(evidence_of(members, observation))
        through = evidence_of(members, self.seen)
        inputs = through.shared_design
        assert inputs is not None
        prior = prior_of(members)
        n_units, n_obs = self.likelihood.rows.design.shape[1], inputs.shape[0]
        factor = pt.ones_like(through.weight) if through.factor is None else through.factor
        own = rows_of(evidence)
        zero = pt.zeros((n_units, n_obs), inputs.dtype)

        def per_case(array: TensorVariable) -> TensorVariable:
            return expand(with_labels(array, prior), {0: n_units, 1: n_obs})

        information, score = collapsed_information(
            inputs,
            per_case(factor).T,
            (zero if own is None else per_case(own.weight)).T,
            self.likelihood.above(self.likelihood.response(self.seen.offset)),
        )
        total = score.T if own is None else score.T + own.score
        linear = pt.dot(total, inputs)
        precision = expand(with_labels(prior.precision, prior), {0: n_units})
        if prior.mean is not None:
            linear = linear + prior.precision * prior.mean
        matrix = information + pt.diag(precision.ravel())
        root = cholesky(matrix, lower=True)
        rng, noise = standard_normal(rng, prior.shape, precision.dtype)
        drawn = draw_from_factor(root, linear.ravel(), noise.ravel())
        drawn = drawn.reshape((n_units, prior.shape[-1]))
        rows = refuse_lost(pt.diagonal(matrix), pt.diagonal(root), drawn)
        return Draw(rng, split(rows if prior.label_lengths else rows[0], members))


LARGEST_COLLAPSED = 1500
"""Number of a layer's weights up to which they are drawn jointly where that is left open."""


@dataclass(frozen=True)
class CollapsedLayer:
    """The draws of a layer, in the order in which they must follow each other."""

    gates: GateConditional
    weights: Gaussian
    likelihood: MarginalLikelihood
    draws: tuple[Conditional, ...]


@proposes(priority=200)
def propose_collapsed(context: Context) -> None:
    """Propose to collapse layers behind binary gates that have no draws of another kind."""
    collapse, blocks = context.options.collapse, context.blocks
    if collapse is False:
        return
    gates = [block for block in blocks if isinstance(block, GateConditional)]
    behind_gates = {seen.child for block in gates for seen in block.observations}
    for block in blocks:
        if not isinstance(block, Gaussian) or behind_gates.isdisjoint(block.draws):
            continue
        [a, *_] = block.draws
        if a in context.layers:
            continue
        layer = context.read(a, "collapsed", _quick, context, block)
        if layer is None:
            continue
        context.put(layer.draws, at=block, removes=(layer.gates, layer.weights))
        context.layers[a] = layer.likelihood
    if collapse is True and not context.layers:
        raise ValueError(
            "collapse is True, but no activations behind binary gates are drawn together with "
            'their gates and weights; use "auto".'
        )


def _quick(context: Context, activations: Gaussian) -> CollapsedLayer:
    """The layer of activations, if it is asked for or small."""
    layer = match_collapsed(activations, context.blocks)
    size = sum(math.prod(context.shapes[rv]) for rv in layer.weights.draws)
    if context.options.collapse == "auto" and size > LARGEST_COLLAPSED:
        raise NotConjugate(
            f"its layer has {size} weights, more than {LARGEST_COLLAPSED} (collapse=True overrides "
            "this)"
        )
    return layer


def match_collapsed(activations: Gaussian, conditionals: Sequence[Conditional]) -> CollapsedLayer:
    """Find the gates and the weights of activations, to be drawn without these."""
    likelihood = marginal_likelihood(activations)
    a = likelihood.activations
    if (likelihood.samples, likelihood.units) != (0, 1):
        raise NotConjugate(
            f"{describe(a)} is not a layer with rows of samples and columns of units"
        )
    gates = [
        c
        for c in conditionals
        if isinstance(c, GateConditional) and [seen.child for seen in c.observations] == [a]
    ]
    weights = [
        c
        for c in conditionals
        if isinstance(c, Gaussian) and _seen_by(a, c) and any(_behind(g, c) for g in gates)
    ]
    if len(gates) != 1 or len(weights) != 1:
        raise NotConjugate(f"{describe(a)} has no gates and weights of its own")
    seen = _seen_by(a, weights[0])
    if seen is None or not _fits(gates[0], weights[0]):
        raise NotConjugate(f"{describe(a)} has gates or weights with different axes")
    if likelihood.depends_on([*gates[0].draws, *weights[0].draws]):
        raise NotConjugate(f"a child of {describe(a)} also depends on its gates or weights")
    draws: tuple[Conditional, ...] = (
        *likelihood.before,
        CollapsedGates(gates[0].draws, likelihood, gates[0]),
        CollapsedWeights(weights[0].draws, likelihood, weights[0], seen),
        likelihood.fresh,
    )
    return CollapsedLayer(gates[0], weights[0], likelihood, draws)


def _seen_by(a: TensorVariable, weights: Gaussian) -> Observation | None:
    """What the activations say of a block that all samples share, one label for each unit."""
    units = [] if a.type.broadcastable[1] and not weights.members[0].labels else [1]
    for child in weights.observations:
        if child.child is a and isinstance(child, Observation) and child.label_axes == units:
            return child
    return None


def _behind(gates: GateConditional, weights: Gaussian) -> bool:
    """Whether gates switch what depends on a block."""
    [term] = gates.observations[0].terms
    return given_any([term.whole().coefficient], weights.draws)


def _fits(gates: GateConditional, weights: Gaussian) -> bool:
    """Whether gates and weights stand to the activations as those of a layer."""
    [gate_term] = gates.observations[0].terms
    links = [link.axis if link and link.index is None else None for link in gate_term.links]
    return (
        links == [0, 1]
        and len(weights.members[0].labels) <= 1
        and _share_inputs(weights, weights.observations)
    )


def _share_inputs(weights: Gaussian, children: Sequence[Child]) -> bool:
    """Whether all children see the weights through the same inputs."""
    evidence = [evidence_of(weights.members, with_any_precision(child)) for child in children]
    designs = [seen.shared_design for seen in evidence]
    first = designs[0]
    return first is not None and all(
        other is not None and not seen.indexed and equal_computations([other], [first])
        for other, seen in zip(designs, evidence, strict=True)
    )
