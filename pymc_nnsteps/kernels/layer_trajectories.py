"""Hamiltonian trajectories of a layer's weights with those that one output sees it through.

:mod:`pymc_nnsteps.moves.layer_trajectories` derives the move.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.kernels.interweaving import Pieces, read_pieces, read_units
from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.kernels.linear_algebra import (
    Array,
    copy,
    inner_product,
    put,
    solve,
    solve_transposed,
    sum_of,
    try_to_factorise,
)
from pymc_nnsteps.kernels.rows import Rows
from pymc_nnsteps.kernels.unit_rays import AboveOne, Outgoing

MOST_STEPS = 64
"""Largest number of leapfrog steps of a trajectory."""

N_AVERAGES = 6
"""Numbers that a metric is made of."""

LEAST_SHARE = 1e-8
"""Share of a residual's variance below which that of the response is left to other moves.

Trajectories neither begin nor end there, where other draws lose digits.
"""

OF_SCALE = 0.1
"""Precision of the response's log variance in the metric beside what the rows say of it."""


class Coordinates(NamedTuple):
    """What a trajectory moves, or the momenta, or slopes of the log density.

    Parameters
    ----------
    rows : array, shape (units, d)
    above : array, shape (units + 1,) or (units,)
        Outgoing weights, and the bias of the output if it is moved.
    shift : array, shape (1,)
        Change of the log of the response's variance.
    """

    rows: Array
    above: Array
    shift: Array


class Scene(NamedTuple):
    """What stays on a trajectory, and room for what is computed at a place.

    Parameters
    ----------
    inputs : array, shape (n_obs, d)
    prior, prior_linear : array, shape (units, d)
    of_above, of_above_linear : array, shape (units + 1,) or (units,)
        Precision of the prior of outgoing weights and bias, and precision times mean.
    noise : array, shape (units, n_obs)
    target : array, shape (n_obs,)
        The response with the bias of the output.
    weight : array, shape (1,) or (n_obs,)
    variance : array, shape (units,)
    keeps : array, shape (1,)
        1 if the response's variance is moved, 0 if it stays.
    slope, active : array, shape (units, n_obs)
        Of the activation.
    score : array, shape (n_obs,)
        Residual over its variance.
    total : array, shape (n_obs,)
        Variance of the residual.
    """

    inputs: Array
    prior: Array
    prior_linear: Array
    of_above: Array
    of_above_linear: Array
    noise: Array
    target: Array
    weight: Array
    variance: Array
    keeps: Array
    slope: Array
    active: Array
    score: Array
    total: Array


class Metric(NamedTuple):
    """Blocks of the metric: Cholesky factors U, and their inverses.

    Parameters
    ----------
    factor, inverse : array, shape (d, d)
        For the row of each unit.
    factor_above, inverse_above : array, shape (units + 1, units + 1) or (units, units)
    shift : array, shape (1,)
        Root of the metric's entry of the log variance.
    """

    factor: Array
    inverse: Array
    factor_above: Array
    inverse_above: Array
    shift: Array


class MovedLayer(NamedTuple):
    """The end of a trajectory.

    Parameters
    ----------
    rows : array, shape (units, d)
    pre : array, shape (units, n_obs)
    above : array, shape (units + 1,) or (units,)
    shift : array, shape (1,)
        Change of the log of the response's variance.
    log_ratio : array, shape (1,)
        Log probability of acceptance under the flat density of the response's scale.
    averages : array, shape (N_AVERAGES,)
        Numbers of the metric at the beginning; those given where the step size is zero.
    """

    rows: Array
    pre: Array
    above: Array
    shift: Array
    log_ratio: Array
    averages: Array


@inline
def spread_of(place: Coordinates, scene: Scene) -> float:
    """Variance that the layer's noise adds."""
    spread = 0.0
    for a in range(len(scene.variance)):
        spread += place.above[a] * place.above[a] * scene.variance[a]
    return spread


