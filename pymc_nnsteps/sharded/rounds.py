r"""Rounds of a sweep: draws of rows in each shard, then draws shared by all rows.

Rows are what exchangeable data containers hold: inputs and targets. A variable is *of rows* if it
depends on them, and has one entry, or several, for each row; the others are *shared*. With the
rows split into shards :math:`s`,

.. math::

    p(\theta, a, y) = p(\theta) \prod_s p(a_s, y_s \mid \theta),

so that given the shared variables :math:`\theta` (weights, scales) each shard draws its latent
variables :math:`a_s` by itself, and of these :math:`\theta` are told sums over rows only
(:class:`~pymc_nnsteps.conditionals.conditional.Additive`), which add over shards.

A *round* is: draws of rows in each shard, sums in each shard, one reduction, shared draws. A sweep
of the intermediate-noise network has one round for each hidden layer; with ``scan="parallel"``
one in all. It begins with rows, so that one round serves the weights before and behind.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.conditional import Additive, Conditional, Shapes
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import children, parameters, stated_in
from pymc_nnsteps.graphs.shapes import shapes_of
from pymc_nnsteps.graphs.values import substitute
from pymc_nnsteps.joint.plan import Options, plan
from pymc_nnsteps.joint.scan import Scan


@dataclass(frozen=True)
class Round:
    """Draws of rows, and shared draws that follow when the sums over these are known."""

    rows: tuple[Conditional, ...]
    shared: tuple[Conditional, ...]


@dataclass(frozen=True)
class Rounds:
    """A sweep over rows in shards.

    Attributes
    ----------
    rounds : tuple of Round
    of_rows : frozenset of TensorVariable
        Variables that depend on rows, observed ones included.
    """

    rounds: tuple[Round, ...]
    of_rows: frozenset[TensorVariable]

    def told(self, model: pm.Model, conditional: Conditional) -> list[TensorVariable]:
        """Children of a shared draw that are of rows."""
        return [child for child in _children(model, conditional) if child in self.of_rows]

    def others(self, model: pm.Model, conditional: Conditional) -> list[TensorVariable]:
        """Its other children."""
        return [child for child in _children(model, conditional) if child not in self.of_rows]


def rounds_of(model: pm.Model, exchanged: Collection[str], scan: Scan = "sequential") -> Rounds:
    """Plan a sweep over rows in shards.

    Parameters
    ----------
    model : pm.Model
        With some rows, two or more.
    exchanged : collection of str
        Names of the data containers that hold rows, along their first axis.
    scan : {"sequential", "parallel"}

    Raises
    ------
    ValueError
        If these are no data containers, or do not have as many rows as each other.
    NotConjugate
        If a variable has no conditional of a known form, if rows are not independent given the
        shared variables, or if what they say of one of these is no sum.
    """
    n_rows = _number_of_rows(model, exchanged)
    containers = {model[name] for name in exchanged}
    of_rows = frozenset(
        rv for rv in model.basic_RVs if _varies_with_rows(_roots(model, rv), containers)
    )
    shapes = shapes_of(model)
    _require_no_gaps(model, of_rows)
    for rv in of_rows:
        if shapes[rv][:1] != (n_rows,):
            raise NotConjugate(
                f"{describe(rv)} depends on rows, but has shape {shapes[rv]}: its first axis is "
                f"not that of the {n_rows} rows"
            )
        if rv in model.observed_RVs and not _varies_with_rows(
            [model.rvs_to_values[rv]], containers
        ):
            raise NotConjugate(
                f"{describe(rv)} is observed with values that belong to no shard; give it a "
                "pm.Data container that each shard exchanges"
            )
    options = Options(scan, collapse=False, interweave=False)
    sweep = plan(model, model.free_RVs, options, shapes).sweep
    for conditional in sweep:
        if len({rv in of_rows for rv in conditional.draws}) > 1:
            names = ", ".join(map(describe, conditional.draws))
            raise NotConjugate(f"{names} are drawn together, but only some of them belong to rows")
    found = Rounds((), of_rows)
    for conditional in sweep:
        if conditional.draws[0] not in of_rows:
            _require_sums(model, conditional, found.told(model, conditional))
    _require_row_by_row(model, of_rows, containers, shapes, n_rows)
    return Rounds(tuple(_in_rounds(model, _from_rows(sweep, of_rows), found)), of_rows)


def _number_of_rows(model: pm.Model, exchanged: Collection[str]) -> int:
    known = {variable.name: variable for variable in model.data_vars}
    unknown = sorted(set(exchanged) - known.keys())
    if unknown or not exchanged:
        raise ValueError(
            f"shards must exchange data containers of the model, {', '.join(sorted(known))}; got "
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
        raise ValueError("the model must have two rows at least, to see that these are rows.")
    return int(n_rows)


def _require_no_gaps(model: pm.Model, of_rows: Collection[TensorVariable]) -> None:
    """Check that PyMC imputes nothing: its variable has an entry for each gap, not for each row."""
    for rv in of_rows:
        name = str(rv.name).removesuffix("_unobserved")
        if name != rv.name and f"{name}_observed" in model.named_vars:
            raise NotConjugate(
                f"{name} has missing observations, of which shards have different numbers; leave "
                "out the rows that have any, in the model and in the shards"
            )


def _roots(model: pm.Model, rv: TensorVariable) -> list[Variable]:
    return [rv, *([model.rvs_to_values[rv]] if rv in model.observed_RVs else [])]


def _varies_with_rows(roots: Sequence[Variable], containers: Collection[Variable]) -> bool:
    """Whether values of containers, or the number of their rows, enter."""
    pending, seen = list(roots), set()
    while pending:
        variable = pending.pop()
        if variable in containers:
            return True
        if variable not in seen and variable.owner is not None and not _is_other_length(variable):
            seen.add(variable)
            pending.extend(variable.owner.inputs)
    return False


def _is_other_length(variable: Variable) -> bool:
    """Whether it is a length of another axis than the first."""
    op, inputs = variable.owner.op, variable.owner.inputs
    if isinstance(op, Shape_i):
        return op.i != 0
    if not isinstance(op, Subtensor) or inputs[0].owner is None:
        return False
    [index, *_] = indices_from_subtensor(inputs[1:], op.idx_list)
    if not isinstance(inputs[0].owner.op, Shape) or isinstance(index, slice):
        return False
    while isinstance(index, Variable) and index.owner is not None and len(index.owner.inputs) == 1:
        index = index.owner.inputs[0]
    value = index.data if isinstance(index, Constant) else index
    return isinstance(value, int | np.integer | np.ndarray) and int(value) > 0


def _children(model: pm.Model, conditional: Conditional) -> list[TensorVariable]:
    return list(dict.fromkeys(c for rv in conditional.draws for c in children(model, rv)))


def _require_sums(
    model: pm.Model, conditional: Conditional, told: Sequence[TensorVariable]
) -> None:
    names = ", ".join(map(describe, conditional.draws))
    if not told:
        return
    if not isinstance(conditional, Additive):
        raise NotConjugate(
            f"{names}: what {', '.join(map(describe, told))} says of it, row by row, is no sum"
        )
    for child in told:
        link = conditional.link(child, 0)
        if link is not None and link.index is None:
            raise NotConjugate(
                f"{names} has an entry for each row of {describe(child)}, but a shape that is the "
                "same in each shard; state its length by that of a pm.Data container"
            )


def _require_row_by_row(
    model: pm.Model,
    of_rows: Collection[TensorVariable],
    containers: Collection[TensorVariable],
    shapes: Shapes,
    n_rows: int,
) -> None:
    """Check that what a row's variables depend on does not change if other rows are left out."""
    stated = [
        (rv, shapes[rv][: rv.ndim - rv.owner.op.ndim_supp], core, parameter)
        for rv in of_rows
        if isinstance(rv.owner.op, RandomVariable)
        for core, parameter in zip(rv.owner.op.ndims_params, parameters(rv), strict=True)
    ]
    stated += [
        (rv, shapes[rv], 0, model.rvs_to_values[rv]) for rv in of_rows if rv in model.observed_RVs
    ]
    places: dict[Any, Any] = {
        variable: pt.tensor(dtype=variable.dtype, shape=(None,) * variable.ndim)
        for variable in (*model.free_RVs, *containers)
    }
    outputs = substitute([parameter for *_, parameter in stated], places)
    evaluate = pytensor.function(
        list(places.values()),
        outputs,
        mode=Mode(linker="py", optimizer="fast_compile"),
        on_unused_input="ignore",
    )
    values = _random_values(model, places, shapes)
    kept = slice(None, None, 2)
    fewer = [
        value[kept] if variable in of_rows or variable in containers else value
        for variable, value in zip(places, values, strict=True)
    ]
    try:
        parts = evaluate(*fewer)
    except ValueError:
        raise NotConjugate(
            f"an array or a shape of the model is stated for {n_rows} rows; put it into a pm.Data "
            "container that each shard exchanges"
        ) from None
    for (rv, batch, core, _), whole, part in zip(stated, evaluate(*values), parts, strict=True):
        own = whole.shape[whole.ndim - core :]
        expected = np.broadcast_to(whole, (*batch, *own))[kept]
        if not np.allclose(np.broadcast_to(part, expected.shape), expected, equal_nan=True):
            raise NotConjugate(
                f"{describe(rv)} of a row depends on other rows: it changes where these are left "
                "out"
            )


