"""What a builder accepts as inputs ``X`` and targets ``y``: checked arrays with their labels.

Every function here returns plain NumPy arrays ready for ``pm.Data`` or raises a ``ValueError``
with one sentence that names the argument and says what to do.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pytensor import config

__all__ = ["Inputs", "Targets", "binary_targets", "class_targets", "inputs", "regression_targets"]


@dataclass(frozen=True)
class Inputs:
    """Inputs of shape ``(n_obs, n_features)`` and the names of their columns, if they have any."""

    values: NDArray[np.floating]
    features: tuple[object, ...] | None


@dataclass(frozen=True)
class Targets:
    """Targets with ``n_obs`` rows, the number of network outputs, and the outputs' labels."""

    values: NDArray[np.generic]
    n_outputs: int
    outputs: tuple[object, ...] | None


def inputs(X: ArrayLike | pd.DataFrame) -> Inputs:
    """Check the inputs of a network.

    Parameters
    ----------
    X : array_like or DataFrame, shape (n_obs, n_features)

    Returns
    -------
    Inputs
        Values in ``floatX``; ``features`` are the columns of a DataFrame.

    Raises
    ------
    ValueError
        If ``X`` is not numeric, not 2-D, empty, or holds NaN or infinite values.
    """
    values = _numbers("X", X)
    if values.ndim != 2:
        hint = "; for a single feature pass X[:, None]" if values.ndim == 1 else ""
        raise ValueError(
            f"X must be 2-D with shape (n_obs, n_features); got shape {values.shape}{hint}."
        )
    _require_entries("X", values)
    _require_finite("X", values)
    return Inputs(values, _column_labels("X", X))


def regression_targets(y: ArrayLike | pd.Series | pd.DataFrame, n_obs: int) -> Targets:
    """Check real-valued targets.

    Parameters
    ----------
    y : array_like, Series or DataFrame, shape (n_obs,) or (n_obs, n_outputs)
    n_obs : int
        Number of rows of the inputs.

    Returns
    -------
    Targets
        Values in ``floatX`` with the shape of ``y``.

    Raises
    ------
    ValueError
        If ``y`` is not numeric, has the wrong shape, or holds NaN or infinite values.
    """
    values = _numbers("y", y)
    if values.ndim not in (1, 2):
        raise ValueError(
            f"y must have shape (n_obs,) or (n_obs, n_outputs); got shape {values.shape}."
        )
    _require_rows(len(values), n_obs)
    _require_entries("y", values)
    _require_finite("y", values)
    if values.ndim == 1:
        return Targets(values, 1, None)
    return Targets(values, values.shape[1], _column_labels("y", y))


def binary_targets(y: ArrayLike | pd.Series, n_obs: int) -> Targets:
    """Check targets that are 0 or 1.

    Parameters
    ----------
    y : array_like or Series, shape (n_obs,)
        Booleans or the numbers 0 and 1, both present.
    n_obs : int
        Number of rows of the inputs.

    Returns
    -------
    Targets
        Integer values and one output.

    Raises
    ------
    ValueError
        If ``y`` has the wrong shape, holds anything but 0 and 1, or only one of them.
    """
    values = _whole_numbers(_flat(_numbers("y", y), n_obs))
    strange = values[~np.isin(values, (0, 1))]
    if len(strange):
        raise ValueError(
            f'y must hold only 0 and 1 with likelihood="probit"; got {strange[0]:.0f}; '
            'for class labels use likelihood="multinomial_probit".'
        )
    _require_two_classes(values)
    return Targets(values.astype("int64"), 1, None)


