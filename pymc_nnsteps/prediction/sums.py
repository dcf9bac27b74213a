r"""The law of a sum of independent units and normal noise, by its moment-generating function.

With :math:`K(s) = \log E e^{s F}` of the sum F, analytic in all of the plane,

.. math::

    p(y) = \frac{1}{2 \pi i} \int_{\tau - i \infty}^{\tau + i \infty} e^{K(s) - s y} ds, \qquad
    P(F > t) = \frac{1}{2 \pi i} \int_{\tau - i \infty}^{\tau + i \infty}
    e^{K(s) - s t} \frac{ds}{s}, \quad \tau > 0.

The path goes through the saddle point, where the integrand is real and largest, so that nothing
cancels however far in a tail y is; the trapezoidal rule on it converges exponentially, since normal
noise makes the integrand fall like :math:`e^{-C t^2 / 2}`. Of a unit that is with weight w
:math:`\alpha + \beta e`, e standard normal between a and b,

.. math::

    E[e^{s x}] = \sum_k w_k e^{s \alpha_k + s^2 \beta_k^2 / 2}
    (\Phi(b_k - s \beta_k) - \Phi(a_k - s \beta_k)).

References
----------
Daniels, *Saddlepoint Approximations in Statistics*, Annals of Mathematical Statistics 25 (1954);
Rice, *Numerical Evaluation of Integrals with Infinite Limits*, Bell System Technical Journal 52
(1973).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

__all__ = ["Sum", "log_density", "log_tail"]

Numbers = NDArray[np.float64]
Complex = NDArray[np.complexfloating[Any, Any]]

PERIOD = 20.0
"""Standard deviations after which the trapezoidal rule takes the law to repeat itself, at least."""

DECAY = 7.5
"""Where ``exp(-t^2 / 2)`` is below 1e-12."""

MOST_STEPS = 60
LONGEST_STEP = 5.0

LOST = 1e-8
"""Share of what is summed below which a sum has cancelled: digits are lost."""

NEAR = 0.01
"""In units of the tilted law's standard deviation: how far from the saddle the path may be."""

BLOCK = 2**18
"""Complex numbers at a time."""

NEGLIGIBLE = 1e-14


@dataclass(frozen=True)
class Sum:
    """``F = offset + sum_j x_j + N(0, variance)``, in rows.

    Attributes
    ----------
    offset, variance : ndarray, shape (n_obs,)
    weight, location, scale, lower, upper : ndarray, shape (components, n_obs, units)
    """

    offset: Numbers
    variance: Numbers
    weight: Numbers
    location: Numbers
    scale: Numbers
    lower: Numbers
    upper: Numbers

    def rows(self, chosen: NDArray[np.intp]) -> "Sum":
        """Some of the rows."""
        return Sum(
            self.offset[chosen],
            self.variance[chosen],
            *(
                values[:, chosen]
                for values in (self.weight, self.location, self.scale, self.lower, self.upper)
            ),
        )

    def cumulant(self, s: Complex) -> Complex:
        """``K(s)``, of points of shape (n_obs, n_points)."""
        each = s[..., None]
        components = (self.weight, self.location, self.scale, self.lower, self.upper)
        logs = []
        for weight, location, scale, lower, upper in zip(*components, strict=True):
            shift = each * scale[:, None] if scale.any() else np.zeros((1, 1, 1), complex)
            log_mass = _log_interval(lower[:, None] - shift, upper[:, None] - shift)
            log_weight = np.log(np.maximum(weight, np.finfo(float).tiny))[:, None]
            logs.append(log_weight + each * location[:, None] + shift**2 / 2 + log_mass)
        largest = np.max([log.real for log in logs], axis=0)
        units = largest + np.log(sum(np.exp(log - largest) for log in logs))
        normal = s * self.offset[:, None] + s**2 * self.variance[:, None] / 2
        return normal + units.sum(-1)

    def spread(self) -> Numbers:
        """Width of what has probability, shape (n_obs,)."""
        mass = self.weight * (ndtr(self.upper) - ndtr(self.lower))
        has = mass > NEGLIGIBLE
        top = np.where(has, self.location, -np.inf).max(axis=0)
        bottom = np.where(has, self.location, np.inf).min(axis=0)
        normal = np.sqrt((np.where(has, self.scale, 0) ** 2).max(axis=0).sum(1) + self.variance)
        return (top - bottom).sum(1) + 2 * DECAY * normal


def log_density(law: Sum, y: Numbers) -> Numbers:
    """Log density of the sum; NaN far from all of its modes and between them.

    Parameters
    ----------
    law : Sum
    y : ndarray, shape (n_obs,)

    Returns
    -------
    ndarray, shape (n_obs,)
    """

    def exponent(some: Sum, rows: NDArray[np.intp], s: Complex) -> Complex:
        return some.cumulant(s) - s * y[rows, None]

    return _integral(law, exponent, np.zeros(len(y)))


