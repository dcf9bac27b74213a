r"""Weights behind binary gates moved with these gates summed out.

Given the gates of a unit the sign of its pre-activations is all but known, so that its kink moves
only as fast as single gates flip. The move here changes a row of the weights whatever its own
gates are, and draws these afresh after it. It is for gates what :mod:`.interweaving` is for
piecewise-linear activations, where a piece is hard and an open gate has a probability. Model, for
the rows :math:`W_a` of a layer with inputs :math:`\tilde x`, activations that are integrated out,
and, for all samples n, :math:`t_{na} = \tilde x_n \cdot W_a`:

.. math::

    W_a &\sim N(\mu_a, \Lambda_a^{-1}), \qquad
    \operatorname{logit} P(\gamma_{na} = 1) = \ell_{na} = \alpha_{na} + \beta_{na} t_{na}, \\
    y_n \mid \gamma &\sim N(C u_n, V_n), \qquad u_{na} = \gamma_{na} m_{na}, \quad
    m_{na} = \delta_{na} + \epsilon_{na} t_{na}

with y and :math:`V_n = \text{diag}(w_n)^{-1} + C \Sigma C^T` as in :mod:`.marginal_likelihood` (of
a bow tie :math:`\ell = z / T` and :math:`m = z`). For one row, the gates of the other units kept,
with :math:`c_n = C_a^T V_n^{-1} C_a` and
:math:`g_n = C_a^T V_n^{-1} (y_n - \sum_{j \ne a} C_j u_{nj})`, the density is

.. math::

    \log p(W_a \mid y) = -\tfrac12 (W_a - \mu_a)^T \Lambda_a (W_a - \mu_a)
    + \sum_n \log[s_n e^{g_n m_n - \frac12 c_n m_n^2} + 1 - s_n] + \text{const},
    \qquad s_n = \sigma(\ell_n).

With the probability :math:`p_n = \sigma(\ell_n + g_n m_n - \tfrac12 c_n m_n^2)` of an open gate,

.. math::

    \nabla &= -\Lambda_a (W_a - \mu_a)
    + \sum_n [p_n (g_n - c_n m_n) \epsilon_n + (p_n - s_n) \beta_n] \tilde x_n, \\
    P &= \Lambda_a + \sum_n p_n c_n \epsilon_n^2 \tilde x_n \tilde x_n^T.

Proposal: a Crank-Nicolson step in the local Gaussian,

.. math:: W_a' = W_a + (1 - \rho) P^{-1} \nabla + \sqrt{1 - \rho^2}\, P^{-1/2} \xi,

accepted with the ratio of Metropolis and Hastings, the proposal back being that of
:math:`\nabla` and P at :math:`W_a'`, with determinants. Then the row's gates are drawn from
Bernoulli(p). Rows are moved in turn, in several passes. Where V differs between samples (below a
layer that is seen by Polya-Gamma variables), what each sample knows of a unit is held for as many
units at a time as fit into memory, and computed again in each pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import override

import pytensor.tensor as pt
from pytensor.graph.basic import Variable, equal_computations
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.gaussian.layout import prior_of, with_labels
from pymc_nnsteps.gaussian.observation import Evidence, Observation, evidence_of
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import expand
from pymc_nnsteps.graphs.search import given_any
from pymc_nnsteps.graphs.values import substitute_given, typed_like
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.laws.gaussian import Gaussian, with_any_precision
from pymc_nnsteps.laws.piecewise import GateConditional
from pymc_nnsteps.moves.interweaving import InterwovenRows
from pymc_nnsteps.moves.loops.interwoven_gates import GatedUnits, move_gated_rows
from pymc_nnsteps.moves.marginal_likelihood import marginal_likelihood
from pymc_nnsteps.moves.plan import Context, proposes
from pymc_nnsteps.random.op import uniform
from pymc_nnsteps.random.standard_normal import standard_normal

SMALL_LAYER = 1500
"""Number of a layer's weights up to which they are moved, however long its rows are."""


@dataclass(frozen=True)
class InterwovenGates(InterwovenRows):
    """Rows of a layer's weights with its gates, its activations integrated out."""

    gates: GateConditional
    weights: Gaussian

    @override
    def why_slow(self, shapes: Shapes) -> str | None:
        size = self.n_tuned(shapes) * self.row_length(shapes)
        return super().why_slow(shapes) if size > SMALL_LAYER else None

    def gated_units(self) -> GatedUnits[TensorVariable]:
        """Gates with odds and levels, by unit."""
        [gates], members = self.gates.draws, self.members
        prior = prior_of(members)
        through = {
            seen.child: evidence_of(members, with_any_precision(seen))
            for seen in self.weights.observations
        }
        units, n_obs = self.n_units, self.inputs.shape[0]

        # Logits and levels are inputs times weights and times these factors.
        def factor_of(seen: Evidence) -> TensorVariable:
            factor = pt.ones_like(seen.weight) if seen.factor is None else seen.factor
            return expand(with_labels(factor, prior), {0: units, 1: n_obs})

        by_gates = through.get(gates)
        logit_factor = pt.zeros((units, n_obs)) if by_gates is None else factor_of(by_gates)
        [level_factor] = substitute_given(
            [factor_of(through[self.likelihood.activations])], {gates: pt.ones_like(gates)}
        )
        [behind_gates] = self.gates.observations
        level = behind_gates.terms[0].whole().coefficient.dimshuffle(0, 1)
        return GatedUnits(
            gates.T.astype("float64"),
            pt.broadcast_to(self.gates.logit, gates.shape).T,
            logit_factor,
            pt.broadcast_to(level, gates.shape).T,
            level_factor,
        )

    def response(self) -> TensorVariable:
        """What is seen of the activations without their part behind closed gates, (n_obs, m)."""
        [behind_gates], [gates] = self.gates.observations, self.gates.draws
        response = self.likelihood.response(behind_gates.offset)
        return expand(response, {0: gates.shape[0]})

    def values_of(
        self, rows: TensorVariable, opened: TensorVariable
    ) -> dict[TensorVariable, TensorVariable]:
        """Values of the variables that rows of weights and gates by unit are."""
        [gates] = self.gates.draws
        return {**self.values_of_weights(rows), gates: typed_like(gates, opened.T)}

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        weights, gates = self.weights_by_unit(), self.gated_units()
        units, n_obs = gates.gates.shape
        rng, normal = standard_normal(rng, (self.passes, units, self.inputs.shape[1]), "float64")
        rng, refresh = uniform(rng, (self.passes, units, n_obs))
        rng, accept = uniform(rng, (self.passes, units))
        rows, moved, acceptance = as_op(move_gated_rows, 2, 2, 1)(
            weights,
            gates,
            self.likelihood.above(self.response()),
            self.tuning,
            normal,
            refresh,
            accept.astype("float64"),
        )
        return Draw(rng, self.values_of(rows, moved), acceptance=acceptance)


