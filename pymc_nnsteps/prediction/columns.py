"""Columns of a model's inputs, by position or by name."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.tensor.sharedvar import TensorSharedVariable

__all__ = ["Column", "evenly_spread", "find_column"]

TAKEN = {"chain", "draw", "obs", "output"}
"""Dimension names that predictions already use."""


@dataclass(frozen=True)
class Column:
    """A column of the inputs.

    Attributes
    ----------
    position : int
    name : str
        Its label; or the container's name with it, if it is a number or a name of a dimension.
    """

    position: int
    name: str


def find_column(
    argument: str, model: pm.Model, container: TensorSharedVariable, wanted: object
) -> Column:
    """The column of a name, or else of a position.

    Parameters
    ----------
    argument : str
        What the caller calls ``wanted``, for messages.
    model : pm.Model
    container : TensorSharedVariable
        The data container of the inputs, a table.
    wanted : int or str

    Returns
    -------
    Column

    Raises
    ------
    ValueError
        If there is no such column.
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
