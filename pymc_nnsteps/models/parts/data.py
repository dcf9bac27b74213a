"""What a builder accepts as inputs ``X`` and targets ``y``: checked arrays with their labels.

Every function here returns plain NumPy arrays ready for ``pm.Data`` or raises a ``ValueError``
with one sentence that names the argument and a remedy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pytensor import config
from pytensor.tensor import TensorVariable

from pymc_nnsteps.arguments import (
    in_type,
    is_integer,
    positive_integer,
    require_bool,
    require_choice,
    require_finite,
)
from pymc_nnsteps.models.parts.inputs import Embedding, Inputs, require_laws
from pymc_nnsteps.tables import (
    Table,
    as_array,
    before_encoding,
    encoded,
    level_of,
    numbers,
    sources,
)

Missing = Literal["impute"] | None

NUMERIC = "biuf"
"""Kinds of types of numbers, NumPy's."""

Observed = TensorVariable | np.ma.MaskedArray
"""Targets as a distribution is given them: a data container, or an array with gaps."""


@dataclass(frozen=True)
class Targets:
    """Targets with ``n_obs`` rows, NaN where missing, numbers of outputs and their labels."""

    values: NDArray[np.generic]
    n_outputs: int
    outputs: tuple[object, ...] | None

    @property
    def missing(self) -> NDArray[np.bool]:
        """Where there is no value."""
        return np.isnan(self.values.astype(config.floatX))

    @property
    def filled(self) -> NDArray[np.floating]:
        """Values, the median of a column where they are missing."""
        values = self.values.astype(config.floatX)
        return np.where(self.missing, np.nanmedian(values, axis=0), values)


def inputs(
    X: ArrayLike | pd.DataFrame,
    standardize: bool = False,
    missing: Missing = None,
    embed: Mapping[str, int] | None = None,
    name: str = "X",
) -> Inputs:
    """Inputs (n_obs, n_features), NaN where missing; indicators are not standardised."""
    require_bool("standardize", standardize)
    if missing is not None:
        require_choice(
            "missing", missing, ["impute"], "leave it out to have missing inputs refused"
        )
    table = encoded(name, X, ("obs", "feature"))
    values = _floating(table)
    if values.ndim != 2:
        column = f"{name}.to_frame()" if isinstance(X, pd.Series) else f"{name}[:, None]"
        hint = f"; for a single feature pass {column}" if values.ndim == 1 else ""
        raise ValueError(
            f"{name} must be 2-D with shape (n_obs, n_features); got shape {values.shape}{hint}."
        )
    _require_entries(name, values)
    names = range(values.shape[1]) if table.columns is None else table.columns
    empty = [column for column, each in zip(names, values.T, strict=True) if np.isnan(each).all()]
    if empty:
        raise ValueError(
            f"{name} has only missing entries in the columns {empty}; leave them out (a constant "
            "column becomes NaN if it is divided by its standard deviation)."
        )
    known = np.nan_to_num(values, posinf=np.inf, neginf=-np.inf) if missing else values
    ways = {"X": 'missing="impute"', "x": 'nns.blocks.table(x, missing="impute")'}
    advice = "remove or impute them"
    if not np.isinf(values).any():
        advice += f", or pass {ways[name]} to have them drawn"
    advice = "make those NaN that are to be drawn" if missing else advice
    require_finite(name, known, advice, sources(table.columns or ()))
    embeddings = _embeddings(embed, table.columns or ())
    if missing and np.isnan(values).any():
        levels = Inputs(values, table.columns).levels_missing
        require_laws(name, values.astype("float64"), names, levels)
    if not standardize:
        return Inputs(values, table.columns, embeddings=embeddings)
    is_left = (np.isin(values, (0, 1)) | np.isnan(values)).all(axis=0)
    spread = np.nanstd(values, axis=0)
    return Inputs(
        values,
        table.columns,
        np.where(is_left, 0, np.nanmean(values, axis=0)).astype(values.dtype),
        np.where(is_left | (spread == 0), 1, spread).astype(values.dtype),
        embeddings,
    )


def _embeddings(embed: object, labels: tuple[object, ...]) -> tuple[Embedding, ...]:
    if embed is None:
        return ()
    if not isinstance(embed, Mapping):
        raise ValueError(
            f'embed must be a dict from columns to lengths of rows, such as {{"depot": 2}}; got '
            f"{embed!r}."
        )
    found = []
    for column, width in embed.items():
        levels = ((i, level_of(label, column)) for i, label in enumerate(labels))
        known = {i: level for i, level in levels if level is not None}
        if not known:
            heads = [h for h in before_encoding(labels) if h not in labels]
            raise ValueError(
                f"embed must name columns of text or categories, of which X has "
                f"{heads or 'none: pass a DataFrame that has them'}; got {column!r}."
            )
        found.append(Embedding(column, known, positive_integer(f"embed[{column!r}]", width)))
    return tuple(found)


