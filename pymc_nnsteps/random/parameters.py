"""Parameters of draws, as all kernels of this room take them.

Arithmetic is in float64 whatever the arrays hold. A parameter has one element or one for each draw.
The last argument is filled and returned. Tests are phrased as rejections, so that a NaN is returned
and does not loop.
"""

import numpy as np

from pymc_nnsteps.kernels.jit import jit

Array = np.ndarray


@jit
def step(length: int, n: int) -> int:
    """Step of the index into a parameter along n draws: 1, or 0 if it has one element."""
    if length == n:
        return 1
    if length == 1:
        return 0
    raise ValueError("a parameter has neither one element nor one for each draw")
