"""Densities at points of a lattice, and the choice of one (``random.lattice``)."""

import math

import numpy as np

from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.kernels.linear_algebra import Array

AT_ONCE = 32
"""Variances of which one logarithm is taken."""
SMALLEST, LARGEST = 1e-290, 1e290
"""Between these a product of variances has all its digits."""


@inline
def log_of_variances(
    spread: Array, is_seen: Array, first: int, end: int, a: float, b: float
) -> float:
    """Sum of ``log(a + b spread)`` over some of the entries that are seen."""
    total = 0.0
    for n in range(first, end):
        if is_seen[n] != 0.0:
            total += math.log(a + spread[n] * b)
    return total


@jit
def sum_over_variances(
    squares: Array, spread: Array, is_seen: Array, of_response: Array, of_activations: Array
) -> Array:
    """Sums of ``log(v) + square / v`` over all entries, at each point of a lattice.

    Parameters
    ----------
    squares, spread, is_seen : array, shape (n,)
        An entry counts where ``is_seen`` is not zero.
    of_response, of_activations : array, shape (m,)
        At point j entries have variances ``v = of_response[j] + spread * of_activations[j]``.

    Returns
    -------
    array, shape (m,)
    """
    n_points, first = len(of_response), 0
    total, product = np.zeros(n_points), np.ones(n_points)
    for n in range(len(squares)):
        if is_seen[n] != 0.0:
            for j in range(n_points):
                variance = of_response[j] + spread[n] * of_activations[j]
                product[j] *= variance
                total[j] += squares[n] / variance
        if n - first == AT_ONCE - 1 or n == len(squares) - 1:
            for j in range(n_points):
                if product[j] > SMALLEST and product[j] < LARGEST:
                    total[j] += math.log(product[j])
                else:
                    a, b = of_response[j], of_activations[j]
                    total[j] += log_of_variances(spread, is_seen, first, n + 1, a, b)
                product[j] = 1.0
            first = n + 1
    return total


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
def choose_points(points: Array, log_density: Array, level: Array) -> Array:
    """One of several points of each line.

    Parameters
    ----------
    points, log_density : array, shape (q, m)
    level : array, shape (q,)

    Returns
    -------
    array, shape (q,)
    """
    chosen = np.empty(len(points))
    for i in range(len(points)):
        chosen[i] = choose_point(points[i], log_density[i], level[i : i + 1])[0]
    return chosen
