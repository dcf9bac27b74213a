"""Graphs of PyTensor, translated to one function in C++.

PyTensor's machine takes a microsecond from one operation of a graph to the next, which is as long
as an operation on the few numbers of a small network takes, and Numba takes a minute to compile
one. Here a graph becomes a function in a unit of its own: one statement for each operation, those
of ``graphs.hpp``, and a loop for each function of numbers, whose C code is PyTensor's. What is not
known is refused.

PyTensor's C code of some functions of numbers is missing, takes no integers, or computes something
else than its Python: the digamma function at its poles, the trigamma function below zero, float32 +
int64 in single precision. These are calls of SciPy's functions, or have code of their own.
"""

from pathlib import Path
from typing import Any, override

import numpy as np
from pymc.pytensorf import resolve_backend_compile_kwargs
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.basic import JITLinker
from pytensor.scalar.basic import IntDiv, ScalarOp
from pytensor.scalar.math import PolyGamma, TriGamma
from pytensor.tensor.basic import cast
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import tensor

from pymc_nnsteps.compile import elementwise, jit, native
from pymc_nnsteps.compile.compiling import (
    BEFORE_FUSION,
    FIRST,
    SPECIAL_MATRICES,
    multiplied,
)
from pymc_nnsteps.compile.expressions import UntranslatableError, number
from pymc_nnsteps.compile.graph_statements import array_type, axes_of, statement, type_of
from pymc_nnsteps.compile.native import SPECIAL
from pymc_nnsteps.compile.rewriting import KeptMode, Replace
from pymc_nnsteps.compile.thunks import repeated_axes

MOST_ENTRIES = 10_000
"""Largest size of a constant, whose entries are written out."""

MOST_AXES, MOST_RESULTS = 4, 8
"""Limits of ``shared.hpp``."""


class Translation:
    """The text of a graph in C++."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        self.headers: list[str] = []
        self._fgraph = fgraph
        self._names: dict[Variable, str] = {}
        self._ahead: list[str] = []

    def text(self) -> str:
        """Constants, loops, and the function."""
        lines = []
        if len(self._fgraph.outputs) > MOST_RESULTS:
            raise UntranslatableError(f"a graph of {len(self._fgraph.outputs)} results")
        for k, variable in enumerate(self._fgraph.inputs):
            kind, axes = type_of(variable), axes_of(variable)
            lines.append(f"auto {self._new(variable)} = array_of<{kind}, {axes}>(given[{k}]);")
        order = self._fgraph.toposort()
        last_use = {v: k for k, node in enumerate(order) for v in node.inputs}
        for k, node in enumerate(order):
            if any(axes_of(v) > MOST_AXES for v in node.outputs):
                raise UntranslatableError(f"an array of many axes: {node.op}")
            given = [self.name(v) for v in node.inputs]
            found = [self._new(v) for v in node.outputs]
            lines.append(statement(node.op, node, given, found, self))
            dead = {v for v in node.inputs if v.owner is not None and last_use[v] == k}.difference(
                self._fgraph.outputs
            )
            lines += [f"{name}.leave();" for name in sorted(self._names[v] for v in dead)]
        for variable in self._fgraph.outputs:
            if variable.type.dtype not in ("float64", "float32", "int64"):
                raise UntranslatableError(f"a result of {variable.type.dtype}")
            lines.append(f"give(*results, graphs::whole({self.name(variable)}));")
        body = "\n".join(lines)
        return (
            f"using namespace std;\nusing graphs::tanh;\n{''.join(self._ahead)}"
            "static __attribute__((cold)) "  # for size: each statement is run once
            f"void graph(const Given *given, Results *results) {{\n{body}\n}}\n"
        )

    def _new(self, variable: Variable) -> str:
        return self._names.setdefault(variable, f"v{len(self._names)}")

    def name(self, variable: Variable) -> str:
        """Name of a variable's array."""
        if variable not in self._names and isinstance(variable, Constant):
            self._declare(self._new(variable), variable)
        return self._names[variable]

    def _declare(self, name: str, constant: Constant) -> None:
        """A constant, ahead of the function."""
        if constant.data is None:  # a length that is not specified
            return
        value = np.asarray(constant.data)
        if value.size > MOST_ENTRIES or value.ndim > MOST_AXES:
            raise UntranslatableError(f"a constant of shape {value.shape}")
        kind, shape = type_of(constant), ", ".join(map(str, value.shape))
        entries = ", ".join(number(x.item()) for x in value.ravel()) or "0"
        self._ahead.append(
            f"static const {kind} entries_{name}[] = {{{entries}}};\n"
            f"static const auto {name} = graphs::constant(entries_{name}, "
            f"Shape<{value.ndim}>{{{{{shape}}}}});\n"
        )

    def loop(self, code: str, needs: str) -> str:
        """The name of a loop of this code, which needs another."""
        if needs and needs not in self.headers:
            self.headers.append(needs)
        name = f"loop{len(self._ahead)}"
        self._ahead.append(f"static void {name}{code}")
        return name


@statement.register(ScalarOp)
def _(op: ScalarOp, node: Apply, x: list[str], y: list[str], writer: Translation) -> str:
    numbers = [tensor(dtype=v.type.dtype, shape=()) for v in node.inputs]
    return statement(Elemwise(op), Elemwise(op).make_node(*numbers), x, y, writer)


