"""Named tables: the numbers of an input with the names of its columns and the labels of its rows.

Frames that Narwhals knows (pandas, polars, Arrow) and tables of xarray are read by their names;
everything else is an array without names. Of text and categories each level becomes an indicator,
``"depot[north]"``. These labels are all there is to know of an encoding: wherever labels of columns
are kept, new tables are encoded by them. Results print as tables of text.
"""

import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from textwrap import wrap
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

Columns = dict[Hashable, NDArray[Any] | pd.Categorical]
"""Columns of a frame by their names."""

DATES = {"date", "datetime", "time", "timedelta", "Timestamp", "Timedelta", "Period"}
"""Names of types of dates and durations."""

DATE = re.compile(r"\d{4}[-./]\d\d?[-./]\d\d?|\d\d?([-./])\d\d?\1\d\d|\d\d?:\d\d")
"""Beginnings of dates and times as text."""

UNIT = re.compile(r"[-+]?\d[\d., ']*([^\d\s.,'].*)")
"""A number as text, and its unit."""

ROWS_OF_LEVELS = 20
"""Rows from which text that differs in all of them is taken for their names."""

ROOM = 20
"""Least width of a wrapped column."""


@dataclass(frozen=True)
class Table:
    """Numbers with the names of their columns and the labels of their rows, if they have any."""

    values: NDArray[Any]  # missing entries are NaN
    columns: tuple[object, ...] | None = None  # names along the second axis
    rows: pd.Index | None = None  # labels along the first axis
    # Levels that are not among a column's labels, NaN elsewhere, of columns that may have them.
    new_levels: Mapping[Hashable, NDArray[Any]] = field(default_factory=dict)

    def arranged(self, name: str, columns: Sequence[object] | None) -> NDArray[Any]:
        """Values of the columns of these names, in order, where names are given and known."""
        if columns is None or self.columns is None:
            return self.values
        if set(self.columns) >= set(columns):
            return self.values[:, [self.columns.index(column) for column in columns]]
        if self.columns == tuple(range(len(self.columns))):
            return self.values
        raise _lacking(name, columns, self.columns)


def numbers(
    name: str, data: object, dims: Sequence[str], advice: str = "convert it first"
) -> Table:
    """Read numbers of an array or a table, or say by ``name`` why they cannot be read.

    An axis of a DataArray that is one of ``dims`` (rows first) goes to its place; the others take
    the places that are left. ``advice`` says what to do with data that are no numbers.
    """
    data = _oriented(data, dims)
    return _numbers(name, data, _columns(name, data), advice)


def encoded(
    name: str,
    data: object,
    dims: Sequence[str],
    labels: Sequence[object] | None = None,
    with_new_levels: Collection[object] = (),
) -> Table:
    """Read inputs as :func:`numbers` does, but text and categories by an indicator of each level.

    Indicators are NaN where the level is missing. Levels of text are sorted; categories keep their
    order, and may include levels that no row has. Given ``labels`` of columns, the table has these;
    other columns are not read. Columns ``with_new_levels`` may have others: no indicator is 1.
    """
    data = _oriented(data, dims)
    columns = _columns(name, data, labels)
    names = list(columns or ())
    is_numbered = bool(names) and names == list(range(len(names)))
    if columns is None or (not _texts(columns) and (labels is None or is_numbered)):
        table = _numbers(name, data, columns, "of text and numbers pass a DataFrame")
        return replace(table, values=table.arranged(name, labels))
    labels = _fresh_labels(name, columns) if labels is None else labels
    sources = [_source(label, columns) for label in labels]
    levels: dict[Hashable, list[str | None]] = {}
    for column, level in sources:
        levels.setdefault(column, []).append(level)
    if None in levels or any(len(each) > 1 and None in each for each in levels.values()):
        raise _lacking(name, labels, columns)
    new = {c: _new_levels(columns[c], levels[c]) for c in levels if str(c) in with_new_levels}
    arrays = {c: _entries(name, c, columns[c], levels[c], c in new) for c in levels}
    values = _stacked([arrays[column][level] for column, level in sources], data)
    new = {column: each for column, each in new.items() if not pd.isna(each).all()}
    rows = data.index if isinstance(data, pd.DataFrame) else None
    return Table(values, tuple(labels), rows, new)


