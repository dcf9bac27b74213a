"""Units of a layer moved along rays with the weights that one output sees them through.

:mod:`pymc_nnsteps.moves.unit_rays` derives the move.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.kernels.jit import jit
from pymc_nnsteps.kernels.lattice import choose_point
from pymc_nnsteps.kernels.linear_algebra import Array
from pymc_nnsteps.kernels.rows import LayerWeights

POINTS = 128
WIDEST = 0.3
"""Largest spacing of the lattice, in units of the logarithm of a unit's scale."""


class Outgoing[Of](NamedTuple):
    """Weights of one output, and their prior: arrays of shape (units,)."""

    # outgoing, prior, prior_linear: ``v_a``, the precision of its prior, and precision times mean.
    outgoing: Of
    prior: Of
    prior_linear: Of


class AboveOne[Of](NamedTuple):
    """What one output says of a layer's activations."""

    weight: Of  # shape (1,): precision of the response given the activations
    response: Of  # shape (n_obs,)
    variance: Of  # shape (units,): of the activations' noise


@jit
def activate(pre: Array, below: float, above: float, level: Array) -> None:
    """Fill the activations at pre-activations, of slopes below zero and above."""
    for n in range(len(pre)):
        level[n] = pre[n] * (above if pre[n] > 0.0 else below)


@jit
def squares_on_lattice(
    mean: Array,
    noise: Array,
    target: Array,
    outgoing: float,
    below: float,
    above: float,
    points: Array,
    spacing: float,
    squares: Array,
) -> None:
    r"""Fill :math:`\sum_n [t_n - v \sigma(m_n + e_n \kappa)]^2`, :math:`\kappa = e^{-u}`.

    On a piece it is a quadratic in :math:`\kappa`, whose three sums a sample changes at the point
    from which on it is on its other piece: one pass over the samples for all points.
    """
    n_points = len(points)
    changes = np.zeros((n_points + 1, 3))
    constant, linear, quadratic = 0.0, 0.0, 0.0
    for n in range(len(mean)):
        first = above if noise[n] > 0.0 else below
        last = above if mean[n] > 0.0 else below
        known, slope = target[n] - outgoing * first * mean[n], outgoing * first * noise[n]
        constant += known * known
        linear += known * slope
        quadratic += slope * slope
        if first == last or mean[n] == 0.0:
            continue
        turn = 0
        if noise[n] != 0.0:
            place = (math.log(abs(noise[n] / mean[n])) - points[0]) / spacing
            if place >= n_points:
                turn = n_points
            elif place > 0.0:
                turn = int(place) + 1
        changes[turn, 0] -= known * known
        changes[turn, 1] -= known * slope
        changes[turn, 2] -= slope * slope
        known, slope = target[n] - outgoing * last * mean[n], outgoing * last * noise[n]
        changes[turn, 0] += known * known
        changes[turn, 1] += known * slope
        changes[turn, 2] += slope * slope
    for j in range(n_points):
        constant += changes[j, 0]
        linear += changes[j, 1]
        quadratic += changes[j, 2]
        kappa = math.exp(-points[j])
        squares[j] = constant - 2.0 * linear * kappa + quadratic * kappa * kappa


@jit
def sums_of(weights: Array, prior: Array, prior_linear: Array) -> Array:
    """``w' Lambda mu`` and ``w' Lambda w``."""
    sums = np.zeros(2)
    for j in range(len(weights)):
        sums[0] += weights[j] * prior_linear[j]
        sums[1] += weights[j] * weights[j] * prior[j]
    return sums


@jit
def log_densities_at_points(
    points: Array,
    squares: Array,
    n_obs: int,
    n_weights: int,
    of_response: float,
    others: float,
    spread: float,
    keeps: float,
    sums: Array,
    sums_above: Array,
    log_density: Array,
) -> None:
    """Fill ``log q`` under the flat density of the response's scale.

    ``spread`` is ``v^2 tau`` of the unit, ``others`` that summed over the other units.
    """
    for j in range(len(points)):
        factor = math.exp(points[j])
        grown = factor * factor
        kept = of_response + keeps * spread * (1.0 - 1.0 / grown)
        log_density[j] = -math.inf
        if kept > 0.0:
            total = kept + others + spread / grown
            log_density[j] = (
                (n_weights - 1) * points[j]
                - (n_obs * math.log(total) + squares[j] / total) / 2.0
                - keeps * math.log(kept) / 2.0
                + sums[0] * factor
                - sums[1] * grown / 2.0
                + sums_above[0] / factor
                - sums_above[1] / grown / 2.0
            )


