"""A block with a precision matrix at each label: a stack of factorisations."""

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_nnsteps.gaussian.block import Block, Drawn
from pymc_nnsteps.gaussian.factor import draw_by_label
from pymc_nnsteps.gaussian.lost_digits import unless_lost


def applies(block: Block) -> bool:
    """Where there are children."""
    return block.has_children


def draw(rng: Variable, block: Block) -> Drawn:
    """Factorise the matrix of each label."""
    prior, total = block.prior, block.total
    assert total is not None
    unit = pt.eye(prior.precision.shape[-1], dtype=prior.precision.dtype)
    precision = prior.with_every_label(prior.precision[..., None] * unit + total.information)
    linear = prior.with_every_label(prior.linear(total.linear))
    rng, noise = prior.noise(rng)
    drawn, factor = draw_by_label(precision, linear, noise, block.sizes.entries)
    return rng, unless_lost(drawn, precision, factor, prior, block.evidence, noise)
