"""Rows of weights moved together with their pre-activations, by Metropolis-Hastings.

:mod:`pymc_nnsteps.moves.interweaving` derives the move.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.compile.linear_algebra import (
    MOST_LOST,
    Array,
    copy,
    fill_factor,
    put,
    solve,
    sum_of,
)
from pymc_nnsteps.moves.loops.rows import (
    Above,
    LayerWeights,
    QuadraticTerms,
    SampleSums,
    acceptance_probability,
    add_squares,
    empty_sums,
    empty_whitened,
    fill_precision,
    leave_out,
    log_ratio_prior,
    log_ratio_proposals,
    score_and_curvature,
    solve_both,
    update_residual,
    whiten_samples,
)

SIGNS = (1.0, -1.0)


class ActivationPieces[Of](NamedTuple):
    """Pieces of an activation: knots of shape (K,), slopes and intercepts of shape (K + 1,)."""

    knots: Of
    slopes: Of
    intercepts: Of


class Fixed(NamedTuple):
    """What a move of a unit leaves as it is."""

    inputs: Array  # shape (n_obs, d)
    # prior, prior_linear of shape (d,).
    prior: Array
    prior_linear: Array
    noise: Array  # shape (n_obs,): ``e``


class Unit(NamedTuple):
    """A unit's weights, its pre-activations and their pieces, and the proposal from there."""

    row: Array  # shape (d,): ``w_a``
    # pre, slope, intercept, level of shape (n_obs,): ``z_a``, ``s``, ``t`` and ``s z_a + t``.
    pre: Array
    slope: Array
    intercept: Array
    level: Array
    score: Array  # shape (n_obs,): by which the inputs of a sample enter ``P m``
    # precision, factor of shape (d, d): ``P`` and its Cholesky factor.
    precision: Array
    factor: Array


class Moved(NamedTuple):
    """Rows and pre-activations after a move."""

    rows: Array  # shape (units, d)
    pre: Array  # shape (units, n_obs)
    acceptance: Array  # shape (units,): mean probability of acceptance, over the passes


@jit
def read_pieces(z: Array, activation: ActivationPieces, slope: Array, intercept: Array) -> None:
    """Fill slope and intercept of the piece that holds each entry of ``z``."""
    slope[:], intercept[:] = activation.slopes[0], activation.intercepts[0]
    for piece in range(1, len(activation.slopes)):
        knot, steep = activation.knots[piece - 1], activation.slopes[piece]
        at_zero = activation.intercepts[piece]
        for n in range(len(z)):
            slope[n] = steep if z[n] >= knot else slope[n]
            intercept[n] = at_zero if z[n] >= knot else intercept[n]


@jit
def fill_linear(fixed: Fixed, seen: QuadraticTerms, unit: Unit, linear: Array) -> None:
    """Fill ``P m``, and ``s (g - c (s e + t))``, by which the inputs of a sample enter it."""
    gradient, curvature, slope = seen.gradient, seen.curvature, unit.slope
    for n in range(len(slope)):
        rest = gradient[n] - curvature[n] * (slope[n] * fixed.noise[n] + unit.intercept[n])
        unit.score[n] = slope[n] * rest
    total = np.dot(unit.score, fixed.inputs)
    for j in range(len(linear)):
        linear[j] = fixed.prior_linear[j] + total[j]


@inline
def log_ratio_levels(level: Array, new_level: Array, seen: QuadraticTerms, term: Array) -> float:
    """``sum of g x' - c x'^2 / 2 - (g x - c x^2 / 2)`` of activations moved from x to x'."""
    gradient, curvature = seen.gradient, seen.curvature
    for n in range(len(level)):
        shift = new_level[n] - level[n]
        term[n] = shift * (gradient[n] - curvature[n] * (level[n] + 0.5 * shift))
    return sum_of(term)


@inline
def fill_level(unit: Unit) -> None:
    """Fill the activations' means."""
    for n in range(len(unit.pre)):
        unit.level[n] = unit.slope[n] * unit.pre[n] + unit.intercept[n]


@inline
def fill_precision_of(fixed: Fixed, seen: QuadraticTerms, unit: Unit, sums: SampleSums) -> None:
    """Fill ``P`` on the unit's pieces."""
    for n in range(len(unit.slope)):
        sums.weight[n] = seen.curvature[n] * unit.slope[n] * unit.slope[n]
    fill_precision(fixed.prior, fixed.inputs, sums, unit.precision)


