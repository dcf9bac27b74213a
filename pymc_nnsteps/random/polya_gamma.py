r"""The Polya-Gamma distribution PG(n, z) for whole numbers n, exact for all z.

PG(n, z) is the sum of n independent variables of PG(1, z), and drawn as that.

It turns a logistic likelihood into a Gaussian one (Polson, Scott and Windle, 2013): if
:math:`\omega \sim PG(1, z)` then, as a function of :math:`\psi` with :math:`z = \psi` at the time
of the draw, :math:`e^{y\psi}/(1 + e^\psi)` may be replaced by
:math:`\exp((y - \tfrac12)\psi - \tfrac12 \omega\psi^2)`.

:math:`X = 4\omega` is a tilted Jacobi variable with density proportional, with
:math:`c = |z|/2`, to :math:`e^{-c^2 x/2} \sum_n (-1)^n a_n(x)`, for which there are two series,
one for each side of t = 0.64:

.. math:: a_n = \pi (n + \tfrac12) \left(\frac{2}{\pi x}\right)^{3/2} e^{-2(n + 1/2)^2/x}
          \;(x \le t), \qquad a_n = \pi (n + \tfrac12) e^{-(n + 1/2)^2 \pi^2 x/2} \;(x > t).

The first terms are the proposal: below t an inverse Gaussian of mean 1/c and shape 1, above t an
exponential of rate :math:`K = \pi^2/8 + c^2/2`, of masses

.. math:: q = e^{-c} \left(\operatorname{erfc}\frac{1 - tc}{\sqrt{2t}}
              + e^{2c} \operatorname{erfc}\frac{1 + tc}{\sqrt{2t}}\right), \qquad
          p = \frac{\pi}{2K} e^{-Kt}.

A proposal is accepted if a uniform number is below the alternating series over its first term,
whose partial sums bound it in turn (Devroye, 1986). As

.. math:: a_n/a_0 = (2n + 1) e^{-2n(n + 1)/x} \;(x \le t), \qquad
          (2n + 1) e^{-n(n + 1)\pi^2 x/2} \;(x > t)

the second term is at most 0.0058: hardly a proposal is rejected, and no power or exponential
of a small x ever underflows. Masses are compared times :math:`e^c`, so that nothing does for
large c either.

References
----------
Devroye, L. (1986). *Non-Uniform Random Variate Generation*, chapter IV.5.

Polson, N. G., Scott, J. G. and Windle, J. (2013). Bayesian inference for logistic models using
Polya-Gamma latent variables. Journal of the American Statistical Association 108.
"""

import math

import numpy as np
import pytensor.tensor as pt
from numpy.random import Generator
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.random.op import Array, KernelRV, draw_elementwise, entry, float_dtype
from pymc_nnsteps.random.truncated_normal import draw_truncated_normal

BEND = 0.64
"""Where a draw, times 4, turns from one proposal and series to the other."""


@inline
def is_right_of_bend(rng: Generator, c: float, rate: float) -> bool:
    """Whether a Polya-Gamma proposal is to be drawn from the exponential beyond BEND."""
    u = rng.random()
    right = math.pi / (2.0 * rate) * math.exp(c - rate * BEND)
    if c * BEND >= 1.0 and u >= right:  # the mass on the left is at least one
        return False
    root = math.sqrt(2.0 * BEND)
    left = math.erfc((1.0 - BEND * c) / root)
    if c < 300.0:
        left += math.exp(2.0 * c) * math.erfc((1.0 + BEND * c) / root)
    return u * (left + right) < right


@inline
def inverse_gaussian_left_of_bend(rng: Generator, c: float) -> float:
    """Inverse Gaussian of mean 1/c and shape 1, restricted to values below BEND."""
    if c * BEND < 1.0:
        while True:
            y = draw_truncated_normal(rng, 0.0, 1.0, 1.0 / math.sqrt(BEND), math.inf)
            x = 1.0 / (y * y)
            if not rng.random() > math.exp(-0.5 * c * c * x):
                return x
    while True:
        half = 0.5 * rng.standard_normal() ** 2 / c
        ratio = 1.0 / (1.0 + half + math.sqrt(half * (2.0 + half)))
        x = (ratio if rng.random() * (1.0 + ratio) <= 1.0 else 1.0 / ratio) / c
        if not x > BEND:
            return x


@inline
def is_below_series(rng: Generator, x: float) -> bool:
    """Whether a uniform is below the density of J*(1) over its first term, at ``x``."""
    u = rng.random()
    if u < 0.994:  # less than one minus the second term, wherever x is
        return True
    rate = 2.0 / x if x <= BEND else 0.5 * math.pi**2 * x
    total, sign, n = 1.0, -1.0, 1
    while True:
        total += sign * (2 * n + 1) * math.exp(-rate * n * (n + 1))
        if sign < 0.0 and u <= total:
            return True
        if sign > 0.0 and u > total:
            return False
        sign, n = -sign, n + 1


@inline
def draw_polya_gamma(rng: Generator, z: float) -> float:
    """Polya-Gamma PG(1, z)."""
    c = 0.5 * abs(z)
    if not c < math.inf:
        return math.nan
    rate = 0.125 * math.pi**2 + 0.5 * c * c
    while True:
        if is_right_of_bend(rng, c, rate):
            x = BEND + rng.standard_exponential() / rate
        else:
            x = inverse_gaussian_left_of_bend(rng, c)
        if is_below_series(rng, x):
            return 0.25 * x


@jit
def polya_gamma_kernel(rng: Generator, z: Array, n: Array, out: Array) -> Array:
    """Sums of ``n`` draws of PG(1, z); NaN where n is no count."""
    for i in range(out.size):
        stated = entry(n, i)
        count = np.int64(stated)
        out[i] = 0.0 if count >= 0 and count == stated else math.nan
        for _ in range(count):
            out[i] += draw_polya_gamma(rng, np.float64(z[i]))
    return out


class PolyaGammaRV(KernelRV):
    """Draws over a flat array; used through `polya_gamma`."""

    name = "polya_gamma"
    signature = "(n),(m)->(n)"
    kernel = polya_gamma_kernel


def polya_gamma(rng: Variable, z: TensorLike, n: TensorLike = 1) -> tuple[Variable, TensorVariable]:
    """Draw Polya-Gamma variables PG(n, z), elementwise, for whole n; NaN where z is not finite."""
    z = pt.as_tensor(z)
    return draw_elementwise(PolyaGammaRV(), rng, (z, pt.as_tensor(n).astype(float_dtype(z))))