@proposes(priority=100)
def propose_interwoven_gates(context: Context) -> None:
    """Propose to move weights with the gates behind them, in place of other draws of them."""
    blocks = context.blocks
    if context.options.interweave is False:
        return
    activations = {b.draws[0]: b for b in blocks if isinstance(b, Gaussian) and len(b.draws) == 1}
    for block in blocks:
        if not isinstance(block, GateConditional) or len(block.observations) != 1:
            continue
        [gates], a = block.draws, block.observations[0].child
        if a not in activations:
            continue
        move = context.read(gates, "interwoven", _quick, context, activations[a])
        if move is None:
            continue
        likelihood = move.likelihood
        draws = (*likelihood.before, move, likelihood.fresh)
        context.put(draws, at=activations[a], removes=(move.gates, move.weights))
        context.layers[a] = likelihood


def _quick(context: Context, activations: Gaussian) -> InterwovenGates:
    move = match_interwoven_gates(activations, context.blocks, context.options.passes)
    return move.unless_slow(context.options, context.shapes)


def match_interwoven_gates(
    activations: Gaussian, conditionals: Sequence[Conditional], passes: int
) -> InterwovenGates:
    """Find the gates and the weights of activations, to be moved together."""
    likelihood = marginal_likelihood(activations)
    a = likelihood.activations
    if (likelihood.samples, likelihood.units) != (0, 1):
        raise NotConjugate(
            f"{describe(a)} is not a layer with rows of samples and columns of units"
        )
    its_gates = [
        c
        for c in conditionals
        if isinstance(c, GateConditional) and [seen.child for seen in c.observations] == [a]
    ]
    switched = [gates.observations[0].terms[0].whole().coefficient for gates in its_gates]
    its_weights = [
        c
        for c in conditionals
        if isinstance(c, Gaussian) and _seen_by(a, c) and given_any(switched, c.draws)
    ]
    if len(its_gates) != 1 or len(its_weights) != 1:
        raise NotConjugate(f"{describe(a)} has no gates and weights of its own")
    [gates], [weights] = its_gates, its_weights
    inputs = _inputs(gates, weights)
    if inputs is None:
        raise NotConjugate(f"{describe(a)} has gates or weights with different axes")
    if likelihood.depends_on([*gates.draws, *weights.draws]):
        raise NotConjugate(f"a child of {describe(a)} also depends on its gates or weights")
    others = {seen.child for seen in weights.observations} - {a, *gates.draws}
    if others:
        names = ", ".join(sorted(map(describe, others)))
        raise NotConjugate(
            f"{describe(weights.draws[0])} enters {names} besides {describe(gates.draws[0])} "
            f"and {describe(a)}"
        )
    closed = gates.observations[0].offset
    if closed is not None and given_any([closed], weights.draws):
        names = describe(weights.draws[0])
        raise NotConjugate(f"{describe(a)} depends on {names} even where its gates are closed")
    return InterwovenGates(
        (*weights.draws, *gates.draws),
        likelihood,
        weights.members,
        inputs,
        passes,
        gates,
        weights,
        tuning=pt.dvector(f"rho of {describe(gates.draws[0])}"),
    )


def _seen_by(a: TensorVariable, weights: Gaussian) -> bool:
    """Whether activations see a block that all samples share, one label for each unit."""
    units = [] if a.type.broadcastable[1] and not weights.members[0].labels else [1]
    return any(
        child.child is a and isinstance(child, Observation) and child.label_axes == units
        for child in weights.observations
    )


def _inputs(gates: GateConditional, weights: Gaussian) -> TensorVariable | None:
    """Inputs by which all children see the weights, if each entry of activations has its gate."""
    [term] = gates.observations[0].terms
    links = [link.axis if link and link.index is None else None for link in term.links]
    if links != [0, 1] or len(weights.members[0].labels) > 1:
        return None
    evidence = [
        evidence_of(weights.members, with_any_precision(seen)) for seen in weights.observations
    ]
    first, *others = [None if seen.indexed else seen.shared_design for seen in evidence]
    alike = all(
        x is not None and first is not None and equal_computations([x], [first]) for x in others
    )
    return first if alike else None
