r"""Gaussian entries given that some of them sum to zero.

For a draw :math:`x \sim N(m, P^{-1})` and a matrix C whose columns are zeros and ones,

.. math:: x - P^{-1} C \, (C^T P^{-1} C)^{-1} C^T x

has the law of :math:`x` given :math:`C^T x = 0` (conditioning by kriging; Rue and Held,
*Gaussian Markov Random Fields*, 2005, section 2.3.3).
"""

from functools import reduce
from operator import add

import pytensor.tensor as pt
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.factor import draw_from_factor
from pymc_nnsteps.gaussian.layout import Member
from pymc_nnsteps.graphs.arrays import expand, flatten

Entries = tuple[TensorVariable, ...]
"""A vector as arrays of any shapes."""


def given_zero_sums(drawn: Entries, sums: Entries, responses: Entries) -> Entries:
    """Make a draw one of the law given that sums are zero.

    Parameters
    ----------
    drawn : tuple of TensorVariable
        Draw from ``N(m, P^{-1})``.
    sums : tuple of TensorVariable
        ``C``, with the sums in a last axis.
    responses : tuple of TensorVariable
        ``P^{-1} C``.
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
