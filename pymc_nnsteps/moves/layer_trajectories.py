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
:data:`~pymc_nnsteps.moves.layer_trajectories.MOST_STEPS`; their size is adapted. Before there
are averages, nothing moves (Neal, *MCMC Using Hamiltonian Dynamics*, 2011, sections 4.2 and 5.5).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, override

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.jit import jit
from pymc_nnsteps.compile.linear_algebra import Array
from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import expand
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.laws.conditional import Draw, Move, Shapes
from pymc_nnsteps.moves.interweaving import LONGEST_ROW, InterwovenKernels
from pymc_nnsteps.moves.loops.gated_trajectories import TARGET_ACCEPT
from pymc_nnsteps.moves.loops.interweaving import ActivationPieces, read_units
from pymc_nnsteps.moves.loops.layer_density import (
    LayerDensity,
    LayerPosition,
    LayerWorkspace,
    Noise,
    end_of_run,
    evaluate_layer,
    fill_own,
    fill_spread,
    forward,
    know,
    place_in,
    set_noise,
    set_scene,
)
from pymc_nnsteps.moves.loops.leapfrog import Metric, draw_momenta, empty_metric, follow, invert
from pymc_nnsteps.moves.loops.outgoing_weights import GaussianPrior
from pymc_nnsteps.moves.loops.rows import Above, LayerWeights
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

MOST_STEPS = 64
"""Largest number of leapfrog steps of a trajectory."""

LEAST_SHARE = 1e-8
"""Share of a residual's variance below which that of the response is left to other moves.

Trajectories neither begin nor end there, where other draws lose digits.
"""

OF_SCALE = 0.1
"""Precision of the log of a variance of the response in the metric beside what the rows say."""


class MovedLayer(NamedTuple):
    """The end of a trajectory."""

    rows: Array  # shape (units, d)
    pre: Array  # shape (units, n_obs)
    above: Array  # shape (m * width,)
    shift: Array  # shape (k,): changes of the logs of the response's variances
    # shape (1,): log probability of acceptance under the flat density of the response's scales.
    log_ratio: Array
    # shape (n_averages(m, k),): numbers of the metric at the beginning; those given where the step
    # size is zero.
    averages: Array


def n_averages(n_outputs: int, n_scales: int) -> int:
    """How many numbers a metric is made of."""
    return 1 + 2 * n_outputs * (n_outputs + 1) + n_scales


@jit
def fill_numbers(place: LayerPosition, density: LayerDensity, numbers: Array) -> None:
    r"""Fill numbers of the Fisher information at a place, averaged over units and pairs of them.

    The mean of :math:`\sigma'(z_{na})^2 v_a^T V_n^{-1} v_a`; for each pair of outputs, sums over n
    of :math:`V_n^{-1}` times means of :math:`\sigma(z_{na})^2`, :math:`\sigma(z_{na})
    \sigma(z_{nb})`, :math:`\sigma(z_{na})` and one; for each variance half the squares of
    :math:`V_n^{-1}` times its part.
    """
    scene, noise = density.scene, density.noise
    forward(place, scene, density.activation)
    fill_spread(place, scene, noise.spread)
    (m, n_obs), units = scene.target.shape, len(scene.variance)
    width, n_pairs, first = len(place.above) // m, m * (m + 1) // 2, 0
    while first < n_obs:
        end = end_of_run(scene.weight, first, n_obs)
        fill_own(scene, place.shift, first, noise)
        know(noise)
        # Sums over these samples of activations, of their squares, and of products of two.
        square, pairs, level, pair = 0.0, 0.0, 0.0, 0
        for n in range(first, end):
            total, own = 0.0, 0.0
            for a in range(units):
                active = scene.active[a, n]
                total += active
                own += active * active
            square += own
            pairs += total * total - own
            level += total
        # Information in the pre-activations.
        for a in range(units):
            steep = 0.0
            for n in range(first, end):
                steep += scene.slope[a, n] * scene.slope[a, n]
            for i in range(m):
                for j in range(m):
                    v = place.above[i * width + a] * place.above[j * width + a]
                    numbers[0] += steep * v * noise.known[i, j] / (n_obs * units)
        # Information in outgoing weights, biases, and variances of the response.
        for i in range(m):
            for j in range(i, m):
                known = noise.known[i, j]
                numbers[1 + pair] += known * square / units
                numbers[1 + n_pairs + pair] += known * pairs / max(units * (units - 1), 1)
                numbers[1 + 2 * n_pairs + pair] += known * level / units
                numbers[1 + 3 * n_pairs + pair] += known * (end - first)
                pair += 1
            for j in range(m):
                both = noise.known[i, j] * noise.known[i, j] * noise.own[i] * noise.own[j]
                for k in range(len(place.shift)):
                    of_both = noise.scaled[k, i] * noise.scaled[k, j]
                    numbers[1 + 4 * n_pairs + k] += 0.5 * (end - first) * of_both * both
        first = end


