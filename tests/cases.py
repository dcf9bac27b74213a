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
