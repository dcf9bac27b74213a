"""Hamiltonian trajectories of all weights of a layer behind gates, which are summed out.

:mod:`pymc_nnsteps.moves.gated_trajectories` derives the move.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.kernels.gated_density import (
    Laws,
    Place,
    Scene,
    Tails,
    evaluate,
    set_scene,
    to_coordinates,
    weigh_gates,
)
from pymc_nnsteps.kernels.interwoven_gates import GatedUnits
from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.kernels.layer_trajectories import invert, kick_size
from pymc_nnsteps.kernels.linear_algebra import Array, copy, inner_product, put
from pymc_nnsteps.kernels.rows import Rows, acceptance_probability
from pymc_nnsteps.kernels.unit_rays import AboveOne

MOST_STEPS = 32
"""Largest number of leapfrog steps of a trajectory."""

N_AVERAGES = 9
"""Numbers that are averaged while tuning, beside one for each weight of a unit."""

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
    outgoing : array, shape (units,)
    bias : array, shape (1,)
    scales : array, shape (units + 3,)
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
    outgoing : array, shape (units,)
    bias : array, shape (1,)
    scales : array, shape (units + 3,)
        Shifts of the logarithms of scales.
    probability : array, shape (2,)
        Of acceptance by the smooth density, and of acceptance.
    averages : array, shape (d + N_AVERAGES,)
        Numbers of the metric at the beginning; those given where the step size is zero.
    """

    rows: Array
    gates: Array
    outgoing: Array
    bias: Array
    scales: Array
    probability: Array
    averages: Array


@inline
def empty_place(units: int, d: int) -> Place:
    """Room for coordinates, all at zero."""
    return Place(np.zeros((units, d)), np.zeros(units), np.zeros(1), np.zeros(units + 3))


@jit
def fill_numbers(weights: Place, scene: Scene, rows: Tails, slope: Place, numbers: Array) -> None:
    """Fill the numbers of the metric, means over units, where the density was evaluated.

    The Fisher information of the response in ``x . w``, prior precisions of a unit's stretched
    weights, squares of the other coordinates' slopes, and of outgoing weights; the acceptance by
    what is exact is one as long as nothing has moved.
    """
    units, d = weights.rows.shape
    n_obs = len(scene.total)
    numbers[:] = 0.0
    numbers[d + 8] = 1.0
    for a in range(units):
        v, stretch = weights.outgoing[a], scene.stretch[a]
        for n in range(n_obs):
            p, m = scene.chance[a, n], scene.active[a, n]
            steep = p * (scene.level_factor[a, n] + m * (1.0 - p) * scene.logit_factor[a, n])
            steep *= v / stretch
            numbers[0] += steep * steep / (scene.total[n] * n_obs * units)
        for j in range(d):
            w, rate = weights.rows[a, j], rows.rate[a, j]
            precision = rows.precision[a, j] + 2.0 * rows.order[a, j] / (rate + w * w)
            numbers[1 + j] += precision / (stretch * stretch * units)
        numbers[d + 1] += slope.outgoing[a] * slope.outgoing[a] / units
        numbers[d + 3] += slope.scales[a] * slope.scales[a] / units
        numbers[d + 7] += v * v / units
    numbers[d + 2] = slope.bias[0] * slope.bias[0]
    for i in range(3):
        numbers[d + 4 + i] = slope.scales[units + i] * slope.scales[units + i]


@jit
def fill_metric(gram: Array, numbers: Array, metric: Metric) -> bool:
    """Fill the metric; False if it is not positive definite."""
    d, units = len(gram), len(metric.outgoing)
    of_rows = numbers[0] * gram
    for j in range(d):
        of_rows[j, j] += numbers[1 + j]
    metric.outgoing[:] = math.sqrt(numbers[d + 1] + LEAST)
    metric.bias[0] = math.sqrt(numbers[d + 2])
    metric.scales[:units] = math.sqrt(numbers[d + 3] + LEAST)
    for i in range(3):
        metric.scales[units + i] = math.sqrt(numbers[d + 4 + i] + LEAST)
    return invert(of_rows, metric.factor, metric.inverse)


