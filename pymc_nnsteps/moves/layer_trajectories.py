r"""Hamiltonian trajectories of a layer's weights with those that one output sees it through.

Given the outgoing weights a unit keeps its sign and its place, and so does the bias of the output:
what a network says is shared out among its units and biases by small steps only. Here all weights
of a layer and above it move at once, with the noise of the pre-activations kept and the
activations integrated out. Model, with a piecewise-linear activation :math:`\sigma`, activations X
that are integrated out, D units and a bias b that all samples see,

.. math::

    w_a \sim N(\mu_a, \Lambda_a^{-1}), \qquad z_{na} = \tilde x_n \cdot w_a + e_{na}, \qquad
    v_a \sim N(\nu_a, \lambda_a^{-1}), \qquad b \sim N(\beta, \kappa^{-1}), \\
    y_n \mid Z \sim N(b + \textstyle\sum_a v_a \sigma(z_{na}), V_n), \qquad
    V_n = s_n^2 + \sum_a v_a^2 \tau_a .

The coordinates are :math:`(w, v, b)`, and the shift u of :math:`\log s^2` where one scale s is
drawn for all samples. The potential energy is minus the log of

.. math::

    \prod_n N(y_n;\ b + \textstyle\sum_a v_a \sigma(\tilde x_n \cdot w_a + e_{na}),\ V_n)
    \prod_a N(w_a; \mu_a, \Lambda_a^{-1}) N(v_a; \nu_a, \lambda_a^{-1}) N(b; \beta, \kappa^{-1})
    e^{u / 2},

whose last factor is the flat density of s: trajectories follow it, and the end is accepted with the
prior of s in its place (leapfrog steps preserve volume and are reversible whatever they follow).

The metric is the Fisher information of the response and the precision of the prior, averaged while
tuning, and made the same for all units, as these may change their places: for :math:`w_a` a
multiple of :math:`\tilde X^T \tilde X`, for v and b sums of :math:`\sigma(z_{na}) \sigma(z_{nb})`
and :math:`\sigma(z_{na})` in which the units are averaged over, and nothing between them, where
signs of v cancel. The number of steps is uniform up to
:data:`~pymc_nnsteps.kernels.layer_trajectories.MOST_STEPS`; their size is adapted. Before there
are averages, nothing moves.

X must be drawn afresh before anything else is given it (:mod:`.scan` checks it).

References
----------
Neal, *MCMC Using Hamiltonian Dynamics* (2011), sections 4.2 and 5.5.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import override

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.layout import Member
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.kernels.layer_trajectories import N_AVERAGES
from pymc_nnsteps.kernels.ops import move_layer
from pymc_nnsteps.kernels.unit_rays import Outgoing
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.moves.interweaving import why_too_long
from pymc_nnsteps.moves.outgoing_weights import OutgoingWeights, bias_beside
from pymc_nnsteps.moves.residual_scales import ResidualScale, prior_ratio, scale_of_response
from pymc_nnsteps.random.standard_normal import standard_normal
from pymc_nnsteps.random.uniform import uniform

TARGET_ACCEPT = 0.75
"""Target acceptance probability of a trajectory."""

SHORT_ROW = 16
"""Number of a unit's weights up to which each sweep has a trajectory.

