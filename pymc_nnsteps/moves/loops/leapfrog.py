r"""Hamiltonian trajectories on any density: leapfrog steps, and the metric of their momenta.

For a density :math:`\exp(-U(q))` and momenta :math:`p \sim N(0, M)`, leapfrog steps of size
:math:`\epsilon` follow the energy :math:`H(q, p) = U(q) + p^T M^{-1} p / 2`. Coordinates are one
vector. A density is a kernel ``evaluate`` of three arguments: a named tuple of all that the density
depends on beside the place, the place, and its slope there, which it fills. It returns the log
density.

References
----------
Neal, *MCMC Using Hamiltonian Dynamics*, Handbook of Markov Chain Monte Carlo (2011).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_nnsteps.compile.jit import jit, plain
from pymc_nnsteps.compile.linear_algebra import (
    Array,
    fill_factor,
    inner_product,
    solve,
    solve_transposed,
)


class Metric(NamedTuple):
    """A positive definite matrix M of blocks, in the order of the coordinates."""

    # factor, inverse of shape (d, d): cholesky factor U and inverse of a block that is repeated for
    # several times d coordinates.
    factor: Array
    inverse: Array
    # joint_factor, joint_inverse of shape (k, k): the same of one block of the k coordinates after
    # them.
    joint_factor: Array
    joint_inverse: Array
    diagonal: Array  # shape (r,): of the last coordinates


@jit
def empty_metric(d: int, k: int, r: int) -> Metric:
    """Room for a metric."""
    return Metric(
        np.empty((d, d)), np.empty((d, d)), np.empty((k, k)), np.empty((k, k)), np.empty(r)
    )


@jit
def invert(matrix: Array, factor: Array, inverse: Array) -> bool:
    """Fill the Cholesky factor U and the inverse; False if a matrix is not positive definite."""
    if not fill_factor(matrix, factor) > 0.0:
        return False
    for i in range(len(matrix)):
        for j in range(len(matrix)):
            factor[i, j] = factor[i, j] if j >= i else 0.0
            inverse[i, j] = 1.0 if i == j else 0.0
        solve_transposed(factor, inverse[i])
        solve(factor, inverse[i])
    return True


@plain
def draw_momenta(metric: Metric, normal: Array, p: Array) -> None:
    """Fill momenta by ``U^T xi``."""
    d, k, last = len(metric.factor), len(metric.joint_factor), len(p) - len(metric.diagonal)
    for i in range(0, last - k, max(d, 1)):
        p[i : i + d] = np.dot(normal[i : i + d], metric.factor)
    if k > 0:
        p[last - k : last] = np.dot(normal[last - k : last], metric.joint_factor)
    p[last:] = np.sqrt(metric.diagonal) * normal[last : len(p)]


@plain
def fill_velocity(metric: Metric, p: Array, velocity: Array) -> float:
    """Fill ``M^{-1} p``, and return the energy of the momenta."""
    d, k, last = len(metric.factor), len(metric.joint_factor), len(p) - len(metric.diagonal)
    if d > 0:
        rows = p[: last - k].reshape(((last - k) // d, d))
        velocity[: last - k] = np.dot(rows, metric.inverse).reshape(-1)
    if k > 0:
        velocity[last - k : last] = np.dot(p[last - k : last], metric.joint_inverse)
    velocity[last:] = p[last:] / metric.diagonal
    return 0.5 * inner_product(p, velocity)


@plain
def leapfrog(
    evaluate: Any,
    density: Any,
    metric: Metric,
    size: float,
    q: Array,
    p: Array,
    slope: Array,
    velocity: Array,
) -> float:
    """Move a place, the momenta of its first coordinates and the slope by one step.

    The result is the log density at its end.
    """
    p += 0.5 * size * slope
    fill_velocity(metric, p, velocity)
    q[: len(p)] += size * velocity
    log_density = evaluate(density, q, slope)
    p += 0.5 * size * slope
    return log_density


@plain
def follow(
    evaluate: Any,
    density: Any,
    metric: Metric,
    size: float,
    n_steps: int,
    worst: float,
    log_density: float,
    q: Array,
    p: Array,
    slope: Array,
) -> tuple[float, float, int]:
    """Move along a trajectory, given up where the energy's error exceeds ``worst``.

    Returned are the log density at its end, the log of what ``exp(-H)`` is multiplied by, and the
    number of steps.
    """
    velocity = np.empty(len(p))
    begin, log_ratio, n, follows = log_density - fill_velocity(metric, p, velocity), 0.0, 0, True
    while follows and n < n_steps:
        log_density = leapfrog(evaluate, density, metric, size, q, p, slope, velocity)
        follows = math.isfinite(log_density)
        n += 1
        if n == n_steps or worst < math.inf:
            log_ratio = log_density - fill_velocity(metric, p, velocity) - begin
            follows = follows and log_ratio > -worst
    return log_density, log_ratio if follows else -math.inf, n
