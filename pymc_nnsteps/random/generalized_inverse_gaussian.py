r"""The generalised inverse Gaussian, exact for all its parameters.

.. math:: p(x) \propto x^{\nu - 1} \exp\left(-\tfrac12 (\delta^2/x + \lambda^2 x)\right),
          \quad x > 0

is the full conditional of a variance whose prior and likelihood pull at both ends: of the
scales of shrinkage priors, and of a precision that controls other Gamma precisions. With
:math:`\delta = 0` it is a Gamma, with :math:`\lambda = 0` an inverse Gamma, with
:math:`\nu = -1/2` an inverse Gaussian. The draw costs tens of nanoseconds, the parameters'
setup included, and at least 0.65 of the proposals are accepted whatever the parameters are.

Since :math:`1/X` has parameters :math:`-\nu, \lambda^2, \delta^2`, let :math:`p = \nu \ge 0`;
:math:`\omega = \delta\lambda`. For any :math:`a, b > 0` with :math:`ab = \omega^2/4` let
:math:`X = (2a/\lambda^2) e^t`; then t has density

.. math:: \exp\left(-a \varphi(t) - b \varphi(-t) + (p - a + b) t\right), \qquad
          \varphi(t) = e^t - 1 - t.

**A bent normal** serves almost everywhere. Let :math:`\rho = a + b`, :math:`q = (a - b)/\rho`,
:math:`k = 3/q` and :math:`z = \sqrt\rho\, k (e^{t/k} - 1)`, a power of X whose density is
close to a normal one. The Jacobian takes :math:`t/k` from the exponent, which leaves
:math:`\varepsilon = p - (a - b) - q/3` for the last term. Then

1. :math:`a \varphi(t) + b \varphi(-t) \ge z^2/2`. The difference and its slope vanish at 0; its
   second derivative over :math:`\rho` is :math:`\cosh t + q \sinh t - 2u^2 + u` with
   :math:`u = e^{qt/3}`, and since :math:`\cosh t + q \sinh t \ge e^{qt}` (Jensen) that is at
   least :math:`u (u - 1)^2 \ge 0`;
2. :math:`\varepsilon t \le \varepsilon z/\sqrt\rho` if :math:`\varepsilon \ge 0`.

Hence a proposal :math:`z \sim N(\varepsilon/\sqrt\rho, 1)` is accepted with the exponential of
the two differences. With :math:`\omega = 0` and :math:`\varepsilon = 0` this is Marsaglia and
Tsang's (2000) Gamma draw. Any :math:`a - b` that leaves :math:`\varepsilon \ge 0` is exact;
:math:`a - b = \max(p - p/(3\sqrt{p^2 + \omega^2}), 0)` leaves almost nothing of it.

**A plateau.** With :math:`p < 0.4` and :math:`\omega < 0.2` the density of
:math:`y = \log(X \lambda/\delta)`, :math:`\exp(py - \omega \cosh y)`, is close to
:math:`e^{py}` over the length :math:`2 \log(2/\omega)` and falls steeply beyond: a truncated
exponential is proposed between, exponentials of :math:`(\omega/2) e^{|y|}` outside.

**Special cases.** At :math:`|\nu| = 1/2`, :math:`2\sqrt\omega \sinh(y/2)` is normal up to the
choice of a sign (Michael, Schucany and Haas, 1976). With :math:`\omega = 0` the draw is
NumPy's Gamma. With p or :math:`\omega` above :math:`10^{32}` the standard deviation is below
the spacing of floating-point numbers and the draw is the mode.

**Between two bounds** it is the full conditional of a variance or of a standard deviation's square
with a uniform prior. Its logarithm t has the log-concave density :math:`\exp(\nu t - \tfrac12
\delta^2 e^{-t} - \tfrac12 \lambda^2 e^t)`, which lies below its value at the mode and below its
tangents (Devroye, 1986): proposals are uniform about the mode and exponential beyond. Where the
mode is a bound the tangent begins there, so that a steep density costs no more than a flat one.

References
----------
Devroye, L. (1986). *Non-Uniform Random Variate Generation*, chapter VII.2.

Marsaglia, G. and Tsang, W. W. (2000). A simple method for generating gamma variables. ACM
Transactions on Mathematical Software 26.

Michael, J. R., Schucany, W. R. and Haas, R. W. (1976). Generating random variates using
transformations with multiple roots. The American Statistician 30.
"""

import math
from collections.abc import Callable
from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from numpy.random import Generator
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.jit import LETTERS, Call, in_numba, inline, jit
from pymc_nnsteps.random.op import (
    Array,
    DirectRV,
    KernelRV,
    draw_elementwise,
    entry,
    float_dtype,
)

BENT, PLATEAU, SQUARED_NORMAL, GAMMA, CONSTANT = 0, 1, 2, 3, 4
INVERSE_E = math.exp(-1.0)
NO_CONSTANTS = (0.0,) * 7
SMALLEST = 5e-324
Constants = tuple[float, float, float, float, float, float, float]


