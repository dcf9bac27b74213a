r"""A block with fewer rows than entries: the rows are factorised (Matheron's rule).

With :math:`v_0` from the prior, :math:`e` from the noise and the prior's diagonal covariance S,

.. math::

    v = v_0 + A (y - C v_0 - e), \qquad A = S C^T (C S C^T + w^{-1})^{-1}.

A single row needs no factorisation.
"""

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky, solve_triangular

from pymc_nnsteps.gaussian.block import Block, Drawn
from pymc_nnsteps.gaussian.lost_digits import unless_lost
from pymc_nnsteps.graphs.arrays import matmul_last
from pymc_nnsteps.kernels.barrier import plus
from pymc_nnsteps.random.standard_normal import standard_normal


def applies(block: Block) -> bool:
    """Where the only child has fewer rows than the block has entries."""
    return block.few_rows


def draw(rng: Variable, block: Block) -> Drawn:
    """Draw from the prior, and correct by what the rows do not agree with."""
    [seen], prior = block.evidence, block.prior
    n = prior.n_label_axes
    variance = pt.reciprocal(prior.shared_precision())
    design, weight = seen.whole_design.dimshuffle(n, n + 1), seen.weight.dimshuffle(n)
    rng, noise = prior.noise(rng)
    start = noise * pt.sqrt(variance)
    if prior.mean is not None:
        start = start + prior.mean
    size = (*prior.label_lengths, design.shape[0])
    rng, error = standard_normal(rng, size, noise.dtype)
    surprise = seen.response - matmul_last(start, design.T) - error / pt.sqrt(weight)
    scaled = design * variance
    if design.type.broadcastable[0]:
        total = (scaled * design).sum() + pt.reciprocal(weight[0])
        return rng, plus(start, pt.specify_broadcastable(surprise, n) * (scaled[0] / total))
    noise_covariance = pt.eye(design.shape[0], dtype=design.dtype) * pt.reciprocal(weight)
    covariance = pt.dot(scaled, design.T) + noise_covariance
    factor = cholesky(covariance, lower=True)
    half = solve_triangular(factor, scaled, lower=True)
    gain = solve_triangular(factor.T, half, lower=False)
    drawn = plus(start, matmul_last(surprise, gain))
    return rng, unless_lost(drawn, covariance, factor, prior, block.evidence, noise)
