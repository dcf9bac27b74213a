r"""Draws from a Cholesky factor of a precision matrix, also given that some entries sum to zero.

For a draw :math:`x \sim N(m, P^{-1})` and a matrix C whose columns are zeros and ones,

.. math:: x - P^{-1} C \, (C^T P^{-1} C)^{-1} C^T x

has the law of :math:`x` given :math:`C^T x = 0` (conditioning by kriging; Rue and Held,
*Gaussian Markov Random Fields*, 2005, section 2.3.3).

Where columns of a design are almost collinear, P loses digits to cancellation, which the pivots of
its Cholesky factor show. The block is then drawn again from the same noise by a factorisation of
the design itself (:func:`pymc_nnsteps.gaussian.labels.redraw_labels`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Literal

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.linear_algebra import MOST_LOST
from pymc_nnsteps.compile.ops import UnlessLost, as_op, refuse_lost
from pymc_nnsteps.gaussian.labels import draw_precisions, redraw_labels
from pymc_nnsteps.gaussian.layout import BlockPrior, Member
from pymc_nnsteps.gaussian.observation import Evidence
from pymc_nnsteps.graphs.linear_terms import expand, flatten, varies

KNOWN = 2**16
"""Least pivot that is known well enough, in units of the rounding of what it is a difference of.