def is_table(data: object) -> bool:
    """Whether data are a frame or a table of xarray, with names of columns or labels of rows."""
    kinds = pd.DataFrame | nw.DataFrame | nw.LazyFrame | xr.DataArray | xr.Dataset
    return isinstance(_frame(data), kinds)


def level_of(label: object, column: object) -> str | None:
    """The level of a column that a label is of; None where it is of none.

    Examples
    --------
    >>> level_of("depot[north]", "depot"), level_of("depot", "depot")
    ('north', None)
    """
    text, start = str(label), f"{column}["
    return text[len(start) : -1] if text.startswith(start) and text.endswith("]") else None


def before_encoding(labels: Iterable[object]) -> list[object]:
    """Names of columns, one for all labels of levels of each.

    Examples
    --------
    >>> before_encoding(["age", "depot[north]", "depot[south]"])
    ['age', 'depot']
    """
    return list(dict.fromkeys(sources(labels)))


def sources(labels: Iterable[object]) -> list[object]:
    """The name of the column that each label is of; several labels of levels share theirs.

    Examples
    --------
    >>> sources(["age", "depot[north]", "depot[south]"])
    ['age', 'depot', 'depot']
    """
    labels = list(labels)
    heads = [str(label)[:-1].rpartition("[")[0].rstrip("[") for label in labels]
    heads = [head * str(label).endswith("]") for head, label in zip(heads, labels, strict=True)]
    several = {head for head in heads if head and heads.count(head) > 1}
    return [h if h in several else label for h, label in zip(heads, labels, strict=True)]


def categories(labels: Sequence[object], X: NDArray[Any]) -> dict[str, list[int]]:
    """Names of columns that are indicators of their levels in a table, and where these are."""
    places: dict[str, list[int]] = {}
    for place, (head, label) in enumerate(zip(sources(labels), labels, strict=True)):
        if head is not label:
            places.setdefault(str(head), []).append(place)
    found = {}
    for head, columns in places.items():
        known = X[~np.isnan(X[:, columns]).all(axis=1)][:, columns]
        if np.isin(known, (0, 1)).all() and (known.sum(axis=1) == 1).all():
            found[head] = columns
    return found


def without_columns(data: Any, names: Iterable[str]) -> tuple[Any, dict[str, Any]]:
    """A frame without some of its columns, and these; other data as they are."""
    if isinstance(data, xr.Dataset):
        data = _oriented(data, ("obs", "feature"))
    frame = _frame(data)
    taken = [name for name in names if isinstance(frame, nw.DataFrame) and name in frame.columns]
    if not taken:
        return data, {}
    return frame.drop(taken).to_native(), {name: frame[name].to_native() for name in taken}


def listed(labels: Sequence[object]) -> str:
    """The first labels of some, for messages."""
    return ", ".join(map(repr, labels[:5])) + (", ..." if len(labels) > 5 else "")


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
    if isinstance(data, np.ndarray) and data.dtype.names:
        return pd.DataFrame(data)
    if isinstance(data, xr.Dataset):
        data = data.reset_coords(drop=True)
        if len(data.dims) == 1:
            return data.to_dataframe()
        data = data.to_dataarray(dims[-1])
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
    if columns.hasnans:
        raise ValueError(f"{name} has a column without a name; give it one.")
    twice = columns[columns.duplicated()]
    if len(twice):
        raise ValueError(f"{name} has several columns {twice[0]!r}; give each a name of its own.")
    return tuple(columns.tolist())


def _numbers(
    name: str, data: object, columns: Columns | None, advice: str = "convert it first"
) -> Table:
    if isinstance(data, xr.DataArray):
        labels = [data.indexes.get(dim) for dim in data.dims]
        rows, found = (*labels, None, None)[:2]
        names = None if found is None else _names(name, found)
        return Table(_plain(name, data.to_numpy(), advice), names, rows)
    rows = data.index if isinstance(data, pd.DataFrame | pd.Series) else None
    if columns is None:
        return Table(_plain(name, data, advice), None, rows)
    if texts := _texts(columns):
        raise ValueError(f"{name} has non-numeric columns {texts}; encode them as numbers.")
    arrays = [np.asarray(column) for column in columns.values()]
    return Table(_stacked(arrays, data), tuple(columns), rows)


