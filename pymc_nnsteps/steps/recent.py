"""Running means that forget where a chain has come from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RECENT = 8
"""Exponent of the weights of tuning draws in the learnt curvature: draw n has weight n^RECENT."""


@dataclass(frozen=True)
class Recent:
    """Running means that weigh recent values most.

    The n-th value has a weight proportional to ``n ** RECENT``, so that a chain's way to its
    typical places is forgotten.
    """

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
