"""Piecewise-linear functions of one variable, read off a graph.

A function has a tuple of knots, and a slope and an intercept on each piece between them. Jumps
are allowed; values at the knots (a null set) are not kept. Comparisons are functions with values
0 and 1, so ``switch``, ``maximum``, ``abs``, ``sign``, ``clip`` and products with indicators all
reduce to arithmetic on common pieces.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce, singledispatch
from itertools import combinations, pairwise
from operator import mul
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Variable, equal_computations
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as scalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import full
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.rearranging import trivial_reshape
from pymc_nnsteps.graphs.search import dependents
from pymc_nnsteps.graphs.values import constant_or_none, scalar_constant

Line = tuple[float, float]


@dataclass(frozen=True)
class PiecewiseFunction:
    """``slope * z + intercept`` on each piece; ``lines[k]`` holds between knots k-1 and k."""

    knots: tuple[float, ...]
    lines: tuple[Line, ...]

    @property
    def slopes(self) -> tuple[float, ...]:
        """Slope of each piece."""
        return tuple(slope for slope, _ in self.lines)

    @property
    def intercepts(self) -> tuple[float, ...]:
        """Intercept of each piece."""
        return tuple(intercept for _, intercept in self.lines)

    def line_at(self, z: float) -> Line:
        """Line of the piece that holds ``z``, which is not a knot."""
        return self.lines[sum(knot < z for knot in self.knots)]


@dataclass(frozen=True)
class Argument:
    """Argument of a function, ``slope * z + shift``; the slope is nowhere zero."""

    slope: TensorVariable
    shift: TensorVariable


@dataclass(frozen=True)
class PiecewiseForm:
    """``function(argument(z)) + offset``, entry by entry; the offset does not depend on ``z``."""

    function: PiecewiseFunction
    offset: TensorVariable | None = None
    argument: Argument | None = None  # None: ``z`` itself
    # Entry of the flattened ``z`` on which each entry of the expression depends. None: the same
    # entry, in the same order.
    places: TensorVariable | None = None

    @property
    def given(self) -> bool:
        """Whether the form does not depend on ``z``."""
        return self.function.slopes == (0.0,)

    def require_plain(self) -> None:
        """Check that the form is a function of each entry of ``z`` itself, in their order."""
        if self.argument is not None:
            raise NotConjugate("its entries are shifted or scaled differently before a kink")
        if self.places is not None:
            raise NotConjugate("its entries are rearranged")


IDENTITY = PiecewiseFunction((), ((1.0, 0.0),))
ZERO: Line = (0.0, 0.0)


def constant(value: float) -> PiecewiseFunction:
    """Constant function."""
    return PiecewiseFunction((), ((0.0, value),))


def combine(operation: Callable[..., Line], *functions: PiecewiseFunction) -> PiecewiseFunction:
    """Apply an operation on lines piece by piece, between knots and crossings."""
    pairs = combinations([ZERO, *(line for f in functions for line in f.lines)], 2)
    roots = [(d - c) / (a - b) for (a, c), (b, d) in pairs if a != b]
    own = [knot for f in functions for knot in f.knots]
    knots = sorted({*own, *filter(math.isfinite, roots)})
    lines = [operation(z, *(f.line_at(z) for f in functions)) for z in _inner_points(knots)]
    kept = [k for k, (left, right) in enumerate(pairwise(lines)) if left != right]
    return PiecewiseFunction(
        tuple(knots[k] for k in kept), (lines[0], *(lines[k + 1] for k in kept))
    )


def _inner_points(knots: list[float]) -> list[float]:
    """One point inside each piece."""
    if not knots:
        return [0.0]
    middle = [(left + right) / 2 for left, right in pairwise(knots)]
    return [knots[0] - 1.0 - abs(knots[0]), *middle, knots[-1] + 1.0 + abs(knots[-1])]


def _is_above(z: float, f: Line, g: Line) -> bool:
    return (f[0] - g[0]) * z + (f[1] - g[1]) > 0


def _indicator(holds: bool) -> Line:
    return (0.0, float(holds))


def _scale(f: Line, factor: float) -> Line:
    return (factor * f[0], factor * f[1])


def _multiply(f: Line, g: Line) -> Line:
    if f[0] != 0 and g[0] != 0:
        raise NotConjugate("it is multiplied by itself")
    return (f[0] * g[1] + g[0] * f[1], f[1] * g[1])


def _divide(f: Line, g: Line) -> Line:
    if g[0] != 0 or g[1] == 0:
        raise NotConjugate("it is in a denominator")
    return _scale(f, 1.0 / g[1])


OPERATIONS: dict[type, Callable[..., Line]] = {
    scalar.Add: lambda z, *lines: (sum(f[0] for f in lines), sum(f[1] for f in lines)),
    scalar.Mul: lambda z, *lines: reduce(_multiply, lines),
    scalar.Sub: lambda z, f, g: (f[0] - g[0], f[1] - g[1]),
    scalar.Neg: lambda z, f: _scale(f, -1.0),
    scalar.TrueDiv: lambda z, f, g: _divide(f, g),
    scalar.Abs: lambda z, f: f if _is_above(z, f, ZERO) else _scale(f, -1.0),
    scalar.Sign: lambda z, f: (0.0, float(np.sign(f[0] * z + f[1]))),
    scalar.Maximum: lambda z, f, g: f if _is_above(z, f, g) else g,
    scalar.Minimum: lambda z, f, g: g if _is_above(z, f, g) else f,
    scalar.Clip: lambda z, f, low, high: (
        low if _is_above(z, low, f) else high if _is_above(z, f, high) else f
    ),
    scalar.GT: lambda z, f, g: _indicator(_is_above(z, f, g)),
    scalar.GE: lambda z, f, g: _indicator(not _is_above(z, g, f)),
    scalar.LT: lambda z, f, g: _indicator(_is_above(z, g, f)),
    scalar.LE: lambda z, f, g: _indicator(not _is_above(z, f, g)),
    scalar.Switch: lambda z, condition, f, g: f if condition != ZERO else g,
    scalar.Identity: lambda z, f: f,
    scalar.Cast: lambda z, f: f,
}
"""Scalar operations on lines, about a point between knots and roots."""


def piecewise_linear(
    expression: TensorVariable,
    rv: TensorVariable,
    barriers: Collection[TensorVariable] = (),
    shape: Sequence[int | None] | None = None,
) -> PiecewiseForm:
    """Read ``expression`` as a piecewise-linear function of each entry of ``rv``, plus an offset.

    ``shape`` has the lengths of the axes of ``rv`` that are known beyond its type.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> z = pt.matrix("z")
    >>> piecewise_linear(pt.clip(2 * z, -1, 1), z).function
    PiecewiseFunction(knots=(-0.5, 0.5), lines=((0.0, -1.0), (2.0, 0.0), (0.0, 1.0)))
    """
    known = tuple(rv.type.shape if shape is None else shape)
    return Reader(rv, known, dependents(expression, {rv}, barriers))(expression)


@dataclass(frozen=True)
class Reader:
    """Reader of an expression and its operands."""

    rv: TensorVariable
    shape: tuple[int | None, ...]
    dependent: set[Variable]

    def __call__(self, expression: TensorVariable) -> PiecewiseForm:
        """Form of an expression."""
        if expression is self.rv:
            return PiecewiseForm(IDENTITY)
        if expression not in self.dependent:
            value = scalar_constant(expression)
            if value is None:
                return PiecewiseForm(constant(0.0), expression)
            return PiecewiseForm(constant(value))
        return _read(expression.owner.op, expression.owner, self)

    def shape_of(self, operand: TensorVariable) -> tuple[int | None, ...]:
        """Lengths of an operand's axes, as far as they are known."""
        return self.shape if operand is self.rv else operand.type.shape


