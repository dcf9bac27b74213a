"""Graphs of PyTensor, translated to one function in C++.

PyTensor's machine takes a microsecond from one operation of a graph to the next, which is as long
as an operation on the few numbers of a small network takes, and Numba takes a minute to compile
one. Here a graph becomes a function in a unit of its own: one statement for each operation, those
of ``graphs.hpp``, and a loop for each function of numbers, whose C code is PyTensor's. What is not
known is refused.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import AND, OR, Add, Mul, ScalarMaximum, ScalarMinimum, ScalarOp
from pytensor.tensor.basic import (
    Alloc,
    AllocDiag,
    AllocEmpty,
    ARange,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)
from pytensor.tensor.type import tensor

from pymc_nnsteps.kernels import elementwise
from pymc_nnsteps.kernels.elementwise import TYPES
from pymc_nnsteps.kernels.expressions import UntranslatableError, number

MOST_ENTRIES = 10_000
"""Largest size of a constant, whose entries are written out."""

MOST_AXES = 4

REDUCTIONS: dict[type[ScalarOp], tuple[str, str]] = {
    Add: ("Sum", "0"),
    Mul: ("Product", "1"),
    ScalarMaximum: ("Largest", "-INFINITY"),
    ScalarMinimum: ("Smallest", "INFINITY"),
    AND: ("All", "1"),
    OR: ("Any", "0"),
}
"""What makes one number of several, and where it begins."""


def _type(variable: Variable) -> str:
    """C++ type of an array's entries."""
    dtype = variable.type.dtype
    if dtype not in TYPES:
        raise UntranslatableError(f"an array of {dtype}")
    return TYPES[dtype]


def _axes(variable: Variable) -> int:
    return getattr(variable.type, "ndim", 0)


def _array(variable: Variable) -> str:
    """C++ type of an array."""
    return f"Array<{_type(variable)}, {_axes(variable)}>"


class Translation:
    """The text of a graph in C++.

    Parameters
    ----------
    fgraph : FunctionGraph

    Attributes
    ----------
    headers : list of str
        Functions that PyTensor has in C. They precede the text.
    """

    def __init__(self, fgraph: FunctionGraph) -> None:
        self.headers: list[str] = []
        self._fgraph = fgraph
        self._names: dict[Variable, str] = {}
        self._ahead: list[str] = []

    def text(self) -> str:
        """Constants, loops, and the function."""
        lines = []
        for k, variable in enumerate(self._fgraph.inputs):
            kind, axes = _type(variable), _axes(variable)
            lines.append(f"auto {self._new(variable)} = array_of<{kind}, {axes}>(given[{k}]);")
        order = self._fgraph.toposort()
        last_use = {v: k for k, node in enumerate(order) for v in node.inputs}
        for k, node in enumerate(order):
            if any(_axes(v) > MOST_AXES for v in node.outputs):
                raise UntranslatableError(f"an array of many axes: {node.op}")
            given = [self.name(v) for v in node.inputs]
            found = [self._new(v) for v in node.outputs]
            lines.append(_statement(node.op, node, given, found, self))
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
        kind, shape = _type(constant), ", ".join(map(str, value.shape))
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


def _constant(variable: Variable) -> Any:
    """Value of a constant."""
    if not isinstance(variable, Constant):
        raise UntranslatableError(f"{variable}, which is no constant")
    return variable.data


Statement = Callable[[Any, Apply, list[str], list[str], Translation], str]


@functools.singledispatch
def _statement(op: Op, node: Apply, x: list[str], y: list[str], writer: Translation) -> str:
    """A statement that declares results, named ``y``, of arrays named ``x``."""
    raise UntranslatableError(str(op))


