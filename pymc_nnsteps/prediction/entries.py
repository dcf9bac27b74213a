"""Entries that new inputs pick of a variable, such as the effect of a row's group."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytensor
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Cast
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import depends_on
from pymc_nnsteps.prediction.row_data import RowData, own_rows

__all__ = ["require_entries"]


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

    Raises
    ------
    ValueError
        Naming the first that picks another one, and the variable.
    """
    inputs = list(rows.values())
    picked = list(_picked(outputs, inputs))
    if not picked:
        return
    function = pytensor.function(
        inputs,
        [_uncast(index, inputs) for _, _, index in picked],
        on_unused_input="ignore",
        mode="FAST_COMPILE",
    )
    own = [own_rows(data).astype(new.dtype) for data, new in zip(rows, values, strict=True)]
    for (array, length, _), new, old in zip(picked, function(*values), function(*own), strict=True):
        strange = (new != np.rint(new)) & np.all(old == np.rint(old))
        strange |= (new < 0) & np.all(old >= 0)
        if length is not None:
            strange |= (new >= length) | (new < -length)
        if strange.any():
            first = new[strange].flat[0]
            last = "on" if length is None else f"to {length - 1}"
            raise ValueError(
                f"{argument} picks entry {first:g} of {describe(array)}, which has the entries "
                f"from 0 {last}; pass rows whose groups the model knows."
            )


def _picked(
    outputs: Sequence[TensorVariable], inputs: Sequence[TensorVariable]
) -> Iterator[tuple[Variable, int | None, Variable]]:
    """Arrays of which inputs pick entries, the length of the axis, and the indices."""
    for variable in ancestors(outputs):
        node = variable.owner
        if node is not None and isinstance(node.op, AdvancedSubtensor):
            array = node.inputs[0]
            indices = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
            for axis, index in enumerate(indices):
                if not isinstance(index, slice) and depends_on(index, set(inputs)):
                    yield array, array.type.shape[axis], index


def _uncast(index: Variable, inputs: Sequence[TensorVariable]) -> Variable:
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
