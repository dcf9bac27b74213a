r"""The law of a sum of independent units and normal noise, by its moment-generating function.

With :math:`K(s) = \log E e^{s F}` of the sum F, analytic in all of the plane,

.. math::

    p(y) = \frac{1}{2 \pi i} \int_{\tau - i \infty}^{\tau + i \infty} e^{K(s) - s y} ds, \qquad
    P(F > t) = \frac{1}{2 \pi i} \int_{\tau - i \infty}^{\tau + i \infty}
    e^{K(s) - s t} \frac{ds}{s}, \quad \tau > 0.

The path goes through the saddle point, where the integrand is real and largest, so that nothing
cancels however far in a tail y is; the trapezoidal rule on it converges exponentially, since normal
noise makes the integrand fall like :math:`e^{-C t^2 / 2}`. It takes the law to repeat itself after
a period, and no result counts that half of the period does not confirm. A unit that is
:math:`\alpha_k + \beta_k e` with weight :math:`w_k`, e standard normal between :math:`a_k` and
:math:`b_k`, has

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
import scipy
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Complex = NDArray[np.complexfloating[Any, Any]]

PERIOD = 24.0
"""Lower limit of the period of the trapezoidal rule, in standard deviations."""

AGREEMENT = 1e-5
"""Relative difference of results with one period and half of it; that of twice is far smaller."""

DOUBLINGS = 2
"""Maximal number of doublings of the period before a result counts as lost."""

DECAY = 7.5
"""Point ``t`` where ``exp(-t^2 / 2)`` falls below 1e-12."""

MOST_NODES = 2**20

MOST_STEPS = 200
LONGEST_STEP = 5.0
"""Upper limit of the first step, in units of the tilted law's standard deviation."""

LOST = 1e-8
"""Share of what is summed below which a sum has cancelled: digits are lost."""

NEAR = 0.01
"""Tolerated distance of the path from the saddle, in the tilted law's standard deviations."""

BLOCK = 2**18
"""Number of complex numbers evaluated at a time."""

NEGLIGIBLE = 1e-14


@dataclass(frozen=True)
class Sum:
    """``F = offset + sum_j x_j + N(0, variance)``, in rows."""

    # shape (n_obs,).
    offset: Numbers
    variance: Numbers
    # shape (components, n_obs, units).
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
        logs = self._logs(s)
        largest = np.max([log.real for log in logs], axis=0)
        total: Complex = np.sum([np.exp(log - largest) for log in logs], axis=0)
        units: Any = largest + np.log(total)
        normal = s * self.offset[:, None] + s**2 * self.variance[:, None] / 2
        return normal + units.sum(-1)

    def _logs(self, s: Complex) -> list[Complex]:
        """Logs of the terms of ``E exp(s x)`` by components, of shape (n_obs, n_points, units)."""
        each = s[..., None]
        components = (self.weight, self.location, self.scale, self.lower, self.upper)
        logs = []
        for weight, location, scale, lower, upper in zip(*components, strict=True):
            shift = each * scale[:, None] if scale.any() else np.zeros((1, 1, 1), complex)
            log_mass = _log_interval(lower[:, None] - shift, upper[:, None] - shift)
            log_weight = np.log(np.maximum(weight, np.finfo(float).tiny))[:, None]
            logs.append(log_weight + each * location[:, None] + shift**2 / 2 + log_mass)
        return logs

    def spread(self, tau: Numbers) -> Numbers:
        """Width of what has probability in the law tilted by ``exp(tau F)``, shape (n_obs,)."""
        log_mass = np.stack([log.real[:, 0] for log in self._logs(tau[:, None] + 0j)])
        has = log_mass > log_mass.max(axis=0) + np.log(NEGLIGIBLE)
        center = np.clip(tau[:, None] * self.scale, self.lower, self.upper)
        location = self.location + self.scale * np.where(has, center, 0)
        top = np.where(has, location, -np.inf).max(axis=0)
        bottom = np.where(has, location, np.inf).min(axis=0)
        normal = np.sqrt((np.where(has, self.scale, 0) ** 2).max(axis=0).sum(1) + self.variance)
        return (top - bottom).sum(1) + 2 * DECAY * normal


def log_density(law: Sum, y: Numbers) -> Numbers:
    """Log density of the sum at ``y`` (n_obs,); NaN far from all of its modes and between them."""

    def exponent(some: Sum, rows: NDArray[np.intp], s: Complex) -> Complex:
        return some.cumulant(s) - s * y[rows, None]

    return _integral(law, exponent, np.zeros(len(y)))


