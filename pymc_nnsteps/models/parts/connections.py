"""Which parameter of a group each connection between two layers uses, or each unit of one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.tensor import TensorVariable

__all__ = ["Connections", "connections_between"]

ABSENT = -1


@dataclass(frozen=True, eq=False)
class Connections:
    """Weights that are shared by connections, or absent, and biases and offsets alike."""

    # shape (fan_out, fan_in), of biases and offsets (units,): the weight of each connection; -1
    # where there is none.
    index: NDArray[np.integer]

    @property
    def n_weights(self) -> int:
        """Number of different weights."""
        return int(self.index.max()) + 1

    @property
    def n_sources(self) -> int:
        """Largest number of connections that lead into a unit."""
        return int((self.index != ABSENT).sum(axis=-1).max())

    def of_each(self, weights: TensorVariable) -> TensorVariable:
        """Weight of each connection, shaped as the index, from those of shape (n_weights,)."""
        absent = pt.zeros(1, dtype=weights.dtype)
        return pt.concatenate([weights, absent])[self.index]


def connections_between(key: str, given: ArrayLike, shape: tuple[int, ...]) -> Connections:
    """Check the connections of a group of this name, between layers of this shape."""
    name = f"connections[{key!r}]"
    if np.ma.is_masked(given):
        raise ValueError(
            f"{name} is masked; write {ABSENT} where there is no connection, as by "
            f"index.filled({ABSENT})."
        )
    index: NDArray[Any] = np.asarray(given)
    if index.shape != shape:
        raise ValueError(
            f"{name} must have the shape {shape}, as without connections; got {index.shape}."
        )
    if not np.issubdtype(index.dtype, np.integer):
        raise ValueError(
            f"{name} must be integers, the number of each connection's weight or {ABSENT}; got "
            f"{index.dtype}."
        )
    used = np.unique(index[index != ABSENT])
    if not np.array_equal(used, np.arange(len(used))) or not len(used):
        raise ValueError(
            f"{name} must use every weight from 0 to the largest, and {ABSENT} where there is no "
            f"connection; got {_listed(np.unique(index))}."
        )
    return Connections(index)


def _listed(numbers: NDArray[np.integer], most: int = 10) -> str:
    shown = ", ".join(str(number) for number in numbers[:most])
    return f"{shown}, ..." if len(numbers) > most else shown
