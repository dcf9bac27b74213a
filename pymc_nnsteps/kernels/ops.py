"""The kernels of :mod:`.gaussian` as PyTensor Ops."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.numba.dispatch.basic import numba_funcify, numba_funcify_and_cache_key
from pytensor.tensor.type import tensor

from pymc_nnsteps.kernels import gaussian as kernels
from pymc_nnsteps.kernels.jit import Kernel, version


class KernelOp(Op):
    """A compiled kernel of arrays, the same in C and in Numba mode.

    Parameters
    ----------
    name : str
        Name of the kernel, a function of :mod:`.gaussian`.
    ndims : tuple of int
        Numbers of axes of its results, which have the type of its last argument.
    """

    __props__ = ("name", "ndims")

    def __init__(self, name: str, ndims: tuple[int, ...]) -> None:
        self.name = name
        self.ndims = ndims

    @property
    def kernel(self) -> Kernel:
        """The compiled function."""
        kernel: Kernel = getattr(kernels, self.name)
        return kernel

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply the kernel to symbolic arrays; those of floating point get the last one's type."""
        given: list[Any] = [pt.as_tensor(array) for array in inputs]
        dtype = given[-1].dtype
        arrays = [a.astype(dtype) if a.dtype.startswith("float") else a for a in given]
        return Apply(self, arrays, [tensor(dtype=dtype, shape=(None,) * n) for n in self.ndims])

    def perform(self, node: Apply, inputs: Sequence[np.ndarray], outputs: list[list[Any]]) -> None:
        """Call the kernel."""
        results = self.kernel(*inputs)
        for storage, result in zip(
            outputs, results if len(outputs) > 1 else (results,), strict=True
        ):
            storage[0] = result


class UnlessLost(OpFromGraph):
    """A graph that is evaluated only where a factorisation has lost digits.

    Otherwise the first input is the output. The second and the third are the matrices that were
    factorised and their Cholesky factors, which are NaN where there is none. In Numba mode the
    graph itself is to look at them.
    """

    view_map = {0: [0]}  # noqa: RUF012

    def make_node(self, *inputs: Any) -> Apply:
        """Check that the first input may be the output.

        Raises
        ------
        TypeError
            If their dtypes differ: nothing would tell it when the graph is evaluated.
        """
        node = super().make_node(*inputs)
        given, drawn = node.inputs[0].type.dtype, node.outputs[0].type.dtype
        if given != drawn:
            raise TypeError(f"a block of {given} is declared as {drawn}")
        return node

    def link_mode(self, impl: str | None) -> Mode:
        """Without a compiler: most chains never get here."""
        return Mode(linker="py", optimizer=RewriteDatabaseQuery(include=[None]))

    def make_thunk(self, *args: Any, **options: Any) -> Any:
        """Leave the compilation of the graph to its first evaluation."""
        return Op.make_thunk(self, *args, **options)

    def perform(self, node: Apply, inputs: Sequence[np.ndarray], outputs: list[list[Any]]) -> None:
        """Look at the pivots first."""
        block, matrix, factor, *_ = inputs
        if matrix.ndim == 2:
            kept = kernels.keeps_digits(matrix, factor)
        else:
            stacks = (array.reshape(-1, *array.shape[-2:]) for array in (matrix, factor))
            kept = all(map(kernels.keeps_digits, *stacks))
        if kept:
            outputs[0][0] = block
        else:
            super().perform(node, inputs, outputs)


@numba_funcify_and_cache_key.register(KernelOp)
def _kernel_and_key_for_numba(op: KernelOp, node: Apply, **options: Any) -> tuple[Any, str]:
    return op.kernel.numba, f"{op.name}-{version()}"


@numba_funcify.register(KernelOp)
def _kernel_for_numba(op: KernelOp, node: Apply, **options: Any) -> Any:
    return op.kernel.numba


refuse_lost: Any = KernelOp("refuse_lost", (2,))
choose_point: Any = KernelOp("choose_point", (1,))
redraw_labels: Any = KernelOp("redraw_labels", (2,))
draw_windows: Any = KernelOp("draw_windows", (2,))
draw_banded: Any = KernelOp("draw_banded", (2, 2, 2))
draw_labels: Any = KernelOp("draw_labels", (2,))
draw_tridiagonal: Any = KernelOp("draw_tridiagonal", (2,))
draw_collapsed_gates: Any = KernelOp("draw_collapsed_gates", (2,))
collapsed_information: Any = KernelOp("collapsed_information", (2, 2))
draw_chain: Any = KernelOp("draw_chain", (3,))
move_rows: Any = KernelOp("move_rows", (2, 2, 1))
draw_outgoing: Any = KernelOp("draw_outgoing", (1,))
move_gated_rows: Any = KernelOp("move_gated_rows", (2, 2, 1))