def _gives(*ops: type) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Register a function of a node and names of arrays to an expression for its result."""

    def register(expression: Callable[..., str]) -> Callable[..., str]:
        for op in ops:

            @_statement.register(op)
            def _(op: Any, node: Apply, x: list[str], y: list[str], writer: Translation) -> str:
                return f"{_array(node.outputs[0])} {y[0]} = {expression(node, x)};"

        return expression

    return register


# --- functions of numbers ------------------------------------------------------------------


@_statement.register(ScalarOp)
def _(op: ScalarOp, node: Apply, x: list[str], y: list[str], writer: Translation) -> str:
    numbers = [tensor(dtype=v.type.dtype, shape=()) for v in node.inputs]
    return _statement(Elemwise(op), Elemwise(op).make_node(*numbers), x, y, writer)


@_statement.register(Elemwise)
def _(op: Elemwise, node: Apply, x: list[str], y: list[str], writer: Translation) -> str:
    code = elementwise.code_of(node, in_graph=True)
    if code is None:
        raise UntranslatableError(str(op))
    loop = writer.loop(code, op.scalar_op.c_support_code())
    n_axes = _axes(node.outputs[0])
    masks = [
        sum(is_one << axis for axis, is_one in enumerate(v.type.broadcastable)) for v in node.inputs
    ]
    given = list(zip(x, masks, strict=True))
    declared = "".join(f"{_array(v)} {name};\n" for v, name in zip(node.outputs, y, strict=True))
    results = "".join(
        f"{name} = lengths.result<{_type(v)}>();\n" for v, name in zip(node.outputs, y, strict=True)
    )
    operands = ", ".join(f"graphs::operand({name})" for name in [*x, *y])
    return (
        f"{declared}{{ graphs::Lengths<{n_axes}> lengths;\n"
        + "".join(f"lengths.fit({name}, {mask});\n" for name, mask in given)
        + "".join(f"lengths.check({name}, {mask});\n" for name, mask in given)
        + f"{results}graphs::Operand each[] = {{{operands}}};\n"
        + f"graphs::over({n_axes}, lengths.n, each, {len(x)}, {loop}); }}"
    )


@_gives(CAReduce)
def _(node: Apply, x: list[str]) -> str:
    op, [given], [found] = node.op, node.inputs, node.outputs
    kind = _type(found)
    accumulated = getattr(op, "acc_dtype", None) or found.type.dtype
    if type(op.scalar_op) not in REDUCTIONS or TYPES[accumulated] != kind:
        raise UntranslatableError(f"{op} in {accumulated}")
    name, first = REDUCTIONS[type(op.scalar_op)]
    if "INFINITY" in first and kind not in ("double", "float"):
        raise UntranslatableError(f"{op} of {found.type.dtype}")
    axes = range(_axes(given)) if op.axis is None else op.axis
    mask = sum(1 << axis for axis in axes)
    return (
        f"graphs::reduced<{kind}, {_axes(found)}>({x[0]}, {mask}, ({kind}){first}, "
        f"graphs::{name}())"
    )


# --- shapes and parts ----------------------------------------------------------------------


@_gives(DeepCopyOp)
def _(node: Apply, x: list[str]) -> str:
    return f"graphs::copied({x[0]})"


@_gives(ViewOp, ScalarFromTensor, TensorFromScalar)
def _(node: Apply, x: list[str]) -> str:
    return x[0]


@_gives(DimShuffle)
def _(node: Apply, x: list[str]) -> str:
    order = ", ".join("-1" if axis == "x" else str(axis) for axis in node.op.new_order)
    n = len(node.op.new_order)
    return f"graphs::rearranged({x[0]}, Shape<{n}>{{{{{order}}}}})"


@_gives(Reshape)
def _(node: Apply, x: list[str]) -> str:
    n = _axes(node.outputs[0])
    return f"graphs::reshaped<{n}>({x[0]}, graphs::lengths_in<{n}>({x[1]}))"


@_statement.register(SpecifyShape)
def _(op: SpecifyShape, node: Apply, x: list[str], y: list[str], writer: Translation) -> str:
    tests = [
        f"graphs::require_length({x[0]}, {axis}, *{length}.p);\n"
        for axis, (given, length) in enumerate(zip(node.inputs[1:], x[1:], strict=True))
        if not (isinstance(given, Constant) and given.data is None)
    ]
    return f"{''.join(tests)}auto {y[0]} = {x[0]};"


@_statement.register(CheckAndRaise)
def _(op: CheckAndRaise, node: Apply, x: list[str], y: list[str], writer: Translation) -> str:
    kind, message = op.exc_type.__name__, op.msg.replace('"', "'").replace("\n", " ")
    if kind not in ("ValueError", "AssertionError"):
        raise UntranslatableError(str(op))
    test = " && ".join(f"*{name}.p" for name in x[1:])
    return f'if (!({test})) throw Error{{"{kind}", "{message}"}};\nauto {y[0]} = {x[0]};'


@_gives(Shape_i)
def _(node: Apply, x: list[str]) -> str:
    return f"graphs::scalar(Int({x[0]}.n[{node.op.i}]))"


@_gives(Shape)
def _(node: Apply, x: list[str]) -> str:
    lengths = ", ".join(f"{x[0]}.n[{axis}]" for axis in range(_axes(node.inputs[0])))
    return f"graphs::vector<Int>({lengths})"


@_gives(MakeVector)
def _(node: Apply, x: list[str]) -> str:
    return f"graphs::vector<{_type(node.outputs[0])}>({', '.join(f'*{name}.p' for name in x)})"


def _lengths(names: Sequence[str]) -> str:
    return f"Shape<{len(names)}>{{{{{', '.join(f'Int(*{name}.p)' for name in names)}}}}}"


@_gives(AllocEmpty)
def _(node: Apply, x: list[str]) -> str:
    return f"empty({_lengths(x)}, Type<{_type(node.outputs[0])}>{{}})"


def _with_axes(n: int, name: str, given: Variable) -> str:
    """An expression for an array with new axes ahead of its own, ``n`` in all."""
    own = range(_axes(given))
    order = ", ".join(map(str, [*[-1] * (n - len(own)), *own]))
    return f"graphs::rearranged({name}, Shape<{n}>{{{{{order}}}}})"


@_statement.register(Alloc)
def _(op: Alloc, node: Apply, x: list[str], y: list[str], writer: Translation) -> str:
    value, *lengths = x
    [found] = node.outputs
    given = _with_axes(_axes(found), value, node.inputs[0])
    return (
        f"{_array(found)} {y[0]} = empty({_lengths(lengths)}, Type<{_type(found)}>{{}});\n"
        f"graphs::copy_into({y[0]}, graphs::spread({given}, {y[0]}.n));"
    )


@_gives(Join)
def _(node: Apply, x: list[str]) -> str:
    [found] = node.outputs
    if any(v.type.dtype != found.type.dtype for v in node.inputs):
        raise UntranslatableError("arrays of different types that are joined")
    axis = node.op.axis % _axes(found)
    return f"graphs::joined<{_type(found)}, {_axes(found)}>({axis}, {', '.join(x)})"


@_statement.register(Split)
def _(op: Split, node: Apply, x: list[str], y: list[str], writer: Translation) -> str:
    array, lengths = x
    axis = op.axis % _axes(node.inputs[0])
    begin, text = "Int(0)", ""
    for k, name in enumerate(y):
        end = f"{begin} + {lengths}.p[{k} * {lengths}.s[0]]"
        text += f"auto {name} = graphs::cut({array}, {axis}, {begin}, {end}, 1);\n"
        begin = end
    error = 'Error{"ValueError", "a split that does not fit"}'
    return f"{text}if ({begin} != {array}.n[{axis}]) throw {error};"


def _part(
    array: str, indices: Iterable[Any], names: Sequence[str], given: Sequence[Variable]
) -> str:
    """An expression for a part of an array."""

    def end(entry: int | None) -> str:
        return "graphs::NONE" if entry is None else f"Int(*{names[entry]}.p)"

    axis = 0
    for index in indices:
        if isinstance(index, slice):
            step = 1 if index.step is None else int(_constant(given[index.step]))
            array = f"graphs::cut({array}, {axis}, {end(index.start)}, {end(index.stop)}, {step})"
            axis += 1
        else:
            array = f"graphs::pick({array}, {axis}, {end(index)})"
    return array


@_gives(Subtensor)
def _(node: Apply, x: list[str]) -> str:
    return _part(x[0], node.op.idx_list, x[1:], node.inputs[1:])


@_statement.register(IncSubtensor)
def _(op: IncSubtensor, node: Apply, x: list[str], y: list[str], writer: Translation) -> str:
    whole, value, *names = x
    n = _axes(node.inputs[0]) - sum(not isinstance(i, slice) for i in op.idx_list)
    given = _with_axes(n, value, node.inputs[1])
    kind = "copy" if op.set_instead_of_inc else "add"
    return (
        f"auto {y[0]} = graphs::copied({whole});\n"
        f"{{ auto part = {_part(y[0], op.idx_list, names, node.inputs[2:])};\n"
        f"graphs::{kind}_into(part, graphs::spread({given}, part.n)); }}"
    )


def _indices(op: Any, given: Sequence[Variable], names: Sequence[str]) -> list[str]:
    """Indices along the first axes, as arrays of places of the same number of axes."""
    n = len(given)
    known = [*range(n), *[slice(None, None, None)] * (len(op.idx_list) - n)]
    if list(op.idx_list) != known or len(set(map(_axes, given))) != 1:
        raise UntranslatableError(str(op))
    truths = [v.type.dtype == "bool" for v in given]
    if any(is_truth and _axes(v) != 1 for v, is_truth in zip(given, truths, strict=True)):
        raise UntranslatableError(f"{op} of truths along several axes")
    return [
        f"graphs::places({name})" if is_truth else name
        for name, is_truth in zip(names, truths, strict=True)
    ]


@_gives(AdvancedSubtensor)
def _(node: Apply, x: list[str]) -> str:
    array, *names = x
    return f"graphs::taken({array}, {', '.join(_indices(node.op, node.inputs[1:], names))})"


@_gives(AdvancedIncSubtensor)
def _(node: Apply, x: list[str]) -> str:
    whole, value, *indices = node.inputs
    array, new, *names = x
    places = ", ".join(_indices(node.op, indices, names))
    given = _with_axes(_axes(whole) - len(indices) + _axes(indices[0]), new, value)
    adds = "false" if node.op.set_instead_of_inc else "true"
    return f"graphs::put({adds}, {array}, {given}, {places})"


@_gives(CumOp)
def _(node: Apply, x: list[str]) -> str:
    name = {"add": "Sum", "mul": "Product"}[node.op.mode]
    return f"graphs::accumulated({x[0]}, {node.op.axis}, graphs::{name}())"


# --- matrices ------------------------------------------------------------------------------


@_gives(Dot)
def _(node: Apply, x: list[str]) -> str:
    if any(not v.type.dtype.startswith("float") for v in node.inputs):
        raise UntranslatableError("a product of integers")
    return f"graphs::product_of({x[0]}, {x[1]})"


@_gives(ARange)
def _(node: Apply, x: list[str]) -> str:
    kind = _type(node.outputs[0])
    if kind != "long long":
        raise UntranslatableError(str(node.op))
    return f"graphs::range({', '.join(f'Int(*{name}.p)' for name in x)})"


@_gives(Eye)
def _(node: Apply, x: list[str]) -> str:
    if _constant(node.inputs[2]) != 0:
        raise UntranslatableError(str(node.op))
    return f"graphs::unit_matrix<{_type(node.outputs[0])}>(*{x[0]}.p, *{x[1]}.p)"


@_gives(AllocDiag)
def _(node: Apply, x: list[str]) -> str:
    if (node.op.axis1, node.op.axis2, node.op.offset, _axes(node.inputs[0])) != (0, 1, 0, 1):
        raise UntranslatableError(str(node.op))
    return f"graphs::diagonal_matrix({x[0]})"


@_gives(ExtractDiag)
def _(node: Apply, x: list[str]) -> str:
    if node.op.offset != 0:
        raise UntranslatableError(str(node.op))
    return f"graphs::diagonal({x[0]}, {node.op.axis1}, {node.op.axis2})"


def _require_doubles(node: Apply) -> None:
    if any(v.type.dtype != "float64" for v in (*node.inputs, *node.outputs)):
        raise UntranslatableError(f"{node.op} in another precision than float64")


@_gives(Cholesky)
def _(node: Apply, x: list[str]) -> str:
    _require_doubles(node)
    return f"graphs::cholesky({x[0]}, {str(node.op.lower).lower()})"


@_gives(SolveTriangular)
def _(node: Apply, x: list[str]) -> str:
    _require_doubles(node)
    options = f"{str(node.op.lower).lower()}, {str(node.op.unit_diagonal).lower()}"
    return f"graphs::solve_triangular({x[0]}, {x[1]}, {options})"
