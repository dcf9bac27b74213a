"""Hamiltonian trajectories of a layer's weights with those that outputs see it through.

:mod:`pymc_nnsteps.moves.layer_trajectories` derives the move.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.kernels.interweaving import ActivationPieces, read_units
from pymc_nnsteps.kernels.jit import jit
from pymc_nnsteps.kernels.layer_density import (
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
from pymc_nnsteps.kernels.leapfrog import Metric, draw_momenta, empty_metric, follow, invert
from pymc_nnsteps.kernels.linear_algebra import Array
from pymc_nnsteps.kernels.outgoing_weights import GaussianPrior
from pymc_nnsteps.kernels.rows import Above, LayerWeights

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
