"""Columns of a model's inputs, by position or by name."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.tensor.sharedvar import TensorSharedVariable

from pymc_nnsteps.tables import Table, encoded

TAKEN = {"chain", "draw", "obs", "output"}
"""Dimension names that predictions already use."""


@dataclass(frozen=True)
class Column:
    """A column of the inputs.

    Attributes
    ----------
    name : str
        Its label; or the container's name with it, if it is a number or a name of a dimension.
    """

    position: int
    name: str


def read_rows(
    argument: str, model: pm.Model, container: TensorSharedVariable, given: object
) -> Table:
    """A table for a data container, with the columns of its labels.

    ``argument`` is what the caller calls what is ``given``, for messages.
    """
    dims = model.named_vars_to_dims.get(container.name) or ("obs", "feature")
    return encoded(argument, given, dims, model.coords.get(dims[1]) if len(dims) == 2 else None)


def find_column(
    argument: str, model: pm.Model, container: TensorSharedVariable, wanted: object
) -> Column:
    """The column of a name, or else of a position, in the data container of the inputs.

    ``argument`` is what the caller calls what is ``wanted``, for messages.
    """
    if container.ndim != 2:
        raise ValueError(
            f"{argument} is a column of a table, but {container.name} has {container.ndim} axes."
        )
    dims = model.named_vars_to_dims.get(container.name) or (None, None)
    n_columns = container.get_value(borrow=True).shape[1]
    labels = list(model.coords.get(dims[1]) or range(n_columns))
    if wanted in labels:
        position = labels.index(wanted)
    elif isinstance(wanted, int | np.integer) and 0 <= wanted < n_columns:
        position = int(wanted)
    else:
        raise ValueError(f"{argument} must be one of the columns {labels}; got {wanted!r}.")
    label = labels[position]
    has_name = isinstance(label, str) and label not in TAKEN
    return Column(position, label if has_name else f"{container.name}[{label}]")


def evenly_spread(values: NDArray[Any], n: int) -> NDArray[Any]:
    """At most ``n`` values over the range of a column: integers where it holds these."""
    grid = np.linspace(float(values.min()), float(values.max()), n)
    return grid if values.dtype.kind == "f" else np.unique(grid.round()).astype(values.dtype)
