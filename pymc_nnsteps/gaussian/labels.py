"""Gaussian blocks with a precision matrix per label, and drawn by reflections of what is seen.

Labels (units of a layer, samples) are independent given the rest. Each loop over them holds what it
needs for one label at a time. Reflections serve where a precision matrix would lose digits.
"""

import math

import numpy as np

from pymc_nnsteps.compile.jit import jit
from pymc_nnsteps.compile.linear_algebra import (
    TOO_PRECISE,
    Array,
    copy,
    fill_factor,
    keeps_digits,
    solve,
    solve_transposed,
    try_to_factorise,
    weighted_gram,
)


@jit
def roots_of(precision: Array) -> Array:
    """Square roots of precisions, which must not be negative or infinite."""
    if np.isinf(precision).any() or (precision < 0.0).any():
        raise np.linalg.LinAlgError(TOO_PRECISE)
    return np.sqrt(precision.astype(np.float64))


@jit
def stack_seen(
    design: Array, weight: Array, gain: Array, response: Array, rows: Array, targets: Array
) -> None:
    """Fill in what is seen, in units of its standard deviation: rows (n, d), targets (n, labels).

    The design (n, d) times the gain is seen with precisions ``weight``, zero for none. These may be
    of length one, as may either axis of the response (labels, n).
    """
    root = roots_of(weight)
    for i in range(len(rows)):
        own = root[i % len(root)]
        scale = own * gain[i % len(gain)]
        for j in range(rows.shape[1]):
            rows[i, j] = scale * design[i, j] if own != 0.0 else 0.0
        for k in range(targets.shape[1]):
            seen = response[k % len(response), i % response.shape[1]]
            targets[i, k] = own * seen if own != 0.0 else 0.0


@jit
def stack_prior(prior: Array, mean: Array, rows: Array, targets: Array) -> None:
    """Fill in the prior in units of its standard deviation: rows (d, d), targets (d, labels)."""
    root = roots_of(prior)
    rows[:] = 0.0
    for j in range(len(root)):
        rows[j, j] = root[j]
        for k in range(targets.shape[1]):
            targets[j, k] = root[j] * mean[k % len(mean), j % mean.shape[1]]


@jit
def draw_by_reflections(rows: Array, targets: Array, noise: Array) -> Array:
    """Draw ``N(P^{-1} A^T b, P^{-1})``, ``P = A^T A``, by Householder reflections of ``A``, (m, d).

    Pivoting, and the largest rows first, keep the digits of rows of different sizes (Cox and
    Higham, 1998). ``b`` is (m, labels), noise (labels, d).
    """
    m, d = rows.shape
    labels = targets.shape[1]
    # Rows in descending order of their largest entry.
    sizes = np.empty(m)
    for i in range(m):
        sizes[i] = -np.abs(rows[i]).max()
    order = np.argsort(sizes, kind="mergesort")
    a, b = rows[order], targets[order]
    columns = np.arange(d)
    onto_a, onto_b = np.empty(d), np.empty(labels)
    for j in range(d):
        # Pivot: the column with the largest norm from row j on.
        squares = np.zeros(d)
        for i in range(j, m):
            for k in range(j, d):
                squares[k] += a[i, k] * a[i, k]
        pivot = j + np.argmax(squares[j:])
        columns[j], columns[pivot] = columns[pivot], columns[j]
        for i in range(m):
            a[i, j], a[i, pivot] = a[i, pivot], a[i, j]
        # Reflect what is left of all columns and targets, so that column j is zero below row j.
        diagonal = -math.copysign(math.sqrt(squares[pivot]), a[j, j])
        a[j, j] -= diagonal
        onto_a[:], onto_b[:] = 0.0, 0.0
        for i in range(j, m):
            for k in range(j + 1, d):
                onto_a[k] += a[i, j] * a[i, k]
            for k in range(labels):
                onto_b[k] += a[i, j] * b[i, k]
        for i in range(j, m):
            scale = a[i, j] / (diagonal * a[j, j])
            for k in range(j + 1, d):
                a[i, k] += scale * onto_a[k]
            for k in range(labels):
                b[i, k] += scale * onto_b[k]
        sizes[j] = diagonal
    # Solve R x = Q^T b + noise, in the order of the columns that were given.
    out = np.empty(noise.shape)
    for k in range(labels):
        for j in range(d - 1, -1, -1):
            total = b[j, k] + noise[k, j]
            for i in range(j + 1, d):
                total -= a[j, i] * out[k, columns[i]]
            out[k, columns[j]] = total / sizes[j]
    if not np.isfinite(out).all():
        if not (np.isnan(rows).any() or np.isnan(targets).any() or np.isnan(noise).any()):
            raise np.linalg.LinAlgError(TOO_PRECISE)
        out[:] = np.nan
    return out


