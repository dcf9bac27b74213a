"""An array that rewrites of a graph do not look into.

PyTensor takes sums of sums apart: ``start + change`` with ``start = mean + noise``, which something
else is told as well, becomes ``mean + noise + change``. Three large arrays are held at once then,
and a fourth is made. Behind a barrier ``start`` is one array, and the sum takes its place.
"""

from collections.abc import Sequence
from typing import Any, override

from pytensor.compile.ops import TypeCastingOp
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.variable import TensorVariable


class Barrier(TypeCastingOp):
    """The array itself, with these lengths of axes, as far as they are known.

    Parameters
    ----------
    shape : tuple of int or None
    """

    __props__ = ("shape",)

    def __init__(self, shape: tuple[int | None, ...]) -> None:
        self.shape = shape

    @override
    def make_node(self, *inputs: Variable) -> Apply:
        [array] = inputs
        return Apply(self, [array], [array.type.clone(shape=self.shape)()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        """Lengths of the axes."""
        return shapes


def plus(array: TensorVariable, change: TensorVariable) -> TensorVariable:
    """``array + change`` in the shape of ``array``, and in its memory if nothing else needs it."""
    known = zip(array.type.shape, (array + change).type.shape, strict=True)
    shape = tuple(total if own is None else own for own, total in known)
    moved: TensorVariable = Barrier(shape)(array) + change
    return moved