@statement.register(Elemwise)
def _(op: Elemwise, node: Apply, x: list[str], y: list[str], writer: Translation) -> str:
    code = elementwise.code_of(node, in_graph=True)
    if code is None:
        raise UntranslatableError(str(op))
    loop = writer.loop(code, op.scalar_op.c_support_code())
    n_axes = axes_of(node.outputs[0])
    given = list(zip(x, repeated_axes(node), strict=True))
    declared = "".join(
        f"{array_type(v)} {name};\n" for v, name in zip(node.outputs, y, strict=True)
    )
    results = "".join(
        f"{name} = lengths.result<{type_of(v)}>();\n"
        for v, name in zip(node.outputs, y, strict=True)
    )
    operands = ", ".join(f"graphs::operand({name})" for name in [*x, *y])
    return (
        f"{declared}{{ graphs::Lengths<{n_axes}> lengths;\n"
        + "".join(f"lengths.fit({name}, {mask});\n" for name, mask in given)
        + "".join(f"lengths.check({name}, {mask});\n" for name, mask in given)
        + f"{results}graphs::Operand each[] = {{{operands}}};\n"
        + f"graphs::over({n_axes}, lengths.n, each, {len(x)}, {loop}); }}"
    )


PSI = f"of_scipy<{SPECIAL.index('psi')}>"

TABLE = f"""
#ifndef SPECIAL
#define SPECIAL {len(SPECIAL)}
extern "C" __attribute__((visibility("default"))) void *special[SPECIAL];
void *special[SPECIAL];
template <int K, class... X> double of_scipy(X... x) {{
    return ((double (*)(decltype(double(x))..., int))special[K])(double(x)..., 0);
}}
#endif
"""
"""C++ of addresses of SciPy's functions, and of their calls."""

OWN: dict[type[ScalarOp], str] = {
    TriGamma: "graphs::polygamma(1, {0})",
    PolyGamma: f"({{0}} ? graphs::polygamma({{0}}, {{1}}) : {PSI}({{1}}))",
    IntDiv: "graphs::floor_of_quotient({0}, {1})",
}
"""Expressions of functions that SciPy has no address of."""


class InCpp(ScalarOp):
    """A function of numbers whose C++ code is an expression with places for the arguments."""

    __props__ = ("op", "code")

    def __init__(self, op: ScalarOp, code: str) -> None:
        super().__init__(op.output_types_preference, str(op))
        self.op, self.code = op, code

    @override
    def c_support_code(self, **options: Any) -> str:
        return TABLE

    @override
    def c_code(self, node: Apply, name: str, x: Any, y: Any, sub: Any) -> str:
        return f"{y[0]} = {self.code.format(*x)};"


def restated(node: Apply) -> list[Variable] | None:
    """The same by other code or of other types; None where PyTensor's code does what is said."""
    if not isinstance(node.op, Elemwise):
        return None
    op, dtype = node.op.scalar_op, node.outputs[0].type.dtype
    if not dtype.startswith("float") or len(node.outputs) > 1:
        return None
    name = (getattr(op, "nfunc_spec", None) or [""])[0].removeprefix("scipy.special.")
    code = OWN.get(type(op))
    if name in SPECIAL:
        places = ", ".join(f"{{{k}}}" for k in range(len(node.inputs)))
        code = f"of_scipy<{SPECIAL.index(name)}>({places})"
    if code is not None:
        return Elemwise(InCpp(op, code)).make_node(*node.inputs).outputs
    is_refused = elementwise.code_of(node, in_graph=True) is None
    narrow = {v.type.dtype for v in node.inputs if is_refused or v.type.dtype == "float32"}
    if narrow <= {dtype} or (len(node.inputs) == 1 and not is_refused):
        return None
    inputs = [cast(v, dtype) if v.type.dtype in narrow else v for v in node.inputs]
    return node.op.make_node(*inputs).outputs


HEADERS = (elementwise.PREAMBLE, *jit.HEADERS, Path(__file__).with_name("graphs.hpp"))

EXCLUDED = ("inplace", "BlasOpt", "local_careduce_fusion", *SPECIAL_MATRICES)
"""PyTensor's rewrites for its own machine, and needless ones."""


def in_cpp(*together: tuple[jit.Kernel, str]) -> Mode:
    """The mode of functions that are one unit of C++, built together with kernels."""
    mode = resolve_backend_compile_kwargs("c", None)["mode"].excluding(*EXCLUDED)
    mode = mode.register((Replace(multiplied), FIRST), (Replace(restated), BEFORE_FUSION))
    return KeptMode(CppLinker(*together), mode.provided_optimizer)


class CppLinker(JITLinker):
    """PyTensor's linker of graphs that are translated, and built with kernels of given types."""

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
    """A graph as a function of arrays."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        types = jit.types_of(fgraph.inputs)
        if types is None:
            raise UntranslatableError("an input is no array of numbers")
        self._types = types
        translation = Translation(fgraph)
        text = translation.text()
        headers: tuple[str | Path, ...] = (*HEADERS, *translation.headers)
        read = (h.read_text() if isinstance(h, Path) else h for h in headers)
        self._name = native.digest(" ".join((*read, text)))
        source = jit.unit_of(self._name, text, "graph(given, results)")
        self.unit = {self._name: native.TranslationUnit(headers, source.__str__)}

    def __call__(self, *arguments: np.ndarray) -> tuple[np.ndarray, ...]:
        """Arrays that the graph gives."""
        found: tuple[np.ndarray, ...] = jit.calls().call(self.address, self._types, arguments)
        return found

    @property
    def address(self) -> jit.Address:
        """Address of the function, for kernels that call it."""
        return jit.Address(native.function(self._name))