def log_tail(law: Sum, level: float) -> tuple[Numbers, Numbers]:
    """``log P(F > level)`` and ``log P(F < level)``; NaN as for :func:`log_density`."""
    step = 1e-8 / np.sqrt(law.variance)
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
    tau, sd = _saddle(law, exponent, start)
    result = np.full(len(tau), np.nan)
    [rows] = np.nonzero(np.isfinite(tau))
    period = np.maximum(PERIOD * sd, law.spread(np.nan_to_num(tau)))
    for _ in range(1 + DOUBLINGS):
        spacing = 2 * np.pi / period
        n_nodes = np.ceil(DECAY / np.sqrt(law.variance) / spacing).astype(int)
        unsettled = []
        rows = rows[n_nodes[rows] <= MOST_NODES]
        rows = rows[np.argsort(n_nodes[rows])]
        for some in np.array_split(rows, max(1, len(rows) // 64)):
            part = law.rows(some), exponent, some, tau[some], spacing[some]
            log, is_settled = _trapezoids(*part, int(n_nodes[some].max(initial=0)))
            result[some[is_settled]] = log[is_settled]
            unsettled.append(some[~is_settled])
        rows, period = np.concatenate(unsettled), 2 * period
    return result


def _trapezoids(
    law: Sum,
    exponent: Exponent,
    rows: NDArray[np.intp],
    tau: Numbers,
    spacing: Numbers,
    n_nodes: int,
) -> tuple[Numbers, NDArray[np.bool]]:
    """Log of the integral, NaN where digits are lost, and whether another period is no use."""
    peak = exponent(law, rows, tau[:, None] + 0j)[:, 0].real
    total = np.full(len(rows), 0.5)
    every_other, size = total.copy(), total.copy()
    block = max(1, BLOCK // max(law.location[0].size, 1))
    for first in range(1, n_nodes + 1, block):
        number = np.arange(first, min(first + block, n_nodes + 1))
        s = tau[:, None] + 1j * spacing[:, None] * number
        values = np.exp(exponent(law, rows, s) - peak[:, None])
        total += values.real.sum(1)
        every_other += values.real[:, number % 2 == 0].sum(1)
        size += np.abs(values).sum(1)
    is_lost = ~(total >= LOST * size)
    total[is_lost] = np.nan
    is_settled = is_lost | (np.abs(2 * every_other - total) < AGREEMENT * total)
    return peak + np.log(spacing / np.pi * total), is_settled


def _saddle(law: Sum, exponent: Exponent, start: Numbers) -> tuple[Numbers, Numbers]:
    """Where the exponent, convex on the real axis, is smallest, and the deviation there.

    By Newton's method in steps that may grow, or by halving; NaN where it has not arrived.
    """
    tau, sd = np.full((2, len(start)), np.nan)
    rows, t, width = np.arange(len(start)), start.copy(), np.sqrt(law.variance)
    low, high = np.where(start > 0, 0.0, -np.inf), np.where(start < 0, 0.0, np.inf)
    steepest, longest = np.full(len(start), np.inf), LONGEST_STEP
    for _ in range(MOST_STEPS):
        step = np.outer(1 / width, [0, 1e-8, 1e-3])
        here, beside, apart = exponent(law.rows(rows), rows, t[:, None] + 1j * step).T
        slope = beside.imag / step[:, 1]
        curvature = 2 * (here.real - apart.real) / step[:, 2] ** 2
        width = np.sqrt(np.maximum(curvature, law.variance[rows]))
        low, high = np.where(slope < 0, t, low), np.where(slope > 0, t, high)
        newton = t - slope / width**2
        is_near = np.minimum(np.abs(newton - t), high - low) * width < NEAR
        tau[rows[is_near]], sd[rows[is_near]] = np.clip(newton, low, high)[is_near], width[is_near]
        within = np.isfinite(high - low)
        slow = within & ((newton <= low) | (newton >= high) | (np.abs(slope) > steepest / 2))
        limit = longest / width
        with np.errstate(invalid="ignore"):
            new = np.where(within, newton, np.clip(newton, t - limit, t + limit))
            new = np.where(slow, (low + high) / 2, new)
        steepest, longest = np.abs(slope), 2 * longest
        going = ~is_near
        if not going.any():
            break
        rows, t, width, low, high, steepest = (
            each[going] for each in (rows, new, width, low, high, steepest)
        )
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
    log_tail = -(z**2) / 2 + np.log(scipy.special.erfcx(np.where(is_right, z, -z) / np.sqrt(2)) / 2)
    small = np.where(log_tail.real > 30, 0, log_tail)
    with np.errstate(divide="ignore"):
        right = np.where(log_tail.real > 30, log_tail + 1j * np.pi, np.log1p(-np.exp(small)))
    return np.where(is_right, right, log_tail)