@inline
def bent_normal(p: float, omega2: float) -> Constants:
    """Constants of the proposal BENT."""
    lean = p / math.sqrt(p * p + omega2)
    skew = max(p - lean / 3.0, 0.0)
    rho = math.sqrt(skew * skew + omega2)
    lean = skew / rho
    tilt = p - skew - lean / 3.0
    root = math.sqrt(rho)
    a = 0.5 * (rho + skew)
    b = 0.25 * omega2 / a
    return a, b, tilt, tilt / root, 1.0 / root, lean / (3.0 * root), 3.0 / lean


@inline
def draw_bent_normal(rng: Generator, constants: Constants) -> float:
    """exp(t), where t has the density exp(-a (e^t - 1 - t) - b (e^-t - 1 + t)) e^(t/k + tilt t)."""
    a, b, tilt, shift, narrow, bend, k = constants
    while True:
        z = shift + rng.standard_normal()
        growth = bend * z
        if growth <= -1.0:
            continue
        small = abs(growth) < 1e-8
        t = narrow * z * (1.0 - 0.5 * growth) if small else k * math.log1p(growth)
        if abs(t) < 0.01:
            rise = math.expm1(t)
            g = 1.0 + rise
        else:
            g = math.exp(t)
            rise = g - 1.0
        slack = a * (rise - t) + b * (t - rise / g) - tilt * t - z * (0.5 * z - shift)
        if not slack > rng.standard_exponential():
            return g


@inline
def plateau(p: float, omega: float) -> Constants:
    """Constants of the proposal PLATEAU."""
    half = 0.5 * omega
    reach = -math.log(half)
    fall = 2.0 * p * reach
    if fall < 1e-16:
        return p, half, reach, 0.0, 2.0 * reach, 1.0, 0.0
    drop = -math.expm1(-fall)
    return p, half, reach, drop, drop / p, 1.0 - drop, 0.0


@inline
def draw_plateau(rng: Generator, constants: Constants) -> float:
    """exp(y), where y has the density exp(p y - omega cosh y)."""
    p, half, reach, drop, middle, left, _ = constants
    total = middle + INVERSE_E * (1.0 + left)
    while True:
        u, g, slack = total * rng.random(), 1.0, 0.0
        if u < middle:
            u /= middle
            below = math.log1p(-drop * u) / p if drop > 0.0 else -2.0 * reach * u
            g = math.exp(reach + below)
            slack = half * (g + 1.0 / g)
        else:
            beyond = 1.0 + rng.standard_exponential()
            if u < middle + INVERSE_E:
                g = beyond / half
                slack = (1.0 - p) * math.log(beyond) + half / g
            else:
                g = half / beyond
                slack = (1.0 + p) * math.log(beyond) + half * g
        if not slack > rng.standard_exponential():
            return g


