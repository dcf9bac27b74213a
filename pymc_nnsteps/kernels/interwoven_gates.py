"""Rows of weights moved together with their gates, by Metropolis-Hastings.

:mod:`pymc_nnsteps.moves.interwoven_gates` derives the move.
"""

import math

import numpy as np

from pymc_nnsteps.kernels.interweaving import (
    HELD,
    acceptance_probability,
    fill_precision,
    leave_out,
    score_and_curvature,
    update_residual,
    weigh_prior,
    weigh_proposals,
    whiten_samples,
)
from pymc_nnsteps.kernels.jit import jit
from pymc_nnsteps.kernels.linear_algebra import (
    Array,
    copy,
    solve,
    solve_transposed,
    try_to_factorise,
)

LEAST_CHANCE = 1e-4
"""Probability below which an open gate adds nothing to the precision of a proposal."""


@jit
def weigh_gates(
    logit: Array,
    level: Array,
    logit_factor: Array,
    level_factor: Array,
    gradient: Array,
    curvature: Array,
    chance: Array,
    score: Array,
    information: Array,
) -> float:
    """Fill what a row is told with its gates summed out, and return the log likelihood.

    With the odds of an open gate ``log s / (1 - s)`` before and ``u = logit + g m - c m^2 / 2``
    after what is seen of activations at ``m``, the level of open ones, that is the sum of
    ``log(s exp(g m - c m^2 / 2) + 1 - s)``.

    Parameters
    ----------
    logit, level : array, shape (n_obs,)
    logit_factor, level_factor : array, shape (n_obs,)
        Their derivatives by ``x . w``.
    gradient, curvature : array, shape (n_obs,)
        ``g`` and ``c``.
    chance : array, shape (n_obs,)
        Filled with the probability of an open gate.
    score, information : array, shape (n_obs,)
        Filled with the derivative of the log likelihood by ``x . w``, and with the precision of
        the proposal, which open gates that are unlikely leave out.
    """
    total, product = 0.0, 1.0
    for n in range(len(logit)):
        before = logit[n]
        after = before + level[n] * (gradient[n] - 0.5 * curvature[n] * level[n])
        small, tiny = math.exp(-abs(before)), math.exp(-abs(after))
        s = (1.0 if before >= 0.0 else small) / (1.0 + small)
        p = (1.0 if after >= 0.0 else tiny) / (1.0 + tiny)
        total += max(after, 0.0) - max(before, 0.0)
        product *= (1.0 + tiny) / (1.0 + small)
        if n % 512 == 511:
            total += math.log(product)
            product = 1.0
        slope = level_factor[n] * (gradient[n] - curvature[n] * level[n])
        chance[n] = p
        score[n] = p * slope + (p - s) * logit_factor[n]
        square = p * curvature[n] * level_factor[n] * level_factor[n]
        information[n] = 0.0 if p < LEAST_CHANCE else square
    return total + math.log(product)


@jit
def find_step(
    inputs: Array, row: Array, prior: Array, prior_linear: Array, score: Array, factor: Array
) -> Array:
    """``P^{-1} grad`` of a row's log density with the Cholesky factor of P."""
    step = np.dot(score, inputs)
    for j in range(len(step)):
        step[j] += prior_linear[j] - prior[j] * row[j]
    solve_transposed(factor, step)
    solve(factor, step)
    return step