def _lacking(name: str, wanted: Iterable[object], given: Iterable[object]) -> ValueError:
    """The error of a table that lacks columns of a model."""
    wanted, given = before_encoding(wanted), before_encoding(given)
    lacking = [column for column in wanted if column not in given]
    return ValueError(f"{name} must have the columns {wanted} of the model; it lacks {lacking}.")


def _frame(data: Any) -> Any:
    """A frame of Narwhals; other data, and frames with several columns of a name, as they are."""
    if isinstance(data, pd.DataFrame) and not data.columns.is_unique:
        return data
    return nw.from_native(data, pass_through=True)


def _columns(name: str, data: object, labels: Sequence[object] | None = None) -> Columns | None:
    """Columns of a frame by their names, of these labels if given; None of what is no frame."""
    if isinstance(data, pd.DataFrame):
        _names(name, data.columns)
    frame = _frame(data)
    if isinstance(frame, nw.LazyFrame):
        raise ValueError(f"{name} is a lazy frame, without values; pass {name}.collect().")
    if not isinstance(frame, nw.DataFrame):
        return None
    names: list[Any] = frame.columns
    pairs = dict(zip(names, frame.iter_columns(), strict=True))
    if labels is not None and names != list(range(len(names))):
        known = {_source(label, names)[0] for label in labels}
        names = [each for each in names if each in known]
    return {column: _column(name, column, pairs[column]) for column in names}


def _column(name: str, column: Hashable, series: Any) -> NDArray[Any] | pd.Categorical:
    """Numbers, NaN where they are missing, or categories, ordered unless they are text."""
    dtype = series.dtype
    if isinstance(dtype, nw.String | nw.Categorical | nw.Enum):
        of_polars = isinstance(dtype, nw.Categorical) and series.implementation.is_polars()
        is_text = isinstance(dtype, nw.String)
        are_sorted = of_polars or is_text  # polars has levels of other columns
        levels = None if are_sorted else series.cat.get_categories().to_list()
        return pd.Categorical(series.to_list(), categories=levels, ordered=not is_text)
    if isinstance(dtype, nw.Decimal) or (isinstance(dtype, nw.Boolean) and series.null_count()):
        series = series.cast(nw.Float64)
    array = series.to_numpy()
    if array.dtype.kind in "biuf" and array.ndim == 1:
        return array
    missing = pd.isna(array)
    kinds = {type(each).__name__ for each in array[~missing][:1000]}
    if array.ndim == 1 and kinds and kinds <= {"bool", "bool_"}:
        return np.where(missing, np.nan, array).astype("float64")
    if array.dtype.kind in "mM" or kinds & DATES:
        raise _dates(name, column)
    what = f"objects ({', '.join(sorted(kinds))})" if array.dtype.kind == "O" else str(array.dtype)
    what = what if array.ndim == 1 else "several values in each row"
    raise ValueError(
        f"{name} has {what} in the column {column!r}; convert it to numbers or to text."
    )


def _texts(columns: Columns) -> list[Hashable]:
    return [column for column, each in columns.items() if isinstance(each, pd.Categorical)]


def _fresh_labels(name: str, columns: Columns) -> list[str]:
    """Labels of the indicators and of the other columns of a table."""
    labels: list[str] = []
    for column, each in columns.items():
        if not isinstance(each, pd.Categorical):
            labels.append(str(column))
            continue
        if not len(each):
            raise ValueError(f"{name} is empty; pass at least one row.")
        _require_several_levels(name, column, each)
        if not each.ordered:
            _require_words(name, column, each)
        labels += [f"{column}[{level}]" for level in each.categories]
    twice = [label for label in set(labels) if labels.count(label) > 1]
    twice += [
        str(other)
        for column in _texts(columns)
        for other in columns
        if str(other).startswith(f"{column}[")
    ]
    if twice:
        raise ValueError(
            f"{name} has several columns or levels that are called {twice[0]!r}, as levels of a "
            "column are called by its name with brackets; rename one of them."
        )
    return labels


def _source(label: object, columns: Iterable[Hashable]) -> tuple[Hashable, str | None]:
    """The column of a label, and its level; None where there is no such column."""
    own = [(column, None) for column in columns if label in (column, str(column))]
    levels = ((column, level_of(label, column)) for column in columns)
    return next(chain(own, (pair for pair in levels if pair[1] is not None)), (None, None))


