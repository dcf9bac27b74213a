"""Draws of a Gaussian block from its prior and its children's evidence, in five forms.

Which form is cheapest depends on what the labels share and on the sizes; all have the same law,
``N(P^{-1} h, P^{-1})`` at each label (:mod:`.gaussian`).
"""

from collections.abc import Sequence
from functools import reduce

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.axes import expand, flatten, matmul_last
from pymc_nnsteps.conditionals.blocks import Evidence, Prior, Rows
from pymc_nnsteps.conditionals.gaussian_ops import draw_labels
from pymc_nnsteps.random.standard_normal import standard_normal

Drawn = tuple[Variable, TensorVariable]


def draw_elementwise(rng: Variable, prior: Prior, evidence: Sequence[Evidence]) -> Drawn:
    """Draw a block whose entries are independent (d = 1)."""
    precision = sum((seen.information_diagonal() for seen in evidence), prior.precision)
    linear = _linear(prior, evidence)
    rng, noise = _noise(rng, prior)
    return rng, linear / precision + noise / pt.sqrt(precision)


def draw_shared(
    rng: Variable, prior: Prior, evidence: Sequence[Evidence], many_labels: bool
) -> Drawn:
    """Draw a block whose labels share one precision matrix, with one factorisation.

    With many labels the inverse factor is formed once and applied by matrix products.
    """
    n = len(prior.label_lengths)
    information = sum(
        (seen.information().dimshuffle(n, n + 1) for seen in evidence[1:]),
        evidence[0].information().dimshuffle(n, n + 1),
    )
    diagonal = pt.eye(prior.shape[-1], dtype=information.dtype) * prior.shared_precision()
    factor = cholesky(information + diagonal, lower=True)
    linear = _linear(prior, evidence)
    rng, noise = _noise(rng, prior)
    if many_labels:
        inverse = solve_triangular(factor, pt.eye(factor.shape[0], dtype=factor.dtype), lower=True)
        half = matmul_last(linear, inverse.T) + noise
        return rng, matmul_last(half, inverse)
    columns = flatten(_expand_labels(linear, prior), 0, n).T
    half = solve_triangular(factor, columns, lower=True) + flatten(noise, 0, n).T
    block = solve_triangular(factor.T, half, lower=False).T
    return rng, block.reshape(prior.shape) if n != 1 else block


def draw_batched(rng: Variable, prior: Prior, evidence: Sequence[Evidence]) -> Drawn:
    """Draw a block with a precision matrix per label."""
    diagonal = prior.precision[..., None] * pt.eye(
        prior.precision.shape[-1], dtype=prior.precision.dtype
    )
    precision = sum((seen.information() for seen in evidence), diagonal)
    lengths = dict(enumerate(prior.label_lengths))
    factor = cholesky(expand(precision, lengths), lower=True)
    linear = _expand_labels(_linear(prior, evidence), prior)
    rng, noise = _noise(rng, prior)
    half = solve_triangular(factor, linear, lower=True, b_ndim=1) + noise
    return rng, solve_triangular(factor.mT, half, lower=False, b_ndim=1)


def draw_by_label(rng: Variable, prior: Prior, evidence: Sequence[Evidence], rows: Rows) -> Drawn:
    """Draw a block whose labels weigh the rows of shared designs each in its own way."""
    n = len(prior.label_lengths)
    rng, noise = _noise(rng, prior)
    every_row = {n: rows.design.shape[0]}
    arrays = (
        expand(_expand_labels(rows.weight, prior), every_row),
        _expand_labels(_linear(prior, evidence), prior),
        _expand_labels(prior.precision, prior),
        noise,
    )
    block = draw_labels(rows.design, *(flatten(array, 0, n) for array in arrays))
    return rng, block if n == 1 else block.reshape(prior.shape)


def draw_by_observations(rng: Variable, prior: Prior, seen: Evidence) -> Drawn:
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
        return rng, start + surprise * (scaled[0] / total)
    noise_covariance = pt.eye(design.shape[0], dtype=design.dtype) * pt.reciprocal(weight)
    covariance = pt.dot(scaled, design.T) + noise_covariance
    factor = cholesky(covariance, lower=True)
    half = solve_triangular(factor, scaled, lower=True)
    gain = solve_triangular(factor.T, half, lower=False)
    return rng, start + matmul_last(surprise, gain)


def _linear(prior: Prior, evidence: Sequence[Evidence]) -> TensorVariable:
    """``h``, with axes (labels, d)."""
    parts = [seen.linear() for seen in evidence]
    if prior.mean is not None:
        parts.append(prior.precision * prior.mean)
    if not parts:
        return pt.zeros_like(prior.precision)
    return reduce(lambda a, b: a + b, parts)


def _noise(rng: Variable, prior: Prior) -> Drawn:
    return standard_normal(rng, prior.shape, prior.precision.dtype)


def _expand_labels(array: TensorVariable, prior: Prior) -> TensorVariable:
    return expand(array, dict(enumerate(prior.label_lengths)))
