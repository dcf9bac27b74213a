"""What is learnt while a chain is tuned: step sizes, means, and how often moves are repeated.

PyMC judges chains by some thousand draws, whatever a draw costs. Where a variable hardly moves from
one draw to the next, these are too few. A step therefore estimates autocorrelations in the second
half of tuning, and makes more moves for each draw after it. The number is then fixed, so that the
posterior is left invariant.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

STEPS_TO_SETTLE = 10
SHRINKAGE = 0.05
FORGETTING = 0.75
LARGEST_SHIFT = 50.0


@dataclass(frozen=True)
class DualAveraging:
    """State of the adaptation; :meth:`update` returns the next one.

    Hoffman and Gelman, *The No-U-Turn Sampler*, JMLR 15 (2014), Section 3.2.
    """

    target: float  # acceptance probability to aim at
    start: float  # first coordinate, towards which later ones are shrunk
    shift: float = 0.0
    average_shift: float = 0.0
    error: float = 0.0
    count: int = 0

    @property
    def current(self) -> float:
        """Coordinate to propose with while it is adapted."""
        return self.start + self.shift

    @property
    def average(self) -> float:
        """Coordinate to keep when the adaptation ends."""
        return self.start + self.average_shift

    def update(self, acceptance: float) -> "DualAveraging":
        """Update the state with the acceptance probability of a proposal."""
        count = self.count + 1
        weight = 1 / (count + STEPS_TO_SETTLE)
        error = (1 - weight) * self.error + weight * (self.target - acceptance)
        shift = -error * count**0.5 / SHRINKAGE
        shift = min(max(shift, -LARGEST_SHIFT), LARGEST_SHIFT)
        fresh = count**-FORGETTING
        average_shift = fresh * shift + (1 - fresh) * self.average_shift
        return DualAveraging(self.target, self.start, shift, average_shift, error, count)


RECENT = 8
"""Exponent of the weights of tuning draws in the learnt curvature: draw n has weight n^RECENT."""


@dataclass(frozen=True)
class Recent:
    """Running means in which the n-th value has a weight proportional to ``n ** RECENT``."""

    means: list[np.ndarray]
    count: int = 0

    def update(self, values: Sequence[np.ndarray]) -> "Recent":
        """Add values to the means; those that are not finite are skipped."""
        if not all(np.isfinite(value).all() for value in values):
            return self
        count = self.count + 1
        weight = (RECENT + 1) / (count + RECENT + 1)
        pairs = zip(self.means, values, strict=True)
        return Recent([np.asarray(mean + weight * (x - mean)) for mean, x in pairs], count)

    @property
    def effective_count(self) -> float:
        """Number of values of equal weight whose mean would be as precise."""
        return 1 + self.count * (2 * RECENT + 1) / (RECENT + 1) ** 2


SHORTEST = 250
"""Number of tuning draws from which autocorrelations are estimated, at least."""

MANY = 1000
"""The same, at most."""

FEW = 100
"""Largest number of elements of a variable that is judged: scales, biases and effects, not rows."""

TIME = 3
"""Autocorrelation time in draws that is left as it is."""

LARGEST = 16
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
        values = [np.asarray(point[name]) for name in names]
        few = [np.ravel(x) for x in values if x.dtype.kind == "f" and x.size <= FEW]
        return replace(self, seen=(*self.seen, np.concatenate(few or [np.zeros(0)])))

    def judged(self) -> "Repeats":
        """After tuning."""
        if len(self.seen) < SHORTEST:
            return Repeats(self.n)
        slowest = max(map(autocorrelation_time, np.array(self.seen).T), default=1.0)
        return Repeats(min(max(round(slowest / TIME), 1), LARGEST))


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
