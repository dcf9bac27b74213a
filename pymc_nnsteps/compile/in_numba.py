"""How Numba compiles kernels, and finds those that they call."""

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.core.imputils import lower_constant
from numba.extending import models, register_model, typeof_impl

from pymc_nnsteps.compile.expressions import fields_of
from pymc_nnsteps.compile.jit import Kernel, grouped, parameters


class KernelType(types.Dispatcher):
    """Type of a kernel, which says all: as an argument it is no address, which none could keep."""


register_model(KernelType)(models.OpaqueModel)


@typeof_impl.register(Kernel)
def _type_of_kernel(kernel: Kernel, context: Any) -> KernelType:
    return KernelType(kernel.numba)


@lower_constant(KernelType)  # type: ignore[untyped-decorator]
def _nothing(context: Any, builder: Any, kind: KernelType, kernel: Kernel) -> Any:
    return context.get_dummy_value()


def jit(function: Callable[..., Any], stamp: str) -> Any:
    """Compile under a stamp that changes with the functions called, and keep the result on disk.

    ``fastmath`` is refused: a kernel would inherit it from the graph that calls it.
    """
    kernel: Any = numba.njit(error_model="numpy", fastmath=False)(function)
    with contextlib.suppress(RuntimeError):
        kernel.enable_caching()
        kernel._cache._cache_file._source_stamp = stamp
    return kernel


def inline(function: Callable[..., Any]) -> Any:
    """Compile into each kernel that calls it."""
    return numba.njit(error_model="numpy", fastmath=False, forceinline=True)(function)


def of_arrays(kernel: Kernel) -> Any:
    """A kernel of the entries of named tuples, as text: Numba has no closures of many arguments."""
    function = inspect.unwrap(kernel)
    entries = [f"x{k}" for k in range(sum(map(len, parameters(function))))]
    kinds = function.__annotations__.values()
    namespace = {kind.__name__: kind for kind in kinds if fields_of(kind)} | {"kernel": kernel}
    arguments = grouped(function, entries)
    texts = [
        f"{type(given).__name__}({', '.join(given)})" if isinstance(given, tuple) else given
        for given in arguments
    ]
    exec(f"def call({', '.join(entries)}): return kernel({', '.join(texts)})", namespace)
    return numba.njit(namespace["call"], error_model="numpy")


class Compiled(types.WrapperAddressProtocol):
    """A function that Numba has compiled, as a value with one type for all of its signature."""

    def __init__(self, dispatcher: Any) -> None:
        [self._compiled] = dispatcher.overloads.values()

    def __wrapper_address__(self) -> int:
        """Address of the function."""
        name = self._compiled.fndesc.llvm_cfunc_wrapper_name
        return int(self._compiled.library.get_pointer_to_function(name))

    def signature(self) -> Any:
        """Numba's types of the arguments and the result."""
        return self._compiled.signature
