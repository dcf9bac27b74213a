r"""Entries that new inputs pick of a variable, such as the effect of a row's group, and new ones.

Where groups have effects :math:`a_j \sim p(a \mid \theta)` of one law, given hyperparameters
:math:`\theta`, that of a new group has this law at each draw of :math:`\theta`. Rows of new groups
pick entries of a variable beyond its last: as many entries more are drawn. Where effects enter by
their differences from their mean, that is the mean of the groups that are known.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pymc.distributions.transforms import _default_transform
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, io_toposort
from pytensor.scalar.basic import Cast
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.subtensor import AdvancedSubtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.centred import differences, vector_about_mean
from pymc_nnsteps.graphs.known import (
    describe,
    describe_expression,
    distribution,
    has_foreign_density,
    potential_on,
)
from pymc_nnsteps.graphs.row_axes import MixesRows, Rows
from pymc_nnsteps.graphs.rows import follow_rows
from pymc_nnsteps.graphs.search import depends_on, parameters, unwrapped
from pymc_nnsteps.graphs.shapes import length_of
from pymc_nnsteps.graphs.values import substitute
from pymc_nnsteps.prediction.forward import ForwardPass, stand_in_for
from pymc_nnsteps.prediction.posterior import stored_draws
from pymc_nnsteps.prediction.row_data import Known, RowData, categories_of, own_rows, with_rows
from pymc_nnsteps.tables import Table, as_array, listed

Arrays = Sequence[NDArray[Any]]


def require_entries(argument: str, network: ForwardPass, rows: Arrays) -> None:
    """Check that inputs which pick entries of a variable pick those that there are."""
    for picked in picked_entries(network, rows):
        length, new, old = picked.length, picked.new, picked.old
        strange = (new != np.rint(new)) & np.all(old == np.rint(old))
        strange |= (new < 0) & np.all(old >= 0)
        if length is not None:
            strange |= (new >= length) | (new < -length)
        if strange.any():
            first = new[strange].flat[0]
            last = "on" if length is None else f"to {length - 1}"
            raise ValueError(
                f"{argument} picks entry {first:g} of {describe_expression(picked.array)}, which "
                f"has the entries from 0 {last}; pass rows whose groups the model knows, by their "
                "numbers if their labels are numbers, or with sample_new_groups=True new groups, "
                "whose numbers continue these."
            )


@dataclass(frozen=True)
class PickedEntries:
    """Entries that rows pick of an array along an axis, by new indices and the model's."""

    entries: TensorVariable
    array: TensorVariable
    axis: int
    length: int | None
    new: NDArray[Any]
    old: NDArray[Any]


def picked_entries(network: ForwardPass, rows: Arrays) -> Iterator[PickedEntries]:
    """Entries that new rows pick of arrays; those that pick indices of others come first."""
    inputs = list(network.rows.values())
    own = [own_rows(data).astype(new.dtype) for data, new in zip(network.rows, rows, strict=True)]
    for entries, array, axis, index in _indexed(network.parameters):
        of_rows = {*explicit_graph_inputs([index])}
        if of_rows and of_rows.issubset(inputs):
            function = pytensor.function(
                inputs, uncast(index, inputs), on_unused_input="ignore", mode="FAST_COMPILE"
            )
            length = array.type.shape[axis]
            yield PickedEntries(entries, array, axis, length, function(*rows), function(*own))


def _indexed(variables: Sequence[Variable]) -> Iterator[tuple[Any, Any, int, Variable]]:
    """Entries that arrays of indices pick, what of, along which axis, and the indices."""
    for node in io_toposort([], variables):
        if isinstance(node.op, AdvancedSubtensor):
            array, *rest = node.inputs
            for axis, index in enumerate(indices_from_subtensor(rest, node.op.idx_list)):
                if not isinstance(index, slice):
                    yield node.outputs[0], array, axis, index


def uncast(index: Variable, inputs: Sequence[Variable]) -> Variable:
    """An index before numbers are cut off to integers."""
    casts = {
        variable: variable.owner.inputs[0]
        for variable in ancestors([index])
        if variable.owner is not None
        and isinstance(variable.owner.op, Elemwise)
        and isinstance(variable.owner.op.scalar_op, Cast)
        and variable.type.dtype.startswith(("int", "uint"))
        and depends_on(variable, set(inputs))
    }
    [uncast] = clone_replace([index], casts, rebuild_strict=False)
    return uncast