Draws are off by no more than some 1e-5 of a standard deviation.
"""

SMALL = 128
"""Number of entries up to which the loop over labels is faster than LAPACK, called for each."""


def draw_from_factor(
    factor: TensorVariable,
    linear: TensorVariable,
    noise: TensorVariable,
    b_ndim: Literal[1, 2] | None = None,
) -> TensorVariable:
    """``P^{-1} h + L^{-T} noise``, a draw from ``N(P^{-1} h, P^{-1})``, for a factor L of P.

    The factor is (..., d, d), h and noise (..., d) or, in columns, (..., d, n); the ``b_ndim`` last
    axes belong to one system.
    """
    half = solve_triangular(factor, linear, lower=True, b_ndim=b_ndim) + noise
    block: TensorVariable = solve_triangular(factor.mT, half, lower=False, b_ndim=b_ndim)
    return block


def draw_by_label(
    precision: TensorVariable, linear: TensorVariable, noise: TensorVariable, entries: int
) -> tuple[TensorVariable, TensorVariable]:
    """Draws (..., d) of :func:`draw_from_factor` with a matrix (..., d, d) at each label.

    With them is a triangle with the diagonal of the factor. ``entries`` is what d is about.
    """
    if entries > SMALL:
        factor = cholesky(precision, lower=True)
        return draw_from_factor(factor, linear, noise, b_ndim=1), factor
    n = linear.ndim - 1
    given = (flatten(array, 0, n) for array in (precision, linear, noise))
    block, factor = as_op(draw_precisions, 2, 3)(*given)
    if n == 1:
        return block, factor
    return block.reshape(linear.shape), factor.reshape(precision.shape)


Entries = tuple[TensorVariable, ...]
"""A vector as arrays of any shapes."""


def given_zero_sums(drawn: Entries, sums: Entries, responses: Entries) -> Entries:
    """Make a draw one given that ``sums``, C, are zero, by ``responses``, ``P^{-1} C``."""
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


@dataclass(frozen=True)
class LinearModel:
    """What is seen of one block: ``response = design block + noise`` with precision ``weight``."""

    design: TensorVariable  # shape (n, d)
    weight: TensorVariable  # shape (n,)
    response: TensorVariable  # shape (n,)
    given: tuple[Variable, ...]  # what the graphs of these are evaluated from


def unless_rounding(
    block: TensorVariable,
    diagonal: TensorVariable,
    factor: TensorVariable,
    prior: BlockPrior,
    rows: LinearModel,
    noise: TensorVariable,
) -> TensorVariable:
    """The block (d,), drawn again by its rows where a pivot of the factor is near rounding."""
    eps = np.finfo(factor.dtype).eps
    least = max(MOST_LOST, eps**0.5)  # part that pivots of a matrix have at least
    matrix = pt.diag(diagonal * np.asarray(min(KNOWN * eps / least, 1), diagonal.dtype))
    one, no_index = np.ones(1, rows.weight.dtype), pt.constant(np.empty(0, "int64"))
    arrays = [block, matrix, factor, rows.design, rows.weight, pt.constant(one), rows.response]
    last = [prior.precision, prior.center, noise]
    cases = [array[None] for array in arrays], [array[None] for array in last]
    redrawn = as_op(redraw_labels, 2)(*cases[0], no_index, *cases[1])[0]
    given: list[Variable] = [block, matrix, factor, prior.precision, noise, *rows.given]
    given += [] if prior.mean is None else [prior.mean]
    return _only_where_lost(redrawn, given)


def unless_lost(
    block: TensorVariable,
    matrix: TensorVariable,
    factor: TensorVariable,
    prior: BlockPrior,
    evidence: Sequence[Evidence],
    noise: TensorVariable,
) -> TensorVariable:
    """The block, drawn again from the same noise where the factor has lost digits.

    Without evidence, where only sums are known, a block whose digits are all lost is refused.
    """
    n = len(prior.label_lengths)
    if not evidence:
        roots = pt.diagonal(factor, axis1=-2, axis2=-1).flatten()
        kept = refuse_lost(
            pt.diagonal(matrix, axis1=-2, axis2=-1).flatten(), roots, flatten(block, 0, n)
        )
        return kept if n == 1 else kept.reshape(block.shape)
    shared = matrix.ndim == 2
    prior = replace(prior, label_lengths=tuple(noise.shape[axis] for axis in range(n)))
    redrawn = as_op(redraw_labels, 2)(
        flatten(block, 0, n),
        *(flatten(array, 0, 0 if shared else n) for array in (matrix, factor)),
        *_cases(evidence, prior),
        prior.cases_or_one(prior.precision),
        prior.cases_or_one(prior.center),
        flatten(noise, 0, n),
    )
    given: list[Variable] = [block, matrix, factor, prior.precision, noise]
    given += [] if prior.mean is None else [prior.mean]
    for seen in evidence:
        given += [seen.design] if seen.shared_design is None else seen.parts
        given += [seen.response, seen.weight]
        given += [] if seen.factor is None else [seen.factor]
        given += [picked[0] for picked in seen.index if picked is not None]
    return _only_where_lost(redrawn if n == 1 else redrawn.reshape(block.shape), given)


def _only_where_lost(redrawn: TensorVariable, given: Sequence[Variable]) -> TensorVariable:
    """A graph that is evaluated if the second and third of what it is given show a loss."""
    inputs = [array for array in dict.fromkeys(given) if not isinstance(array, Constant)]
    op: Any = UnlessLost(inputs, [pt.specify_shape(redrawn, given[0].type.shape)])
    drawn: TensorVariable = op(*inputs)
    return drawn


def _cases(evidence: Sequence[Evidence], prior: BlockPrior) -> list[TensorVariable]:
    """Design, weight, gain, response and index of :func:`.labels.redraw_labels`."""
    found = [_by_case(seen, prior) for seen in evidence]
    if len(found) == 1:
        [(arrays, index)] = found
        return [*arrays, pt.constant(np.empty(0, "int64")) if index is None else index]
    if all(index is None for _, index in found):
        n_cases = reduce(lambda a, b: a * b, prior.label_lengths, 1)
        joined = []
        for same in zip(*(_with_every_row(arrays) for arrays, _ in found), strict=True):
            spread = {0: n_cases} if any(varies(array, [0]) for array in same) else {}
            joined.append(pt.concatenate([expand(array, spread) for array in same], axis=1))
        return [*joined, pt.constant(np.empty(0, "int64"))]
    apart = [_row_by_row(arrays, index, prior) for arrays, index in found]
    return [pt.concatenate(same) for same in zip(*apart, strict=True)]


def _by_case(
    seen: Evidence, prior: BlockPrior
) -> tuple[list[TensorVariable], TensorVariable | None]:
    """Likelihood of a child with its labels in one axis, and the block's label of each."""
    n = seen.n_label_axes
    lengths = {
        axis: length if picked is None else picked[0].shape[0]
        for axis, (length, picked) in enumerate(zip(prior.label_lengths, seen.index, strict=True))
    }
    factor = pt.ones([1] * (n + 1), seen.weight.dtype) if seen.factor is None else seen.factor
    flat = [
        flatten(expand(array, lengths) if n > 1 and varies(array, range(n)) else array, 0, n)
        for array in (seen.design, seen.weight, factor, seen.response)
    ]
    if not seen.indexed:
        return flat, None
    index = pt.zeros([1] * n, "int64")
    for axis, picked in enumerate(seen.index):
        length = prior.label_lengths[axis]
        entries = pt.arange(length) if picked is None else pt.mod(picked[0], length)
        along = ["x"] * axis + [0] + ["x"] * (n - 1 - axis)
        index = index * length + entries.dimshuffle(along)
    return flat, index.flatten()


def _row_by_row(
    arrays: Sequence[TensorVariable], index: TensorVariable | None, prior: BlockPrior
) -> list[TensorVariable]:
    """Arrays of :func:`_by_case` with one row per case, and the label of each case."""
    labels = pt.arange(reduce(lambda a, b: a * b, prior.label_lengths, 1))
    index = labels if index is None else index
    full = [expand(array, {0: index.shape[0]}) for array in _with_every_row(arrays)]
    rows = [pt.expand_dims(flatten(array, 0, 2), 1) for array in full]
    return [*rows, pt.repeat(index, arrays[0].shape[1])]


def _with_every_row(arrays: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Design (cases, n, d) and arrays (cases, n), expanded to n rows."""
    return [expand(array, {1: arrays[0].shape[1]}) for array in arrays]
