r"""Inputs of a network: a table, its data container, laws of what is missing, learnt categories.

Columns without gaps are given. Each other column j of numbers is Normal about a linear function of
these and of the columns with gaps before it, of which fewer entries are missing:

.. math:: x_j \mid x_{<j} \sim N(w_{j0} + x_{<j} w_j,\ \sigma_j^2),

which is a Gaussian law of all columns with gaps, with any covariance, in the parametrisation of
Pourahmadi (1999, eq. 2-3). Levels c of a category with gaps are drawn by their shares,

.. math:: c \mid p \sim \text{Categorical}(p), \qquad p \sim \text{Dirichlet}(1, \dots, 1),

independently of other columns: the linear functions leave its indicators out. Missing entries are
variables of the model: the targets inform them too.

References
----------
Pourahmadi, *Joint Mean-Covariance Models with Applications to Longitudinal Data*, Biometrika 86
(1999). Erler et al., *Dealing with Missing Covariates in Epidemiologic Studies*, Statistics in
Medicine 35 (2016), on laws of covariates one after another.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor import TensorVariable

from pymc_nnsteps.graphs.initial_values import begin_at
from pymc_nnsteps.models.parts.context import Dim
from pymc_nnsteps.tables import categories, listed

EXACT = 1e-9
"""Relative size of residuals that are but rounding."""


def completed(
    x: TensorVariable,
    values: NDArray[np.floating],
    columns: Sequence[object],
    categories: Mapping[object, Sequence[int]],
) -> TensorVariable:
    """Add the laws of columns with gaps to the model, and put their missing entries into ``x``.

    ``x`` and ``values`` are (n_obs, n_features); missing entries begin at what ``x`` holds there.
    """
    missing = np.isnan(values)
    own_rows = CheckAndRaise(
        ValueError,
        f"pm.set_data has changed the number of rows of {pm.modelcontext(None).name}, but which of "
        "its entries are missing is a part of the model: predict new rows by nns.predict, or build "
        "the model again to sample them.",
    )
    given: Any = own_rows(x, pt.eq(x.shape[0], len(values)))
    for j, before in regressions(missing, categories):
        column = _name(columns[j])
        weights = pm.Normal(f"{column}_weights", 0, 1, shape=1 + len(before))
        mean = weights[0] + x[:, before] @ weights[1:]
        sigma = pm.HalfNormal(f"{column}_sigma", 1)
        [gaps], [seen] = np.nonzero(missing[:, j]), np.nonzero(~missing[:, j])
        pm.Normal(f"{column}_observed", mean[seen], sigma, observed=values[seen, j])
        entries = pm.Normal(f"{column}_missing", mean[gaps], sigma)
        x = pt.set_subtensor(x[gaps, j], begin_at(entries, given[gaps, j]))
    for category, places in categories.items():
        is_gap = missing[:, places[0]]
        [gaps], [seen] = np.nonzero(is_gap), np.nonzero(~is_gap)
        levels, column, where = indicators(len(places)), _name(category), np.array(places)
        shares = pm.Dirichlet(f"{column}_shares", np.ones(len(levels)))
        pm.Categorical(f"{column}_observed", shares, observed=codes(values[seen][:, places]))
        entries = pm.Categorical(f"{column}_missing", shares, shape=len(gaps))
        begin_at(entries, codes(given[gaps][:, where]))
        x = pt.set_subtensor(x[gaps[:, None], where], pt.constant(levels, dtype=x.dtype)[entries])
    return x


def regressions(
    missing: NDArray[np.bool_], categories: Mapping[object, Sequence[int]]
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Columns of numbers with gaps, and those that each is regressed on."""
    of_levels = [column for places in categories.values() for column in places]
    order = np.argsort(missing.sum(axis=0), kind="stable")
    order = order[~np.isin(order, of_levels)]
    for position, j in enumerate(order):
        if missing[:, j].any():
            yield int(j), np.sort(order[:position])


def require_laws(
    name: str,
    values: NDArray[np.floating],
    columns: Sequence[object],
    categories: Mapping[object, Sequence[int]],
) -> None:
    """Check that laws of missing entries can be learnt, from residuals, with names that differ."""
    missing = np.isnan(values)
    with_laws = [*categories]
    for label, places in categories.items():
        known = values[~missing[:, places].any(axis=1)][:, places]
        if (missing[:, places].any(axis=1) & ~missing[:, places].all(axis=1)).any():
            raise ValueError(
                f"{name} has NaN in some but not all of the columns {_listed(columns, places)} in "
                "a row, which are indicators of one category; make all of them NaN, or none."
            )
        if (known == known[:1]).all():
            raise ValueError(
                f"{name} has missing entries besides one value in the column {label!r}; make a "
                "level of them, such as 0 beside 1, or leave the column out."
            )
    for j, before in regressions(missing, categories):
        with_laws.append(columns[j])
        used = values[~missing[:, [*before, j]].any(axis=1)]
        design = np.column_stack([np.ones(len(used)), used[:, before]])
        fitted, _, rank, _ = np.linalg.lstsq(design, used[:, j])
        residuals = used[:, j] - design @ fitted
        if rank < len(used) and np.abs(residuals).max() <= EXACT * np.abs(used[:, j]).max():
            is_constant = np.ptp(used[:, j]) == 0
            of = "constant" if is_constant else f"a linear function of {_listed(columns, before)}"
            raise ValueError(
                f"{name} has missing entries in the column {columns[j]!r}, which is {of}; fill "
                "them in by it, or leave the column out."
            )
    named = [_name(label) for label in with_laws]
    if twice := [each for each in named if named.count(each) > 1]:
        raise ValueError(
            f"{name} has several columns with missing entries whose variables would be called "
            f"{twice[0]!r}; rename one of them."
        )


def _listed(columns: Sequence[object], places: Iterable[int]) -> str:
    return listed([columns[place] for place in places])


def _name(label: object) -> str:
    return str(label).replace("/", "_")


def indicators(n_columns: int) -> NDArray[np.floating]:
    """Indicators (n_levels, n_columns) of levels; a single column is that of the second of two."""
    n_levels = max(n_columns, 2)
    return np.eye(n_levels)[:, n_levels - n_columns :]


def codes(rows: Any) -> Any:
    """Numbers of the levels of rows (n, n_columns), which are an array or a tensor."""
    n_columns = rows.type.shape[1] if isinstance(rows, TensorVariable) else rows.shape[1]
    return (rows @ indicators(n_columns).argmax(axis=0)).astype("int64")


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
