"""Kernels of convolutions moved together with their pre-activations, by Metropolis-Hastings.

:mod:`pymc_nnsteps.moves.interweaving` derives the move.
"""

import math

import numpy as np

from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.compile.linear_algebra import Array, fill_factor, put
from pymc_nnsteps.moves.loops.interweaving import (
    ActivationPieces,
    Fixed,
    Moved,
    Unit,
    empty_unit,
    fill_level,
    keep,
    log_ratio_weights,
    propose,
    read_units,
)
from pymc_nnsteps.moves.loops.rows import (
    Above,
    LayerWeights,
    acceptance_probability,
    solve_both,
    whiten_samples,
)


@jit
def subtract_levels(column: Array, level: Array, residual: Array) -> None:
    """Subtract what outputs see of a channel's activations from the residuals (m, n_obs).

    ``column`` is ``B``, (m, positions, n_obs or 1), ``level`` (n_obs * positions,).
    """
    m, positions, n_columns = column.shape
    for i in range(m):
        for n in range(residual.shape[1]):
            total, first = 0.0, n * positions
            sample = n if n_columns > 1 else 0
            for p in range(positions):
                total += column[i, p, sample] * level[first + p]
            residual[i, n] -= total


@jit
def change_design(
    inputs: Array, column: Array, slope: Array, new_slope: Array, design: Array
) -> None:
    """Change the design (m * n_obs, d) from some slopes (n_obs * positions,) to others.

    Inputs are (n_obs * positions, d), ``column`` (m, positions, n_obs or 1).
    """
    m, positions, n_columns = column.shape
    n_obs, d = len(inputs) // positions, inputs.shape[1]
    for n in range(n_obs):
        sample = n if n_columns > 1 else 0
        for p in range(positions):
            at = n * positions + p
            change = new_slope[at] - slope[at]
            if change != 0.0:
                for i in range(m):
                    scale = change * column[i, p, sample]
                    for j in range(d):
                        design[i * n_obs + n, j] += scale * inputs[at, j]


@jit
def factorise_kernel(prior: Array, design: Array, precision: Array, factor: Array) -> float:
    """Fill ``P`` and its Cholesky factor, and return the last pivot."""
    put(np.dot(design.T, design), precision, 0, 0)
    for j in range(len(prior)):
        precision[j, j] += prior[j]
    return fill_factor(precision, factor)


@jit
def kernel_mean(fixed: Fixed, design: Array, residual: Array, unit: Unit) -> Array:
    """``m`` of the kernel on its pieces: w and a step of Newton from there."""
    gradient, n_obs = fixed.prior_linear - fixed.prior * unit.row, residual.shape[1]
    for i in range(len(residual)):
        gradient += np.dot(residual[i], design[i * n_obs : (i + 1) * n_obs])
    mean = solve_both(unit.factor, gradient)
    for j in range(len(mean)):
        mean[j] += unit.row[j]
    return mean


@jit
def follow(
    fixed: Fixed,
    column: Array,
    unit: Unit,
    residual: Array,
    design: Array,
    new: Unit,
    new_residual: Array,
    new_design: Array,
) -> bool:
    """Fill what is left of the response, and ``u``, after a proposal; False if it has no law."""
    put(residual, new_residual, 0, 0)
    subtract_levels(column, new.level - unit.level, new_residual)
    put(design, new_design, 0, 0)
    change_design(fixed.inputs, column, unit.slope, new.slope, new_design)
    return factorise_kernel(fixed.prior, new_design, new.precision, new.factor) > 0.0


@inline
def log_ratio_residuals(residual: Array, new_residual: Array) -> float:
    """``(|e|^2 - |e'|^2) / 2`` of whitened residuals."""
    total = 0.0
    for i in range(residual.shape[0]):
        for n in range(residual.shape[1]):
            e, new = residual[i, n], new_residual[i, n]
            total += 0.5 * (e - new) * (e + new)
    return total


@jit
def read_channels(
    layer: LayerWeights, pre: Array, activation: ActivationPieces, above: Above
) -> tuple[Array, Array, Array, Array]:
    """Slopes, intercepts and noise of the pre-activations, and what is left of the response."""
    slope, intercept, noise = read_units(layer, pre, activation)
    residual = above.response.T.copy()
    positions = above.design.shape[1] // len(pre)
    for a in range(len(pre)):
        first = a * positions
        column = np.empty((len(above.design), positions, 1))
        for i in range(len(above.design)):
            for p in range(positions):
                column[i, p, 0] = above.design[i, first + p]
        subtract_levels(column, slope[a] * pre[a] + intercept[a], residual)
    return slope, intercept, noise, residual


@jit
def move_kernels(
    layer: LayerWeights,
    pre: Array,
    activation: ActivationPieces,
    above: Above,
    rho: Array,
    normal: Array,
    uniform: Array,
) -> Moved:
    """Move the kernels of a convolution in turn, as :func:`.interweaving.move_rows`.

    Inputs are patches, (n_obs * positions, d), and ``pre`` is (channels, n_obs * positions).
    ``above`` has channels and positions in this order.
    """
    channels, d = layer.rows.shape
    m, positions, n_obs = len(above.design), above.design.shape[1] // channels, len(above.response)
    rows, pre, acceptance = layer.rows.copy(), pre.copy(), (rho == 1.0).astype(np.float64)
    if (rho == 1.0).all():
        return Moved(rows, pre, acceptance)
    slope, intercept, noise, residual = read_channels(layer, pre, activation, above)
    pivots, precisions = np.empty(channels), np.empty((channels, d, d))
    designs, new_design = np.zeros((channels, m * n_obs, d)), np.empty((m * n_obs, d))
    factors, new_residual = np.empty_like(precisions), np.empty_like(residual)
    level, flat, new = np.empty(pre.shape[1]), np.zeros(pre.shape[1]), empty_unit(pre.shape[1], d)
    column = np.empty((m, positions, len(above.weight)))

    for p in range(len(normal)):
        for a in range(channels):
            whiten_samples(above, a * positions, column, residual[:, : n_obs if p + a == 0 else 0])
            if rho[a] == 1.0:
                continue
            fixed = Fixed(layer.inputs, layer.prior[a], layer.prior_linear[a], noise[a])
            unit = Unit(
                rows[a], pre[a], slope[a], intercept[a], level, flat, precisions[a], factors[a]
            )
            fill_level(unit)
            design = designs[a]

            # The law of the kernel while its positions stay on these pieces.
            if p == 0:
                change_design(layer.inputs, column, flat, unit.slope, design)
                pivots[a] = factorise_kernel(fixed.prior, design, unit.precision, unit.factor)
            if pivots[a] <= 0.0:
                continue
            mean = kernel_mean(fixed, design, residual, unit)
            if not (pivots[a] > 0.0 and math.isfinite(mean[0])):
                rows[a], pre[a] = np.nan, np.nan
                continue

            # A proposal from there, and the one back.
            propose(fixed, unit, mean, rho[a], normal[p, a], activation, new)
            if not follow(fixed, column, unit, residual, design, new, new_residual, new_design):
                continue
            back = kernel_mean(fixed, new_design, new_residual, new)
            log_ratio = log_ratio_residuals(residual, new_residual)
            log_ratio += log_ratio_weights(fixed, unit, new, back, rho[a], normal[p, a])
            probability = acceptance_probability(log_ratio)
            acceptance[a] = min(1.0, acceptance[a] + probability / len(normal))
            if uniform[p, a] < probability:
                put(new_residual, residual, 0, 0)
                put(new_design, design, 0, 0)
                keep(new, unit)
    return Moved(rows, pre, acceptance)
