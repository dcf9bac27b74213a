r"""Draws of Gaussian blocks with a precision matrix per label, label by label, as Numba kernels.

Two of them, :func:`move_rows` and :func:`move_gated_rows`, draw by Metropolis-Hastings
(:mod:`.interweaving`, :mod:`.interwoven_gates`).

The labels (units of a layer, samples) are independent given the rest, but each has weights of its
own, so that a product over all of them at once would hold an array of (labels, d, d). The loops
here hold one label's matrices at a time.

Common notation: a *response* is seen through a *design* ``C`` with *weights*,
:math:`y \sim N(C v, \text{diag}(w)^{-1})`. If :math:`v \sim N(u, \Sigma)` with a diagonal
:math:`\Sigma` is integrated out, then :math:`y \sim N(C u, V)` with

.. math:: V = \text{diag}(w)^{-1} + C \Sigma C^T = U^T U,

and what y says of u is :math:`\exp(u^T B^T e - \tfrac12 |B u|^2)` with the *whitened* design
:math:`B = U^{-T} C` and response :math:`e = U^{-T} y`: no difference of large matrices anywhere
(in the notation of Sheinkman and Wade's model, :math:`K = B^T B` and :math:`k = B^T e`).

All arrays of a call have one floating-point type.
"""

import math

import numpy as np

from pymc_nnsteps.kernels.jit import inline, jit

Array = np.ndarray

CHUNK = 128
"""Rows whose products are held at a time."""

PANEL = 64
"""Columns of a band that are factorised at a time."""

HELD = 20_000_000
"""Numbers of whitened designs that are held at a time, where each sample has one of its own."""

MOST_LOST = 1e-6
"""Part of a precision below which it is not reached by subtraction."""

ROUNDING = 64
"""Part of a precision, in units of the rounding of one, below which nothing is known of it."""

TOO_PRECISE = (
    "a precision matrix is not positive definite in floating-point numbers: a noise is too small "
    "beside the prior for them to hold the posterior; rescale, use a larger noise or a tighter "
    "prior, or remove columns that repeat others"
)


LEAST_CHANCE = 1e-4
"""Probability below which an open gate adds nothing to the precision of a proposal."""


@jit
def copy(source: Array, target: Array) -> None:
    """``target[:] = source`` of vectors.

    Numba compiles the error of an assignment of arrays that do not fit for seconds.
    """
    for j in range(len(source)):
        target[j] = source[j]


