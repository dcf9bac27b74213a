"""Draws from a Cholesky factor of a precision matrix."""

from typing import Literal

from pytensor.tensor.linalg import solve_triangular
from pytensor.tensor.variable import TensorVariable


def draw_from_factor(
    factor: TensorVariable,
    linear: TensorVariable,
    noise: TensorVariable,
    b_ndim: Literal[1, 2] | None = None,
) -> TensorVariable:
    """``P^{-1} h + L^{-T} noise``, a draw from ``N(P^{-1} h, P^{-1})``.

    Parameters
    ----------
    factor : TensorVariable, shape (..., d, d)
        The Cholesky factor L of P, lower triangular.
    linear, noise : TensorVariable, shape (..., d) or (..., d, n)
        ``h``, in columns where there are several, and standard normals.
    b_ndim : 1 or 2, optional
        Number of last axes that belong to one system. The default is two where there are two.
    """
    half = solve_triangular(factor, linear, lower=True, b_ndim=b_ndim) + noise
    block: TensorVariable = solve_triangular(factor.mT, half, lower=False, b_ndim=b_ndim)
    return block
