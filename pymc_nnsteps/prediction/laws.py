r"""Log probabilities of decisions on normal utilities.

A threshold has :math:`P(z > t) = \Phi((\mu - t) / \sigma)`. The largest of several has

.. math::

    P(a = \operatorname{argmax} z) = \int \phi(t)
    \prod_{b \ne a} \Phi\Big(\frac{\mu_a + \sigma_a t - \mu_b}{\sigma_b}\Big) dt,

whose integrand is log-concave. Newton's method finds its mode, which it approaches from one side.
The trapezoidal rule about the mode gives the integral, and converges exponentially fast.
"""

import numpy as np
import scipy
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

REACH = 9.0
"""Half-width of the trapezoidal rule, in standard deviations."""

SPACING = 0.7
"""Spacing of nodes relative to the integrand's sharpest feature: an error of about exp(-40)."""

MOST_NODES = 1000

NEWTON_STEPS = 12

FAR = -1e4
"""Below it the second derivative of ``-log Phi`` is one to eight digits; rounding takes as many."""


def log_probability_above(level: float, mean: Numbers, sd: Numbers) -> tuple[Numbers, Numbers]:
    """``log P(z > level)`` and ``log P(z < level)`` of ``z ~ N(mean, sd^2)``.

    Examples
    --------
    >>> import numpy as np
    >>> above, below = log_probability_above(0.0, np.array([0.0, 40.0]), np.array([1.0, 2.0]))
    >>> np.exp(above).round(3), below.round(1)
    (array([0.5, 1. ]), array([  -0.7, -203.9]))
    """
    distance = (mean - level) / sd
    return scipy.special.log_ndtr(distance), scipy.special.log_ndtr(-distance)


def log_probability_of_largest(winner: NDArray[np.intp], mean: Numbers, sd: Numbers) -> Numbers:
    """Log of the probability that one of several independent normals is the largest.

    The relative error is that of rounding, unless standard deviations differ by a factor of 30.

    Parameters
    ----------
    winner : ndarray of int, shape (...)
    mean, sd : ndarray, shape (..., n_classes)

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    Of two it is the probability of one sign:

    >>> import numpy as np
    >>> from scipy.special import log_ndtr
    >>> mean, sd = np.array([[0.0, 30.0]]), np.ones((1, 2))
    >>> log_p = log_probability_of_largest(np.array([0]), mean, sd)
    >>> bool(np.isclose(log_p[0], scipy.special.log_ndtr(-30 / 2**0.5), rtol=1e-10))
    True
    """
    mean, sd = np.broadcast_arrays(mean, sd)
    n_classes = mean.shape[-1]
    others = np.arange(n_classes - 1) + (np.arange(n_classes - 1) >= winner[..., None])
    own_mean, own_sd = (np.take_along_axis(a, winner[..., None], -1) for a in (mean, sd))
    other_mean, other_sd = (np.take_along_axis(a, others, -1) for a in (mean, sd))
    start, slope = (own_mean - other_mean) / other_sd, own_sd / other_sd

    mode = np.zeros(winner.shape)
    for _ in range(NEWTON_STEPS):
        gradient, curvature = _derivatives(mode, start, slope)
        mode = mode - gradient / curvature
    _, curvature = _derivatives(mode, start, slope)
    sd_left = 1 / np.sqrt(-curvature)
    width = REACH * (sd_left + 1)
    sharpest = np.minimum(sd_left, 1 / slope.max(axis=-1, initial=1.0))
    needed = np.max(width / (SPACING * sharpest), initial=1.0)
    n_nodes = int(min(np.ceil(needed), MOST_NODES)) + 1
    t = (mode - REACH * sd_left)[..., None] + width[..., None] * np.linspace(0.0, 1.0, n_nodes)
    log_integrand = -0.5 * t**2
    for b in range(n_classes - 1):
        log_integrand = log_integrand + scipy.special.log_ndtr(
            start[..., b, None] + slope[..., b, None] * t
        )
    scale = np.log(width / (n_nodes - 1)) - 0.5 * np.log(2 * np.pi)
    return np.minimum(scipy.special.logsumexp(log_integrand, axis=-1) + scale, 0.0)


def _derivatives(t: Numbers, start: Numbers, slope: Numbers) -> tuple[Numbers, Numbers]:
    """First and second derivative of the log of the integrand."""
    x = start + slope * t[..., None]
    hazard = np.sqrt(2 / np.pi) / scipy.special.erfcx(-x / np.sqrt(2))
    bend = np.where(x < FAR, 1.0, hazard * (hazard + x))
    gradient = -t + (slope * hazard).sum(-1)
    curvature = -1.0 - (slope**2 * bend).sum(-1)
    return gradient, curvature
