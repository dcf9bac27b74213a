"""Columns of a model's inputs, by position or by name."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.tensor.sharedvar import TensorSharedVariable

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
