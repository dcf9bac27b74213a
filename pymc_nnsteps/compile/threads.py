"""One thread for products of matrices.

A BLAS library splits a product among as many threads as the machine has cores. The products of a
sweep are small, or cut into blocks that stay in the processor's cache: threads wait for each other
longer than they compute, and those of several chains wait for the same cores. On two cores a
network of 60 rows took up to 15 times as long. At 100 000 rows a second thread saved 8 % of the
time at best, and cost time elsewhere. So every chain computes in one thread, whatever
``blas_cores=`` says.
"""

import ctypes
import multiprocessing
import sys
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import cache
from itertools import product
from types import SimpleNamespace
from typing import Any

from threadpoolctl import LibController, ThreadpoolController

ACCESSORS = {
    "pthreads": ("openblas_get_num_threads", "openblas_set_num_threads"),
    "openmp": ("omp_get_max_threads", "omp_set_num_threads"),
    "intel": ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
}
"""Functions that read and set a library's number of threads, by its kind of threads."""


class Pool:
    """The threads of a BLAS library; ``by_thread`` if each thread of Python has its own number."""

    def __init__(
        self, read: Callable[[], int], write: Callable[[int], object], *, by_thread: bool
    ) -> None:
        self._read, self._write = read, write
        self._state: Any = threading.local() if by_thread else SimpleNamespace()
        self._lock = threading.Lock()

    def enter(self) -> None:
        """Set one thread, unless that is so."""
        with self._lock:
            depth = getattr(self._state, "depth", 0)
            if depth == 0:
                self._state.before = self._read()
                if self._state.before != 1:
                    self._write(1)
            self._state.depth = depth + 1

    def leave(self) -> None:
        """Set the number again that was there when the first of those inside entered."""
        with self._lock:
            self._state.depth -= 1
            if self._state.depth == 0 and self._state.before != 1:
                self._write(self._state.before)


def _kind(library: LibController) -> str:
    """The key of a library in :data:`ACCESSORS`; empty if it is not there."""
    if library.internal_api == "mkl":
        return "intel"
    kind = getattr(library, "threading_layer", "") if library.internal_api == "openblas" else ""
    # On macOS OpenMP fails in forked processes that ask it for anything (PyMC's issue 7354).
    return "" if kind == "openmp" and sys.platform == "darwin" else kind


def _function(library: ctypes.CDLL, name: str) -> Any:
    """A function of a library under one of the names that builds of OpenBLAS give to it."""
    for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")):
        if found := getattr(library, f"{prefix}{name}{suffix}", None):
            return found
    return None


@cache
def pools() -> list[Pool]:
    """Those of the BLAS libraries that NumPy and SciPy have loaded."""
    import scipy.linalg  # noqa: F401  # it loads a library beside NumPy's

    found = []
    for library in ThreadpoolController().select(user_api="blas").lib_controllers:
        kind = _kind(library)
        functions = [_function(library.dynlib, name) for name in ACCESSORS.get(kind, ())]
        if functions and all(functions):
            read, write = functions
            found.append(Pool(read, write, by_thread=kind == "openmp"))
    return found


class _OneThread(ContextDecorator):
    """Compute in one thread inside a ``with`` block, or in a function that is decorated."""

    def __enter__(self) -> None:
        for pool in pools():
            pool.enter()

    def __exit__(self, *_: object) -> None:
        for pool in pools():
            pool.leave()


one_thread = _OneThread()
"""What is computed inside uses one thread; afterwards the libraries are as they were."""


def keep_one_thread_in_workers() -> None:
    """Let a process that PyMC has made for a chain, any step in it, compute in one thread."""
    if multiprocessing.current_process().name.startswith("worker_chain_"):
        one_thread.__enter__()
