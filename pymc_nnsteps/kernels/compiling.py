"""How this package compiles PyTensor functions: to C by default, fast, and without false alarms.

The C compiler takes half a second for each operation that a machine meets for the first time.
Operations that only rearrange or describe arrays gain few microseconds from C: they run in
Python, so that a first chain starts in half the time. Arithmetic stays in C, but for what the C
library computes one number at a time: there are functions of whole matrices for that.
"""

import gc
import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, override

import numpy as np
import pytensor
from pytensor.compile.mode import CVM, NUMBA, Mode, get_mode
from pytensor.compile.ops import DeepCopyOp, ViewOp, deep_copy_op
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.numba.linker import NumbaLinker
from pytensor.link.vm import VMLinker
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Exp, Neg, ScalarMaximum, ScalarOp, Tanh
from pytensor.scalar.math import Erf, Erfc
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    Join,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.blas import BatchedDot, Dot22, Dot22Scalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import mul
from pytensor.tensor.random.basic import ScipyRandomVariable
from pytensor.tensor.shape import Reshape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from pymc_nnsteps.kernels.elementwise import UseLoops
from pymc_nnsteps.kernels.error_functions import erf, erfc
from pymc_nnsteps.kernels.jit import Call, called, version, when_numba
from pymc_nnsteps.kernels.ops import Barrier, UnlessLost
from pymc_nnsteps.kernels.rewriting import KeptMode
from pymc_nnsteps.kernels.thunks import (
    function_of,
    in_c,
    loops,
    prepared,
    repeated_axes,
    step_of,
    storing,
)

FIRST, BEFORE_FUSION, LAST = 0.5, 48, 200
"""Positions among PyTensor's rewrites."""

SPECIAL_MATRICES = (
    "cholesky_of_diag",
    "diagonal_solve_to_division",
    "dot_diag_to_elemwise",
    "extract_diag_lift_pass",
    "local_add_of_sparse_write",
    "local_adv_idx_to_diagonal",
    "local_lift_DiracDelta",
    "orthogonal_dot_transpose_to_eye",
    "orthogonal_solve_to_transpose_matmul",
    "selection_dot_to_indexing",
    "useless_symmetric_transpose",
)
"""PyTensor's rewrites that look for diagonal, orthogonal and other special matrices.

This package keeps such matrices as vectors and indices.
"""

ONCE = Mode("py", RewriteDatabaseQuery(include=["merge", "minimum_compile"]))
"""Mode for few calls: in Python, and what is stated twice is computed once."""

_BLAS_LOGGER = logging.getLogger("pytensor.tensor.blas")


def c_by_default(compile_kwargs: dict[str, Any] | None = None) -> dict[str, Any]:
    """Options of :func:`pymc.pytensorf.compile` with a mode: C, or Numba without a C++ compiler.

    A ``"mode"`` among the given ones is kept, without :data:`SPECIAL_MATRICES`, but for that of
    ``pm.sample(backend="c")``.
    """
    options = {} if compile_kwargs is None else compile_kwargs
    mode = options.get("mode", CVM)
    if mode is CVM and not pytensor.config.cxx:
        mode = NUMBA
    if mode is not CVM:
        return options | {"mode": get_mode(mode).excluding(*SPECIAL_MATRICES)}
    # Without a BLAS of its own PyTensor adds to a product in a loop that is slower than both, and
    # NumPy's product finds out by itself that a matrix has one column. A sum of squares in one
    # operation would be a run of the compiler of its own.
    mode = CVM.excluding("gemm_optimizer", "local_gemm_to_gemv", "local_careduce_fusion")
    mode = mode.excluding(*SPECIAL_MATRICES)
    mode = mode.register(
        (MultiplyUnsigned(), FIRST),
        (UseFunctionsOfMatrices(OF_MATRICES), BEFORE_FUSION),
        (KeepAside(), BEFORE_FUSION),
        (SkipViewsOfDraws(), BEFORE_FUSION),
        (RunViewsInPython(), LAST),
        (UseLoops(), LAST + 1),
    )
    return options | {"mode": KeptMode(Machine(use_cloop=True), mode.provided_optimizer)}


class ExactNumbaLinker(NumbaLinker):
    """Numba without leave to reorder sums.

    With it, code that was just compiled rounds otherwise than the same code from the cache.
    """

    @override
    def fgraph_convert(self, *arguments: Any, **options: Any) -> Any:
        with pytensor.config.change_flags(numba__fastmath=False):
            return super().fgraph_convert(*arguments, **options)

    @override
    def jit_compile(self, fn_and_cache: Any) -> Any:
        with pytensor.config.change_flags(numba__fastmath=False):
            return super().jit_compile(fn_and_cache)


