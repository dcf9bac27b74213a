"""Values as text and arrays, which hold no code.

Text is JSON. What it has no form for is an object with one key, the name of its kind; arrays are
kept beside it, by their names.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pymc_nnsteps.activations import Normalize, PiecewiseLinear
from pymc_nnsteps.models import Conv2D, Prior, Shrinkage

CLASSES = {made.__name__: made for made in (Conv2D, Normalize, PiecewiseLinear, Prior, Shrinkage)}
"""Classes that are made of their fields, in their order."""

type Arrays = dict[str, NDArray[Any]]


class NotWritableError(TypeError):
    """A value is more than text and numbers."""


def written(value: Any, arrays: Arrays, name: str | None = None) -> Any:
    """A value as JSON, whose arrays are added to others, by a name or a number."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic():
            return written(np.asarray(value), arrays)
        case np.ndarray() if type(value) is np.ndarray:
            return _array(value, arrays, name)
        case list() | range():
            return [written(each, arrays) for each in value]
        case tuple():
            return {"tuple": written(list(value), arrays)}
        case Mapping():
            return {"mapping": [written([*item], arrays) for item in value.items()]}
        case pd.DataFrame():
            return {"frame": _frame(value, arrays)}
        case pd.MultiIndex():
            return {"labels": [written(value.tolist(), arrays), written([*value.names], arrays)]}
        case pd.Series() | pd.Index() | pd.Categorical():
            own, index = getattr(value, "name", None), getattr(value, "index", None)
            column = _column(pd.Series(value, copy=False), arrays)
            kind = next(kind for kind in KINDS if isinstance(value, kind)).__name__
            rows = None if index is None else written(index, arrays)
            return {kind: [column, written(own, arrays), rows]}
        case xr.DataArray() if value.ndim in (1, 2):
            return written(value.to_pandas(), arrays)
    if type(value) in CLASSES.values():
        own = [getattr(value, field.name) for field in fields(value)]
        return {type(value).__name__: written(own, arrays)}
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # polars
        return written(pd.DataFrame(value.to_dict(as_series=False)), arrays)
    if hasattr(value, "to_numpy") and hasattr(value, "to_list"):  # a Series of polars
        return written(value.to_numpy(), arrays)
    if hasattr(value, "to_pydict"):  # Arrow
        return written(pd.DataFrame(value.to_pydict()), arrays)
    raise NotWritableError(f"{type(value).__name__} is more than text and numbers")


KINDS = pd.Series, pd.Index, pd.Categorical


def _array(values: NDArray[Any], arrays: Arrays, name: str | None = None) -> dict[str, Any]:
    if values.dtype.kind in "biufcUmM":
        name = str(len(arrays)) if name is None else name
        arrays[name] = values
        return {"array": name}
    return {"objects": [list(values.shape), written(values.ravel().tolist(), arrays)]}


def _frame(table: pd.DataFrame, arrays: Arrays) -> list[Any]:
    """Names of columns, labels of rows, and one array for columns of one type of numbers."""
    kinds = set(table.dtypes)
    of_one_kind = len(kinds) == 1 and isinstance(table.dtypes.iloc[0], np.dtype)
    values: Any
    if of_one_kind and table.dtypes.iloc[0].kind in "biuf":
        values = _array(table.to_numpy(), arrays)
    else:
        values = [_column(table.iloc[:, column], arrays) for column in range(table.shape[1])]
    return [written(table.columns.tolist(), arrays), written(table.index, arrays), values]


def _column(column: pd.Series, arrays: Arrays) -> Any:
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, labels = column.cat.codes.to_numpy(), column.cat.categories
        whole = [_array(codes, arrays), written(labels, arrays), column.cat.ordered]
        return {"codes": whole}
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biufmM":
        return _array(column.to_numpy(), arrays)
    entries = [
        None if missing else each for each, missing in zip(column, column.isna(), strict=True)
    ]
    return {"column": [written(entries, arrays), str(column.dtype)]}


def restored(text: Any, arrays: Arrays) -> Any:
    """The value that was written."""
    if isinstance(text, list):
        return [restored(each, arrays) for each in text]
    if not isinstance(text, dict):
        return text
    [(kind, content)] = text.items()
    if kind == "array":
        return arrays[content]
    content = restored(content, arrays)
    match kind:
        case "tuple":
            return tuple(content)
        case "mapping":
            return dict(content)
        case "objects":
            shape, entries = content
            values = np.empty(len(entries), dtype=object)
            values[:] = entries
            return values.reshape(shape)
        case "codes":
            codes, labels, ordered = content
            return pd.Categorical.from_codes(codes, labels, ordered=ordered)
        case "column":
            entries, dtype = content
            return pd.array(entries, dtype=dtype)
        case "frame":
            names, rows, values = content
            if isinstance(values, list):
                table = pd.DataFrame(dict(enumerate(values)), index=rows)
            else:
                table = pd.DataFrame(values, index=rows)
            return table.set_axis(names, axis=1)
        case "labels":
            return pd.MultiIndex.from_tuples(content[0], names=content[1])
        case "Series":
            column, name, rows = content
            return pd.Series(column, index=rows, name=name)
        case "Index":
            return pd.Index(content[0], name=content[1])
        case "Categorical":
            return content[0]
    return CLASSES[kind](*content)
