"""Smooth density of a layer behind gates that are summed out, and draws of these gates.

:mod:`pymc_nnsteps.moves.gated_trajectories` derives both.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.kernels.error_functions import exp_negative
from pymc_nnsteps.kernels.interwoven_gates import GatedUnits, logistic
from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.kernels.linear_algebra import Array, inner_product, put, sum_of
from pymc_nnsteps.kernels.rows import Rows
from pymc_nnsteps.kernels.unit_rays import AboveOne

WIDER = 1e-3
"""Weight of the wider Gaussian in the smooth density of a response."""

TIMES_WIDER = 100.0
"""Its variance, in units of the narrow one's."""


class Tails[Of](NamedTuple):
    r"""Priors, Gaussian ones or Student-t ones, entry by entry.

    Their log density is ``linear w - precision w^2 / 2 - order log(1 + w^2 / rate)``, and ``rate``
    is proportional to a global scale.

    Parameters
    ----------
    precision, linear : array
        Zero where the prior is a Student-t.
    order, rate : array
        Zero and one where it is Gaussian.
    """

    precision: Of
    linear: Of
    order: Of
    rate: Of


class Place(NamedTuple):
    """What a trajectory moves, or the momenta, or slopes of the log density.

    Parameters
    ----------
    rows : array, shape (units, d)
        Weights of each unit; as coordinates they are stretched.
    outgoing : array, shape (units,)
        Outgoing weights; as coordinates their ``asinh(v / c)``.
    bias : array, shape (1,)
        Of the output.
    scales : array, shape (units + 3,)
        Shifts of the logarithms of the units' noise variances, of the response's variance, and of
        the global scales of rows and of outgoing weights.
    """

    rows: Array
    outgoing: Array
    bias: Array
    scales: Array


class Scene(NamedTuple):
    """What stays on a trajectory, and room for what is computed at a place.

    Parameters
    ----------
    inputs : array, shape (n_obs, d)
    logit, logit_factor, level, level_factor : array, shape (units, n_obs)
        Log odds of open gates where all weights are zero and their slopes by ``x . w``, and the
        same of the means of activations behind open gates.
    response : array, shape (n_obs,)
    weight : array, shape (1,) or (n_obs,)
    variance : array, shape (units,)
    chance, active, score : array, shape (units, n_obs)
        Probabilities of open gates, means of activations behind them, slopes by ``x . w``.
    mean, total : array, shape (n_obs,)
        Mean and variance of the response.
    by_mean, by_total : array, shape (n_obs,)
        Slopes of its log density.
    stretch : array, shape (units,)
        ``sqrt(v^2 + c^2)``.
    """

    inputs: Array
    logit: Array
    logit_factor: Array
    level: Array
    level_factor: Array
    response: Array
    weight: Array
    variance: Array
    chance: Array
    active: Array
    score: Array
    mean: Array
    total: Array
    by_mean: Array
    by_total: Array
    stretch: Array


class Laws[Of](NamedTuple):
    """Densities of the shifts t of log scales: ``exp(order t - inverse e^-t - direct e^t)``.

    Parameters
    ----------
    order, inverse, direct : array, shape (units + 3,)
    moves : array, shape (units + 4,)
        1 where the scale is moved, 0 where it stays; the last entry is that of the bias.
    """

    order: Of
    inverse: Of
    direct: Of
    moves: Of


@jit
def set_scene(layer: Rows, gates: GatedUnits, above: AboveOne) -> Scene:
    """What stays on a trajectory, and room."""
    units, n_obs = gates.gates.shape
    pre = np.dot(layer.rows, layer.inputs.T)
    logit, level = gates.logit.copy(), gates.level.copy()
    for a in range(units):
        for n in range(n_obs):
            logit[a, n] -= gates.logit_factor[a, n] * pre[a, n]
            level[a, n] -= gates.level_factor[a, n] * pre[a, n]
    return Scene(
        layer.inputs,
        logit,
        gates.logit_factor,
        level,
        gates.level_factor,
        above.response,
        above.weight,
        above.variance,
        np.empty((units, n_obs)),
        np.empty((units, n_obs)),
        np.empty((units, n_obs)),
        np.empty(n_obs),
        np.empty(n_obs),
        np.empty(n_obs),
        np.empty(n_obs),
        np.empty(units),
    )


@inline
def to_weights(place: Place, width: float, stretch: Array, weights: Place) -> None:
    """Fill the weights at coordinates, and what rows are stretched by."""
    for a in range(len(stretch)):
        high = 0.5 * width * math.exp(place.outgoing[a])
        low = 0.5 * width * math.exp(-place.outgoing[a])
        weights.outgoing[a], stretch[a] = high - low, high + low
        for j in range(place.rows.shape[1]):
            weights.rows[a, j] = place.rows[a, j] / stretch[a]
    weights.bias[0] = place.bias[0]
    for i in range(len(place.scales)):
        weights.scales[i] = place.scales[i]