def _random_values(
    model: pm.Model, places: Mapping[Any, Any], shapes: Shapes
) -> list[NDArray[Any]]:
    rng = np.random.default_rng(0)
    return [
        rng.uniform(0.5, 1.5, shapes[variable]).astype(variable.dtype)
        if variable in shapes
        else variable.get_value()
        for variable in places
    ]


def _from_rows(
    sweep: Sequence[Conditional], of_rows: Collection[TensorVariable]
) -> list[Conditional]:
    """The sweep, begun where draws of rows follow shared ones: in a cycle it is the same."""
    belongs = [conditional.draws[0] in of_rows for conditional in sweep]
    starts = [i for i in range(len(sweep)) if belongs[i] and not belongs[i - 1]]
    first = starts[0] if starts else 0
    return [*sweep[first:], *sweep[:first]]


def _in_rounds(model: pm.Model, sweep: Sequence[Conditional], found: Rounds) -> list[Round]:
    rounds: list[Round] = []
    rows: list[Conditional] = []
    shared: list[Conditional] = []

    def close() -> None:
        rounds.append(Round(tuple(rows), tuple(shared)))
        rows.clear()
        shared.clear()

    for conditional in sweep:
        if conditional.draws[0] in found.of_rows:
            if shared:
                close()
            rows.append(conditional)
            continue
        changed = {rv for earlier in shared for rv in earlier.draws}
        told = found.told(model, conditional)
        if told and isinstance(conditional, Additive):
            _, sums = conditional.sums(pt.random.rng("rng"), told)
            if not changed.isdisjoint(stated_in(sums, model.free_RVs)):
                close()
        shared.append(conditional)
    close()
    return rounds
