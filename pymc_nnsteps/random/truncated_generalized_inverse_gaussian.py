r"""The generalised inverse Gaussian between two bounds, exact for all parameters.

.. math:: p(x) \propto x^{\nu - 1} \exp\left(-\tfrac12 (\delta^2/x + \lambda^2 x)\right),
          \quad l < x < u

is the full conditional of a variance or of a standard deviation's square with a uniform prior. Its
logarithm t has the log-concave density :math:`\exp(\nu t - \tfrac12 \delta^2 e^{-t} - \tfrac12
\lambda^2 e^t)`, which lies below its value at the mode and below its tangents (Devroye, 1986):
proposals are uniform about the mode and exponential beyond. Where the mode is a bound the tangent
begins there, so that a steep density costs no more than a flat one.

References
----------
Devroye, L. (1986). *Non-Uniform Random Variate Generation*, chapter VII.2.
"""

import math

import numpy as np
from numpy.random import Generator
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.random.op import Array, KernelRV, draw_elementwise, step


@inline
def log_concave_side(
    nu: float, d: float, e: float, room: float, sign: float
) -> tuple[float, float]:
    """Where the flat top of the proposal ends on one side of the mode, and the slope beyond it.

    The log density relative to that at the mode is ``nu s - d (exp(-s) - 1) - e (exp(s) - 1)`` at a
    distance s. Beyond the flat top runs the tangent at a point where it has fallen by one to two;
    a slope of zero means that there is no beyond.
    """
    slope = max(-sign * (nu + d - e), 0.0)
    at = 2.0 / (slope + math.sqrt(slope * slope + 2.0 * (d + e)))
    if not at < room:
        at = room
    drop = math.inf
    while at > 0.0:
        s = sign * at
        drop = -(nu * s - d * math.expm1(-s) - e * math.expm1(s))
        if drop <= 2.0:
            break
        at *= 0.5
    if at >= room:
        return room, 0.0
    s = sign * at
    steepness = -sign * (nu + d * math.exp(-s) - e * math.exp(s))
    if not steepness > 0.0:
        return room, 0.0
    return min(max(at - drop / steepness, 0.0), room), steepness


@inline
def draw_truncated_generalized_inverse_gaussian(
    rng: Generator, nu: float, delta2: float, lambda2: float, lower: float, upper: float
) -> float:
    """One draw between two bounds: its logarithm has a log-concave density."""
    # The mode of the logarithm's density, between the bounds.
    root = math.sqrt(nu * nu + delta2 * lambda2)
    if nu > 0.0:
        mode = (nu + root) / lambda2 if lambda2 > 0.0 else math.inf
    elif root > nu:
        mode = delta2 / (root - nu)
    else:
        mode = math.inf if lambda2 == 0.0 else 0.0
    mode = min(max(mode, lower), upper)
    if not (0.0 <= lower < upper and 0.0 < mode < math.inf):
        return math.nan
    # An envelope around it: flat within, exponential tails without, cut off at the bounds.
    d, e = delta2 / mode / 2.0, lambda2 * mode / 2.0
    room_below = math.log(mode / lower) if lower > 0.0 else math.inf
    room_above = math.log(upper / mode)
    below, slope_below = log_concave_side(nu, d, e, room_below, -1.0)
    above, slope_above = log_concave_side(nu, d, e, room_above, 1.0)
    if not below + above < math.inf:
        return math.nan
    tail_below = -math.expm1(-slope_below * (room_below - below)) if slope_below > 0.0 else 0.0
    tail_above = -math.expm1(-slope_above * (room_above - above)) if slope_above > 0.0 else 0.0
    mass_below = tail_below / slope_below if slope_below > 0.0 else 0.0
    mass_above = tail_above / slope_above if slope_above > 0.0 else 0.0
    # Rejection from the envelope.
    s = 0.0
    while True:
        u = (mass_below + below + above + mass_above) * rng.random() - mass_below
        if u < 0.0:
            fallen = -math.log1p(-tail_below * rng.random())
            s = -below - fallen / slope_below
        elif u < below + above:
            fallen = 0.0
            s = u - below
        else:
            fallen = -math.log1p(-tail_above * rng.random())
            s = above + fallen / slope_above
        log_ratio = nu * s - d * math.expm1(-s) - e * math.expm1(s) + fallen
        if not log_ratio < -rng.standard_exponential():
            break
    inside = min(mode * math.exp(s), np.nextafter(upper, 0.0))
    return max(inside, np.nextafter(lower, math.inf))


@jit
def truncated_generalized_inverse_gaussian_kernel(
    rng: Generator, nu: Array, delta2: Array, lambda2: Array, lower: Array, upper: Array, out: Array
) -> Array:
    """Independent generalised inverse Gaussians between bounds."""
    n = out.size
    i_nu, i_delta2, i_lambda2 = step(nu.size, n), step(delta2.size, n), step(lambda2.size, n)
    i_lower, i_upper = step(lower.size, n), step(upper.size, n)
    for i in range(n):
        out[i] = draw_truncated_generalized_inverse_gaussian(
            rng,
            np.float64(nu[i * i_nu]),
            np.float64(delta2[i * i_delta2]),
            np.float64(lambda2[i * i_lambda2]),
            np.float64(lower[i * i_lower]),
            np.float64(upper[i * i_upper]),
        )
    return out


class TruncatedGeneralizedInverseGaussianRV(KernelRV):
    """Draws over raveled parameters; used through `truncated_generalized_inverse_gaussian`."""

    name = "truncated_generalized_inverse_gaussian"
    signature = "(n),(d),(l),(a),(b)->(n)"
    kernel = staticmethod(truncated_generalized_inverse_gaussian_kernel)


_truncated = TruncatedGeneralizedInverseGaussianRV()


def truncated_generalized_inverse_gaussian(
    rng: Variable,
    nu: TensorLike,
    delta2: TensorLike,
    lambda2: TensorLike,
    lower: TensorLike,
    upper: TensorLike,
) -> tuple[Variable, TensorVariable]:
    """Draw generalised inverse Gaussians between bounds, elementwise.

    The parameters are those of :func:`~pymc_nnsteps.random.generalized_inverse_gaussian`; bounds
    are ``0 <= lower < upper``, and ``upper`` may be infinite. A draw is NaN where the density has
    no finite integral.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> rng = pt.random.rng()
    >>> nu = np.full(10_000, 1.0)
    >>> next_rng, draw = truncated_generalized_inverse_gaussian(rng, nu, 0.0, 0.0, 2.0, 3.0)
    >>> round(float(pytensor.function([rng], draw)(np.random.default_rng(0)).mean()), 2)
    2.5
    """
    return draw_elementwise(_truncated, rng, (nu, delta2, lambda2, lower, upper))
