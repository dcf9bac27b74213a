"""How this package compiles PyTensor functions: to C by default, fast, and without false alarms.

The C compiler takes half a second for each operation that a machine meets for the first time.
Operations that only rearrange or describe arrays gain few microseconds from C: they run in
Python, so that a first chain starts in half the time. Arithmetic stays in C, but for what the C
library computes one number at a time: there are functions of whole matrices for that.
"""

import gc
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, override

import numpy as np
import pytensor
from pytensor.compile.mode import CVM, NUMBA, Mode, get_mode
from pytensor.compile.ops import DeepCopyOp, ViewOp, deep_copy_op
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.c.op import COp, _NoPythonCOp
from pytensor.link.vm import VMLinker
from pytensor.scalar.basic import Exp, Neg, ScalarMaximum, ScalarOp, Tanh
from pytensor.scalar.math import Erf, Erfc
from pytensor.tensor.blas.blas_c import BaseBLAS
from pytensor.tensor.blas.gemm import Gemm
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import mul
from pytensor.tensor.random.basic import ScipyRandomVariable
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from pymc_nnsteps.compile.elementwise import UseLoops
from pymc_nnsteps.compile.error_functions import erf, erfc, tanh
from pymc_nnsteps.compile.jit import Call, called, in_numba
from pymc_nnsteps.compile.ops import UnlessLost
from pymc_nnsteps.compile.rewriting import KeptMode, Replace
from pymc_nnsteps.compile.thunks import (
    OwnThunk,
    Substitute,
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
    """Options of :func:`pymc.pytensorf.compile` with a mode: C, or Numba without a C++ compiler."""
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
        (Replace(multiplied), FIRST),
        (Replace(of_matrix), BEFORE_FUSION),
        (Replace(kept_aside), BEFORE_FUSION),
        (Replace(without_view), BEFORE_FUSION),
        (Replace(in_python), LAST),
        (UseLoops(), LAST + 1),
    )
    return options | {"mode": KeptMode(Machine(use_cloop=True), mode.provided_optimizer)}


def numba_by_default(compile_kwargs: dict[str, Any] | None = None) -> dict[str, Any]:
    """Options of :func:`pymc.pytensorf.compile` with a mode: Numba's, unless there is one."""
    options = {} if compile_kwargs is None else compile_kwargs
    own = (Replace(multiplied), FIRST), (Replace(partial(of_matrix, in_numba=True)), BEFORE_FUSION)
    return {"mode": NUMBA.register(*own)} | options


def drawing(options: dict[str, Any]) -> dict[str, Any]:
    """Options to compile a function that draws random numbers with."""
    mode = get_mode(options["mode"])
    return options | {"mode": mode.register((Replace(given_copies), LAST))}


def given_copies(node: Apply) -> list[Variable] | None:
    """Draws of SciPy with copies of parameters, which may be constants and views."""
    if not isinstance(node.op, ScipyRandomVariable):
        return None
    parameters, copied = node.op.dist_params(node), InPython(deep_copy_op)
    inputs: list[Any] = [copied(v) if v in parameters else v for v in node.inputs]
    return node.clone_with_new_inputs(inputs).outputs


class InPython(Substitute):
    """An Op without C code that does what ``op`` does in Python."""

    __props__ = ("op",)

    def calls(self, node: Apply) -> Call | None:
        """The kernel of ``op``, if it is one, and the types that it is called with."""
        return called(self.op, node)

    @override
    def thunk(self, node: Apply, *maps: Any) -> Any:
        if pytensor.config.cxx and (step := step_of(self.op, node)):
            return in_c(node, *step, *maps)
        found = function_of(self.op, node)
        return None if found is None else storing(*found, node.outputs, *maps)

    @override
    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        self.op.perform(node, inputs, output_storage)


IN_C = (BaseBLAS, Blockwise, Elemwise, Gemm, _NoPythonCOp)
"""Operations with C code that compute; others rearrange arrays, and are about as fast in Python."""

FEW = 1000
"""Most places that are read or written in Python."""


def _is_slow_in_python(node: Apply) -> bool:
    """Whether it reduces by a function of numbers that NumPy lacks, or visits many places."""
    op = node.op
    if isinstance(op, AdvancedSubtensor | AdvancedIncSubtensor):
        places = node.inputs[-op.n_index_vars :]
        return not all(isinstance(p, Constant) and p.data.size <= FEW for p in places)
    return isinstance(op, CAReduce) and getattr(op.scalar_op, "nfunc_spec", None) is None


