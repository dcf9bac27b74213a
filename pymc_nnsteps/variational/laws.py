r"""Moments and constants of generalised inverse Gaussian laws, of any order.

.. math:: p(x) \propto x^{\nu-1} \exp\{-\tfrac12(\delta^2/x + \lambda^2 x)\}, \qquad
          Z = \int_0^\infty x^{\nu-1} \exp\{-\tfrac12(\delta^2/x + \lambda^2 x)\}\, dx
            = 2 K_\nu(\delta\lambda) (\delta/\lambda)^\nu

The order of the law of a layer's scale is near -1276 for 50 by 51 weights, where Bessel functions
overflow. Only their ratios enter the moments; these follow from
:math:`K_{v+1}/K_v = 2v/x + K_{v-1}/K_v`, upwards from a fractional order, without cancellation.
"""

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from pymc_nnsteps.distributions.bessel import log_integral

Numbers = NDArray[np.float64]

SMALLEST = 1e-300
"""Least ``delta^2`` of a law whose ``delta`` is 0 in the prior."""


@dataclass(frozen=True)
class GIG:
    """A generalised inverse Gaussian law, or an array of them."""

    nu: float  # the order, one for all
    # Coefficients of ``-1/(2 x)`` and of ``-x/2`` in the log density. One of the two may be 0, for
    # all entries.
    delta2: Numbers
    lambda2: Numbers

    @property
    def centre(self) -> Numbers:
        """Mode of the density of log x, which is finite also where the mean is not."""
        if self.nu > 0:
            return (self.nu + np.sqrt(self.nu**2 + self.delta2 * self.lambda2)) / self.lambda2
        return self.delta2 / (np.sqrt(self.nu**2 + self.delta2 * self.lambda2) - self.nu)

    @property
    def mean(self) -> Numbers:
        r"""Compute :math:`E[x]`, infinite where there is none."""
        return GIG(-self.nu, self.lambda2, self.delta2).mean_inverse

    @property
    def mean_inverse(self) -> Numbers:
        r"""Compute :math:`E[1/x]`, infinite where there is none."""
        if np.all(self.lambda2 == 0):
            return -2 * self.nu / self.delta2
        if np.all(self.delta2 == 0):
            return self.lambda2 / (2 * (self.nu - 1)) if self.nu > 1 else self.lambda2 * np.inf
        argument = np.sqrt(self.delta2 * self.lambda2)
        if self.nu > 0.5:
            # K_{nu-1}/K_nu, of orders that are not negative or -1/2 and above.
            ratio = 1 / _bessel_ratio(self.nu - 1, argument)
        else:
            ratio = _bessel_ratio(-self.nu, argument)
        return np.sqrt(self.lambda2 / self.delta2) * ratio

    @property
    def standard_deviation(self) -> Numbers:
        r"""Square root of the variance, infinite where there is none.

        :math:`E[x^2]` is the product of the mean and of that of the order above.
        """
        mean, above = self.mean, GIG(self.nu + 1, self.delta2, self.lambda2).mean
        finite = np.isfinite(above) & np.isfinite(mean)
        return np.sqrt(np.where(finite, mean * (np.where(finite, above, 0) - mean), np.inf))

    @property
    def log_constant(self) -> Numbers:
        """Compute log Z."""
        if np.all(self.lambda2 == 0):
            return self.nu * np.log(self.delta2 / 2) + scipy.special.gammaln(-self.nu)
        if np.all(self.delta2 == 0):
            return -self.nu * np.log(self.lambda2 / 2) + scipy.special.gammaln(self.nu)
        argument = np.sqrt(self.delta2 * self.lambda2)
        log_scale = 0.5 * (np.log(self.delta2) - np.log(self.lambda2))
        return np.log(2) + log_bessel(self.nu, argument) + self.nu * log_scale


def relative_entropy(q: GIG, p: GIG) -> float:
    r"""Sum of :math:`E_q[\log(q/p)]` less its part :math:`(\hat\nu - \nu) E_q[\log x]`.

    In the evidence of a network that part cancels against the expected log densities of the
    weights, so that no derivatives of Bessel functions in their order are needed. There may be one
    ``p`` for all.
    """
    value = p.log_constant - q.log_constant
    if not np.array_equal(q.delta2, np.broadcast_to(p.delta2, np.shape(q.delta2))):
        value = value - 0.5 * (q.delta2 - p.delta2) * q.mean_inverse
    if not np.array_equal(q.lambda2, np.broadcast_to(p.lambda2, np.shape(q.lambda2))):
        value = value - 0.5 * (q.lambda2 - p.lambda2) * q.mean
    return float(np.sum(np.broadcast_to(value, np.shape(q.delta2))))


def log_bessel(order: float, x: Numbers) -> Numbers:
    r"""Compute :math:`\log K_\nu(x)`, of orders and arguments of any size."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        value = np.log(scipy.special.kve(order, x)) - x
    beyond = ~np.isfinite(value)
    if np.any(beyond):
        value = np.array(value)
        value[beyond] = [_log_bessel(abs(order), each) for each in np.asarray(x)[beyond]]
    return value


def _log_bessel(order: float, x: float) -> float:
    """The same of one number, by the integral of :mod:`~pymc_nnsteps.distributions.bessel`."""
    size = np.hypot(order, x)
    a, b = 0.5 * (size + order), 0.5 * x * (x / (size + order))
    return log_integral(a, b) - size + order * np.arcsinh(order / x) - np.log(2)


def _bessel_ratio(order: float, x: Numbers) -> Numbers:
    r""":math:`K_{v+1}(x)/K_v(x)` for orders of -1/2 and above."""
    steps = max(int(np.floor(order)), 0)
    lowest = order - steps
    ratio = scipy.special.kve(lowest + 1, x) / scipy.special.kve(lowest, x)
    for k in range(1, steps + 1):
        ratio = 2 * (lowest + k) / x + 1 / ratio
    return ratio
