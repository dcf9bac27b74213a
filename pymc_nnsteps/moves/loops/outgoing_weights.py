r"""Outgoing weights of a layer drawn without its activations, and units moved along rays with them.

:mod:`pymc_nnsteps.moves.outgoing_weights` derives both.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.compile.linear_algebra import (
    Array,
    copy,
    factorise,
    invert_by_factor,
    rows_are_equal,
    solve,
    solve_transposed,
)
from pymc_nnsteps.moves.loops.interweaving import ActivationPieces, read_pieces
from pymc_nnsteps.moves.loops.rows import Above, LayerWeights
from pymc_nnsteps.random.lattice import POINTS, choose_point


class GaussianPrior[Of](NamedTuple):
    """Prior of the weights that outputs see a layer through: arrays of shape (m, units)."""

    # precision, linear: its precision, and precision times mean.
    precision: Of
    linear: Of


class SufficientStatistics(NamedTuple):
    """What samples that share ``V`` tell of a unit's outgoing weights."""

    known: Array  # shape (m, m): ``V^{-1}``
    square: Array  # shape (1,): ``sum of X^2``
    seen: Array  # shape (m,): ``sum of X r``
    gain: Array  # shape (m,): ``V^{-1} v``
    factor: Array  # shape (m, m): cholesky factor of ``V``


@inline
def noise_of_others(design: Array, variance: Array, unit: int, spread: Array) -> None:
    """Fill ``sum of tau_b v_b v_b^T`` over the other units."""
    spread[:] = 0.0
    for b in range(len(variance)):
        if b != unit:
            for i in range(len(spread)):
                for j in range(len(spread)):
                    spread[i, j] += variance[b] * design[i, b] * design[j, b]


@inline
def know(spread: Array, above: Above, sample: int, told: SufficientStatistics) -> None:
    """Fill ``V^{-1}`` with the noise of other units and of the response; no sample tells yet."""
    m, factor = len(spread), told.factor
    told.square[0] = 0.0
    for i in range(m):
        told.seen[i] = 0.0
        for j in range(m):
            factor[i, j] = spread[i, j]
        factor[i, i] += 1.0 / above.weight[sample, i]
    if not invert_by_factor(factor, told.known):
        told.known[:] = np.nan


@inline
def add_told(told: SufficientStatistics, precision: Array, linear: Array) -> None:
    """Add what samples tell to the precision and the linear part of a unit's weights."""
    for i in range(len(linear)):
        for j in range(len(linear)):
            precision[i, j] += told.square[0] * told.known[i, j]
            linear[i] += told.known[i, j] * told.seen[j]


@inline
def tell_outputs(
    above: Above,
    unit: int,
    before: Array,
    spread: Array,
    told: SufficientStatistics,
    level: Array,
    residual: Array,
    noise: Array,
    precision: Array,
    linear: Array,
) -> None:
    """Add what samples tell to the precision and the linear part of a unit's weights."""
    m, root = len(spread), 0.0
    for n in range(len(level)):
        # The response's precision, and what it tells of the unit's activations.
        if n == 0 or (len(above.weight) > 1 and not rows_are_equal(above.weight, n, n - 1)):
            if n > 0:
                add_told(told, precision, linear)
            know(spread, above, n, told)
            sharpness = 1.0 / above.variance[unit]
            for i in range(m):
                told.gain[i] = 0.0
                for j in range(m):
                    told.gain[i] += told.known[i, j] * before[j]
                sharpness += before[i] * told.gain[i]
            root = 1.0 / math.sqrt(sharpness)
        # Draw one of these, and sum what they tell of the unit's weights.
        shift = 0.0
        for i in range(m):
            shift += told.gain[i] * residual[n, i]
        activation = level[n] + root * (root * shift + noise[n])
        told.square[0] += activation * activation
        for i in range(m):
            told.seen[i] += activation * (residual[n, i] + before[i] * level[n])
    add_told(told, precision, linear)


