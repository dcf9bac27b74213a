"""Smooth density of a layer behind gates that are summed out.

:mod:`pymc_nnsteps.moves.gated_trajectories` derives it.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.compile.linear_algebra import Array, copy, inner_product, put, sum_of
from pymc_nnsteps.moves.loops.interwoven_gates import GatedUnits, logistic
from pymc_nnsteps.moves.loops.layer_density import change_of, invert_seen
from pymc_nnsteps.moves.loops.rows import Above, LayerWeights

WIDER = 1e-3
"""Weight of the wider Gaussian in the smooth density of a response."""

TIMES_WIDER = 100.0
"""Its variance, in units of the narrow one's."""


class Tails[Of](NamedTuple):
    """Log prior ``linear w - precision w^2 / 2 - order log(1 + w^2 / rate)`` of each entry."""

    # precision, linear: zero where the prior is a Student-t.
    precision: Of
    linear: Of
    # order, rate: zero and one where it is Gaussian.
    order: Of
    rate: Of


class GatedPosition(NamedTuple):
    """What a trajectory moves, or the momenta, or slopes of the log density."""

    rows: Array  # shape (units, d): weights of each unit; as coordinates they are stretched
    # shape (m, units): weights of each output; as coordinates their ``asinh(v / c)``.
    outgoing: Array
    bias: Array  # shape (m,): of the outputs
    # shape (units + k + 2,): shifts of the logarithms of the units' noise variances, of k variances
    # of the response, and of the global scales of rows and of outgoing weights.
    scales: Array


class GatedWorkspace(NamedTuple):
    """What stays on a trajectory, and room for what is computed at a place."""

    inputs: Array  # shape (n_obs, d)
    # logit, logit_factor, level, level_factor of shape (units, n_obs): log odds of open gates where
    # all weights are zero and their slopes by ``x . w``, and the same of the means of activations
    # behind open gates.
    logit: Array
    logit_factor: Array
    level: Array
    level_factor: Array
    response: Array  # shape (m, n_obs)
    weight: Array  # shape (1, m) or (n_obs, m): zero where an output is not seen
    scaled: Array  # shape (k, m): 1 where a variance that is moved is that of an output, else 0
    variance: Array  # shape (units,)
    # prob, active, score of shape (units, n_obs): probabilities of open gates, means of activations
    # behind them, slopes by ``x . w``.
    prob: Array
    active: Array
    score: Array
    # expected, unsure of shape (units, n_obs): means of activations behind gates, and the variances
    # that gates leave open.
    expected: Array
    unsure: Array
    # mean, by_mean of shape (m, n_obs): mean of the response, and slopes of its log density.
    mean: Array
    by_mean: Array
    # total, by_total of shape (m (m + 1) / 2, n_obs): the same of its covariance.
    total: Array
    by_total: Array
    # shape (m, n_obs): variance of the response given the activations, zero where it is not seen.
    own: Array
    stretch: Array  # shape (units,): ``sqrt(|v|^2 + c^2)``


class Laws[Of](NamedTuple):
    """Densities of the shifts t of log scales: ``exp(order t - inverse e^-t - direct e^t)``."""

    # order, inverse, direct of shape (units + k + 2,).
    order: Of
    inverse: Of
    direct: Of
    # shape (units + k + 2 + m,): 1 where the scale is moved, 0 where it stays; the last entries are
    # those of the biases.
    moves: Of


class GatedDensity(NamedTuple):
    """What the smooth density depends on, and room for the weights where it was evaluated last."""

    width: float
    scene: GatedWorkspace
    rows: Tails
    outgoing: Tails
    laws: Laws
    weights: GatedPosition


@jit
def set_scene(
    layer: LayerWeights, gates: GatedUnits, above: Above, scaled: Array
) -> GatedWorkspace:
    """What stays on a trajectory, and room."""
    (units, n_obs), m = gates.gates.shape, above.response.shape[1]
    n_pairs = m * (m + 1) // 2
    pre = np.dot(layer.rows, layer.inputs.T)
    logit, level = gates.logit.copy(), gates.level.copy()
    for a in range(units):
        for n in range(n_obs):
            logit[a, n] -= gates.logit_factor[a, n] * pre[a, n]
            level[a, n] -= gates.level_factor[a, n] * pre[a, n]
    return GatedWorkspace(
        layer.inputs,
        logit,
        gates.logit_factor,
        level,
        gates.level_factor,
        above.response.T.copy(),
        above.weight,
        scaled,
        above.variance,
        np.empty((units, n_obs)),
        np.empty((units, n_obs)),
        np.empty((units, n_obs)),
        np.empty((units, n_obs)),
        np.empty((units, n_obs)),
        np.empty((m, n_obs)),
        np.empty((m, n_obs)),
        np.empty((n_pairs, n_obs)),
        np.empty((n_pairs, n_obs)),
        np.empty((m, n_obs)),
        np.empty(units),
    )


