"""How Numba compiles kernels, and finds those that they call."""

import contextlib
from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.extending import typeof_impl

from pymc_nnsteps.kernels.jit import Kernel, digest

FastMath = bool | set[str]


@typeof_impl.register(Kernel)
def _type_of_kernel(kernel: Kernel, context: Any) -> types.Dispatcher:
    return types.Dispatcher(kernel.numba)


def jit(function: Callable[..., Any], *, fastmath: FastMath = False) -> Any:
    """Compile, and keep the result on disk where there is a directory to write to.

    ``fastmath`` is refused explicitly: a kernel would inherit it from the graph that calls
    it, and its results would differ from backend to backend.

    Numba stamps what it keeps with the text of the function's own file. The stamp here is that of
    all files of kernels, so that a kernel is compiled again if one that it calls has changed.
    """
    kernel: Any = numba.njit(error_model="numpy", fastmath=fastmath)(function)
    with contextlib.suppress(RuntimeError):
        kernel.enable_caching()
        kernel._cache._cache_file._source_stamp = digest()
    return kernel


def inline(function: Callable[..., Any], *, fastmath: FastMath = False) -> Any:
    """Compile into each kernel that calls it."""
    return numba.njit(error_model="numpy", fastmath=fastmath, forceinline=True)(function)
