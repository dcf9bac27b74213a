r"""Hamiltonian trajectories of a layer's weights with those that outputs see it through.

Given the outgoing weights a unit keeps its sign and its place, and so does the bias of an output:
what a network says is shared out among its units and biases by small steps only. Here all weights
of a layer and above it move at once, with the noise of the pre-activations kept and the
activations integrated out. Model, with a piecewise-linear activation :math:`\sigma`, activations X
that are integrated out, D units, m outputs, of which each sample has some, and their biases b,

.. math::

    w_a \sim N(\mu_a, \Lambda_a^{-1}), \qquad z_{na} = \tilde x_n \cdot w_a + e_{na}, \qquad
    v_a \sim N(\nu_a, \lambda_a^{-1}), \qquad b \sim N(\beta, \kappa^{-1}), \\
    y_n \mid Z \sim N(b + \textstyle\sum_a v_a \sigma(z_{na}), V_n), \qquad
    V_n = \text{diag}(s_n^2) + \sum_a \tau_a v_a v_a^T .

The coordinates are :math:`(w, v, b)`, and shifts u of :math:`\log s^2` where a scale s is drawn
that is that of all samples of some outputs. The potential energy is minus the log of

.. math::

    \prod_n N(y_n;\ b + \textstyle\sum_a v_a \sigma(\tilde x_n \cdot w_a + e_{na}),\ V_n)
    \prod_a N(w_a; \mu_a, \Lambda_a^{-1}) N(v_a; \nu_a, \lambda_a^{-1}) N(b; \beta, \kappa^{-1})
    e^{u / 2},

whose last factor is the flat density of s: trajectories follow it, and the end is accepted with the
prior of s in its place (leapfrog steps preserve volume and are reversible whatever they follow).

The metric is the Fisher information of the response and the precision of the prior, averaged while
tuning, and made the same for all units, as these may change their places: for :math:`w_a` a
multiple of :math:`\tilde X^T \tilde X`, for v and b of each pair of outputs sums of
:math:`\sigma(z_{na}) \sigma(z_{nb})` and :math:`\sigma(z_{na})`, times the entry of
:math:`V_n^{-1}`, in which the units are averaged over, and nothing between w and v, where signs of
v cancel. The number of steps is uniform up to
:data:`~pymc_nnsteps.kernels.layer_trajectories.MOST_STEPS`; their size is adapted. Before there
are averages, nothing moves (Neal, *MCMC Using Hamiltonian Dynamics*, 2011, sections 4.2 and 5.5).
"""

import math
from dataclasses import dataclass
from typing import override

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import expand
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.kernels.gated_trajectories import TARGET_ACCEPT
from pymc_nnsteps.kernels.layer_trajectories import n_averages
from pymc_nnsteps.kernels.ops import move_layer
from pymc_nnsteps.kernels.outgoing_weights import GaussianPrior
from pymc_nnsteps.laws.conditional import Draw, Move, Shapes
from pymc_nnsteps.moves.interweaving import LONGEST_ROW, InterwovenKernels
from pymc_nnsteps.moves.marginal_likelihood import WithoutLayer
from pymc_nnsteps.moves.outgoing_weights import (
    ByOutput,
    OutgoingWeights,
    biases_beside,
    scales_of_response,
)
from pymc_nnsteps.moves.plan import Context, proposes
from pymc_nnsteps.moves.residual_scales import ResidualScale, prior_ratio
from pymc_nnsteps.random.op import uniform
from pymc_nnsteps.random.standard_normal import standard_normal

SHORT_ROW = 16
"""Number of a unit's weights up to which each sweep has a trajectory.

With more of them a trajectory takes longer than all else, and only each second or third sweep has
one, and so on.
"""

MOST_ABOVE = 400
"""Number of outgoing weights of several outputs up to which their metric is inverted."""


@dataclass(frozen=True, kw_only=True)
class Trajectory(Move, WithoutLayer):
    """A move of all weights of a layer, and of what goes with them, along a trajectory."""

    name = "Hamiltonian trajectory"
    supplements = True
    waits = True
    target_accept = TARGET_ACCEPT
    averages: TensorVariable

    @override
    def explain_move(self, rv: TensorVariable) -> list[str]:
        return ["along trajectories"]


