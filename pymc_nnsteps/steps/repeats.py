"""How often a step repeats its moves within a draw, so that draws are nearly independent.

PyMC judges chains by some thousand draws, whatever a draw costs. Where a variable hardly moves from
one draw to the next, these are too few. A step therefore estimates autocorrelations in the second
half of tuning, and makes more moves for each draw after it. The number is then fixed, so that the
posterior is left invariant.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

SHORTEST = 250
"""Number of tuning draws from which autocorrelations are estimated, at least."""

MANY = 1000
"""The same, at most."""

FEW = 100
"""Largest number of elements of a variable that is judged: scales, biases and effects, not rows."""

TIME = 3
"""Autocorrelation time in draws that is left as it is."""

LARGEST = 10
"""Largest number of repeats."""


@dataclass(frozen=True)
class Repeats:
    """The number of repeats, and the draws that it will be judged by."""

    n: int = 1
    waits: int = 0  # number of tuning draws before those to judge by
    needed: int = 0  # number of draws to judge by
    seen: tuple[Array, ...] = ()

    @staticmethod
    def of(tune: int) -> "Repeats":
        """At the start of a chain with so many tuning draws."""
        needed = min(tune // 2, MANY)
        return Repeats(waits=tune - needed, needed=needed if needed >= SHORTEST else 0)

    def update(self, point: Mapping[str, np.ndarray], names: Iterable[str]) -> "Repeats":
        """Add a tuning draw of the variables that are judged."""
        if self.waits:
            return replace(self, waits=self.waits - 1)
        if len(self.seen) >= self.needed:
            return self
        few = [np.ravel(point[name]) for name in names if judges(point[name])]
        return replace(self, seen=(*self.seen, np.concatenate(few or [np.zeros(0)])))

    def judged(self) -> "Repeats":
        """After tuning."""
        if len(self.seen) < SHORTEST:
            return Repeats(self.n)
        slowest = max(map(autocorrelation_time, np.array(self.seen).T), default=1.0)
        return Repeats(min(max(round(slowest / TIME), 1), LARGEST))


def judges(value: np.ndarray) -> bool:
    """Whether a variable of this value is one to judge by."""
    return value.dtype.kind == "f" and value.size <= FEW


def autocorrelation_time(series: Array) -> float:
    """Sum of autocorrelations up to the first that is negative, to both sides."""
    deviations = series - series.mean()
    n = len(deviations)
    if not np.any(deviations):
        return 1.0
    covariances = np.correlate(deviations, deviations, "full")[n - 1 :]
    correlations = covariances / covariances[0]
    end = int(np.argmax(correlations < 0)) or n
    return float(2 * correlations[:end].sum() - 1)
