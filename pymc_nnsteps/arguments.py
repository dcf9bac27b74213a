"""Checks of numbers and words that are given as arguments."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def positive_integer(name: str, value: object) -> int:
    """The value, if it is a positive integer.

    Raises
    ------
    ValueError
        Otherwise, with the argument's name.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a positive integer; got {value!r}.")
    return int(value)


def number_below(name: str, value: object, size: int) -> int:
    """The value, if it is the number of one of so many entries.

    Raises
    ------
    ValueError
        Otherwise, with the argument's name.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or value not in range(size)
    ):
        raise ValueError(f"{name} must be a name or a number from 0 to {size - 1}; got {value!r}.")
    return int(value)


def positive_number(
    name: str, value: object, *, below: float = math.inf, at_most: float = math.inf
) -> float:
    """The value, if it is a positive number within the bound.

    Raises
    ------
    ValueError
        Otherwise, with the argument's name and its range.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.integer | np.floating)
        or not (0 < value < below and value <= at_most and value < math.inf)
    ):
        closed = at_most < math.inf
        upper = f" up to {at_most:g}" if closed else f" below {below:g}" if below < math.inf else ""
        raise ValueError(f"{name} must be a positive number{upper}; got {value!r}.")
    return float(value)


def finite_number(name: str, value: object) -> float:
    """The value, if it is a finite number.

    Raises
    ------
    ValueError
        Otherwise, with the argument's name.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.integer | np.floating)
        or not math.isfinite(value)
    ):
        raise ValueError(f"{name} must be a finite number; got {value!r}.")
    return float(value)


def require_finite(
    name: str, values: NDArray[np.floating], advice: str = "remove or impute them"
) -> None:
    """Check that all entries of an array are finite.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    values : ndarray
    advice : str
        What to do with the others, for the message.

    Raises
    ------
    ValueError
        With the number of those that are not, and the place of the first.
    """
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        where = ", ".join(map(str, bad[0]))
        raise ValueError(
            f"{name} has {len(bad)} NaN or infinite values, the first at {name}[{where}]; {advice}."
        )


def require_choice(name: str, value: object, choices: Sequence[str], advice: str = "") -> None:
    """Check that an argument is one of the words it may be.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    value : object
    choices : sequence of str
    advice : str
        What to do if none of them will do, for the message.

    Raises
    ------
    ValueError
        If it is not, with the list of choices.
    """
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(f'"{choice}"' for choice in choices)
        end = f"; {advice}." if advice else "."
        raise ValueError(f"{name} must be one of {known}; got {value!r}{end}")


def is_word(value: object, word: str) -> bool:
    """Whether an argument is this word: comparing an array with it would say so entry by entry."""
    return isinstance(value, str) and value == word


def require_bool(name: str, value: object) -> None:
    """Check that an argument is True or False.

    Raises
    ------
    ValueError
        If it is not, with the argument's name.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False; got {value!r}.")


def require_bool_or_auto(name: str, value: object) -> None:
    """Check that an argument is True, False or "auto".

    Raises
    ------
    ValueError
        If it is not, with the argument's name.
    """
    if not isinstance(value, bool) and not (isinstance(value, str) and value == "auto"):
        raise ValueError(f'{name} must be True, False or "auto"; got {value!r}.')
