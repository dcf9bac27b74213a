"""Gaussian blocks with a banded or a tridiagonal precision matrix, or seen by windows."""

import math

import numpy as np

from pymc_nnsteps.compile.jit import jit
from pymc_nnsteps.compile.linear_algebra import (
    TOO_PRECISE,
    Array,
    put,
    solve_rows_transposed,
    try_to_factorise,
)
from pymc_nnsteps.gaussian.labels import roots_of

CHUNK = 128
"""Rows whose products are held at a time."""

PANEL = 64
"""Columns of a band that are factorised at a time."""


@jit
def order_band(design: Array, lengths: Array) -> Array:
    """Order of the entries, of axes of these lengths, by which rows of the design are narrow."""
    # Where each entry stands along each axis.
    (m, d), n_axes = design.shape, len(lengths)
    place = np.empty((n_axes, d), np.int64)
    within = d
    for a in range(n_axes):
        within //= lengths[a]
        for j in range(d):
            place[a, j] = j // within % lengths[a]
    # The largest part of each axis that a row sees.
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
    # The axes of the smallest parts lead.
    rank = np.zeros(d, np.int64)
    for axis in np.argsort(part, kind="mergesort"):
        for j in range(d):
            rank[j] = rank[j] * lengths[axis] + place[axis, j]
    return np.argsort(rank, kind="mergesort")


@jit
def sort_band(design: Array, weight: Array, order: Array) -> tuple[Array, Array, Array, int]:
    """Sort the rows of a design (m, d), in units of its noise, by the first entry that each sees.

    Returned are the order, the first entries (d for none), the design, and the largest distance
    between two entries that a row sees.
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
    # Rows by these, in units of their noise.
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

    Returned are P below its diagonal, L (NaN if there is none), both (d, d), and the inverses of
    the triangles on the diagonal of L, (d, PANEL).
    """
    d = len(prior)
    matrix, factor = np.zeros((d, d), design.dtype), np.zeros((d, d), design.dtype)
    inverse = np.zeros((d, PANEL), design.dtype)
    for begin in range(0, d, PANEL):
        end = min(begin + PANEL, d)
        width, back, reach = end - begin, max(begin - bandwidth, 0), min(end + bandwidth, d)
        top, bottom = rows_that_see(first, bandwidth, begin, end)
        # The panel's columns of P.
        seen = design[top:bottom, begin:reach].copy()
        panel = np.dot(seen.T, seen[:, :width].copy())
        for j in range(width):
            panel[j, j] += prior[begin + j]
        put(panel, matrix, begin, begin)
        # What the columns before leave of them, and their factor.
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

    Entries are put into an order in which P is a band. The design is (m, d), the response (labels,
    m), the mean (labels or 1, d), standard normals (labels, d); ``h = C^T diag(w) response + prior
    mean``. Returned are the draws (labels, d), and P and its factor as of :func:`factorise_band`.
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
        # Half of the mean, L^{-1} h, panel by panel.
        for begin in range(0, d, PANEL):
            end, back = min(begin + PANEL, d), max(begin - bandwidth, 0)
            top, bottom = rows_that_see(first, bandwidth, begin, end)
            linear = out[begin:end]
            linear += np.dot(seen[top:bottom, begin:end].copy().T, targets[top:bottom])
            linear -= np.dot(factor[begin:end, back:begin].copy(), out[back:begin])
            put(np.dot(inverse[begin:end, : end - begin].copy(), linear), linear, 0, 0)
        # L^{-T} of that and the noise.
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
    """Draw ``N(P^{-1} h, P^{-1})`` for a tridiagonal P of each series; arrays are (series, times).

    ``above[:, t]`` stands beside ``diagonal[:, t]``, and its last column is not used.
    """
    n_times = noise.shape[1]
    out = np.empty_like(noise)
    pivot, ratio = np.empty((2, n_times))
    for series in range(len(noise)):
        # Ahead: the factor, and half of the mean.
        left = half = 0.0
        for t in range(n_times):
            rest = diagonal[series, t] - left * left
            if not rest > 0.0:
                raise np.linalg.LinAlgError(TOO_PRECISE)
            pivot[t] = math.sqrt(rest)
            half = (linear[series, t] - left * half) / pivot[t]
            out[series, t] = half + noise[series, t]
            left = above[series, t] / pivot[t]
            ratio[t] = left
        # Back: the draw.
        later = 0.0
        for t in range(n_times - 1, -1, -1):
            later = (out[series, t] - ratio[t] * later) / pivot[t]
            out[series, t] = later
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
    r"""Draw entries of which no two observations see the same, for each label.

    With the entries of window k, :math:`v \sim N(u, S)`, S diagonal, :math:`g = a^T S a`,
    :math:`y_k \sim N(a^T v, V_k)` and standard normals :math:`\xi`,

    .. math::

        v = u + S^{1/2} \xi + S a \left[ \frac{y_k - a^T u}{g + V_k}
        - \frac{q}{g} a^T S^{1/2} \xi \right], \qquad
        q = 1 - \sqrt{V_k / (V_k + g)}

    has the law of v given y (Piccioli et al., Appendix G, where the root is misprinted).
    Observation ``window[j]`` sees entry j, none if negative; a and S are (d,), means and noise
    (labels, d).
    """
    n_labels, d = noise.shape
    n_windows = len(observed_variance)
    # What does not depend on the label: g, 1 / (g + V), q / g.
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
        # What is in the brackets.
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