@inline
def tell_one_output(
    above: Above, unit: int, spread: float, level: Array, residual: Array, noise: Array
) -> tuple[float, float]:
    """What samples tell of a unit's weight for one output: its precision, and that times mean."""
    precision = linear = known = root = 0.0
    before, own = above.design[0, unit], 1.0 / above.variance[unit]
    by_sample = len(above.weight) > 1
    for n in range(len(level)):
        if n == 0 or by_sample:
            known = 1.0 / (spread + 1.0 / above.weight[n, 0])
            root = 1.0 / math.sqrt(own + before * before * known)
        activation = level[n] + root * (root * before * known * residual[n, 0] + noise[n])
        precision += known * activation * activation
        linear += known * activation * (residual[n, 0] + before * level[n])
    return precision, linear


@inline
def update_residual(before: Array, new: Array, level: Array, residual: Array) -> None:
    """Let the residual at a unit's weights before be that at its new ones."""
    for i in range(len(new)):
        for n in range(len(level)):
            residual[n, i] -= (new[i] - before[i]) * level[n]


@jit
def draw_outgoing(
    pre: Array,
    activation: ActivationPieces,
    offset: Array,
    prior: GaussianPrior,
    above: Above,
    noise: Array,
    normal: Array,
) -> Array:
    """Draw the weights that outputs see a layer through, unit by unit.

    Those of a unit are drawn given its activations, with other units' integrated out. ``pre``,
    (units, n_obs), holds :math:`z`; the offset is (units, n_obs or 1); normals are ``noise``
    (units, n_obs) and ``normal`` (units, m).
    """
    units, n_obs = pre.shape
    design, variance, m = above.design.copy(), above.variance, len(above.design)
    spread, precision, known, factor = np.empty((4, m, m))
    before, linear, new, seen, gain = np.empty((5, m))
    told = SufficientStatistics(known, np.empty(1), seen, gain, factor)
    # Means of the activations, and the response without all units' part.
    slope, intercept = np.empty(n_obs), np.empty(n_obs)
    levels = np.empty((units, n_obs))
    for a in range(units):
        read_pieces(pre[a], activation, slope, intercept)
        copy(slope * pre[a] + intercept + offset[a], levels[a])
    residual = above.response - np.dot(levels.T, design.T)
    for a in range(units):
        level = levels[a]
        noise_of_others(design, variance, a, spread)
        precision[:] = 0.0
        for i in range(m):
            before[i], linear[i] = design[i, a], prior.linear[i, a]
            precision[i, i] = prior.precision[i, a]
        if m == 1:
            of_one = tell_one_output(above, a, spread[0, 0], level, residual, noise[a])
            precision[0, 0] += of_one[0]
            linear[0] += of_one[1]
        else:
            tell_outputs(
                above, a, before, spread, told, level, residual, noise[a], precision, linear
            )
        if factorise(precision):
            solve_transposed(precision, linear)
            for i in range(m):
                new[i] = linear[i] + normal[a, i]
            solve(precision, new)
        else:
            new[:] = np.nan
        for i in range(m):
            design[i, a] = new[i]
        update_residual(before, new, level, residual)
    return design


WIDEST = 0.3
"""Largest spacing of the lattice, in units of the logarithm of a unit's scale."""


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
    r"""Fill :math:`\sum_n [t_n - v \sigma(m_n + e_n e^{-u})]^2` at all points u of a lattice."""
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
    """Fill ``log q``; ``spread`` is ``v^2 tau`` of the unit, ``others`` that of the others."""
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
    prior: GaussianPrior,
    above: Above,
    keeps: Array,
    level: Array,
) -> MovedUnits:
    """Move all units in turn, from the first or from the last.

    ``pre`` is (units, n_obs); ``above`` has one output of weight ``1 / D``; ``keeps`` is 1 if ``D``
    makes up for what a unit's noise adds to the response. Uniform numbers are (units + 1, 3).
    """
    units, n_obs = pre.shape
    rows, moved, outgoing = weights.rows.copy(), pre.copy(), above.design[0].copy()
    of_response, variance = 1.0 / above.weight[0], above.variance
    below, beyond, precision, linear = slopes[0], slopes[1], prior.precision[0], prior.linear[0]
    active, squares, log_density = np.empty(n_obs), np.empty(POINTS), np.empty(POINTS)
    residual = above.response.copy().reshape(-1)
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
        own_above = sums_of(outgoing[a : a + 1], precision[a : a + 1], linear[a : a + 1])
        others = 0.0
        for b in range(units):
            others += outgoing[b] * outgoing[b] * variance[b] if b != a else 0.0
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