def log_tail(law: Sum, level: float) -> tuple[Numbers, Numbers]:
    """``log P(F > level)`` and ``log P(F < level)``; NaN as for :func:`log_density`.

    Parameters
    ----------
    law : Sum
    level : float

    Returns
    -------
    above, below : ndarray, shape (n_obs,)
    """
    step = 1e-3 / np.sqrt(law.variance)
    slope = law.cumulant(1j * step[:, None])[:, 0].imag / step
    side = np.where(slope < level, 1.0, -1.0)

    def exponent(some: Sum, rows: NDArray[np.intp], s: Complex) -> Complex:
        return some.cumulant(s) - s * level - np.log(side[rows, None] * s)

    smaller = np.minimum(_integral(law, exponent, side / np.sqrt(law.variance)), 0.0)
    larger = np.log1p(-np.exp(smaller))
    return np.where(side > 0, smaller, larger), np.where(side > 0, larger, smaller)


Exponent = Callable[[Sum, NDArray[np.intp], Complex], Complex]


def _integral(law: Sum, exponent: Exponent, start: Numbers) -> Numbers:
    """Log of the integral of an exponential along a path through its saddle point."""
    sd0 = np.sqrt(law.variance)
    tau, sd = _saddle(law, exponent, start)
    period = np.maximum(PERIOD * sd, law.spread())
    spacing = 2 * np.pi / period
    n_nodes = np.ceil(DECAY / sd0 / spacing).astype(int)
    result = np.empty(len(tau))
    order = np.argsort(n_nodes)
    for rows in np.array_split(order, max(1, len(order) // 64)):
        some, peak = law.rows(rows), exponent(law.rows(rows), rows, tau[rows, None] + 0j)[:, 0].real
        total = np.full(len(rows), 0.5)
        size = total.copy()
        n = int(n_nodes[rows].max())
        block = max(1, BLOCK // some.location[0].size)
        for first in range(1, n + 1, block):
            t = spacing[rows, None] * np.arange(first, min(first + block, n + 1))
            values = np.exp(exponent(some, rows, tau[rows, None] + 1j * t) - peak[:, None])
            total += values.real.sum(1)
            size += np.abs(values).sum(1)
        is_lost = total < LOST * size
        total[is_lost] = np.nan
        result[rows] = peak + np.log(spacing[rows] / np.pi * total)
    return result


def _saddle(law: Sum, exponent: Exponent, start: Numbers) -> tuple[Numbers, Numbers]:
    """Where the exponent is smallest on the real axis, and the standard deviation there.

    By Newton's method; where it leaves what is known to hold the smallest, this is halved. The
    exponent is infinite at zero if the start is not zero.
    """
    rows, tau, sd = np.arange(len(start)), start.copy(), np.sqrt(law.variance)
    low = np.where(start > 0, 0.0, -np.inf)
    high = np.where(start < 0, 0.0, np.inf)
    for _ in range(MOST_STEPS):
        step = 1e-3 / sd
        here = exponent(law, rows, tau[:, None] + 0j)[:, 0].real
        beside = exponent(law, rows, (tau + 1j * step)[:, None])[:, 0]
        slope, curvature = beside.imag / step, 2 * (here - beside.real) / step**2
        sd = np.sqrt(np.maximum(curvature, law.variance))
        low, high = np.where(slope < 0, tau, low), np.where(slope > 0, tau, high)
        newton = tau + np.clip(-slope / sd**2, -LONGEST_STEP / sd, LONGEST_STEP / sd)
        inside = (low < newton) & (newton < high)
        with np.errstate(invalid="ignore"):
            middle = (low + high) / 2
        new = np.where(inside | ~np.isfinite(middle), newton, middle)
        near = np.abs(new - tau) * sd < NEAR
        tau = new
        if near.all():
            break
    return tau, sd


def _log_interval(lower: Complex, upper: Complex) -> Complex:
    """``log(Phi(upper) - Phi(lower))``, of complex numbers; bounds may be infinite."""
    no_lower, no_upper = np.isneginf(lower.real).all(), np.isposinf(upper.real).all()
    if no_lower and no_upper:
        return np.zeros(np.broadcast(lower, upper).shape, complex)
    if no_lower:
        return _log_phi(upper)
    if no_upper:
        return _log_phi(-lower)
    right = (lower + upper).real > 0
    first, second = np.where(right, -lower, upper), np.where(right, -upper, lower)
    log_first, log_second = _log_phi(first), _log_phi(second)
    with np.errstate(divide="ignore"):
        return log_first + np.log(-np.expm1(log_second - log_first))


def _log_phi(z: Complex) -> Complex:
    """``log Phi(z)`` of complex numbers, however large."""
    is_right = z.real > 0
    log_tail = -(z**2) / 2 + np.log(erfcx(np.where(is_right, z, -z) / np.sqrt(2)) / 2)
    small = np.where(log_tail.real > 30, 0, log_tail)
    with np.errstate(divide="ignore"):
        right = np.where(log_tail.real > 30, log_tail + 1j * np.pi, np.log1p(-np.exp(small)))
    return np.where(is_right, right, log_tail)
