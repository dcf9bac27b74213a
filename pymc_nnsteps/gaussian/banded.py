"""A large block of which each row sees a part, as in a convolution: the factor is a band.

Entries are ordered such that those which a row sees lie close to each other
(:func:`pymc_nnsteps.kernels.bands.draw_banded`).
"""

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_nnsteps.gaussian.block import Block, Drawn
from pymc_nnsteps.gaussian.lost_digits import unless_lost
from pymc_nnsteps.graphs.arrays import expand, flatten
from pymc_nnsteps.graphs.search import draws_at_random
from pymc_nnsteps.kernels.ops import draw_banded

LEAST = 256
"""Least number of entries for which a band is factorised faster than the whole matrix."""


def applies(block: Block) -> bool:
    """Where the only child sees a large block of several axes by random coefficients.

    Blocks with fixed coefficients are factorised once per chain.
    """
    seen = block.only
    if seen is None or len(block.dense) < 2 or block.sizes.entries < LEAST:
        return False
    return block.many_labels and any(map(draws_at_random, ancestors([seen.design])))


def draw(rng: Variable, block: Block) -> Drawn:
    """Draw all labels by one band factor."""
    [seen], prior = block.evidence, block.prior
    n = prior.n_label_axes
    rng, noise = prior.noise(rng)
    design = seen.whole_design.dimshuffle(n, n + 1)
    cases, precision, factor = draw_banded(
        design,
        expand(seen.weight.dimshuffle(n), {0: design.shape[0]}),
        prior.cases(seen.response),
        prior.shared_precision(),
        prior.cases_or_one(prior.center),
        pt.stack([pt.as_tensor(length, dtype="int64") for length in block.dense]),
        flatten(noise, 0, n),
    )
    drawn = prior.block(cases)
    return rng, unless_lost(drawn, precision, factor, prior, block.evidence, noise)
