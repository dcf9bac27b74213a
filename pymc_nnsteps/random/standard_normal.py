"""Standard normals, at a third of the cost of NumPy's own loop over its generator.

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
from collections.abc import Callable, Sequence
from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from numpy.random import Generator
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import get_vector_length
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.jit import LETTERS, Call, inline, jit
from pymc_nnsteps.random.op import Array, DirectRV, KernelRV

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


@jit
def begin_streams(rng: Generator) -> Array:
    """States of STREAMS generators xoshiro256++, all at random."""
    state = np.empty(4 * STREAMS, np.uint64)
    for i in range(state.size):
        high, low = np.uint64(rng.random() * 2.0**32), np.uint64(rng.random() * 2.0**32)
        state[i] = (high << np.uint64(32)) | low
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
    """Where layers of the same area under ``exp(-x^2 / 2)`` end, the lowest one first."""
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


@jit
def standard_normal_kernel(rng: Generator, shape: Array, out: Array) -> Array:
    """Standard normals, of any shape."""
    flat = out.reshape(-1)
    n = flat.size
    if n < FEW:
        for i in range(n):
            flat[i] = rng.standard_normal()
        return out
    state, bits = begin_streams(rng), np.empty(AT_A_TIME, np.uint64)
    beyond = np.empty(AT_A_TIME, np.bool_)
    for begin in range(0, n, AT_A_TIME):
        end = min(begin + AT_A_TIME, n)
        fill_normal(rng, state, bits, beyond, flat[begin:end])
    return out


class StandardNormalRV(KernelRV):
    """Standard normals of a shape, which is the parameter; used through `standard_normal`."""

    name = "standard_normal"
    kernel = standard_normal_kernel

    @override
    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> list[Any]:
        [shape] = dist_params
        return [shape[axis] for axis in range(self.ndim_supp)]

    @override
    def calls(self, node: Apply) -> Call:
        """The kernel, and the types that it is called with."""
        return standard_normal_kernel, f"g0q1{LETTERS[self.dtype]}1"

    @override
    def function_of(self, node: Apply) -> tuple[Callable[..., Any], list[Variable]]:
        rng, _, shape = node.inputs
        lengths = tuple(shape.data.tolist()) if isinstance(shape, Constant) else ()
        if math.prod(lengths) < FEW and lengths and self.dtype == "float64":
            return lambda rng: (rng, rng.standard_normal(lengths)), [rng]
        return DirectRV.function_of(self, node)

    @override
    def rng_fn(self, rng: np.random.Generator, *params_and_size: Any) -> np.ndarray:
        """Draw an array of the shape given first; the last argument, ``size``, is None."""
        shape, _ = params_and_size
        lengths = shape.tolist()
        n = math.prod(lengths)
        if n < FEW:
            return rng.standard_normal(lengths).astype(self.dtype, copy=False)
        drawn = standard_normal_kernel(rng, np.array(lengths), np.empty(n, self.dtype))
        return drawn.reshape(lengths)


def standard_normal(
    rng: Variable, size: Sequence[Any] | TensorVariable, dtype: str
) -> tuple[Variable, TensorVariable]:
    """Draw standard normals."""
    shape = pt.as_tensor(size, dtype="int64", ndim=1)
    axes = ",".join(f"n{axis}" for axis in range(get_vector_length(shape)))
    op = StandardNormalRV(signature=f"(s)->({axes})")
    return op(shape, rng=rng, dtype=dtype, return_next_rng=True)
