"""What the first tries of a rejection sampler tell: how long it will take, if ever."""

import math
from dataclasses import dataclass
from typing import override

PILOT_SECONDS, LONG_SECONDS = 2.0, 60.0
"""When to tell how long a run will take, and from what length on."""

UNITS = {"years": 31_557_600, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


@dataclass(frozen=True)
class Pilot:
    """What the tries so far tell of those to come."""

    draws: int
    accepted: int
    tries: int
    seconds: float

    @override
    def __str__(self) -> str:
        about = "about" if self.accepted else "more than"
        return (
            f"rejection_sample accepted {self.accepted} of {self.tries} tries: draws={self.draws} "
            f"take {about} {self._needed:.3g} tries and {_duration(self._needed * self._each)}"
        )

    @property
    def _needed(self) -> float:
        return self.draws * self.tries / max(self.accepted, 1)

    @property
    def _each(self) -> float:
        return self.seconds / self.tries

    def is_hopeless(self, max_tries: int) -> bool:
        """Whether of a billion runs with ``draws`` in ``max_tries`` tries none begins like this.

        By Chernoff's bound on the probability that a Poisson variable is so far below its mean.
        """
        mean = self.tries * self.draws / max_tries
        below = mean - self.accepted
        log_ratio = math.log(self.accepted / mean) if self.accepted else 0.0
        return below > 0 and below + self.accepted * log_ratio > math.log(1e9)

    def is_long(self, max_tries: int) -> bool:
        """Whether, as far as is known after some seconds, what is left takes more than a minute."""
        left = min(self._needed, max_tries) - self.tries
        return self.seconds > PILOT_SECONDS and left * self._each > LONG_SECONDS


def _duration(seconds: float) -> str:
    for unit, length in UNITS.items():
        if seconds >= length:
            return f"{seconds / length:.2g} {unit}"
    return "a second"
