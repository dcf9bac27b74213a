"""Hamiltonian trajectories of all weights of a layer behind gates, which are summed out.

:mod:`pymc_nnsteps.moves.gated_trajectories` derives the move.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.kernels.collapse import Above
from pymc_nnsteps.kernels.gate_draws import weigh_gates
from pymc_nnsteps.kernels.gated_density import (
    Laws,
    Place,
    Scene,
    Tails,
    evaluate,
    invert_at,
    set_scene,
    to_coordinates,
)
from pymc_nnsteps.kernels.interwoven_gates import GatedUnits
from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.kernels.layer_trajectories import invert, kick_size
from pymc_nnsteps.kernels.linear_algebra import Array, copy, inner_product, put
from pymc_nnsteps.kernels.rows import Rows, acceptance_probability

MOST_STEPS = 32
"""Largest number of leapfrog steps of a trajectory."""

LEAST = 0.1
"""Precision of each logarithm in the metric beside what slopes say of it."""

OF_WIDTH = 0.1
"""Width c of the coordinates of outgoing weights, in units of these weights' root mean square."""


TARGET_ACCEPT = 0.75
"""Target acceptance probability of a trajectory on the smooth density."""

LEAST_OFTEN = 0.05
"""Smallest share of sweeps with a trajectory.

Where the smooth density is far from the exact one few ends are accepted, and as few are tried.
"""


class Metric(NamedTuple):
    """The metric of the coordinates, the same for all units.

    Parameters
    ----------
    factor, inverse : array, shape (d, d)
        Cholesky factor U of the metric of a unit's row, and the metric's inverse.
    outgoing : array, shape (m,)
        For the weights of each output.
    bias : array, shape (m,)
    scales : array, shape (units + k + 2,)
        Square roots of the metric's other entries.
    """

    factor: Array
    inverse: Array
    outgoing: Array
    bias: Array
    scales: Array


class MovedLayer(NamedTuple):
    """The end of a trajectory.

    Parameters
    ----------
    rows : array, shape (units, d)
    gates : array, shape (units, n_obs)
    outgoing : array, shape (m, units)
    bias : array, shape (m,)
    scales : array, shape (units + k + 2,)
        Shifts of the logarithms of scales.
    probability : array, shape (2,)
        Of acceptance by the smooth density, and of acceptance.
    averages : array, shape (n_averages(d, m, k),)
        Numbers of the metric at the beginning; those given where the step size is zero.
    """

    rows: Array
    gates: Array
    outgoing: Array
    bias: Array
    scales: Array
    probability: Array
    averages: Array


def n_averages(d: int, n_outputs: int, n_scales: int) -> int:
    """How many numbers are averaged while tuning."""
    return d + 2 * n_outputs + n_scales + 6


@inline
def empty_place(units: int, d: int, scaled: Array) -> Place:
    """Room for coordinates, all at zero."""
    n_scales, m = scaled.shape
    return Place(
        np.zeros((units, d)), np.zeros((m, units)), np.zeros(m), np.zeros(units + n_scales + 2)
    )


@jit
def information_of_rows(weights: Place, scene: Scene) -> float:
    """Mean over units and samples of the Fisher information of the response in ``x . w``."""
    (m, n_obs), units, total = scene.mean.shape, len(scene.stretch), 0.0
    own, known, inverse = np.empty(m), np.empty((m, m)), np.empty_like(scene.total)
    for n in range(n_obs):
        invert_at(scene, scene.total, n, own, known)
        pair = 0
        for i in range(m):
            for j in range(i, m):
                inverse[pair, n] = known[i, j] if i == j else 2.0 * known[i, j]
                pair += 1
    steep = np.empty(n_obs)
    for a in range(units):
        chance, active, pair = scene.chance[a], scene.active[a], 0
        by_logit, by_level = scene.logit_factor[a], scene.level_factor[a]
        for n in range(n_obs):
            slope = by_level[n] + active[n] * (1.0 - chance[n]) * by_logit[n]
            slope *= chance[n] / scene.stretch[a]
            steep[n] = slope * slope
        for i in range(m):
            for j in range(i, m):
                v = weights.outgoing[i, a] * weights.outgoing[j, a]
                total += v * inner_product(steep, inverse[pair])
                pair += 1
    return total / (n_obs * units)


