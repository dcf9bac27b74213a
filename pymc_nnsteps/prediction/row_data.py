"""Columns of the inputs, and data that go with their rows: groups, offsets, further inputs.

Which data these are is read off the graph: where rows of the inputs are paired with entries of
something else, these are of the same rows if their number is that of the rows of some data. All
are then followed together (:mod:`~pymc_nnsteps.graphs.rows`): what is established is that each row
of the output depends on its own row of the inputs and of these data alone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import DTypeLike, NDArray
from pytensor.compile.builders import infer_shape
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs, io_toposort
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import in_type, require_finite
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.row_axes import MixesRows, RowAxis, Rows
from pymc_nnsteps.graphs.search import depends_on, random_in, size_of
from pymc_nnsteps.prediction.posterior import holds, sampled_rows
from pymc_nnsteps.tables import Table, before_encoding, categories, encoded, level_of, numbers

TAKEN = {"chain", "draw", "obs", "output"}
"""Dimension names that predictions already use."""


@dataclass(frozen=True)
class Column:
    """A column of the inputs: one of numbers, or indicators of its levels."""

    places: list[int]
    # Its label; or the container's name with it, if it is a number or a name of a dimension.
    name: str
    levels: list[str] | None = None

    def of(self, X: NDArray[Any]) -> NDArray[Any]:
        """Its values in the rows of the inputs, of levels their numbers."""
        return X[:, self.places[0]] if self.levels is None else X[:, self.places].argmax(axis=1)

    def spread(self, X: NDArray[Any], n: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """At most ``n`` values over its range, or all levels, and what its places hold there."""
        if self.levels is not None:
            return np.array(self.levels), np.eye(len(self.levels), dtype=X.dtype)
        own = self.of(X)
        values = np.linspace(float(own.min()), float(own.max()), n)
        if own.dtype.kind != "f":
            values = np.unique(values.round()).astype(own.dtype)
        return values, values[:, None]


def read_rows(
    argument: str,
    model: pm.Model,
    container: TensorSharedVariable,
    given: object,
    with_new_levels: Collection[object] = (),
) -> Table:
    """A table for a data container, with the columns of its labels."""
    dims = model.named_vars_to_dims.get(container.name) or ("obs", "feature")
    labels = model.coords.get(dims[1]) if len(dims) == 2 else None
    if labels is None:
        return numbers(argument, given, dims)
    return encoded(argument, given, dims, labels, with_new_levels)


def find_column(
    argument: str, model: pm.Model, container: TensorSharedVariable, wanted: object
) -> Column:
    """The column of a name, or else of a position, in the data container of the inputs."""
    if container.ndim != 2:
        raise ValueError(
            f"{argument} is a column of a table, but {container.name} has {container.ndim} axes."
        )
    labels, columns = _labels(model, container), columns_in(model, container)
    is_place = isinstance(wanted, int | np.integer) and wanted not in labels
    for each in columns:
        own = each.places if is_place else [each.name, *(labels[place] for place in each.places)]
        if wanted in own:
            return each
    known = before_encoding(labels)
    raise ValueError(f"{argument} must be one of the columns {known}; got {wanted!r}.")


def columns_in(model: pm.Model, container: TensorSharedVariable) -> list[Column]:
    """The columns of a table of inputs, one for all indicators of a category."""
    labels = _labels(model, container)
    groups = categories_of(model, container)
    heads = {place: head for head, places in groups.items() for place in places}
    columns = []
    for label in dict.fromkeys(heads.get(place, label) for place, label in enumerate(labels)):
        places = groups[label] if label in groups else [labels.index(label)]
        levels = [str(level_of(labels[i], label)) for i in places] if label in groups else None
        own = isinstance(label, str) and label not in TAKEN
        columns.append(Column(places, str(label) if own else f"{container.name}[{label}]", levels))
    return columns


def categories_of(model: pm.Model, container: TensorSharedVariable) -> dict[str, list[int]]:
    """Names of columns of the inputs that are indicators of levels, and where these are."""
    if container.ndim != 2:
        return {}
    return categories(_labels(model, container), container.get_value(borrow=True))


def _labels(model: pm.Model, container: TensorSharedVariable) -> list[object]:
    """Labels of the columns of a data container, or their numbers."""
    dims = model.named_vars_to_dims.get(container.name) or (None, None)
    return list(model.coords.get(dims[1]) or range(container.get_value(borrow=True).shape[1]))


RowData = dict[Variable, TensorVariable]
"""From the inputs, and data that go with their rows, to what stands for each."""

Known = dict[Variable, tuple[Variable, RowAxis]]


def with_rows[T](
    read: Callable[[Known], T], rows: RowData, candidates: Collection[Variable]
) -> tuple[T, RowData]:
    """Read expressions with as many candidates taken for rows, along first axes, as it needs."""
    while True:
        try:
            return read({each: (new, Rows(0)) for each, new in rows.items()}), rows
        except MixesRows as reason:
            left = set(candidates).difference(rows)
            more = {} if reason.lacking is None else behind(*reason.lacking, left)
            if not more:
                raise
            rows = rows | more


def own_rows(data: Variable) -> NDArray[Any]:
    """Values that the model holds at present."""
    held = data.get_value(borrow=True) if isinstance(data, SharedVariable) else data.data  # type: ignore[attr-defined]
    return np.asarray(held)


def given_rows(
    argument: str, given: Mapping[Any, object], model: pm.Model
) -> dict[Variable, object]:
    """Values by the data that they are of, given by these or by their names."""
    containers = {data.name: data for data in model.data_vars}
    unknown = [each for each in given if isinstance(each, str) and each not in containers]
    if unknown:
        raise ValueError(
            f"{argument} names {', '.join(map(repr, unknown))}, which the model does not have as "
            f"pm.Data; it has {', '.join(containers)}."
        )
    return {containers.get(each, each): values for each, values in given.items()}


def sampled_row_data(
    idata: Any, model: pm.Model, container: TensorSharedVariable
) -> dict[Variable, NDArray[Any]]:
    """The inputs that a model was sampled with, and all data that have as many rows."""
    X = sampled_rows(idata, model, container)
    found: dict[Variable, NDArray[Any]] = {container: X}
    for data in arrays_in([*model.basic_RVs, *model.deterministics]):
        if isinstance(data, TensorSharedVariable):
            values = sampled_rows(idata, model, data)
        else:
            values = own_rows(data)
        if len(values) == len(X):
            found[data] = values
    return found


def rows_of(
    argument: str,
    model: pm.Model,
    data: RowData,
    container: TensorSharedVariable,
    X: NDArray[Any],
    given: Mapping[Variable, object],
    checked: Collection[Variable] = (),
) -> list[NDArray[Any]]:
    """Values of the inputs and of the data that go with their rows, checked, in their order."""
    is_own = holds(own_rows(container), X)
    found = []
    for each in data:
        if each is container:
            values = X
        elif each in given:
            values = _read(f"{argument}[{describe(each)!r}]", given[each], each, each in checked)
        elif is_own:
            values = own_rows(each)
        elif (str(each.name).rpartition("::")[2], each.type.dtype) == ("censored", "bool"):
            values = np.zeros(len(X), bool)  # predicted durations are whole ones
        else:
            others = [other for other in data if other is not container]
            raise ValueError(_lack(argument, model, container, others, given))
        _require_as_many(argument, each, container, values, X)
        found.append(values)
    for each in given.keys() - data.keys() - {container}:
        if isinstance(each, SharedVariable) and own_rows(each).ndim:
            values = _read(f"{argument}[{describe(each)!r}]", given[each], each, each in checked)
            if len(own_rows(each)) == len(own_rows(container)):
                _require_as_many(argument, each, container, values, X)
    return found


def _require_as_many(
    argument: str,
    data: Variable,
    container: TensorSharedVariable,
    values: NDArray[Any],
    X: NDArray[Any],
) -> None:
    if len(values) != len(X):
        raise ValueError(
            f"{describe(data)} goes with the rows of {container.name} and must have as many; "
            f"it has {len(values)}, and {argument} {len(X)}."
        )


def _read(name: str, values: object, data: Variable, is_checked: bool = False) -> NDArray[Any]:
    """Values given for some data, infinite only where the model's may be, such as bounds."""
    old = own_rows(data)
    read = in_type(numbers(name, values, ()).values, old.dtype)
    if read.ndim != old.ndim or read.shape[1:] != old.shape[1:]:
        lengths = ", ".join(["n_obs", *map(str, old.shape[1:])]) + "," * (old.ndim == 1)
        raise ValueError(f"{name} must have shape ({lengths}); got {read.shape}.")
    if not is_checked:
        bounded = np.isinf(old).any()
        require_finite(name, np.nan_to_num(read, nan=np.nan) if bounded else read)
    if read.dtype != old.dtype:
        raise ValueError(
            f"{name} must be of whole numbers in the range of {old.dtype}, like the model's; got "
            f"{read.dtype}."
        )
    return read


