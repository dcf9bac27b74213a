"""Entries that new inputs pick of a variable, such as the effect of a row's group."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import Cast
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.names import describe_expression
from pymc_nnsteps.graphs.search import depends_on
from pymc_nnsteps.prediction.row_data import RowData, own_rows

__all__ = ["Picked", "picked_entries", "require_entries", "uncast"]


def require_entries(
    argument: str,
    outputs: Sequence[TensorVariable],
    rows: RowData,
    values: Sequence[NDArray[Any]],
) -> None:
    """Check that inputs which pick entries of a variable pick those that there are.

    An index that the model's own inputs count from the end, or round, may be such in new ones.

    Parameters
    ----------
    argument : str
        What the caller calls new inputs, for messages.
    outputs : sequence of TensorVariable
        In terms of the inputs.
    rows : RowData
        What stands for the inputs, and for data that go with their rows.
    values : sequence of ndarray
        New ones.
    """
    for picked in picked_entries(outputs, rows, values):
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
                f"has the entries from 0 {last}; pass rows whose groups the model knows, or with "
                "sample_new_groups=True those of new groups, counted on."
            )


@dataclass(frozen=True)
class Picked:
    """Entries that rows pick of an array, along one of its axes.

    Attributes
    ----------
    length : int or None
        Of the axis, as far as its type tells.
    new, old : ndarray
        Indices of new rows and of the model's.
    """

    entries: TensorVariable
    array: TensorVariable
    axis: int
    length: int | None
    new: NDArray[Any]
    old: NDArray[Any]


def picked_entries(
    outputs: Sequence[TensorVariable], rows: RowData, values: Sequence[NDArray[Any]]
) -> Iterator[Picked]:
    """Entries that new rows pick of arrays; those that pick indices of others come first.

    Parameters
    ----------
    outputs, rows, values
        As for :func:`require_entries`.
    """
    inputs = list(rows.values())
    own = [own_rows(data).astype(new.dtype) for data, new in zip(rows, values, strict=True)]
    for node in io_toposort([], outputs):
        if not isinstance(node.op, AdvancedSubtensor):
            continue
        array: Any = node.inputs[0]
        entries: Any = node.outputs[0]
        for axis, index in enumerate(indices_from_subtensor(node.inputs[1:], node.op.idx_list)):
            if isinstance(index, slice) or not depends_on(index, set(inputs)):
                continue
            function = pytensor.function(
                inputs, uncast(index, inputs), on_unused_input="ignore", mode="FAST_COMPILE"
            )
            length = array.type.shape[axis]
            yield Picked(entries, array, axis, length, function(*values), function(*own))


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