With more of them a trajectory takes longer than all else, and only each second or third sweep has
one, and so on.
"""


@dataclass(frozen=True)
class LayerTrajectories(Conditional):
    """Weights of a layer, its pre-activations, its outgoing weights and the bias of the output.

    Attributes
    ----------
    outgoing : OutgoingWeights
        The draw of the outgoing weights, which knows the layer.
    bias : Member or None
        The bias of the output, if it is moved as well.
    scale : ResidualScale or None
        The scale of the response, if it is moved as well.
    """

    draws: tuple[TensorVariable, ...]
    outgoing: OutgoingWeights
    bias: Member | None
    scale: ResidualScale | None
    integrates_out: tuple[TensorVariable, ...]
    tuning: TensorVariable
    averages: TensorVariable
    supplements: bool = True
    waits: bool = True
    target_accept: float = TARGET_ACCEPT
    n_averages: int = N_AVERAGES
    every: int = 1

    @property
    @override
    def name(self) -> str:
        return "Hamiltonian trajectory"

    @override
    def also(self, rv: TensorVariable) -> list[str]:
        return ["along trajectories"]

    @override
    def n_tuned(self, shapes: Shapes) -> int:
        return 1

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        rows, seen = self.outgoing.rows, self._seen()
        weights, pre = rows.weights_by_unit(), rows.pre_activations_by_unit()
        units = pre.shape[0]
        above = rows.likelihood.above_one(pre.shape[1])
        above = above._replace(response=above.response + seen.outgoing[units:].sum())
        if self.scale is not None:
            above = above._replace(weight=above.weight[:1])
        rng, normal = standard_normal(rng, (weights.rows.size + units + 2,), "float64")
        rng, level = uniform(rng, (2,))
        level = level.astype("float64")
        moved_rows, moved, outgoing, log_variance, log_ratio, averages = move_layer(
            weights,
            pre,
            rows.pieces(),
            seen,
            above,
            pt.constant([float(self.scale is not None)], dtype="float64"),
            pt.dot(weights.inputs.T, weights.inputs),
            self.averages,
            self.tuning,
            normal,
            level[:1],
        )
        values = {
            **rows.values_of(moved_rows, moved),
            **self.outgoing.values_of(outgoing[None, :units]),
        }
        if self.bias is not None:
            values[self.bias.rv] = typed_like(
                self.bias.rv, pt.full_like(self.bias.rv, outgoing[units])
            )
        ratio = log_ratio[0]
        if self.scale is not None:
            [s] = self.scale.draws
            shift = log_variance[0] / (2 * self.scale.of_response)
            values[s] = typed_like(s, s * pt.exp(shift))
            ratio += prior_ratio(self.scale, shift)
        probability = pt.switch(pt.isnan(ratio), 0.0, pt.exp(pt.minimum(ratio, 0.0)))
        accepted = pt.lt(level[1], probability)
        return Draw(
            rng,
            {rv: pt.switch(accepted, new, rv) for rv, new in values.items()},
            acceptance=probability[None],
            averages=averages,
        )

    def _seen(self) -> Outgoing[TensorVariable]:
        """Outgoing weights and bias, with their priors."""
        prior = self.outgoing.prior()
        of_weights = (self.outgoing.weights()[0], prior.precision[0], prior.linear[0])
        if self.bias is None:
            return Outgoing(*of_weights)
        precision = pt.broadcast_to(self.bias.precision, self.bias.rv.shape)
        of_bias = (self.bias.rv, precision, precision * self.bias.mean)
        pairs = zip(of_weights, of_bias, strict=True)
        return Outgoing(*(pt.concatenate([of, each.flatten()]) for of, each in pairs))


def find_trajectories(
    outgoing: OutgoingWeights, conditionals: Sequence[Conditional], shapes: Shapes
) -> LayerTrajectories | None:
    """The trajectories of a layer's weights; None if several outputs see it, or rows are too long.

    Parameters
    ----------
    conditionals : sequence of Conditional
        Among them those of the outgoing weights and of scales.
    shapes : mapping from random variable to tuple of int
    """
    rows = outgoing.rows
    if not rows.likelihood.has_one_output or rows.activation.offset is not None:
        return None
    if why_too_long(rows.row_length(shapes)):
        return None
    scale = scale_of_response(rows.likelihood, conditionals)
    bias = bias_beside(outgoing.draws[0], rows.likelihood, conditionals)
    draws = (
        *rows.draws,
        *outgoing.draws,
        *(() if bias is None else (bias.rv,)),
        *(() if scale is None else scale.draws),
    )
    name = describe(rows.pre_activations)
    return LayerTrajectories(
        draws,
        outgoing,
        bias,
        scale,
        outgoing.integrates_out,
        pt.dvector(f"step size of {name}"),
        pt.dvector(f"metric of {name}"),
        every=math.ceil(rows.row_length(shapes) / SHORT_ROW),
    )
