"""Typical squares of a network's expressions, given those of its weights.

Squares add and multiply as the numbers do whose squares they are; an activation bounds them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.scalar import basic as scalar
from pytensor.scalar.math import Erf, Erfc, Sigmoid, Softplus
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.search import dependents

REARRANGING = (
    AdvancedSubtensor,
    Alloc,
    DimShuffle,
    Reshape,
    SpecifyShape,
    Subtensor,
    Sum,
    ViewOp,
)
"""Operations that act on squares as on the numbers of their first argument."""

SIGNS = (scalar.Abs, scalar.Cast, scalar.Identity, scalar.Neg)

BENT: dict[type[scalar.ScalarOp], Callable[[TensorVariable], TensorVariable]] = {
    scalar.Tanh: lambda u: pt.minimum(u, 1.0),
    Erf: lambda u: pt.minimum(4 / np.pi * u, 1.0),
    Erfc: lambda u: pt.full_like(u, 4.0),
    Sigmoid: pt.ones_like,
    Softplus: lambda u: pt.maximum(u, np.log(2) ** 2),
}
"""Largest squares of activations; their slopes are bounded by one."""


class Squares:
    """Typical squares of expressions, given the squares of the weights that move."""

    def __init__(
        self, given: Mapping[TensorVariable, TensorVariable], barriers: Collection[TensorVariable]
    ) -> None:
        self._found: dict[Any, TensorVariable] = dict(given)
        self._given = given
        self._barriers = barriers

    def of(self, expression: Any) -> Any:
        """Square of an expression; its value if nothing in it moves."""
        moving = dependents(expression, self._given, self._barriers)
        return self._square(expression, moving)

    def _square(self, expression: Any, moving: Collection[Variable]) -> Any:
        if expression not in self._found:
            if expression in moving:
                self._found[expression] = self._of_node(expression, moving)
            else:
                self._found[expression] = pt.sqr(expression.astype("float64"))
        return self._found[expression]

    def _of_node(self, expression: Any, moving: Collection[Variable]) -> Any:
        op, inputs = expression.owner.op, expression.owner.inputs
        if isinstance(op, REARRANGING):
            if not moving.isdisjoint(inputs[1:]):  # type: ignore[attr-defined]
                raise NotConjugate("what is moved enters an index or a length")
            return op(self._square(inputs[0], moving), *inputs[1:])
        if isinstance(op, AdvancedIncSubtensor | IncSubtensor):
            return op(*(self._square(array, moving) for array in inputs[:2]), *inputs[2:])
        if isinstance(op, Elemwise) and isinstance(op.scalar_op, scalar.Switch):
            return _of_pieces([self._square(piece, moving) for piece in inputs[1:]])
        squares = [self._square(operand, moving) for operand in inputs]
        if isinstance(getattr(op, "core_op", op), Dot | Join):
            return op(*squares)
        if isinstance(op, Elemwise):
            return _of_numbers(op.scalar_op, squares, [i in moving for i in inputs])
        raise NotConjugate(f"{op} has no rule for squares")


def _of_numbers(operation: Any, squares: Sequence[Any], moves: Sequence[bool]) -> Any:
    """Square of an elementwise operation, given the squares of its operands."""
    match operation:
        case scalar.Add() | scalar.Sub():
            return pt.add(*squares)
        case scalar.Mul():
            return pt.mul(*squares)
        case scalar.TrueDiv() if not moves[1]:
            return squares[0] / squares[1]
        case scalar.Maximum() if sum(moves) == 1:
            return pt.maximum(*squares)
        case scalar.Clip() if not any(moves[1:]):
            return _bent(squares[0], pt.minimum(squares[0], pt.maximum(*squares[1:])))
    [square, *others] = squares
    if not others and isinstance(operation, SIGNS):
        return square
    if not others and type(operation) in BENT:
        return _bent(square, BENT[type(operation)](square))
    raise NotConjugate(f"{operation} has no rule for squares")


def _of_pieces(squares: Sequence[Any]) -> Any:
    """The largest square of the pieces of a function, with the slopes of all of them."""
    return _bent(pt.add(*squares), pt.maximum(*squares))


def _bent(square: Any, largest: Any) -> Any:
    """A largest square that has the slope of another one."""
    return square + disconnected_grad(largest - square)