@jit
def put(source: Array, target: Array, first_row: int, first_column: int) -> None:
    """Copy a matrix to a part of another one."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[first_row + i, first_column + j] = source[i, j]


@jit
def try_to_factorise(matrix: Array) -> float:
    """Overwrite the upper triangle with the Cholesky factor U, ``matrix = U^T U``.

    Returns the last pivot; if that is not positive there is nothing of use in the matrix.
    """
    n = len(matrix)
    pivot = 1.0
    for j in range(n):
        pivot = float(matrix[j, j])
        if not pivot > 0.0:
            return pivot
        root = math.sqrt(pivot)
        matrix[j, j] = root
        for k in range(j + 1, n):
            matrix[j, k] /= root
        for i in range(j + 1, n):
            scale = matrix[j, i]
            for k in range(i, n):
                matrix[i, k] -= scale * matrix[j, k]
    return pivot


@jit
def factorise(matrix: Array) -> bool:
    """Overwrite the upper triangle with the Cholesky factor of a positive definite matrix.

    Returns False, with nothing of use in the matrix, if it holds a NaN.
    """
    pivot = try_to_factorise(matrix)
    if pivot <= 0.0:
        raise np.linalg.LinAlgError(TOO_PRECISE)
    return pivot > 0.0


@jit
def solve_transposed(factor: Array, vector: Array) -> None:
    """Overwrite the vector with ``U^{-T} vector``."""
    for j in range(len(vector)):
        vector[j] /= factor[j, j]
        for k in range(j + 1, len(vector)):
            vector[k] -= factor[j, k] * vector[j]


@jit
def solve(factor: Array, vector: Array) -> None:
    """Overwrite the vector with ``U^{-1} vector``."""
    for j in range(len(vector) - 1, -1, -1):
        total = vector[j]
        for k in range(j + 1, len(vector)):
            total -= factor[j, k] * vector[k]
        vector[j] = total / factor[j, j]


@jit
def solve_rows_transposed(factor: Array, rows: Array) -> None:
    """Overwrite a matrix with ``U^{-T} rows``."""
    n, width = rows.shape
    for j in range(n):
        for i in range(width):
            rows[j, i] /= factor[j, j]
        for k in range(j + 1, n):
            scale = factor[j, k]
            for i in range(width):
                rows[k, i] -= scale * rows[j, i]


@jit
def weighted_gram(design: Array, weight: Array) -> Array:
    """``C^T diag(w) C``."""
    scaled = np.empty(design.shape, design.dtype)
    for i in range(design.shape[0]):
        root = math.sqrt(weight[i])
        for j in range(design.shape[1]):
            scaled[i, j] = root * design[i, j]
    return np.dot(scaled.T, scaled)


@jit
def keeps_digits(matrix: Array, factor: Array) -> bool:
    """Whether no pivot of a Cholesky factor is what subtraction left of a much larger number."""
    least = max(MOST_LOST, math.sqrt(np.finfo(matrix.dtype).eps))
    kept = True
    for j in range(len(matrix)):
        kept = kept and least * matrix[j, j] <= factor[j, j] * factor[j, j] < math.inf
    return kept


@jit
def is_rounding(diagonal: Array, roots: Array) -> bool:
    """Whether a pivot of a factorisation is of the size of rounding; not if there is a NaN."""
    least, found = ROUNDING * np.finfo(diagonal.dtype).eps, False
    for j in range(len(diagonal)):
        found = found or roots[j] * roots[j] < least * diagonal[j]
    return found


@jit
def refuse_lost(diagonal: Array, roots: Array, block: Array) -> Array:
    """A block, if its precision is known from a factorisation.

    Parameters
    ----------
    diagonal : array, shape (d,)
        Of the sum of what the precision matrix was formed of, or NaN.
    roots : array, shape (d,)
        Diagonal of the matrix's Cholesky factor, NaN if there is none.
    block : array

    Raises
    ------
    LinAlgError
        If a pivot is of the size of rounding.
    """
    no_factor = np.isnan(roots).any() and not np.isnan(diagonal).any()
    if no_factor or is_rounding(diagonal, roots):
        raise np.linalg.LinAlgError(TOO_PRECISE)
    return block.copy()


@jit
def choose_point(points: Array, log_density: Array, level: Array) -> Array:
    """One of several points, with probabilities proportional to a density.

    Parameters
    ----------
    points, log_density : array, shape (m,)
        The density is zero where its logarithm is NaN.
    level : array, shape (1,)
        A uniform number.

    Returns
    -------
    array, shape (1,)
    """
    highest = -math.inf
    for value in log_density:
        highest = max(highest, value) if value == value else highest
    below = np.empty(len(points))
    total = 0.0
    for j in range(len(points)):
        value = log_density[j]
        total += math.exp(value - highest) if value == value else 0.0
        below[j] = total
    chosen = 0
    while chosen < len(points) - 1 and below[chosen] <= level[0] * total:
        chosen += 1
    return points[chosen : chosen + 1].copy()


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
    """Fill in what is seen, in units of its standard deviation.

    Parameters
    ----------
    design : array, shape (n, d)
    weight, gain : array, shape (n,) or (1,)
        The design times the gain is seen with these precisions; zero: it is not seen.
    response : array, shape (labels, n), or of length one on either axis
    rows : array, shape (n, d)
    targets : array, shape (n, labels)
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
    """Fill in the prior, in units of its standard deviation.

    Parameters
    ----------
    prior : array, shape (d,)
    mean : array, shape (labels, d), or of length one on either axis
    rows : array, shape (d, d)
    targets : array, shape (d, labels)
    """
    root = roots_of(prior)
    rows[:] = 0.0
    for j in range(len(root)):
        rows[j, j] = root[j]
        for k in range(targets.shape[1]):
            targets[j, k] = root[j] * mean[k % len(mean), j % mean.shape[1]]