@singledispatch
def _read(op: Op, node: Any, read: Reader) -> PiecewiseForm:
    raise NotConjugate(f"{describe(node.outputs[0])} is not an elementwise operation")


@_read.register(ViewOp)
@_read.register(CheckAndRaise)
@_read.register(SpecifyShape)
def _read_view(op: Op, node: Any, read: Reader) -> PiecewiseForm:
    return read(node.inputs[0])


@_read.register(Elemwise)
def _read_elemwise(op: Any, node: Any, read: Reader) -> PiecewiseForm:
    [out] = node.outputs
    forms = [read(operand) for operand in node.inputs]
    repeats = [
        form.function.slopes != (0.0,) and operand.type.broadcastable != out.type.broadcastable
        for form, operand in zip(forms, node.inputs, strict=True)
    ]
    if any(repeats):
        raise NotConjugate(f"{describe(out)} broadcasts it along an axis")
    operation = OPERATIONS.get(type(op.scalar_op))
    if operation is None:
        raise NotConjugate(f"{describe(out)} is not piecewise linear")
    additive = isinstance(op.scalar_op, scalar.Add | scalar.Sub | scalar.Identity | scalar.Cast)
    if not additive and any(form.offset is not None for form in forms):
        scaled = _scaled(op, forms, out)
        if scaled is not None:
            return scaled
        forms = [_applied_to_itself(form, out) for form in forms]
    argument, places = _shared(forms, out)
    function = combine(operation, *(form.function for form in forms))
    if not _is_exact(function, out.dtype):
        raise NotConjugate(f"{describe(out)} rounds it to {out.dtype}")
    offsets = [form.offset for form in forms]
    if all(offset is None for offset in offsets):
        return PiecewiseForm(function, None, argument, places)
    if not out.dtype.startswith("float"):
        raise NotConjugate(f"{describe(out)} combines it with an expression that is not a constant")
    zero = 0.0
    offset = op(*(zero if offset is None else offset for offset in offsets))
    return PiecewiseForm(function, offset, argument, places)


