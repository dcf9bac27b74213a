"""The hyperbolic tangent of whole arrays, in a loop that the processor does several numbers of.

With E(y) = exp(y) - 1, tanh(x) = -E(-2x) / (E(-2x) + 2) for x > 0. E is a polynomial near zero and
doubles its argument by E(2y) = E(y) (E(y) + 2), in which errors shrink for y < 0. No branch and no
call of a library stand in the way of vector instructions.
"""

import math
from functools import partial

import numpy as np

from pymc_nnsteps.kernels.in_numba import inline, jit

COEFFICIENTS = tuple(1 / math.factorial(k) for k in range(1, 13))
"""Taylor series of E, exact to the last digit up to an argument of 0.3125."""

LARGEST = 20.0
"""Where the tangent is one, to the last digit."""

DOUBLINGS = 7

SINGLE = tuple(np.float32(c) for c in COEFFICIENTS[:7])
SINGLE_LARGEST, SINGLE_DOUBLINGS = np.float32(10), 6
"""The same in float32."""

FUSED = {"contract"}
"""A product and a sum may be one instruction, which rounds once."""


@partial(inline, fastmath=FUSED)
def tanh_of_number(x: float) -> float:
    """``tanh(x)``, to some units in the last place."""
    y = -min(abs(x), LARGEST) * (2 / 2**DOUBLINGS)
    total = COEFFICIENTS[11]
    for k in range(10, -1, -1):
        total = total * y + COEFFICIENTS[k]
    e = total * y
    for _ in range(DOUBLINGS):
        e = e * (e + 2)
    return math.copysign(-e / (e + 2), x)


@partial(inline, fastmath=FUSED)
def tanh_of_single(x: np.float32) -> np.float32:
    """``tanh(x)`` in float32."""
    two = np.float32(2)
    y = -min(abs(x), SINGLE_LARGEST) * np.float32(2 / 2**SINGLE_DOUBLINGS)
    total = SINGLE[6]
    for k in range(5, -1, -1):
        total = total * y + SINGLE[k]
    e = total * y
    for _ in range(SINGLE_DOUBLINGS):
        e = e * (e + two)
    return np.copysign(-e / (e + two), x)


@partial(jit, fastmath=FUSED)
def tanh(x: np.ndarray) -> np.ndarray:
    """``np.tanh`` of an array of float64."""
    result = np.empty(x.shape)
    given, found = x.ravel(), result.ravel()
    for i in range(given.size):
        found[i] = tanh_of_number(given[i])
    return result


@partial(jit, fastmath=FUSED)
def tanh_single(x: np.ndarray) -> np.ndarray:
    """``np.tanh`` of an array of float32, as :func:`tanh`."""
    result = np.empty(x.shape, np.float32)
    given, found = x.ravel(), result.ravel()
    for i in range(given.size):
        found[i] = tanh_of_single(given[i])
    return result
