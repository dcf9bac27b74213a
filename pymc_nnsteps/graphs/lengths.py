"""Lengths of the axes of random variables, as far as the graph states them."""

import pymc as pm
from pymc.distributions.multivariate import ZeroSumNormalRV
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import is_a
from pymc_nnsteps.graphs.search import random_in, size_of


def known_shape(model: pm.Model, rv: TensorVariable) -> tuple[int | None, ...]:
    """Lengths of the axes of a random variable, as far as its type or the model's dims tell."""
    size = size_of(rv)
    lengths = list(rv.type.shape)
    if size is not None and size.owner is not None and isinstance(size.owner.op, MakeVector):
        dim_lengths = [n for n in model.dim_lengths.values() if isinstance(n, SharedVariable)]
        for axis, length in enumerate(size.owner.inputs):
            if lengths[axis] is None and length in dim_lengths:
                lengths[axis] = int(length.get_value())
    return tuple(lengths)


def length_of(model: pm.Model, variable: TensorVariable, axis: int) -> int | None:
    """Length of an axis of any variable of a model, as far as its type or its dims tell."""
    dims = model.named_vars_to_dims.get(variable.name) or (None,) * variable.ndim
    if variable.type.shape[axis] is not None or dims[axis] is None:
        return variable.type.shape[axis]
    length = model.dim_lengths[dims[axis]]
    shared = isinstance(length, SharedVariable)
    return int(length.get_value() if shared else length.eval())


def stated_lengths(rv: TensorVariable) -> list[TensorVariable | int | None]:
    """Lengths of the axes of a random variable, where its type or its size states them."""
    size = size_of(rv)
    n_core = getattr(rv.owner.op, "ndim_supp", 0)
    sizes = [None] * (rv.ndim - n_core) if size is None else list(size)
    sizes += [None] * n_core
    return [
        length if static is None else static
        for length, static in zip(sizes, rv.type.shape, strict=True)
    ]


def lengths(rv: TensorVariable) -> list[TensorVariable | int]:
    """Lengths of the axes of a random variable, stated without its value where possible."""
    stated = stated_lengths(rv)
    return [rv.shape[axis] if n is None else n for axis, n in enumerate(stated)]


def present_length(array: TensorVariable, axis: int) -> int:
    """Length of an axis of a random variable, or of what is computed from it entry by entry.

    It is that at the present values of data and dims, and zero where these do not tell it.
    """
    if (static := array.type.shape[axis]) is not None:
        return static
    if isinstance(array.owner.op, Elemwise):
        [first, *_] = [part for part in array.owner.inputs if not part.type.broadcastable[axis]]
        return present_length(first, axis)
    size, batch = size_of(array), array.ndim - getattr(array.owner.op, "ndim_supp", 0)
    stated = None if size is None or axis >= batch else size[axis]
    if axis >= batch and is_a(array, ZeroSumNormalRV):
        stated = array.owner.inputs[-1][axis - batch]
    if stated is None or random_in([stated]):
        return 0
    return int(stated.eval(mode="FAST_COMPILE"))
