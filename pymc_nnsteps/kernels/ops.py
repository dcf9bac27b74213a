"""Kernels of arrays as PyTensor Ops."""

import sys
from collections.abc import Sequence
from types import ModuleType
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

from pymc_nnsteps.kernels import (
    bands,
    chain,
    gated_trajectories,
    interweaving,
    interwoven_gates,
    interwoven_kernels,
    labels,
    lattice,
    layer_trajectories,
    linear_algebra,
    outgoing_weights,
)
from pymc_nnsteps.kernels.jit import Call, Kernel, entries, in_numba, types_of
from pymc_nnsteps.kernels.thunks import storing


class KernelOp(Op):
    """A compiled kernel of arrays, in C and Numba; results have the last argument's type."""

    __props__ = ("module", "name", "ndims")

    def __init__(self, module: ModuleType, name: str, ndims: tuple[int, ...]) -> None:
        self.module = module.__name__
        self.name = name
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

    def make_thunk(
        self, node: Apply, storage_map: Any, compute_map: Any, no_recycling: Any, impl: Any = None
    ) -> Any:
        """A thunk that calls the kernel."""
        kernel, types = self.calls(node)
        return storing(kernel.bound(types), node.inputs, node.outputs, storage_map, compute_map)

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

refuse_lost: Any = KernelOp(linear_algebra, "refuse_lost", (2,))
sum_over_variances: Any = KernelOp(lattice, "sum_over_variances", (1,))
sum_over_covariances: Any = KernelOp(lattice, "sum_over_covariances", (1,))
choose_point: Any = KernelOp(lattice, "choose_point", (1,))
choose_points: Any = KernelOp(lattice, "choose_points", (1,))
redraw_labels: Any = KernelOp(labels, "redraw_labels", (2,))
draw_windows: Any = KernelOp(bands, "draw_windows", (2,))
draw_banded: Any = KernelOp(bands, "draw_banded", (2, 2, 2))
draw_labels: Any = KernelOp(labels, "draw_labels", (2,))
draw_few_rows: Any = KernelOp(labels, "draw_few_rows", (2,))
draw_precisions: Any = KernelOp(labels, "draw_precisions", (2, 3))
draw_tridiagonal: Any = KernelOp(bands, "draw_tridiagonal", (2,))
add_products: Any = KernelOp(linear_algebra, "add_products", (2,))
see_groups: Any = KernelOp(linear_algebra, "see_groups", (2,))
draw_chain: Any = KernelOp(chain, "draw_chain", (3,))
move_kernels: Any = KernelOp(interwoven_kernels, "move_kernels", (2, 2, 1))
move_rows: Any = KernelOp(interweaving, "move_rows", (2, 2, 1))
draw_outgoing: Any = KernelOp(outgoing_weights, "draw_outgoing", (2,))
move_units: Any = KernelOp(outgoing_weights, "move_units", (2, 2, 1, 1))
move_layer: Any = KernelOp(layer_trajectories, "move_layer", (2, 2, 1, 1, 1, 1))
move_gated_rows: Any = KernelOp(interwoven_gates, "move_gated_rows", (2, 2, 1))
move_gated_layer: Any = KernelOp(gated_trajectories, "move_gated_layer", (2, 2, 2, 1, 1, 1, 1))
move_scales_of_groups: Any = KernelOp(lattice, "move_scales_of_groups", (1,))
move_scales_of_outputs: Any = KernelOp(lattice, "move_scales_of_outputs", (1,))


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