def numba_by_default(compile_kwargs: dict[str, Any] | None = None) -> dict[str, Any]:
    """Options of :func:`pymc.pytensorf.compile` with a mode: Numba's, unless there is one."""
    options = {} if compile_kwargs is None else compile_kwargs
    mode = Mode(ExactNumbaLinker(), NUMBA.provided_optimizer)
    own = (MultiplyUnsigned(), FIRST), (UseFunctionsOfMatrices(IN_NUMBA), BEFORE_FUSION)
    return {"mode": mode.register(*own)} | options


def drawing(options: dict[str, Any]) -> dict[str, Any]:
    """Options to compile a function that draws random numbers with."""
    mode = get_mode(options["mode"])
    return options | {"mode": mode.register((CopyParametersForSciPy(), LAST))}


class CopyParametersForSciPy(GraphRewriter):
    """Let SciPy draw with copies of parameters.

    It broadcasts them to arrays that it may write to, and fails if they are constants, or views.
    """

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        for node in fgraph.toposort():
            if isinstance(node.op, ScipyRandomVariable):
                for parameter in node.op.dist_params(node):
                    position = node.inputs.index(parameter)
                    [copy] = InPython(deep_copy_op).make_node(parameter).outputs
                    fgraph.change_node_input(node, position, copy)


class InPython(Op):
    """An Op without C code that does what ``op`` does in Python."""

    __props__ = ("op",)

    def __init__(self, op: Op) -> None:
        self.op = op
        self.view_map = op.view_map
        self.destroy_map = op.destroy_map

    @override
    def make_node(self, *inputs: Variable) -> Apply:
        return self.in_place_of(self.op.make_node(*inputs))

    def calls(self, node: Apply) -> Call | None:
        """The kernel of ``op``, if it is one, and the types that it is called with."""
        return called(self.op, node)

    def in_place_of(self, node: Apply) -> Apply:
        """The same as a node of ``op``."""
        return Apply(self, node.inputs, [output.type() for output in node.outputs])

    @override
    def make_thunk(
        self, node: Apply, storage_map: Any, compute_map: Any, no_recycling: Any, impl: Any = None
    ) -> Any:
        if pytensor.config.cxx and (step := step_of(self.op, node)):
            return in_c(node, *step, storage_map, compute_map)
        if found := function_of(self.op, node):
            return storing(*found, node.outputs, storage_map, compute_map)
        return super().make_thunk(node, storage_map, compute_map, no_recycling, impl)

    @override
    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        self.op.perform(node, inputs, output_storage)


VIEWS = (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    Alloc,
    AllocEmpty,
    Barrier,
    BatchedDot,
    CAReduce,
    CheckAndRaise,
    Cholesky,
    DeepCopyOp,
    DimShuffle,
    Dot22,
    Dot22Scalar,
    IncSubtensor,
    Join,
    MakeVector,
    Reshape,
    ScalarFromTensor,
    ScalarOp,
    Shape_i,
    SolveTriangular,
    SpecifyShape,
    Subtensor,
    TensorFromScalar,
)
"""Operations that rearrange or describe arrays, or call BLAS and LAPACK, as fast in Python."""


FEW = 1000
"""Most places that are read or written in Python."""


def _is_slow_in_python(node: Apply) -> bool:
    """Whether it reduces by a function of numbers that NumPy lacks, or visits many places."""
    op = node.op
    if isinstance(op, AdvancedSubtensor | AdvancedIncSubtensor):
        places = node.inputs[-op.n_index_vars :]
        return not all(isinstance(p, Constant) and p.data.size <= FEW for p in places)
    return isinstance(op, CAReduce) and getattr(op.scalar_op, "nfunc_spec", None) is None


class KeepAside(GraphRewriter):
    """Hide from PyTensor what is in graphs that most chains never evaluate.

    It would rewrite and build them, which takes as long as a sweep's own graph.
    """

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        for node in fgraph.toposort():
            if isinstance(node.op, UnlessLost):
                copies = InPython(node.op).in_place_of(node).outputs
                fgraph.replace_all_validate(list(zip(node.outputs, copies, strict=True)))


class SkipViewsOfDraws(GraphRewriter):
    """Take the view of a batch of arrays for the batch: PyTensor would view one after another."""

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        for node in fgraph.toposort():
            if isinstance(node.op, Blockwise) and isinstance(node.op.core_op, ViewOp):
                fgraph.replace_validate(node.outputs[0], node.inputs[0])


class RunViewsInPython(GraphRewriter):
    """Replace the Ops of :data:`VIEWS` by ones without C code."""

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        pairs = [
            pair
            for node in reversed(fgraph.toposort())
            if isinstance(node.op, VIEWS) and not _is_slow_in_python(node)
            for pair in zip(node.outputs, InPython(node.op).in_place_of(node).outputs, strict=True)
        ]
        fgraph.replace_all_validate(pairs)


