"""Densities of scales of a response at points of a lattice, and steps of the scales by these.

:mod:`pymc_nnsteps.random.lattice` derives the step, :mod:`pymc_nnsteps.moves.residual_scales` the
densities.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.compile.linear_algebra import Array, invert_by_factor, rows_are_equal
from pymc_nnsteps.random.lattice import choose_point

AT_ONCE = 32
"""Variances of which one logarithm is taken."""
PATTERNS = 16
"""Patterns of weights, the latest, among which that of a row is looked for."""
SMALL, LARGE = 1e-100, 1e100
"""Between these the product of a few further variances has all its digits as well."""
SMALLEST, LARGEST = 1e-290, 1e290
"""Between these a product of variances has all its digits."""


@jit
def sum_over_variances(
    squares: Array, spread: Array, is_seen: Array, of_response: Array, of_activations: Array
) -> Array:
    """Sums of ``log(v) + square / v`` over entries that are seen, at each of m points of a lattice.

    At point j ``v = of_response[j] + spread * of_activations[j]``.
    """
    n_points, first = len(of_response), 0
    total, product = np.zeros(n_points), np.ones(n_points)
    for n in range(len(squares)):
        if is_seen[n] != 0.0:
            for j in range(n_points):
                variance = of_response[j] + spread[n] * of_activations[j]
                product[j] *= variance
                total[j] += squares[n] / variance
        # One logarithm of many variances, unless their product loses digits.
        if n - first == AT_ONCE - 1 or n == len(squares) - 1:
            for j in range(n_points):
                if product[j] > SMALLEST and product[j] < LARGEST:
                    total[j] += math.log(product[j])
                else:
                    rest = 0.0
                    for k in range(first, n + 1):
                        variance = of_response[j] + spread[k] * of_activations[j]
                        rest += math.log(variance) if is_seen[k] != 0.0 else 0.0
                    total[j] += rest
                product[j] = 1.0
            first = n + 1
    return total


@inline
def pattern_of(weight: Array, n: int, first: Array, n_patterns: int) -> int:
    """The pattern whose first row has the weights of row n, of the latest; one more if none has."""
    for p in range(n_patterns - 1, max(n_patterns - PATTERNS, 0) - 1, -1):
        if rows_are_equal(weight, n, int(first[p])):
            return p
    return n_patterns


@inline
def eliminate(covariance: Array, products: Array, first: int, end: int, m: int) -> float:
    """Part of ``trace V^{-1} R`` of some of m outputs; upper triangles are overwritten."""
    total = 0.0
    for i in range(first, end):
        pivot = covariance[i, i]
        total += products[i, i] / pivot
        for j in range(i + 1, m):
            a = covariance[i, j] / pivot
            for k in range(j, m):
                b = covariance[i, k] / pivot
                products[j, k] += a * (b * products[i, i] - products[i, k]) - b * products[i, j]
                covariance[j, k] -= a * covariance[i, k]
    return total


@inline
def sum_by_pattern(
    weight: Array, residual: Array, first: Array, count: Array, products: Array
) -> int:
    """Fill the first row, the number of rows and sums of products of each pattern of weights."""
    n_patterns = p = 0
    for n in range(len(residual)):
        if n == 0 or len(weight) > 1:
            p = pattern_of(weight, n, first, n_patterns)
        if p == n_patterns:
            first[p] = n
            n_patterns += 1
        count[p] += 1.0
        for i in range(residual.shape[1]):
            for j in range(i, residual.shape[1]):
                products[p, i, j] += residual[n, i] * residual[n, j]
    return n_patterns


@inline
def order_seen(
    weight: Array, is_scaled: Array, spread: Array, products: Array, spreads: bool, seen: Array,
    known: Array, known_products: Array,
) -> tuple[int, int]:  # fmt: skip
    """Order outputs that are seen, those without the scale first, which are eliminated if alike.

    Returns how many are eliminated, and how many there are in all.
    """
    m, alike = 0, 0
    for turn in range(2):
        for i in range(len(weight)):
            if weight[i] > 0.0 and (is_scaled[i] > 0.0) == (turn == 1):
                seen[m] = i
                m += 1
        if turn == 0 and not spreads:
            alike = m
    for a in range(m):
        for b in range(a, m):
            i, j = min(int(seen[a]), int(seen[b])), max(int(seen[a]), int(seen[b]))
            known[a, b], known_products[a, b] = spread[i, j], products[i, j]
    for a in range(alike):
        known[a, a] += 1.0 / weight[int(seen[a])]
    eliminate(known, known_products, 0, alike, m)
    return alike, m


@jit
def sum_over_covariances(
    weight: Array, residual: Array, spread: Array, is_scaled: Array, of_response: Array,
    of_activations: Array,
) -> Array:  # fmt: skip
    """Sums of ``log det V + r^T V^{-1} r`` over rows of q outputs, at m points of a lattice.

    The weight, (n or 1, q), is the precision of own noise, zero for an output that is not seen;
    residuals are (n, q), and ``spread``, (q, q), is the covariance of common noise. At point j
    ``of_response[j]`` multiplies variances of scaled outputs, ``of_activations[j]`` the spread.
    """
    (n_obs, q), n_points, spreads = residual.shape, len(of_response), False
    for factor in of_activations:
        spreads = spreads or factor != 1.0
    first, count, sums = np.zeros(n_obs), np.zeros(n_obs), np.zeros((n_obs, q, q))
    n_patterns = sum_by_pattern(weight, residual, first, count, sums)
    total, product, seen = np.zeros(n_points), np.ones(n_points), np.zeros(q)
    covariance, products = np.empty((q, q)), np.empty((q, q))
    known, known_products = np.empty((q, q)), np.empty((q, q))
    for p in range(n_patterns):
        # What is the same at all points is eliminated once.
        own = weight[int(first[p])]
        start, m = order_seen(own, is_scaled, spread, sums[p], spreads, seen, known, known_products)
        for point in range(n_points):
            for a in range(start, m):
                for b in range(a, m):
                    covariance[a, b] = of_activations[point] * known[a, b]
                    products[a, b] = known_products[a, b]
                i = int(seen[a])
                scale = of_response[point] if is_scaled[i] > 0.0 else 1.0
                covariance[a, a] += scale / own[i]
            total[point] += eliminate(covariance, products, start, m, m)
            # One logarithm of many pivots, where these are single.
            for a in range(start, m):
                pivot = covariance[a, a]
                if count[p] > 1.0:
                    total[point] += count[p] * math.log(pivot)
                else:
                    product[point] *= pivot
            if not (product[point] > SMALL and product[point] < LARGE):
                total[point] += math.log(product[point])
                product[point] = 1.0
    for point in range(n_points):
        total[point] += math.log(product[point])
    return total


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
    """Shift of the log of a scale of ``own``, given residuals of variance ``own + spread``."""
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
    """Shifts of the logs of the scales of q groups of rows, given their sums of squares.

    ``own`` is the variance that the scale multiplies; ``spread``, (1,), is the rest.
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
    """Shifts of the logs of the outputs' scales, each given the new ones before it.

    ``squares``, (q, q), are products of residuals summed over ``count`` rows; ``spread``, (q, q),
    is the covariance of common noise.
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
