r"""A step on a line by a lattice of points at a random place: exact, and without a loop.

For a density :math:`q` on the real line: a spacing :math:`h` is drawn from any law, and a place
:math:`J` from 0, ..., m - 1 uniformly. The next state is one of the m points

.. math:: u + h (j - J), \qquad j = 0, \dots, m - 1,

with probabilities proportional to :math:`q`. Each of these points would have led to the same
lattice with the same probability :math:`1 / m`, so that this is a draw from the conditional law
of the state given its lattice, and leaves :math:`q` invariant (Tjelmeland, *Using all
Metropolis-Hastings proposals to estimate mean values*, 2004; Neal, *MCMC using ensembles of
states*, 2010). The spacing is log-uniform: whatever the width of the density, one of a few steps
has a lattice that is finer, and reaches further.
"""

from collections.abc import Callable

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.random.uniform import uniform

POINTS = 64
STEPS = 2


def lattice_steps(
    rng: Variable,
    log_density: Callable[[TensorVariable], TensorVariable],
    narrowest: TensorVariable,
) -> tuple[Variable, TensorVariable]:
    """Move along a line that begins at zero, and say where to.

    Parameters
    ----------
    rng : random generator variable
    log_density : callable
        Log density at each entry of a vector of shifts, up to a constant; finite at zero.
    narrowest : TensorVariable
        The smallest spacing, about that of the narrowest density there may be; the largest is one.
    """
    shift = pt.zeros((), "float64")
    for _ in range(STEPS):
        rng, level = uniform(rng, (3,))
        level = level.astype("float64")
        spacing = pt.power(narrowest, level[0])
        points = shift + spacing * (pt.arange(POINTS) - pt.floor(level[1] * POINTS))
        log_q = log_density(points)
        known = pt.switch(pt.isnan(log_q), -np.inf, log_q)
        below = pt.cumsum(pt.exp(known - known.max()))
        shift = points[pt.lt(below, level[2] * below[-1]).sum()]
    return rng, shift
