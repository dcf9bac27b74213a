"""A block whose labels share a design and weigh its rows each in its own way.

A product over all labels at once would hold an array (labels, d, d). The kernel holds one label's
matrix at a time (:func:`pymc_nnsteps.kernels.labels.draw_labels`).
"""

from functools import reduce
from operator import add

from pytensor.graph.basic import Variable

from pymc_nnsteps.gaussian.block import Block, Drawn
from pymc_nnsteps.graphs.arrays import flatten
from pymc_nnsteps.kernels.ops import draw_labels


def applies(block: Block) -> bool:
    """Where all children see the block through designs that do not vary with the label."""
    return any(seen.weighted_by_label for seen in block.evidence) and block.rows is not None


def draw(rng: Variable, block: Block) -> Drawn:
    """Draw label by label."""
    prior, rows = block.prior, block.rows
    assert rows is not None
    rng, noise = prior.noise(rng)
    cases = draw_labels(
        rows.design,
        *block.by_case(rows),
        prior.cases(prior.linear(reduce(add, (seen.linear() for seen in block.evidence)))),
        prior.cases(prior.precision),
        prior.cases(prior.center),
        flatten(noise, 0, prior.n_label_axes),
    )
    return rng, prior.block(cases)
