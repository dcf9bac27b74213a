"""Scales of outputs or groups of rows, each stepped in on a lattice of its own.

:mod:`pymc_nnsteps.moves.residual_scales` derives the densities.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.kernels.lattice import choose_point
from pymc_nnsteps.kernels.linear_algebra import Array, invert_by_factor


class Lattices[Of](NamedTuple):
    """Where the logarithms of q scales may go."""

    power: Of  # shape (1,): power of a scale that its variance is proportional to
    points: Of  # shape (q, m): shifts of the logarithms
    prior: Of  # shape (q, m): their log densities before anything is seen
    level: Of  # shape (q,): uniform numbers


@inline
def step_of_one(
    lattices: Lattices, place: int, count: float, squares: float, own: float, spread: float
) -> float:
    """Shift of the logarithm of a scale.

    Seen are ``count`` residuals of variance ``own + spread``, of which it moves the first part,
    and their sum of squares. Where that is zero the scale would go to zero as well; it stays.
    """
    if count > 0.0 and squares == 0.0:
        return 0.0
    points, prior, power = lattices.points[place], lattices.prior[place], lattices.power[0]
    log_density = np.empty(len(points))
    for j in range(len(points)):
        variance = own * math.exp(power * points[j]) + spread
        log_density[j] = prior[j] - 0.5 * (count * math.log(variance) + squares / variance)
    return float(choose_point(points, log_density, lattices.level[place : place + 1])[0])


@jit
def move_scales_of_groups(
    lattices: Lattices, count: Array, squares: Array, own: Array, spread: Array
) -> Array:
    """Step in the scale of each of q groups of rows; shifts of the logarithms are returned.

    A group has a number of rows, the sum of squares of their residuals, and their variance ``own``
    as far as it is a matter of the scale; ``spread``, (1,), is the rest of the variance.
    """
    shift = np.empty(len(own))
    for g in range(len(own)):
        shift[g] = step_of_one(lattices, g, count[g], squares[g], own[g], spread[0])
    return shift


@inline
def add_to_diagonal(inverse: Array, i: int, change: float, row: Array) -> None:
    """Update the inverse of a matrix whose entry (i, i) changes; ``row`` holds its row i."""
    share = change / (1.0 + change * row[i])
    for j in range(len(row)):
        for k in range(len(row)):
            inverse[j, k] -= share * row[j] * row[k]


@jit
def move_scales_of_outputs(
    lattices: Lattices, count: Array, squares: Array, own: Array, spread: Array
) -> Array:
    """Step in the scale of each output, given the new scales of those before it.

    ``squares``, (q, q), are products of the outputs' residuals, summed over rows, whose number is
    ``count``. The variances ``own`` are a matter of the scales; ``spread``, (q, q), is the
    covariance of noise that outputs have in common. Shifts of the logarithms are returned.
    """
    q = len(own)
    shift, known, covariance, row = np.empty(q), np.empty((q, q)), spread.copy(), np.empty(q)
    for i in range(q):
        covariance[i, i] += own[i]
    if not invert_by_factor(covariance, known):
        shift[:] = np.nan
        return shift
    for i in range(q):
        # The output less its regression on the others, and the variance of that.
        of_residual, variance = 0.0, 1.0 / known[i, i]
        for j in range(q):
            row[j] = known[i, j]
            for k in range(q):
                of_residual += known[i, j] * squares[j, k] * known[i, k]
        of_residual *= variance * variance
        rest = max(variance - own[i], 0.0)
        shift[i] = step_of_one(lattices, i, count[0], of_residual, own[i], rest)
        change = own[i] * (math.exp(lattices.power[0] * shift[i]) - 1.0)
        add_to_diagonal(known, i, change, row)
    return shift
