"""The log density of a gradient step as one compiled function of flat vectors.

A compiled loop calls the function by its address, so the signature is the same for every model: a
vector of the variables that move, a vector of all other numbers (variables of other steps, data,
quantities computed from data), and the layouts of both. Many rows of data are seen in blocks
(:mod:`.terms`), each with a layout of its own.

By default the function is a unit of C++. Numba compiles what cannot be translated, ten times as
long, and everything where there is no C++ compiler.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.compiling import numba_by_default, without_blas_notice
from pymc_nnsteps.compile.expressions import UntranslatableError
from pymc_nnsteps.compile.graph_translation import CppLinker, in_cpp
from pymc_nnsteps.compile.jit import Kernel
from pymc_nnsteps.compile.native import CompilerError, log_compilation
from pymc_nnsteps.compile.rewriting import compiled
from pymc_nnsteps.graphs.shapes import refuse_random_data
from pymc_nnsteps.graphs.values import substitute, typed_like
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.steps.compiled import OfData, take_out_invariants
from pymc_nnsteps.steps.target import dependent_factors
from pymc_nnsteps.steps.terms import ROWS, terms
from pymc_nnsteps.steps.trajectories import Density, evaluated

Point = Mapping[str, np.ndarray]

IS_FIRST = np.array([1.0, 0.0])
"""Weight of what belongs to no row, in the first block and in others."""


class Located(NamedTuple):
    """Arguments of the function: a place, all other numbers, and a layout for each block."""

    place: np.ndarray
    numbers: np.ndarray
    layouts: np.ndarray


class FlatDensity:
    """Log density of some variables given the others, and its gradient.

    It has all that depends on the variables; a block may be integrated out. Sums over rows are a
    function of their own where the density is no sum (:mod:`.terms`). It is C++, or Numba's, and
    built together with the kernels that call it, unless ``compile_kwargs`` has a mode.
    """

    def __init__(
        self,
        model: pm.Model,
        rvs: Sequence[TensorVariable],
        compile_kwargs: Mapping[str, Any] | None,
        block: Gaussian | None = None,
        called_by: Sequence[tuple[Kernel, str]] = (),
    ) -> None:
        refuse_random_data(model)
        values = [model.rvs_to_values[rv] for rv in rvs]
        place, numbers, given = (
            pt.TensorType("float64", (None,))(name) for name in ("place", "numbers", "given")
        )
        layout = pt.TensorType("int64", (None,))("layout")
        reader = _FlatReader(layout)
        parts = [reader.take(place, value) for value in values]
        moved = dict(zip(values, map(typed_like, values, parts), strict=True))
        is_first = reader.take(numbers, pt.dscalar())
        density = terms(model, [*rvs, *dependent_factors(model, rvs)], block)
        outputs: list[Any] = density.graphs(moved, parts, is_first, given)

        others = [value for value in model.value_vars if value not in values]
        data = [leaf for leaf in ancestors(outputs) if isinstance(leaf, SharedVariable)]
        roots = [place, layout, given, *others]
        of_block = density.by_row.mixed(outputs, roots)
        outputs, invariants = take_out_invariants(outputs, [*roots, *of_block])
        used = list(ancestors(outputs))
        others = [value for value in others if value in used]
        kept = [leaf for leaf in used if isinstance(leaf, SharedVariable)]
        computed = {shared: part for part, shared in invariants.items()}
        of_data: list[Variable] = [computed.get(shared, shared) for shared in kept]
        self.of_data = OfData(data, of_data)
        self._has_rows = [density.by_row.has_rows(part) for part in of_data]
        known = {v: typed_like(v, reader.take(numbers, v)) for v in (*others, *kept)}
        self.values = [value.name for value in values]
        self._dtypes = {value.name: value.dtype for value in values}
        self._others = [value.name for value in others]
        options = {"on_unused_input": "ignore"} | dict(compile_kwargs or {})
        inputs = [place, numbers, layout, given]
        self.functions = _compiled(inputs, substitute(outputs, known), options, called_by)
        self._in_numba: Any = None

    def read(self, point: Point) -> Located:
        """Arguments of the function at a point."""
        self.of_data.refresh_if_data_changed()
        moved = [np.asarray(point[name]) for name in self.values]
        given = [np.asarray(point[name]) for name in self._others]
        uncut: list[slice | None] = [None] * len(given)
        layout, given = _layout(moved), [*given, *self.of_data.values]
        layouts = [
            [*layout, k > 0, (k > 0) + 1, *_layout(given, len(IS_FIRST), [*uncut, *cuts])]
            for k, cuts in enumerate(self._blocks())
        ]
        numbers = np.concatenate([IS_FIRST, _flat(given)])
        return Located(_flat(moved), numbers, np.array(layouts, dtype=np.int64))

    def _blocks(self) -> list[list[slice | None]]:
        """Rows of each array of data, block by block; None for an array that is not cut."""
        lengths = [
            len(x) for x, cut in zip(self.of_data.values, self._has_rows, strict=True) if cut
        ]
        n_rows = max(lengths, default=0)
        count = max(1, math.ceil(n_rows / ROWS))
        bounds = [n_rows * k // count for k in range(count + 1)]
        blocks = map(slice, bounds, bounds[1:])
        return [[block if cut else None for cut in self._has_rows] for block in blocks]

    def point(self, place: np.ndarray, like: Point) -> dict[str, np.ndarray]:
        """Values of the variables in a flat vector, with the shapes that they have in ``like``."""
        arrays = [np.asarray(like[name], dtype) for name, dtype in self._dtypes.items()]
        return dict(zip(self.values, unflattened(place, arrays), strict=True))

    def __call__(self, located: Located) -> np.ndarray:
        """Log density and gradient."""
        found: np.ndarray = evaluated(self._in_python(located), located.place)
        return found[: 1 + len(located.place)]

    def _in_python(self, located: Located) -> Density:
        def packed(function: Any) -> Callable[..., Any]:
            return lambda arguments: (function(*arguments),)

        return _as_density(map(packed, self.functions), located)

    def given_to(self, kernel: Kernel, located: Located) -> tuple[Callable[..., Any], Density]:
        """A kernel as it is called, and the density that it is to be given."""
        linkers = {type(function.maker.linker) for function in self.functions}
        if linkers == {CppLinker}:
            return kernel, _as_density((f.vm.jit_fn.address for f in self.functions), located)
        if linkers != {NumbaLinker}:
            return inspect.unwrap(kernel), self._in_python(located)
        if self._in_numba is None:
            from pymc_nnsteps.compile.in_numba import Compiled

            self._in_numba = [Compiled(f.vm.jit_fn) for f in self.functions]
        return kernel.numba, _as_density(self._in_numba, located)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out addresses, which are valid in one process only."""
        return self.__dict__ | {"_in_numba": None}


