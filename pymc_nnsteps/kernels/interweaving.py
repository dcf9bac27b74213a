"""Rows of weights moved together with their pre-activations, by Metropolis-Hastings.

:mod:`pymc_nnsteps.moves.interweaving` derives the move.

The notation, *whitened* designs among it, is that of :mod:`.collapse`.
"""

import math

import numpy as np

from pymc_nnsteps.kernels.collapse import whiten
from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.kernels.linear_algebra import (
    MOST_LOST,
    Array,
    copy,
    put,
    solve,
    solve_transposed,
    try_to_factorise,
)

HELD = 20_000_000
"""Numbers of whitened designs that are held at a time, where each sample has one of its own."""


@jit
def whiten_samples(
    design: Array, weight: Array, variance: Array, first: int, whitened: Array, residual: Array
) -> None:
    """Fill ``B_a`` of the first unit and those after it, and overwrite residuals by ``U^{-T} e``.

    Parameters
    ----------
    whitened : array, shape (m, held, len(weight))
    residual : array, shape (m, n_obs), or (m, 0) if there are none to be whitened
    """
    m, held = len(design), min(whitened.shape[1], design.shape[1] - first)
    root, seen, rest = np.empty((m, m)), np.empty((m, held)), np.empty(m)
    for n in range(max(len(weight), residual.shape[1])):
        if n < len(weight):
            whiten(design, weight[n], variance, first, root, seen)
            for i in range(m):
                for a in range(held):
                    whitened[i, a, n] = seen[i, a]
        if n >= residual.shape[1]:
            continue
        for i in range(m):
            rest[i] = residual[i, n]
        solve_transposed(root, rest)
        for i in range(m):
            residual[i, n] = rest[i]


@jit
def read_pieces(
    z: Array, knots: Array, slopes: Array, intercepts: Array, slope: Array, intercept: Array
) -> None:
    """Fill slope and intercept of the piece that holds each entry of ``z``."""
    for n in range(len(z)):
        piece = 0
        for knot in knots:
            if z[n] >= knot:
                piece += 1
        slope[n] = slopes[piece]
        intercept[n] = intercepts[piece]


@jit
def score_and_curvature(
    whitened: Array, residual: Array, unit: int, curvature: Array, gradient: Array
) -> None:
    """Fill ``c = |B_a|^2`` and ``B_a^T e`` at each sample, with the whitened residual ``e``."""
    m, n_obs = residual.shape
    curvature[:], gradient[:] = 0.0, 0.0
    for i in range(m):
        seen = whitened[i, unit]
        if len(seen) == 1:
            for n in range(n_obs):
                curvature[n] += seen[0] * seen[0]
                gradient[n] += seen[0] * residual[i, n]
        else:
            for n in range(n_obs):
                curvature[n] += seen[n] * seen[n]
                gradient[n] += seen[n] * residual[i, n]


@jit
def update_residual(whitened: Array, residual: Array, unit: int, level: Array) -> None:
    """Subtract a unit's activations from the whitened residual."""
    m, n_obs = residual.shape
    for i in range(m):
        seen = whitened[i, unit]
        if len(seen) == 1:
            for n in range(n_obs):
                residual[i, n] -= seen[0] * level[n]
        else:
            for n in range(n_obs):
                residual[i, n] -= seen[n] * level[n]


@jit
def sum_scores(prior_linear: Array, score: Array, inputs: Array, linear: Array) -> None:
    """Fill ``P m``."""
    total = np.dot(score, inputs)
    for j in range(len(linear)):
        linear[j] = prior_linear[j] + total[j]


@jit
def add_gram(precision: Array, inputs: Array, weight: Array, scratch: Array) -> None:
    """Add ``X^T diag(w) X``; rows of no weight cost nothing. The scratch holds two of ``X``."""
    count = 0
    for n in range(len(weight)):
        if weight[n] != 0.0:
            for j in range(inputs.shape[1]):
                scratch[0, count, j] = inputs[n, j]
                scratch[1, count, j] = weight[n] * inputs[n, j]
            count += 1
    if count > 0:
        precision += np.dot(scratch[0, :count].T, scratch[1, :count])