def images(X: ArrayLike) -> Inputs:
    """Images, of shape (n_obs, height, width) or (n_obs, channels, height, width)."""
    values = _floating(numbers("X", X, ("obs",)))
    if values.ndim not in (3, 4):
        raise ValueError(
            "X must hold images, of shape (n_obs, height, width) or (n_obs, channels, height, "
            f"width); got shape {values.shape}; give it that shape by X.reshape."
        )
    _require_entries("X", values)
    require_finite("X", values)
    return Inputs(values, None)


def regression_targets(
    y: ArrayLike | pd.Series | pd.DataFrame,
    n_obs: int,
    two_classes: str,
    classes: str,
) -> Targets:
    """Real targets of shape (n_obs,) or (n_obs, n_outputs), NaN where they are missing.

    ``two_classes`` and ``classes`` are the likelihoods that messages name.
    """
    advice = f'for class labels use likelihood="{classes}"'
    table = numbers("y", y, ("obs", "output"), advice)
    if table.values.dtype.kind == "b":
        raise ValueError(
            "y is boolean, but this network has real targets; for two classes use "
            f'likelihood="{two_classes}"; for a regression on 0 and 1 pass y as floats.'
        )
    values = _floating(table)
    if values.ndim not in (1, 2):
        raise ValueError(
            f"y must have shape (n_obs,) or (n_obs, n_outputs); got shape {values.shape}."
        )
    _require_rows(len(values), n_obs)
    _require_entries("y", values)
    require_finite("y", np.nan_to_num(values, posinf=np.inf, neginf=-np.inf))
    empty = np.isnan(values).all(axis=0)
    if empty.any():
        first = int(empty.argmax())
        name = first if table.columns is None else table.columns[first]
        where = "" if values.ndim == 1 else f" in column {name}"
        raise ValueError(f"y has only missing values{where}; there is nothing to learn from.")
    if values.ndim == 1:
        return Targets(values, 1, None)
    return Targets(values, values.shape[1], table.columns)


def binary_targets(
    y: ArrayLike | pd.Series | pd.DataFrame,
    n_obs: int,
    likelihood: str = "probit",
    class_likelihood: str = "multinomial_probit",
    *,
    several: bool = False,
) -> Targets:
    """Targets 0 and 1, both present, of shape (n_obs,), or if ``several`` (n_obs, n_outputs)."""
    advice = (
        'for two classes compare with the label of one, such as y == "yes"; for several use '
        f'likelihood="{class_likelihood}"'
    )
    table = numbers("y", y, ("obs", "output"), advice)
    given = _floating(table)
    has_columns = several and given.ndim == 2
    values = _whole_numbers("y", given if has_columns else _labels("y", given))
    _require_rows(len(values), n_obs)
    strange = values[~np.isin(values, (0, 1))]
    if len(strange):
        raise ValueError(
            f'y must hold only 0 and 1 with likelihood="{likelihood}"; got {strange[0]:.0f}; '
            f'for class labels use likelihood="{class_likelihood}".'
        )
    _require_two_classes("y", len(np.unique(values)))
    n_outputs = values.shape[1] if has_columns else 1
    return Targets(values.astype("int64"), n_outputs, table.columns if has_columns else None)


def class_targets(
    y: ArrayLike | pd.Series | pd.Categorical,
    n_obs: int,
    likelihood: str,
) -> Targets:
    """Numbers of class labels, of shape (n_obs,), and the label of each number.

    Labels are 0, ..., K-1, each present, or of any other kind. Strings are sorted; categories keep
    their order and may include categories that no row has.
    """
    labels = _labels("y", y)
    _require_rows(len(labels), n_obs)
    codes, classes = _coded("y", labels, f' with likelihood="{likelihood}"')
    _require_two_classes("y", len(np.unique(codes)))
    return Targets(codes, len(classes), classes)


