"""Uniform numbers and standard normals that are made together.

Streams of random bits that begin at words of the given generator advance side by side (Blackman and
Vigna, 2021), as the processor works on several numbers at once. A ziggurat (Marsaglia and Tsang,
2000) of so many layers that few points lie outside them makes normals of them.

References
----------
Blackman, D., and Vigna, S. (2021). Scrambled linear pseudorandom number generators. ACM
Transactions on Mathematical Software 47.

Marsaglia, G., and Tsang, W. W. (2000). The ziggurat method for generating random variables. Journal
of Statistical Software 5.
"""

import math

import numpy as np
from numpy.random import Generator

from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.random.parameters import Array

AT_A_TIME = 512
"""Numbers that are made together."""
FEW = 2000
"""Numbers that are not worth the start of streams."""
STREAMS = 64
"""Generators that are run side by side: a power of two, which divides AT_A_TIME."""
LAYERS = 1024
"""Layers of the ziggurat: a power of two."""
LAST_EDGE = 4.038849846109504
"""Where the tail begins below which that many layers, the tail with its own among them, close."""


@inline
def word(rng: Generator) -> np.uint64:
    """64 random bits."""
    high, low = np.uint64(rng.random() * 2.0**32), np.uint64(rng.random() * 2.0**32)
    return (high << np.uint64(32)) | low


@jit
def begin_streams(rng: Generator) -> Array:
    """States of STREAMS generators xoshiro256++, all at random."""
    state = np.empty(4 * STREAMS, np.uint64)
    for i in range(state.size):
        state[i] = word(rng)
    return state


@jit
def fill_bits(state: Array, bits: Array) -> None:
    """The next AT_A_TIME words, from each stream in turn."""
    for i in range(0, AT_A_TIME, STREAMS):
        for j in range(STREAMS):
            a, b = state[j], state[STREAMS + j]
            c, d = state[2 * STREAMS + j], state[3 * STREAMS + j]
            total = a + d
            bits[i + j] = ((total << np.uint64(23)) | (total >> np.uint64(41))) + a
            shifted = b << np.uint64(17)
            c ^= a
            d ^= b
            state[j], state[STREAMS + j], state[2 * STREAMS + j] = a ^ d, b ^ c, c ^ shifted
            state[3 * STREAMS + j] = (d << np.uint64(45)) | (d >> np.uint64(19))


@jit
def fill_uniform(state: Array, bits: Array, out: Array) -> None:
    """Uniform numbers, at most as many as there are words."""
    fill_bits(state, bits)
    for k in range(out.size):
        out[k] = np.int64(bits[k] >> np.uint64(11)) * 2.0**-53


def ziggurat() -> Array:
    """Where layers of the same area under ``exp(-x^2 / 2)`` end, the lowest first.

    The last of them ends at zero. The lowest is as wide as a rectangle of its area, with the tail.
    """
    height = math.exp(-0.5 * LAST_EDGE**2)
    area = LAST_EDGE * height + math.sqrt(0.5 * math.pi) * math.erfc(LAST_EDGE / math.sqrt(2.0))
    edges = [area / height, LAST_EDGE]
    while len(edges) < LAYERS:
        height += area / edges[-1]
        edges.append(math.sqrt(-2.0 * math.log(height)))
    return np.array([*edges, 0.0])


EDGES = ziggurat()


@inline
def layer_point(bits: np.uint64) -> tuple[np.int64, float]:
    """A layer, and a point between its ends on both sides of zero."""
    layer = np.int64(bits) & (LAYERS - 1)
    return layer, (np.int64(bits) >> 11) * 2.0**-52 * EDGES[layer]


@jit
def outside(rng: Generator, layer: np.int64, z: float) -> float:
    """A standard normal where a point lies beyond the end of the next layer."""
    if layer == 0:
        while True:
            beyond = rng.standard_exponential() / LAST_EDGE
            if not beyond * beyond > 2.0 * rng.standard_exponential():
                return math.copysign(LAST_EDGE + beyond, z)
    below, above = math.exp(-0.5 * EDGES[layer] ** 2), math.exp(-0.5 * EDGES[layer + 1] ** 2)
    if below + rng.random() * (above - below) < math.exp(-0.5 * z * z):
        return z
    return rng.standard_normal()


@jit
def fill_normal(rng: Generator, state: Array, bits: Array, beyond: Array, out: Array) -> None:
    """Standard normals by a ziggurat, at most as many as there are words."""
    fill_bits(state, bits)
    for k in range(out.size):
        layer, z = layer_point(bits[k])
        out[k] = z
        beyond[k] = not abs(z) < EDGES[layer + 1]
    for k in range(out.size):
        if beyond[k]:
            layer, z = layer_point(bits[k])
            out[k] = outside(rng, layer, z)