def kept_aside(node: Apply) -> list[Variable] | None:
    """Hide graphs that most chains never evaluate: PyTensor would rewrite and build them."""
    return InPython(node.op).in_place_of(node).outputs if isinstance(node.op, UnlessLost) else None


def without_view(node: Apply) -> list[Variable] | None:
    """A batch of arrays in place of its view: PyTensor would view one after another."""
    is_view = isinstance(node.op, Blockwise) and isinstance(node.op.core_op, ViewOp)
    return node.inputs if is_view else None


def in_python(node: Apply) -> list[Variable] | None:
    """Operations that have C code and are about as fast without, and LAPACK's (:mod:`.thunks`)."""
    has_c = isinstance(node.op, COp) and not isinstance(node.op, IN_C)
    is_fast = isinstance(node.op, Cholesky | SolveTriangular) or (
        has_c and not _is_slow_in_python(node)
    )
    return InPython(node.op).in_place_of(node).outputs if is_fast else None


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


class OfMatrix(OwnThunk):
    """A function of :data:`OF_MATRICES`, entry by entry of a matrix, with any others numbers."""

    __props__ = ("scalar_op",)

    def __init__(self, scalar_op: ScalarOp) -> None:
        self.scalar_op = scalar_op

    @override
    def make_node(self, *inputs: Variable) -> Apply:
        [matrix] = _matrices(inputs)
        return Apply(self, list(inputs), [matrix.type()])

    @override
    def thunk(self, node: Apply, *maps: Any) -> Any:
        """NumPy's own loop, where it is one of its functions."""
        function = OF_MATRICES[type(self.scalar_op)]
        if not (isinstance(function, np.ufunc) and pytensor.config.cxx):
            return None
        return in_c(node, loops().loop, prepared(node, function, repeated_axes(node)), *maps)

    @override
    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        with np.errstate(all="ignore"):
            output_storage[0][0] = OF_MATRICES[type(self.scalar_op)](*inputs)


def _matrices(inputs: Sequence[Any]) -> list[Any]:
    """Those of several arrays that are no numbers, or are the only one."""
    return [x for x in inputs if len(inputs) == 1 or not all(x.type.broadcastable)]


in_numba(OfMatrix, lambda op, node: tanh.numba)


def multiplied(node: Apply) -> list[Variable] | None:
    """A product for ``-x`` of an unsigned integer: PyTensor's own rewrite of it fails."""
    if not _is_elemwise(node, Neg) or not node.outputs[0].type.dtype.startswith("uint"):
        return None
    return mul.make_node(np.array(-1).astype(node.outputs[0].type.dtype), *node.inputs).outputs


def of_matrix(node: Apply, *, in_numba: bool = False) -> list[Variable] | None:
    """A function of float64 matrices (and numbers) for one of numbers; in Numba only tanh."""
    if not _is_elemwise(node, *((Tanh,) if in_numba else OF_MATRICES)):
        return None
    [old], dtypes = node.outputs, {x.type.dtype for x in (*node.outputs, *node.inputs)}
    is_single = dtypes == {"float32"} and (in_numba or len(node.inputs) > 1)
    is_one = old.type.ndim >= 2 and len(_matrices(node.inputs)) == 1
    known = is_one and (is_single or dtypes == {"float64"})
    return OfMatrix(node.op.scalar_op).make_node(*node.inputs).outputs if known else None


def _is_elemwise(node: Apply, *kinds: type[ScalarOp]) -> bool:
    return isinstance(node.op, Elemwise) and type(node.op.scalar_op) in kinds


@contextmanager
def without_bookkeeping() -> Iterator[None]:
    """Make graphs faster: without notes of the code that made each node, or garbage collection."""
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
    """Compile without being told that PyTensor links no BLAS of its own: it uses NumPy's."""

    def is_not_about_blas(record: logging.LogRecord) -> bool:
        return "NumPy C-API based implementation for BLAS" not in record.getMessage()

    _BLAS_LOGGER.addFilter(is_not_about_blas)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
            yield
    finally:
        _BLAS_LOGGER.removeFilter(is_not_about_blas)
