r"""Weights and gates with the activations that they lead to integrated out.

Common notation: a *response* is seen through a *design* ``C`` with *weights*,
:math:`y \sim N(C v, \text{diag}(w)^{-1})`. If :math:`v \sim N(u, \Sigma)` with a diagonal
:math:`\Sigma` is integrated out, then :math:`y \sim N(C u, V)` with

.. math:: V = \text{diag}(w)^{-1} + C \Sigma C^T = U^T U,

and the log density of y is, in u, :math:`u^T B^T e - \tfrac12 |B u|^2` with the *whitened* design
:math:`B = U^{-T} C` and response :math:`e = U^{-T} y`. No large matrices are subtracted (in the
notation of Sheinkman and Wade's model, :math:`K = B^T B` and :math:`k = B^T e`).
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.kernels.bands import CHUNK
from pymc_nnsteps.kernels.jit import jit
from pymc_nnsteps.kernels.linear_algebra import (
    Array,
    copy,
    factorise,
    put,
    solve_rows_transposed,
    solve_transposed,
)


class Above[Of](NamedTuple):
    """What is seen of a layer's activations, whose noise is integrated out."""

    design: Of  # shape (m, d): ``C``
    weight: Of  # shape (n_obs, m) or (1, m): ``w``
    response: Of  # shape (n_obs, m): ``y``
    variance: Of  # shape (d,): the diagonal of ``Sigma``


class Information(NamedTuple):
    """What a layer's weights are told: see :func:`collapsed_information`."""

    information: Array
    score: Array


@jit
def whiten(above: Above, sample: int, first: int, factor: Array, whitened: Array) -> None:
    """Fill U, ``U^T U = diag(w)^{-1} + C Sigma C^T``, and columns of ``B = U^{-T} C``.

    Those of ``B`` from the first on that is asked for, as many as there is room for.
    """
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


@jit
def draw_collapsed_gates(
    logit: Array,
    slope: Array,
    gates: Array,
    above: Above,
    uniform: Array,
) -> Array:
    """Draw gates in turn, with the activations behind them integrated out.

    The activations have means ``gates * slope`` and the given variances, and are seen through the
    design. The slope, gates, uniform numbers and prior log odds are (n_obs, d).
    """
    m, d = above.design.shape
    out = gates.copy()
    factor, whitened = np.empty((m, m), gates.dtype), np.empty((m, d), gates.dtype)
    residual = np.empty(m, gates.dtype)
    for n in range(len(out)):
        # What is not explained yet, whitened.
        if n == 0 or len(above.weight) > 1:
            whiten(above, n, 0, factor, whitened)
        copy(above.response[n], residual)
        solve_transposed(factor, residual)
        for j in range(d):
            mean = out[n, j] * slope[n, j]
            for i in range(m):
                residual[i] -= whitened[i, j] * mean
        # Each gate given the others.
        for j in range(d):
            gate, z = out[n, j], slope[n, j]
            explained, square = 0.0, 0.0
            for i in range(m):
                explained += whitened[i, j] * residual[i]
                square += whitened[i, j] * whitened[i, j]
            odds = logit[n, j] + z * (explained + square * z * (gate - 0.5))
            new = 1.0 if uniform[n, j] < 1.0 / (1.0 + math.exp(-odds)) else 0.0
            if new != gate:
                out[n, j] = new
                for i in range(m):
                    residual[i] -= whitened[i, j] * z * (new - gate)
    return out


@jit
def spread_pairs(total: Array, d: int, k: int) -> Array:
    """A symmetric matrix of ``(d k, d k)``, of one row for each pair of d, one column for k."""
    information = np.empty((d * k, d * k), total.dtype)
    pair = 0
    for a in range(d):
        for b in range(a, d):
            column = 0
            for i in range(k):
                for j in range(i, k):
                    value = total[pair, column]
                    information[a * k + i, b * k + j] = value
                    information[a * k + j, b * k + i] = value
                    information[b * k + i, a * k + j] = value
                    information[b * k + j, a * k + i] = value
                    column += 1
            pair += 1
    return information


@jit
def collapsed_information(
    inputs: Array,
    factor: Array,
    own: Array,
    above: Above,
) -> Information:
    """Information of a layer's weights with its activations integrated out.

    The activations of unit ``a`` have means ``factor_a * (inputs . w_a)``; ``own`` are the weights
    of what else is seen of ``inputs . w_a``. Both are (n_obs, d), inputs (n_obs, k). The
    information (d k, d k) is that of the rows ``w_1, ..., w_d``, one after another; the score
    (n_obs, d) is ``factor * B^T e``, which times the inputs is the linear part.
    """
    n_obs, k = inputs.shape
    m, d = above.design.shape
    chunk = min(CHUNK, n_obs)
    root, whitened = np.empty((m, m), inputs.dtype), np.empty((m, d), inputs.dtype)
    score = np.empty_like(factor)
    seen = np.empty(m, inputs.dtype)
    units = np.empty((chunk, d * (d + 1) // 2), inputs.dtype)
    squares = np.empty((chunk, k * (k + 1) // 2), inputs.dtype)
    total = np.zeros((units.shape[1], squares.shape[1]), inputs.dtype)
    gram = np.zeros((d, d), inputs.dtype)
    for start in range(0, n_obs, chunk):
        rows = min(chunk, n_obs - start)
        for row in range(rows):
            n = start + row
            # What is seen from above of each pair of units, and the score.
            if n == 0 or len(above.weight) > 1:
                whiten(above, n, 0, root, whitened)
                put(np.dot(whitened.T, whitened), gram, 0, 0)
            copy(above.response[n], seen)
            solve_transposed(root, seen)
            column = 0
            for a in range(d):
                explained = 0.0
                for i in range(m):
                    explained += whitened[i, a] * seen[i]
                score[n, a] = factor[n, a] * explained
                for b in range(a, d):
                    units[row, column + b - a] = factor[n, a] * factor[n, b] * gram[a, b]
                units[row, column] += own[n, a]
                column += d - a
            # Each pair of inputs.
            column = 0
            for a in range(k):
                for b in range(a, k):
                    squares[row, column + b - a] = inputs[n, a] * inputs[n, b]
                column += k - a
        total += np.dot(units[:rows].T, squares[:rows])
    return Information(spread_pairs(total, d, k), score)
