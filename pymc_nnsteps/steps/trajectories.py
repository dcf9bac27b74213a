r"""Trajectories of Hamiltonian Monte Carlo on a log density that has been compiled.

One of random length is accepted as a whole. A no-U-turn trajectory is doubled in a random direction
until it turns back: over its places from ``-`` to ``+``,

.. math:: p_\pm^T M^{-1} \Bigl(\sum_i p_i - \tfrac12 (p_- + p_+)\Bigr) \le 0,

or until one of the balanced subtrees of the last doubling does. The next state is drawn from its
places with probabilities proportional to :math:`\exp(-H)`, those of the last doubling preferred.

A doubling is a loop over its leaves, without recursion: the subtrees that leaf n ends begin at
the leaves whose numbers agree with n but for its last ones, and one momentum is kept for each level
of them.

References
----------
Hoffman and Gelman, *The No-U-Turn Sampler*, JMLR 15 (2014). Betancourt, *A Conceptual Introduction
to Hamiltonian Monte Carlo*, arXiv 1701.02434 (2017), Appendix A: the multinomial version and the
criterion. Phan, Pradhan and Jankowiak, *Composable Effects for Flexible and Accelerated
Probabilistic Programming in NumPyro*, arXiv 1912.11554 (2019): the iterative one.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from pymc_nnsteps.compile.jit import inline, jit, plain
from pymc_nnsteps.compile.linear_algebra import Array
from pymc_nnsteps.moves.loops.leapfrog import Metric, draw_momenta, fill_velocity, follow, leapfrog

DIVERGENT = 1000.0
"""Error of the energy beyond which a trajectory is given up."""


class Orbit(NamedTuple):
    """Places reached from one by multiplying coordinates, or adding to their logarithms."""

    # shape (n,): one for a coordinate that is multiplied, zero for one that is a logarithm.
    is_multiplied: Array
    # shape (n + 1,): where the directions of each coordinate begin in the next two, and where the
    # last one's end.
    begins: Array
    directions: Array  # directions that a coordinate moves along
    # What one unit along a direction adds to the coordinate, or to the logarithm of its size.
    degrees: Array


class Density(NamedTuple):
    """Functions that give a log density and its gradient, and what they are given.

    Each is called with one tuple, (place, numbers, layout, given vector), and gives a tuple whose
    first entry is a vector.
    """

    of_rows: Any  # what the rows of one layout add: the log density and its gradient, or sums
    # Log density and gradient with the sums as they are given, and its gradient in the sums.
    of_sums: Any
    through_sums: Any  # gradient of a linear function of the sums of some rows, its slopes given
    # Whether the log density is a function of sums over all rows; otherwise only the first function
    # is called.
    has_sums: float
    numbers: Array  # shape (k,): what the log density depends on beside the place
    layouts: Array  # shape (blocks, ...): where a block of rows finds its numbers


@plain
def over_blocks(evaluate: Any, density: Density, q: Array, given: Array) -> Array:
    """Sum of one of the functions over blocks of rows."""
    numbers, layouts = density.numbers, density.layouts
    total = evaluate((q, numbers, layouts[0], given))[0]
    for block in range(1, len(layouts)):
        total += evaluate((q, numbers, layouts[block], given))[0]
    return total


@plain
def evaluated(density: Density, q: Array) -> Array:
    """Log density and gradient at a place, and more after these where it is one of sums."""
    of_rows, of_sums, through_sums = density.of_rows, density.of_sums, density.through_sums
    total = over_blocks(of_rows, density, q, np.empty(0))
    if not density.has_sums:
        return total
    found = of_sums((q, density.numbers, density.layouts[0], total))[0]
    slopes = found[1 + len(q) :].copy()
    found[1 : 1 + len(q)] += over_blocks(through_sums, density, q, slopes)
    return found


@plain
def evaluate(density: Density, q: Array, slope: Array) -> float:
    """Log density at a place; fills the slope in the first coordinates."""
    found = evaluated(density, q)
    slope[:] = found[1 : 1 + len(slope)]
    return found[0]


@plain
def diagonal(precision: Array) -> Metric:
    """The metric of independent momenta."""
    none = np.empty((0, 0))
    return Metric(none, none, none, none, precision)


@plain
def momenta_of(metric: Metric, rng: Generator) -> Array:
    """Momenta of a diagonal metric."""
    p = np.empty(len(metric.diagonal))
    for i in range(len(p)):
        p[i] = rng.standard_normal()
    draw_momenta(metric, p, p)
    return p


@jit
def turns(first: Array, last: Array, total: Array, precision: Array) -> bool:
    """Whether a trajectory turns back, from its momenta at both ends and their sum over it."""
    at_first = at_last = 0.0
    for i in range(len(total)):
        between = (total[i] - 0.5 * (first[i] + last[i])) / precision[i]
        at_first += first[i] * between
        at_last += last[i] * between
    return at_first <= 0.0 or at_last <= 0.0


@jit
def turns_within(leaf: int, p: Array, total: Array, kept: Array, precision: Array) -> bool:
    """Whether a subtree turns back that ends with this leaf of a doubling.

    ``p`` and ``total`` are the momenta at the leaf and their sum up to it; ``kept``, (levels, 2,
    n), the same where the subtrees begin. Those of an even leaf are entered.
    """
    level = 0
    rest = leaf >> 1
    while rest:
        level += rest & 1
        rest >>= 1
    if leaf % 2 == 0:
        kept[level, 0] = p
        kept[level, 1] = total
        return False
    rest = leaf
    while rest & 1:
        if turns(kept[level, 0], p, total - kept[level, 1] + kept[level, 0], precision):
            return True
        level -= 1
        rest >>= 1
    return False


@inline
def log_add(a: float, b: float) -> float:
    """``log(exp(a) + exp(b))``, b finite."""
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


@jit
def no_u_turn(
    density: Density,
    q: Array,
    start: Array,
    precision: Array,
    size: float,
    max_depth: int,
    rng: Generator,
) -> tuple[float, float, int, int, bool]:
    """Overwrite a place by one of the trajectory through it.

    The trajectory is doubled, to either side, until it turns back. The place is one of its halves
    by their weights, where the new half is preferred (biased progressive sampling).

    ``q`` is the place, ``start`` its log density and gradient. ``precision`` has variances of the
    momenta of the first n coordinates; others stay. ``size`` is that of leapfrog steps. Returned
    are the log density at the new place, the mean over the trajectory of the probability to accept
    a place, the numbers of leapfrog steps and doublings, and whether it diverged.
    """
    n, metric = len(precision), diagonal(precision)
    p, velocity = momenta_of(metric, rng), np.empty(n)
    log_density = start[0]
    energy = fill_velocity(metric, p, velocity) - log_density
    q_ends, p_ends, slopes = np.empty((2, len(q))), np.empty((2, n)), np.empty((2, n))
    for side in range(2):
        q_ends[side], p_ends[side], slopes[side] = q, p, start[1 : n + 1]
    kept = np.empty((max_depth, 2, n))
    candidate, candidate_density = np.empty(len(q)), log_density
    total, part = p.copy(), np.empty(n)
    weight, acceptance, n_steps, depth, diverging = 0.0, 0.0, 0, 0, False
    turning = False
    while depth < max_depth and not turning:
        side = 1 if rng.random() < 0.5 else 0
        signed = size if side == 1 else -size
        part[:] = 0.0
        part_weight = -math.inf
        # The new half: leapfrog steps, and one of its places by its weight.
        for leaf in range(1 << depth):
            end, momenta, slope = q_ends[side], p_ends[side], slopes[side]
            there = leapfrog(evaluate, density, metric, signed, end, momenta, slope, velocity)
            n_steps += 1
            log_ratio = energy - fill_velocity(metric, momenta, velocity) + there
            if not -DIVERGENT < log_ratio < math.inf:
                diverging = True
                break
            acceptance += math.exp(min(0.0, log_ratio))
            part_weight = log_add(part_weight, log_ratio)
            if rng.random() < math.exp(log_ratio - part_weight):
                candidate[:] = end
                candidate_density = there
            part += momenta
            turning = turns_within(leaf, momenta, part, kept, precision)
            if turning:
                break
        depth += 1
        if diverging or turning:
            break
        if rng.random() < math.exp(min(0.0, part_weight - weight)):
            q[:] = candidate
            log_density = candidate_density
        weight = log_add(weight, part_weight)
        total += part
        turning = turns(p_ends[0], p_ends[1], total, precision)
    return log_density, acceptance / n_steps, n_steps, depth, diverging


@jit
def random_length(
    density: Density,
    q: Array,
    start: Array,
    precision: Array,
    size: float,
    longest: int,
    rng: Generator,
) -> tuple[float, float, int, bool]:
    """Overwrite a place by the end of a trajectory from it, or leave it where it is.

    The number of leapfrog steps has a uniform logarithm, from 1 to ``longest``. Arguments and
    results are those of :func:`no_u_turn`, without doublings.
    """
    metric = diagonal(precision)
    p, there = momenta_of(metric, rng), q.copy()
    slope, length = start[1 : len(p) + 1].copy(), int(math.pow(longest + 1.0, rng.random()))
    log_density, log_ratio, n_steps = follow(
        evaluate, density, metric, size, length, DIVERGENT, start[0], there, p, slope
    )
    acceptance = math.exp(min(0.0, log_ratio))
    if rng.random() < acceptance:
        q[:] = there
    else:
        log_density = start[0]
    return log_density, acceptance, n_steps, log_ratio == -math.inf


@plain
def move_on_orbit(orbit: Orbit, origin: Array, u: Array, q: Array) -> float:
    """Overwrite q by the place at u, and return the logarithm of the volume's change."""
    log_volume = 0.0
    for i in range(len(origin)):
        shift = 0.0
        for k in range(orbit.begins[i], orbit.begins[i + 1]):
            shift += orbit.degrees[k] * u[orbit.directions[k]]
        if orbit.is_multiplied[i] > 0.0:
            q[i] = origin[i] * math.exp(shift)
            log_volume += shift
        else:
            q[i] = origin[i] + shift
    return log_volume