@jit
def cases_of(label: int, labels: int, index: Array) -> Array:
    """Those whose label, of so many, is the given one; if the index is empty, the label itself."""
    if len(index) == 0:
        return np.full(1, label)
    cases, count = np.empty(len(index), np.int64), 0
    for case in range(len(index)):
        if index[case] % labels == label:
            cases[count] = case
            count += 1
    return cases[:count].copy()


@jit
def redraw_labels(
    block: Array,
    matrix: Array,
    factor: Array,
    design: Array,
    weight: Array,
    gain: Array,
    response: Array,
    index: Array,
    prior: Array,
    mean: Array,
    noise: Array,
) -> Array:
    """Draw a block again where the factorisation that it was drawn by has lost digits.

    ``matrix`` and ``factor``, (labels, k, k), are what was factorised and its factor. The design is
    (cases, n, d); weight, gain and response (cases, n); ``index`` has the label of each case, or is
    empty. Block, prior, mean and noise are (labels, d). Most may be of length one on their first
    axis.
    """
    (labels, d), n = noise.shape, design.shape[1]
    out, redrawn = np.ascontiguousarray(block), False
    if max(len(matrix), len(design), len(weight), len(gain), len(prior), len(index)) <= 1:
        if not keeps_digits(matrix[0], factor[0]):
            rows, targets = np.empty((n + d, d)), np.empty((n + d, labels))
            stack_seen(design[0], weight[0], gain[0], response, rows[:n], targets[:n])
            stack_prior(prior[0], mean, rows[n:], targets[n:])
            out = draw_by_reflections(rows, targets, noise).astype(noise.dtype)
        return out
    for label in range(labels):
        at = label % len(matrix)
        if keeps_digits(matrix[at], factor[at]):
            continue
        if not redrawn:
            out, redrawn = out.copy(), True
        cases = cases_of(label, labels, index)
        last, own = n * len(cases), label % len(mean)
        rows, targets = np.empty((last + d, d)), np.empty((last + d, 1))
        for i, case in enumerate(cases):
            seen = case % len(response)
            stack_seen(
                design[case % len(design)],
                weight[case % len(weight)],
                gain[case % len(gain)],
                response[seen : seen + 1],
                rows[i * n : (i + 1) * n],
                targets[i * n : (i + 1) * n],
            )
        stack_prior(prior[label % len(prior)], mean[own : own + 1], rows[last:], targets[last:])
        copy(draw_by_reflections(rows, targets, noise[label : label + 1])[0], out[label])
    return out


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
    """Fill in a label's draw from the rows (n, d) themselves, whose product loses digits."""
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
    """Draw ``N(P^{-1} h, P^{-1})``, ``P = diag(prior) + C^T diag(w) C``, at each label.

    The design is (n, d), weights and scores (weight times response) are (labels, n); linear, prior
    and normals (labels, d); the mean is that or (1, 1).
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

    With :math:`v_0` from the prior and standard normals e (Matheron's rule),

    .. math::

        v = v_0 + \Lambda^{-1} C^T w^{1/2} M^{-1} (w^{1/2} (y - C v_0) - e),
        \qquad M = 1 + w^{1/2} C \Lambda^{-1} C^T w^{1/2}.

    Weights, scores and ``error`` are (labels, n), ``noise`` (labels, d).
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
        pivot = fill_factor(matrix, factor)
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
    """Draw ``N(P^{-1} h, P^{-1})`` given upper triangles P, (labels, d, d), and h, (labels, d).

    Returned with the draws are the Cholesky factors U, ``P = U^T U``; NaN where there is none.
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
