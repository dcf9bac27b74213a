r"""Units of a layer moved along rays with the weights that one output sees them through.

What the output sees of a unit does not change where the unit's weights are multiplied and its
outgoing weight is divided by the same number. Given each other they hold on to that number; what
decides it is how much noise of the layer the output is to see, and with it what is left to the
scale of the response. Model, with an activation :math:`\sigma(c z) = c\, \sigma(z)` for all
:math:`c > 0` (:math:`\max(z, 0)`, the absolute value), activations X that are integrated out and
D units,

.. math::

    w_a \sim N(\mu_a, \Lambda_a^{-1}), \qquad z_{na} = \tilde x_n \cdot w_a + e_{na}, \qquad
    v_a \sim N(\nu_a, \lambda_a^{-1}), \\
    y_n \mid Z \sim N(\textstyle\sum_a v_a \sigma(z_{na}), V), \qquad
    V = s^2 + \sum_a v_a^2 \tau_a .

For one unit a of d weights, the ray takes, with the noise e kept,

.. math::

    w_a \to e^u w_a, \qquad v_a \to e^{-u} v_a, \qquad
    s^2 \to s^2 + v_a^2 \tau_a (1 - e^{-2 u}),

so that V does not change, and y sees :math:`v_a \sigma(\tilde x_n \cdot w_a + e_{na} e^{-u})` in
the place of :math:`v_a \sigma(z_{na})`: of a unit only its noise. These maps are a group, with the
Jacobian :math:`e^{(d - 1) u}` in :math:`(w_a, e, v_a, s^2)`. The density of u is

.. math::

    \log q(u) = (d - 1) u - \frac{1}{2 V} \sum_n r_n(u)^2
    - \tfrac12 e^{2u} w_a^T \Lambda_a w_a + e^u w_a^T \Lambda_a \mu_a
    - \tfrac12 e^{-2u} \lambda_a v_a^2 + e^{-u} \lambda_a v_a \nu_a + \log p(s^2(u))

where :math:`s^2(u)` is positive. Where s is no variable, or has other children, it stays, and
:math:`-\tfrac n2 \log V(u)` comes in. u is stepped in by :mod:`pymc_nnsteps.random.lattice`,
for one unit after another, from the first or from the last with the same probability. All units
are moved as if the density of s were flat, :math:`p(s^2) \propto 1 / s`, which is a reversible
step; it is accepted with the ratio that the prior of s has to this one (Liu, *Monte Carlo
Strategies in Scientific Computing*, 2001, section 9.4.3).

X must be drawn afresh before anything else is given it (:mod:`.contract` checks it).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import override

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.linear_terms import expand, varies
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.kernels.ops import move_units
from pymc_nnsteps.kernels.unit_rays import AboveOne, Outgoing
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.moves.marginal_likelihood import WithoutLayer
from pymc_nnsteps.moves.outgoing_weights import OutgoingWeights, outputs_by_child
from pymc_nnsteps.moves.residual_scales import ResidualScale, prior_ratio, scales_of_response
from pymc_nnsteps.random.op import uniform


@dataclass(frozen=True)
class UnitRays(WithoutLayer):
    """Weights and pre-activations of a layer's units, and their outgoing weights."""

    name = "step along rays of units"
    outgoing: OutgoingWeights  # the draw of the outgoing weights, which knows the layer
    scale: ResidualScale | None  # the scale of the response, if it is moved as well
    supplements = True

    @override
    def explain_move(self, rv: TensorVariable) -> list[str]:
        return ["along rays of units"]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        rows, prior = self.outgoing.rows, self.outgoing.outgoing.prior()
        likelihood, pre = self.likelihood, rows.pre_activations_by_unit()
        slopes = rows.activation.function.slopes
        rng, level = uniform(rng, (pre.shape[0] + 1, 3))
        level = level.astype("float64")
        response = expand(likelihood.response(None), {0: pre.shape[1]})[:, 0]
        above = AboveOne(likelihood.weight[:1, 0], response, likelihood.variance)
        moved_rows, moved, weights, after = move_units(
            rows.weights_by_unit(),
            pre,
            pt.constant([slopes[0], slopes[-1]], dtype="float64"),
            Outgoing(self.outgoing.outgoing.value()[0], prior.precision[0], prior.linear[0]),
            above,
            pt.constant([float(self.scale is not None)], dtype="float64"),
            level,
        )
        values = {
            **rows.values_of(moved_rows, moved),
            **self.outgoing.outgoing.values_of(weights[None, :]),
        }
        if self.scale is None:
            return Draw(rng, values)
        [s] = self.scale.draws
        shift = pt.log(after * above.weight)[0] / (2 * self.scale.of_response)
        accepted = pt.le(pt.log(level[-1, 1]), prior_ratio(self.scale, shift))
        values[s] = typed_like(s, s * self.scale.factor(shift))
        return Draw(rng, {rv: pt.switch(accepted, new, rv) for rv, new in values.items()})


def find_unit_rays(
    model: pm.Model, outgoing: OutgoingWeights, conditionals: Sequence[Conditional], shapes: Shapes
) -> UnitRays | None:
    """The move of a layer's units along rays; None if what is seen of them changes on these."""
    rows, activation = outgoing.rows, outgoing.rows.activation
    function = activation.function
    if not rows.likelihood.has_one_output:
        return None
    if activation.offset is not None or any(function.knots) or any(function.intercepts):
        return None
    if varies(rows.likelihood.rows.weight, [0]):
        return None
    outputs = outputs_by_child(model, rows.likelihood, outgoing.outgoing)
    scales, _ = scales_of_response(rows.likelihood, conditionals, shapes, outputs)
    [scale] = scales or [None]
    draws = (*rows.draws, *outgoing.draws, *(() if scale is None else scale.draws))
    return UnitRays(draws, rows.likelihood, outgoing, scale)
