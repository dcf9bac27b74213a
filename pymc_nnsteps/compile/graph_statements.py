"""What operations of PyTensor become in C++: a statement for each, of those in ``graphs.hpp``."""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import AND, OR, Add, Mul, ScalarMaximum, ScalarMinimum, ScalarOp
from pytensor.tensor import basic, subtensor
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape

from pymc_nnsteps.compile.elementwise import TYPES
from pymc_nnsteps.compile.expressions import UntranslatableError

REDUCTIONS: dict[type[ScalarOp], tuple[str, str]] = {
    Add: ("Sum", "0"),
    Mul: ("Product", "1"),
    ScalarMaximum: ("Largest", "-INFINITY"),
    ScalarMinimum: ("Smallest", "INFINITY"),
    AND: ("All", "1"),
    OR: ("Any", "0"),
}
"""What makes one number of several, and where it begins."""


def type_of(variable: Variable) -> str:
    """C++ type of an array's entries."""
    dtype = variable.type.dtype
    if dtype not in TYPES:
        raise UntranslatableError(f"an array of {dtype}")
    return TYPES[dtype]


def axes_of(variable: Variable) -> int:
    """Number of axes, none for a number."""
    return getattr(variable.type, "ndim", 0)


def array_type(variable: Variable) -> str:
    """C++ type of an array."""
    return f"Array<{type_of(variable)}, {axes_of(variable)}>"


def _as(kind: str, name: str, given: Variable) -> str:
    """An expression for an array with entries of a type of C++."""
    return name if type_of(given) == kind else f"graphs::as_type<{kind}>({name})"


def _constant(variable: Variable) -> Any:
    """Value of a constant."""
    if not isinstance(variable, Constant):
        raise UntranslatableError(f"{variable}, which is no constant")
    return variable.data


@functools.singledispatch
def statement(op: Op, node: Apply, x: list[str], y: list[str], writer: Any) -> str:
    """A statement that declares results, named ``y``, of arrays named ``x``."""
    raise UntranslatableError(str(op))


