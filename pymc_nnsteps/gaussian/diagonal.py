r"""A block whose entries are independent: a diagonal precision.

.. math:: v_i = h_i / P_{ii} + \xi_i / \sqrt{P_{ii}}
"""

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_nnsteps.gaussian.block import Block, Drawn


def applies(block: Block) -> bool:
    """Where no child sums over entries, or there are no children."""
    return block.independent or not block.has_children


def draw(rng: Variable, block: Block) -> Drawn:
    """Draw each entry by itself."""
    prior, total = block.prior, block.total
    precision = prior.precision if total is None else prior.precision + total.information
    linear = prior.linear(None if total is None else total.linear)
    rng, noise = prior.noise(rng)
    return rng, linear / precision + noise / pt.sqrt(precision)
