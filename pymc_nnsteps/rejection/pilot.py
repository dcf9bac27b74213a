"""Run time of a rejection sampler, predicted from its first tries."""

import math
from dataclasses import dataclass
from typing import override

import numpy as np
from numpy.typing import NDArray

PILOT_SECONDS, LONG_SECONDS = 2.0, 60.0
"""Seconds of tries before a prediction; predicted seconds from which a run counts as long."""

TAIL, MARGIN = 10, 10
"""One in so many tries is of the tail that is extrapolated; by what factor it must be too thin."""

UNITS = {"years": 31_557_600, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


@dataclass(frozen=True)
class Pilot:
    """Prediction of further tries from the tries so far."""

    draws: int
    accepted: int
    tries: int
    seconds: float
    log_rate: float = 0.0
    """Log of the acceptance probability by :func:`log_acceptance`."""

    @override
    def __str__(self) -> str:
        about = "about" if self.accepted else "more than"
        return (
            f"rejection_sample accepted {self.accepted} of {self.tries} tries: draws={self.draws} "
            f"take {about} {self._longest:.3g} tries and {_duration(self._longest * self._each)}"
        )

    @property
    def _extrapolated(self) -> float:
        return self.draws * math.exp(min(-self.log_rate, 690.0))

    @property
    def _longest(self) -> float:
        return self._needed if self.accepted else max(self._needed, self._extrapolated)

    @property
    def _needed(self) -> float:
        return self.draws * self.tries / max(self.accepted, 1)

    @property
    def _each(self) -> float:
        return self.seconds / self.tries

    def is_hopeless(self, max_tries: int) -> bool:
        """Whether of a billion runs with ``draws`` in ``max_tries`` tries none begins like this.

        By Chernoff's bound on the probability that a Poisson variable is so far below its mean.
        Where it would take seconds to be so sure, it is enough that the tail of the log ratios is
        far too thin.
        """
        certain = math.log(1e9) * max_tries / self.draws
        too_thin = self._extrapolated > MARGIN * max_tries
        if not self.accepted and too_thin and certain * self._each > PILOT_SECONDS:
            return True
        mean = self.tries * self.draws / max_tries
        below = mean - self.accepted
        log_ratio = math.log(self.accepted / mean) if self.accepted else 0.0
        return below > 0 and below + self.accepted * log_ratio > math.log(1e9)

    def is_long(self, max_tries: int) -> bool:
        """Whether, as far as is known after some seconds, what is left takes more than a minute."""
        left = min(self._needed, max_tries) - self.tries
        return self.seconds > PILOT_SECONDS and left * self._each > LONG_SECONDS


def log_acceptance(log_ratios: NDArray[np.floating]) -> float:
    """Log of the mean probability of acceptance, from above, by some tries.

    The larger of the mean over the tries, and of what their tail says: the probability that minus
    a log ratio is below x falls as a power of x, as it does for squares of residuals, with the
    exponent of Hill's estimator less three standard errors. The exponent of such squares grows
    towards zero, so the power law overestimates.

    Parameters
    ----------
    log_ratios : ndarray
        Log probabilities of acceptance; NaN or minus infinity for impossible tries.

    Examples
    --------
    >>> squares = np.random.default_rng(0).normal(size=(2000, 30)) ** 2
    >>> bool(log_acceptance(-1e4 * squares.sum(1)) < -50)
    True
    >>> bool(log_acceptance(-squares[:, 0]) > -1)
    True
    """
    ratios = np.where(np.isnan(log_ratios), -np.inf, np.minimum(log_ratios, 0.0))
    n_tail = len(ratios) // TAIL
    mean = float(np.logaddexp.reduce(ratios)) - math.log(len(ratios))
    if n_tail < TAIL:
        return 0.0
    x = np.maximum(-np.sort(ratios)[::-1][: n_tail + 1], np.finfo(float).tiny)
    if not np.isfinite(x[-1]):
        return 0.0
    spread = float(np.mean(np.log(x[-1] / x[:-1])))
    exponent = (1 - 3 / math.sqrt(n_tail)) / max(spread, 1e-9)
    tail = -math.log(TAIL) - exponent * math.log(x[-1]) + math.lgamma(exponent + 1)
    return min(0.0, max(mean, tail))


def _duration(seconds: float) -> str:
    for unit, length in UNITS.items():
        if seconds >= length:
            return f"{seconds / length:.2g} {unit}"
    return "a second"
