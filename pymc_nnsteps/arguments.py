"""Checks of numbers and words that are given as arguments.

Each raises a ``ValueError`` that names the argument and what it must be; ``advice`` is what to do.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pytensor import config


def is_integer(value: object) -> TypeGuard[int | np.integer]:
    """Whether a value is a whole number, no truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_real(value: object) -> TypeGuard[int | float | np.integer | np.floating]:
    return is_integer(value) or isinstance(value, float | np.floating)


def positive_integer(name: str, value: object) -> int:
    """The value, if it is a positive integer."""
    if not is_integer(value) or value < 1:
        raise ValueError(f"{name} must be a positive integer; got {value!r}.")
    return int(value)


def integer_from_zero(name: str, value: object) -> int:
    """The value, if it is an integer that is not negative."""
    if not is_integer(value) or value < 0:
        raise ValueError(f"{name} must be a non-negative integer; got {value!r}.")
    return int(value)


def number_below(name: str, value: object, size: int) -> int:
    """The value, if it is the number of one of so many entries."""
    if not is_integer(value) or value not in range(size):
        raise ValueError(f"{name} must be a name or a number from 0 to {size - 1}; got {value!r}.")
    return int(value)


def positive_number(
    name: str, value: object, *, below: float = math.inf, at_most: float = math.inf
) -> float:
    """The value, if it is a positive number within the bound."""
    if not _is_real(value) or not (0 < value < below and value <= at_most):
        closed = at_most < math.inf
        upper = f" up to {at_most:g}" if closed else f" below {below:g}" if below < math.inf else ""
        raise ValueError(f"{name} must be a positive number{upper}; got {value!r}.")
    return float(value)


def is_finite_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number, no truth value, neither NaN nor infinite."""
    return _is_real(value) and math.isfinite(value)


def finite_number(name: str, value: object) -> float:
    """The value, if it is a finite number."""
    if not is_finite_number(value):
        raise ValueError(f"{name} must be a finite number; got {value!r}.")
    return float(value)


def require_finite(
    name: str,
    values: NDArray[np.floating],
    advice: str = "remove or impute them",
    columns: Sequence[object] | None = None,
) -> None:
    """Check that all entries of an array are finite; columns may have names."""
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        where = ", ".join(map(str, bad[0]))
        counts: Counter[object] = Counter()
        if columns:
            entries = dict.fromkeys((row, columns[column]) for row, column, *_ in bad.tolist())
            counts.update(column for _, column in entries)
        of_columns = ", ".join(f"{n} in the column {column!r}" for column, n in counts.items())
        raise ValueError(
            f"{name} has {counts.total() or len(bad)} NaN or infinite values, the first at "
            f"{name}[{where}]{of_columns and f' ({of_columns})'}; {advice}."
        )


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


def require_choice(name: str, value: object, choices: Sequence[str], advice: str = "") -> None:
    """Check that an argument is one of the words it may be."""
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(f'"{choice}"' for choice in choices)
        end = f"; {advice}." if advice else "."
        raise ValueError(f"{name} must be one of {known}; got {value!r}{end}")


def is_word(value: object, word: str) -> bool:
    """Whether an argument is this word: comparing an array with it would say so entry by entry."""
    return isinstance(value, str) and value == word


def require_bool(name: str, value: object) -> None:
    """Check that an argument is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False; got {value!r}.")


def require_bool_or_auto(name: str, value: object) -> None:
    """Check that an argument is True, False or "auto"."""
    if not isinstance(value, bool) and not is_word(value, "auto"):
        raise ValueError(f'{name} must be True, False or "auto"; got {value!r}.')