@jit
def fill_numbers(weights: Place, scene: Scene, rows: Tails, slope: Place, numbers: Array) -> None:
    """Fill the numbers of the metric, means over units, where the density was evaluated.

    The Fisher information of the response in ``x . w``, prior precisions of a unit's stretched
    weights, squares of the other coordinates' slopes (for each output of its weights and its bias),
    and of outgoing weights; the acceptance by what is exact is one as long as nothing has moved.
    """
    (units, d), m, n_scales = weights.rows.shape, len(weights.bias), len(scene.scaled)
    of_scales = d + 1 + 2 * m
    numbers[:] = 0.0
    numbers[0] = information_of_rows(weights, scene)
    for a in range(units):
        stretch = scene.stretch[a]
        for j in range(d):
            w, rate = weights.rows[a, j], rows.rate[a, j]
            precision = rows.precision[a, j] + 2.0 * rows.order[a, j] / (rate + w * w)
            numbers[1 + j] += precision / (stretch * stretch * units)
        for i in range(m):
            v = weights.outgoing[i, a]
            numbers[d + 1 + i] += slope.outgoing[i, a] * slope.outgoing[i, a] / units
            numbers[of_scales + n_scales + 3] += v * v / (units * m)
        numbers[of_scales] += slope.scales[a] * slope.scales[a] / units
    for i in range(m):
        numbers[d + 1 + m + i] = slope.bias[i] * slope.bias[i]
    for i in range(n_scales + 2):
        numbers[of_scales + 1 + i] = slope.scales[units + i] * slope.scales[units + i]
    numbers[of_scales + n_scales + 4] = 1.0


@jit
def fill_metric(gram: Array, numbers: Array, metric: Metric) -> bool:
    """Fill the metric; False if it is not positive definite."""
    d, m = len(gram), len(metric.bias)
    units = len(metric.scales) - (len(numbers) - d - 2 * m - 4)
    of_rows = numbers[0] * gram
    for j in range(d):
        of_rows[j, j] += numbers[1 + j]
    for i in range(m):
        metric.outgoing[i] = math.sqrt(numbers[d + 1 + i] + LEAST)
        metric.bias[i] = math.sqrt(numbers[d + 1 + m + i])
    for i in range(len(metric.scales)):
        metric.scales[i] = math.sqrt(numbers[d + 1 + 2 * m + max(0, i - units + 1)] + LEAST)
    return invert(of_rows, metric.factor, metric.inverse)


@jit
def draw_momenta(metric: Metric, moves: Array, normal: Array, momenta: Place) -> None:
    """``U^T xi`` of rows, and roots of the metric times xi."""
    (units, d), m = momenta.rows.shape, len(momenta.bias)
    rest, n_scales = units * (d + m), len(momenta.scales)
    for a in range(units):
        copy(np.dot(normal[a * d : (a + 1) * d], metric.factor), momenta.rows[a])
        for i in range(m):
            momenta.outgoing[i, a] = metric.outgoing[i] * normal[units * (d + i) + a]
    for i in range(n_scales):
        momenta.scales[i] = moves[i] * metric.scales[i] * normal[rest + i]
    for i in range(m):
        k = n_scales + i
        momenta.bias[i] = moves[k] * metric.bias[i] * normal[rest + k]


@inline
def divide(momenta: Array, root: Array, velocity: Array) -> float:
    """Fill velocities along a diagonal metric, and return twice their energy."""
    for i in range(len(momenta)):
        velocity[i] = momenta[i] / (root[i] * root[i]) if momenta[i] != 0.0 else 0.0
    return inner_product(momenta, velocity)


@jit
def fill_velocity(metric: Metric, momenta: Place, velocity: Place) -> float:
    """Fill the momenta divided by the metric, and return their energy."""
    put(np.dot(momenta.rows, metric.inverse), velocity.rows, 0, 0)
    energy = divide(momenta.bias, metric.bias, velocity.bias)
    for i in range(len(momenta.outgoing)):
        for a in range(len(momenta.rows)):
            velocity.outgoing[i, a] = momenta.outgoing[i, a] / metric.outgoing[i] ** 2
        energy += inner_product(momenta.outgoing[i], velocity.outgoing[i])
    energy += divide(momenta.scales, metric.scales, velocity.scales)
    for a in range(len(momenta.rows)):
        energy += inner_product(momenta.rows[a], velocity.rows[a])
    return 0.5 * energy


@inline
def add(source: Place, factor: float, target: Place) -> None:
    """``target += factor * source``."""
    for a in range(len(target.rows)):
        for j in range(target.rows.shape[1]):
            target.rows[a, j] += factor * source.rows[a, j]
        for i in range(len(target.outgoing)):
            target.outgoing[i, a] += factor * source.outgoing[i, a]
    for i in range(len(target.bias)):
        target.bias[i] += factor * source.bias[i]
    for i in range(len(target.scales)):
        target.scales[i] += factor * source.scales[i]


@inline
def often(averages: Array) -> float:
    """Share of sweeps with a trajectory, by the mean acceptance by what is exact."""
    known = averages[0] > 0.0
    return max(2.0 * averages[len(averages) - 1], LEAST_OFTEN) if known else 1.0


@inline
def width_of(outgoing: Array, square: float) -> float:
    """Width c, by the mean square of outgoing weights, or by those at the beginning."""
    if square <= 0.0:
        square = 0.0
        for i in range(len(outgoing)):
            square += inner_product(outgoing[i], outgoing[i]) / outgoing.size
    return OF_WIDTH * math.sqrt(square)


