"""Hamiltonian trajectories of all weights of a layer behind gates, which are drawn at the end.

:mod:`pymc_nnsteps.moves.gated_trajectories` derives the move.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.compile.error_functions import exp_negative
from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.compile.linear_algebra import Array, copy, inner_product, put, sum_of
from pymc_nnsteps.moves.loops.gated_density import (
    GatedDensity,
    GatedPosition,
    GatedWorkspace,
    Laws,
    Tails,
    evaluate_gated,
    fill_noise,
    invert_at,
    log_likelihood,
    place_in,
    set_scene,
    to_coordinates,
)
from pymc_nnsteps.moves.loops.interwoven_gates import GatedUnits, logistic
from pymc_nnsteps.moves.loops.leapfrog import Metric, draw_momenta, empty_metric, follow, invert
from pymc_nnsteps.moves.loops.rows import Above, LayerWeights, acceptance_probability

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


class MovedGatedLayer(NamedTuple):
    """The end of a trajectory."""

    rows: Array  # shape (units, d)
    gates: Array  # shape (units, n_obs)
    outgoing: Array  # shape (m, units)
    bias: Array  # shape (m,)
    scales: Array  # shape (units + k + 2,): shifts of the logarithms of scales
    probability: Array  # shape (2,): of acceptance by the smooth density, and of acceptance
    # shape (n_averages(d, m, k),): numbers of the metric at the beginning; those given where the
    # step size is zero.
    averages: Array


def n_averages(d: int, n_outputs: int, n_scales: int) -> int:
    """How many numbers are averaged while tuning."""
    return d + 2 * n_outputs + n_scales + 6


@jit
def information_of_rows(weights: GatedPosition, scene: GatedWorkspace) -> float:
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
        prob, active, pair = scene.prob[a], scene.active[a], 0
        by_logit, by_level = scene.logit_factor[a], scene.level_factor[a]
        for n in range(n_obs):
            slope = by_level[n] + active[n] * (1.0 - prob[n]) * by_logit[n]
            slope *= prob[n] / scene.stretch[a]
            steep[n] = slope * slope
        for i in range(m):
            for j in range(i, m):
                v = weights.outgoing[i, a] * weights.outgoing[j, a]
                total += v * inner_product(steep, inverse[pair])
                pair += 1
    return total / (n_obs * units)


@jit
def fill_numbers(
    weights: GatedPosition, scene: GatedWorkspace, rows: Tails, slope: GatedPosition, numbers: Array
) -> None:
    """Fill the numbers of the metric, means over units, where the density was evaluated."""
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
def fill_metric(scene: GatedWorkspace, gram: Array, numbers: Array, metric: Metric) -> bool:
    """Fill the metric; False if it is not positive definite."""
    d, m, units, diagonal = len(gram), len(scene.mean), len(scene.stretch), metric.diagonal
    of_rows, scales, biases = numbers[0] * gram, m * units, len(diagonal) - m
    for j in range(d):
        of_rows[j, j] += numbers[1 + j]
    for i in range(m):
        for a in range(units):
            diagonal[i * units + a] = numbers[d + 1 + i] + LEAST
        of_bias = numbers[d + 1 + m + i]
        diagonal[biases + i] = of_bias if of_bias > 0.0 else 1.0
    for i in range(biases - scales):
        diagonal[scales + i] = numbers[d + 1 + 2 * m + max(0, i - units + 1)] + LEAST
    return invert(of_rows, metric.factor, metric.inverse)


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
def open_behind(weights: GatedPosition, scene: GatedWorkspace, order: Array) -> Array:
    """Covariances (units + 1, m (m + 1) / 2, n_obs) of the response given earlier gates."""
    (units, n_obs), m, n_pairs = scene.logit.shape, len(scene.mean), len(scene.total)
    behind = np.empty((units + 1, n_pairs, n_obs))
    fill_noise(weights, scene, behind[units])
    for i in range(units - 1, -1, -1):
        a, pair = order[units - 1 - i], 0
        for j in range(m):
            for k in range(j, m):
                product = weights.outgoing[j, a] * weights.outgoing[k, a]
                for n in range(n_obs):
                    behind[i, pair, n] = behind[i + 1, pair, n] + product * scene.unsure[a, n]
                pair += 1
    return behind


@jit
def add_gains(
    scene: GatedWorkspace, pairs: Array, residual: Array, outgoing: Array, unit: int, odds: Array
) -> None:
    """Add to log odds what residuals of covariance ``pairs`` (m (m + 1) / 2, n_obs) say."""
    (m, n_obs), active = residual.shape, scene.active[unit]
    own, known = np.empty(m), np.empty((m, m))
    if m == 1:
        v = outgoing[0, unit]
        for n in range(n_obs):
            seen = v * active[n] if scene.own[0, n] > 0.0 else 0.0
            odds[n] += seen * (residual[0, n] - 0.5 * seen) / pairs[0, n]
        return
    for n in range(n_obs):
        invert_at(scene, pairs, n, own, known)
        for i in range(m):
            for j in range(m):
                rest = residual[j, n] - 0.5 * outgoing[j, unit] * active[n]
                odds[n] += outgoing[i, unit] * active[n] * known[i, j] * rest


@jit
def log_ratio_gates(
    weights: GatedPosition, scene: GatedWorkspace, uniform: Array, gates: Array, draws: bool
) -> float:
    """Log of the exact density of response and gates over the smooth one and that of their draw.

    Gates are drawn, or weighed as they are, unit by unit given those before: first those that leave
    most open, of which a Gaussian says least.
    """
    (units, n_obs), m = gates.shape, len(scene.mean)
    residual, own, known = scene.response - scene.mean, np.empty(m), np.empty((m, m))
    log_factor, before, after = -log_likelihood(scene), np.empty(n_obs), np.empty(n_obs)
    spread = np.zeros(units)
    for a in range(units):
        for j in range(m):
            v = weights.outgoing[j, a]
            spread[a] += v * v * sum_of(scene.unsure[a])
    order = np.argsort(spread, kind="mergesort")
    behind = open_behind(weights, scene, order)
    for i in range(units):
        a = order[units - 1 - i]
        # Log odds of the unit by its weights, and by what is left of the response too.
        by_weights = np.dot(scene.inputs, weights.rows[a])
        for n in range(n_obs):
            before[n] = scene.logit[a, n] + scene.logit_factor[a, n] * by_weights[n]
            after[n] = before[n]
        for j in range(m):
            v = weights.outgoing[j, a]
            for n in range(n_obs):
                residual[j, n] += v * scene.expected[a, n]
        add_gains(scene, behind[i + 1], residual, weights.outgoing, a, after)
        # The gates, and what they leave of the response.
        if draws:
            for n in range(n_obs):
                gates[a, n] = 1.0 if uniform[a, n] < logistic(after[n]) else 0.0
        log_factor += log_chance(gates[a], before) - log_chance(gates[a], after)
        for j in range(m):
            v = weights.outgoing[j, a]
            for n in range(n_obs):
                residual[j, n] -= gates[a, n] * v * scene.active[a, n]
    # Density of the response given all gates.
    for n in range(n_obs):
        log_factor -= 0.5 * invert_at(scene, behind[units], n, own, known)
        for i in range(m):
            for j in range(m):
                log_factor -= 0.5 * residual[i, n] * known[i, j] * residual[j, n]
    return log_factor


@inline
def width_of(outgoing: Array, square: float) -> float:
    """Width c, by the mean square of outgoing weights, or by those at the beginning."""
    if square <= 0.0:
        square = 0.0
        for i in range(len(outgoing)):
            square += inner_product(outgoing[i], outgoing[i]) / outgoing.size
    return OF_WIDTH * math.sqrt(square)


@inline
def end_of(
    weights: GatedPosition, gates: Array, probability: Array, numbers: Array
) -> MovedGatedLayer:
    """Weights and gates as the end of a trajectory."""
    return MovedGatedLayer(
        weights.rows, gates, weights.outgoing, weights.bias, weights.scales, probability, numbers
    )


@jit
def move_gated_layer(
    layer: LayerWeights,
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
) -> MovedGatedLayer:
    """Follow one trajectory, and draw the gates at its end.

    Outgoing weights, (m, units + 1), have the bias last; tails are (units, d) and (m, units + 1). A
    row of ``scaled``, (k, m), is 1 where a variance of the response is that of an output.
    ``averages`` are n_averages(d, m, k) numbers, zero before there are any; ``rho``, (1,), is one
    minus the step size. There are ``units * (d + m + 1) + k + 2 + m`` normals; uniform numbers
    (units, n_obs) refresh gates.
    """
    (units, d), n, last = layer.rows.shape, len(normal), len(averages) - 1
    start = place_in(np.zeros(n), scaled, units)
    put(layer.rows, start.rows, 0, 0)
    put(outgoing[:, :units], start.outgoing, 0, 0)
    copy(outgoing[:, units:].copy().reshape(-1), start.bias)
    probability, numbers = np.ones(2), averages.copy()
    often = max(2.0 * averages[last], LEAST_OFTEN) if averages[0] > 0.0 else 1.0
    if rho[0] == 1.0 or uniform[2] > often:
        probability[0] = TARGET_ACCEPT
        return end_of(start, gates.gates.copy(), probability, numbers)

    # The density at the beginning, and the metric.
    scene, weights = set_scene(layer, gates, above, scaled), place_in(np.zeros(n), scaled, units)
    q, p, slope = np.zeros(n), np.empty(n), np.empty(n)
    width = width_of(start.outgoing, averages[last - 1])
    to_coordinates(start, width, place_in(q, scaled, units))
    density = GatedDensity(width, scene, row_tails, outgoing_tails, laws, weights)
    begin, new_gates = evaluate_gated(density, q, slope), gates.gates.copy()
    factor = -log_ratio_gates(weights, scene, refresh, new_gates, False)
    fill_numbers(weights, scene, row_tails, place_in(slope, scaled, units), numbers)
    metric = empty_metric(d, 0, n - units * d)
    if not (averages[0] > 0.0 and fill_metric(scene, gram, averages, metric)):
        return end_of(start, new_gates, probability, numbers)

    # Leapfrog steps.
    draw_momenta(metric, normal, p)
    p[n - len(laws.moves) :] *= laws.moves
    n_steps, size = 1 + int(uniform[0] * MOST_STEPS), 1.0 - rho[0]
    _, log_ratio, _ = follow(
        evaluate_gated, density, metric, size, n_steps, math.inf, begin, q, p, slope
    )
    probability[0] = acceptance_probability(log_ratio)
    probability[1], numbers[last] = 0.0, 0.0

    # The gates, and what is exact.
    if probability[0] > 0.0:
        factor += log_ratio_gates(weights, scene, refresh, new_gates, True)
        numbers[last] = acceptance_probability(factor)
        probability[1] = acceptance_probability(log_ratio + factor)
    if uniform[1] < probability[1]:
        return end_of(weights, new_gates, probability, numbers)
    return end_of(start, gates.gates.copy(), probability, numbers)