def _as_density(functions: Iterable[Any], located: Located) -> Density:
    """Functions as kernels are given them; one function alone is a sum over blocks of rows."""
    first, *others = functions
    of_sums, through_sums = others or (first, first)
    numbers, layouts = located.numbers, located.layouts
    return Density(first, of_sums, through_sums, float(bool(others)), numbers, layouts)


@pytensor.config.change_flags(numba__fastmath=False)  # type: ignore[untyped-decorator]
@without_blas_notice()
def _compiled(
    inputs: Sequence[TensorVariable],
    outputs: Sequence[TensorVariable],
    options: dict[str, Any],
    called_by: Sequence[tuple[Kernel, str]],
) -> list[Any]:
    """A function of each output, all by the same compiler: a kernel calls them together."""

    def functions(**each: Any) -> list[Any]:
        found = [compiled(inputs, output, **each) for output in outputs]
        for function in found:
            function.trust_input = True
        return found

    if "mode" not in options and pytensor.config.cxx:
        try:
            return functions(mode=in_cpp(*called_by), **options)
        except (UntranslatableError, CompilerError) as error:
            log_compilation(f"Numba compiles a log density, which takes longer than C++: {error}")
    return functions(**numba_by_default(options))


class _FlatReader:
    """Reader of variables from a flat vector, given starts, ends and lengths of axes of each."""

    def __init__(self, layout: TensorVariable) -> None:
        self._layout = layout
        self._position = 0

    def take(self, vector: TensorVariable, like: TensorVariable) -> TensorVariable:
        """Next variable in a vector, with the type of ``like``."""
        start = self._position
        self._position += 2 + like.ndim
        lengths = [
            self._layout[start + 2 + axis] if length is None else length
            for axis, length in enumerate(like.type.shape)
        ]
        piece = vector[self._layout[start] : self._layout[start + 1]]
        return piece.reshape(lengths, ndim=like.ndim).astype(like.dtype)


def _layout(
    arrays: Sequence[np.ndarray], start: int = 0, cuts: Sequence[slice | None] | None = None
) -> list[int]:
    """Layout of some rows of each array, or all, in a vector that holds them one after another."""
    numbers, end = [], start
    for array, cut in zip(arrays, cuts or [None] * len(arrays), strict=True):
        begin, end, shape = end, end + array.size, array.shape
        if cut is None:
            numbers += [begin, end, *shape]
        else:
            of_row = math.prod(shape[1:])
            first, last = begin + cut.start * of_row, begin + cut.stop * of_row
            numbers += [first, last, cut.stop - cut.start, *shape[1:]]
    return numbers


def unflattened(vector: np.ndarray, like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays of given shapes and dtypes that follow each other in a vector."""
    pieces = np.split(vector, np.cumsum([array.size for array in like])[:-1])
    return [p.reshape(x.shape).astype(x.dtype) for p, x in zip(pieces, like, strict=True)]


def _flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
    flat = [array.ravel().astype(np.float64, copy=False) for array in arrays]
    return np.concatenate([np.zeros(0), *flat])