Weights = Mapping[TensorVariable, TensorVariable]


def group_numbers(
    name: str, given: object, model: pm.Model, data: Variable, sample_new_groups: bool
) -> object:
    """Values given for some data, with labels of groups replaced by their numbers.

    New labels are numbered on. Numbers count the groups, unless labels are numbers, or texts of
    these, too; truths are 0 and 1 only where groups have no other labels.
    """
    if isinstance(given, pd.Series) and pd.api.types.is_numeric_dtype(given.dtype):
        array = given.to_numpy()
    else:
        array = as_array(name, given)
    if array.dtype.kind == "U" and not isinstance(given, np.ndarray):
        array = np.asarray(given, dtype=object)  # without making texts of missing labels
    if array.dtype.kind not in "OUTMmbiuf" or not numbers_groups(model, data):
        return given
    if not array.size:
        return array.astype("int64")
    labels = list(map(_as_number, pd.Index(labels_of_groups(model, data)).tolist()))
    are_truths = array.dtype.kind == "b"
    if are_truths and labels == list(range(len(labels))):
        return given
    if array.dtype.kind in "iuf" and not _are_labels(name, array, labels, sample_new_groups):
        return given
    if not labels:
        raise ValueError(
            f"{name} must be numeric; got dtype {array.dtype}; number the groups, or give the "
            "dimension of their effects labels by coords= of the model."
        )
    asked = list(map(_as_number, pd.Index(array.ravel()).tolist()))
    missing = np.flatnonzero(pd.isna(asked))
    if len(missing):
        raise ValueError(f"{name} has {len(missing)} missing labels; remove those rows.")
    numbers = {
        label: number
        for number, label in enumerate(labels)
        if not are_truths or isinstance(label, bool)
    }
    unknown = [label for label in dict.fromkeys(asked) if label not in numbers]
    if unknown and not sample_new_groups:
        raise ValueError(
            f"{name} has the labels {listed(unknown)}, but the model knows {listed(labels)}; "
            "pass rows whose groups it knows, or new ones with sample_new_groups=True."
        )
    numbers |= {label: number for number, label in enumerate(unknown, len(labels))}
    found = np.array([numbers[label] for label in asked]).reshape(array.shape)
    return pd.Series(found, given.index) if isinstance(given, pd.Series) else found


def _as_number(label: object) -> object:
    """The whole number that a text is, so that it is the same label; other labels as they are."""
    is_one = isinstance(label, str) and label.isdecimal() and str(int(label)) == label
    return int(str(label)) if is_one else label


def _are_labels(
    name: str, given: np.ndarray, labels: Sequence[object], sample_new_groups: bool
) -> bool:
    """Whether numbers are labels of groups, and not their places."""
    numbers = {label: number for number, label in enumerate(labels)}
    asked = list(dict.fromkeys(given.ravel().tolist()))
    is_other = not {type(label) for label in labels} <= {int, float} or not np.isfinite(given).all()
    if is_other or numbers.keys().isdisjoint(asked) or list(numbers) == list(numbers.values()):
        return False
    n_new = len(asked) if sample_new_groups else 0
    if min(asked) < 0 or max(asked) >= len(labels) + n_new or any(each % 1 for each in asked):
        return True
    if not numbers.keys() >= set(asked) or all(numbers[each] == each for each in asked):
        return False
    raise ValueError(
        f"{name} holds {listed(asked)}, which are labels of groups and numbers of other ones; pass "
        "labels in an array with dtype=object (model.coords has those of numbered groups)."
    )


def numbers_groups(model: pm.Model, data: Variable) -> bool:
    """Whether data pick entries of a variable."""
    return any(True for _ in _picked(model, data))


def _picked(model: pm.Model, data: Variable) -> Iterator[tuple[Any, int]]:
    """Arrays of which data pick entries, and along which axis."""
    stated = [*model.basic_RVs, *model.deterministics, *model.potentials]
    for _, array, axis, index in _indexed(stated):
        if uncast(index, [data]) is data:
            yield array, axis