def class_targets(y: ArrayLike | pd.Series | pd.Categorical, n_obs: int) -> Targets:
    """Check class labels and number them.

    Parameters
    ----------
    y : array_like, Series or Categorical, shape (n_obs,)
        Integers 0, ..., K-1, each present, or labels of any other kind (strings, categories).
    n_obs : int
        Number of rows of the inputs.

    Returns
    -------
    Targets
        Integer codes; ``outputs`` holds the label of each code. Strings are sorted, categories
        keep their order and may include categories that no row has.

    Raises
    ------
    ValueError
        If ``y`` has the wrong shape, missing labels, integers that are not 0, ..., K-1, or
        one class only.
    """
    labels = y if isinstance(y, pd.Series | pd.Categorical) else _array("y", y)
    if labels.dtype.kind in "biuf":
        values = _whole_numbers(_flat(_numbers("y", labels), n_obs))
        present = np.unique(values)
        if not np.array_equal(present, np.arange(len(present))):
            raise ValueError(
                "y must hold the integers 0, ..., K-1, each at least once, with "
                f'likelihood="multinomial_probit"; got {_listed(present)}; pass other labels as '
                "strings or as a pandas.Categorical that lists its categories."
            )
        _require_two_classes(values)
        return Targets(values.astype("int64"), len(present), tuple(range(len(present))))
    coded = pd.Categorical(_flat(labels, n_obs))
    missing = np.flatnonzero(coded.codes < 0)
    if len(missing):
        raise ValueError(
            f"y has {len(missing)} missing labels, the first at y[{missing[0]}]; remove those rows."
        )
    codes = coded.codes.astype("int64")
    _require_two_classes(codes)
    return Targets(codes, len(coded.categories), tuple(coded.categories.tolist()))


def _array(name: str, data: object) -> NDArray[np.generic]:
    try:
        return np.asarray(data)
    except ValueError:
        raise ValueError(f"{name} must be rectangular, with rows of equal length.") from None


def _numbers(name: str, data: object) -> NDArray[np.floating]:
    """``data`` in floatX; missing entries become NaN."""
    if isinstance(data, pd.DataFrame):
        strange = [c for c in data if not pd.api.types.is_numeric_dtype(data[c].dtype)]
        if strange:
            raise ValueError(f"{name} has non-numeric columns {strange}; encode them as numbers.")
        array = data.to_numpy(dtype="float64", na_value=np.nan)
    elif isinstance(data, pd.Series) and pd.api.types.is_numeric_dtype(data.dtype):
        array = data.to_numpy(dtype="float64", na_value=np.nan)
    elif isinstance(data, np.ma.MaskedArray):
        array = np.ma.filled(data.astype("float64"), np.nan)
    else:
        array = _array(name, data)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numeric; got dtype {array.dtype}; convert it first.")
    with np.errstate(over="ignore"):
        return array.astype(config.floatX)


def _column_labels(name: str, data: object) -> tuple[object, ...] | None:
    if not isinstance(data, pd.DataFrame):
        return None
    if data.columns.nlevels > 1:
        raise ValueError(f"{name} has columns with several levels; flatten them to one name each.")
    return tuple(data.columns.tolist())


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


def _require_finite(name: str, values: NDArray[np.floating]) -> None:
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        where = ", ".join(map(str, bad[0]))
        raise ValueError(
            f"{name} has {len(bad)} NaN or infinite values, the first at {name}[{where}]; "
            "remove or impute them."
        )


def _flat[Labels: (NDArray[np.generic], pd.Series, pd.Categorical)](
    labels: Labels, n_obs: int
) -> Labels:
    if labels.ndim != 1:
        raise ValueError(
            f"y must be 1-D, one label per row of X; got shape {labels.shape}; "
            "pass a single column."
        )
    _require_rows(len(labels), n_obs)
    return labels


def _whole_numbers(values: NDArray[np.floating]) -> NDArray[np.floating]:
    _require_finite("y", values)
    strange = np.flatnonzero(values != np.rint(values))
    if len(strange):
        raise ValueError(
            f"y must hold integer class labels; got {values[strange[0]]} at y[{strange[0]}]."
        )
    return values


def _require_two_classes(labels: NDArray[np.generic]) -> None:
    if len(np.unique(labels)) < 2:
        raise ValueError("y holds a single class; pass at least one row of two classes.")


def _listed(labels: NDArray[np.floating]) -> str:
    shown = ", ".join(f"{label:.0f}" for label in labels[:6])
    return shown + ", ..." if len(labels) > 6 else shown
