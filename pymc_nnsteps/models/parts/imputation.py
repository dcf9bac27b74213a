r"""Laws of inputs of which some are missing.

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
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.initial_values import begin_at
from pymc_nnsteps.tables import listed

__all__ = ["codes", "completed", "indicators", "regressions", "require_laws"]

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
