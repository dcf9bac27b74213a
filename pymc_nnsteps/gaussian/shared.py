r"""A block whose labels share one precision matrix: one factorisation serves all.

With :math:`P = L L^T`, :math:`v = L^{-T} (L^{-1} h + \xi)` at each label.
"""

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky, solve_triangular

from pymc_nnsteps.gaussian.block import Block, Drawn
from pymc_nnsteps.gaussian.factor import draw_from_factor
from pymc_nnsteps.gaussian.lost_digits import unless_lost
from pymc_nnsteps.graphs.arrays import flatten, matmul_last


def applies(block: Block) -> bool:
    """Where neither the prior nor the information varies with the label."""
    return block.shares_precision


def draw(rng: Variable, block: Block) -> Drawn:
    """Draw all labels; where these are many, by products with the inverse factor."""
    prior, total = block.prior, block.total
    assert total is not None
    n = prior.n_label_axes
    information = total.information.dimshuffle(n, n + 1)
    diagonal = pt.eye(prior.shape[-1], dtype=information.dtype) * prior.shared_precision()
    precision = information + diagonal
    factor = cholesky(precision, lower=True)
    linear = prior.linear(total.linear)
    rng, noise = prior.noise(rng)
    if block.many_labels:
        inverse = solve_triangular(factor, pt.eye(factor.shape[0], dtype=factor.dtype), lower=True)
        half = matmul_last(linear, inverse.T) + noise
        drawn = matmul_last(half, inverse)
    else:
        cases = draw_from_factor(factor, prior.cases(linear).T, flatten(noise, 0, n).T).T
        drawn = prior.block(cases)
    return rng, unless_lost(drawn, precision, factor, prior, block.evidence, noise)
