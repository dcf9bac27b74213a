r"""The generalised inverse Gaussian as a PyMC distribution.

Its constant has, without overflow, the Bessel function

.. math:: I(a, b) = \int_{-\infty}^{\infty} \exp(-a \varphi(t) - b \varphi(-t))\, dt,
          \qquad \varphi(t) = e^t - 1 - t

is a modified Bessel function of the second kind with its exponential growth taken out: with
:math:`p = a - b`, :math:`\omega = 2\sqrt{ab}` and :math:`r = a + b`

.. math:: \log I(a, b) = \log(2 K_p(\omega)) + r - p \operatorname{arsinh}(p/\omega),
          \qquad I(a, 0) = \Gamma(a)\, (e/a)^a.

The trapezoidal rule converges exponentially for such integrands: 30 points, or 300 where K is
as flat as at :math:`\omega = 10^{-12}`, give full precision at any order and argument, where
``scipy.special.kve`` overflows near order 1000. The same sum has the derivatives,
:math:`\partial \log I(a, b)/\partial a = -E[\varphi(t)]` and, as :math:`I(a, b) = I(b, a)`,
the other one.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import PositiveContinuous
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor import config
from pytensor.gradient import grad_not_implemented
from pytensor.graph.basic import Variable
from pytensor.scalar import upcast
from pytensor.scalar.basic import BinaryScalarOp, upgrade_to_float
from pytensor.tensor import TensorLike
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import discrete_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.jit import in_numba, jit
from pymc_nnsteps.random.generalized_inverse_gaussian import gig

_RECIPROCALS = 1.0 / np.arange(12.0, 2.0, -1.0)
_N_RECIPROCALS = len(_RECIPROCALS)


@jit
def phi(t: float) -> float:
    """Compute exp(t) - 1 - t to full relative precision."""
    if abs(t) > 0.2:
        return math.expm1(t) - t
    series = 1.0
    for k in range(_N_RECIPROCALS):
        series = 1.0 + _RECIPROCALS[k] * t * series
    return 0.5 * t * t * series


@jit
def half_sums(a: float, b: float, step: float) -> tuple[float, float, float]:
    """Sums over the points t > 0 of the integrand, and of it times phi(t) and phi(-t)."""
    total = up = down = 0.0
    t = step
    while t < 700.0:
        phi_up, phi_down = phi(t), phi(-t)
        weight = math.exp(-a * phi_up - b * phi_down)
        total += weight
        up += weight * phi_up
        down += weight * phi_down
        if not (weight > 1e-17 * total or (weight * phi_up > 1e-17 * up and a > 0.0)):
            break
        t += step
    return total, up, down


@jit
def log_integral_and_mean(a: float, b: float) -> tuple[float, float]:
    """Compute log I(a, b) and E[phi(t)], given as 0 where a is 0: it is only needed times a.

    Where the integrand decays slowly, the recurrence of the Gamma function is used.
    """
    if not (a >= 0.0 and b >= 0.0 and 0.0 < a + b < math.inf):
        return math.nan, math.nan
    p = a + b
    is_small_gamma = p < 1.0 and min(a, b) == 0.0
    lift = 1.0 if is_small_gamma else 0.0
    lifted_a, lifted_b = a + lift * (a > 0.0), b + lift * (b > 0.0)
    step = 0.65 / math.sqrt(lifted_a + lifted_b + 6.5)
    right, up, _ = half_sums(lifted_a, lifted_b, step)
    left, _, also_up = half_sums(lifted_b, lifted_a, step)
    total = 1.0 + right + left
    log_integral, mean = math.log(step * total), (up + also_up) / total
    if is_small_gamma:
        log_ratio = math.log1p(1.0 / p)
        log_integral += (p + 1.0) * log_ratio - 1.0
        mean += 1.0 / p - log_ratio
    return log_integral, mean if a > 0.0 else 0.0


@jit
def log_integral(a: float, b: float) -> float:
    """Compute log I(a, b)."""
    return log_integral_and_mean(a, b)[0]


@jit
def mean_phi(a: float, b: float) -> float:
    """Compute E[phi(t)]."""
    return log_integral_and_mean(a, b)[1]


class CompiledOp(BinaryScalarOp):
    """A kernel of two numbers, called in every mode."""

    function: ClassVar[Any]

    def impl(self, a: float, b: float) -> float:
        """Call the function."""
        return self.function(a, b)

    def c_code(self, *args: Any, **kwargs: Any) -> str:
        """There is none: C mode calls `impl`."""
        raise NotImplementedError


in_numba(CompiledOp, lambda op, node: op.function.numba)


class MeanPhi(CompiledOp):
    """`mean_phi` as an Op, without derivatives."""

    function = staticmethod(mean_phi)

    def pullback(self, inputs: Sequence[Variable], outputs: Any, grads: Any) -> list[Variable]:
        """Refuse."""
        return [grad_not_implemented(self, i, value) for i, value in enumerate(inputs)]


class LogIntegral(CompiledOp):
    """`log_integral` as an Op, differentiable once."""

    function = staticmethod(log_integral)

    def pullback(self, inputs: Sequence[Variable], outputs: Any, grads: Any) -> list[Variable]:
        """Derivatives by a and by b."""
        (a, b), (grad,) = inputs, grads
        return [-grad * _mean_phi(a, b), -grad * _mean_phi(b, a)]


_mean_phi = MeanPhi(upgrade_to_float, name="mean_phi")
log_bessel_integral = Elemwise(LogIntegral(upgrade_to_float, name="log_bessel_integral"))

VALID = "delta >= 0, lam >= 0, nu > 0 where delta = 0, nu < 0 where lam = 0"


class GeneralizedInverseGaussian(PositiveContinuous):
    r"""Generalised inverse Gaussian distribution.

    .. math:: f(x \mid \nu, \delta, \lambda) =
              \frac{(\lambda/\delta)^\nu}{2 K_\nu(\delta\lambda)}\, x^{\nu - 1}
              \exp\left(-\tfrac12 (\delta^2/x + \lambda^2 x)\right), \qquad x > 0

    It is conjugate for the variance of a normal (which takes :math:`\nu` to
    :math:`\nu - n/2` and :math:`\delta^2` to :math:`\delta^2 + \sum z_i^2`) and for the
    precision of one (:math:`\nu + n/2`, :math:`\lambda^2 + \sum z_i^2`). Members of the family:

    ===================================  ================================================
    :math:`\delta = 0, \nu > 0`          Gamma(:math:`\nu`, rate :math:`\lambda^2/2`)
    :math:`\lambda = 0, \nu < 0`         inverse Gamma(:math:`-\nu`, :math:`\delta^2/2`)
    :math:`\nu = -1/2`                   inverse Gaussian (``pm.Wald``) of mean
                                         :math:`\delta/\lambda` and shape :math:`\delta^2`
    :math:`1/X`                          the same with :math:`-\nu, \lambda, \delta`
    ===================================  ================================================

    Where :math:`\delta, \lambda > 0` it is ``scipy.stats.geninvgauss(p=nu, b=delta * lam,
    scale=delta / lam)``. The mean of :math:`X^k` is :math:`(\delta/\lambda)^k
    K_{\nu + k}(\delta\lambda)/K_\nu(\delta\lambda)`.

    Parameters
    ----------
    nu : tensor_like
        Order, of any sign and size. The density falls as :math:`x^{\nu - 1}` would between
        the exponential declines near :math:`\delta^2` and :math:`1/\lambda^2`.
    delta, lam : tensor_like
        Strength of the decline towards 0 and towards infinity, non-negative, on the scale of
        :math:`\sqrt{x}` and :math:`1/\sqrt{x}`. ``delta`` may be 0 where ``nu > 0``, ``lam`` where
        ``nu < 0``.

    Notes
    -----
    The log density is accurate to rounding for orders of millions and for ``delta * lam``
    between 1e-150 and 1e150, and is differentiable once in the value and in all parameters.
    Draws are exact (`pymc_nnsteps.random.generalized_inverse_gaussian`). The support point is
    the mode of the density of log x.

    Raises
    ------
    ParameterValueError
        When the log density is evaluated, if the parameters are not valid; draws are then NaN.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_nnsteps as nns
    >>> with pm.Model():
    ...     variance = nns.distributions.GeneralizedInverseGaussian(
    ...         "variance", nu=-1, delta=1, lam=0.5
    ...     )
    ...     weights = pm.Normal("weights", sigma=pm.math.sqrt(variance), shape=3)
    >>> round(float(pm.logp(variance, 2.0).eval()), 4)
    -2.391
    """

    rv_op = gig

    @classmethod
    def dist(cls, nu: TensorLike, delta: TensorLike, lam: TensorLike, **kwargs: Any) -> Any:
        """Create an unnamed variable with the same parameters."""
        nu, delta, lam = map(_floating, (nu, delta, lam))
        return super().dist([nu, delta * pt.abs(delta), lam * pt.abs(lam)], **kwargs)

    def support_point(
        rv: TensorVariable,  # noqa: N805
        size: Any,
        nu: TensorVariable,
        delta2: TensorVariable,
        lambda2: TensorVariable,
    ) -> TensorVariable:
        """Mode of the density of log x."""
        _, _, mode = _centre(nu, delta2, lambda2)
        return mode if rv_size_is_none(size) else pt.full(size, mode)

    def logp(
        value: TensorVariable,  # noqa: N805
        nu: TensorVariable,
        delta2: TensorVariable,
        lambda2: TensorVariable,
    ) -> TensorVariable:
        """Log density, written about the mode of log x so that no large terms cancel."""
        a, b, mode = _centre(nu, delta2, lambda2)
        t = pt.log(value) - pt.log(mode)
        drop = a * _phi(t) + b * _phi(-t)
        log_density = -pt.log(value) - drop - log_bessel_integral(a, b)
        return check_parameters(
            pt.switch(value > 0, log_density, -np.inf),
            delta2 >= 0,
            lambda2 >= 0,
            pt.or_(delta2 > 0, nu > 0),
            pt.or_(lambda2 > 0, nu < 0),
            msg=VALID,
        )


def _floating(param: TensorLike) -> TensorVariable:
    """The parameter in floatX at least: PyTensor holds 1.0 in single precision, 12 in a byte."""
    tensor = pt.as_tensor(param)
    dtype = tensor.type.dtype
    return tensor.astype(
        config.floatX if dtype in discrete_dtypes else upcast(dtype, config.floatX)
    )


def _centre(
    nu: TensorVariable, delta2: TensorVariable, lambda2: TensorVariable
) -> tuple[TensorVariable, TensorVariable, TensorVariable]:
    """a, b and m of the density exp(-a phi(t) - b phi(-t)) of t = log(x / m)."""
    positive = nu > 0
    omega2 = delta2 * lambda2
    large = 0.5 * (pt.sqrt(nu**2 + omega2) + pt.switch(positive, nu, -nu))
    small = 0.25 * omega2 / large
    rate = pt.switch(lambda2 > 0, lambda2, 1)
    mode = pt.switch(positive, 2 * large, delta2) / pt.switch(positive, rate, 2 * large)
    return pt.switch(positive, large, small), pt.switch(positive, small, large), mode


def _phi(t: TensorVariable) -> TensorVariable:
    """exp(t) - 1 - t, finite so that it may be multiplied by 0."""
    largest = np.log(np.finfo(t.type.dtype).max) - 1
    return pt.expm1(pt.minimum(t, largest)) - t
