"""What is learnt while a chain is tuned: step sizes, and means that forget where it came from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