@inline
def to_weights(place: GatedPosition, width: float, stretch: Array, weights: GatedPosition) -> None:
    """Fill the weights at coordinates, and what rows are stretched by."""
    for a in range(len(stretch)):
        square = width * width
        for i in range(len(place.outgoing)):
            u = place.outgoing[i, a]
            v = 0.5 * width * (math.exp(u) - math.exp(-u))
            weights.outgoing[i, a] = v
            square += v * v
        stretch[a] = math.sqrt(square)
        for j in range(place.rows.shape[1]):
            weights.rows[a, j] = place.rows[a, j] / stretch[a]
    copy(place.bias, weights.bias)
    copy(place.scales, weights.scales)


@inline
def to_coordinates(weights: GatedPosition, width: float, place: GatedPosition) -> None:
    """Fill the coordinates of weights."""
    for a in range(len(weights.rows)):
        square = width * width
        for i in range(len(weights.outgoing)):
            v = weights.outgoing[i, a]
            size = math.log((abs(v) + math.sqrt(v * v + width * width)) / width)
            place.outgoing[i, a] = size if v >= 0.0 else -size
            square += v * v
        for j in range(weights.rows.shape[1]):
            place.rows[a, j] = weights.rows[a, j] * math.sqrt(square)
    copy(weights.bias, place.bias)


@inline
def noise_of(weights: GatedPosition, scene: GatedWorkspace, unit: int) -> float:
    """Variance of the noise of a unit's activations."""
    return scene.variance[unit] * math.exp(weights.scales[unit])


@jit
def fill_noise(weights: GatedPosition, scene: GatedWorkspace, total: Array) -> None:
    """Fill the covariance of the response given the gates, and its own variances."""
    (m, n_obs), units, pair = scene.own.shape, len(scene.variance), 0
    shift = weights.scales[units : len(weights.scales) - 2]
    for i in range(m):
        change = change_of(scene.scaled, shift, i)
        for n in range(n_obs):
            weight = scene.weight[n, i] if len(scene.weight) > 1 else scene.weight[0, i]
            scene.own[i, n] = change / weight if weight > 0.0 else 0.0
        for j in range(i, m):
            spread = 0.0
            for a in range(units):
                v = weights.outgoing[i, a] * weights.outgoing[j, a]
                spread += v * noise_of(weights, scene, a)
            for n in range(n_obs):
                total[pair, n] = spread + scene.own[i, n] if i == j else spread
            pair += 1


@jit
def forward(weights: GatedPosition, scene: GatedWorkspace) -> None:
    """Fill chances, activations behind open gates, and mean and covariance of the response."""
    (units, n_obs), m = scene.logit.shape, len(scene.mean)
    moved = np.dot(weights.rows, scene.inputs.T)
    fill_noise(weights, scene, scene.total)
    for i in range(m):
        for n in range(n_obs):
            scene.mean[i, n] = weights.bias[i]
    for a in range(units):
        # Chances and activations of the unit.
        prob, active, pre = scene.prob[a], scene.active[a], moved[a]
        start, factor = scene.logit[a], scene.logit_factor[a]
        for n in range(n_obs):
            prob[n] = logistic(start[n] + factor[n] * pre[n])
        start, factor = scene.level[a], scene.level_factor[a]
        expected, unsure = scene.expected[a], scene.unsure[a]
        for n in range(n_obs):
            active[n] = start[n] + factor[n] * pre[n]
            expected[n] = prob[n] * active[n]
            unsure[n] = expected[n] * (active[n] - expected[n])
        # What it adds to mean and covariance of the response.
        pair = 0
        for i in range(m):
            v, mean = weights.outgoing[i, a], scene.mean[i]
            for n in range(n_obs):
                mean[n] += v * expected[n]
            for j in range(i, m):
                product, total = v * weights.outgoing[j, a], scene.total[pair]
                for n in range(n_obs):
                    total[n] += product * unsure[n]
                pair += 1


@inline
def invert_at(scene: GatedWorkspace, pairs: Array, n: int, own: Array, known: Array) -> float:
    """Fill the inverse of a sample's covariance, and return its log determinant."""
    if len(own) == 1:
        is_seen = scene.own[0, n] > 0.0
        known[0, 0] = 1.0 / pairs[0, n] if is_seen else 0.0
        return math.log(pairs[0, n]) if is_seen else 0.0
    pair = 0
    for i in range(len(own)):
        own[i] = scene.own[i, n]
        for j in range(i, len(own)):
            known[i, j] = pairs[pair, n]
            known[j, i] = pairs[pair, n]
            pair += 1
    return invert_seen(own, known)


