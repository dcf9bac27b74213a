"""Where a network ends and the link to the parameters of a response begins.

An output is an expression that is linear at its top, with an entry or several for each row, and
everything that lies between the outputs and the parameters keeps the rows apart.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar import basic as scalar
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.search import dependents

LINEAR = (scalar.Add, scalar.Mul, scalar.Sub, scalar.TrueDiv)


def network_outputs(
    expressions: Sequence[Variable],
    weights: Collection[TensorVariable],
    barriers: Collection[TensorVariable],
    require_readable: Callable[[Any], object],
) -> list[TensorVariable]:
    """Outputs of the network through which weights enter expressions, the parameters of a response.

    ``require_readable`` raises :class:`.NotConjugate` for an expression of weights that is none.
    """
    reader = _OutputReader(weights, barriers, require_readable)
    return list(dict.fromkeys(u for each in expressions for u in reader.outputs(each)))


class _OutputReader:
    def __init__(
        self,
        weights: Collection[TensorVariable],
        barriers: Collection[TensorVariable],
        require_readable: Callable[[Any], object],
    ) -> None:
        self._weights = weights
        self._barriers = barriers
        self._require_readable = require_readable
        self._found: dict[Any, list[Any]] = {}

    def outputs(self, expression: Any) -> list[Any]:
        moving = dependents(expression, self._weights, self._barriers)
        return self._outputs(expression, moving)

    def _outputs(self, expression: Any, moving: Collection[Variable]) -> list[Any]:
        if expression not in moving:
            return []
        if expression not in self._found:
            self._found[expression] = (
                [expression]
                if expression in self._weights
                else self._below(expression, expression.owner, moving)
            )
        return self._found[expression]

    def _below(self, expression: Any, node: Apply, moving: Collection[Variable]) -> list[Any]:
        """Outputs of what an expression is computed from, or the expression itself."""
        if not _keeps_rows(node):
            self._require_readable(expression)
            return [expression]
        below = list(dict.fromkeys(u for i in node.inputs for u in self._outputs(i, moving)))
        if len(below) == 1 and not self._is_output_of(node, below[0]):
            return below
        with suppress(NotConjugate):
            self._require_readable(expression)
            return [expression]
        if isinstance(node.op, Subtensor):
            self._require_readable(expression)
        return below

    def _is_output_of(self, node: Apply, below: TensorVariable) -> bool:
        """Whether a part of an output, or what is linear in a weight, is an output itself."""
        operand: Any = node.inputs[0]
        result: Any = node.outputs[0]
        is_part = below is operand and result.ndim < below.ndim
        if isinstance(node.op, Subtensor) and _slices(node):
            return is_part or below.ndim == operand.ndim
        if isinstance(node.op, Subtensor | DimShuffle):
            return is_part
        linear = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, LINEAR)
        return below in self._weights and linear


def _keeps_rows(node: Apply) -> bool:
    """Whether each row of a result depends on the same row of its operands alone."""
    match node.op:
        case Elemwise() | ViewOp() | SpecifyShape() | RandomVariable() | SymbolicRandomVariable():
            return True
        case DimShuffle(shuffle=kept):
            return list(kept) == sorted(kept)
        case Softmax() | LogSoftmax():
            return node.op.axis is not None and 0 not in node.op.axis
        case Sum(axis=axes):
            return axes is not None and 0 not in axes
        case Join(axis=axis):
            return axis != 0
        case Subtensor(idx_list=[rows, *_]):
            return rows == slice(None)
    return False


def _slices(node: Apply) -> bool:
    """Whether some columns are taken and others left out, and not a single one."""
    return any(isinstance(each, slice) and each != slice(None) for each in node.op.idx_list[1:])
