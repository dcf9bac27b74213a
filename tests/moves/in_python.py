"""Kernels without a compiler, in whose parts errors can be planted."""

from functools import wraps

from pymc_nnsteps.compile.jit import Kernel, entries, grouped


def of_arrays(function):
    """A function of the entries of named tuples, in place of these."""
    return lambda *given: function(*grouped(function, given))


def in_python(monkeypatch, *modules):
    """Let the kernels of modules be the Python that they are written in."""
    names = [module.__name__ for module in modules]
    for module in modules:
        for name, kernel in list(vars(module).items()):
            if isinstance(kernel, Kernel) and kernel.__module__ in names:
                monkeypatch.setattr(module, name, uncompiled(kernel))


def uncompiled(kernel):
    """The Python of a kernel, called with named tuples or their entries, as the kernel is."""
    function = kernel.__wrapped__

    @wraps(function)
    def call(*given):
        whole = len(given) == function.__code__.co_argcount
        return function(*given) if whole else of_arrays(function)(*entries(given))

    call.bound = lambda types: call
    return call
