"""Compiled functions of the variables of a chain, with all else computed beforehand.

Parts that depend on data and constants only (Gram matrices, Cholesky factors, stacked designs) are
taken out of the function and kept in shared variables. They are computed once, and again after data
have been exchanged.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, override

import numpy as np
import pymc as pm
import pytensor
from pytensor.compile.mode import Mode, get_mode
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.link.basic import JITLinker
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.type import DenseTensorType

from pymc_nnsteps.compile.compiling import without_blas_notice, without_bookkeeping
from pymc_nnsteps.compile.rewriting import compiled
from pymc_nnsteps.graphs.values import substitute


class OfData:
    """Graphs of a model's data alone: their values, recomputed when data have been exchanged."""

    def __init__(self, data: Iterable[SharedVariable], parts: Iterable[Variable]) -> None:
        self._data = list(data)
        self._compute = pytensor.function(
            [], list(parts), mode=Mode(linker="py", optimizer="fast_compile")
        )
        self.refresh()

    def refresh(self) -> None:
        """Compute again."""
        self._seen: list[Any] | None = self._current_data()
        self.values: list[Any] = self._compute()

    def distrust(self) -> None:
        """Take the data for exchanged, also where they may have been edited in place."""
        self._seen = None

    def refresh_if_data_changed(self) -> bool:
        """Whether data have been exchanged since the last refresh, which is then repeated."""
        changed = self._seen is None or any(
            new is not old for new, old in zip(self._current_data(), self._seen, strict=True)
        )
        if changed:
            self.refresh()
        return changed

    def _current_data(self) -> list[Any]:
        return [data.get_value(borrow=True) for data in self._data]


class Compiled(OfData):
    """Compiled function of the values that change in a chain, which have the types of inputs."""

    @without_bookkeeping()
    def __init__(
        self,
        inputs: Sequence[Variable | pytensor.In],
        outputs: Sequence[Variable],
        compile_kwargs: Mapping[str, Any],
    ) -> None:
        data = [leaf for leaf in ancestors(outputs) if isinstance(leaf, SharedVariable)]
        roots = [i.variable if isinstance(i, pytensor.In) else i for i in inputs]
        outputs, invariants = take_out_invariants(outputs, roots)
        self._constants = list(invariants.values())
        super().__init__(data, invariants)
        options = {"on_unused_input": "ignore"} | dict(compile_kwargs)
        linker = get_mode(options.get("mode")).linker
        if isinstance(linker, JITLinker) and not isinstance(linker, NumbaLinker):
            raise ValueError(
                f"compile_kwargs has a mode with a {type(linker).__name__}, for which this package "
                'has no kernels; leave it out to compile to C, or pass {"mode": "NUMBA"}.'
            )
        with without_blas_notice():
            self.function = compiled(inputs, outputs, **options)
        self.function.trust_input = True

    @override
    def refresh(self) -> None:
        """Compute again, in an order that needs no copies."""
        super().refresh()
        for constant, value in zip(self._constants, self.values, strict=True):
            constant.set_value(np.require(value, requirements="C"), borrow=True)

    def __call__(self, *values: Any) -> list[Any]:
        """The function's outputs."""
        return self.function(*values)


class PointFunction(Compiled):
    """Compiled function of a point of a model and of other values, whose inputs come first."""

    def __init__(
        self,
        model: pm.Model,
        given: Sequence[Variable | pytensor.In],
        outputs: Sequence[Variable],
        compile_kwargs: Mapping[str, Any],
        reads: Collection[Variable] = (),
    ) -> None:
        used = {*ancestors(outputs), *reads}
        values: list[Any] = [value for value in model.value_vars if value in used]
        self.dtypes: dict[str, Any] = {value.name: value.dtype for value in values}
        super().__init__([*given, *values], outputs, compile_kwargs)

    def read(self, point: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """What the function is given of a point, where data may have been exchanged."""
        self.refresh_if_data_changed()
        return [np.asarray(point[name], dtype) for name, dtype in self.dtypes.items()]

    def at(self, point: Mapping[str, np.ndarray], *given: Any) -> list[Any]:
        """The function's outputs."""
        return self(*given, *self.read(point))


def take_out_invariants(
    outputs: Sequence[Variable], roots: Collection[Variable]
) -> tuple[list[Variable], dict[Variable, SharedVariable]]:
    """Replace the largest parts of a graph without ``roots`` by shared variables, still empty.

    The parts that they stand for are returned with them.
    """
    graph = FunctionGraph(outputs=outputs, clone=False)
    MergeOptimizer().rewrite(graph)
    outputs = graph.outputs
    varying = set(roots)
    found: dict[Variable, SharedVariable] = {}
    for node in io_toposort(roots, outputs):
        if varying.isdisjoint(node.inputs):
            continue
        varying.update(node.outputs)
        for variable in node.inputs:
            part = _behind_views(variable)
            if part not in varying and part not in found and _is_worth_keeping(part):
                empty = np.empty([n or 0 for n in part.type.shape], dtype=part.dtype)
                found[part] = pytensor.shared(empty, shape=part.type.shape, borrow=True)
    return substitute(outputs, found) if found else list(outputs), found


def _behind_views(variable: Variable) -> Any:
    """Variable behind views, which cost nothing inside the function."""
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle | ViewOp):
        variable = variable.owner.inputs[0]
    return variable


def _is_worth_keeping(part: Any) -> bool:
    """Whether a part is computed from data; the compiler folds the rest itself."""
    computed = part.owner is not None and isinstance(part.type, DenseTensorType)
    is_float = computed and part.dtype.startswith("float")
    return is_float and any(
        isinstance(leaf, SharedVariable) or (isinstance(leaf, Constant) and np.size(leaf.data) > 1)
        for leaf in ancestors([part])
        if leaf.owner is None
    )
