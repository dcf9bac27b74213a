"""Inputs of a network: a table, its data container, laws of what is missing, learnt categories."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable

from pymc_nnsteps.models.parts.context import Dim
from pymc_nnsteps.models.parts.imputation import completed
from pymc_nnsteps.tables import categories


@dataclass(frozen=True)
class Embedding:
    """A category whose levels are rows of a learnt matrix."""

    column: str
    levels: Mapping[int, str]  # the level of each column of the table that is its indicator
    width: int  # number of columns of the matrix

    @property
    def name(self) -> str:
        """Name of the matrix."""
        return f"{self.column}::E"

    @property
    def dims(self) -> dict[str, Dim]:
        """Dimensions of the matrix."""
        levels = Dim(len(self.levels), tuple(self.levels.values()))
        return {f"{self.column}::level": levels, f"{self.column}::embedding": Dim(self.width)}


def indicators_side_by_side(X: NDArray[np.floating]) -> list[list[int]]:
    """Columns of 0 and 1 and NaN; those side by side of which each complete row has one 1 together.

    Examples
    --------
    >>> indicators_side_by_side(np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    [[0], [1, 2]]
    """
    is_indicator = (np.isnan(X) | np.isin(X, (0, 1))).all(axis=0)
    found, first = [], 0
    while first < X.shape[1]:
        total, width = X[:, first], 1
        for last in range(first + 1, X.shape[1]):
            total = total + X[:, last]  # NaN in incomplete rows
            known = total[~np.isnan(total)]
            if not is_indicator[first : last + 1].all() or (known > 1).any():
                break
            if len(known) and (known == 1).all():
                width = last + 1 - first
                break
        if is_indicator[first]:
            found.append([*range(first, first + width)])
        first += width
    return found


@dataclass(frozen=True)
class Inputs:
    """Inputs of shape ``(n_obs, ...)`` and the names of their columns, if they have any."""

    table: NDArray[np.floating]  # the inputs as they are given, which the data container holds
    features: tuple[object, ...] | None
    # shape (n_features,), or None: the inputs of the network are ``(table - offset) / scale``.
    offset: NDArray[np.floating] | None = None
    scale: NDArray[np.floating] | None = None
    embeddings: tuple[Embedding, ...] = ()

    @cached_property
    def kept(self) -> list[int]:
        """Columns of the table that the network sees themselves."""
        embedded = {column for each in self.embeddings for column in each.levels}
        return [column for column in range(self.table.shape[1]) if column not in embedded]

    @property
    def of_network(self) -> dict[str, Dim]:
        """The dimension of the inputs of the network."""
        if not self.embeddings:
            return {"feature": Dim(self.table.shape[1], self.features)}
        labels = [*(self.features or ())]
        learnt = [f"{each.name}[{k}]" for each in self.embeddings for k in range(each.width)]
        of_inputs = (*(labels[column] for column in self.kept), *learnt)
        return {"input": Dim(len(of_inputs), of_inputs)}

    def dims(self, feature: str) -> dict[str, Dim]:
        """Dimensions of the columns of the table, and of what is learnt of categories."""
        found = {feature: Dim(self.table.shape[1], self.features)}
        for each in self.embeddings:
            found |= each.dims
        return found

    @cached_property
    def levels_missing(self) -> dict[object, list[int]]:
        """Categories with missing levels, and where they are."""
        labels: Sequence[object] = self.features or range(self.table.shape[1])
        found: dict[object, list[int]] = dict(categories(labels, self.table).items())
        of_levels = {place for places in found.values() for place in places}
        for places in indicators_side_by_side(self.table):
            if of_levels.isdisjoint(places):
                first, last = labels[places[0]], labels[places[-1]]
                found[first if len(places) == 1 else f"{first}:{last}"] = places
        gaps = np.isnan(self.table).any(axis=0)
        return {name: places for name, places in found.items() if gaps[places].any()}

    @property
    def filled(self) -> NDArray[np.floating]:
        """The table, with the mean or most frequent level of a column where it is missing."""
        missing = np.isnan(self.table)
        if not missing.any():
            return self.table
        usual = np.nanmean(self.table, axis=0)
        for places in self.levels_missing.values():
            several = np.arange(len(places)) == usual[places].argmax()
            usual[places] = several if len(places) > 1 else usual[places] > 0.5
        filled = np.where(missing, usual, self.table)
        return filled.astype(self.table.dtype)

    @property
    def values(self) -> NDArray[np.floating]:
        """Inputs of the network, of the table without gaps."""
        values: NDArray[np.floating] = self.seen(self.filled)
        return values

    def seen(self, table: Any) -> Any:
        """Inputs of the network for rows, which are an array or a tensor."""
        return table if self.scale is None else (table - self.offset) / self.scale

    def add(self, name: str, dims: tuple[str | None, str | None]) -> TensorVariable:
        """Add the data container, and return what is seen: missing entries are variables."""
        seen: TensorVariable = self.seen(pm.Data(name, self.filled, dims=dims))
        if np.isnan(self.table).any():
            with pm.Model(name=name):
                columns = self.features or range(self.table.shape[1])
                seen = completed(seen, self.seen(self.table), columns, self.levels_missing)
        if not self.embeddings:
            return seen
        parts = [seen[:, np.array(self.kept, int)]]
        for each in self.embeddings:
            shape = [dim.length for dim in each.dims.values()]
            matrix = pm.Normal(each.name, shape=shape, dims=tuple(each.dims))
            parts.append(seen[:, np.array([*each.levels])] @ matrix)
        together: TensorVariable = pt.concatenate(parts, axis=1)
        return together