@jit
def move_gated_rows(
    inputs: Array,
    rows: Array,
    prior: Array,
    prior_linear: Array,
    gates: Array,
    logit: Array,
    logit_factor: Array,
    level: Array,
    level_factor: Array,
    design: Array,
    weight: Array,
    response: Array,
    variance: Array,
    rho: Array,
    normal: Array,
    refresh: Array,
    uniform: Array,
) -> tuple[Array, Array, Array]:
    r"""Move the rows of a layer's weights in turn, each with its gates summed out, then drawn.

    Activations have means ``gates * level``. As in :func:`move_rows`, a row stays where the
    precision of a proposal cannot be told from a singular one, and NaNs spread.

    In the letters of :mod:`pymc_nnsteps.moves.interwoven_gates`, for a row and all samples:

    =============================  =====================================================
    name                           letter
    =============================  =====================================================
    ``logit``, ``logit_factor``    :math:`\ell`, :math:`\beta`
    ``level``, ``level_factor``    :math:`m`, :math:`\epsilon`
    ``mean``                       :math:`u`
    ``curvature``, ``gradient``    :math:`c`, :math:`g`
    ``chance``                     :math:`p`
    ``score``                      :math:`p (g - c m) \epsilon + (p - s) \beta`
    ``information``                :math:`p c \epsilon^2`
    ``factor``                     Cholesky factor of :math:`P`
    ``step``                       :math:`P^{-1} \nabla`
    ``drift``, ``spread``          :math:`1 - \rho`, :math:`\sqrt{1 - \rho^2}`
    ``new_...``                    the same at :math:`W_a'`
    =============================  =====================================================

    Parameters
    ----------
    inputs : array, shape (n_obs, d)
        ``X``.
    rows : array, shape (units, d)
        ``w_a``.
    prior, prior_linear : array, shape (units, d)
        Precision of the rows' prior, and precision times mean.
    gates : array, shape (units, n_obs)
    logit, level : array, shape (units, n_obs)
        Prior log odds of open gates, and means of the activations behind open gates.
    logit_factor, level_factor : array, shape (units, n_obs)
        Their derivatives by ``X w_a``, of which they are affine functions.
    design, weight, response, variance
        What is seen of the activations and their noise, as of
        :func:`draw_collapsed_gates`.
    rho : array, shape (units,)
        Autocorrelation of the Crank-Nicolson proposals, in [0, 1]. A row of one stays, as its
        gates do.
    normal : array, shape (passes, units, d)
        Standard normals.
    refresh : array, shape (passes, units, n_obs)
        Uniform, for the gates.
    uniform : array, shape (passes, units)

    Returns
    -------
    rows : array, shape (units, d)
    gates : array, shape (units, n_obs)
    acceptance : array, shape (units,)
        Mean probability of acceptance, over the passes.
    """
    n_obs, d = inputs.shape
    m, units = design.shape
    rows, gates = rows.copy(), gates.copy()
    if (rho == 1.0).all():
        return rows, gates, np.ones(units)
    logit, level = logit.copy(), level.copy()
    acceptance = np.zeros(units)
    residual = response.T - np.dot(design, gates * level)
    held = min(units, max(1, HELD // (m * len(weight))))
    whitened = np.empty((m, held, len(weight)))

    gradient, curvature, information = np.empty(n_obs), np.empty(n_obs), np.empty(n_obs)
    chance, score = np.empty(n_obs), np.empty(n_obs)
    new_chance, new_logit, new_level = np.empty(n_obs), np.empty(n_obs), np.empty(n_obs)
    mean, shift = np.empty(n_obs), np.empty(n_obs)
    left, right = np.empty((n_obs, d // 2)), np.empty((n_obs, d - d // 2))
    factor, new_factor, back = np.empty((d, d)), np.empty((d, d)), np.empty(d)
    for p in range(len(normal)):
        for a in range(units):
            if a % held == 0 and (p == 0 or held < units):
                rest = residual[:, : n_obs if p + a == 0 else 0]
                whiten_samples(design, weight, variance, a, whitened, rest)
            if rho[a] == 1.0:
                acceptance[a] = 1.0
                continue
            row = rows[a]
            drift, spread = 1.0 - rho[a], math.sqrt((1.0 - rho[a]) * (1.0 + rho[a]))
            score_and_curvature(whitened, residual, a % held, curvature, gradient)
            for n in range(n_obs):
                mean[n] = gates[a, n] * level[a, n]
            leave_out(mean, curvature, gradient)

            log_density = weigh_gates(
                logit[a], level[a], logit_factor[a], level_factor[a], gradient, curvature,
                chance, score, information,
            )  # fmt: skip
            fill_precision(prior[a], inputs, information, left, right, factor)
            pivot = try_to_factorise(factor)
            lost = not (pivot == pivot and math.isfinite(log_density))
            if pivot > 0.0:
                step = find_step(inputs, row, prior[a], prior_linear[a], score, factor)
                lost = lost or not math.isfinite(step[0])
                change = normal[p, a].copy()
                solve(factor, change)
                for j in range(d):
                    change[j] = drift * step[j] + spread * change[j]
                new_row = row + change

                moved = np.dot(inputs, change)
                for n in range(n_obs):
                    new_logit[n] = logit[a, n] + logit_factor[a, n] * moved[n]
                    new_level[n] = level[a, n] + level_factor[a, n] * moved[n]
                log_ratio = -log_density + weigh_gates(
                    new_logit, new_level, logit_factor[a], level_factor[a], gradient, curvature,
                    new_chance, score, information,
                )  # fmt: skip
                fill_precision(prior[a], inputs, information, left, right, new_factor)
                if try_to_factorise(new_factor) > 0.0:
                    step = find_step(inputs, new_row, prior[a], prior_linear[a], score, new_factor)
                    for j in range(d):
                        back[j] = -change[j] - drift * step[j]
                    log_ratio += weigh_prior(row, new_row, prior[a], prior_linear[a])
                    log_ratio += weigh_proposals(factor, new_factor, normal[p, a], back, spread)
                    probability = acceptance_probability(log_ratio)
                    acceptance[a] = min(1.0, acceptance[a] + probability / len(normal))
                    if uniform[p, a] < probability:
                        copy(new_row, rows[a])
                        copy(new_logit, logit[a])
                        copy(new_level, level[a])
                        copy(new_chance, chance)
            if lost:
                rows[a] = np.nan

            for n in range(n_obs):
                gates[a, n] = 1.0 if refresh[p, a, n] < chance[n] else 0.0
                shift[n] = gates[a, n] * level[a, n] - mean[n]
            update_residual(whitened, residual, a % held, shift)
    return rows, gates, acceptance
