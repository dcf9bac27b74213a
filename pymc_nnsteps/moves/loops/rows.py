r"""What the moves of a layer's rows share: what is seen from above, proposals, their ratio.

A *response* is seen through a *design* ``C`` with *weights*,
:math:`y \sim N(C v, \text{diag}(w)^{-1})`. If :math:`v \sim N(u, \Sigma)` with a diagonal
:math:`\Sigma` is integrated out, then :math:`y \sim N(C u, V)` with

.. math:: V = \text{diag}(w)^{-1} + C \Sigma C^T = U^T U,

and the log density of y is, in u, :math:`u^T B^T e - \tfrac12 |B u|^2` with the *whitened* design
:math:`B = U^{-T} C` and response :math:`e = U^{-T} y`. No large matrices are subtracted (in the
notation of Sheinkman and Wade's model, :math:`K = B^T B` and :math:`k = B^T e`). Otherwise the
notation is that of :mod:`pymc_nnsteps.moves.interweaving`.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.compile.linear_algebra import (
    Array,
    factorise,
    put,
    solve,
    solve_rows_transposed,
    solve_transposed,
)

MANY_COLUMNS = 32
"""Columns of inputs of which a product of all takes longer than three of halves."""
SAMPLES_AT_ONCE = 256
"""Samples whose squares are added by one product of matrices, as small products are fast."""
HELD = 20_000_000
"""Numbers of whitened designs that are held at a time, where each sample has one of its own."""


class Above[Of](NamedTuple):
    """What is seen of a layer's activations, whose noise is integrated out."""

    design: Of  # shape (m, d): ``C``
    weight: Of  # shape (n_obs, m) or (1, m): ``w``
    response: Of  # shape (n_obs, m): ``y``
    variance: Of  # shape (d,): the diagonal of ``Sigma``


class LayerWeights[Of](NamedTuple):
    """Weights of a layer, and their prior."""

    inputs: Of  # shape (n_obs, d): ``X``
    rows: Of  # shape (units, d): ``w_a``
    # prior, prior_linear of shape (units, d): precision of the rows' prior, and precision times
    # mean.
    prior: Of
    prior_linear: Of


class QuadraticTerms(NamedTuple):
    """What is seen from above of a unit's activations: ``g`` and ``c``, shape (n_obs,)."""

    gradient: Array
    curvature: Array


class SampleSums(NamedTuple):
    """Weights of samples, and room for sums of their squares."""

    weight: Array  # shape (n_obs,)
    samples: Array  # shape (n_obs,): samples whose squares are added come first
    # left, right: their columns, which are halved if they are many.
    left: Array
    right: Array


@jit
def whiten(above: Above, sample: int, first: int, factor: Array, whitened: Array) -> None:
    """Fill U, ``U^T U = diag(w)^{-1} + C Sigma C^T``, and ``B = U^{-T} C`` from a column on."""
    design, variance = above.design, above.variance
    weight = above.weight[sample]
    m, d = design.shape
    for i in range(m):
        for k in range(i, m):
            total = 0.0
            for j in range(d):
                total += design[i, j] * variance[j] * design[k, j]
            factor[i, k] = total
        factor[i, i] += 1.0 / weight[i]
    if factorise(factor):
        put(design[:, first : first + whitened.shape[1]], whitened, 0, 0)
        solve_rows_transposed(factor, whitened)
    else:
        whitened[:] = np.nan


