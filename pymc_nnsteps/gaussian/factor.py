"""Draws from a Cholesky factor of a precision matrix."""

from typing import Literal

from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.arrays import flatten
from pymc_nnsteps.kernels.ops import draw_precisions

SMALL = 128
"""Number of entries up to which the loop over labels is faster than LAPACK, called for each."""


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


def draw_by_label(
    precision: TensorVariable, linear: TensorVariable, noise: TensorVariable, entries: int
) -> tuple[TensorVariable, TensorVariable]:
    """Draws of :func:`draw_from_factor` with a precision matrix at each label.

    Parameters
    ----------
    precision : TensorVariable, shape (..., d, d)
    linear, noise : TensorVariable, shape (..., d)
    entries : int
        What d is about: a wrong one costs time, not exactness.

    Returns
    -------
    block : TensorVariable, shape (..., d)
    factor : TensorVariable, shape (..., d, d)
        A triangle, whose diagonal is that of L; NaN where there is none.
    """
    if entries > SMALL:
        factor = cholesky(precision, lower=True)
        return draw_from_factor(factor, linear, noise, b_ndim=1), factor
    n = linear.ndim - 1
    block, factor = draw_precisions(*(flatten(array, 0, n) for array in (precision, linear, noise)))
    if n == 1:
        return block, factor
    return block.reshape(linear.shape), factor.reshape(precision.shape)