@jit
def draw_momenta(metric: Metric, moves: Array, normal: Array, momenta: Place) -> None:
    """``U^T xi`` of rows, and roots of the metric times xi."""
    units, d = momenta.rows.shape
    for a in range(units):
        copy(np.dot(normal[a * d : (a + 1) * d], metric.factor), momenta.rows[a])
        momenta.outgoing[a] = metric.outgoing[a] * normal[units * d + a]
    rest = units * (d + 1)
    for i in range(units + 3):
        momenta.scales[i] = moves[i] * metric.scales[i] * normal[rest + i]
    momenta.bias[0] = moves[units + 3] * metric.bias[0] * normal[rest + units + 3]


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
    energy = divide(momenta.outgoing, metric.outgoing, velocity.outgoing)
    energy += divide(momenta.bias, metric.bias, velocity.bias)
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
        target.outgoing[a] += factor * source.outgoing[a]
    target.bias[0] += factor * source.bias[0]
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
        square = inner_product(outgoing, outgoing) / len(outgoing)
    return OF_WIDTH * math.sqrt(square)


@jit
def start_of(layer: Rows, outgoing: Array) -> Place:
    """The weights at the beginning."""
    units, d = layer.rows.shape
    start = empty_place(units, d)
    put(layer.rows, start.rows, 0, 0)
    copy(outgoing[:units], start.outgoing)
    start.bias[0] = outgoing[units]
    return start


@inline
def end_of(weights: Place, gates: Array, probability: Array, numbers: Array) -> MovedLayer:
    """Weights and gates as the end of a trajectory."""
    return MovedLayer(
        weights.rows, gates, weights.outgoing, weights.bias, weights.scales, probability, numbers
    )


@jit
def empty_metric(units: int, d: int) -> Metric:
    """Room for a metric."""
    return Metric(
        np.empty((d, d)), np.empty((d, d)), np.empty(units), np.empty(1), np.empty(units + 3)
    )


@jit
def move_gated_layer(
    layer: Rows,
    gates: GatedUnits,
    row_tails: Tails,
    outgoing: Array,
    outgoing_tails: Tails,
    above: AboveOne,
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
    outgoing : array, shape (units + 1,)
        Outgoing weights, and the bias of the output.
    outgoing_tails : Tails of shape (units + 1,)
        The bias has a Gaussian prior.
    above : AboveOne
        Its response is the one with the bias of the output.
    gram : array, shape (d, d)
        ``X^T X``.
    averages : array, shape (d + N_AVERAGES,)
        Numbers of the metric; zero before there are any: then nothing moves.
    rho : array, shape (1,)
        One minus the step size; 1: nothing moves.
    normal : array, shape (units * (d + 2) + 4,)
    refresh : array, shape (units, n_obs)
        Uniform, for the gates.
    uniform : array, shape (3,)
        For the length of the trajectory, whether it is accepted, and whether there is one.
    """
    units, d = layer.rows.shape
    start, probability, numbers = start_of(layer, outgoing), np.ones(2), averages.copy()
    if rho[0] == 1.0 or uniform[2] > often(averages):
        probability[0] = TARGET_ACCEPT
        return end_of(start, gates.gates.copy(), probability, numbers)

    # The density at the beginning, and the metric.
    scene, weights = set_scene(layer, gates, above), empty_place(units, d)
    slope, place = empty_place(units, d), empty_place(units, d)
    width = width_of(start.outgoing, averages[d + 7])
    to_coordinates(start, width, place)
    density = evaluate(place, width, scene, row_tails, outgoing_tails, laws, weights, slope)
    new_gates = gates.gates.copy()
    factor = -weigh_gates(weights, scene, refresh, new_gates, False)
    fill_numbers(weights, scene, row_tails, slope, numbers)
    metric = empty_metric(units, d)
    if not (averages[0] > 0.0 and fill_metric(gram, averages, metric)):
        return end_of(start, new_gates, probability, numbers)

    # Leapfrog steps.
    momenta, velocity = empty_place(units, d), empty_place(units, d)
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
    probability[1], numbers[d + 8] = 0.0, 0.0

    # The gates, and what is exact.
    if probability[0] > 0.0:
        factor += weigh_gates(weights, scene, refresh, new_gates, True)
        numbers[d + 8] = acceptance_probability(factor)
        probability[1] = acceptance_probability(log_ratio + factor)
    if uniform[1] < probability[1]:
        return end_of(weights, new_gates, probability, numbers)
    return end_of(start, gates.gates.copy(), probability, numbers)