@inline
def empty_whitened(above: Above) -> Array:
    """Room for the whitened designs of as many units as are held at a time."""
    m, units = above.design.shape
    held = min(units, max(1, HELD // (m * len(above.weight))))
    return np.empty((m, held, len(above.weight)))


@jit
def whiten_samples(above: Above, first: int, whitened: Array, residual: Array) -> None:
    """Fill ``B_a``, (m, held, len(weight)), and make residuals (m, n_obs or 0) ``U^{-T} e``."""
    m, units = above.design.shape
    held, n_whitened = min(whitened.shape[1], units - first), len(above.weight)
    root, seen, rest = np.empty((m, m)), np.empty((m, held)), np.empty(m)
    for n in range(max(n_whitened, residual.shape[1])):
        if n < n_whitened:
            whiten(above, n, first, root, seen)
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
def score_and_curvature(whitened: Array, residual: Array, unit: int, seen: QuadraticTerms) -> None:
    """Fill ``B_a^T e`` and ``c = |B_a|^2`` at each sample, with the whitened residual ``e``."""
    m, n_obs = residual.shape
    gradient, curvature = seen.gradient, seen.curvature
    curvature[:], gradient[:] = 0.0, 0.0
    for i in range(m):
        column = whitened[i, unit]
        if len(column) == 1:
            for n in range(n_obs):
                curvature[n] += column[0] * column[0]
                gradient[n] += column[0] * residual[i, n]
        else:
            for n in range(n_obs):
                curvature[n] += column[n] * column[n]
                gradient[n] += column[n] * residual[i, n]


@jit
def update_residual(whitened: Array, residual: Array, unit: int, level: Array) -> None:
    """Subtract a unit's activations from the whitened residual."""
    m, n_obs = residual.shape
    for i in range(m):
        column = whitened[i, unit]
        if len(column) == 1:
            for n in range(n_obs):
                residual[i, n] -= column[0] * level[n]
        else:
            for n in range(n_obs):
                residual[i, n] -= column[n] * level[n]


@inline
def leave_out(level: Array, seen: QuadraticTerms) -> None:
    """Turn ``B_a^T e`` into ``g``, where the unit's own activations are not subtracted."""
    gradient, curvature = seen.gradient, seen.curvature
    for n in range(len(level)):
        gradient[n] += curvature[n] * level[n]


@inline
def empty_sums(n_obs: int, d: int) -> SampleSums:
    """Room for sums of squares of d columns."""
    half = d if d < MANY_COLUMNS else d // 2
    left, right = np.empty((SAMPLES_AT_ONCE, half)), np.empty((SAMPLES_AT_ONCE, d - half))
    return SampleSums(np.empty(n_obs), np.empty(n_obs, np.int64), left, right)


@inline
def add_to(matrix: Array, sign: float, precision: Array, first_row: int, first_column: int) -> None:
    """Add a matrix, or subtract it, from a part of the precision."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            precision[first_row + i, first_column + j] += sign * matrix[i, j]


@jit
def add_squares(
    sign: float, inputs: Array, samples: Array, sums: SampleSums, precision: Array
) -> None:
    """Add ``X^T diag(w) X`` of some samples to the upper triangle; weights have the sign of it."""
    weight, left, right = sums.weight, sums.left, sums.right
    half, d = left.shape[1], len(precision)
    for first in range(0, len(samples), len(left)):
        count = min(len(left), len(samples) - first)
        for k in range(count):
            n = samples[first + k]
            root = math.sqrt(sign * weight[n])
            for j in range(half):
                left[k, j] = root * inputs[n, j]
            for j in range(half, d):
                right[k, j - half] = root * inputs[n, j]
        add_to(np.dot(left[:count].T, left[:count]), sign, precision, 0, 0)
        if half < d:
            add_to(np.dot(left[:count].T, right[:count]), sign, precision, 0, half)
            add_to(np.dot(right[:count].T, right[:count]), sign, precision, half, half)


@jit
def fill_precision(prior: Array, inputs: Array, sums: SampleSums, precision: Array) -> None:
    """Fill the upper triangle of ``diag(prior) + X^T diag(w) X``, w not negative."""
    for i in range(len(prior)):
        for j in range(i, len(prior)):
            precision[i, j] = prior[i] if i == j else 0.0
    count = 0
    for n in range(len(sums.weight)):
        sums.samples[count] = n
        count += int(sums.weight[n] != 0.0)
    add_squares(1.0, inputs, sums.samples[:count], sums, precision)


@inline
def solve_both(factor: Array, linear: Array) -> Array:
    """``P^{-1} h`` with the Cholesky factor of P."""
    mean = linear.copy()
    solve_transposed(factor, mean)
    solve(factor, mean)
    return mean


@inline
def log_ratio_prior(row: Array, new_row: Array, prior: Array, prior_linear: Array) -> float:
    """``log p(w') - log p(w)`` of a row's prior."""
    total = 0.0
    for j in range(len(row)):
        middle = 0.5 * (new_row[j] + row[j])
        total += (new_row[j] - row[j]) * (prior_linear[j] - prior[j] * middle)
    return total


@inline
def log_ratio_proposals(
    factor: Array, new_factor: Array, normal: Array, back: Array, spread: float
) -> float:
    """``log q(w | w') - log q(w' | w)`` of normals of precisions ``P / spread^2``.

    ``normal`` is the noise of the proposal, ``back`` what w is beside the mean of the way back.
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