def labels_of_groups(model: pm.Model, data: Variable) -> Sequence[object]:
    """Labels of the dimension that data number; none, where they number several or none."""
    found: dict[str, Sequence[object]] = {}
    for array, axis in _picked(model, data):
        with contextlib.suppress(MixesRows):
            for each, its in _numbered(model, array, axis):
                dim = (model.named_vars_to_dims.get(each.name) or (None,) * each.ndim)[its]
                if dim is not None and model.coords.get(dim) is not None:
                    found[dim] = model.coords[dim]
    return next(iter(found.values())) if len(found) == 1 else ()


def _numbered(model: pm.Model, array: Any, axis: int) -> list[tuple[Any, int]]:
    """Variables of a model, and the axis of each, whose entries are those along one of an array."""
    if array in model.named_vars.values():
        return [(array, axis)]
    for rv in model.free_RVs:
        if unwrapped(array) in differences([array], rv):
            return [(rv, 0)]
    return [(each, 0) for each in _read_effects(array, axis, {*model.free_RVs, *model.data_vars})]


def lengths_with_new_groups(
    argument: str, network: ForwardPass, rows: Arrays
) -> dict[TensorVariable, int]:
    """Free variables that have to have more entries, and how many with these."""
    stand_ins = set(network.weights.values())
    new: dict[Variable, set[int]] = {}
    n_known: dict[Variable, int] = {}
    picked = []
    for each in picked_entries(network, rows):
        picked.append(each.entries)
        beyond = each.new[each.new >= (np.inf if each.length is None else each.length)]
        if each.length is not None and beyond.size:
            for effect in _effects(argument, each.array, each.axis, stand_ins):
                new.setdefault(effect, set()).update(beyond.astype(int).tolist())
                n_known[effect] = each.length
    lengths = {effect: 1 + max(numbers) for effect, numbers in new.items()}
    for effect, numbers in new.items():
        others = (n for n in range(n_known[effect], lengths[effect]) if n not in numbers)
        if absent := list(islice(others, 6)):
            raise ValueError(
                f"{argument} has rows of the new group {max(numbers)} of {describe(effect)}, but "
                f"none of {', '.join(map(str, absent[:5]))}{', ...' if absent[5:] else ''}; number "
                f"new groups consecutively from {n_known[effect]}."
            )
    used_otherwise = set(ancestors(network.parameters, blockers=picked))
    for effect in used_otherwise.intersection(lengths):
        raise ValueError(
            f"{argument} has rows of new groups, but {describe(effect)} enters the output other "
            "than by the entry of each row's group, so that new groups would change it."
        )
    of_weights = network.weights.items()
    return {rv: lengths[stand_in] for rv, stand_in in of_weights if stand_in in lengths}


