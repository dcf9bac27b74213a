"""Gaussian blocks with a precision matrix per label.

Labels (units of a layer, samples) are independent given the rest, each with weights of its own. A
product over all of them at once would hold an array of (labels, d, d); the loop holds one label's
matrix at a time.
"""

import math

import numpy as np

from pymc_nnsteps.kernels.jit import jit
from pymc_nnsteps.kernels.linear_algebra import (
    Array,
    copy,
    keeps_digits,
    solve,
    solve_transposed,
    try_to_factorise,
    weighted_gram,
)
from pymc_nnsteps.kernels.reflections import draw_by_reflections, roots_of, stack_prior, stack_seen


@jit
def draw_labels(
    design: Array,
    weight: Array,
    score: Array,
    linear: Array,
    prior: Array,
    mean: Array,
    noise: Array,
) -> Array:
    """Draw ``N(P^{-1} h, P^{-1})`` with ``P = diag(prior) + C^T diag(w) C`` at each label.

    Parameters
    ----------
    design : array, shape (n, d)
    weight : array, shape (labels, n)
        Not negative.
    score : array, shape (labels, n)
        Weight times response.
    linear : array, shape (labels, d)
        ``h``, that is ``C^T score + prior mean``.
    prior : array, shape (labels, d)
    mean : array, shape (labels, d) or (1, 1)
    noise : array, shape (labels, d)
        Standard normals.
    """
    out = linear.copy()
    (n, d), one = design.shape, np.ones(1, design.dtype)
    for label in range(len(out)):
        precision = weighted_gram(design, weight[label])
        for j in range(d):
            precision[j, j] += prior[label, j]
        matrix, row = precision.copy(), out[label]
        pivot = try_to_factorise(precision)
        if math.isnan(pivot):
            roots_of(weight[label])
            row[:] = np.nan
        elif pivot > 0.0 and keeps_digits(matrix, precision):
            solve_transposed(precision, row)
            row += noise[label]
            solve(precision, row)
        # From the rows themselves, where the precision has lost digits.
        else:
            response, own = np.zeros((1, n), design.dtype), label % len(mean)
            for i in range(n):
                if weight[label, i] > 0.0:
                    response[0, i] = score[label, i] / weight[label, i]
            rows, targets = np.empty((n + d, d)), np.empty((n + d, 1))
            stack_seen(design, weight[label], one, response, rows[:n], targets[:n])
            stack_prior(prior[label], mean[own : own + 1], rows[n:], targets[n:])
            copy(draw_by_reflections(rows, targets, noise[label : label + 1])[0], row)
    return out