def _line_of(form: PiecewiseForm, out: TensorVariable) -> tuple[Any, Any]:
    """Slope and shift of a form that is linear in ``z``."""
    if form.given or form.function.knots:
        raise NotConjugate(f"{describe(out)} combines it with an expression that is not a constant")
    [(slope, shift)] = form.function.lines
    if form.argument is None:
        return slope, shift if form.offset is None else form.offset + shift
    inner = form.argument.slope * slope, form.argument.shift * slope + shift
    return inner[0], inner[1] if form.offset is None else inner[1] + form.offset


def _applied_to_itself(form: PiecewiseForm, out: TensorVariable) -> PiecewiseForm:
    """Linear form with its offset made part of the argument, for the next operation."""
    if form.offset is None:
        return form
    slope, shift = map(pt.as_tensor, _line_of(form, out))
    return PiecewiseForm(IDENTITY, None, Argument(slope, shift), form.places)


def _scaled(op: Any, forms: Sequence[PiecewiseForm], out: TensorVariable) -> PiecewiseForm | None:
    """Linear form multiplied or divided by constants that differ between entries."""
    dependent = [form for form in forms if not form.given]
    if len(dependent) != 1 or not isinstance(op.scalar_op, scalar.Mul | scalar.TrueDiv):
        return None
    [form] = dependent
    if form.function.knots or all(other.offset is None for other in forms if other is not form):
        return None
    if isinstance(op.scalar_op, scalar.TrueDiv) and form is not forms[0]:
        return None
    values = [
        constant_or_none(other.function.intercepts[0] + other.offset)
        if other.offset is not None
        else np.asarray(other.function.intercepts[0])
        for other in forms
        if other is not form
    ]
    slope, shift = _line_of(form, out)
    factor = np.asarray(1.0)
    for value in values:
        if value is None:
            return None
        factor = factor * value if isinstance(op.scalar_op, scalar.Mul) else factor / value
    if not np.all(np.isfinite(factor) & (factor != 0)):
        raise NotConjugate(f"{describe(out)} multiplies it by zeros")
    argument = Argument(pt.as_tensor(factor * slope), pt.as_tensor(factor * shift))
    return PiecewiseForm(IDENTITY, None, argument, form.places)


def _shared(
    forms: Sequence[PiecewiseForm], out: TensorVariable
) -> tuple[Argument | None, TensorVariable | None]:
    """Argument and places of all forms that depend on ``z``."""
    dependent = [form for form in forms if not form.given]
    if not dependent:
        return None, None
    parts: list[list[Any]] = [
        [
            *([] if form.argument is None else [form.argument.slope, form.argument.shift]),
            *([] if form.places is None else [form.places]),
        ]
        for form in dependent
    ]
    kinds = {(form.argument is None, form.places is None) for form in dependent}
    if len(kinds) > 1 or not all(equal_computations(parts[0], other) for other in parts[1:]):
        raise NotConjugate(f"{describe(out)} combines it with itself, shifted or rearranged")
    return dependent[0].argument, dependent[0].places


def _is_exact(function: PiecewiseFunction, dtype: str) -> bool:
    """Whether a dtype, such as an integer one, represents the values of a function exactly."""
    if dtype.startswith("float"):
        return True
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return all(s == 0 and low <= c <= high and c == round(c) for s, c in function.lines)


@_read.register(DimShuffle)
@_read.register(Reshape)
@_read.register(Subtensor)
@_read.register(AdvancedSubtensor)
def _read_rearrangement(op: Any, node: Any, read: Reader) -> PiecewiseForm:
    source, *given = node.inputs
    if not read.dependent.isdisjoint(given):
        raise NotConjugate("it is used as an index")

    def rearranged(array: TensorVariable) -> TensorVariable:
        new: TensorVariable = op(array, *given)
        return new

    form, shape = read(source), read.shape_of(source)
    places = form.places
    if places is not None:
        places = rearranged(places)
    elif not _keeps_order(op, node, shape):
        lengths = [source.shape[axis] if n is None else n for axis, n in enumerate(shape)]
        places = rearranged(pt.arange(reduce(mul, lengths, 1)).reshape(lengths))
    argument = form.argument
    if argument is not None:
        parts = (rearranged(full(part, source)) for part in (argument.slope, argument.shift))
        argument = Argument(*parts)
    offset = None if form.offset is None else rearranged(full(form.offset, source))
    return PiecewiseForm(form.function, offset, argument, places)


def _keeps_order(op: Any, node: Any, shape: Sequence[int | None]) -> bool:
    """Whether an operation on an array of a shape keeps all of its entries in their order."""
    if isinstance(op, DimShuffle):
        kept = [axis for axis in op.new_order if axis != "x"]
        return kept == sorted(kept)
    if isinstance(op, Reshape):
        return trivial_reshape(node) is not None
    indices = indices_from_subtensor(node.inputs[1:], op.idx_list)
    return isinstance(op, Subtensor) and all(
        index == slice(None) or shape[axis] == 1 for axis, index in enumerate(indices)
    )