@jit
def start_of(layer: Rows, outgoing: Array, scaled: Array) -> Place:
    """The weights at the beginning."""
    units, d = layer.rows.shape
    start = empty_place(units, d, scaled)
    put(layer.rows, start.rows, 0, 0)
    put(outgoing[:, :units], start.outgoing, 0, 0)
    for i in range(len(outgoing)):
        start.bias[i] = outgoing[i, units]
    return start


@inline
def end_of(weights: Place, gates: Array, probability: Array, numbers: Array) -> MovedLayer:
    """Weights and gates as the end of a trajectory."""
    return MovedLayer(
        weights.rows, gates, weights.outgoing, weights.bias, weights.scales, probability, numbers
    )


@jit
def empty_metric(units: int, d: int, scaled: Array) -> Metric:
    """Room for a metric."""
    n_scales, m = scaled.shape
    return Metric(
        np.empty((d, d)), np.empty((d, d)), np.empty(m), np.empty(m), np.empty(units + n_scales + 2)
    )


@jit
def move_gated_layer(
    layer: Rows,
    gates: GatedUnits,
    row_tails: Tails,
    outgoing: Array,
    outgoing_tails: Tails,
    above: Above,
    scaled: Array,
    laws: Laws,
    gram: Array,
    averages: Array,
    rho: Array,
    normal: Array,
    refresh: Array,
    uniform: Array,
) -> MovedLayer:
    """Follow one trajectory, and draw the gates at its end.

    Parameters
    ----------
    row_tails : Tails of shape (units, d)
    outgoing : array, shape (m, units + 1)
        Outgoing weights of each output, and its bias.
    outgoing_tails : Tails of shape (m, units + 1)
        Biases have a Gaussian prior.
    above : Above
        Its response is the one with the biases of the outputs; weights are zero where it is not
        seen. Its design is not used.
    scaled : array, shape (k, m)
        1 where a variance of the response is that of an output; a row of zeros is none.
    gram : array, shape (d, d)
        ``X^T X``.
    averages : array, shape (n_averages(d, m, k),)
        Numbers of the metric; zero before there are any: then nothing moves.
    rho : array, shape (1,)
        One minus the step size; 1: nothing moves.
    normal : array, shape (units * (d + m + 1) + k + 2 + m,)
    refresh : array, shape (units, n_obs)
        Uniform, for the gates.
    uniform : array, shape (3,)
        For the length of the trajectory, whether it is accepted, and whether there is one.
    """
    (units, d), last = layer.rows.shape, len(averages) - 1
    start, probability, numbers = start_of(layer, outgoing, scaled), np.ones(2), averages.copy()
    if rho[0] == 1.0 or uniform[2] > often(averages):
        probability[0] = TARGET_ACCEPT
        return end_of(start, gates.gates.copy(), probability, numbers)

    # The density at the beginning, and the metric.
    scene, weights = set_scene(layer, gates, above, scaled), empty_place(units, d, scaled)
    slope, place = empty_place(units, d, scaled), empty_place(units, d, scaled)
    width = width_of(start.outgoing, averages[last - 1])
    to_coordinates(start, width, place)
    density = evaluate(place, width, scene, row_tails, outgoing_tails, laws, weights, slope)
    new_gates = gates.gates.copy()
    factor = -weigh_gates(weights, scene, refresh, new_gates, False)
    fill_numbers(weights, scene, row_tails, slope, numbers)
    metric = empty_metric(units, d, scaled)
    if not (averages[0] > 0.0 and fill_metric(gram, averages, metric)):
        return end_of(start, new_gates, probability, numbers)

    # Leapfrog steps.
    momenta, velocity = empty_place(units, d, scaled), empty_place(units, d, scaled)
    draw_momenta(metric, laws.moves, normal, momenta)
    size, begin = 1.0 - rho[0], density - fill_velocity(metric, momenta, velocity)
    add(slope, 0.5 * size, momenta)
    n_steps = 1 + int(uniform[0] * MOST_STEPS)
    for step in range(n_steps):
        fill_velocity(metric, momenta, velocity)
        add(velocity, size, place)
        density = evaluate(place, width, scene, row_tails, outgoing_tails, laws, weights, slope)
        add(slope, kick_size(step, n_steps, size), momenta)
        if not math.isfinite(density):
            break
    log_ratio = density - fill_velocity(metric, momenta, velocity) - begin
    probability[0] = acceptance_probability(log_ratio)
    probability[1], numbers[last] = 0.0, 0.0

    # The gates, and what is exact.
    if probability[0] > 0.0:
        factor += weigh_gates(weights, scene, refresh, new_gates, True)
        numbers[last] = acceptance_probability(factor)
        probability[1] = acceptance_probability(log_ratio + factor)
    if uniform[1] < probability[1]:
        return end_of(weights, new_gates, probability, numbers)
    return end_of(start, gates.gates.copy(), probability, numbers)
