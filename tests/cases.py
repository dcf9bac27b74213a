"""Which cases of a test run each time, and which with the slow tests."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A case of the slow tests."""
    return pytest.param(*values, marks=pytest.mark.slow)


def quick(cases: Iterable[Any], chosen: Collection[Any]) -> list[Any]:
    """Cases of one argument, all slow but those chosen."""
    return [case if case in chosen else slow(case) for case in cases]


def half(cases: Iterable[Any], *, of_several: bool = False) -> list[Any]:
    """Cases of one argument or of several, every second of them slow: cases that overlap."""
    split = [tuple(case) if of_several else (case,) for case in cases]
    return [slow(*case) if i % 2 else pytest.param(*case) for i, case in enumerate(split)]