def _lack(
    argument: str,
    model: pm.Model,
    container: TensorSharedVariable,
    needed: Sequence[Variable],
    given: Collection[Variable],
) -> str:
    with_rows = {model.named_vars.get(str(data.name), data) for data in needed}
    alone = [
        f', or compute what depends on the inputs alone, predict(..., output="{each.name}")'
        for each in model.deterministics
        if depends_on(each, {container}) and not depends_on(each, with_rows)
    ]
    complaint, others = f"{argument} has other rows than the model", [*alone, ""][0]
    for data in needed:
        if isinstance(data, Constant):
            numbers = data.name or f"{data.type.dtype} numbers of shape {data.data.shape}"
            return (
                f"{complaint}, which states {numbers} for its own rows alone; put a value for "
                f"every row in pm.Data{others}."
            )
    lacking = [str(data.name) for data in needed if data not in given]
    all_of_them = ", ".join(f'"{data.name}": ...' for data in (container, *needed))
    return (
        f"{complaint}, whose {', '.join(lacking)} {'goes' if len(lacking) == 1 else 'go'} with "
        f"them; pass {argument}={{{all_of_them}}}{others}."
    )


def behind(operand: Variable, place: Rows, candidates: Collection[Variable]) -> RowData:
    """The candidates whose number of rows is the length of an axis, and what stands for each."""
    sizes = {size_of(rv) for rv in random_in([operand]) if isinstance(rv, TensorVariable)}
    leaves: RowData = {
        leaf: of_any_length(leaf)
        for leaf in ancestors([operand])
        if leaf in candidates and leaf.type.ndim > 0 and leaf not in sizes
    }
    new: dict[Variable, Variable] = dict(leaves)
    for node in io_toposort(list(leaves), [operand]):
        made = node.op.make_node(*(new.get(each, each) for each in node.inputs))
        new |= zip(node.outputs, made.outputs, strict=True)
    [lengths] = infer_shape([new.get(operand, operand)], [], [])
    lengthened = arrays_whose_rows_enter([lengths[place.axis]])
    return {leaf: stand_in for leaf, stand_in in leaves.items() if stand_in in lengthened}