@plain
def slope_on_orbit(orbit: Orbit, q: Array, gradient: Array, slope: Array) -> None:
    """Overwrite a slope along each direction, the change of volume included, by that at q."""
    slope[:] = 0.0
    for i in range(len(q)):
        of_log = gradient[i]
        if orbit.is_multiplied[i] > 0.0:
            of_log = 1.0 + gradient[i] * q[i]
        for k in range(orbit.begins[i], orbit.begins[i + 1]):
            slope[orbit.directions[k]] += orbit.degrees[k] * of_log


class OnOrbit(NamedTuple):
    """A log density along directions of an orbit, the change of volume included.

    The place at zero and the one evaluated last, shape (n,); the basis of coordinates, shape
    (m, m), one column each; the last slope along directions of the orbit, shape (m,).
    """

    density: Density
    orbit: Orbit
    origin: Array
    place: Array
    basis: Array
    slope: Array


@plain
def evaluate_on_orbit(along: OnOrbit, v: Array, slope: Array) -> float:
    """Log density, and its slope, at coordinates of an orbit."""
    place, of_orbit = along.place, along.slope
    log_volume = move_on_orbit(along.orbit, along.origin, np.dot(along.basis, v), place)
    gradient = np.empty(len(place))
    log_density = evaluate(along.density, place, gradient)
    slope_on_orbit(along.orbit, place, gradient, of_orbit)
    slope[:] = np.dot(of_orbit, along.basis)
    return log_density + log_volume


