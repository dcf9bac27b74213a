"""Random variables that a Gibbs sampler of a neural network needs and PyTensor lacks.

Each function takes a symbolic generator first and returns ``(next_rng, draw)``, as the
methods of ``pytensor.tensor.random.rng()`` do. Draws are exact at any distance from the
mean, cost tens of nanoseconds each, and are the same bits in C, Numba and FAST_COMPILE mode.

- `truncated_normal`: a normal restricted to an interval;
- `piecewise_normal`: a normal seen through a noisy piecewise-linear activation;
- `argmax_utilities`: normals whose largest element is known;
- `generalized_inverse_gaussian`: a variance or precision with pulls at both ends;
- `truncated_generalized_inverse_gaussian`: the same between two bounds;
- `polya_gamma`: the precision that turns a logistic likelihood into a Gaussian one;
- `lattice_step`: a step on a line that leaves any density invariant.

Each file derives a draw, and has its loop as a kernel; `op` turns a kernel into an Op.
"""

from pymc_nnsteps.random.generalized_inverse_gaussian import (
    generalized_inverse_gaussian,
    truncated_generalized_inverse_gaussian,
)
from pymc_nnsteps.random.lattice import lattice_step
from pymc_nnsteps.random.piecewise_normal import piecewise_normal
from pymc_nnsteps.random.polya_gamma import polya_gamma
from pymc_nnsteps.random.truncated_normal import argmax_utilities, truncated_normal

__all__ = [
    "argmax_utilities",
    "generalized_inverse_gaussian",
    "lattice_step",
    "piecewise_normal",
    "polya_gamma",
    "truncated_generalized_inverse_gaussian",
    "truncated_normal",
]
