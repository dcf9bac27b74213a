"""Rows of weights moved together with their gates, by Metropolis-Hastings.

:mod:`pymc_nnsteps.moves.interwoven_gates` derives the move.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.compile.error_functions import exp_negative
from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.compile.linear_algebra import Array, copy, solve, try_to_factorise
from pymc_nnsteps.moves.loops.rows import (
    Above,
    LayerWeights,
    QuadraticTerms,
    SampleSums,
    acceptance_probability,
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

LEAST_PROB = 1e-4
"""Probability below which an open gate adds nothing to the precision of a proposal."""


class GatedUnits[Of](NamedTuple):
    """Gates of a layer, and their odds and activations: arrays of shape (units, n_obs)."""

    gates: Of
    # logit, level: prior log odds of open gates, and means of the activations behind open gates.
    logit: Of
    # logit_factor, level_factor: their derivatives by ``X w_a``, of which they are affine
    # functions.
    logit_factor: Of
    level: Of
    level_factor: Of


class GatedUnit(NamedTuple):
    """Odds and activations of a unit: arrays of shape (n_obs,), as of :class:`GatedUnits`."""

    logit: Array
    logit_factor: Array
    level: Array
    level_factor: Array
    prob: Array  # probability of an open gate after what is seen of activations


class Fixed(NamedTuple):
    """What a move of a row leaves as it is: shapes (n_obs, d), (d,) and (d,)."""

    inputs: Array
    prior: Array
    prior_linear: Array


class Proposal(NamedTuple):
    """The law of proposals from a row."""

    step: Array  # shape (d,): ``P^{-1} grad``
    factor: Array  # shape (d, d): cholesky factor of ``P``


class MovedGates(NamedTuple):
    """Rows and gates after a move."""

    rows: Array  # shape (units, d)
    gates: Array  # shape (units, n_obs)
    acceptance: Array  # shape (units,): mean probability of acceptance, over the passes


@inline
def logistic(x: float) -> float:
    """``1 / (1 + exp(-x))``, without branches."""
    small = exp_negative(-abs(x))
    return (1.0 if x >= 0.0 else small) / (1.0 + small)


@jit
def sum_log_likelihood(gate: GatedUnit, seen: QuadraticTerms, prior_prob: Array) -> float:
    """Sum of ``log(1 + exp(after)) - log(1 + exp(before))``, from log odds and their chances."""
    logit, level, gradient, curvature = gate.logit, gate.level, seen.gradient, seen.curvature
    total, above, below = 0.0, 1.0, 1.0
    for n in range(len(logit)):
        s, p = prior_prob[n], gate.prob[n]
        after = logit[n] + level[n] * (gradient[n] - 0.5 * curvature[n] * level[n])
        total += max(after, 0.0) - max(logit[n], 0.0)
        above *= max(s, 1.0 - s)
        below *= max(p, 1.0 - p)
        if n % 512 == 511:
            total += math.log(above / below)
            above, below = 1.0, 1.0
    return total + math.log(above / below)


@jit
def gated_log_likelihood(
    gate: GatedUnit, seen: QuadraticTerms, score: Array, information: Array
) -> float:
    """Fill the derivative of the log likelihood by ``x . w``, and return the log likelihood.

    The chance of open gates is filled too, and the information (n_obs,) for the precision of the
    proposal, which open gates that are unlikely leave out.

    With the odds of an open gate ``log s / (1 - s)`` before and ``u = logit + g m - c m^2 / 2``
    after what is seen of activations at ``m``, the level of open ones, that is the sum of
    ``log(s exp(g m - c m^2 / 2) + 1 - s)``. A loop fills one array, so that the processor works on
    several samples at once.
    """
    logit, level, gradient, curvature = gate.logit, gate.level, seen.gradient, seen.curvature
    logit_factor, level_factor, prob = gate.logit_factor, gate.level_factor, gate.prob
    prior_prob = score
    for n in range(len(logit)):
        prob[n] = logistic(logit[n] + level[n] * (gradient[n] - 0.5 * curvature[n] * level[n]))
    for n in range(len(logit)):
        prior_prob[n] = logistic(logit[n])
    log_likelihood = sum_log_likelihood(gate, seen, prior_prob)
    for n in range(len(logit)):
        p, slope = prob[n], level_factor[n] * (gradient[n] - curvature[n] * level[n])
        score[n] = p * slope + (p - prior_prob[n]) * logit_factor[n]
    for n in range(len(logit)):
        square = prob[n] * curvature[n] * level_factor[n] * level_factor[n]
        information[n] = 0.0 if prob[n] < LEAST_PROB else square
    return log_likelihood


@inline
def look_from(
    fixed: Fixed,
    row: Array,
    gate: GatedUnit,
    seen: QuadraticTerms,
    score: Array,
    sums: SampleSums,
    law: Proposal,
) -> tuple[float, float]:
    """Fill the law of proposals from a row; returns its log likelihood and the last pivot."""
    log_density = gated_log_likelihood(gate, seen, score, sums.weight)
    fill_precision(fixed.prior, fixed.inputs, sums, law.factor)
    pivot = try_to_factorise(law.factor)
    if pivot > 0.0:
        gradient = np.dot(score, fixed.inputs)
        for j in range(len(gradient)):
            gradient[j] += fixed.prior_linear[j] - fixed.prior[j] * row[j]
        copy(solve_both(law.factor, gradient), law.step)
    return log_density, pivot


@inline
def propose(
    inputs: Array, gate: GatedUnit, here: Proposal, rho: float, normal: Array, new: GatedUnit
) -> Array:
    """Change of a row by Crank and Nicolson's step; fills odds and activations there."""
    spread = math.sqrt((1.0 - rho) * (1.0 + rho))
    change = normal.copy()
    solve(here.factor, change)
    for j in range(len(change)):
        change[j] = (1.0 - rho) * here.step[j] + spread * change[j]
    moved = np.dot(inputs, change)
    for n in range(len(moved)):
        new.logit[n] = gate.logit[n] + gate.logit_factor[n] * moved[n]
        new.level[n] = gate.level[n] + gate.level_factor[n] * moved[n]
    return change


