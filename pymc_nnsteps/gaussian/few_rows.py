"""A block whose labels share a design of few rows, and weigh these each in its own way.

Matrices of the rows are factorised, not those of the entries
(:func:`pymc_nnsteps.kernels.labels.draw_few_rows`).
"""

from pytensor.graph.basic import Variable

from pymc_nnsteps.gaussian.block import Block, Drawn
from pymc_nnsteps.gaussian.factor import SMALL
from pymc_nnsteps.graphs.arrays import flatten
from pymc_nnsteps.kernels.ops import draw_few_rows
from pymc_nnsteps.random.standard_normal import standard_normal


def applies(block: Block) -> bool:
    """Where labels, which children may see in part, do not share a precision matrix."""
    if block.shares_precision or block.rows_in_part is None:
        return False
    [n_rows, _] = block.rows_in_part.design.type.shape
    if n_rows is None:
        if any(seen.picked is not None for seen in block.evidence):
            return False
        n_rows = sum(block.sizes.rows)
    return _takes(block) * n_rows < block.sizes.entries


def _takes(block: Block) -> int:
    """What a row takes, in units of what an entry takes in the other forms.

    They factorise large matrices by LAPACK. Rows have a matrix per label if the prior varies.
    """
    if block.sizes.entries > SMALL:
        return 4
    return 1 if block.prior.shared else 2


def draw(rng: Variable, block: Block) -> Drawn:
    """Draw from the prior, and correct by what the rows do not agree with."""
    prior, rows, n = block.prior, block.rows_in_part, block.prior.n_label_axes
    assert rows is not None
    rng, noise = prior.noise(rng)
    rng, error = standard_normal(rng, (*prior.label_lengths, rows.design.shape[0]), noise.dtype)
    cases = draw_few_rows(
        rows.design,
        *block.by_case(rows),
        prior.cases_or_one(prior.precision),
        prior.cases_or_one(prior.center),
        flatten(error, 0, n),
        flatten(noise, 0, n),
    )
    return rng, prior.block(cases)
