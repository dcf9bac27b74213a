"""Named tables: the numbers of an input with the names of its columns and the labels of its rows.

Tables of pandas and xarray, and any frame with ``columns`` (polars) or ``column_names`` (Arrow),
are read by their names; everything else is an array without names. Results print as tables of text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import DTypeLike, NDArray
from pytensor import config

__all__ = ["Table", "as_text", "in_type", "numbers", "require_same_rows"]


@dataclass(frozen=True)
class Table:
    """Numbers with the names of their columns and the labels of their rows, if they have any.

    Attributes
    ----------
    values : ndarray of bool, int or float
        Missing entries are NaN.
    columns : tuple or None
        Names along the second axis.
    rows : pandas.Index or None
        Labels along the first axis.
    """

    values: NDArray[Any]
    columns: tuple[object, ...] | None = None
    rows: pd.Index | None = None

    def arranged(self, name: str, columns: Sequence[object] | None) -> NDArray[Any]:
        """Values with the columns of these names, in this order.

        Parameters
        ----------
        name : str
            The table's name, for messages.
        columns : sequence or None
            Where there are no names, or the table's own are but the numbers 0, 1, ..., columns
            stay as they are.

        Raises
        ------
        ValueError
            If the names of the table's columns are others.
        """
        if columns is None or self.columns is None:
            return self.values
        if set(self.columns) == set(columns):
            return self.values[:, [self.columns.index(column) for column in columns]]
        if self.columns == tuple(range(len(self.columns))):
            return self.values
        raise ValueError(
            f"{name} must have the columns {list(columns)} of the model; got {list(self.columns)}."
        )


def numbers(
    name: str, data: object, dims: Sequence[str], advice: str = "convert it first"
) -> Table:
    """Read a table of numbers.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    data : array_like or table
        Arrays, lists, Series and DataFrames of pandas or polars, Arrow tables, DataArrays and
        Datasets of xarray.
    dims : sequence of str
        Names of the axes, rows first. An axis of a DataArray that has one of these names goes to
        its place, the others take the places that are left.
    advice : str
        What to do with data that are no numbers, for the message.

    Returns
    -------
    Table

    Raises
    ------
    ValueError
        If the data are not numeric, not rectangular or sparse, or if columns have no names of
        their own.
    """
    data = _oriented(data, dims)
    if isinstance(data, xr.DataArray):
        labels = [data.indexes.get(dim) for dim in data.dims]
        rows, names = (*labels, None, None)[:2]
        columns = None if names is None else _names(name, names)
        return Table(_plain(name, data.to_numpy(), advice), columns, rows)
    if isinstance(data, pd.DataFrame):
        columns = _names(name, data.columns)
        series = [data.iloc[:, position] for position in range(len(columns))]
        return Table(_joined(name, columns, series, len(data)), columns, data.index)
    if isinstance(data, pd.Series):
        return Table(_plain(name, data, advice), None, data.index)
    frame: Any = data
    names = getattr(frame, "column_names", getattr(frame, "columns", None))
    if names is not None:
        columns = _names(name, pd.Index(list(names)))
        return Table(_joined(name, columns, [frame[c] for c in columns], len(frame)), columns)
    return Table(_plain(name, data, advice))


def in_type(values: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Numbers in a type, or in floatX where this is of integers or booleans and they are not.

    What is too large for a type is infinite.

    Parameters
    ----------
    values : ndarray of bool, int or float
    dtype : dtype_like

    Examples
    --------
    >>> import numpy as np
    >>> in_type(np.array([1.0, 2.0]), "int64"), in_type(np.array([0.5, 2.0]), "int64")
    (array([1, 2]), array([0.5, 2. ]))
    """
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(dtype)
        if cast.dtype.kind == "f" or np.array_equal(cast, values):
            return cast
        return values.astype(config.floatX)


