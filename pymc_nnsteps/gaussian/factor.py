r"""Draws from a Cholesky factor of a precision matrix, also given that some entries sum to zero.

For a draw :math:`x \sim N(m, P^{-1})` and a matrix C whose columns are zeros and ones,

.. math:: x - P^{-1} C \, (C^T P^{-1} C)^{-1} C^T x

has the law of :math:`x` given :math:`C^T x = 0` (conditioning by kriging; Rue and Held,
*Gaussian Markov Random Fields*, 2005, section 2.3.3).
"""

from functools import reduce
from operator import add
from typing import Literal

import pytensor.tensor as pt
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.layout import Member
from pymc_nnsteps.graphs.linear_terms import expand, flatten
from pymc_nnsteps.kernels.ops import draw_precisions

SMALL = 128
"""Number of entries up to which the loop over labels is faster than LAPACK, called for each."""


def draw_from_factor(
    factor: TensorVariable,
    linear: TensorVariable,
    noise: TensorVariable,
    b_ndim: Literal[1, 2] | None = None,
) -> TensorVariable:
    """``P^{-1} h + L^{-T} noise``, a draw from ``N(P^{-1} h, P^{-1})``, for a factor L of P.

    The factor has axes (..., d, d), ``linear``, h, and noise (..., d) or, in columns, (..., d, n).
    ``b_ndim`` last axes belong to one system; by default two where there are two.
    """
    half = solve_triangular(factor, linear, lower=True, b_ndim=b_ndim) + noise
    block: TensorVariable = solve_triangular(factor.mT, half, lower=False, b_ndim=b_ndim)
    return block


def draw_by_label(
    precision: TensorVariable, linear: TensorVariable, noise: TensorVariable, entries: int
) -> tuple[TensorVariable, TensorVariable]:
    """Draws (..., d) of :func:`draw_from_factor` with a precision matrix (..., d, d) at each label.

    With them is a triangle whose diagonal is that of the factor; NaN where there is none.
    ``entries`` is what d is about: a wrong number costs time, not exactness.
    """
    if entries > SMALL:
        factor = cholesky(precision, lower=True)
        return draw_from_factor(factor, linear, noise, b_ndim=1), factor
    n = linear.ndim - 1
    block, factor = draw_precisions(*(flatten(array, 0, n) for array in (precision, linear, noise)))
    if n == 1:
        return block, factor
    return block.reshape(linear.shape), factor.reshape(precision.shape)


Entries = tuple[TensorVariable, ...]
"""A vector as arrays of any shapes."""


def given_zero_sums(drawn: Entries, sums: Entries, responses: Entries) -> Entries:
    """Make a draw from ``N(m, P^{-1})`` one given that ``sums``, C, are zero.

    The responses are ``P^{-1} C``; the sums are its last axis.
    """
    root = cholesky(_dot(sums, responses), lower=True)
    left = _dot(sums, drawn)
    share = draw_from_factor(root, left, pt.zeros_like(left))
    return tuple(
        each - pt.tensordot(along, share, 1) for each, along in zip(drawn, responses, strict=True)
    )


def sums_over(member: Member, axes: tuple[int, ...]) -> TensorVariable:
    """Which coordinates of a variable are summed over axes, with axes (labels, d, sums)."""
    lengths, order = member.lengths, (*member.labels, *member.dense)
    others = [axis for axis in order if axis not in axes]
    n_sums = reduce(lambda a, b: a * b, [lengths[axis] for axis in others], 1)
    one = pt.eye(n_sums, dtype=member.rv.dtype)
    if others:
        one = one.reshape((*(lengths[axis] for axis in others), n_sums))
    else:
        one = pt.specify_shape(one, (1, 1))[0]
    places = ["x" if axis in axes else others.index(axis) for axis in order]
    spread = {i: lengths[axis] for i, axis in enumerate(order) if axis in axes}
    full = expand(one.dimshuffle(*places, len(others)), spread)
    return flatten(full, len(member.labels), len(member.dense))


def _dot(first: Entries, second: Entries) -> TensorVariable:
    """Sums of products, over all axes but the last of the first."""
    products = []
    for a, b in zip(first, second, strict=True):
        axes = list(range(a.ndim - 1))
        products.append(pt.tensordot(a, b, [axes, axes]))
    return reduce(add, products)