@jit
def fill_metric(scene: LayerWorkspace, gram: Array, numbers: Array, metric: Metric) -> bool:
    """Fill the blocks of a metric; False if it is not positive definite."""
    units, m, shared = len(scene.variance), len(scene.target), len(scene.of_above)
    width, n_pairs, pair = shared // m, m * (m + 1) // 2, 0
    of_rows, of_above, scales = numbers[0] * gram, np.empty((shared, shared)), metric.diagonal
    for a in range(units):
        for i in range(len(gram)):
            of_rows[i, i] += scene.prior[a, i] / units
    for i in range(m):
        for j in range(i, m):
            for a in range(width):
                for b in range(width):
                    to_bias = int(a == units) + int(b == units)
                    kind = 1 + to_bias if a != b or to_bias > 0 else 0
                    value = numbers[1 + kind * n_pairs + pair]
                    of_above[i * width + a, j * width + b] = value
                    of_above[j * width + b, i * width + a] = value
            pair += 1
    for a in range(shared):
        of_above[a, a] += scene.of_above[a]
    for k in range(len(scales)):
        scales[k] = numbers[1 + 4 * n_pairs + k] + OF_SCALE
    return invert(of_rows, metric.factor, metric.inverse) and invert(
        of_above, metric.joint_factor, metric.joint_inverse
    )


@jit
def is_tiny(scene: LayerWorkspace, noise: Noise, place: LayerPosition) -> bool:
    """Whether a variance of the response is moved, and hardly seen beside the layer's noise."""
    found = False
    fill_spread(place, scene, noise.spread)
    for n in range(len(scene.weight)):
        fill_own(scene, place.shift, n, noise)
        for k in range(len(noise.moves)):
            for i in range(len(noise.own)):
                is_moved = noise.own[i] > 0.0 and noise.scaled[k, i] > 0.0
                found = found or (is_moved and noise.own[i] < LEAST_SHARE * noise.spread[i, i])
    return found


@jit
def move_layer(
    weights: LayerWeights,
    pre: Array,
    activation: ActivationPieces,
    prior: GaussianPrior,
    above: Above,
    scaled: Array,
    gram: Array,
    averages: Array,
    rho: Array,
    normal: Array,
    uniform: Array,
) -> MovedLayer:
    """Follow one trajectory of weights, with pre-activations (units, n_obs).

    The design of ``above``, and ``prior``, are of outgoing weights, and of biases if these are
    moved. A row of ``scaled``, (k, m), is 1 where a moved variance is that of an output.
    ``averages`` are n_averages(m, k) numbers, zero before there are any; ``rho``, (1,), is one
    minus the step size. There are ``units * d + m * (units + 1) + k`` normals, and a uniform number
    for the length.
    """
    rows, (n_scales, m), log_ratio = weights.rows.size, scaled.shape, np.zeros(1)
    start, outgoing = weights.rows.copy(), above.design.copy().reshape(-1)
    if rho[0] == 1.0:
        kept, still = averages.copy(), np.zeros(n_scales)
        return MovedLayer(start, pre.copy(), outgoing, still, log_ratio, kept)
    # Coordinates, and the metric by the numbers averaged so far.
    n, last = rows + len(outgoing) + n_scales, rows + len(outgoing)
    q, p, slope = np.zeros(n), np.empty(n), np.empty(n)
    q[:rows], q[rows:last] = start.reshape(-1), outgoing
    _, _, kept = read_units(weights, pre, activation)
    scene, noise = set_scene(weights, kept, prior, above), set_noise(scaled)
    density = LayerDensity(scene, noise, activation)
    place, numbers = place_in(q, density), np.zeros(len(averages))
    metric = empty_metric(weights.rows.shape[1], len(outgoing), n_scales)
    fill_numbers(place, density, numbers)
    known = averages[1 + 3 * m * (m + 1) // 2] > 0.0 and fill_metric(scene, gram, averages, metric)
    if is_tiny(scene, noise, place) or not known:
        return MovedLayer(place.rows, pre.copy(), place.above, place.shift, log_ratio, numbers)
    # Leapfrog steps.
    draw_momenta(metric, normal, p)
    p[last:] *= noise.moves
    size, n_steps = 1.0 - rho[0], 1 + int(uniform[0] * MOST_STEPS)
    begin = evaluate_layer(density, q, slope)
    _, log_ratio[0], _ = follow(
        evaluate_layer, density, metric, size, n_steps, math.inf, begin, q, p, slope
    )
    if is_tiny(scene, noise, place):
        log_ratio[0] = -math.inf
    moved = kept + np.dot(place.rows, weights.inputs.T)
    return MovedLayer(place.rows, moved, place.above, place.shift, log_ratio, numbers)


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
        move = as_op(move_layer, 2, 2, 1, 1, 1, 1)
        moved_rows, moved, above, log_variances, log_ratio, averages = move(
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
