"""Telling PyTensor of kernels for Numba, once it asks: to import Numba takes a second.

A sweep in C needs neither Numba nor PyTensor's functions for it, which are imported with the first
graph that is compiled to Numba.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import override

MODULE = "pytensor.link.numba.dispatch"


class _Waiting(MetaPathFinder):
    """Calls functions after the import of :data:`MODULE`."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_call(module: ModuleType) -> None:
                run(module)
                for call in self.calls:
                    call()

            spec.loader.exec_module = run_and_call  # type: ignore[method-assign]
        return spec


_WAITING = _Waiting()


def when_numba(register: Callable[[], None]) -> Callable[[], None]:
    """Decorate a function that registers kernels, to be called with PyTensor's for Numba."""
    if MODULE in sys.modules:
        register()
    else:
        _WAITING.calls.append(register)
        if _WAITING not in sys.meta_path:
            sys.meta_path.insert(0, _WAITING)
    return register
