r"""Outgoing weights of a layer with its activations integrated out, one unit at a time.

:mod:`pymc_nnsteps.moves.outgoing_weights` derives the draw.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.kernels.interweaving import ActivationPieces, read_pieces
from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.kernels.linear_algebra import (
    Array,
    copy,
    factorise,
    invert_by_factor,
    rows_are_equal,
    solve,
    solve_transposed,
)
from pymc_nnsteps.kernels.rows import Above


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
def draw_unit(precision: Array, linear: Array, normal: Array, new: Array) -> None:
    """Fill new weights of a unit; precision and linear part are overwritten."""
    if factorise(precision):
        solve_transposed(precision, linear)
        for i in range(len(new)):
            new[i] = linear[i] + normal[i]
        solve(precision, new)
    else:
        new[:] = np.nan


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

    Those of a unit are drawn given activations of the unit that are drawn for them, and with those
    of the other units integrated out (:mod:`pymc_nnsteps.moves.outgoing_weights`).

    ``pre`` holds the ``z_a``, (units, n_obs); the offset of the activations' mean is (units, n_obs
    or 1). The design of ``above`` is the present weights. Standard normals are ``noise`` (units,
    n_obs) and ``normal`` (units, m).
    """
    units, n_obs = pre.shape
    design, variance, m = above.design.copy(), above.variance, len(above.design)
    spread, precision = np.empty((m, m)), np.empty((m, m))
    told = SufficientStatistics(
        np.empty((m, m)), np.empty(1), np.empty(m), np.empty(m), np.empty((m, m))
    )
    before, linear, new = np.empty(m), np.empty(m), np.empty(m)
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
        draw_unit(precision, linear, normal[a], new)
        for i in range(m):
            design[i, a] = new[i]
        update_residual(before, new, level, residual)
    return design
