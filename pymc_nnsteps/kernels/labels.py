"""Gaussian blocks with a precision matrix per label.

Labels (units of a layer, samples) are independent given the rest. Each loop over them holds what it
needs for one label at a time.
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
def draw_from_rows(
    design: Array,
    weight: Array,
    score: Array,
    prior: Array,
    mean: Array,
    noise: Array,
    out: Array,
) -> None:
    """Fill in a label's draw from the rows themselves, where a product of them loses digits.

    The design is (n, d), weights and scores are (n,), the mean and noise (1, d).
    """
    n, d = design.shape
    response, one = np.zeros((1, n), design.dtype), np.ones(1, design.dtype)
    for i in range(n):
        if weight[i] > 0.0:
            response[0, i] = score[i] / weight[i]
    rows, targets = np.empty((n + d, d)), np.empty((n + d, 1))
    stack_seen(design, weight, one, response, rows[:n], targets[:n])
    stack_prior(prior, mean, rows[n:], targets[n:])
    copy(draw_by_reflections(rows, targets, noise)[0], out)


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

    The design is (n, d), weights (not negative) and scores (weight times response) are (labels, n).
    ``linear`` is ``h = C^T score + prior mean``, (labels, d), as are prior and standard normals;
    the mean is that or (1, 1).
    """
    out, d = linear.copy(), design.shape[1]
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
        else:
            at, own = label % len(mean), prior[label]
            level, normal = mean[at : at + 1], noise[label : label + 1]
            draw_from_rows(design, weight[label], score[label], own, level, normal, row)
    return out


@jit
def draw_few_rows(
    design: Array,
    weight: Array,
    score: Array,
    prior: Array,
    mean: Array,
    error: Array,
    noise: Array,
) -> Array:
    r"""Draw what :func:`draw_labels` does by matrices of the rows, where these are few.

    With :math:`v_0` from the prior of precision :math:`\Lambda`, standard normals e, and the
    responses y of a label (Matheron's rule),

    .. math::

        v = v_0 + \Lambda^{-1} C^T w^{1/2} M^{-1} (w^{1/2} (y - C v_0) - e),
        \qquad M = 1 + w^{1/2} C \Lambda^{-1} C^T w^{1/2}.

    The design is (n, d), weights and scores are (labels, n), prior and mean (labels or 1, d).
    Standard normals are ``error`` (labels, n) and ``noise`` (labels, d).
    """
    (labels, d), n = noise.shape, len(design)
    out, root, sharpness = np.empty_like(noise), roots_of(weight), roots_of(prior)
    column, deviation = design.T.copy().astype(np.float64), np.empty(d)
    # C Lambda^{-1} C^T, of one label if the prior varies.
    gram, matrix, factor = np.empty((n, n)), np.empty((n, n)), np.empty((n, n))
    start, pull, seen = np.empty(d), np.empty(n), np.empty(n)
    for label in range(labels):
        row, own, at = out[label], label % len(prior), label % len(mean)
        if label == 0 or len(prior) > 1:
            gram[:] = 0.0
            for j in range(d):
                deviation[j] = 1.0 / sharpness[own, j]
                for i in range(n):
                    scaled = column[j, i] * deviation[j] * deviation[j]
                    for k in range(i, n):
                        gram[i, k] += scaled * column[j, k]
        # What a draw from the prior leaves of the rows, and the covariance of that.
        seen[:] = 0.0
        for j in range(d):
            start[j] = mean[at, j] + deviation[j] * noise[label, j]
            for i in range(n):
                seen[i] += column[j, i] * start[j]
        for i in range(n):
            scale = root[label, i]
            pull[i] = -scale * seen[i] - error[label, i]
            if scale > 0.0:
                pull[i] += score[label, i] / scale
            for k in range(i, n):
                matrix[i, k] = scale * gram[i, k] * root[label, k]
            matrix[i, i] += 1.0
        for i in range(n):
            for k in range(i, n):
                factor[i, k] = matrix[i, k]
        pivot = try_to_factorise(factor)
        if math.isnan(pivot):
            row[:] = np.nan
        elif pivot > 0.0 and keeps_digits(matrix, factor):
            solve_transposed(factor, pull)
            solve(factor, pull)
            for i in range(n):
                pull[i] *= root[label, i]
            for j in range(d):
                total = 0.0
                for i in range(n):
                    total += column[j, i] * pull[i]
                row[j] = start[j] + deviation[j] * deviation[j] * total
        else:
            level, normal = mean[at : at + 1], noise[label : label + 1]
            draw_from_rows(design, weight[label], score[label], prior[own], level, normal, row)
    return out


@jit
def draw_precisions(precision: Array, linear: Array, noise: Array) -> tuple[Array, Array]:
    """Draw ``N(P^{-1} h, P^{-1})`` at each label, given the upper triangles of P, (labels, d, d).

    ``linear`` is h, (labels, d). Returned with the draws are the Cholesky factors U in upper
    triangles, ``P = U^T U``; NaN where there is none.
    """
    factor, block = precision.copy(), linear.copy()
    for label in range(len(block)):
        root, row = factor[label], block[label]
        if try_to_factorise(root) > 0.0:
            solve_transposed(root, row)
            row += noise[label]
            solve(root, row)
        else:
            root[:] = np.nan
            row[:] = np.nan
    return block, factor