@inline
def update_precision(
    fixed: Fixed, seen: QuadraticTerms, unit: Unit, new: Unit, samples: Array, sums: SampleSums
) -> bool:
    """Fill P of new slopes by the samples that change; return whether that loses no digits."""
    curvature, slope, new_slope, change = seen.curvature, unit.slope, new.slope, sums.weight
    for k in range(len(samples)):
        n = samples[k]
        change[n] = curvature[n] * (new_slope[n] * new_slope[n] - slope[n] * slope[n])
    put(unit.precision, new.precision, 0, 0)
    for sign in SIGNS:
        count = 0
        for k in range(len(samples)):
            sums.samples[count] = samples[k]
            count += int(sign * change[samples[k]] > 0.0)
        add_squares(sign, fixed.inputs, sums.samples[:count], sums, new.precision)
    kept_digits = True
    for j in range(len(fixed.prior)):
        if new.precision[j, j] < MOST_LOST * unit.precision[j, j]:
            kept_digits = False
    return kept_digits


@inline
def propose(
    fixed: Fixed,
    unit: Unit,
    mean: Array,
    rho: float,
    normal: Array,
    activation: ActivationPieces,
    new: Unit,
) -> None:
    """Fill a new row by Crank and Nicolson's step about a mean, and where it takes ``z_a``."""
    spread = math.sqrt((1.0 - rho) * (1.0 + rho))
    new_row = normal.copy()
    solve(unit.factor, new_row)
    for j in range(len(mean)):
        new.row[j] = mean[j] + rho * (unit.row[j] - mean[j]) + spread * new_row[j]
    new_z = np.dot(fixed.inputs, new.row)
    for n in range(len(new_z)):
        new.pre[n] = new_z[n] + fixed.noise[n]
    read_pieces(new.pre, activation, new.slope, new.intercept)
    fill_level(new)


@inline
def look_back(
    fixed: Fixed, seen: QuadraticTerms, unit: Unit, new: Unit, linear: Array, changed: Array,
    sums: SampleSums,
) -> bool:  # fmt: skip
    """Fill the proposal from a new row, and turn ``P m`` into its own; False if there is none."""
    count = 0
    for n in range(len(changed)):
        changed[count] = n
        slopes_differ = int(new.slope[n] != unit.slope[n])
        count += slopes_differ | int(new.intercept[n] != unit.intercept[n])
    samples = changed[:count]
    if update_precision(fixed, seen, unit, new, samples, sums):
        for k in range(len(samples)):
            n = samples[k]
            level = new.slope[n] * fixed.noise[n] + new.intercept[n]
            change = new.slope[n] * (seen.gradient[n] - seen.curvature[n] * level) - unit.score[n]
            for j in range(len(linear)):
                linear[j] += change * fixed.inputs[n, j]
    else:
        fill_precision_of(fixed, seen, new, sums)
        fill_linear(fixed, seen, new, linear)
    return fill_factor(new.precision, new.factor) > 0.0


@inline
def log_ratio_weights(
    fixed: Fixed, unit: Unit, new: Unit, back: Array, rho: float, normal: Array
) -> float:
    """The part of the prior and the proposals; ``m`` of the new row becomes the way back."""
    spread = math.sqrt((1.0 - rho) * (1.0 + rho))
    for j in range(len(back)):
        back[j] = unit.row[j] - back[j] - rho * (new.row[j] - back[j])
    log_ratio = log_ratio_prior(unit.row, new.row, fixed.prior, fixed.prior_linear)
    log_ratio += log_ratio_proposals(unit.factor, new.factor, normal, back, spread)
    return log_ratio


@inline
def empty_unit(n_obs: int, d: int) -> Unit:
    """Room for a unit."""
    pre, slope, intercept, level, score = np.empty((5, n_obs))
    precision, factor = np.empty((2, d, d))
    return Unit(np.empty(d), pre, slope, intercept, level, score, precision, factor)


