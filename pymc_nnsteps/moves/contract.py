"""The contract of a joint move, and the table of moves that the plan of a sweep goes through.

A move looks at the sweep as it stands and proposes draws that take the place of others. The
decorator :func:`proposes` enters it in the table with its priority. The package imports every
module of this room, so one new file adds a move.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import (
    positive_integer,
    require_bool,
    require_bool_or_auto,
    require_choice,
)
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


@dataclass(frozen=True)
class Replacement:
    """Draws that take the place of others."""

    at: Conditional  # the draw of a sweep in whose place they are put
    removes: tuple[Conditional, ...]  # further draws that they make superfluous
    puts: tuple[Conditional, ...]  # in the order in which they must follow each other

    def apply(self, sweep: Sequence[Conditional]) -> list[Conditional]:
        """The sweep with the replacement made."""
        new: list[Conditional] = []
        for draw in sweep:
            if draw is self.at:
                new.extend(self.puts)
            elif not any(draw is removed for removed in self.removes):
                new.append(draw)
        return new


@dataclass(frozen=True)
class Proposals:
    """What a move proposes."""

    replacements: tuple[Replacement, ...] = ()
    # Activations that the new draws integrate out, and what their children say of them.
    layers: Mapping[TensorVariable, MarginalLikelihood] = field(default_factory=dict)
    # Why there is none, for variables that might have been expected to have one.
    declined: Mapping[TensorVariable, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What a move knows of the model and of the sweep as it stands."""

    model: pm.Model
    options: Options
    shapes: Shapes
    blocks: Sequence[Conditional]  # the conditionals as they were recognised
    sweep: Sequence[Conditional]  # what the moves before have made of them
    # Activations that the moves before integrate out, and what their children say of them.
    layers: Mapping[TensorVariable, MarginalLikelihood] = field(default_factory=dict)
    # Why a move before does nothing for a variable that might have been expected to be in it.
    declined: Mapping[TensorVariable, str] = field(default_factory=dict)

    def after(self, proposals: Proposals) -> "Context":
        """The context with proposals made; of two that speak of a variable the first counts."""
        sweep = self.sweep
        for replacement in proposals.replacements:
            sweep = replacement.apply(sweep)
        return replace(
            self,
            sweep=sweep,
            layers={**proposals.layers, **self.layers},
            declined={**proposals.declined, **self.declined},
        )


Propose = Callable[[Context], Proposals]
Moves = Callable[[Context], Iterable[Conditional]]


@dataclass(frozen=True)
class Move:
    """Line of the table."""

    # Moves of lower numbers propose first, and the others see what has become of the sweep.
    priority: int
    # ``propose(context)`` gives the proposals of the move, none where it has nothing to do.
    propose: Propose


_TABLE: list[Move] = []


def proposes[P: Propose](priority: int) -> Callable[[P], P]:
    """Enter the decorated function in the table of moves."""
    if any(move.priority == priority for move in _TABLE):
        raise ValueError(f"priority {priority} is that of another move; choose one beside it.")

    def enter(propose: P) -> P:
        _TABLE.append(Move(priority, propose))
        return propose

    return enter


def moves_in_order() -> list[Move]:
    """All moves, those of lower priority numbers first."""
    return sorted(_TABLE, key=lambda move: move.priority)


def at_the_end(context: Context, moves: Iterable[Conditional]) -> Proposals:
    """Propose moves that follow when all else has been drawn."""
    last = context.sweep[-1]
    return Proposals((Replacement(last, (), (last, *moves)),))


def follows[M: Moves](priority: int) -> Callable[[M], M]:
    """Enter a function whose moves follow when all else has been drawn, unless rays are off."""

    def enter(moves: M) -> M:
        @proposes(priority)
        def propose(context: Context) -> Proposals:
            if not context.options.rays or not context.sweep:
                return Proposals()
            return at_the_end(context, moves(context))

        return moves

    return enter