def one_hot(
    labels: ArrayLike | pd.Series | pd.Categorical, n_classes: int | None = None
) -> NDArray[np.floating]:
    """Targets for a regression on class labels: one output per class, with sum zero.

    The entry of a row is ``1 - 1/K`` in the column of its label and ``-1/K`` in the others; for
    ten classes this is the one-hot code shifted by ``-1/10`` of the literature.

    Parameters
    ----------
    labels : array_like, Series or Categorical, shape (n_obs,)
        Integers 0, ..., K-1, or labels of any other kind (strings, categories). Strings are
        sorted, categories keep their order and may include categories that no row has.
    n_classes : int, optional
        ``K``. Without it every integer 0, ..., K-1 must be present.

    Returns
    -------
    ndarray of floatX, shape (n_obs, K)

    Raises
    ------
    ValueError
        If ``labels`` has the wrong shape, missing labels, or integers that are not 0, ..., K-1,
        or if ``n_classes`` is not a number of classes that fits the labels.

    References
    ----------
    Lee et al., *Deep Neural Networks as Gaussian Processes* (2018), experiments; Pezzetti,
    Favaro and Peluchetti, *Function-Space MCMC for Bayesian Wide Neural Networks* (2025),
    experiments.

    Examples
    --------
    >>> from pymc_nnsteps.models import one_hot
    >>> one_hot(["cat", "dog", "cat"])
    array([[ 0.5, -0.5],
           [-0.5,  0.5],
           [ 0.5, -0.5]])
    >>> one_hot([3, 0], n_classes=4).sum(axis=1)
    array([0., 0.])
    """
    given = _labels("labels", labels)
    _require_entries("labels", given)
    if n_classes is not None and (not is_integer(n_classes) or n_classes < 2):
        raise ValueError(f"n_classes must be an integer of at least 2; got {n_classes!r}.")
    if n_classes is not None and given.dtype.kind in NUMERIC:
        values = _whole_numbers("labels", given)
        strange = values[(values < 0) | (values >= n_classes)]
        if len(strange):
            raise ValueError(
                f"labels must hold integers from 0 to {n_classes - 1} with n_classes={n_classes}; "
                f"got {strange[0]:.0f}."
            )
        codes = values.astype("int64")
    else:
        codes, classes = _coded("labels", given, "; pass n_classes if a class has no rows")
        if n_classes not in (None, len(classes)):
            raise ValueError(
                f"n_classes is {n_classes}, but labels has {len(classes)} classes; leave n_classes "
                "out, or pass a pandas.Categorical that lists all categories."
            )
        n_classes = len(classes)
    _require_two_classes("labels", n_classes)
    return np.eye(n_classes, dtype=config.floatX)[codes] - np.asarray(1 / n_classes, config.floatX)


def _floating(table: Table) -> NDArray[np.floating]:
    """Numbers of a table in floatX."""
    return in_type(table.values, config.floatX)


def _require_rows(rows: int, n_obs: int) -> None:
    if rows != n_obs:
        raise ValueError(
            f"y must have one row per row of X; got {rows} rows in y and {n_obs} in X."
        )


def _require_entries(name: str, values: NDArray[np.generic]) -> None:
    if not values.size:
        raise ValueError(
            f"{name} is empty (shape {values.shape}); pass at least one row and one column."
        )


def _labels(name: str, labels: Any) -> NDArray[np.generic] | pd.Series | pd.Categorical:
    known = isinstance(labels, pd.Series | pd.Categorical)
    found: Any = labels if known else as_array(name, labels)
    if found.ndim != 1:
        raise ValueError(
            f"{name} must be 1-D, one label per row of X; got shape {found.shape}; "
            "pass a single column."
        )
    return found


def _whole_numbers(name: str, labels: object) -> NDArray[np.floating]:
    values = _floating(numbers(name, labels, ("obs",)))
    require_finite(name, values)
    strange = np.argwhere(values != np.rint(values))
    if len(strange):
        where = ", ".join(map(str, strange[0]))
        raise ValueError(
            f"{name} must hold integer class labels; "
            f"got {values[tuple(strange[0])]} at {name}[{where}]."
        )
    return values


def _coded(
    name: str, labels: NDArray[np.generic] | pd.Series | pd.Categorical, hint: str
) -> tuple[NDArray[np.int64], tuple[object, ...]]:
    """Numbers of the labels, 0, ..., K-1, and the label of each number."""
    if labels.dtype.kind in NUMERIC:
        values = _whole_numbers(name, labels)
        present = np.unique(values)
        if not np.array_equal(present, np.arange(len(present))):
            shown = ", ".join(f"{label:.0f}" for label in present[:6])
            raise ValueError(
                f"{name} must hold the integers 0, ..., K-1, each at least once{hint}; got "
                f"{shown + ', ...' * (len(present) > 6)}; pass other labels as strings or as a "
                "pandas.Categorical that lists its categories."
            )
        return values.astype("int64"), tuple(range(len(present)))
    coded = pd.Categorical(labels)
    missing = np.flatnonzero(coded.codes < 0)
    if len(missing):
        raise ValueError(
            f"{name} has {len(missing)} missing labels, the first at {name}[{missing[0]}]; "
            "remove those rows."
        )
    return coded.codes.astype("int64"), tuple(coded.categories.tolist())


def _require_two_classes(name: str, n_classes: int) -> None:
    if n_classes < 2:
        raise ValueError(f"{name} holds a single class; pass at least one row of two classes.")