@jit
def look(place: Coordinates, scene: Scene, activation: Pieces) -> None:
    """Fill slopes and activations at a place, and residuals as scores."""
    pre = np.dot(place.rows, scene.inputs.T)
    units, n_obs = scene.noise.shape
    for a in range(units):
        for n in range(n_obs):
            pre[a, n] += scene.noise[a, n]
        read_pieces(pre[a], activation, scene.slope[a], scene.active[a])
        for n in range(n_obs):
            scene.active[a, n] += scene.slope[a, n] * pre[a, n]
    seen = np.dot(place.above[:units], scene.active)
    bias = place.above[units] if len(place.above) > units else 0.0
    for n in range(n_obs):
        scene.score[n] = scene.target[n] - bias - seen[n]


@jit
def say(scene: Scene, shift: float, spread: float) -> tuple[float, float, float]:
    """Turn residuals into scores.

    Returns the log density of the response, its slope in the variance that the layer's noise adds,
    and that in the log of the response's own variance.
    """
    n_obs, shared = len(scene.target), len(scene.weight) == 1
    density, by_spread, by_shift = 0.0, 0.0, 0.0
    if shared:
        own = math.exp(shift) / scene.weight[0]
        total = own + spread
        density = -0.5 * n_obs * math.log(total)
        squares = inner_product(scene.score, scene.score)
        for n in range(n_obs):
            scene.score[n] /= total
            scene.total[n] = total
        density -= 0.5 * squares / total
        by_spread = 0.5 * (squares / total - n_obs) / total
        return density, by_spread, by_spread * own
    for n in range(n_obs):
        own = math.exp(shift) / scene.weight[n]
        total = own + spread
        error = scene.score[n]
        scene.score[n], scene.total[n] = error / total, total
        slope = 0.5 * (error * scene.score[n] - 1.0) / total
        density -= 0.5 * (math.log(total) + error * scene.score[n])
        by_spread += slope
        by_shift += slope * own
    return density, by_spread, by_shift


@inline
def add_prior(value: Array, prior: Array, linear: Array, slope: Array) -> float:
    """Add the slope of a Gaussian log density, and return it."""
    density = 0.0
    for j in range(len(value)):
        density += value[j] * (linear[j] - 0.5 * prior[j] * value[j])
        slope[j] += linear[j] - prior[j] * value[j]
    return density


@jit
def evaluate(place: Coordinates, scene: Scene, activation: Pieces, slope: Coordinates) -> float:
    """Log density at a place, and its slope."""
    n_obs, units = len(scene.target), len(scene.variance)
    look(place, scene, activation)
    spread = spread_of(place, scene)
    density, by_spread, by_shift = say(scene, place.shift[0], spread)
    seen = np.dot(scene.active, scene.score)
    for a in range(units):
        v = place.above[a]
        for n in range(n_obs):
            scene.slope[a, n] *= v * scene.score[n]
        slope.above[a] = seen[a] + 2.0 * v * scene.variance[a] * by_spread
    if len(place.above) > units:
        slope.above[units] = sum_of(scene.score)
    put(np.dot(scene.slope, scene.inputs), slope.rows, 0, 0)
    for a in range(units):
        density += add_prior(place.rows[a], scene.prior[a], scene.prior_linear[a], slope.rows[a])
    density += add_prior(place.above, scene.of_above, scene.of_above_linear, slope.above)
    slope.shift[0] = scene.keeps[0] * (by_shift + 0.5)
    return density + 0.5 * scene.keeps[0] * place.shift[0]


@jit
def fill_numbers(place: Coordinates, scene: Scene, activation: Pieces, numbers: Array) -> None:
    r"""Fill numbers of the Fisher information at a place, averaged over units and pairs of them.

    The mean of :math:`v_a^2 \sigma'(z_{na})^2 / V_n`; sums over samples of the means of
    :math:`\sigma(z_{na})^2 / V_n`, of :math:`\sigma(z_{na}) \sigma(z_{nb}) / V_n` and of
    :math:`\sigma(z_{na}) / V_n`; sums of :math:`1 / V_n` and of :math:`s^4 / (2 V_n^2)`.
    """
    look(place, scene, activation)
    spread = spread_of(place, scene)
    say(scene, place.shift[0], spread)
    n_obs, units = len(scene.target), len(scene.variance)
    level, pairs = np.zeros(n_obs), 0.0
    for a in range(units):
        v = place.above[a]
        for n in range(n_obs):
            active, steep = scene.active[a, n], v * scene.slope[a, n]
            numbers[0] += steep * steep / (scene.total[n] * n_obs)
            numbers[1] += active * active / scene.total[n]
            level[n] += active
    for n in range(n_obs):
        precision = 1.0 / scene.total[n]
        pairs += level[n] * level[n] * precision
        numbers[3] += level[n] * precision
        numbers[4] += precision
        own = 1.0 - spread * precision
        numbers[5] += 0.5 * own * own
    if units > 1:
        numbers[2] = (pairs - numbers[1]) / (units * (units - 1))
    numbers[:2] /= units
    numbers[3] /= units