@jit
def noise_of_others(outgoing: Array, variance: Array, unit: int) -> float:
    """``sum of v_b^2 tau_b`` over the other units."""
    total = 0.0
    for b in range(len(outgoing)):
        if b != unit:
            total += outgoing[b] * outgoing[b] * variance[b]
    return total


@jit
def scale_unit(row: Array, pre: Array, mean: Array, noise: Array, factor: float) -> None:
    """Multiply a row of weights, and what its pre-activations are without their noise."""
    for j in range(len(row)):
        row[j] *= factor
    for n in range(len(pre)):
        pre[n] = mean[n] * factor + noise[n]


class MovedUnits(NamedTuple):
    """Units after a move."""

    rows: Array  # shape (units, d)
    pre: Array  # shape (units, n_obs)
    outgoing: Array  # shape (units,)
    of_response: Array  # shape (1,): variance ``D`` of the response given the activations


@jit
def move_units(
    weights: LayerWeights,
    pre: Array,
    slopes: Array,
    seen: Outgoing,
    above: AboveOne,
    keeps: Array,
    level: Array,
) -> MovedUnits:
    """Move all units in turn, from the first or from the last.

    ``pre`` is (units, n_obs); slopes are those of the activation below and above zero. The weight
    of ``above`` is ``1 / D``; ``keeps`` is 1 if ``D`` makes up for what a unit's noise adds to the
    response, 0 if it stays. Uniform numbers, (units + 1, 3), are for each unit the spacing of its
    lattice, its place, and the choice of a point; and the order.
    """
    units, n_obs = pre.shape
    rows, moved, outgoing = weights.rows.copy(), pre.copy(), seen.outgoing.copy()
    of_response, variance = 1.0 / above.weight, above.variance
    below, beyond = slopes[0], slopes[1]
    active, squares, log_density = np.empty(n_obs), np.empty(POINTS), np.empty(POINTS)
    residual = above.response.copy()
    for a in range(units):
        activate(moved[a], below, beyond, active)
        residual -= outgoing[a] * active
    for number in range(units):
        # A lattice along the ray of the unit, and the response without its part.
        a = number if level[units, 0] < 0.5 else units - 1 - number
        spacing = WIDEST * level[a, 0] * level[a, 0] * level[a, 0]
        points = spacing * (np.arange(POINTS) - int(level[a, 1] * POINTS))
        mean = np.dot(weights.inputs, rows[a])
        noise = moved[a] - mean
        activate(moved[a], below, beyond, active)
        residual += outgoing[a] * active
        squares_on_lattice(
            mean, noise, residual, outgoing[a], below, beyond, points, spacing, squares
        )
        # Density of its points.
        spread = outgoing[a] * outgoing[a] * variance[a]
        own = sums_of(rows[a], weights.prior[a], weights.prior_linear[a])
        own_above = sums_of(
            outgoing[a : a + 1], seen.prior[a : a + 1], seen.prior_linear[a : a + 1]
        )
        others = noise_of_others(outgoing, variance, a)
        log_densities_at_points(
            points,
            squares,
            n_obs,
            rows.shape[1],
            of_response[0],
            others,
            spread,
            keeps[0],
            own,
            own_above,
            log_density,
        )
        # One of them, unless weights are still at zero: there the density has no integral.
        factor = math.exp(choose_point(points, log_density, level[a, 2:])[0])
        if own[1] > 0.0 and own_above[1] > 0.0:
            of_response[0] += keeps[0] * spread * (1.0 - 1.0 / (factor * factor))
            outgoing[a] /= factor
            scale_unit(rows[a], moved[a], mean, noise, factor)
        activate(moved[a], below, beyond, active)
        residual -= outgoing[a] * active
    return MovedUnits(rows, moved, outgoing, of_response)
