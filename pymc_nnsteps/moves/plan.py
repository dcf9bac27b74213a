"""What a Gibbs sweep draws, jointly and in which order, and the table that says so."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from shutil import get_terminal_size
from textwrap import fill
from typing import override

import pandas as pd
import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.laws.conditional import Conditional, Move, Shapes
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves.contract import Context, Options, moves_in_order, order_scan
from pymc_nnsteps.tables import as_text


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
            return "\n".join([as_text(*self._table(_whole)), *self._remarks(_whole)])
        width = get_terminal_size().columns
        remarks = [fill(each, width, subsequent_indent="  ") for each in self._remarks(_first)]
        return "\n".join([as_text(*self._table(_first), width), *remarks])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        header, rows = self._table(_whole)
        table = pd.DataFrame(rows, columns=header).to_html(index=False)
        return table + "".join(f"<p>{escape(each)}</p>" for each in self._remarks(_whole))

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


def _whole(reasons: str) -> str:
    return reasons


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

    The joint moves of the table (:func:`.contract.proposes`) replace conditionals in the order of
    their priorities; ``reasons`` say why others are not drawn.
    """
    blocks = find_conditionals(model, rvs)
    context = Context(model, options, shapes, blocks, blocks)
    for propose in moves_in_order():
        propose(context)
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
