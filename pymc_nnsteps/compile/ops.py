"""Kernels of arrays as PyTensor Ops."""

import sys
from collections.abc import Sequence
from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.ops import TypeCastingOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.type import tensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile import linear_algebra
from pymc_nnsteps.compile.jit import Call, Kernel, entries, in_numba, types_of
from pymc_nnsteps.compile.thunks import OwnThunk, storing


class KernelOp(OwnThunk):
    """A compiled kernel of arrays, in C and Numba; results have the last argument's type."""

    __props__ = ("module", "name", "ndims")

    def __init__(self, kernel: Kernel, ndims: tuple[int, ...]) -> None:
        self.module = kernel.__module__
        self.name = kernel.__name__
        self.ndims = ndims

    @property
    def kernel(self) -> Kernel:
        """The compiled function."""
        kernel: Kernel = getattr(sys.modules[self.module], self.name)
        return kernel

    def calls(self, node: Apply) -> Call:
        """The kernel, and the types that it is called with."""
        return self.kernel, types_of(node.inputs)

    def make_node(self, *inputs: Variable | tuple[Variable, ...]) -> Apply:
        """Apply the kernel to symbolic arrays; those of floating point get the last one's type."""
        given: list[Any] = [pt.as_tensor(array) for array in entries(inputs)]
        dtype = given[-1].dtype
        arrays = [a.astype(dtype) if a.dtype.startswith("float") else a for a in given]
        return Apply(self, arrays, [tensor(dtype=dtype, shape=(None,) * n) for n in self.ndims])

    @override
    def thunk(self, node: Apply, *maps: Any) -> Any:
        kernel, types = self.calls(node)
        return storing(kernel.bound(types), node.inputs, node.outputs, *maps)

    def perform(self, node: Apply, inputs: Sequence[np.ndarray], outputs: list[list[Any]]) -> None:
        """Call the kernel."""
        results = self.kernel(*inputs)
        for storage, result in zip(
            outputs, results if len(outputs) > 1 else (results,), strict=True
        ):
            storage[0] = result


class UnlessLost(OpFromGraph):
    """A graph that is evaluated only where a factorisation has lost digits.

    Inputs are the usual output, the matrices that were factorised, and their Cholesky factors.
    """

    view_map = {0: [0]}  # noqa: RUF012

    def make_node(self, *inputs: Any) -> Apply:
        """Check that the first input may be the output."""
        node = super().make_node(*inputs)
        given, drawn = node.inputs[0].type.dtype, node.outputs[0].type.dtype
        if given != drawn:
            raise TypeError(f"a block of {given} is declared as {drawn}")
        return node

    def calls(self, node: Apply) -> Call:
        """What looks at the pivots of a stack of matrices, or of one."""
        stacks = [v.type.clone(shape=(None,) * 3)() for v in node.inputs[1:3]]
        return linear_algebra.all_keep_digits, types_of(stacks)

    def link_mode(self, impl: str | None) -> Mode:
        """Without a compiler: most chains never get here."""
        return Mode(linker="py", optimizer="fast_compile")

    def make_thunk(self, *args: Any, **options: Any) -> Any:
        """Leave the compilation of the graph to its first evaluation."""
        return Op.make_thunk(self, *args, **options)

    def perform(self, node: Apply, inputs: Sequence[np.ndarray], outputs: list[list[Any]]) -> None:
        """Look at the pivots first."""
        block, matrix, factor, *_ = inputs
        stacks = (array.reshape(-1, *array.shape[-2:]) for array in (matrix, factor))
        if linear_algebra.all_keep_digits(*stacks):
            outputs[0][0] = block
        else:
            super().perform(node, inputs, outputs)


in_numba(KernelOp, lambda op, node: op.kernel.numba_of_arrays)


def as_op(kernel: Kernel, *ndims: int) -> Any:
    """A kernel as an Op whose results have these numbers of axes."""
    return KernelOp(kernel, ndims)


refuse_lost: Any = as_op(linear_algebra.refuse_lost, 2)


class Barrier(TypeCastingOp):
    """The array itself, with these lengths of axes, as far as they are known."""

    __props__ = ("shape",)

    def __init__(self, shape: tuple[int | None, ...]) -> None:
        self.shape = shape

    @override
    def make_node(self, *inputs: Variable) -> Apply:
        [array] = inputs
        return Apply(self, [array], [array.type.clone(shape=self.shape)()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        """Lengths of the axes."""
        return shapes


def plus(array: TensorVariable, change: TensorVariable) -> TensorVariable:
    """``array + change`` in the shape of ``array``, and in its memory if nothing else needs it."""
    known = zip(array.type.shape, (array + change).type.shape, strict=True)
    shape = tuple(total if own is None else own for own, total in known)
    moved: TensorVariable = Barrier(shape)(array) + change
    return moved