def arrays_whose_rows_enter(lengths: Sequence[Variable]) -> set[Variable]:
    """Arrays whose numbers of rows lengths are made of."""
    nodes = (part.owner for part in ancestors(lengths) if part.owner is not None)
    return {node.inputs[0] for node in nodes if node.op == Shape_i(0)}


def arrays_in(variables: Sequence[Variable]) -> list[Variable]:
    """Leaves in the graph of variables, of one axis or more."""
    return [
        leaf
        for leaf in graph_inputs(variables)
        if isinstance(leaf.type, TensorType) and leaf.type.ndim > 0
    ]


def of_any_length(variable: Any, dtype: DTypeLike | None = None) -> TensorVariable:
    """A variable of any number of rows."""
    is_data = isinstance(variable, Constant | SharedVariable)
    shape = own_rows(variable).shape if is_data else variable.type.shape
    kind = np.dtype(dtype or variable.type.dtype)
    return pt.tensor(variable.name, dtype=kind.name, shape=(None, *shape[1:]))


def taken(rows: Sequence[NDArray[Any]], chosen: Any) -> list[NDArray[Any]]:
    """Some of the rows of all data."""
    return [values[chosen] for values in rows]


def repeated(rows: Sequence[NDArray[Any]], n: int) -> list[NDArray[Any]]:
    """Each row of all data ``n`` times."""
    return [np.repeat(values, n, axis=0) for values in rows]
