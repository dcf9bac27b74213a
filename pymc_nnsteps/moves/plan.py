"""What a joint move is, the table of moves, and the plan of a sweep.

A move looks at the sweep as it stands and puts draws in the place of others. The decorator
:func:`proposes` enters it in the table with its priority. The package imports every module of this
room, so one new file adds a move. A variable that a draw integrates out must be drawn afresh before
anything else is given it, see :func:`check_scan`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from shutil import get_terminal_size
from textwrap import fill
from typing import Literal, get_args, override

import pandas as pd
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
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.laws.conditional import Conditional, Move, Shapes
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves.marginal_likelihood import MarginalLikelihood
from pymc_nnsteps.tables import as_text

Scan = Literal["sequential", "parallel"]

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
        draws: Sequence[Conditional | None],
        at: Conditional,
        removes: Collection[Conditional | None] = (),
    ) -> None:
        """Put draws, if not None, in the place of one, without others made superfluous."""
        new = [draw for draw in draws if draw is not None]
        kept = [d for d in self.sweep if d is at or not any(d is removed for removed in removes)]
        self.sweep = [each for draw in kept for each in (new if draw is at else [draw])]

    @property
    def integrated_out(self) -> set[TensorVariable]:
        """Variables that some draw of the sweep integrates out."""
        return {rv for draw in self.sweep for rv in draw.integrates_out}

    def read[T, **P](
        self,
        rv: TensorVariable,
        moved: str,
        find: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T | None:
        """What is found of a move ``moved`` of a variable, or None, where the reason is kept."""
        try:
            return find(*args, **kwargs)
        except NotConjugate as reason:
            if moved == "interwoven" and self.options.interweave is True:
                raise ValueError(
                    f"interweave is True, but {describe(rv)} cannot be interwoven: {reason}; "
                    'use "auto".'
                ) from None
            self.declined.setdefault(rv, f"not {moved}: {reason}")
            return None


Propose = Callable[[Context], None]
Moves = Callable[[Context], Iterable[Conditional]]

_TABLE: dict[int, Propose] = {}
"""Functions that put moves into a sweep, by priority."""


def proposes[P: Propose](priority: int) -> Callable[[P], P]:
    """Enter the decorated function in the table of moves, those of lower numbers first."""
    if priority in _TABLE:
        raise ValueError(f"priority {priority} is that of another move; choose one beside it.")

    def enter(propose: P) -> P:
        _TABLE[priority] = propose
        return propose

    return enter


def follows[M: Moves](priority: int) -> Callable[[M], M]:
    """Enter a function whose moves follow when all else has been drawn, unless rays are off."""

    def enter(moves: M) -> M:
        @proposes(priority)
        def propose(context: Context) -> None:
            if context.options.rays:
                context.sweep = [*context.sweep, *moves(context)]

        return moves

    return enter


def order_scan(
    conditionals: Sequence[Conditional], scan: Scan, model: pm.Model
) -> list[Conditional]:
    """Order conditionals: in the model's order, or "parallel" by groups, one after another."""
    if scan == "sequential":
        return list(conditionals)
    return sorted(conditionals, key=lambda conditional: conditional.group(model))


def check_scan(
    conditionals: Sequence[Conditional], given: Sequence[Collection[TensorVariable]]
) -> None:
    """Check that no draw uses a variable integrated out before its fresh draw in this sweep."""
    stale: dict[TensorVariable, Conditional] = {}
    for conditional, conditions in zip(conditionals, given, strict=True):
        for rv in stale.keys() & set(conditions):
            drawn = describe(conditional.draws[0]) if conditional.draws else conditional.name
            raise ValueError(
                f"{drawn} is drawn given {describe(rv)}, which was "
                f"integrated out of the draw of {describe(stale[rv].draws[0])} and has not been "
                "drawn afresh."
            )
        for rv in conditional.draws:
            stale.pop(rv, None)
        stale.update(dict.fromkeys(conditional.integrates_out, conditional))
    for rv, conditional in stale.items():
        raise ValueError(
            f"{describe(rv)} was integrated out of the draw of {describe(conditional.draws[0])} "
            "and has not been drawn afresh when the sweep ends."
        )


def refreshed_after(conditionals: Sequence[Conditional]) -> list[int]:
    """Numbers of draws after which all that was integrated out before is drawn afresh."""
    stale: set[TensorVariable] = set()
    found = []
    for number, conditional in enumerate(conditionals[:-1], start=1):
        waited = bool(stale)
        stale = stale.difference(conditional.draws).union(conditional.integrates_out)
        if waited and not stale:
            found.append(number)
    return found