@jit
def invert(matrix: Array, factor: Array, inverse: Array) -> bool:
    """Fill the Cholesky factor U and the inverse; False if a matrix is not positive definite."""
    put(matrix, factor, 0, 0)
    if not try_to_factorise(factor) > 0.0:
        return False
    for i in range(len(matrix)):
        for j in range(len(matrix)):
            factor[i, j] = factor[i, j] if j >= i else 0.0
            inverse[i, j] = 1.0 if i == j else 0.0
        solve_transposed(factor, inverse[i])
        solve(factor, inverse[i])
    return True


@jit
def fill_metric(scene: Scene, gram: Array, numbers: Array, metric: Metric) -> bool:
    """Fill the blocks of a metric; False if it is not positive definite."""
    units, shared = len(scene.variance), len(scene.of_above)
    of_rows, of_above = numbers[0] * gram, np.empty((shared, shared))
    for a in range(units):
        for i in range(len(gram)):
            of_rows[i, i] += scene.prior[a, i] / units
    for a in range(shared):
        for b in range(shared):
            of_above[a, b] = numbers[2]
        of_above[a, a] = numbers[1]
    if shared > units:
        for a in range(units):
            of_above[a, units] = numbers[3]
            of_above[units, a] = numbers[3]
        of_above[units, units] = numbers[4]
    for a in range(shared):
        of_above[a, a] += scene.of_above[a]
    metric.shift[0] = math.sqrt(numbers[5] + OF_SCALE)
    return invert(of_rows, metric.factor, metric.inverse) and invert(
        of_above, metric.factor_above, metric.inverse_above
    )


@jit
def draw_momenta(metric: Metric, normal: Array, keeps: float, momenta: Coordinates) -> None:
    """``U^T xi`` of each block."""
    units, d = momenta.rows.shape
    first = units * d
    for a in range(units):
        copy(np.dot(normal[a * d : (a + 1) * d], metric.factor), momenta.rows[a])
    above = normal[first : first + len(momenta.above)]
    copy(np.dot(above, metric.factor_above), momenta.above)
    momenta.shift[0] = keeps * metric.shift[0] * normal[first + len(above)]


@jit
def fill_velocity(metric: Metric, momenta: Coordinates, velocity: Coordinates) -> float:
    """Fill the momenta divided by the metric, and return their energy."""
    put(np.dot(momenta.rows, metric.inverse), velocity.rows, 0, 0)
    copy(np.dot(momenta.above, metric.inverse_above), velocity.above)
    velocity.shift[0] = momenta.shift[0] / (metric.shift[0] * metric.shift[0])
    energy = momenta.shift[0] * velocity.shift[0] + inner_product(momenta.above, velocity.above)
    for a in range(len(momenta.rows)):
        energy += inner_product(momenta.rows[a], velocity.rows[a])
    return 0.5 * energy


@inline
def add(source: Coordinates, factor: float, target: Coordinates) -> None:
    """``target += factor * source``."""
    for a in range(len(target.rows)):
        for j in range(target.rows.shape[1]):
            target.rows[a, j] += factor * source.rows[a, j]
    for a in range(len(target.above)):
        target.above[a] += factor * source.above[a]
    target.shift[0] += factor * source.shift[0]


@inline
def kick_size(step: int, n_steps: int, size: float) -> float:
    """Size of the kick after a leapfrog step: half of it after the last one."""
    return size if step < n_steps - 1 else 0.5 * size