@jit
def fill_precision(
    prior: Array, inputs: Array, weight: Array, left: Array, right: Array, precision: Array
) -> None:
    """Fill the upper triangle of ``diag(prior) + X^T diag(w) X``, w not negative.

    The halves of its columns are multiplied on their own, which leaves out most of the rest; they
    are held in ``left`` and ``right``.
    """
    d, half, count = len(prior), left.shape[1], 0
    for n in range(len(weight)):
        if weight[n] != 0.0:
            root = math.sqrt(weight[n])
            for j in range(half):
                left[count, j] = root * inputs[n, j]
            for j in range(half, d):
                right[count, j - half] = root * inputs[n, j]
            count += 1
    put(np.dot(left[:count].T, left[:count]), precision, 0, 0)
    put(np.dot(left[:count].T, right[:count]), precision, 0, half)
    put(np.dot(right[:count].T, right[:count]), precision, half, half)
    for j in range(d):
        precision[j, j] += prior[j]


@jit
def fill_score(
    noise: Array,
    gradient: Array,
    curvature: Array,
    slope: Array,
    intercept: Array,
    score: Array,
) -> None:
    """Fill ``s (g - c (s e + t))``, by which the inputs of a sample enter ``P m``."""
    for n in range(len(noise)):
        rest = gradient[n] - curvature[n] * (slope[n] * noise[n] + intercept[n])
        score[n] = slope[n] * rest


@inline
def solve_both(factor: Array, linear: Array) -> Array:
    """``P^{-1} h`` with the Cholesky factor of P."""
    mean = linear.copy()
    solve_transposed(factor, mean)
    solve(factor, mean)
    return mean


@inline
def leave_out(level: Array, curvature: Array, gradient: Array) -> None:
    """Turn ``B_a^T e`` into ``g``, where the unit's own activations are not subtracted."""
    for n in range(len(level)):
        gradient[n] += curvature[n] * level[n]


@inline
def weigh_prior(row: Array, new_row: Array, prior: Array, prior_linear: Array) -> float:
    """``log p(w') - log p(w)`` of a row's prior."""
    total = 0.0
    for j in range(len(row)):
        middle = 0.5 * (new_row[j] + row[j])
        total += (new_row[j] - row[j]) * (prior_linear[j] - prior[j] * middle)
    return total


@inline
def weigh_proposals(
    factor: Array, new_factor: Array, normal: Array, back: Array, spread: float
) -> float:
    r"""``log q(w | w') - log q(w' | w)`` of normal proposals with precisions ``P / spread^2``.

    Parameters
    ----------
    factor, new_factor : array, shape (d, d)
        Cholesky factors of P at w and at w'.
    normal : array, shape (d,)
        Standard normals of the proposal.
    back : array, shape (d,)
        What w is beside the mean of the proposal back.
    """
    total = 0.0
    for i in range(len(back)):
        whitened_back = 0.0
        for j in range(i, len(back)):
            whitened_back += new_factor[i, j] * back[j]
        ahead = spread * normal[i]
        total += 0.5 * (ahead + whitened_back) * (ahead - whitened_back) / spread**2
        total += math.log(new_factor[i, i] / factor[i, i])
    return total


@inline
def acceptance_probability(log_ratio: float) -> float:
    """Probability that a proposal is accepted; none if there is a NaN."""
    return math.exp(min(0.0, log_ratio)) if log_ratio == log_ratio else 0.0


@inline
def weigh_levels(level: Array, shift: Array, gradient: Array, curvature: Array) -> float:
    """``sum of g x' - c x'^2 / 2 - (g x - c x^2 / 2)`` of activations moved from x to x'."""
    total = 0.0
    for n in range(len(level)):
        total += shift[n] * (gradient[n] - curvature[n] * (level[n] + 0.5 * shift[n]))
    return total


