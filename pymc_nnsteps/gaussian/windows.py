"""A block of which no two rows see the same entry, as in means over windows side by side.

Nothing is factorised, and a draw takes time linear in the size of the block
(:func:`pymc_nnsteps.kernels.windows.draw_windows`).
"""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable

from pymc_nnsteps.gaussian.block import Block, Drawn
from pymc_nnsteps.gaussian.evidence import Evidence
from pymc_nnsteps.graphs.arrays import flatten
from pymc_nnsteps.graphs.values import array_constant
from pymc_nnsteps.kernels.ops import draw_windows


@dataclass(frozen=True)
class Windows:
    """Row and coefficient of each of d entries.

    Attributes
    ----------
    index : ndarray of int, shape (d,)
        Row that sees an entry; -1 where there is none.
    coefficient : ndarray, shape (d,)
        Coefficient of the entry.
    """

    index: NDArray[np.int64]
    coefficient: NDArray[np.floating]


def applies(block: Block) -> bool:
    """Where the only child has few rows, by constant coefficients, and no two share an entry."""
    return block.few_rows and windows_of(block.evidence[0]) is not None


def draw(rng: Variable, block: Block) -> Drawn:
    """Draw window by window."""
    [seen], prior = block.evidence, block.prior
    windows, n = windows_of(seen), prior.n_label_axes
    assert windows is not None
    rng, noise = prior.noise(rng)
    cases = draw_windows(
        pt.constant(windows.index),
        pt.constant(windows.coefficient),
        pt.reciprocal(prior.shared_precision()),
        pt.broadcast_to(pt.reciprocal(seen.weight.dimshuffle(n)), seen.response.shape[n:]),
        prior.cases(prior.center),
        prior.cases(seen.response),
        flatten(noise, 0, n),
    )
    return rng, prior.block(cases)


def windows_of(seen: Evidence) -> Windows | None:
    """Read a constant design that all labels share as windows, if these do not overlap.

    A single row gives None, as it needs no factorisation. The design is evaluated, so call this
    only where it may consist of windows.
    """
    n = seen.n_label_axes
    design = seen.whole_design.dimshuffle(n, n + 1)
    found = array_constant(design)
    if found is None or len(found) < 2:
        return None
    sees = found != 0
    if (sees.sum(axis=0) > 1).any():
        return None
    index = np.where(sees.any(axis=0), sees.argmax(axis=0), -1)
    return Windows(index, found.sum(axis=0))
