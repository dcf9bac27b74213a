"""The generalised inverse Gaussian as a PyMC distribution."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import PositiveContinuous
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor import config
from pytensor.scalar import upcast
from pytensor.tensor import TensorLike
from pytensor.tensor.type import discrete_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.distributions.bessel import log_bessel_integral
from pymc_nnsteps.random.generalized_inverse_gaussian import gig

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
        Strength of the decline towards 0 and towards infinity, not negative, on the scale of
        :math:`\sqrt{x}` and :math:`1/\sqrt{x}`. ``delta`` may be 0 where ``nu > 0``, ``lam``
        where ``nu < 0``.

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
    ...     variance = nns.GeneralizedInverseGaussian("variance", nu=-1, delta=1, lam=0.5)
    ...     weights = pm.Normal("weights", sigma=pm.math.sqrt(variance), shape=3)
    >>> round(float(pm.logp(variance, 2.0).eval()), 4)
    -2.391
    """

    rv_op = gig

    @classmethod
    def dist(cls, nu: TensorLike, delta: TensorLike, lam: TensorLike, **kwargs: Any) -> Any:
        """Create the variable without a name, from the same parameters."""
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
