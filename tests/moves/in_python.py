"""Kernels without a compiler, with errors in them."""

import inspect
from types import SimpleNamespace

from pymc_nnsteps.kernels.jit import Kernel


def in_python(modules, *exchanges):
    """The kernels of modules as plain functions; each exchange is a piece of code and another."""
    source, namespace = "", {}
    for module in modules:
        namespace.update(vars(module))
        own = [k for k in vars(module).values() if isinstance(k, Kernel)]
        own = [k for k in own if k.__module__ == module.__name__]
        source += "".join(inspect.getsource(kernel.__wrapped__) for kernel in own)
    source = source.replace("@jit", "").replace("@inline", "")
    for right, wrong in exchanges:
        assert source.count(right) == 1
        source = source.replace(right, wrong)
    exec(source, namespace)
    return SimpleNamespace(**namespace), namespace
