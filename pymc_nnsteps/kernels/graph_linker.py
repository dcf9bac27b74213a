"""PyTensor's linker of graphs that are one unit of C++: see :mod:`.graph_translation`."""

from pathlib import Path
from typing import Any, override

import numpy as np
from pymc.pytensorf import resolve_backend_compile_kwargs
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph
from pytensor.link.basic import JITLinker

from pymc_nnsteps.kernels import elementwise, jit, native
from pymc_nnsteps.kernels.compiling import (
    BEFORE_FUSION,
    FIRST,
    SPECIAL_MATRICES,
    MultiplyUnsigned,
)
from pymc_nnsteps.kernels.expressions import UntranslatableError
from pymc_nnsteps.kernels.graph_translation import Translation
from pymc_nnsteps.kernels.special_functions import UseSpecialFunctions

HEADERS = (elementwise.PREAMBLE, jit.HEADER, Path(__file__).with_name("graphs.hpp"))

EXCLUDED = ("inplace", "BlasOpt", "local_careduce_fusion", *SPECIAL_MATRICES)
"""PyTensor's rewrites for its own machine, and needless ones."""


def in_cpp(*together: tuple[jit.Kernel, str]) -> Mode:
    """The mode of functions that are one unit of C++, built together with kernels."""
    mode = resolve_backend_compile_kwargs("c", None)["mode"].excluding(*EXCLUDED)
    mode = mode.register((MultiplyUnsigned(), FIRST), (UseSpecialFunctions(), BEFORE_FUSION))
    return Mode(CppLinker(*together), mode.provided_optimizer)


class CppLinker(JITLinker):
    """PyTensor's linker of graphs that are translated.

    Parameters
    ----------
    *together : (Kernel, str)
        Kernels that are to be built too, and the types of their arguments.
    """

    def __init__(self, *together: tuple[jit.Kernel, str]) -> None:
        super().__init__()
        self.together = together

    @override
    def fgraph_convert(self, fgraph: FunctionGraph, *given: Any, **options: Any) -> "Graph":
        graph = Graph(fgraph)
        units = dict(graph.unit)
        for kernel, types in self.together:
            units |= kernel.unit(types)
        native.build(units)
        return graph

    @override
    def jit_compile(self, fn: Any) -> Any:
        return fn

    @override
    def create_thunk_inputs(self, storage_map: Any) -> list[Any]:
        assert self.fgraph is not None
        return [storage_map[variable] for variable in self.fgraph.inputs]


class Graph:
    """A graph as a function of arrays.

    Attributes
    ----------
    unit : dict
        What is built for it, by its name.
    """

    def __init__(self, fgraph: FunctionGraph) -> None:
        types = jit.types_of(fgraph.inputs)
        if types is None:
            raise UntranslatableError("an input is no array of numbers")
        self._types = types
        translation = Translation(fgraph)
        text = translation.text()
        headers: tuple[str | Path, ...] = (*HEADERS, *translation.headers)
        self._name = native.digest(" ".join((jit.digest(), *translation.headers, text)))
        visible = 'extern "C" __attribute__((visibility("default")))'
        own = f"own_{self._name}"
        source = (
            f"namespace {own} {{\n{text}}}\n"
            f"{visible} void unit_{self._name}(const Given *given, Results *results) {{\n"
            f"try {{ {own}::graph(given, results); }} "
            "catch (const Error &e) { results->error = e; } }\n"
        )
        self.unit = {self._name: native.Unit(headers, source.__str__)}

    def __call__(self, *arguments: np.ndarray) -> tuple[np.ndarray, ...]:
        """Arrays that the graph gives."""
        found: tuple[np.ndarray, ...] = jit.calls().call(self.address, self._types, arguments)
        return found

    @property
    def address(self) -> jit.Address:
        """Address of the function, for kernels that call it."""
        return jit.Address(native.function(self._name))
