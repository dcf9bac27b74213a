r"""Numbers that sum to zero, by one coordinate less than there are numbers.

The columns of

.. math::

    Q = \begin{pmatrix} I - a\, 1 1^T \\ -b\, 1^T \end{pmatrix}, \qquad
    b = n^{-1/2}, \quad a = (n + n^{1/2})^{-1},

are an orthonormal basis of the vectors of n entries that sum to zero. So independent
:math:`N(0, s^2)`, given that their sum is zero, are :math:`Q u` with n - 1 independent
:math:`u_i \sim N(0, s^2)`.
"""

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.linear_terms import Length


def coordinates(array: TensorVariable, axis: int, n: Length) -> TensorVariable:
    """``Q^T`` times an array of n entries along an axis."""
    before = (slice(None),) * axis
    first, last = array[(*before, slice(None, -1))], pt.expand_dims(array[(*before, -1)], axis)
    a, b = _numbers(n, array.dtype)
    return first - (a * first.sum(axis, keepdims=True) + b * last)


def entries(array: TensorVariable, axis: int, n: Length) -> TensorVariable:
    """``Q`` times an array of n - 1 coordinates along an axis."""
    total = array.sum(axis, keepdims=True)
    a, b = _numbers(n, array.dtype)
    return pt.concatenate([array - a * total, -b * total], axis=axis)


def _numbers(n: Length, dtype: str) -> tuple[TensorVariable, TensorVariable]:
    """``a`` and ``b``."""
    number = pt.as_tensor(n).astype(dtype)
    root = pt.sqrt(number)
    return pt.reciprocal(number + root), pt.reciprocal(root)
