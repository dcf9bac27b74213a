r"""A step on a line by a lattice of points at a random place: exact, and without a loop.

For a density :math:`q` on the real line: a spacing :math:`h` is drawn from any law, and a place
:math:`J` from 0, ..., m - 1 uniformly. The next state is one of the m points

.. math:: h (j - J), \qquad j = 0, \dots, m - 1,

about the present one, with probabilities proportional to :math:`q`. Each of these points would have
led to the same lattice with the same probability :math:`1 / m`, so that this is a draw from the
conditional law of the state given its lattice, and leaves :math:`q` invariant (Tjelmeland, *Using
all Metropolis-Hastings proposals to estimate mean values*, 2004; Neal, *MCMC using ensembles of
states*, 2010). The spacing is the cube of a uniform number: most lattices are fine beside a density
that is as wide as expected, and some beside one that is a thousand times narrower.
"""

import math
from collections.abc import Callable

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.jit import jit
from pymc_nnsteps.compile.linear_algebra import Array
from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.random.op import uniform

POINTS = 128


def lattice_step(
    rng: Variable,
    log_density: Callable[[TensorVariable], TensorVariable],
    widest: float | TensorVariable,
    n_points: int = POINTS,
    size: TensorVariable | None = None,
) -> tuple[Variable, TensorVariable]:
    """Move along a line that begins at zero, or along ``size`` lines, and say where to.

    ``log_density`` takes a vector of shifts, or (n_points, size); ``widest``, the largest spacing,
    is about the least standard deviation expected.
    """
    rng, levels = uniform(rng, (3,) if size is None else (3, size))
    levels = levels.astype("float64")
    points = lattice_of(levels[:2], widest, n_points)
    if size is not None:
        return rng, as_op(choose_points, 1)(points, log_density(points.T).T, levels[2])
    return rng, as_op(choose_point, 1)(points, log_density(points), levels[2:])[0]


def lattice_of(
    levels: TensorVariable, widest: float | TensorVariable, n_points: int
) -> TensorVariable:
    """Points (..., n_points) about zero, the present one, from uniform numbers (2, ...)."""
    place, spacing = levels[0, ..., None], (widest * levels[1] ** 3)[..., None]
    points: TensorVariable = spacing * (pt.arange(n_points) - pt.floor(place * n_points))
    return points


@jit
def choose_point(points: Array, log_density: Array, level: Array) -> Array:
    """One of m points, by a density that is zero where its logarithm is NaN, and a uniform (1,)."""
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
    """One of the points of each line: ``points`` are (q, m), uniform numbers (q,)."""
    chosen = np.empty(len(points))
    for i in range(len(points)):
        chosen[i] = choose_point(points[i], log_density[i], level[i : i + 1])[0]
    return chosen