@jit
def log_likelihood(scene: GatedWorkspace) -> float:
    """Log density of the response after :func:`forward`; fills its slopes."""
    (m, n_obs), density = scene.mean.shape, 0.0
    known, gain, own = np.empty((m, m)), np.empty(m), np.empty(m)
    wides, narrowest = np.full(m + 1, WIDER), 1.0 - WIDER
    for i in range(m):
        wides[i + 1] = wides[i] / math.sqrt(TIMES_WIDER)
    for n in range(n_obs):
        log_det, square, n_seen = invert_at(scene, scene.total, n, own, known), 0.0, 0
        for i in range(m):
            n_seen += int(scene.own[i, n] > 0.0)
            gain[i] = 0.0
            for j in range(m):
                gain[i] += known[i, j] * (scene.response[j, n] - scene.mean[j, n])
            square += gain[i] * (scene.response[i, n] - scene.mean[i, n])
        # Mixture of a narrow and a wide Gaussian, and its slopes.
        narrow, wide = narrowest, wides[n_seen]
        narrow *= math.exp(-0.5 * square * (1.0 - 1.0 / TIMES_WIDER))
        share = narrow / (narrow + wide)
        pull, pair = share + (1.0 - share) / TIMES_WIDER, 0
        for i in range(m):
            scene.by_mean[i, n] = pull * gain[i]
            for j in range(i, m):
                times = 0.5 if i == j else 1.0
                scene.by_total[pair, n] = times * (pull * gain[i] * gain[j] - known[i, j])
                pair += 1
        density += math.log(narrow + wide) - 0.5 * (square / TIMES_WIDER + log_det)
    return density


@inline
def add_up(factors: Array, slopes: Array, total: Array) -> None:
    """Fill the sum of vectors times factors."""
    for n in range(len(total)):
        total[n] = factors[0] * slopes[0, n]
    for i in range(1, len(factors)):
        for n in range(len(total)):
            total[n] += factors[i] * slopes[i, n]


@jit
def pull_back(weights: GatedPosition, scene: GatedWorkspace, slope: GatedPosition) -> None:
    """Fill the slopes of the response's log density in weights, biases and variances."""
    (units, n_obs), m, n_pairs = scene.logit.shape, len(scene.mean), len(scene.total)
    by_mean, by_unsure, of_spread = scene.by_mean[0], scene.by_total[0], np.empty(n_pairs)
    if m > 1:
        by_mean, by_unsure = np.empty(n_obs), np.empty(n_obs)
    factors, products = np.empty(m), np.empty(n_pairs)
    for pair in range(n_pairs):
        of_spread[pair] = sum_of(scene.by_total[pair])
    for a in range(units):
        # Slopes in outgoing weights and the variance of the noise.
        pair, noise = 0, noise_of(weights, scene, a)
        slope.scales[a] = 0.0
        for i in range(m):
            factors[i] = weights.outgoing[i, a]
            slope.outgoing[i, a] = inner_product(scene.by_mean[i], scene.expected[a])
        for i in range(m):
            for j in range(i, m):
                first, second = weights.outgoing[i, a], weights.outgoing[j, a]
                own = noise * of_spread[pair]
                by_product = inner_product(scene.by_total[pair], scene.unsure[a]) + own
                slope.outgoing[i, a] += by_product * second
                slope.outgoing[j, a] += by_product * first
                slope.scales[a] += first * second * own
                products[pair] = first * second
                pair += 1
        # Slope of each sample in `x . w`, through the chance and the level.
        v, square = factors[0], products[0]
        if m > 1:
            add_up(factors, scene.by_mean, by_mean)
            add_up(products, scene.by_total, by_unsure)
            v, square = 1.0, 1.0
        prob, active, score = scene.prob[a], scene.active[a], scene.score[a]
        by_logit, by_level = scene.logit_factor[a], scene.level_factor[a]
        for n in range(n_obs):
            p, level = prob[n], active[n]
            open_too = p * (1.0 - p)
            of_mean = p * by_level[n] + level * open_too * by_logit[n]
            of_square = (1.0 - 2.0 * p) * by_logit[n] * level + 2.0 * by_level[n]
            score[n] = (
                v * by_mean[n] * of_mean + square * by_unsure[n] * open_too * level * of_square
            )
    # Slopes in biases, variances of the response, and rows.
    for k in range(len(scene.scaled)):
        slope.scales[units + k] = 0.0
    pair = 0
    for i in range(m):
        slope.bias[i] = sum_of(scene.by_mean[i])
        along = inner_product(scene.by_total[pair], scene.own[i])
        for k in range(len(scene.scaled)):
            slope.scales[units + k] += scene.scaled[k, i] * along
        pair += m - i
    put(np.dot(scene.score, scene.inputs), slope.rows, 0, 0)