@inline
def update_precision(
    prior: Array,
    inputs: Array,
    curvature: Array,
    slope: Array,
    new_slope: Array,
    precision: Array,
    change: Array,
    scratch: Array,
    left: Array,
    right: Array,
    new_precision: Array,
) -> bool:
    """Fill P of new slopes: by the samples that change theirs, unless that loses digits.

    Returns whether it does not.
    """
    for n in range(len(slope)):
        squares = new_slope[n] * new_slope[n] - slope[n] * slope[n]
        change[n] = curvature[n] * squares
    put(precision, new_precision, 0, 0)
    add_gram(new_precision, inputs, change, scratch)
    kept_digits = True
    for j in range(len(prior)):
        if new_precision[j, j] < MOST_LOST * precision[j, j]:
            kept_digits = False
    if not kept_digits:
        for n in range(len(slope)):
            change[n] = curvature[n] * new_slope[n] * new_slope[n]
        fill_precision(prior, inputs, change, left, right, new_precision)
    return kept_digits


@jit
def add_scores(inputs: Array, score: Array, new_score: Array, linear: Array) -> None:
    """Turn ``P m`` into that of new scores; samples that keep theirs cost nothing."""
    for n in range(len(score)):
        change = new_score[n] - score[n]
        if change != 0.0:
            for j in range(len(linear)):
                linear[j] += change * inputs[n, j]