@inline
def log_ratio_back(
    here: Proposal, there: Proposal, change: Array, rho: float, normal: Array
) -> float:
    """Log of the ratio of the proposal back and the one that was made."""
    spread = math.sqrt((1.0 - rho) * (1.0 + rho))
    back = np.empty(len(change))
    for j in range(len(change)):
        back[j] = -change[j] - (1.0 - rho) * there.step[j]
    return log_ratio_proposals(here.factor, there.factor, normal, back, spread)


@inline
def keep(new: GatedUnit, gate: GatedUnit) -> None:
    """Let odds and activations of a new row take the place of those of the old one."""
    copy(new.logit, gate.logit)
    copy(new.level, gate.level)
    copy(new.prob, gate.prob)


@inline
def redraw(gate: GatedUnit, uniform: Array, mean: Array, gates: Array) -> Array:
    """Draw a unit's gates; returns by how much their activations' means change."""
    shift = np.empty(len(gates))
    for n in range(len(gates)):
        gates[n] = 1.0 if uniform[n] < gate.prob[n] else 0.0
        shift[n] = gates[n] * gate.level[n] - mean[n]
    return shift


@jit
def move_gated_rows(
    layer: LayerWeights,
    gates: GatedUnits,
    above: Above,
    rho: Array,
    normal: Array,
    refresh: Array,
    uniform: Array,
) -> MovedGates:
    r"""Move the rows of a layer's weights in turn, each with its gates summed out, then drawn.

    Activations have means ``gates * level``. As in :func:`move_rows`, a row stays where the
    precision of a proposal cannot be told from a singular one, and NaNs spread.

    In the letters of :mod:`pymc_nnsteps.moves.interwoven_gates`, for a row and all samples:

    ==========================  =====================================================
    name                        letter
    ==========================  =====================================================
    ``logit``, ``logit_factor`` :math:`\ell`, :math:`\beta`
    ``level``, ``level_factor`` :math:`m`, :math:`\epsilon`
    ``mean``                    :math:`u`
    ``seen``                    :math:`g` and :math:`c`
    ``prob``                    :math:`p`
    ``score``                   :math:`p (g - c m) \epsilon + (p - s) \beta`
    ``step``                    :math:`P^{-1} \nabla`
    ``spread``                  :math:`\sqrt{1 - \rho^2}`
    ``new``                     the same at :math:`W_a'`
    ==========================  =====================================================

    ``above`` has the variance of the activations' noise. ``rho``, (units,), are autocorrelations of
    Crank-Nicolson proposals in [0, 1]; a row of one stays, as its gates do. Normals are (passes,
    units, d), uniform numbers (passes, units, n_obs) for the gates and (passes, units).
    """
    (units, d), n_obs = layer.rows.shape, len(layer.inputs)
    rows, opened = layer.rows.copy(), gates.gates.copy()
    acceptance = (rho == 1.0).astype(np.float64)
    if (rho == 1.0).all():
        return MovedGates(rows, opened, acceptance)
    logit, level, whitened = gates.logit.copy(), gates.level.copy(), empty_whitened(above)
    held = whitened.shape[1]
    residual = above.response.T - np.dot(above.design, opened * level)
    gradient, curvature, mean, score = np.empty((4, n_obs))
    prob, new_prob, new_logit, new_level = np.empty((4, n_obs))
    seen, sums = QuadraticTerms(gradient, curvature), empty_sums(n_obs, d)
    here, there = Proposal(np.empty(d), np.empty((d, d))), Proposal(np.empty(d), np.empty((d, d)))

    for p in range(len(normal)):
        for a in range(units):
            if a % held == 0 and (p == 0 or held < units):
                whiten_samples(above, a, whitened, residual[:, : n_obs if p + a == 0 else 0])
            if rho[a] == 1.0:
                continue
            row, fixed = rows[a], Fixed(layer.inputs, layer.prior[a], layer.prior_linear[a])
            by_logit, by_level = gates.logit_factor[a], gates.level_factor[a]
            gate = GatedUnit(logit[a], by_logit, level[a], by_level, prob)
            new = GatedUnit(new_logit, by_logit, new_level, by_level, new_prob)
            score_and_curvature(whitened, residual, a % held, seen)
            copy(opened[a] * level[a], mean)
            leave_out(mean, seen)

            # A proposal, and the one back, with the gates summed out.
            log_density, pivot = look_from(fixed, row, gate, seen, score, sums, here)
            lost = not (pivot == pivot and math.isfinite(log_density))
            if pivot > 0.0:
                lost = lost or not math.isfinite(here.step[0])
                change = propose(layer.inputs, gate, here, rho[a], normal[p, a], new)
                new_row = row + change
                new_density, new_pivot = look_from(fixed, new_row, new, seen, score, sums, there)
                if new_pivot > 0.0:
                    log_ratio = new_density - log_density
                    log_ratio += log_ratio_prior(row, new_row, fixed.prior, fixed.prior_linear)
                    log_ratio += log_ratio_back(here, there, change, rho[a], normal[p, a])
                    probability = acceptance_probability(log_ratio)
                    acceptance[a] = min(1.0, acceptance[a] + probability / len(normal))
                    if uniform[p, a] < probability:
                        copy(new_row, row)
                        keep(new, gate)
            if lost:
                rows[a] = np.nan
            shift = redraw(gate, refresh[p, a], mean, opened[a])
            update_residual(whitened, residual, a % held, shift)
    return MovedGates(rows, opened, acceptance)