@inline
def add_prior(
    value: Array, tails: Tails, i: int, shift: float, slope: Array
) -> tuple[float, float]:
    """Add the slope of row i's log prior; returns it, and its slope in the log global scale."""
    precision, linear = tails.precision[i], tails.linear[i]
    order, rate = tails.order[i], tails.rate[i]
    density, by_shift, inverse = 0.0, 0.0, math.exp(-shift)
    for j in range(len(value)):
        w = value[j]
        density += w * (linear[j] - 0.5 * precision[j] * w)
        slope[j] += linear[j] - precision[j] * w
        if order[j] > 0.0:
            square = w * w * inverse / rate[j]
            density -= order[j] * math.log(1.0 + square) + 0.5 * shift
            slope[j] -= 2.0 * order[j] * w * inverse / (rate[j] * (1.0 + square))
            by_shift += order[j] * square / (1.0 + square) - 0.5
    return density, by_shift


@jit
def add_priors(
    weights: GatedPosition, rows: Tails, outgoing: Tails, laws: Laws, slope: GatedPosition
) -> float:
    """Add the slopes of all log priors, and return their sum; biases are the last outgoing."""
    (m, units), of_rows, density = weights.outgoing.shape, len(weights.scales) - 2, 0.0
    slope.scales[of_rows] = 0.0
    slope.scales[of_rows + 1] = 0.0
    for a in range(units):
        shift = weights.scales[of_rows]
        more, by_shift = add_prior(weights.rows[a], rows, a, shift, slope.rows[a])
        density += more
        slope.scales[of_rows] += by_shift
    for i in range(m):
        shift = weights.scales[of_rows + 1]
        more, by_shift = add_prior(weights.outgoing[i], outgoing, i, shift, slope.outgoing[i])
        slope.scales[of_rows + 1] += by_shift
        b, linear = weights.bias[i], outgoing.linear[i, units]
        precision = outgoing.precision[i, units]
        density += more + b * (linear - 0.5 * precision * b)
        slope.bias[i] = laws.moves[of_rows + 2 + i] * (slope.bias[i] + linear - precision * b)
    for i in range(len(weights.scales)):
        t = weights.scales[i]
        low, high = laws.inverse[i] * math.exp(-t), laws.direct[i] * math.exp(t)
        density += laws.order[i] * t - low - high
        slope.scales[i] = laws.moves[i] * (slope.scales[i] + laws.order[i] + low - high)
    return density


@inline
def place_in(q: Array, scaled: Array, units: int) -> GatedPosition:
    """Parts of a vector: rows, outgoing weights, scales, and biases."""
    n_scales, m = scaled.shape
    last = len(q) - m
    seen = last - units - n_scales - 2
    rows = seen - m * units
    outgoing = q[rows:seen].reshape((m, units))
    return GatedPosition(q[:rows].reshape((units, rows // units)), outgoing, q[last:], q[seen:last])


@jit
def evaluate_gated(density: GatedDensity, q: Array, gradient: Array) -> float:
    """Log density at coordinates; fills its slope, and the weights there."""
    width, scene, weights = density.width, density.scene, density.weights
    units, d = weights.rows.shape
    place, slope = place_in(q, scene.scaled, units), place_in(gradient, scene.scaled, units)
    to_weights(place, width, scene.stretch, weights)
    forward(weights, scene)
    log_density = log_likelihood(scene)
    pull_back(weights, scene, slope)
    log_density += add_priors(weights, density.rows, density.outgoing, density.laws, slope)
    # From weights to coordinates, with the change of volume.
    for a in range(len(scene.stretch)):
        stretch = scene.stretch[a]
        along = inner_product(slope.rows[a], weights.rows[a])
        log_density -= d * math.log(stretch)
        for i in range(len(place.outgoing)):
            v = weights.outgoing[i, a]
            own = math.sqrt(v * v + width * width)
            log_density += math.log(own)
            slope.outgoing[i, a] *= own
            slope.outgoing[i, a] += v / own - (d + along) * v * own / (stretch * stretch)
        for j in range(d):
            slope.rows[a, j] /= stretch
    return log_density
