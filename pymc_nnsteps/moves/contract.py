"""The contract of a joint move, and the table of moves that the plan of a sweep goes through.

A move looks at the sweep as it stands and puts draws in the place of others. The decorator
:func:`proposes` enters it in the table with its priority. The package imports every module of this
room, so one new file adds a move.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import (
    positive_integer,
    require_bool,
    require_bool_or_auto,
    require_choice,
)
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.laws.conditional import Conditional, Shapes
from pymc_nnsteps.moves.marginal_likelihood import MarginalLikelihood
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


@dataclass
class Context:
    """A sweep as it stands while moves are put in, and what these know of the model."""

    model: pm.Model
    options: Options
    shapes: Shapes
    blocks: Sequence[Conditional]  # the conditionals as they were recognised
    sweep: Sequence[Conditional]  # what moves have made of them
    # Activations that moves integrate out, and what their children say of them.
    layers: dict[TensorVariable, MarginalLikelihood] = field(default_factory=dict)
    # Why no move has a variable that might have been expected to be in one.
    declined: dict[TensorVariable, str] = field(default_factory=dict)

    def put(
        self,
        draws: Sequence[Conditional],
        at: Conditional,
        removes: Collection[Conditional] = (),
    ) -> None:
        """Put draws in the place of one, without others that they make superfluous."""
        new: list[Conditional] = []
        for draw in self.sweep:
            if draw is at:
                new.extend(draws)
            elif not any(draw is removed for removed in removes):
                new.append(draw)
        self.sweep = new

    def read[T, **P](
        self,
        rv: TensorVariable,
        moved: str,
        find: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T | None:
        """What is found of a move of a variable, or None, where the reason is kept.

        ``moved`` is how, and ``collapsed`` and ``interwoven`` may be asked for.
        """
        try:
            return find(*args, **kwargs)
        except NotConjugate as reason:
            option = {"collapsed": "collapse", "interwoven": "interweave"}.get(moved)
            if option is not None and getattr(self.options, option) is True:
                raise ValueError(
                    f'{option} is True, but {describe(rv)} cannot be: {reason}; use "auto".'
                ) from None
            self.declined.setdefault(rv, f"not {moved}: {reason}")
            return None


Propose = Callable[[Context], None]
Moves = Callable[[Context], Iterable[Conditional]]

_TABLE: dict[int, Propose] = {}
"""Functions that put moves into a sweep, by priority."""


def proposes[P: Propose](priority: int) -> Callable[[P], P]:
    """Enter the decorated function in the table of moves.

    Those of lower numbers come first, and the others see what has become of the sweep.
    """
    if priority in _TABLE:
        raise ValueError(f"priority {priority} is that of another move; choose one beside it.")

    def enter(propose: P) -> P:
        _TABLE[priority] = propose
        return propose

    return enter


def moves_in_order() -> list[Propose]:
    """All moves, those of lower priority numbers first."""
    return [_TABLE[priority] for priority in sorted(_TABLE)]


def follows[M: Moves](priority: int) -> Callable[[M], M]:
    """Enter a function whose moves follow when all else has been drawn, unless rays are off."""

    def enter(moves: M) -> M:
        @proposes(priority)
        def propose(context: Context) -> None:
            if context.options.rays:
                context.sweep = [*context.sweep, *moves(context)]

        return moves

    return enter