@jit
def draw_by_reflections(rows: Array, targets: Array, noise: Array) -> Array:
    r"""Draw ``N(P^{-1} A^T b, P^{-1})``, ``P = A^T A``, without forming either product.

    With :math:`A = Q R` the draw is :math:`R^{-1} (Q^T b + \text{noise})`. Householder reflections
    with pivoting of columns, and with the largest rows first, keep the digits of rows of very
    different sizes (Cox and Higham, 1998).

    Parameters
    ----------
    rows : array, shape (m, d)
        ``A``.
    targets : array, shape (m, labels)
        ``b`` of each label.
    noise : array, shape (labels, d)
        Standard normals.

    Returns
    -------
    array, shape (labels, d)
        NaN if there is a NaN among the arguments.
    """
    m, d = rows.shape
    labels = targets.shape[1]
    sizes = np.empty(m)
    for i in range(m):
        sizes[i] = -np.abs(rows[i]).max()
    order = np.argsort(sizes, kind="mergesort")
    a, b = rows[order], targets[order]
    columns = np.arange(d)
    onto_a, onto_b = np.empty(d), np.empty(labels)
    for j in range(d):
        squares = np.zeros(d)
        for i in range(j, m):
            for k in range(j, d):
                squares[k] += a[i, k] * a[i, k]
        pivot = j + np.argmax(squares[j:])
        columns[j], columns[pivot] = columns[pivot], columns[j]
        for i in range(m):
            a[i, j], a[i, pivot] = a[i, pivot], a[i, j]
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

    All arrays may be of length one on their first axis, but for the block, index and noise.

    Parameters
    ----------
    block : array, shape (labels, d)
        Returned where no digits have been lost.
    matrix, factor : array, shape (labels, k, k)
        What was factorised, and its Cholesky factor, which is NaN if there is none.
    design : array, shape (cases, n, d)
    weight, gain, response : array, shape (cases, n)
        As of :func:`stack_rows`.
    index : array of int, shape (cases,) or (0,)
        The label of each case. If it is empty, the cases are the labels.
    prior, mean : array, shape (labels, d)
    noise : array, shape (labels, d)
        Standard normals.
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
def draw_windows(
    window: Array,
    coefficient: Array,
    variance: Array,
    observed_variance: Array,
    mean: Array,
    response: Array,
    noise: Array,
) -> Array:
    r"""Entries of which no two observations see the same, drawn for each label.

    With the entries of window k, :math:`v \sim N(u, S)` and
    :math:`y_k \sim N(a^T v, V_k)`, where S is diagonal, :math:`g = a^T S a` and standard normals
    :math:`\xi`,

    .. math::

        v = u + S^{1/2} \xi + S a \left[ \frac{y_k - a^T u}{g + V_k}
        - \frac{q}{g} a^T S^{1/2} \xi \right], \qquad
        q = 1 - \sqrt{V_k / (V_k + g)}

    has the mean and the covariance :math:`S - S a a^T S / (g + V_k)` of v given y (Piccioli et
    al., Appendix G, where the root is misprinted).

    Parameters
    ----------
    window : ndarray of int, shape (d,)
        The observation that sees each entry; negative where there is none.
    coefficient, variance : ndarray, shape (d,)
        ``a`` and the diagonal of ``S``.
    observed_variance : ndarray, shape (r,)
    mean, noise : ndarray, shape (labels, d)
    response : ndarray, shape (labels, r)

    Returns
    -------
    ndarray, shape (labels, d)
    """
    n_labels, d = noise.shape
    n_windows = len(observed_variance)
    size = np.zeros(n_windows, noise.dtype)
    for j in range(d):
        if window[j] >= 0:
            size[window[j]] += variance[j] * coefficient[j] ** 2
    gain, pull = np.empty_like(size), np.empty_like(size)
    for k in range(n_windows):
        total = size[k] + observed_variance[k]
        gain[k] = 1 / total
        root = math.sqrt(observed_variance[k] / total)
        pull[k] = 1 / (total * (1 + root))
    scale, step = np.sqrt(variance), variance * coefficient
    level, random = np.empty_like(size), np.empty_like(size)
    block = np.empty(noise.shape, noise.dtype)
    for i in range(n_labels):
        for k in range(n_windows):
            level[k] = response[i, k]
            random[k] = 0
        for j in range(d):
            k = window[j]
            if k >= 0:
                level[k] -= coefficient[j] * mean[i, j]
                random[k] += coefficient[j] * scale[j] * noise[i, j]
        for k in range(n_windows):
            level[k] = gain[k] * level[k] - pull[k] * random[k]
        for j in range(d):
            moved = mean[i, j] + scale[j] * noise[i, j]
            if window[j] >= 0:
                moved += step[j] * level[window[j]]
            block[i, j] = moved
    return block


