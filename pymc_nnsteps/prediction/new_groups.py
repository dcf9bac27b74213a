r"""Effects of groups that the model has not seen, drawn from their law.

Where groups have effects :math:`a_j \sim p(a \mid \theta)` of one law, given hyperparameters
:math:`\theta`, that of a new group has this law at each draw of :math:`\theta`. Rows of new groups
pick entries of a variable beyond its last: as many entries more are drawn. Where effects enter by
their differences from their mean, that is the mean of the groups that are known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pymc.distributions.transforms import _default_transform
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.centred import vector_about_mean
from pymc_nnsteps.graphs.known import has_foreign_density, potential_on
from pymc_nnsteps.graphs.lengths import length_of
from pymc_nnsteps.graphs.names import describe, describe_expression, distribution
from pymc_nnsteps.graphs.places import MixesRows, Rows
from pymc_nnsteps.graphs.rows import follow_rows
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.graphs.values import substitute
from pymc_nnsteps.prediction.entries import picked_entries
from pymc_nnsteps.prediction.forward import stand_in_for
from pymc_nnsteps.prediction.posterior import stored_draws
from pymc_nnsteps.prediction.row_data import Known, RowData, with_rows

__all__ = ["draws_with_new_groups", "lengths_with_new_groups"]

Weights = Mapping[TensorVariable, TensorVariable]


def lengths_with_new_groups(
    argument: str,
    outputs: Sequence[TensorVariable],
    weights: Weights,
    rows: RowData,
    values: Sequence[NDArray[Any]],
) -> dict[TensorVariable, int]:
    """Free variables that have to have more entries, and how many with these.

    Parameters
    ----------
    argument : str
        What the caller calls new inputs, for messages.
    outputs : sequence of TensorVariable
    weights, rows : mapping
        What stands for variables of the model and for data, in the outputs.
    values : sequence of ndarray
        New data.

    Raises
    ------
    ValueError
        If entries of new groups are not functions of such variables' entries alone.
    """
    stand_ins = set(weights.values())
    lengths: dict[Variable, int] = {}
    picked = []
    for each in picked_entries(outputs, rows, values):
        picked.append(each.entries)
        length = 1 + int(each.new.max(initial=-1))
        if each.length is not None and length > each.length:
            for effect in _effects(argument, each.array, each.axis, stand_ins):
                lengths[effect] = max(length, lengths.get(effect, 0))
    used_otherwise = set(ancestors(outputs, blockers=picked))
    for effect in used_otherwise.intersection(lengths):
        raise ValueError(
            f"{argument} has rows of new groups, but {describe(effect)} enters the output not only "
            "by the entry of each row's group, so that it would change with new ones."
        )
    return {rv: lengths[stand_in] for rv, stand_in in weights.items() if stand_in in lengths}


def draws_with_new_groups(
    posterior: xr.Dataset,
    model: pm.Model,
    weights: Weights,
    lengths: Mapping[TensorVariable, int],
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Stored draws, with entries of new groups drawn given the hyperparameters of each draw.

    Parameters
    ----------
    posterior : Dataset
    model : pm.Model
    weights : mapping
        As for :func:`.stored_draws`.
    lengths : mapping
        Of those that have new entries.
    rng : numpy.random.Generator

    Raises
    ------
    ValueError
        If the law of new entries is not known.
    """
    stored = {
        variable: stand_in_for(model, variable) if variable in lengths else stand_in
        for variable, stand_in in weights.items()
    }
    draws = dict(zip(weights, stored_draws(posterior, model, stored), strict=True))
    for variable, length in lengths.items():
        known = draws[variable]
        new = _new_entries(posterior, model, variable, length - known.shape[1], rng)
        draws[variable] = np.concatenate([known, new], axis=1)
    return list(draws.values())


def _effects(
    argument: str, array: TensorVariable, axis: int, stand_ins: set[TensorVariable]
) -> RowData:
    """Variables whose entries along the first axis determine the entries of an array."""

    def read(effects: Known) -> None:
        _, place = follow_rows(array, effects)
        if place is None:
            raise MixesRows(f"{describe(array)} has entries of its own", (array, axis))
        if place != Rows(axis):
            raise MixesRows(f"{describe(array)} has them along another axis than the first")

    try:
        if (vector := vector_about_mean(array)) in stand_ins:
            return {vector: vector}
        return with_rows(read, {}, stand_ins)[1]
    except MixesRows as reason:
        raise ValueError(
            f"{argument} picks entries of {describe_expression(array)} that are of new groups, "
            f"which have no law of their own: {reason}; give the model effects with one law of all "
            "groups."
        ) from None


def _new_entries(
    posterior: xr.Dataset,
    model: pm.Model,
    variable: TensorVariable,
    n: int,
    rng: np.random.Generator,
) -> NDArray[Any]:
    """Entries along the first axis of a variable, drawn given each draw of its parents."""
    op = variable.owner.op
    if (
        not isinstance(op, RandomVariable)
        or op.ndim_supp == variable.ndim
        or has_foreign_density(variable)
        or not _has_default_transform(model, variable)
        or potential_on(model, variable) is not None
    ):
        raise ValueError(
            f"{describe(variable)} is {distribution(variable)}, of which entries of new groups "
            "are not known to be independent; leave out rows of new groups."
        )
    given = parameters(variable)
    n_batch = variable.ndim - op.ndim_supp
    if any(
        parameter.ndim - n_axes == n_batch and not parameter.type.broadcastable[0]
        for parameter, n_axes in zip(given, op.ndims_params, strict=True)
    ):
        raise ValueError(
            f"{describe(variable)} has another law for each group, which new groups have none of; "
            "leave out rows of new groups."
        )
    hyper = {rv: stand_in_for(model, rv) for rv in model.free_RVs}
    generator = pt.random.rng("rng")
    size = [n, *(length_of(model, variable, axis) for axis in range(1, n_batch))]
    outputs = op.make_node(generator, size, *substitute(given, hyper)).outputs
    entered = set(graph_inputs(outputs))
    used = {rv: stand_in for rv, stand_in in hyper.items() if stand_in in entered}
    inputs: list[Any] = [pytensor.In(generator, mutable=True), *used.values()]
    function = pytensor.function(inputs, outputs, mode="FAST_COMPILE")
    n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    draws, found = stored_draws(posterior, model, used), []
    for draw in range(n_draws):
        rng, entries = function(rng, *(each[draw] for each in draws))
        found.append(entries)
    return np.stack(found)


def _has_default_transform(model: pm.Model, variable: TensorVariable) -> bool:
    """Whether a variable's values are all of its distribution's support."""
    default = _default_transform(variable.owner.op, variable)
    return type(model.rvs_to_transforms[variable]) is type(default)