@jit
def on_orbit(
    density: Density,
    orbit: Orbit,
    q: Array,
    start: Array,
    basis: Array,
    slope: Array,
    size: float,
    longest: int,
    rng: Generator,
) -> tuple[float, float, int, bool]:
    """Overwrite a place by the end of a trajectory along directions of its orbit, or leave it.

    Momenta are standard normal along the columns of ``basis``, (m, m); ``slope``, (m,), is
    overwritten by the slope along each direction of the orbit at the start. The number of leapfrog
    steps is uniform from 1 to ``longest``. Results are those of :func:`random_length`.
    """
    metric = diagonal(np.ones(len(slope)))
    p, v, length = momenta_of(metric, rng), np.zeros(len(slope)), 1 + int(longest * rng.random())
    slope_on_orbit(orbit, q, start[1 : len(q) + 1], slope)
    along = OnOrbit(density, orbit, q.copy(), q.copy(), basis, np.empty(len(slope)))
    by_v = np.dot(slope, basis)
    log_density, log_ratio, n_steps = follow(
        evaluate_on_orbit, along, metric, size, length, DIVERGENT, start[0], v, p, by_v
    )
    acceptance = math.exp(min(0.0, log_ratio))
    if rng.random() < acceptance:
        log_density -= move_on_orbit(orbit, along.origin, np.dot(basis, v), q)
    else:
        log_density = start[0]
    return log_density, acceptance, n_steps, log_ratio == -math.inf


TYPES = {
    no_u_turn: "u0u0u0n0d1q2d1d1d1n0n0g0",
    random_length: "u0u0u0n0d1q2d1d1d1n0n0g0",
    on_orbit: "u0u0u0n0d1q2d1q1q1d1d1d1d2d1n0n0g0",
}
"""Types of their arguments."""
