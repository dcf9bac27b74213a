"""The choice of a point of a lattice (:mod:`pymc_nnsteps.moves.lattice`)."""

import math

import numpy as np

from pymc_nnsteps.kernels.jit import jit
from pymc_nnsteps.kernels.linear_algebra import Array


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
