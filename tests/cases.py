"""Which cases of a test run each time, which with the slow tests, and which before a release."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A case of the slow tests."""
    return pytest.param(*values, marks=pytest.mark.slow)


def release(*values: Any) -> Any:
    """A case that takes a minute, or that others nearly cover: it runs before a release."""
    return pytest.param(*values, marks=pytest.mark.release)


def quick(cases: Iterable[Any], chosen: Collection[Any]) -> list[Any]:
    """Cases of one argument, all slow but those chosen."""
    return [case if case in chosen else slow(case) for case in cases]


def in_suite(cases: Iterable[Any], chosen: Collection[Any]) -> list[Any]:
    """Cases of one argument, those chosen slow and all others for releases."""
    return [slow(case) if case in chosen else release(case) for case in cases]