@jit
def order_band(design: Array, lengths: Array) -> Array:
    """Order of entries in which those that a row of the design sees lie close to each other.

    Of the axes of the entries, those come first of which a row sees the smallest part.

    Parameters
    ----------
    design : array, shape (m, d)
    lengths : array of int
        Of the axes, whose product is d.
    """
    (m, d), n_axes = design.shape, len(lengths)
    place = np.empty((n_axes, d), np.int64)
    within = d
    for a in range(n_axes):
        within //= lengths[a]
        for j in range(d):
            place[a, j] = j // within % lengths[a]
    part = np.zeros(n_axes)
    least, most = np.empty(n_axes, np.int64), np.empty(n_axes, np.int64)
    for i in range(m):
        least[:], most[:] = d, 0
        for j in range(d):
            if design[i, j] != 0.0:
                for a in range(n_axes):
                    least[a] = min(least[a], place[a, j])
                    most[a] = max(most[a], place[a, j])
        for a in range(n_axes):
            part[a] = max(part[a], (most[a] - least[a]) / max(lengths[a] - 1, 1))
    rank = np.zeros(d, np.int64)
    for axis in np.argsort(part, kind="mergesort"):
        for j in range(d):
            rank[j] = rank[j] * lengths[axis] + place[axis, j]
    return np.argsort(rank, kind="mergesort")


@jit
def sort_band(design: Array, weight: Array, order: Array) -> tuple[Array, Array, Array, int]:
    """A design in units of its noise, with its rows in the order of the first entry they see.

    Returns
    -------
    rows : array of int, shape (m,)
        Their order.
    first : array of int, shape (m,)
        The first entry that each sees; d if it sees none.
    sorted_design : array, shape (m, d)
    bandwidth : int
        Largest distance between two entries that a row sees.
    """
    m, d = design.shape
    first, bandwidth, root = np.full(m, d), 0, roots_of(weight)
    for i in range(m):
        last = d
        for j in range(d):
            if design[i, order[j]] != 0.0:
                first[i] = min(first[i], j)
                last = j
        bandwidth = max(bandwidth, last - int(first[i]))
    rows = np.argsort(first, kind="mergesort")
    sorted_design = np.empty_like(design)
    for i in range(m):
        for j in range(d):
            seen = design[rows[i], order[j]]
            sorted_design[i, j] = root[rows[i]] * seen if seen != 0.0 else 0.0
    return rows, first[rows], sorted_design, bandwidth


@jit
def rows_that_see(first: Array, bandwidth: int, begin: int, end: int) -> tuple[int, int]:
    """Range of the sorted rows outside which none sees an entry from ``begin`` to ``end``."""
    return int(np.searchsorted(first, begin - bandwidth)), int(np.searchsorted(first, end))


@jit
def factorise_band(
    design: Array, first: Array, bandwidth: int, prior: Array
) -> tuple[Array, Array, Array]:
    """Cholesky factor L of ``P = diag(prior) + C^T C``, a panel of columns at a time.

    Returns
    -------
    matrix, factor : array, shape (d, d)
        P below its diagonal, and L, which is NaN if there is none.
    inverse : array, shape (d, PANEL)
        Of the triangles on the diagonal of L, one below the other.
    """
    d = len(prior)
    matrix, factor = np.zeros((d, d), design.dtype), np.zeros((d, d), design.dtype)
    inverse = np.zeros((d, PANEL), design.dtype)
    for begin in range(0, d, PANEL):
        end = min(begin + PANEL, d)
        width, back, reach = end - begin, max(begin - bandwidth, 0), min(end + bandwidth, d)
        top, bottom = rows_that_see(first, bandwidth, begin, end)
        seen = design[top:bottom, begin:reach].copy()
        panel = np.dot(seen.T, seen[:, :width].copy())
        for j in range(width):
            panel[j, j] += prior[begin + j]
        put(panel, matrix, begin, begin)
        left = factor[begin:reach, back:begin].copy()
        panel -= np.dot(left, left[:width].T)
        triangle = panel[:width].T.copy()
        if not try_to_factorise(triangle) > 0.0:
            factor[:], inverse[:] = np.nan, np.nan
            return matrix, factor, inverse
        own = np.eye(width, dtype=design.dtype)
        solve_rows_transposed(triangle, own)
        put(own, inverse, begin, 0)
        for j in range(width):
            for i in range(j + 1):
                factor[begin + j, begin + i] = triangle[i, j]
        put(np.dot(panel[width:], own.T), factor, end, begin)
    return matrix, factor, inverse


