"""What a Gibbs sweep draws, jointly and in which order, and the table that says so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args, override

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import positive_integer, require_bool_or_auto, require_choice
from pymc_nnsteps.conditionals.conditional import Conditional, Shapes
from pymc_nnsteps.conditionals.effects import join_effects
from pymc_nnsteps.conditionals.recognition import find_conditionals
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.joint.chain import propose_chains
from pymc_nnsteps.joint.collapse import propose_collapsed
from pymc_nnsteps.joint.interwoven_gates import propose_interwoven_gates
from pymc_nnsteps.joint.interwoven_rows import propose_interwoven
from pymc_nnsteps.joint.replacement import Choice, Replacement
from pymc_nnsteps.joint.residual_scales import ResidualScale
from pymc_nnsteps.joint.responses import propose_responses
from pymc_nnsteps.joint.scan import Scan, order_scan
from pymc_nnsteps.tables import as_text


@dataclass(frozen=True)
class Options:
    """How a sweep is put together, see :class:`pymc_nnsteps.Gibbs`.

    Raises
    ------
    ValueError
        If one of them is none of its choices.
    """

    scan: Scan = "sequential"
    collapse: Choice = "auto"
    interweave: Choice = "auto"
    passes: int = 5

    def __post_init__(self) -> None:
        """Check the choices."""
        require_choice("scan", self.scan, get_args(Scan))
        for name in ("collapse", "interweave"):
            require_bool_or_auto(name, getattr(self, name))
        positive_integer("passes", self.passes)


@dataclass(frozen=True)
class Explanation:
    """What is drawn and how: one row per free variable, printed as a table.

    Attributes
    ----------
    rows : tuple of (str, str or None, str)
        Variable, conditional (None if there is none), and how or why not.
    beside : tuple of (str, str, str)
        Variable, another step that ``pm.sample`` gives it to by itself, and why.
    """

    rows: tuple[tuple[str, str | None, str], ...]
    beside: tuple[tuple[str, str, str], ...] = ()

    @override
    def __str__(self) -> str:
        rows = [(variable, found or "-", why) for variable, found, why in self.rows]
        table = as_text(["variable", "conditional", ""], rows)
        given: dict[tuple[str, str], list[str]] = {}
        for variable, step, why in self.beside:
            given.setdefault((step, why), []).append(variable)
        notes = [
            f"pm.sample gives {', '.join(variables)} to {step}: {why}"
            for (step, why), variables in given.items()
        ]
        return "\n".join([table, *notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{self}</pre>"


@dataclass(frozen=True)
class Plan:
    """A sweep.

    Attributes
    ----------
    sweep : tuple of Conditional
        In the order in which they are drawn.
    explanation : Explanation
        The same as a table.
    """

    sweep: tuple[Conditional, ...]
    explanation: Explanation


def plan(
    model: pm.Model,
    rvs: Sequence[TensorVariable],
    options: Options,
    shapes: Shapes,
    reasons: Mapping[TensorVariable, str] | None = None,
) -> Plan:
    """Plan the sweep that draws some variables.

    Gates and weights of a layer are drawn with its activations integrated out and weights are
    moved with their pre-activations or gates, where that is asked for and there are such; the
    scale of a layer's noise or of its response, and effects beside it, are drawn without its
    activations; effects of groups are
    drawn with all else that is linear, and Gaussian layers that follow each other jointly.

    Parameters
    ----------
    model : pm.Model
    rvs : sequence of TensorVariable
    options : Options
    shapes : mapping from random variable to tuple of int
    reasons : mapping from random variable to str, optional
        Why others, to be named in the table, are not drawn.

    Raises
    ------
    NotConjugate
        For the first variable that has no conditional of a known form.
    ValueError
        If ``collapse`` or ``interweave`` is True and there is a layer, or no layer at all, for
        which it cannot be.
    """
    blocks = find_conditionals(model, rvs)
    gated = propose_interwoven_gates(
        blocks, options.interweave, options.passes, shapes, collapse=options.collapse is True
    )
    collapsed = propose_collapsed(blocks, options.collapse, shapes, gated.layers)
    interwoven = propose_interwoven(
        model,
        blocks,
        options.interweave,
        options.passes,
        shapes,
        (*gated.layers, *collapsed.layers),
    )
    sweep = blocks
    for proposals in (gated, collapsed, interwoven):
        for replacement in proposals.replacements:
            sweep = replacement.apply(sweep)
    if options.interweave is True and not (interwoven.layers or gated.layers):
        raise ValueError(
            "interweave is True, but no pre-activations behind a piecewise-linear activation, and "
            "no binary gates, are drawn together with their weights and activations; use "
            '"auto".'
        )
    if options.collapse is not False:
        layers = {**interwoven.layers, **collapsed.layers, **gated.layers}
        for replacement in propose_responses(model, blocks, sweep, layers, shapes):
            sweep = replacement.apply(sweep)
    for effects, apart in join_effects(model, sweep, shapes):
        sweep = Replacement(apart[-1], tuple(apart[:-1]), (effects,)).apply(sweep)
    for replacement in propose_chains(blocks, sweep):
        sweep = replacement.apply(sweep)
    ordered = tuple(order_scan(sweep, options.scan, model))
    notes = {**collapsed.declined, **interwoven.declined, **gated.declined}
    reasons = reasons or {}
    rows: list[tuple[str, str | None, str]] = []
    for rv in model.free_RVs:
        if rv in reasons:
            rows.append((describe(rv), None, reasons[rv]))
        elif any(rv in draw.draws for draw in ordered):
            rows.append(_row(model, rv, ordered, notes.get(rv)))
    return Plan(ordered, Explanation(tuple(rows)))


def _row(
    model: pm.Model, rv: TensorVariable, sweep: Sequence[Conditional], note: str | None
) -> tuple[str, str, str]:
    drawing = [draw for draw in sweep if rv in draw.draws]
    exact = [draw for draw in drawing if draw.tuning is None]
    law = ([draw for draw in exact if not draw.integrates_out] or exact or drawing)[-1]
    notes = []
    if others := _others(law, rv):
        notes.append(f"jointly with {others}")
    if law.integrates_out:
        reason = ", given which it moves by small steps" if isinstance(law, ResidualScale) else ""
        notes.append(f"{', '.join(map(describe, law.integrates_out))} integrated out{reason}")
    moves = [draw for draw in drawing if draw.tuning is not None and draw is not law]
    notes += [f"interwoven with {_others(move, rv)}" for move in moves]
    for draw in exact:
        if draw.integrates_out and draw is not law:
            notes.append(
                f"also with {', '.join(map(describe, draw.integrates_out))} integrated out"
            )
    if note is not None:
        notes.append(note)
    notes.append(f"children: {', '.join(map(describe, children(model, rv))) or 'none'}")
    return describe(rv), law.name, "; ".join(notes)


def _others(draw: Conditional, rv: TensorVariable) -> str:
    return ", ".join(describe(other) for other in draw.draws if other is not rv)
