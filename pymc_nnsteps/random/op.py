"""What the random variables of this room share: one kernel, every backend.

A draw here is a loop over a whole array with branches and rejections in it, so it is
written once, as a Numba kernel that consumes a NumPy ``Generator``. `KernelRV`
turns such a kernel into a PyTensor `RandomVariable` Op:

- in C and FAST_COMPILE mode the Op's ``perform`` calls the compiled kernel;
- in Numba mode the compiled graph calls it without leaving compiled code.

Both consume the generator in the same order and do the same arithmetic, so that a seed
gives the same bits everywhere. The kernel sees whole arrays (they are *core* dimensions of
the Op): there is no Python, and no broadcasting, inside the loop. `draw_elementwise` is the
symbolic side of that: it ravels what is as large as the draw and leaves what is constant at
length one.

Arithmetic is in float64 whatever the arrays hold. A parameter has one element or one for each draw.
The last argument is filled and returned. Tests are phrased as rejections, so that a NaN is returned
and does not loop.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, override

import numpy as np
import pytensor.tensor as pt
from pytensor import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar import upcast
from pytensor.tensor import TensorLike
from pytensor.tensor.random.basic import UniformRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.jit import Call, in_numba, inline, types_of
from pymc_nnsteps.compile.thunks import OwnThunk, storing


class DirectRV(OwnThunk, RandomVariable):
    """A `RandomVariable` whose ``rng_fn`` is called directly."""

    @override
    def thunk(self, node: Apply, *maps: Any) -> Any:
        """A thunk that draws with the generator itself, where that may change."""
        return storing(*self.function_of(node), node.outputs, *maps) if self.inplace else None

    def function_of(self, node: Apply) -> tuple[Callable[..., Any], list[Variable]]:
        """What gives the generator and a draw, and its arguments."""

        def draw(
            rng: np.random.Generator, size: np.ndarray | None, *params: np.ndarray
        ) -> tuple[np.random.Generator, Any]:
            lengths = None if size is None else tuple(size.tolist())
            return rng, np.asarray(self.rng_fn(rng, *params, lengths), self.dtype)

        return draw, node.inputs


class KernelRV(DirectRV):
    """A `RandomVariable` drawn by ``kernel(rng, *params, out)``, which fills and returns ``out``.

    Subclasses set ``name``, ``signature`` and ``kernel``; ``out`` has the first parameter's shape.
    """

    dtype = "floatX"
    kernel: ClassVar[Any]

    def calls(self, node: Apply) -> Call:
        """The kernel, and the types that it is called with."""
        parameters, out = self.dist_params(node), node.outputs[1]
        filled = out.type.clone(shape=(None,) * parameters[0].type.ndim)()
        return self.kernel, types_of([node.inputs[0], *parameters, filled])

    @override
    def function_of(self, node: Apply) -> tuple[Callable[..., Any], list[Variable]]:
        kernel, types = self.calls(node)
        if types is None or not config.cxx:
            return super().function_of(node)
        return kernel.bound(types, draws=True), [node.inputs[0], *self.dist_params(node)]

    def rng_fn(self, rng: np.random.Generator, *params_and_size: Any) -> np.ndarray:
        """Draw by the kernel; the last argument, ``size``, is None."""
        *params, _ = params_and_size
        return self.kernel(rng, *params, np.empty(params[0].shape, self.dtype))


def _kernel(op: KernelRV, node: Apply) -> Any:
    """The kernel, told to fill the graph's own buffer."""
    op.kernel.numba.handles_out = True
    return op.kernel.numba


in_numba(KernelRV, _kernel)


def float_dtype(*params: TensorVariable) -> str:
    """The floating-point type that holds all parameters."""
    return upcast(*(param.type.dtype for param in params), "float32")


def as_float(param: TensorLike) -> TensorVariable:
    """A parameter in one of the floating-point types that kernels take."""
    tensor = pt.as_tensor(param)
    return tensor.astype(float_dtype(tensor))


def draw_elementwise(
    op: KernelRV,
    rng: Variable,
    params: Sequence[TensorLike],
    *shared: TensorVariable,
    size: Sequence[Any] | None = None,
) -> tuple[Variable, TensorVariable]:
    """Draw ``op`` over the broadcast shape of ``params``, or ``size``; ``shared`` go in as is."""
    tensors = [as_float(param) for param in params]
    shape = pt.broadcast_shape(*tensors) if size is None else tuple(size)
    full = pt.broadcast_arrays(*tensors)[0].type.broadcastable

    def ravel(param: TensorVariable) -> TensorVariable:
        if param.type.broadcastable != full:
            param = pt.broadcast_to(param, shape)
        return param.ravel()

    first, *others = tensors
    others = [p.reshape((1,)) if all(p.type.broadcastable) else ravel(p) for p in others]
    next_rng, draw = op(
        ravel(first), *others, *shared, rng=rng, dtype=float_dtype(*tensors), return_next_rng=True
    )
    return next_rng, draw.reshape(shape, ndim=len(full))


Array = np.ndarray


@inline
def entry(parameter: Array, i: int) -> float:
    """Entry of a parameter, or the only one."""
    return np.float64(parameter[min(i, parameter.size - 1)])


class UnitUniformRV(DirectRV, UniformRV):
    """Uniform numbers between zero and one, which NumPy draws faster without bounds."""

    @override
    def function_of(self, node: Apply) -> tuple[Callable[..., Any], list[Variable]]:
        rng, size, *_ = node.inputs
        if not isinstance(size, Constant) or self.dtype != "float64":
            return super().function_of(node)
        lengths = tuple(size.data.tolist())
        return lambda rng: (rng, rng.random(lengths)), [rng]

    @override
    def rng_fn(self, rng: np.random.Generator, *bounds_and_size: Any) -> np.ndarray:
        """Draw an array of the shape given last."""
        *_, size = bounds_and_size
        return rng.random(size)


unit_uniform = UnitUniformRV()


def uniform(rng: Variable, size: Any) -> tuple[Variable, TensorVariable]:
    """Draw numbers between zero and one, of an array with the given shape."""
    zero, one = pt.zeros((), config.floatX), pt.ones((), config.floatX)
    next_rng, draw = unit_uniform(zero, one, size=size, rng=rng, return_next_rng=True)
    return next_rng, draw