def draws_with_new_groups(
    posterior: xr.Dataset,
    model: pm.Model,
    weights: Weights,
    lengths: Mapping[TensorVariable, int],
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Stored draws, with entries of new groups drawn given the hyperparameters of each draw."""
    stored = {
        variable: stand_in_for(model, variable) if variable in lengths else stand_in
        for variable, stand_in in weights.items()
    }
    draws = dict(zip(weights, stored_draws(posterior, model, stored), strict=True))
    for variable, length in lengths.items():
        known = draws[variable]
        new = new_entries(posterior, model, variable, length - known.shape[1], rng)
        draws[variable] = np.concatenate([known, new], axis=1)
    return list(draws.values())


def _effects(
    argument: str, array: TensorVariable, axis: int, stand_ins: set[TensorVariable]
) -> RowData:
    """Variables whose entries along the first axis determine the entries of an array."""
    try:
        return _read_effects(array, axis, stand_ins)
    except MixesRows as reason:
        raise ValueError(
            f"{argument} picks entries of {describe_expression(array)} for new groups, whose "
            f"distribution is not known: {reason}; give the effects of all groups one distribution."
        ) from None


def _read_effects(array: TensorVariable, axis: int, variables: set[Any]) -> RowData:
    """Those of some variables whose entries along the first axis determine those of an array."""

    def read(effects: Known) -> None:
        _, place = follow_rows(array, {each: (each, None) for each in variables} | effects)
        if place is None:
            raise MixesRows(f"{describe(array)} has entries of its own", (array, Rows(axis)))
        if place != Rows(axis):
            raise MixesRows(f"{describe(array)} has them along another axis than the first")

    vector: Any = vector_about_mean(array)
    if vector in variables:
        return {vector: vector}
    return with_rows(read, {}, variables)[1]


def new_entries(
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
        or type(model.rvs_to_transforms[variable]) is not type(_default_transform(op, variable))
        or potential_on(model, variable) is not None
    ):
        raise ValueError(
            f"{describe(variable)} is {distribution(variable)}, whose entries for new groups are "
            "not known to be independent; leave out rows of new groups."
        )
    given = parameters(variable)
    n_batch = variable.ndim - op.ndim_supp
    if any(
        parameter.ndim - n_axes == n_batch and not parameter.type.broadcastable[0]
        for parameter, n_axes in zip(given, op.ndims_params, strict=True)
    ):
        raise ValueError(
            f"{describe(variable)} has a different distribution for each group, and none for new "
            "groups; leave out rows of new groups."
        )
    hyper = {rv: stand_in_for(model, rv) for rv in model.free_RVs}
    generator = pt.random.rng("rng")
    size = [n, *(length_of(model, variable, axis) for axis in range(1, n_batch))]
    outputs = op.make_node(generator, size, *substitute(given, hyper)).outputs
    entered = set(explicit_graph_inputs(outputs))
    used = {rv: stand_in for rv, stand_in in hyper.items() if stand_in in entered}
    inputs: list[Any] = [pytensor.In(generator, mutable=True), *used.values()]
    function = pytensor.function(inputs, outputs, mode="FAST_COMPILE")
    n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    draws, found = stored_draws(posterior, model, used), []
    for draw in range(n_draws):
        rng, entries = function(rng, *(each[draw] for each in draws))
        found.append(entries)
    return np.stack(found)


def embeddings(model: pm.Model, container: TensorSharedVariable) -> dict[str, TensorVariable]:
    """Matrices, by the columns of a data container whose levels have rows of them."""
    found: dict[str, TensorVariable] = {}
    columns = {f"{column}::E": column for column in categories_of(model, container)}
    for part in ancestors([*model.basic_RVs, *model.deterministics, *model.potentials]):
        for matrix in () if part.owner is None else part.owner.inputs[1:]:
            own = [each for name, each in columns.items() if str(matrix.name).endswith(name)]
            if own and matrix in model.free_RVs and depends_on(part, {container}):
                found[max(own, key=len)] = matrix
    return found


def parts_with_new_levels(
    table: Table,
    network: ForwardPass,
    container: TensorSharedVariable,
    rows: Arrays,
    draws: Arrays,
    model: pm.Model,
    posterior: xr.Dataset,
    rng: np.random.Generator,
) -> Iterator[tuple[NDArray, list[NDArray], list[NDArray]]]:
    """Numbers of rows of a table that have new levels, these rows, and draws to evaluate them.

    A level has a row of an embedding, ``E[code]``; that of a new level is drawn from the law that
    the known ones have at each draw, and takes the place of a known one.
    """
    matrices, places = embeddings(model, container), categories_of(model, container)
    inputs, weights = list(network.rows).index(container), list(network.weights)
    new = {str(column): each for column, each in table.new_levels.items()}
    codes = np.stack([pd.factorize(each)[0] for each in new.values()])
    drawn = [
        new_entries(posterior, model, matrices[column], own.max() + 1, rng)
        for column, own in zip(new, codes, strict=True)
    ]
    # As many new levels of a column as it has known ones at a time; none of it where it is -1.
    parts = codes // np.array([len(places[column]) for column in new])[:, None]
    for part in np.unique(parts[:, (parts >= 0).any(axis=0)], axis=1).T:
        at = np.flatnonzero((parts == part[:, None]).all(axis=0))
        of_rows, of_draws = [each[at] for each in rows], list(draws)
        for column, number, own, entries in zip(new, part, codes, drawn, strict=True):
            if number >= 0:
                weight, length = weights.index(matrices[column]), len(places[column])
                of_part = entries[:, number * length :][:, :length]
                of_draws[weight] = of_draws[weight].copy()
                of_draws[weight][:, : of_part.shape[1]] = of_part
                of_rows[inputs][:, places[column]] = np.eye(length)[own[at] % length]
        yield at, of_rows, of_draws