@inline
def keep(new: Unit, unit: Unit) -> None:
    """Let a proposal take a unit's place."""
    copy(new.row, unit.row)
    copy(new.pre, unit.pre)
    copy(new.slope, unit.slope)
    copy(new.intercept, unit.intercept)
    put(new.precision, unit.precision, 0, 0)
    put(new.factor, unit.factor, 0, 0)


@jit
def read_units(
    layer: LayerWeights, pre: Array, activation: ActivationPieces
) -> tuple[Array, Array, Array]:
    """Slopes, intercepts and noise of the pre-activations."""
    slope, intercept = np.empty_like(pre), np.empty_like(pre)
    for a in range(len(pre)):
        read_pieces(pre[a], activation, slope[a], intercept[a])
    return slope, intercept, pre - np.dot(layer.rows, layer.inputs.T)


@jit
def move_rows(
    layer: LayerWeights,
    pre: Array,
    activation: ActivationPieces,
    above: Above,
    rho: Array,
    normal: Array,
    uniform: Array,
) -> Moved:
    r"""Move the rows of a layer's weights in turn, each with its pre-activations (units, n_obs).

    The letters are those of :mod:`pymc_nnsteps.moves.interweaving`: ``fixed.noise`` is :math:`e`,
    ``level`` :math:`\sigma(z)`, ``seen`` :math:`g` and :math:`c`, ``linear`` :math:`P m`,
    ``spread`` :math:`\sqrt{1 - \rho^2}`. A row whose precision is nearly singular stays, as does
    one with a ``rho``, (units,), of one. Normals are (passes, units, d), uniform numbers (passes,
    units).
    """
    (units, d), n_obs = layer.rows.shape, len(layer.inputs)
    rows, pre, acceptance = layer.rows.copy(), pre.copy(), (rho == 1.0).astype(np.float64)
    if (rho == 1.0).all():
        return Moved(rows, pre, acceptance)
    pivots, whitened = np.empty(units), empty_whitened(above)
    held = whitened.shape[1]
    slope, intercept, noise = read_units(layer, pre, activation)
    residual = above.response.T - np.dot(above.design, slope * pre + intercept)
    precisions, factors = np.empty((2, units, d, d))
    level, score, linear = np.empty(n_obs), np.empty(n_obs), np.empty(d)
    seen, new = QuadraticTerms(np.empty(n_obs), np.empty(n_obs)), empty_unit(n_obs, d)
    changed, sums = np.empty(n_obs, np.int64), empty_sums(n_obs, d)

    for p in range(len(normal)):
        for a in range(units):
            if a % held == 0 and (p == 0 or held < units):
                whiten_samples(above, a, whitened, residual[:, : n_obs if p + a == 0 else 0])
            if rho[a] == 1.0:
                continue
            fixed = Fixed(layer.inputs, layer.prior[a], layer.prior_linear[a], noise[a])
            row, z, precision, factor = rows[a], pre[a], precisions[a], factors[a]
            unit = Unit(row, z, slope[a], intercept[a], level, score, precision, factor)
            score_and_curvature(whitened, residual, a % held, seen)
            fill_level(unit)
            leave_out(level, seen)

            # The law of the row while it stays on these pieces.
            if p == 0:
                fill_precision_of(fixed, seen, unit, sums)
                pivots[a] = fill_factor(unit.precision, unit.factor)
            if pivots[a] <= 0.0:
                continue
            fill_linear(fixed, seen, unit, linear)
            mean = solve_both(unit.factor, linear)
            if not (pivots[a] > 0.0 and math.isfinite(mean[0])):
                rows[a], pre[a] = np.nan, np.nan
                continue

            # A proposal from there, and the one back.
            propose(fixed, unit, mean, rho[a], normal[p, a], activation, new)
            if not look_back(fixed, seen, unit, new, linear, changed, sums):
                continue
            back = solve_both(new.factor, linear)
            log_ratio = log_ratio_levels(level, new.level, seen, sums.weight)
            log_ratio += log_ratio_weights(fixed, unit, new, back, rho[a], normal[p, a])
            probability = acceptance_probability(log_ratio)
            acceptance[a] = min(1.0, acceptance[a] + probability / len(normal))
            if uniform[p, a] < probability:
                update_residual(whitened, residual, a % held, new.level - level)
                keep(new, unit)
    return Moved(rows, pre, acceptance)
