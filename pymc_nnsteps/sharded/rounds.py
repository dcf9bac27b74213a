r"""Rounds of a sweep: draws of rows in each shard, then draws shared by all rows.

Rows are what exchangeable data containers hold: inputs and targets. A variable is *of rows* if it
depends on them, and has one entry, or several, for each row; the others are *shared*. With the
rows split into shards :math:`s`,

.. math::

    p(\theta, a, y) = p(\theta) \prod_s p(a_s, y_s \mid \theta),

so that given the shared variables :math:`\theta` (weights, scales) each shard draws its latent
variables :math:`a_s` by itself, and :math:`\theta` depends on these through sums over rows only
(:class:`~pymc_nnsteps.laws.conditional.Additive`), which add over shards.

A *round* is: draws of rows in each shard, sums in each shard, one reduction, shared draws. A sweep
of the intermediate-noise network has one round for each hidden layer; with ``scan="parallel"``
one in all. It begins with rows, so that one round serves the weights before and behind.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.row_axes import Lengths, MixesRows, RowAxis, Rows
from pymc_nnsteps.graphs.rows import follow_rows, require_aligned
from pymc_nnsteps.graphs.search import children, depends_on, parameters, size_of, stated_in
from pymc_nnsteps.graphs.shapes import shapes_of
from pymc_nnsteps.laws.conditional import Additive, Conditional
from pymc_nnsteps.moves.plan import Options, Scan, plan
from pymc_nnsteps.prediction.imputation import ImputedColumn, imputations_of
from pymc_nnsteps.prediction.row_data import columns_in


@dataclass(frozen=True)
class Round:
    """Draws of rows, and shared draws that follow when the sums over these are known."""

    rows: tuple[Conditional, ...]
    shared: tuple[Conditional, ...]


@dataclass(frozen=True)
class Rounds:
    """A sweep over rows in shards."""

    rounds: tuple[Round, ...]
    of_rows: frozenset[TensorVariable]  # variables that depend on rows, observed ones included

    @property
    def names(self) -> list[list[list[str]]]:
        """Names of the variables that are drawn in each round, of rows and shared."""
        return [
            [[describe(rv) for each in part for rv in each.draws] for part in (r.rows, r.shared)]
            for r in self.rounds
        ]

    def children(
        self, model: pm.Model, conditional: Conditional
    ) -> tuple[list[TensorVariable], list[TensorVariable]]:
        """Children of a shared draw that are of rows, and the others."""
        found = dict.fromkeys(c for rv in conditional.draws for c in children(model, rv))
        of_rows = [child for child in found if child in self.of_rows]
        return of_rows, [child for child in found if child not in self.of_rows]


def rounds_of(model: pm.Model, exchanged: Collection[str], scan: Scan = "sequential") -> Rounds:
    """Plan a sweep over rows in shards, which the containers ``exchanged`` hold."""
    n_rows = _number_of_rows(model, exchanged)
    of_rows = _variables_of_rows(model, {model[name] for name in exchanged}, n_rows)
    shapes = shapes_of(model)
    options = Options(scan, collapse=False, interweave=False, rays=False)
    sweep = plan(model, model.free_RVs, options, shapes).sweep
    for conditional in sweep:
        if len({rv in of_rows for rv in conditional.draws}) > 1:
            names = ", ".join(map(describe, conditional.draws))
            raise NotConjugate(f"{names} are drawn together, but only some of them belong to rows")
    found = Rounds((), of_rows)
    for conditional in sweep:
        if conditional.draws[0] not in of_rows:
            _require_sums(conditional, found.children(model, conditional)[0])
    return Rounds(tuple(_in_rounds(model, _from_rows(sweep, of_rows), found)), of_rows)


def _number_of_rows(model: pm.Model, exchanged: Collection[str]) -> int:
    known = {variable.name: variable for variable in model.data_vars}
    unknown = sorted(set(exchanged) - known.keys())
    if unknown or not exchanged:
        raise ValueError(
            f"shards must replace data containers of the model, {', '.join(sorted(known))}; got "
            f"{', '.join(unknown) or 'none'}."
        )
    lengths = {name: known[name].get_value(borrow=True).shape[:1] for name in exchanged}
    if len(set(lengths.values())) != 1 or () in lengths.values():
        raise ValueError(
            f"{', '.join(sorted(exchanged))} must have the same number of rows in the model; got "
            f"{', '.join(str(length) for length in lengths.values())}."
        )
    [[n_rows]] = set(lengths.values())
    if n_rows < 2:
        raise ValueError("the model must have at least two rows, to tell which axes are rows.")
    return int(n_rows)


def _variables_of_rows(
    model: pm.Model, containers: Collection[TensorVariable], n_rows: int
) -> frozenset[TensorVariable]:
    """Variables with one entry for each row, given those of the same row and shared ones."""
    found: set[TensorVariable] = set()
    known: dict[Variable, tuple[Variable, RowAxis]] = {
        container: (container, Rows(0)) for container in containers
    }
    tables = [each for each in imputations_of(model) if each.container in containers]
    for table in tables:
        for column in columns_in(model, table.container):
            if any(each.numbers[0] in column.places for each in table.categories):
                raise NotConjugate(
                    f"{describe(table.container)} has missing levels in the column "
                    f"{column.name!r}, which shards do not draw; make a level of them, such as "
                    '"missing"'
                )
    laws = [
        (each, rv) for one in tables for each, rv in zip(one.columns, one.observed, strict=True)
    ]
    columns = {rv: column for column, other in laws for rv in (column.entries, other)}
    known |= {column.after: (column.after, Rows(0)) for column in columns.values()}
    for rv in model.basic_RVs:
        if rv in columns:
            _require_own_row(columns[rv], known)
            found.add(rv)
            known[rv] = (rv, Rows(0))
            continue
        _require_no_gaps(model, rv, containers)
        is_observed = rv in model.observed_RVs
        try:
            is_of_rows = _is_of_rows(rv, None if is_observed else size_of(rv), known)
            data = follow_rows(model.rvs_to_values[rv], known)[1] if is_observed else None
        except MixesRows as reason:
            raise NotConjugate(_why_not_by_row(rv, reason, n_rows)) from None
        if is_observed and (data is not None or is_of_rows) and data != Rows(0):
            raise NotConjugate(
                f"{describe(rv)} is observed with values that belong to no shard; put them in a "
                "pm.Data container that each shard replaces"
            )
        if is_of_rows or data is not None:
            found.add(rv)
        known[rv] = (rv, Rows(0) if rv in found else None)
    return frozenset(found)


def _require_own_row(
    column: ImputedColumn, known: Mapping[Variable, tuple[Variable, RowAxis]]
) -> None:
    """Check that the law of an entry of a column depends on its own row alone."""
    try:
        places = [follow_rows(each, known)[1] for each in (column.mean, column.sigma)]
    except MixesRows as reason:
        raise NotConjugate(f"{describe(column.entries)} depend on other rows: {reason}") from None
    if places != [Rows(0), None]:
        raise NotConjugate(f"the standard deviation of {describe(column.entries)} differs by rows")


def _require_no_gaps(
    model: pm.Model, rv: TensorVariable, containers: Collection[TensorVariable]
) -> None:
    """Check that PyMC imputes nothing: its variable has an entry for each gap, not for each row."""
    name = str(rv.name).removesuffix("_unobserved")
    if name != rv.name and f"{name}_observed" in model.named_vars and depends_on(rv, containers):
        raise NotConjugate(
            f"{name} has missing observations, whose number differs between shards; leave out "
            "their rows, in the model and in the shards"
        )


def _is_of_rows(
    rv: TensorVariable,
    size: TensorVariable | None,
    known: Mapping[Variable, tuple[Variable, RowAxis]],
) -> bool:
    """Whether parameters or the size of a variable have rows, which are its first axis then."""
    given = [(each, follow_rows(each, known)[1]) for each in parameters(rv)]
    length = None if size is None else follow_rows(size, known)[1]
    if length is None and not any(place for _, place in given):
        return False
    op = rv.owner.op
    cores = getattr(op, "ndims_params", (0,) * len(given))
    for (parameter, place), core in zip(given, cores, strict=True):
        require_aligned(parameter, place, rv.ndim - op.ndim_supp + core)
    if size is not None and length != Lengths(0):
        raise MixesRows(f"{describe(rv)} has a fixed length", (rv, Rows(0)))
    return True


def _why_not_by_row(rv: TensorVariable, reason: MixesRows, n_rows: int) -> str:
    if reason.lacking is None:
        return f"{describe(rv)} of a row depends on other rows: {reason}"
    [lacking, _] = reason.lacking
    of = "" if lacking is rv else f" of {describe(rv)}"
    return (
        f"{describe(lacking)} has an entry for each row{of}, but is fixed at {n_rows} rows; put "
        "data in pm.Data containers that each shard replaces, and take the lengths of variables "
        "from one of these"
    )


def _require_sums(conditional: Conditional, of_rows: Sequence[TensorVariable]) -> None:
    """Check that sums over rows are enough for a shared draw, given its children of rows."""
    names = ", ".join(map(describe, conditional.draws))
    for child in of_rows:
        if not isinstance(conditional, Additive):
            raise NotConjugate(
                f"{names}: its conditional given {', '.join(map(describe, of_rows))} is not known "
                "from sums over rows"
            )
        link = conditional.link(child, 0)
        if link is not None and link.index is None:
            raise NotConjugate(
                f"{names} has an entry for each row of {describe(child)}, but the same shape in "
                "each shard; take its length from a pm.Data container"
            )


def _from_rows(
    sweep: Sequence[Conditional], of_rows: Collection[TensorVariable]
) -> list[Conditional]:
    """The sweep, begun where draws of rows follow shared ones: in a cycle it is the same."""
    belongs = [conditional.draws[0] in of_rows for conditional in sweep]
    starts = [i for i in range(len(sweep)) if belongs[i] and not belongs[i - 1]]
    first = starts[0] if starts else 0
    return [*sweep[first:], *sweep[:first]]


def _in_rounds(model: pm.Model, sweep: Sequence[Conditional], found: Rounds) -> list[Round]:
    rounds: list[tuple[list[Conditional], list[Conditional]]] = [([], [])]
    for conditional in sweep:
        _, shared = rounds[-1]
        if conditional.draws[0] in found.of_rows:
            if shared:
                rounds.append(([], []))
            rounds[-1][0].append(conditional)
            continue
        changed = {rv for earlier in shared for rv in earlier.draws}
        of_rows, _ = found.children(model, conditional)
        if of_rows and isinstance(conditional, Additive):
            _, sums = conditional.sums(pt.random.rng("rng"), of_rows)
            if not changed.isdisjoint(stated_in(sums, model.free_RVs)):
                rounds.append(([], []))
        rounds[-1][1].append(conditional)
    return [Round(tuple(rows), tuple(shared)) for rows, shared in rounds]