def require_same_rows(X: object, y: object, *, names: tuple[str, str] = ("X", "y")) -> None:
    """Check that rows of inputs and targets with labels are in the same order.

    Rows without labels, and those whose labels are but the numbers 0, 1, ... while the labels of
    the others are no numbers, are paired by their positions.

    Parameters
    ----------
    X, y : array_like or table
    names : (str, str)
        What the caller calls them, for messages.

    Raises
    ------
    ValueError
        If both have labels, and other ones, or these in another order.
    """
    inputs, targets = _rows(X, ("obs", "feature")), _rows(y, ("obs", "output"))
    if inputs is None or targets is None or inputs.equals(targets):
        return
    same = len(inputs) == len(targets) and set(inputs) == set(targets)
    numeric = sum(pd.api.types.is_numeric_dtype(labels) for labels in (inputs, targets))
    numbered = _are_positions(inputs) or _are_positions(targets)
    if same or numeric != 1 or not numbered:
        one, other = names
        how = f"the row labels of {one} in another order"
        if not same:
            how = f"other row labels than {one}"
        raise ValueError(
            f"{other} has {how}; put its rows in the order of {one} by their labels, such as with "
            ".loc, or pass both as arrays."
        )


def _oriented(data: object, dims: Sequence[str]) -> object:
    """Labelled data of xarray with their axes in the order of ``dims``."""
    if isinstance(data, xr.Dataset):
        data = data.reset_coords(drop=True).to_dataarray(dims[-1])
    if not isinstance(data, xr.DataArray) or data.ndim != len(dims):
        return data
    others = (dim for dim in data.dims if dim not in dims)
    return data.transpose(*(dim if dim in data.dims else next(others) for dim in dims))


def _rows(data: object, dims: Sequence[str]) -> pd.Index | None:
    data = _oriented(data, dims)
    if isinstance(data, pd.DataFrame | pd.Series):
        return data.index
    return data.indexes.get(data.dims[0]) if isinstance(data, xr.DataArray) and data.ndim else None


def _are_positions(labels: pd.Index) -> bool:
    return labels.equals(pd.RangeIndex(len(labels)))


def _names(name: str, columns: pd.Index) -> tuple[object, ...]:
    if columns.nlevels > 1:
        raise ValueError(f"{name} has columns with several levels; flatten them to one name each.")
    twice = columns[columns.duplicated()]
    if len(twice):
        raise ValueError(f"{name} has several columns {twice[0]!r}; give each a name of its own.")
    return tuple(columns.tolist())


def _joined(
    name: str, columns: Sequence[object], series: Sequence[Any], n_rows: int
) -> NDArray[Any]:
    arrays = [_array(name, each) for each in series]
    strange = [c for c, array in zip(columns, arrays, strict=True) if not _is_numeric(array)]
    if strange:
        raise ValueError(f"{name} has non-numeric columns {strange}; encode them as numbers.")
    return np.stack(arrays, axis=1) if arrays else np.empty((n_rows, 0))


def _plain(name: str, data: object, advice: str) -> NDArray[Any]:
    array = _array(name, data)
    if not _is_numeric(array):
        raise ValueError(f"{name} must be numeric; got dtype {array.dtype}; {advice}.")
    return array


def _array(name: str, data: object) -> NDArray[Any]:
    types = pd.api.types
    if isinstance(data, pd.Series) and types.is_bool_dtype(data.dtype) and not data.hasnans:
        return data.to_numpy(dtype=bool)
    if (
        isinstance(data, pd.Series)
        and types.is_numeric_dtype(data.dtype)
        and not types.is_complex_dtype(data.dtype)
    ):
        return data.to_numpy(dtype="float64", na_value=np.nan)
    if isinstance(data, np.ma.MaskedArray):
        return np.ma.filled(data.astype("float64"), np.nan)
    return as_array(name, data)


def as_array(name: str, data: object) -> NDArray[Any]:
    """Return what is rectangular and not sparse as an array.

    Raises
    ------
    ValueError
        Naming it, if it is neither.
    """
    if hasattr(data, "toarray"):
        raise ValueError(f"{name} is sparse; pass {name}.toarray().")
    try:
        return np.asarray(data)
    except ValueError:
        raise ValueError(f"{name} must be rectangular, with rows of equal length.") from None


def _is_numeric(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "biuf"


def as_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows below a header, in columns that begin where the longest entry before leaves them.

    Parameters
    ----------
    header : sequence of str
    rows : sequence of sequence of str
        As many entries each.

    Examples
    --------
    >>> print(as_text(["variable", "law"], [["a", "Gaussian"], ["variance", ""]]))
    variable  law
    ------------------
    a         Gaussian
    variance
    """
    table = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    head, *lines = (
        "  ".join(f"{entry:<{width}}" for entry, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )
    return "\n".join([head, "-" * max(map(len, [head, *lines])), *lines])