@dataclass(frozen=True)
class LayerTrajectories(Trajectory):
    """A layer's weights and pre-activations, its outgoing weights and the biases of the outputs."""

    outgoing: OutgoingWeights  # the draw of the outgoing weights, which knows the layer
    biases: ByOutput | None  # the biases of the outputs, if they are moved as well
    scales: tuple[ResidualScale, ...]  # the scales of the response that are moved as well
    scaled: np.ndarray  # one for each output of a scale, shape (max(1, k), m)

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        rows, n_scales = self.outgoing.rows, len(self.scaled)
        weights, pre = rows.weights_by_unit(), rows.pre_activations_by_unit()
        units, (m, _) = pre.shape[0], self.outgoing.outgoing.places.shape
        response = expand(rows.likelihood.response(None), {0: pre.shape[1]})
        if self.biases is not None:
            response += self.biases.value()[:, 0]
        n_normal = weights.rows.size + m * (units + 1) + n_scales
        rng, normal = standard_normal(rng, (n_normal,), "float64")
        rng, level = uniform(rng, (2,))
        level = level.astype("float64")
        value, prior = self._seen()
        moved_rows, moved, above, log_variances, log_ratio, averages = move_layer(
            weights,
            pre,
            rows.pieces(),
            prior,
            rows.likelihood.above(response, in_part=True)._replace(design=value),
            pt.constant(self.scaled, dtype="float64"),
            pt.dot(weights.inputs.T, weights.inputs),
            self.averages,
            self.tuning,
            normal,
            level[:1],
        )
        above = above.reshape((m, -1))
        values = {
            **rows.values_of(moved_rows, moved),
            **self.outgoing.outgoing.values_of(above[:, :units]),
        }
        if self.biases is not None:
            values |= self.biases.values_of(above[:, units:])
        ratio = log_ratio[0]
        for k, scale in enumerate(self.scales):
            [s] = scale.draws
            shift = log_variances[k] / (2 * scale.of_response)
            values[s] = typed_like(s, values.get(s, s) * scale.factor(shift))
            ratio += prior_ratio(scale, shift)
        probability = pt.switch(pt.isnan(ratio), 0.0, pt.exp(pt.minimum(ratio, 0.0)))
        accepted = pt.lt(level[1], probability)
        return Draw(
            rng,
            {rv: pt.switch(accepted, new, rv) for rv, new in values.items()},
            acceptance=probability[None],
            averages=averages,
        )

    def _seen(self) -> tuple[TensorVariable, GaussianPrior[TensorVariable]]:
        """Outgoing weights and biases, and their prior, shape (m, units + 1) or (m, units)."""
        seen = [self.outgoing.outgoing, *([] if self.biases is None else [self.biases])]
        parts = [(each.value(), *each.prior()) for each in seen]
        value, *prior = (pt.concatenate(of, axis=1) for of in zip(*parts, strict=True))
        return value, GaussianPrior(*prior)


@proposes(priority=320)
def propose_trajectories(context: Context) -> None:
    """Propose trajectories of layers, after the draws of their outgoing weights."""
    for outgoing in context.sweep if context.options.trajectories else ():
        if isinstance(outgoing, OutgoingWeights):
            move = context.read(
                outgoing.draws[0], "along trajectories", find_trajectories, context, outgoing
            )
            context.put([outgoing, move], at=outgoing)


def find_trajectories(context: Context, outgoing: OutgoingWeights) -> LayerTrajectories | None:
    """Trajectories of a layer's weights; none if activations have an offset, or rows are long."""
    rows, weights = outgoing.rows, outgoing.outgoing
    row_length = rows.row_length(context.shapes)
    m, units = weights.places.shape
    if isinstance(rows, InterwovenKernels) or rows.activation.offset is not None:
        return None
    if row_length > LONGEST_ROW:
        return None
    if m > 1 and m * units > MOST_ABOVE:
        raise NotConjugate(f"{m} outputs of {units} units have more than {MOST_ABOVE} weights")
    scales, scaled = scales_of_response(context, rows.likelihood, weights)
    biases = biases_beside(context, rows.likelihood, weights)
    draws = (
        *rows.draws,
        *outgoing.draws,
        *(() if biases is None else biases.rvs),
        *(rv for scale in scales for rv in scale.draws),
    )
    name = describe(rows.pre_activations)
    return LayerTrajectories(
        tuple(dict.fromkeys(draws)),
        rows.likelihood,
        outgoing,
        biases,
        scales,
        scaled,
        tuning=pt.dvector(f"step size of {name}"),
        averages=pt.dvector(f"metric of {name}"),
        n_averages=n_averages(m, len(scaled)),
        every=math.ceil(row_length / SHORT_ROW),
    )