@inline
def is_tiny(scene: Scene, place: Coordinates) -> bool:
    """Whether the response's variance is moved, and is hardly seen beside the layer's noise."""
    own = math.exp(place.shift[0]) / scene.weight[0]
    return scene.keeps[0] > 0.0 and own < LEAST_SHARE * spread_of(place, scene)


@jit
def empty_coordinates(units: int, d: int, shared: int) -> Coordinates:
    """Room for coordinates, all at zero."""
    return Coordinates(np.zeros((units, d)), np.zeros(shared), np.zeros(1))


@jit
def empty_metric(d: int, shared: int) -> Metric:
    """Room for a metric."""
    return Metric(
        np.empty((d, d)),
        np.empty((d, d)),
        np.empty((shared, shared)),
        np.empty((shared, shared)),
        np.empty(1),
    )


@jit
def set_scene(weights: Rows, noise: Array, seen: Outgoing, above: AboveOne, keeps: Array) -> Scene:
    """What stays on a trajectory, and room."""
    units, n_obs = noise.shape
    return Scene(
        weights.inputs,
        weights.prior,
        weights.prior_linear,
        seen.prior,
        seen.prior_linear,
        noise,
        above.response,
        above.weight,
        above.variance,
        keeps,
        np.empty((units, n_obs)),
        np.empty((units, n_obs)),
        np.empty(n_obs),
        np.empty(n_obs),
    )


@jit
def move_layer(
    weights: Rows,
    pre: Array,
    activation: Pieces,
    seen: Outgoing,
    above: AboveOne,
    keeps: Array,
    gram: Array,
    averages: Array,
    rho: Array,
    normal: Array,
    uniform: Array,
) -> MovedLayer:
    """Follow one trajectory.

    Parameters
    ----------
    pre : array, shape (units, n_obs)
    seen : Outgoing
        Outgoing weights, and the bias of the output if it is moved.
    above : AboveOne
        Its response is the one with the bias of the output.
    keeps : array, shape (1,)
        1 if the response's variance is moved, 0 if it stays.
    gram : array, shape (d, d)
        ``X^T X``.
    averages : array, shape (N_AVERAGES,)
        Numbers of the metric; zero before there are any: then nothing moves.
    rho : array, shape (1,)
        One minus the step size; 1: nothing moves.
    normal : array, shape (units * d + units + 2,)
    uniform : array, shape (1,)
        Length of the trajectory.
    """
    units, d = weights.rows.shape
    shared = len(seen.outgoing)
    place = Coordinates(weights.rows.copy(), seen.outgoing.copy(), np.zeros(1))
    numbers, log_ratio = np.zeros(N_AVERAGES), np.zeros(1)
    if rho[0] == 1.0:
        numbers = averages.copy()
        return MovedLayer(place.rows, pre.copy(), place.above, place.shift, log_ratio, numbers)
    _, _, noise = read_units(weights, pre, activation)
    scene = set_scene(weights, noise, seen, above, keeps)
    fill_numbers(place, scene, activation, numbers)
    metric = empty_metric(d, shared)
    known = averages[4] > 0.0 and fill_metric(scene, gram, averages, metric)
    if is_tiny(scene, place) or not known:
        return MovedLayer(place.rows, pre.copy(), place.above, place.shift, log_ratio, numbers)
    momenta, velocity = empty_coordinates(units, d, shared), empty_coordinates(units, d, shared)
    slope, size = empty_coordinates(units, d, shared), 1.0 - rho[0]
    draw_momenta(metric, normal, keeps[0], momenta)
    density = evaluate(place, scene, activation, slope)
    begin = density - fill_velocity(metric, momenta, velocity)
    add(slope, 0.5 * size, momenta)
    n_steps = 1 + int(uniform[0] * MOST_STEPS)
    for step in range(n_steps):
        fill_velocity(metric, momenta, velocity)
        add(velocity, size, place)
        density = evaluate(place, scene, activation, slope)
        add(slope, kick_size(step, n_steps, size), momenta)
        if not math.isfinite(density):
            break
    log_ratio[0] = density - fill_velocity(metric, momenta, velocity) - begin
    if is_tiny(scene, place):
        log_ratio[0] = -math.inf
    moved = noise + np.dot(place.rows, weights.inputs.T)
    return MovedLayer(place.rows, moved, place.above, place.shift, log_ratio, numbers)