def _new_levels(given: NDArray[Any] | pd.Categorical, levels: Sequence[str | None]) -> NDArray[Any]:
    """Levels of a column that are not among these, NaN elsewhere."""
    texts = pd.Series(pd.Categorical(given)).astype(object).map(str, na_action="ignore")
    return texts.mask(texts.isin(levels)).to_numpy()


def _entries(
    name: str,
    column: Hashable,
    given: NDArray[Any] | pd.Categorical,
    levels: list[str | None],
    may_be_new: bool,
) -> dict[str | None, NDArray[Any]]:
    """Numbers of a column by None, or indicators by the levels that they are of."""
    if levels == [None]:
        if isinstance(given, pd.Categorical):
            raise ValueError(
                f"{name} has text in the column {column!r}, but the model's is one of numbers; "
                "convert it."
            )
        return {None: given}
    given = pd.Categorical(given)
    missing = given.codes < 0
    known = {level: number for number, level in enumerate(levels)}
    rows = np.array([*(known.get(str(each), -1) for each in given.categories), -1])[given.codes]
    unknown = pd.Series(_new_levels(given, levels)).dropna().unique().tolist()
    if unknown and not may_be_new:
        raise ValueError(
            f"{name} has {listed(unknown)} in the column {column!r}, but the model knows only "
            f"{listed(levels)}; leave those rows out, or give the column an embedding or effects "
            "of groups, which predict draws for new ones with sample_new_groups=True."
        )
    return {level: np.where(missing, np.nan, rows == number) for level, number in known.items()}


def _require_several_levels(name: str, column: Hashable, given: pd.Categorical) -> None:
    """Check that missing entries may have one level or another."""
    if (given.codes < 0).all():
        raise ValueError(f"{name} has only missing entries in the column {column!r}; leave it out.")
    if len(given.categories) < 2 and (given.codes < 0).any():
        raise ValueError(
            f"{name} has missing entries besides {listed(given.categories)} in the column "
            f'{column!r}; make a level of them, such as "unknown", or leave the column out.'
        )


def _require_words(name: str, column: Hashable, given: pd.Categorical) -> None:
    """Check that text is neither of numbers or dates nor another one in each row.

    A unit beside numbers may belong to a level, such as "10 ml", unless there are many.
    """
    texts = given.categories
    if all(map(DATE.match, texts)):
        raise _dates(name, column)
    bare = texts.str.replace(r"[,$€£¥%\s']", "", regex=True)
    is_number = pd.to_numeric(bare, errors="coerce").notna()
    if len(texts) > min(ROWS_OF_LEVELS, len(given) / 2):
        units = pd.Series(texts.str.extract(UNIT, expand=False))
        is_number |= units.isin(units.mode()[:1]).to_numpy()
    if is_number.mean() > 0.5:
        is_bare = pd.to_numeric(texts, errors="coerce").notna()
        others, signed = texts[~is_number].tolist(), texts[is_number & ~is_bare].tolist()
        remedy = f"take the signs, unit or decimal comma out of {listed(signed[:1])} and "
        raise ValueError(
            f"{name} has numbers as text{f' besides {listed(others)}' * bool(others)} in the "
            f"column {column!r}; {remedy * bool(signed)}convert them, such as by "
            'pandas.to_numeric(..., errors="coerce"), or make them categories.'
        )
    if len(texts) == len(given) > ROWS_OF_LEVELS:
        raise ValueError(
            f"{name} has a different text in each row of the column {column!r}, from which "
            "nothing can be learnt; leave it out."
        )


def _dates(name: str, column: Hashable) -> ValueError:
    return ValueError(
        f"{name} has dates or durations in the column {column!r}; pass numbers or categories "
        "made of them, such as the days since the first one, or the month."
    )


def _stacked(arrays: Sequence[NDArray[Any]], data: Any) -> NDArray[Any]:
    return np.stack(arrays, axis=1) if arrays else np.empty((len(data), 0))


def _plain(name: str, data: object, advice: str) -> NDArray[Any]:
    array = _array(name, data)
    if array.dtype.kind in "mM":
        advice = "pass numbers made of dates and durations, such as days"
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
