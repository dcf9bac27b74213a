"""Gaussian blocks of which each entry is seen by one observation, as windows of an image are."""

import math

import numpy as np

from pymc_nnsteps.kernels.jit import jit
from pymc_nnsteps.kernels.linear_algebra import Array


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
