"""An expression of other inputs, and the axis of their rows in it, established from its graph.

An abstract interpretation: the axes of the rows (:mod:`.row_axes`) are followed from the inputs
to the output, operation by operation.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import BinaryBitOp, Cast, UnaryBitOp
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.type import float_dtypes, integer_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.row_axes import MixesRows, RowAxis, Rows, row_axis_of

RowAxisOf = Callable[[Op, Apply, Sequence[RowAxis]], RowAxis]
"""Function of an operation, its node and the places in the node's inputs."""

BIT_BY_BIT = (BinaryBitOp, UnaryBitOp)


def follow_rows(
    output: Variable,
    known: Mapping[Variable, tuple[Variable, RowAxis]],
    instead: Callable[[Variable], Variable | None] = lambda _: None,
    row_axis_of: RowAxisOf = row_axis_of,
) -> tuple[Any, RowAxis]:
    """Rebuild an expression for other inputs and find the axis of their rows in it.

    ``known`` states what stands for a variable, and where its rows are; :func:`instead` may give
    others.
    """
    done = dict(known)
    passed_on: dict[Variable, Variable | None] = {}
    pending = [output]
    while pending:
        variable = pending[-1]
        if variable in done:
            pending.pop()
            continue
        if variable not in passed_on:
            other = instead(variable)
            passed_on[variable] = _inner(variable) if other is None else other
        other = passed_on[variable]
        operands = getattr(variable.owner, "inputs", []) if other is None else [other]
        missing = [operand for operand in operands if operand not in done]
        if missing:
            pending.extend(missing)
        elif other is not None:
            done[variable] = done[other]
        else:
            of_operands = [done[operand] for operand in operands]
            done.update(_applied(variable, of_operands, row_axis_of))
    return done[output]


def require_aligned(parameter: TensorVariable, place: RowAxis, n_axes: int) -> None:
    """Check that a parameter has rows along the first of ``n_axes`` axes, or none."""
    if place is None:
        if parameter.ndim == n_axes and n_axes and not parameter.type.broadcastable[0]:
            lacking = parameter, Rows(0)
            raise MixesRows(f"{describe(parameter)} has fixed entries along the rows", lacking)
    elif place != Rows(0) or parameter.ndim != n_axes:
        raise MixesRows(f"{describe(parameter)} has rows along another axis than the first")


def _inner(variable: Variable) -> Variable | None:
    """The graph that a symbolic operation stands for."""
    node = variable.owner
    if node is None or not isinstance(node.op, OpFromGraph):
        return None
    return inline_ofg_node(node)[node.outputs.index(variable)]


def _applied(
    variable: Variable, operands: Sequence[tuple[Variable, RowAxis]], row_axis_of: RowAxisOf
) -> dict[Variable, tuple[Variable, RowAxis]]:
    """Outputs of the node that made ``variable``, with other operands."""
    node = variable.owner
    if node is None:
        return {variable: (variable, None)}
    places = [place for _, place in operands]
    is_random = isinstance(node.op, RandomVariable)
    if not is_random and all(place is None for place in places):
        same = all(new is old for (new, _), old in zip(operands, node.inputs, strict=True))
        made = node if same else node.clone_with_new_inputs([new for new, _ in operands], False)
        place = None
    elif _keeps_integers(node) and _is_float(operands[0][0]):
        return {variable: operands[0]}
    else:
        try:
            made = node.op.make_node(*_of_integers(node, [new for new, _ in operands]))
            place = row_axis_of(node.op, made, places)
        except MixesRows as reason:
            if is_random:
                raise MixesRows(f"{describe(variable)} {reason}") from None
            of = " and ".join(
                describe(old) for old, place in zip(node.inputs, places, strict=True) if place
            )
            name = f"{variable.name}: " if variable.name else ""
            op = getattr(node.op, "core_op", node.op)
            operation = type(op.scalar_op if isinstance(op, Elemwise) else op)
            found = f"{name}{operation.__name__} of {of} {reason}"
            raise MixesRows(found, reason.lacking) from None
    return {old: (new, place) for old, new in zip(node.outputs, made.outputs, strict=True)}


def _keeps_integers(node: Apply) -> bool:
    """Whether a node makes integers of integers or booleans, as they are."""
    return (
        isinstance(node.op, Elemwise)
        and isinstance(node.op.scalar_op, Cast)
        and node.inputs[0].type.dtype in (*integer_dtypes, "bool")
        and node.outputs[0].type.dtype in integer_dtypes
    )


def _is_float(variable: Any) -> bool:
    """Whether a variable is of floats; slices and None among indices have no dtype."""
    return getattr(variable.type, "dtype", None) in float_dtypes


def _of_integers(node: Apply, operands: Sequence[Variable]) -> list[Variable]:
    """Operands of a node, integers again where nothing else will do."""
    floats = [
        _is_float(new) and not _is_float(old)
        for old, new in zip(node.inputs, operands, strict=True)
    ]
    op = node.op
    if any(floats) and isinstance(op, Elemwise) and isinstance(op.scalar_op, BIT_BY_BIT):
        raise MixesRows("needs integers, but new rows are not")
    if not isinstance(op, AdvancedSubtensor):
        return list(operands)
    return [
        pt.cast(new, old.type.dtype) if is_float else new
        for old, new, is_float in zip(node.inputs, operands, floats, strict=True)
    ]
