"""Covariance matrices as PyMC keeps them: broadcast, and as inverses of precisions."""

from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.variable import TensorVariable


def unbatched(matrix: TensorVariable) -> TensorVariable:
    """Matrix without the leading axes of length one that broadcasting has added."""
    while (
        matrix.owner is not None
        and isinstance(matrix.owner.op, DimShuffle)
        and matrix.owner.op.is_left_expand_dims
        and matrix.ndim > 2
    ):
        matrix = matrix.owner.inputs[0]
    return matrix


def inverted(matrix: TensorVariable) -> TensorVariable | None:
    """Inverse of ``matrix``, if the graph computes ``matrix`` as an inverse."""
    op = None if matrix.owner is None else getattr(matrix.owner.op, "core_op", matrix.owner.op)
    return matrix.owner.inputs[0] if isinstance(op, MatrixInverse) else None