class Machine(VMLinker):
    """PyTensor's machine in C, without C code for copies and views of outputs, which come last."""

    @override
    def accept(self, fgraph: FunctionGraph, no_recycling: Any = None, profile: Any = None) -> Any:
        copies: dict[Variable, Variable] = {}
        for output in fgraph.outputs:
            if output.owner is not None and isinstance(output.owner.op, DeepCopyOp | ViewOp):
                [copies[output]] = InPython(output.owner.op).in_place_of(output.owner).outputs
        fgraph.replace_all(list(copies.items()))
        fresh = [copies.get(variable, variable) for variable in no_recycling or ()]
        return super().accept(fgraph, fresh, profile)


OF_MATRICES: dict[type[ScalarOp], Callable[..., np.ndarray]] = {
    Exp: np.exp,
    ScalarMaximum: np.maximum,
    Tanh: np.tanh,
    Erf: erf,
    Erfc: erfc,
}
"""Functions of numbers, and faster ones of arrays of them.

That of two numbers spares a branch that the processor cannot foresee: ReLU.
"""


IN_NUMBA = (Tanh,)
"""The same, where Numba compiles: :mod:`.hyperbolic`."""


class OfMatrix(Op):
    """A function of :data:`OF_MATRICES`, entry by entry of a matrix, with any others numbers."""

    __props__ = ("scalar_op",)

    def __init__(self, scalar_op: ScalarOp) -> None:
        self.scalar_op = scalar_op

    @override
    def make_node(self, *inputs: Variable) -> Apply:
        [matrix] = _matrices(inputs)
        return Apply(self, list(inputs), [matrix.type()])

    @override
    def make_thunk(
        self, node: Apply, storage_map: Any, compute_map: Any, no_recycling: Any, impl: Any = None
    ) -> Any:
        """NumPy's own loop, where it is one of its functions."""
        function = OF_MATRICES[type(self.scalar_op)]
        if not (isinstance(function, np.ufunc) and pytensor.config.cxx):
            return super().make_thunk(node, storage_map, compute_map, no_recycling, impl)
        step = prepared(node, function, repeated_axes(node))
        return in_c(node, loops().loop, step, storage_map, compute_map)

    @override
    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        with np.errstate(all="ignore"):
            output_storage[0][0] = OF_MATRICES[type(self.scalar_op)](*inputs)


def _matrices(inputs: Sequence[Any]) -> list[Any]:
    """Those of several arrays that are no numbers, or are the only one."""
    return [x for x in inputs if len(inputs) == 1 or not all(x.type.broadcastable)]


@when_numba
def _register() -> None:
    from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key

    @numba_funcify_and_cache_key.register(OfMatrix)
    def kernel(op: OfMatrix, node: Apply, **options: Any) -> tuple[Any, str]:
        from pymc_nnsteps.kernels.hyperbolic import tanh, tanh_single

        dtype = node.outputs[0].type.dtype
        return tanh if dtype == "float64" else tanh_single, f"{op.scalar_op}-{dtype}-{version()}"


class MultiplyUnsigned(GraphRewriter):
    """Take ``-x`` of an unsigned integer for a product: PyTensor's own rewrite of it fails."""

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        for node in fgraph.toposort():
            if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Neg):
                [x] = node.inputs
                if x.type.dtype.startswith("uint"):
                    minus_one = np.array(-1).astype(x.type.dtype)
                    fgraph.replace_validate(node.outputs[0], mul(minus_one, x))


class UseFunctionsOfMatrices(GraphRewriter):
    """Replace functions of numbers, where they are applied to float64 matrices (and numbers).

    The larger of two is replaced in float32 too, and in Numba all are.
    """

    def __init__(self, known: Collection[type[ScalarOp]]) -> None:
        super().__init__()
        self._known = known

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        for node in fgraph.toposort():
            if isinstance(node.op, Elemwise) and type(node.op.scalar_op) in self._known:
                [old], matrices = node.outputs, _matrices(node.inputs)
                dtypes = {x.type.dtype for x in (old, *node.inputs)}
                known = {"float64"}, *([{"float32"}] if self._takes_float32(node) else [])
                if old.type.ndim >= 2 and dtypes in known and len(matrices) == 1:
                    fgraph.replace_validate(old, OfMatrix(node.op.scalar_op)(*node.inputs))

    def _takes_float32(self, node: Apply) -> bool:
        return len(node.inputs) > 1 or self._known is IN_NUMBA


@contextmanager
def without_bookkeeping() -> Iterator[None]:
    """Make and compile graphs in two thirds of the time.

    PyTensor would note at each node the lines of code that made it, which are the package's own,
    and Python would look through all nodes for garbage after each few thousand new ones.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with pytensor.config.change_flags(traceback__limit=0):
            yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def without_blas_notice() -> Iterator[None]:
    """Compile without being told that PyTensor links no BLAS of its own.

    Installed by pip it uses NumPy's, which is as fast.
    """

    def is_not_about_blas(record: logging.LogRecord) -> bool:
        return "NumPy C-API based implementation for BLAS" not in record.getMessage()

    _BLAS_LOGGER.addFilter(is_not_about_blas)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
            yield
    finally:
        _BLAS_LOGGER.removeFilter(is_not_about_blas)