@inline
def to_coordinates(weights: Place, width: float, place: Place) -> None:
    """Fill the coordinates of weights."""
    for a in range(len(weights.outgoing)):
        v = weights.outgoing[a]
        stretch = math.sqrt(v * v + width * width)
        size = math.log((abs(v) + stretch) / width)
        place.outgoing[a] = size if v >= 0.0 else -size
        for j in range(weights.rows.shape[1]):
            place.rows[a, j] = weights.rows[a, j] * stretch
    place.bias[0] = weights.bias[0]


@inline
def spread_of(weights: Place, scene: Scene) -> float:
    """Variance that the layer's noise adds to the response."""
    spread = 0.0
    for a in range(len(scene.variance)):
        v = weights.outgoing[a]
        spread += v * v * scene.variance[a] * math.exp(weights.scales[a])
    return spread


@inline
def own_variance(scene: Scene, shift: float, n: int) -> float:
    """Variance of a response given the activations."""
    return math.exp(shift) / (scene.weight[n] if len(scene.weight) > 1 else scene.weight[0])


@jit
def look(weights: Place, scene: Scene) -> None:
    """Fill chances, activations behind open gates, and mean and variance of the response."""
    units, n_obs = scene.logit.shape
    moved = np.dot(weights.rows, scene.inputs.T)
    spread, shift = spread_of(weights, scene), weights.scales[units]
    for n in range(n_obs):
        scene.mean[n] = weights.bias[0]
        scene.total[n] = own_variance(scene, shift, n) + spread
    for a in range(units):
        v, chance, active, pre = weights.outgoing[a], scene.chance[a], scene.active[a], moved[a]
        start, factor = scene.logit[a], scene.logit_factor[a]
        for n in range(n_obs):
            chance[n] = logistic(start[n] + factor[n] * pre[n])
        start, factor = scene.level[a], scene.level_factor[a]
        for n in range(n_obs):
            active[n] = start[n] + factor[n] * pre[n]
        for n in range(n_obs):
            seen = v * active[n]
            scene.mean[n] += chance[n] * seen
            scene.total[n] += chance[n] * (1.0 - chance[n]) * seen * seen


@jit
def weigh_response(scene: Scene) -> float:
    """Log density of the response after :func:`look`; fills its slopes."""
    density, wide = 0.0, WIDER / math.sqrt(TIMES_WIDER)
    for n in range(len(scene.response)):
        error, total = scene.response[n] - scene.mean[n], scene.total[n]
        square = error * error / total
        narrow = (1.0 - WIDER) * math.exp(-0.5 * square * (1.0 - 1.0 / TIMES_WIDER))
        share = narrow / (narrow + wide)
        pull = share + (1.0 - share) / TIMES_WIDER
        scene.by_mean[n] = pull * error / total
        scene.by_total[n] = 0.5 * (pull * square - 1.0) / total
        density += math.log(narrow + wide) - 0.5 * (square / TIMES_WIDER + math.log(total))
    return density


@jit
def pull_back(weights: Place, scene: Scene, slope: Place) -> None:
    """Fill the slopes of the response's log density in weights, bias and variances."""
    units, n_obs = scene.logit.shape
    level, square = np.empty(n_obs), np.empty(n_obs)
    of_spread = sum_of(scene.by_total)
    for a in range(units):
        v, chance, active, score = (
            weights.outgoing[a],
            scene.chance[a],
            scene.active[a],
            scene.score[a],
        )
        by_logit, by_level = scene.logit_factor[a], scene.level_factor[a]
        for n in range(n_obs):
            p, m = chance[n], active[n]
            unsure = p * (1.0 - p)
            of_mean = p * by_level[n] + m * unsure * by_logit[n]
            of_square = unsure * m * ((1.0 - 2.0 * p) * by_logit[n] * m + 2.0 * by_level[n])
            score[n] = v * (scene.by_mean[n] * of_mean + v * scene.by_total[n] * of_square)
            level[n] = p * m
            square[n] = unsure * m * m
        own = scene.variance[a] * math.exp(weights.scales[a]) * of_spread
        slope.outgoing[a] = inner_product(scene.by_mean, level)
        slope.outgoing[a] += 2.0 * v * (inner_product(scene.by_total, square) + own)
        slope.scales[a] = v * v * own
    slope.bias[0] = sum_of(scene.by_mean)
    slope.scales[units] = 0.0
    for n in range(n_obs):
        variance = own_variance(scene, weights.scales[units], n)
        slope.scales[units] += scene.by_total[n] * variance
    put(np.dot(scene.score, scene.inputs), slope.rows, 0, 0)


