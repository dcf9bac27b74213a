"""A block with a precision matrix at each label: a stack of factorisations."""

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky

from pymc_nnsteps.gaussian.block import Block, Drawn
from pymc_nnsteps.gaussian.factor import draw_from_factor
from pymc_nnsteps.gaussian.lost_digits import unless_lost


def applies(block: Block) -> bool:
    """Where there are children."""
    return block.has_children


def draw(rng: Variable, block: Block) -> Drawn:
    """Factorise all labels' matrices at once."""
    prior, total = block.prior, block.total
    assert total is not None
    unit = pt.eye(prior.precision.shape[-1], dtype=prior.precision.dtype)
    precision = prior.with_every_label(prior.precision[..., None] * unit + total.information)
    factor = cholesky(precision, lower=True)
    linear = prior.with_every_label(prior.linear(total.linear))
    rng, noise = prior.noise(rng)
    drawn = draw_from_factor(factor, linear, noise, b_ndim=1)
    return rng, unless_lost(drawn, precision, factor, prior, block.evidence, noise)