@jit
def move_rows(
    inputs: Array,
    rows: Array,
    prior: Array,
    prior_linear: Array,
    pre: Array,
    knots: Array,
    slopes: Array,
    intercepts: Array,
    design: Array,
    weight: Array,
    response: Array,
    variance: Array,
    rho: Array,
    normal: Array,
    uniform: Array,
) -> tuple[Array, Array, Array]:
    r"""Move the rows of a layer's weights in turn, each with its pre-activations.

    Unit ``a`` has pre-activations :math:`z_a = X w_a + e_a`, of which ``e_a`` stays. Where the
    precision of a proposal cannot be told from a singular one, on the way there or back, the row
    stays. What depends on a NaN becomes NaN.

    In the letters of :mod:`pymc_nnsteps.moves.interweaving`, for a row and all samples:

    =========================  =====================================================
    name                       letter
    =========================  =====================================================
    ``noise``                  :math:`e`
    ``slope``, ``intercept``   :math:`s`, :math:`t`
    ``level``                  :math:`\sigma(z)`
    ``curvature, gradient``    :math:`c`, :math:`g`
    ``linear``, ``mean``       :math:`P m` and :math:`m`
    ``precisions, factors``    :math:`P` and its Cholesky factor, kept between passes
    ``spread``                 :math:`\sqrt{1 - \rho^2}`
    ``new_...``                the same at :math:`W_a'`
    =========================  =====================================================

    Parameters
    ----------
    inputs : array, shape (n_obs, d)
        ``X``.
    rows : array, shape (units, d)
        ``w_a``.
    prior, prior_linear : array, shape (units, d)
        Precision of the rows' prior, and precision times mean.
    pre : array, shape (units, n_obs)
        ``z_a``.
    knots : array, shape (K,)
    slopes, intercepts : array, shape (K + 1,)
        Of the activation's pieces.
    design, weight, response, variance
        What is seen of the activations and their noise, as of
        :func:`draw_collapsed_gates`.
    rho : array, shape (units,)
        Autocorrelation of the Crank-Nicolson proposals, in [0, 1]. A row of one stays.
    normal : array, shape (passes, units, d)
        Standard normals.
    uniform : array, shape (passes, units)

    Returns
    -------
    rows : array, shape (units, d)
    pre : array, shape (units, n_obs)
    acceptance : array, shape (units,)
        Mean probability of acceptance, over the passes.
    """
    n_obs, d = inputs.shape
    m, units = design.shape
    rows, pre = rows.copy(), pre.copy()
    if (rho == 1.0).all():
        return rows, pre, np.ones(units)
    acceptance = np.zeros(units)

    slope, intercept = np.empty((units, n_obs)), np.empty((units, n_obs))
    for a in range(units):
        read_pieces(pre[a], knots, slopes, intercepts, slope[a], intercept[a])
    noise = pre - np.dot(rows, inputs.T)
    residual = response.T - np.dot(design, slope * pre + intercept)
    held = min(units, max(1, HELD // (m * len(weight))))
    whitened = np.empty((m, held, len(weight)))

    new_slope, new_intercept = np.empty(n_obs), np.empty(n_obs)
    gradient, curvature, change = np.empty(n_obs), np.empty(n_obs), np.empty(n_obs)
    level, shift = np.empty(n_obs), np.empty(n_obs)
    score, new_score, linear = np.empty(n_obs), np.empty(n_obs), np.empty(d)
    scratch = np.empty((2, n_obs, d))
    left, right = np.empty((n_obs, d // 2)), np.empty((n_obs, d - d // 2))
    precisions, factors = np.empty((units, d, d)), np.empty((units, d, d))
    pivots = np.empty(units)
    new_precision, new_factor, back = np.empty((d, d)), np.empty((d, d)), np.empty(d)
    for p in range(len(normal)):
        for a in range(units):
            if a % held == 0 and (p == 0 or held < units):
                rest = residual[:, : n_obs if p + a == 0 else 0]
                whiten_samples(design, weight, variance, a, whitened, rest)
            if rho[a] == 1.0:
                acceptance[a] = 1.0
                continue
            row, z, factor = rows[a], pre[a], factors[a]
            spread = math.sqrt((1.0 - rho[a]) * (1.0 + rho[a]))
            score_and_curvature(whitened, residual, a % held, curvature, gradient)
            for n in range(n_obs):
                level[n] = slope[a, n] * z[n] + intercept[a, n]
            leave_out(level, curvature, gradient)

            if p == 0:
                for n in range(n_obs):
                    change[n] = curvature[n] * slope[a, n] * slope[a, n]
                fill_precision(prior[a], inputs, change, left, right, precisions[a])
                put(precisions[a], factor, 0, 0)
                pivots[a] = try_to_factorise(factor)
            if pivots[a] <= 0.0:
                continue
            fill_score(noise[a], gradient, curvature, slope[a], intercept[a], score)
            sum_scores(prior_linear[a], score, inputs, linear)
            mean = solve_both(factor, linear)
            if not (pivots[a] > 0.0 and math.isfinite(mean[0])):
                rows[a], pre[a] = np.nan, np.nan
                continue
            new_row = normal[p, a].copy()
            solve(factor, new_row)
            for j in range(d):
                new_row[j] = mean[j] + rho[a] * (row[j] - mean[j]) + spread * new_row[j]

            new_z = np.dot(inputs, new_row)
            for n in range(n_obs):
                new_z[n] += noise[a, n]
            read_pieces(new_z, knots, slopes, intercepts, new_slope, new_intercept)
            for n in range(n_obs):
                shift[n] = new_slope[n] * new_z[n] + new_intercept[n] - level[n]
            fill_score(noise[a], gradient, curvature, new_slope, new_intercept, new_score)
            if update_precision(
                prior[a], inputs, curvature, slope[a], new_slope, precisions[a], change, scratch,
                left, right, new_precision,
            ):  # fmt: skip
                add_scores(inputs, score, new_score, linear)
            else:
                sum_scores(prior_linear[a], new_score, inputs, linear)
            put(new_precision, new_factor, 0, 0)
            if not try_to_factorise(new_factor) > 0.0:
                continue
            new_mean = solve_both(new_factor, linear)
            for j in range(d):
                back[j] = row[j] - new_mean[j] - rho[a] * (new_row[j] - new_mean[j])

            log_ratio = weigh_levels(level, shift, gradient, curvature)
            log_ratio += weigh_prior(row, new_row, prior[a], prior_linear[a])
            log_ratio += weigh_proposals(factor, new_factor, normal[p, a], back, spread)
            probability = acceptance_probability(log_ratio)
            acceptance[a] = min(1.0, acceptance[a] + probability / len(normal))
            if uniform[p, a] < probability:
                update_residual(whitened, residual, a % held, shift)
                copy(new_row, rows[a])
                copy(new_z, pre[a])
                copy(new_slope, slope[a])
                copy(new_intercept, intercept[a])
                put(new_precision, precisions[a], 0, 0)
                put(new_factor, factors[a], 0, 0)
    return rows, pre, acceptance