@inline
def add_prior(
    value: Array,
    precision: Array,
    linear: Array,
    order: Array,
    rate: Array,
    shift: float,
    slope: Array,
) -> tuple[float, float]:
    """Add the slope of a log prior; returns it, and its slope in the log of the global scale."""
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
def add_priors(weights: Place, rows: Tails, outgoing: Tails, laws: Laws, slope: Place) -> float:
    """Add the slopes of all log priors, and return their sum; the bias is the last outgoing."""
    units = len(weights.outgoing)
    density = 0.0
    slope.scales[units + 1] = 0.0
    for a in range(units):
        more, by_shift = add_prior(
            weights.rows[a],
            rows.precision[a],
            rows.linear[a],
            rows.order[a],
            rows.rate[a],
            weights.scales[units + 1],
            slope.rows[a],
        )
        density += more
        slope.scales[units + 1] += by_shift
    more, slope.scales[units + 2] = add_prior(
        weights.outgoing,
        outgoing.precision[:units],
        outgoing.linear[:units],
        outgoing.order[:units],
        outgoing.rate[:units],
        weights.scales[units + 2],
        slope.outgoing,
    )
    b = weights.bias[0]
    density += more + b * (outgoing.linear[units] - 0.5 * outgoing.precision[units] * b)
    slope.bias[0] += outgoing.linear[units] - outgoing.precision[units] * b
    slope.bias[0] *= laws.moves[units + 3]
    for i in range(len(weights.scales)):
        t = weights.scales[i]
        low, high = laws.inverse[i] * math.exp(-t), laws.direct[i] * math.exp(t)
        density += laws.order[i] * t - low - high
        slope.scales[i] = laws.moves[i] * (slope.scales[i] + laws.order[i] + low - high)
    return density


@jit
def evaluate(
    place: Place,
    width: float,
    scene: Scene,
    rows: Tails,
    outgoing: Tails,
    laws: Laws,
    weights: Place,
    slope: Place,
) -> float:
    """Log density at coordinates, and its slope; fills the weights there."""
    d = place.rows.shape[1]
    to_weights(place, width, scene.stretch, weights)
    look(weights, scene)
    density = weigh_response(scene)
    pull_back(weights, scene, slope)
    density += add_priors(weights, rows, outgoing, laws, slope)
    for a in range(len(scene.stretch)):
        stretch = scene.stretch[a]
        tangent = weights.outgoing[a] / stretch
        along = inner_product(slope.rows[a], weights.rows[a])
        density += (1.0 - d) * math.log(stretch)
        slope.outgoing[a] = stretch * slope.outgoing[a] + tangent * (1.0 - d - along)
        for j in range(d):
            slope.rows[a, j] /= stretch
    return density


@inline
def log_chance(gates: Array, logit: Array) -> float:
    """Log probability of gates."""
    total, product = 0.0, 1.0
    for n in range(len(gates)):
        against = logit[n] * (1.0 - 2.0 * gates[n])
        total -= max(against, 0.0)
        product *= 1.0 + exp_negative(-abs(against))
        if n % 512 == 511:
            total -= math.log(product)
            product = 1.0
    return total - math.log(product)


@jit
def spread_by_unit(weights: Place, scene: Scene) -> Array:
    """Sums over samples of the variance of the response that each unit's gates leave open."""
    units, n_obs = scene.logit.shape
    spread = np.zeros(units)
    for a in range(units):
        for n in range(n_obs):
            p, seen = scene.chance[a, n], weights.outgoing[a] * scene.active[a, n]
            spread[a] += p * (1.0 - p) * seen * seen
    return spread


@jit
def weigh_gates(weights: Place, scene: Scene, uniform: Array, gates: Array, draws: bool) -> float:
    """Log of the exact density of response and gates over the smooth one and that of their draw.

    Gates are drawn, or else weighed as they are, unit by unit, each given those before it and the
    moments of those behind it. Those that leave most open come first, since of these a Gaussian
    says least. After :func:`look`.
    """
    units, n_obs = gates.shape
    spread, shift = spread_of(weights, scene), weights.scales[units]
    residual, rest, least = scene.response - scene.mean, scene.total.copy(), np.empty(n_obs)
    for n in range(n_obs):
        least[n] = own_variance(scene, shift, n) + spread
    log_factor, before, after = -weigh_response(scene), np.empty(n_obs), np.empty(n_obs)
    order = np.argsort(spread_by_unit(weights, scene), kind="mergesort")
    for i in range(units):
        a = order[units - 1 - i]
        v, chance = weights.outgoing[a], scene.chance[a]
        by_weights = np.dot(scene.inputs, weights.rows[a])
        for n in range(n_obs):
            p, seen = chance[n], v * scene.active[a, n]
            before[n] = scene.logit[a, n] + scene.logit_factor[a, n] * by_weights[n]
            rest[n] = max(rest[n] - p * (1.0 - p) * seen * seen, least[n])
            residual[n] += p * seen
            after[n] = before[n] + seen * (residual[n] - 0.5 * seen) / rest[n]
        if draws:
            for n in range(n_obs):
                gates[a, n] = 1.0 if uniform[a, n] < logistic(after[n]) else 0.0
        log_factor += log_chance(gates[a], before) - log_chance(gates[a], after)
        for n in range(n_obs):
            residual[n] -= gates[a, n] * v * scene.active[a, n]
    for n in range(n_obs):
        log_factor -= 0.5 * (math.log(least[n]) + residual[n] * residual[n] / least[n])
    return log_factor