@inline
def gig_proposal(nu: float, delta2: float, lambda2: float) -> tuple[int, bool, float, Constants]:
    """Proposal for a generalised inverse Gaussian: its kind, whether to invert, scale, constants.

    A draw is ``scale * g``, or ``scale / g`` if inverted, where g has a density of the kind.
    """
    inverted = nu < 0.0
    p = abs(nu)
    rate, other = (delta2, lambda2) if inverted else (lambda2, delta2)
    omega2 = rate * other
    finite = p < math.inf and rate < math.inf and other < math.inf
    if not (rate > 0.0 and other >= 0.0 and p + other > 0.0 and finite):
        return CONSTANT, inverted, math.nan, NO_CONSTANTS
    if other == 0.0:
        scale = 0.5 * rate if inverted else 2.0 / rate
        return GAMMA, inverted, scale, (p, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    if p == 0.5 or (p < 0.4 and omega2 < 0.04):
        omega = math.sqrt(rate) * math.sqrt(other)
        scale = math.sqrt(delta2) / math.sqrt(lambda2)
        if p == 0.5:
            return SQUARED_NORMAL, inverted, scale, (omega, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        return PLATEAU, inverted, scale, plateau(p, omega)
    if p < 1e32 and omega2 < 1e64:
        kind, constants = BENT, bent_normal(p, omega2)
        a = constants[0]
    else:
        kind, constants = CONSTANT, NO_CONSTANTS
        a = 0.5 * p + math.hypot(0.5 * p, 0.5 * math.sqrt(rate) * math.sqrt(other))
    return kind, inverted, 0.5 * (rate / a) if inverted else 2.0 * (a / rate), constants


@inline
def draw_generalized_inverse_gaussian(
    rng: Generator, nu: float, delta2: float, lambda2: float
) -> float:
    """One draw; NaN where the parameters are not finite or the density has no integral."""
    kind, inverted, scale, constants = gig_proposal(
        np.float64(nu), np.float64(delta2), np.float64(lambda2)
    )
    if kind == BENT:
        g = draw_bent_normal(rng, constants)
    elif kind == PLATEAU:
        g = draw_plateau(rng, constants)
    elif kind == SQUARED_NORMAL:
        omega = constants[0]
        z = rng.standard_normal()
        excess = 0.5 * z * z
        g = 1.0 + (excess + math.sqrt(excess * (2.0 * omega + excess))) / omega
        if rng.random() * (1.0 + g) > g:
            g = 1.0 / g
    elif kind == GAMMA:
        g = max(rng.standard_gamma(constants[0]), SMALLEST)
    else:
        g = 1.0
    return scale / g if inverted else scale * g


@jit
def generalized_inverse_gaussian_kernel(
    rng: Generator, nu: Array, delta2: Array, lambda2: Array, out: Array
) -> Array:
    """Independent generalised inverse Gaussians."""
    for i in range(out.size):
        out[i] = draw_generalized_inverse_gaussian(
            rng, entry(nu, i), entry(delta2, i), entry(lambda2, i)
        )
    return out


class GeneralizedInverseGaussianRV(DirectRV):
    """Elementwise draws with parameters nu, delta^2 and lambda^2."""

    name = "generalized_inverse_gaussian"
    signature = "(),(),()->()"
    dtype = "floatX"
    _print_name = ("GIG", "\\operatorname{GIG}")

    def calls(self, node: Apply) -> Call:
        """The kernel, and the types that it is called with."""
        return generalized_inverse_gaussian_kernel, f"g0d1d1d1{LETTERS[self.dtype]}1"

    @override
    def function_of(self, node: Apply) -> tuple[Callable[..., Any], list[Variable]]:
        rng, _, *params = node.inputs
        is_number = all(p.type.ndim == 0 and p.type.dtype == "float64" for p in params)
        if not is_number or node.outputs[1].type.ndim:
            return super().function_of(node)
        kernel = generalized_inverse_gaussian_kernel.bound(self.calls(node)[1])

        def draw(rng: np.random.Generator, *params: np.ndarray) -> tuple[Any, np.ndarray]:
            out = np.empty(1, self.dtype)
            kernel(rng, *[param.reshape(1) for param in params], out)
            return rng, out.reshape(())

        return draw, [rng, *params]

    def rng_fn(self, rng: np.random.Generator, *params_and_size: Any) -> np.ndarray:
        """Draw by the kernel, which sees each parameter whole or, if constant, as one element."""
        *params, size = params_and_size
        shapes = {p.shape for p in params} if size is None else {tuple(size)}
        shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
        params = [np.asarray(param, np.float64) for param in params]
        flat = [
            p.ravel() if p.size == 1 or p.shape == shape else np.broadcast_to(p, shape).ravel()
            for p in params
        ]
        out = np.empty(shape, self.dtype)
        generalized_inverse_gaussian_kernel(rng, *flat, out.reshape(-1))
        return out


gig = GeneralizedInverseGaussianRV()


in_numba(GeneralizedInverseGaussianRV, lambda op, node: draw_generalized_inverse_gaussian.numba)


def generalized_inverse_gaussian(
    rng: Variable, nu: TensorLike, delta2: TensorLike, lambda2: TensorLike
) -> tuple[Variable, TensorVariable]:
    """Draw generalised inverse Gaussians of order ``nu``, elementwise.

    ``delta2`` may be 0 where ``nu > 0``, ``lambda2`` where ``nu < 0``. A draw is NaN where a
    parameter is not finite or the density has no finite integral.
    """
    nu, delta2, lambda2 = map(pt.as_tensor, (nu, delta2, lambda2))
    dtype = float_dtype(nu, delta2, lambda2)
    return gig(nu, delta2, lambda2, rng=rng, dtype=dtype, return_next_rng=True)


@inline
def log_concave_side(
    nu: float, d: float, e: float, room: float, sign: float
) -> tuple[float, float]:
    """Where the flat top of the proposal ends on one side of the mode, and the slope beyond it.

    The log density relative to the mode is ``nu s - d (exp(-s) - 1) - e (exp(s) - 1)``; beyond the
    flat top runs the tangent at a point where it has fallen by one to two.
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
    for i in range(out.size):
        low, high = entry(lower, i), entry(upper, i)
        out[i] = draw_truncated_generalized_inverse_gaussian(
            rng, entry(nu, i), entry(delta2, i), entry(lambda2, i), low, high
        )
    return out


class TruncatedGeneralizedInverseGaussianRV(KernelRV):
    """Draws over raveled parameters; used through `truncated_generalized_inverse_gaussian`."""

    name = "truncated_generalized_inverse_gaussian"
    signature = "(n),(d),(l),(a),(b)->(n)"
    kernel = truncated_generalized_inverse_gaussian_kernel


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
    """
    op = TruncatedGeneralizedInverseGaussianRV()
    return draw_elementwise(op, rng, (nu, delta2, lambda2, lower, upper))