@dataclass(frozen=True)
class Explanation:
    """The draws of a sweep, with one row per free variable, printed as a table."""

    # Variable, conditional (None if there is none), and how or why not.
    rows: tuple[tuple[str, str | None, str], ...]
    # Variable, another step that ``pm.sample`` gives it to by itself, and why.
    beside: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()  # what these steps do besides
    details: bool = False  # whether it prints all of this, or what fits the terminal's width

    @override
    def __str__(self) -> str:
        if self.details:
            return "\n".join([as_text(*self._table(str)), *self._remarks(str)])
        width = get_terminal_size().columns
        remarks = [fill(each, width, subsequent_indent="  ") for each in self._remarks(_first)]
        return "\n".join([as_text(*self._table(_first), width), *remarks])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        header, rows = self._table(str)
        table = pd.DataFrame(rows, columns=header).to_html(index=False)
        return table + "".join(f"<p>{escape(each)}</p>" for each in self._remarks(str))

    def _table(self, said: Callable[[str], str]) -> tuple[list[str], list[list[str]]]:
        """Header and rows; with steps, if any is not Gibbs, which for some are reason enough."""
        steps = {variable: step for variable, step, _ in self.beside}
        header = ["variable", *(["step"] if steps else []), "conditional", ""]
        rows = []
        for variable, found, why in self.rows:
            step = steps.get(variable, "Gibbs")
            how = "" if said is _first and step in ("HMC", "PCNL") else said(why)
            rows.append([variable, *([step] if steps else []), found or "-", how])
        return header, rows

    def _remarks(self, said: Callable[[str], str]) -> list[str]:
        """What other steps draw and why, and the notes."""
        given: dict[tuple[str, str], list[str]] = {}
        for variable, step, why in self.beside:
            given.setdefault((step, said(why)), []).append(variable)
        beside = [
            f"pm.sample gives {', '.join(variables)} to {step}: {why}"
            for (step, why), variables in given.items()
        ]
        return [*beside, *self.notes]


def _first(reasons: str) -> str:
    """The first of several reasons; none where there are but names of children."""
    first = reasons.partition("; ")[0]
    return "" if first.startswith("children: ") else first


@dataclass(frozen=True)
class Plan:
    """A sweep."""

    sweep: tuple[Conditional, ...]  # in the order in which they are drawn
    explanation: Explanation


def plan(
    model: pm.Model,
    rvs: Collection[TensorVariable],
    options: Options,
    shapes: Shapes,
    reasons: Mapping[TensorVariable, str] | None = None,
) -> Plan:
    """Plan the sweep that draws some variables, or conditionals by variable.

    The joint moves of the table (:func:`proposes`) replace conditionals in the order of
    their priorities; ``reasons`` say why others are not drawn.
    """
    blocks = find_conditionals(model, rvs)
    context = Context(model, options, shapes, blocks, blocks)
    for priority in sorted(_TABLE):
        _TABLE[priority](context)
    ordered = tuple(order_scan(context.sweep, options.scan, model))
    reasons = reasons or {}
    rows: list[tuple[str, str | None, str]] = []
    for rv in model.free_RVs:
        if rv in reasons:
            rows.append((describe(rv), None, reasons[rv]))
        elif any(rv in draw.draws for draw in ordered):
            rows.append(_row(model, rv, ordered, context.declined.get(rv)))
    return Plan(ordered, Explanation(tuple(rows)))


def _row(
    model: pm.Model, rv: TensorVariable, sweep: Sequence[Conditional], note: str | None
) -> tuple[str, str, str]:
    drawing = [draw for draw in sweep if rv in draw.draws]
    own = [draw for draw in drawing if not draw.supplements]
    exact = [draw for draw in own if not isinstance(draw, Move)]
    law = ([draw for draw in exact if not draw.integrates_out] or exact or own)[-1]
    notes = law.explain_law(rv)
    for draw in drawing:
        if draw is not law:
            notes += [note for note in draw.explain_move(rv) if note not in notes]
    if note is not None:
        notes.append(note)
    notes.append(f"children: {', '.join(map(describe, children(model, rv))) or 'none'}")
    return describe(rv), law.name, "; ".join(notes)
