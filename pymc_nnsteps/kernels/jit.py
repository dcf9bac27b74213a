"""How the loops of this package are compiled by Numba, and when a compiled one is out of date.

Numba's cache stamps a kernel with the text of its own file, not with those of the functions it
calls: kernels that call each other stand in one file.
"""

import contextlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

FastMath = bool | set[str]


def jit(function: Callable, *, fastmath: FastMath = False) -> Any:
    """Compile with Numba, and keep the result on disk where there is a directory to write to.

    ``fastmath`` is refused explicitly: a kernel would inherit it from the graph that calls
    it, and its results would differ from backend to backend.
    """
    kernel = numba.njit(error_model="numpy", fastmath=fastmath)(function)
    with contextlib.suppress(RuntimeError):
        kernel.enable_caching()
    return kernel


def inline(function: Callable, *, fastmath: FastMath = False) -> Any:
    """Compile with Numba into each kernel that calls it."""
    return numba.njit(error_model="numpy", fastmath=fastmath, forceinline=True)(function)


def version(file: str) -> int:
    """A number that changes with the text of a file of kernels."""
    return zlib.crc32(Path(file).read_bytes())
