"""How a sweep is put together."""

from dataclasses import dataclass
from typing import Literal, get_args

from pymc_nnsteps.arguments import (
    positive_integer,
    require_bool,
    require_bool_or_auto,
    require_choice,
)
from pymc_nnsteps.moves.scan import Scan

Choice = bool | Literal["auto"]
"""Whether to draw jointly: always, never, or where it is quick."""


@dataclass(frozen=True)
class Options:
    """How a sweep is put together, see :class:`pymc_nnsteps.Gibbs`."""

    scan: Scan = "sequential"
    collapse: Choice = "auto"
    interweave: Choice = "auto"
    passes: int = 5
    rays: bool = True
    trajectories: bool = True

    def __post_init__(self) -> None:
        """Check the choices."""
        require_choice("scan", self.scan, get_args(Scan))
        for name in ("collapse", "interweave"):
            require_bool_or_auto(name, getattr(self, name))
        positive_integer("passes", self.passes)
        for name in ("rays", "trajectories"):
            require_bool(name, getattr(self, name))
