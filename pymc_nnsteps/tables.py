"""Named tables: the numbers of an input with the names of its columns and the labels of its rows.

Tables of pandas and xarray, and any frame with ``columns`` (polars) or ``column_names`` (Arrow),
are read by their names; everything else is an array without names. Results print as tables of text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import DTypeLike, NDArray
from pytensor import config

ROOM = 20
"""Least width of a wrapped column."""


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

        Columns stay as they are where there are no names, or the table's own are but 0, 1, ...
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
    """Read numbers of an array or a table, or say by ``name`` why they cannot be read.

    An axis of a DataArray that is one of ``dims`` (rows first) goes to its place; the others take
    the places that are left. ``advice`` says what to do with data that are no numbers.
    """
    data = _oriented(data, dims)
    if isinstance(data, xr.DataArray):
        labels = [data.indexes.get(dim) for dim in data.dims]
        rows, found = (*labels, None, None)[:2]
        columns = None if found is None else _names(name, found)
        return Table(_plain(name, data.to_numpy(), advice), columns, rows)
    rows = data.index if isinstance(data, pd.DataFrame | pd.Series) else None
    frame: Any = data
    given = getattr(frame, "column_names", getattr(frame, "columns", None))
    if given is None:
        return Table(_plain(name, data, advice), None, rows)
    columns = _names(name, pd.Index(list(given)))
    arrays = [_array(name, frame[column]) for column in columns]
    strange = [c for c, each in zip(columns, arrays, strict=True) if each.dtype.kind not in "biuf"]
    if strange:
        raise ValueError(f"{name} has non-numeric columns {strange}; encode them as numbers.")
    values = np.stack(arrays, axis=1) if arrays else np.empty((len(frame), 0))
    return Table(values, columns, rows)


def in_type(values: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Numbers in a type, or in floatX where this is of integers or booleans and they are not.

    What is too large for a type is infinite.

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
    the others are no numbers, are paired by their positions. ``names`` are the caller's for both.
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


def _plain(name: str, data: object, advice: str) -> NDArray[Any]:
    array = _array(name, data)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numeric; got dtype {array.dtype}; {advice}.")
    return array


def _array(name: str, data: object) -> NDArray[Any]:
    if isinstance(data, pd.Series) and pd.api.types.is_any_real_numeric_dtype(data.dtype):
        return data.to_numpy(dtype="float64", na_value=np.nan)
    if isinstance(data, pd.Series) and pd.api.types.is_bool_dtype(data.dtype):
        return data.to_numpy(dtype="float64" if data.hasnans else bool, na_value=np.nan)
    if isinstance(data, np.ma.MaskedArray):
        return np.ma.filled(data.astype("float64"), np.nan)
    return as_array(name, data)


def as_array(name: str, data: object) -> NDArray[Any]:
    """Return what is rectangular and not sparse as an array."""
    if hasattr(data, "toarray"):
        raise ValueError(f"{name} is sparse; pass {name}.toarray().")
    try:
        return np.asarray(data)
    except ValueError:
        raise ValueError(f"{name} must be rectangular, with rows of equal length.") from None


def as_text(header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Rows below a header, in columns that begin where the longest entry before leaves them.

    The last column is wrapped so that lines are at most ``width`` long, if it has room for a word.

    Examples
    --------
    >>> print(as_text(["variable", "law"], [["a", "Gaussian"], ["variance", ""]]))
    variable  law
    ------------------
    a         Gaussian
    variance
    """
    if width is not None:
        before = sum(max(map(len, each)) + 2 for each in list(zip(header, *rows, strict=True))[:-1])
        room = max(width - before, ROOM)
        rows = [
            (*(row[:-1] if number == 0 else [""] * len(row[:-1])), line)
            for row in rows
            for number, line in enumerate(wrap(row[-1], room) or [""])
        ]
    table = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    head, *lines = (
        "  ".join(f"{entry:<{width}}" for entry, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )
    return "\n".join([head, "-" * max(map(len, [head, *lines])), *lines])
