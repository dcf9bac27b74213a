"""Draws of a Gaussian block from its prior and its children's evidence, in seven forms.

All forms have the same law, ``N(P^{-1} h, P^{-1})`` at each label (:mod:`.gaussian`). Sizes, and
the arrays that labels share, decide which form is cheapest.

Where columns of a design are almost collinear, P loses digits to cancellation. The pivots of its
Cholesky factor show the loss. The block is then drawn again from the same noise by a factorisation
of the design itself (:func:`.kernels.reflections.redraw_labels`).
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

from pymc_nnsteps.conditionals.blocks import BlockPrior, Evidence, Rows
from pymc_nnsteps.conditionals.windows import Windows
from pymc_nnsteps.graphs.arrays import expand, flatten, matmul_last, varies
from pymc_nnsteps.graphs.linear_terms import Length
from pymc_nnsteps.kernels.barrier import plus
from pymc_nnsteps.kernels.ops import (
    UnlessLost,
    draw_banded,
    draw_labels,
    draw_windows,
    redraw_labels,
    refuse_lost,
)
from pymc_nnsteps.random.standard_normal import standard_normal

Drawn = tuple[Variable, TensorVariable]


@dataclass(frozen=True)
class Total:
    """Precision and linear part that children add to a block.

    The information has axes (labels, d, d), or (labels, d) for a block whose entries are
    independent; the linear part has axes (labels, d). Totals of other rows can be added.
    """

    information: TensorVariable
    linear: TensorVariable

    @property
    def shared(self) -> bool:
        """Whether the information matrix does not vary with the label."""
        return not varies(self.information, range(self.linear.ndim - 1))


def total_of(evidence: Sequence[Evidence], *, elementwise: bool) -> Total:
    """Sum the likelihoods of one or more children of a block.

    Parameters
    ----------
    evidence : sequence of Evidence
    elementwise : bool
        Whether the block's entries are independent.
    """
    return Total(
        reduce(
            add,
            (
                seen.information_diagonal() if elementwise else seen.information()
                for seen in evidence
            ),
        ),
        reduce(add, (seen.linear() for seen in evidence)),
    )


def draw_elementwise(rng: Variable, prior: BlockPrior, total: Total | None) -> Drawn:
    """Draw a block whose entries are independent (d = 1), from its prior without children."""
    precision = prior.precision if total is None else prior.precision + total.information
    linear = linear_of(prior, None if total is None else total.linear)
    rng, noise = _noise(rng, prior)
    return rng, linear / precision + noise / pt.sqrt(precision)


def draw_shared(
    rng: Variable,
    prior: BlockPrior,
    total: Total,
    evidence: Sequence[Evidence],
    many_labels: bool,
) -> Drawn:
    """Draw a block whose labels share one precision matrix, with one factorisation.

    With many labels, the inverse factor is formed once and applied by matrix products.
    """
    n = len(prior.label_lengths)
    information = total.information.dimshuffle(n, n + 1)
    diagonal = pt.eye(prior.shape[-1], dtype=information.dtype) * prior.shared_precision()
    precision = information + diagonal
    factor = cholesky(precision, lower=True)
    linear = linear_of(prior, total.linear)
    rng, noise = _noise(rng, prior)
    if many_labels:
        inverse = solve_triangular(factor, pt.eye(factor.shape[0], dtype=factor.dtype), lower=True)
        half = matmul_last(linear, inverse.T) + noise
        block = matmul_last(half, inverse)
    else:
        columns = flatten(_expand_labels(linear, prior), 0, n).T
        block = draw_from_factor(factor, columns, flatten(noise, 0, n).T).T
        block = block.reshape(prior.shape) if n != 1 else block
    return rng, _unless_lost(block, precision, factor, prior, evidence, noise)


def draw_batched(
    rng: Variable, prior: BlockPrior, total: Total, evidence: Sequence[Evidence]
) -> Drawn:
    """Draw a block with a precision matrix per label."""
    diagonal = prior.precision[..., None] * pt.eye(
        prior.precision.shape[-1], dtype=prior.precision.dtype
    )
    lengths = dict(enumerate(prior.label_lengths))
    full = expand(diagonal + total.information, lengths)
    factor = cholesky(full, lower=True)
    linear = _expand_labels(linear_of(prior, total.linear), prior)
    rng, noise = _noise(rng, prior)
    block = draw_from_factor(factor, linear, noise, b_ndim=1)
    return rng, _unless_lost(block, full, factor, prior, evidence, noise)


def draw_by_label(
    rng: Variable, prior: BlockPrior, evidence: Sequence[Evidence], rows: Rows
) -> Drawn:
    """Draw a block whose labels share the designs, with weights of rows per label."""
    n = len(prior.label_lengths)
    rng, noise = _noise(rng, prior)
    every_row = {n: rows.design.shape[0]}
    arrays = (
        expand(_expand_labels(rows.weight, prior), every_row),
        expand(_expand_labels(rows.score, prior), every_row),
        _expand_labels(linear_of(prior, reduce(add, (seen.linear() for seen in evidence))), prior),
        _expand_labels(prior.precision, prior),
        _expand_labels(_mean(prior), prior),
        noise,
    )
    block = draw_labels(rows.design, *(flatten(array, 0, n) for array in arrays))
    return rng, block if n == 1 else block.reshape(prior.shape)


def draw_by_windows(rng: Variable, prior: BlockPrior, seen: Evidence, windows: Windows) -> Drawn:
    """Draw a block whose observations see no common entries, in time linear in its size."""
    n = len(prior.label_lengths)
    rng, noise = _noise(rng, prior)
    block = draw_windows(
        pt.constant(windows.index),
        pt.constant(windows.coefficient),
        pt.reciprocal(prior.shared_precision()),
        pt.broadcast_to(pt.reciprocal(seen.weight.dimshuffle(n)), seen.response.shape[n:]),
        flatten(_expand_labels(_mean(prior), prior), 0, n),
        flatten(_expand_labels(seen.response, prior), 0, n),
        flatten(noise, 0, n),
    )
    return rng, block if n == 1 else block.reshape(prior.shape)


def draw_by_band(
    rng: Variable, prior: BlockPrior, seen: Evidence, lengths: Sequence[Length]
) -> Drawn:
    """Draw a block whose observations each see a part, as in a convolution, by a band factor.

    ``lengths`` are the lengths of the block's dense axes.
    """
    n = len(prior.label_lengths)
    rng, noise = _noise(rng, prior)
    design = seen.whole_design.dimshuffle(n, n + 1)
    block, precision, factor = draw_banded(
        design,
        expand(seen.weight.dimshuffle(n), {0: design.shape[0]}),
        flatten(_expand_labels(seen.response, prior), 0, n),
        prior.shared_precision(),
        _in_one_axis(_mean(prior), prior),
        pt.stack([pt.as_tensor(length, dtype="int64") for length in lengths]),
        flatten(noise, 0, n),
    )
    block = block if n == 1 else block.reshape(prior.shape)
    return rng, _unless_lost(block, precision, factor, prior, [seen], noise)


def draw_by_observations(rng: Variable, prior: BlockPrior, seen: Evidence) -> Drawn:
    r"""Draw a block with fewer observations than entries per label, by Matheron's rule.

    ``v = v0 + A (y - C v0 - e)`` with ``v0`` from the prior, ``e`` from the noise and the gain
    ``A = S C^T (C S C^T + 1/w)^{-1}``, where ``S`` is the prior's diagonal covariance.
    """
    n = len(prior.label_lengths)
    variance = pt.reciprocal(prior.shared_precision())
    design, weight = seen.whole_design.dimshuffle(n, n + 1), seen.weight.dimshuffle(n)
    rng, noise = _noise(rng, prior)
    start = noise * pt.sqrt(variance)
    if prior.mean is not None:
        start = start + prior.mean
    size = (*prior.label_lengths, design.shape[0])
    rng, error = standard_normal(rng, size, noise.dtype)
    surprise = seen.response - matmul_last(start, design.T) - error / pt.sqrt(weight)
    scaled = design * variance
    if design.type.broadcastable[0]:
        total = (scaled * design).sum() + pt.reciprocal(weight[0])
        return rng, plus(start, surprise * (scaled[0] / total))
    noise_covariance = pt.eye(design.shape[0], dtype=design.dtype) * pt.reciprocal(weight)
    covariance = pt.dot(scaled, design.T) + noise_covariance
    factor = cholesky(covariance, lower=True)
    half = solve_triangular(factor, scaled, lower=True)
    gain = solve_triangular(factor.T, half, lower=False)
    block = plus(start, matmul_last(surprise, gain))
    return rng, _unless_lost(block, covariance, factor, prior, [seen], noise)


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


def _unless_lost(
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
    redrawn = redraw_labels(
        flatten(block, 0, n),
        *(flatten(array, 0, 0 if shared else n) for array in (matrix, factor)),
        *_cases(evidence, prior),
        _in_one_axis(prior.precision, prior),
        _in_one_axis(_mean(prior), prior),
        flatten(noise, 0, n),
    )
    given: list[Variable] = [block, matrix, factor, prior.precision, noise]
    given += [] if prior.mean is None else [prior.mean]
    for seen in evidence:
        given += [seen.design] if seen.shared_design is None else seen.parts
        given += [seen.response, seen.weight]
        given += [] if seen.factor is None else [seen.factor]
        given += [picked[0] for picked in seen.index if picked is not None]
    inputs = [array for array in dict.fromkeys(given) if not isinstance(array, Constant)]
    shaped = redrawn if n == 1 else redrawn.reshape(block.shape)
    unless_lost: Any = UnlessLost(inputs, [pt.specify_shape(shaped, block.type.shape)])
    drawn: TensorVariable = unless_lost(*inputs)
    return drawn


def _cases(evidence: Sequence[Evidence], prior: BlockPrior) -> list[TensorVariable]:
    """Design, weight, gain, response and index of :func:`.kernels.reflections.redraw_labels`."""
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


def _mean(prior: BlockPrior) -> TensorVariable:
    return pt.zeros_like(prior.precision) if prior.mean is None else prior.mean


def linear_of(prior: BlockPrior, said: TensorVariable | None) -> TensorVariable:
    """``h``, with axes (labels, d), from the linear part of the children."""
    if prior.mean is None:
        return pt.zeros_like(prior.precision) if said is None else said
    own = prior.precision * prior.mean
    return own if said is None else said + own


def _noise(rng: Variable, prior: BlockPrior) -> Drawn:
    return standard_normal(rng, prior.shape, prior.precision.dtype)


def _in_one_axis(array: TensorVariable, prior: BlockPrior) -> TensorVariable:
    """Array (labels, d) with its labels in one axis, of length one if all labels share it."""
    n = len(prior.label_lengths)
    spread = n > 1 and varies(array, range(n))
    return flatten(_expand_labels(array, prior) if spread else array, 0, n)


def _expand_labels(array: TensorVariable, prior: BlockPrior) -> TensorVariable:
    return expand(array, dict(enumerate(prior.label_lengths)))