def _gives(*ops: type) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Register a function of a node and names of arrays to an expression for its result."""

    def register(expression: Callable[..., str]) -> Callable[..., str]:
        for op in ops:

            @statement.register(op)
            def _(op: Any, node: Apply, x: list[str], y: list[str], writer: Any) -> str:
                return f"{array_type(node.outputs[0])} {y[0]} = {expression(node, x)};"

        return expression

    return register


@_gives(CAReduce)
def _(node: Apply, x: list[str]) -> str:
    op, [given], [found] = node.op, node.inputs, node.outputs
    kind = TYPES[getattr(op, "acc_dtype", None) or found.type.dtype]
    if type(op.scalar_op) not in REDUCTIONS:
        raise UntranslatableError(str(op))
    name, first = REDUCTIONS[type(op.scalar_op)]
    if "INFINITY" in first and kind not in ("double", "float"):
        raise UntranslatableError(f"{op} of {found.type.dtype}")
    axes = range(axes_of(given)) if op.axis is None else op.axis
    mask = sum(1 << axis for axis in axes)
    result = (
        f"graphs::reduced<{kind}, {axes_of(found)}>({x[0]}, {mask}, ({kind}){first}, "
        f"graphs::{name}())"
    )
    return result if kind == type_of(found) else f"graphs::as_type<{type_of(found)}>({result})"


# --- shapes and parts ----------------------------------------------------------------------


def _rearranged(name: str, order: Sequence[int]) -> str:
    """An expression for an array with its axes in another order; -1 is a new one."""
    return f"graphs::rearranged({name}, Shape<{len(order)}>{{{{{', '.join(map(str, order))}}}}})"


@_gives(Reshape)
def _(node: Apply, x: list[str]) -> str:
    n = axes_of(node.outputs[0])
    return f"graphs::reshaped<{n}>({x[0]}, graphs::lengths_in<{n}>({x[1]}))"


_gives(DeepCopyOp)(lambda node, x: f"graphs::copied({x[0]})")
_gives(ViewOp, basic.ScalarFromTensor, basic.TensorFromScalar)(lambda node, x: x[0])
_gives(DimShuffle)(
    lambda node, x: _rearranged(x[0], [-1 if a == "x" else a for a in node.op.new_order])
)
_gives(Shape_i)(lambda node, x: f"graphs::scalar(Int({x[0]}.n[{node.op.i}]))")
_gives(subtensor.Subtensor)(lambda node, x: _part(x[0], node.op.idx_list, x[1:], node.inputs[1:]))
_gives(basic.AllocEmpty)(
    lambda node, x: f"empty({_lengths(x)}, Type<{type_of(node.outputs[0])}>{{}})"
)
_gives(basic.MakeVector)(
    lambda node, x: (
        f"graphs::vector<{type_of(node.outputs[0])}>({', '.join(f'*{name}.p' for name in x)})"
    )
)


@statement.register(SpecifyShape)
def _(op: SpecifyShape, node: Apply, x: list[str], y: list[str], writer: Any) -> str:
    tests = [
        f"graphs::require_length({x[0]}, {axis}, *{length}.p);\n"
        for axis, (given, length) in enumerate(zip(node.inputs[1:], x[1:], strict=True))
        if not (isinstance(given, Constant) and given.data is None)
    ]
    return f"{''.join(tests)}auto {y[0]} = {x[0]};"


@statement.register(CheckAndRaise)
def _(op: CheckAndRaise, node: Apply, x: list[str], y: list[str], writer: Any) -> str:
    kind, message = op.exc_type.__name__, op.msg.replace('"', "'").replace("\n", " ")
    if kind not in ("ValueError", "AssertionError"):
        raise UntranslatableError(str(op))
    test = " && ".join(f"*{name}.p" for name in x[1:])
    return f'if (!({test})) throw Error{{"{kind}", "{message}"}};\nauto {y[0]} = {x[0]};'


@_gives(Shape)
def _(node: Apply, x: list[str]) -> str:
    lengths = ", ".join(f"{x[0]}.n[{axis}]" for axis in range(axes_of(node.inputs[0])))
    return f"graphs::vector<Int>({lengths})"


def _lengths(names: Sequence[str]) -> str:
    return f"Shape<{len(names)}>{{{{{', '.join(f'Int(*{name}.p)' for name in names)}}}}}"


def _with_axes(n: int, name: str, given: Variable) -> str:
    """An expression for an array with new axes ahead of its own, ``n`` in all."""
    own = range(axes_of(given))
    return _rearranged(name, [*[-1] * (n - len(own)), *own]) if len(own) < n else name


@statement.register(basic.Alloc)
def _(op: basic.Alloc, node: Apply, x: list[str], y: list[str], writer: Any) -> str:
    value, *lengths = x
    [found] = node.outputs
    given = _with_axes(axes_of(found), value, node.inputs[0])
    return (
        f"{array_type(found)} {y[0]} = empty({_lengths(lengths)}, Type<{type_of(found)}>{{}});\n"
        f"graphs::copy_into({y[0]}, graphs::spread({given}, {y[0]}.n));"
    )


@_gives(basic.Join)
def _(node: Apply, x: list[str]) -> str:
    [found] = node.outputs
    parts = ", ".join(_as(type_of(found), *each) for each in zip(x, node.inputs, strict=True))
    axis = node.op.axis % axes_of(found)
    return f"graphs::joined<{type_of(found)}, {axes_of(found)}>({axis}, {parts})"


@statement.register(basic.Split)
def _(op: basic.Split, node: Apply, x: list[str], y: list[str], writer: Any) -> str:
    array, lengths = x
    axis = op.axis % axes_of(node.inputs[0])
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


@statement.register(subtensor.IncSubtensor)
def _(op: subtensor.IncSubtensor, node: Apply, x: list[str], y: list[str], writer: Any) -> str:
    whole, value, *names = x
    _require_exact(op, node.inputs[0], node.inputs[1])
    n = axes_of(node.inputs[0]) - sum(not isinstance(i, slice) for i in op.idx_list)
    given = _with_axes(n, value, node.inputs[1])
    kind = "copy" if op.set_instead_of_inc else "add"
    return (
        f"auto {y[0]} = graphs::copied({whole});\n"
        f"{{ auto part = {_part(y[0], op.idx_list, names, node.inputs[2:])};\n"
        f"graphs::{kind}_into(part, graphs::spread({given}, part.n)); }}"
    )


def _exchanged(name: str, first: int, second: int, n: int) -> str:
    """An expression for an array of ``n`` axes, the first of them after some that follow."""
    moved = [*range(first, first + second), *range(first), *range(first + second, n)]
    return _rearranged(name, moved) if first and second else name


def _indices(
    op: Any, array: str, given: Sequence[Variable], names: Sequence[str]
) -> tuple[int, list[str], int]:
    """How many axes come ahead of indices, places along those indexed, and the axes of places."""
    kinds = [isinstance(index, slice) for index in op.idx_list]
    ahead, n = kinds.index(False), len(given)
    known = [slice(None)] * ahead, range(n), [slice(None)] * (len(kinds) - ahead - n)
    if list(op.idx_list) != [*itertools.chain(*known)]:
        raise UntranslatableError(str(op))
    most = max(1 if v.type.dtype == "bool" else axes_of(v) for v in given)
    places = []
    for variable, name in zip(given, names, strict=True):
        if variable.type.dtype != "bool":
            places.append(_with_axes(most, name, variable))
        elif most > 1 or not axes_of(variable):
            raise UntranslatableError(f"{op} of truths and others")
        else:
            start, axes = ahead + len(places), range(axes_of(variable))
            places += [f"graphs::places({name}, {a}, {array}.n[{start + a}])" for a in axes]
    return ahead, places, most


@_gives(subtensor.AdvancedSubtensor)
def _(node: Apply, x: list[str]) -> str:
    array, *names = x
    ahead, places, n_axes = _indices(node.op, array, node.inputs[1:], names)
    given = _exchanged(array, ahead, len(places), axes_of(node.inputs[0]))
    found = f"graphs::taken({given}, {', '.join(places)})"
    return _exchanged(found, n_axes, ahead, axes_of(node.outputs[0]))


def _require_exact(op: Any, whole: Variable, value: Variable) -> None:
    """Refuse entries that Python would convert otherwise than C++."""
    is_sum_of_truths = whole.type.dtype == "bool" and not op.set_instead_of_inc
    if is_sum_of_truths or not np.can_cast(value.type.dtype, whole.type.dtype, "same_kind"):
        raise UntranslatableError(f"{op} of {value.type.dtype} in {whole.type.dtype}")


@_gives(subtensor.AdvancedIncSubtensor)
def _(node: Apply, x: list[str]) -> str:
    whole, value, *indices = node.inputs
    array, new, *names = x
    _require_exact(node.op, whole, value)
    ahead, places, n_axes = _indices(node.op, array, indices, names)
    n = axes_of(whole) - len(places) + n_axes
    given = _exchanged(_with_axes(n, new, value), ahead, n_axes, n)
    into = _exchanged(array, ahead, len(places), axes_of(whole))
    adds = "false" if node.op.set_instead_of_inc else "true"
    found = f"graphs::put({adds}, {into}, {given}, {', '.join(places)})"
    return _exchanged(found, len(places), ahead, axes_of(whole))


@_gives(CumOp)
def _(node: Apply, x: list[str]) -> str:
    name = {"add": "Sum", "mul": "Product"}[node.op.mode]
    return f"graphs::accumulated({x[0]}, {node.op.axis}, graphs::{name}())"


# --- matrices ------------------------------------------------------------------------------


@_gives(Dot)
def _(node: Apply, x: list[str]) -> str:
    kind = type_of(node.outputs[0])
    if kind not in ("float", "double"):
        raise UntranslatableError("a product of integers")
    sides = ", ".join(_as(kind, *each) for each in zip(x, node.inputs, strict=True))
    return f"graphs::product_of({sides})"


@_gives(basic.ARange)
def _(node: Apply, x: list[str]) -> str:
    kind = type_of(node.outputs[0])
    if kind != "long long":
        raise UntranslatableError(str(node.op))
    return f"graphs::range({', '.join(f'Int(*{name}.p)' for name in x)})"


@_gives(basic.Eye)
def _(node: Apply, x: list[str]) -> str:
    if _constant(node.inputs[2]) != 0:
        raise UntranslatableError(str(node.op))
    return f"eye(*{x[0]}.p, *{x[1]}.p, Type<{type_of(node.outputs[0])}>{{}})"


@_gives(basic.AllocDiag)
def _(node: Apply, x: list[str]) -> str:
    if (node.op.axis1, node.op.axis2, node.op.offset, axes_of(node.inputs[0])) != (0, 1, 0, 1):
        raise UntranslatableError(str(node.op))
    return f"graphs::diagonal_matrix({x[0]})"


@_gives(basic.ExtractDiag)
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