@jit
def draw_banded(
    design: Array,
    weight: Array,
    response: Array,
    prior: Array,
    mean: Array,
    lengths: Array,
    noise: Array,
) -> tuple[Array, Array, Array]:
    """Draw ``N(P^{-1} h, P^{-1})``, ``P = diag(prior) + C^T diag(w) C``, the same for all labels.

    What rows of the design do not see together stays zero in P and in its factor; entries are put
    into an order in which the rest is a band along the diagonal.

    Parameters
    ----------
    design : array, shape (m, d)
    weight : array, shape (m,)
    response : array, shape (labels, m)
        ``h`` is ``C^T diag(w) response + prior mean``.
    prior : array, shape (d,)
    mean : array, shape (labels, d) or (1, d)
    lengths : array of int
        Of the axes of the block, whose product is d.
    noise : array, shape (labels, d)
        Standard normals.

    Returns
    -------
    block : array, shape (labels, d)
    matrix, factor : array, shape (d, d)
        As of :func:`factorise_band`, in the order of the band.
    """
    (labels, d), m = noise.shape, len(design)
    order = order_band(design, lengths)
    rows, first, seen, bandwidth = sort_band(design, weight, order)
    matrix, factor, inverse = factorise_band(seen, first, bandwidth, prior[order])
    root, block = roots_of(weight)[rows].astype(noise.dtype), np.empty_like(noise)
    own = prior[order]
    for start in range(0, labels, CHUNK):
        width = min(CHUNK, labels - start)
        targets, out = np.empty((m, width), noise.dtype), np.empty((d, width), noise.dtype)
        normal = np.empty_like(out)
        for i in range(m):
            for k in range(width):
                targets[i, k] = root[i] * response[start + k, rows[i]]
        for j in range(d):
            for k in range(width):
                out[j, k] = own[j] * mean[(start + k) % len(mean), order[j]]
                normal[j, k] = noise[start + k, order[j]]
        for begin in range(0, d, PANEL):
            end, back = min(begin + PANEL, d), max(begin - bandwidth, 0)
            top, bottom = rows_that_see(first, bandwidth, begin, end)
            linear = out[begin:end]
            linear += np.dot(seen[top:bottom, begin:end].copy().T, targets[top:bottom])
            linear -= np.dot(factor[begin:end, back:begin].copy(), out[back:begin])
            put(np.dot(inverse[begin:end, : end - begin].copy(), linear), linear, 0, 0)
        out += normal
        for begin in range((d - 1) // PANEL * PANEL, -1, -PANEL):
            end = min(begin + PANEL, d)
            reach = min(end + bandwidth, d)
            half = out[begin:end]
            half -= np.dot(factor[end:reach, begin:end].copy().T, out[end:reach])
            put(np.dot(inverse[begin:end, : end - begin].copy().T, half), half, 0, 0)
        for j in range(d):
            for k in range(width):
                block[start + k, order[j]] = out[j, k]
    return block, matrix, factor


@jit
def draw_tridiagonal(diagonal: Array, above: Array, linear: Array, noise: Array) -> Array:
    """Draw ``N(P^{-1} h, P^{-1})`` for a tridiagonal precision matrix P of each series.

    Parameters
    ----------
    diagonal, above : array, shape (series, times)
        Of P: ``above[:, t]`` stands beside ``diagonal[:, t]``; its last column is not used.
    linear : array, shape (series, times)
        ``h``.
    noise : array, shape (series, times)
        Standard normals.
    """
    n_times = noise.shape[1]
    out = np.empty_like(noise)
    pivot, ratio = np.empty((2, n_times))
    for series in range(len(noise)):
        left = half = 0.0
        for t in range(n_times):
            rest = diagonal[series, t] - left * left
            if not rest > 0.0:
                raise ValueError(TOO_PRECISE)
            pivot[t] = math.sqrt(rest)
            half = (linear[series, t] - left * half) / pivot[t]
            out[series, t] = half + noise[series, t]
            left = above[series, t] / pivot[t]
            ratio[t] = left
        later = 0.0
        for t in range(n_times - 1, -1, -1):
            later = (out[series, t] - ratio[t] * later) / pivot[t]
            out[series, t] = later
    return out


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


@jit
def whiten(
    design: Array, weight: Array, variance: Array, first: int, factor: Array, whitened: Array
) -> None:
    """Fill U, ``U^T U = diag(w)^{-1} + C Sigma C^T``, and columns of ``B = U^{-T} C``.

    Those of ``B`` from the first on that is asked for, as many as there is room for.
    """
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
    design: Array,
    weight: Array,
    response: Array,
    variance: Array,
    uniform: Array,
) -> Array:
    """Draw gates in turn, with the activations behind them integrated out.

    The activations have means ``gates * slope`` and the given variances, and are seen through
    the design.

    Parameters
    ----------
    logit : array, shape (n_obs, d)
        Prior log odds of a gate.
    slope, gates : array, shape (n_obs, d)
    design : array, shape (m, d)
    weight : array, shape (n_obs, m) or (1, m)
    response : array, shape (n_obs, m)
    variance : array, shape (d,)
    uniform : array, shape (n_obs, d)
    """
    m, d = design.shape
    out = gates.copy()
    factor, whitened = np.empty((m, m), design.dtype), np.empty_like(design)
    residual = np.empty(m, design.dtype)
    for n in range(len(out)):
        if n == 0 or len(weight) > 1:
            whiten(design, weight[n], variance, 0, factor, whitened)
        copy(response[n], residual)
        solve_transposed(factor, residual)
        for j in range(d):
            mean = out[n, j] * slope[n, j]
            for i in range(m):
                residual[i] -= whitened[i, j] * mean
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
def collapsed_information(
    inputs: Array,
    factor: Array,
    own: Array,
    design: Array,
    weight: Array,
    response: Array,
    variance: Array,
) -> tuple[Array, Array]:
    """What a layer's weights are told with its activations integrated out.

    The activations of unit ``a`` have means ``factor_a * (inputs . w_a)``.

    Parameters
    ----------
    inputs : array, shape (n_obs, k)
    factor, own : array, shape (n_obs, d)
        Factors of the means, and weights of what else is seen of ``inputs . w_a``.
    design, weight, response, variance
        As of :func:`draw_collapsed_gates`.

    Returns
    -------
    information : array, shape (d k, d k)
        Of the rows ``w_1, ..., w_d``, one after another.
    score : array, shape (n_obs, d)
        ``factor * B^T e``, which times the inputs is the linear part.
    """
    n_obs, k = inputs.shape
    m, d = design.shape
    chunk = min(CHUNK, n_obs)
    root, whitened = np.empty((m, m), design.dtype), np.empty_like(design)
    score = np.empty_like(factor)
    seen = np.empty(m, design.dtype)
    units = np.empty((chunk, d * (d + 1) // 2), design.dtype)
    squares = np.empty((chunk, k * (k + 1) // 2), design.dtype)
    total = np.zeros((units.shape[1], squares.shape[1]), design.dtype)
    gram = np.zeros((d, d), design.dtype)
    for start in range(0, n_obs, chunk):
        rows = min(chunk, n_obs - start)
        for row in range(rows):
            n = start + row
            if n == 0 or len(weight) > 1:
                whiten(design, weight[n], variance, 0, root, whitened)
                put(np.dot(whitened.T, whitened), gram, 0, 0)
            copy(response[n], seen)
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
            column = 0
            for a in range(k):
                for b in range(a, k):
                    squares[row, column + b - a] = inputs[n, a] * inputs[n, b]
                column += k - a
        total += np.dot(units[:rows].T, squares[:rows])
    information = np.empty((d * k, d * k), design.dtype)
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
    return information, score


@jit
def draw_chain(
    widths: Array,
    counts: Array,
    prior: Array,
    offset: Array,
    design: Array,
    weight: Array,
    linear: Array,
    transition: Array,
    gain: Array,
    noise: Array,
) -> Array:
    r"""Draw the layers of a chain jointly, sample by sample: backward filter, forward draw.

    At each sample, :math:`a_l \sim N(o_l + \text{diag}(g_l) T_l a_{l-1}, \Lambda_l^{-1})`, and of
    :math:`a_l` more is said by :math:`\exp(-\tfrac12 a_l^T C_l^T \text{diag}(w_l) C_l a_l
    + a_l^T s_l)`. With :math:`R_l = \Lambda_l \text{diag}(g_l) T_l`, backwards from the last layer,

    .. math::

        P_l &= \Lambda_l + C_l^T \text{diag}(w_l) C_l
               + R_{l+1}^T (\Lambda_{l+1}^{-1} - P_{l+1}^{-1}) R_{l+1}, \\
        h_l &= s_l + R_{l+1}^T (P_{l+1}^{-1} (h_{l+1} + \Lambda_{l+1} o_{l+1}) - o_{l+1}),

    and forwards :math:`a_l \sim N(P_l^{-1} (h_l + \Lambda_l (o_l + \text{diag}(g_l) T_l a_{l-1})),
    P_l^{-1})`.

    Parameters
    ----------
    widths, counts : array of int, shape (L,)
        Units of each layer and rows of its design. Beyond them the arrays are not looked at.
    prior, offset, linear, noise : array, shape (L, n_obs, d)
        The diagonal of ``Lambda``, ``o``, ``s`` and standard normals.
    design : array, shape (L, m, d)
    weight : array, shape (L, n_obs, m)
    transition : array, shape (L, d, d)
        Those of the first layer are not looked at.
    gain : array, shape (L, n_obs, d)
        ``g``.
    """
    n_layers, n_obs, width = prior.shape
    out = np.zeros_like(noise)
    factors = np.zeros((n_layers, width, width), prior.dtype)
    vector, direct = np.zeros(width, prior.dtype), np.zeros(width, prior.dtype)
    size, root = np.zeros(width, prior.dtype), np.zeros(width, prior.dtype)
    for n in range(n_obs):
        finite = True
        for layer in range(n_layers - 1, -1, -1):
            d, m = widths[layer], counts[layer]
            gram = weighted_gram(design[layer, :m, :d], weight[layer, n, :m])
            linear_part = out[layer, n, :d]
            copy(linear[layer, n, :d], linear_part)
            lost = np.zeros((d, d), prior.dtype)
            if layer + 1 < n_layers:
                above = widths[layer + 1]
                known = vector[:above]
                for i in range(above):
                    known[i] = (
                        out[layer + 1, n, i] + prior[layer + 1, n, i] * offset[layer + 1, n, i]
                    )
                upper = factors[layer + 1, :above, :above]
                solve_transposed(upper, known)
                solve(upper, known)
                step = transition[layer + 1, :above, :d]
                whitened = np.empty((above, d), prior.dtype)
                for i in range(above):
                    slope = prior[layer + 1, n, i] * gain[layer + 1, n, i]
                    shift = slope * (known[i] - offset[layer + 1, n, i])
                    direct[i] = slope * gain[layer + 1, n, i]
                    for j in range(d):
                        linear_part[j] += shift * step[i, j]
                        whitened[i, j] = slope * step[i, j]
                solve_rows_transposed(upper, whitened)
                gram += weighted_gram(step, direct[:above])
                lost = np.dot(whitened.T, whitened)
                gram -= lost
            for j in range(d):
                gram[j, j] += prior[layer, n, j]
                size[j] = gram[j, j] + lost[j, j]
            finite = finite and factorise(gram)
            for j in range(d):
                root[j] = gram[j, j]
            if is_rounding(size[:d], root[:d]):
                raise np.linalg.LinAlgError(TOO_PRECISE)
            put(gram, factors[layer], 0, 0)
        for layer in range(n_layers):
            d = widths[layer]
            row = out[layer, n, :d]
            for j in range(d):
                mean = float(offset[layer, n, j])
                if layer > 0:
                    carried = 0.0
                    for k in range(widths[layer - 1]):
                        carried += transition[layer, j, k] * out[layer - 1, n, k]
                    mean += gain[layer, n, j] * carried
                row[j] += prior[layer, n, j] * mean
            upper = factors[layer, :d, :d]
            solve_transposed(upper, row)
            row += noise[layer, n, :d]
            solve(upper, row)
            if not finite:
                row[:] = np.nan
    return out


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
def look_from_above(
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
def explain_by(whitened: Array, residual: Array, unit: int, level: Array) -> None:
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
def chance_of(log_ratio: float) -> float:
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

    In the letters of :mod:`pymc_nnsteps.joint.interweaving`, for a row and all samples:

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
            look_from_above(whitened, residual, a % held, curvature, gradient)
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
            probability = chance_of(log_ratio)
            acceptance[a] = min(1.0, acceptance[a] + probability / len(normal))
            if uniform[p, a] < probability:
                explain_by(whitened, residual, a % held, shift)
                copy(new_row, rows[a])
                copy(new_z, pre[a])
                copy(new_slope, slope[a])
                copy(new_intercept, intercept[a])
                put(new_precision, precisions[a], 0, 0)
                put(new_factor, factors[a], 0, 0)
    return rows, pre, acceptance


@jit
def draw_outgoing(
    pre: Array,
    knots: Array,
    slopes: Array,
    intercepts: Array,
    offset: Array,
    outgoing: Array,
    prior: Array,
    prior_linear: Array,
    weight: Array,
    response: Array,
    variance: Array,
    noise: Array,
    normal: Array,
) -> Array:
    r"""Draw the weights that one output sees a layer through in turn.

    Each is drawn given activations of its unit that are drawn for it, and with those of the other
    units integrated out (:mod:`pymc_nnsteps.joint.outgoing_weights`).

    Parameters
    ----------
    pre : array, shape (units, n_obs)
        ``z_a``.
    knots : array, shape (K,)
    slopes, intercepts : array, shape (K + 1,)
        Of the activation's pieces.
    offset : array, shape (units, n_obs) or (units, 1)
        Of the activations' mean.
    outgoing, prior, prior_linear : array, shape (units,)
        ``v_a``, the precision of its prior, and precision times mean.
    weight : array, shape (n_obs,) or (1,)
        Precision of the response given the activations.
    response : array, shape (n_obs,)
    variance : array, shape (units,)
        Of the activations' noise.
    noise : array, shape (units, n_obs)
    normal : array, shape (units,)
        Standard normals.
    """
    units, n_obs = pre.shape
    outgoing = outgoing.copy()
    slope, intercept = np.empty(n_obs), np.empty(n_obs)
    levels = np.empty((units, n_obs))
    residual = response.copy()
    for a in range(units):
        read_pieces(pre[a], knots, slopes, intercepts, slope, intercept)
        copy(slope * pre[a] + intercept + offset[a], levels[a])
        residual -= outgoing[a] * levels[a]
    for a in range(units):
        others = 0.0
        for b in range(units):
            if b != a:
                others += outgoing[b] * outgoing[b] * variance[b]
        v, level, precision, linear = outgoing[a], levels[a], prior[a], prior_linear[a]
        for n in range(n_obs):
            known = 1.0 / (1.0 / weight[n if len(weight) > 1 else 0] + others)
            sharpness = 1.0 / variance[a] + v * v * known
            shift = v * known * residual[n] / sharpness + noise[a, n] / math.sqrt(sharpness)
            activation = level[n] + shift
            precision += known * activation * activation
            linear += known * activation * (residual[n] + v * level[n])
        outgoing[a] = linear / precision + normal[a] / math.sqrt(precision)
        for n in range(n_obs):
            residual[n] -= (outgoing[a] - v) * level[n]
    return outgoing


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

    In the letters of :mod:`pymc_nnsteps.joint.interwoven_gates`, for a row and all samples:

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
            look_from_above(whitened, residual, a % held, curvature, gradient)
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
                    probability = chance_of(log_ratio)
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
            explain_by(whitened, residual, a % held, shift)
    return rows, gates, acceptance
