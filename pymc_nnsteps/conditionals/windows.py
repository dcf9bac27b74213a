"""Observations that see disjoint entries of a block: means over windows side by side."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_nnsteps.conditionals.blocks import Evidence
from pymc_nnsteps.graphs.values import array_constant


@dataclass(frozen=True)
class Windows:
    """Observation and coefficient of each of d entries.

    Attributes
    ----------
    index : ndarray of int, shape (d,)
        Observation that sees an entry; -1 where there is none.
    coefficient : ndarray, shape (d,)
        Coefficient of the entry.
    """

    index: NDArray[np.int64]
    coefficient: NDArray[np.floating]


def windows_of(seen: Evidence) -> Windows | None:
    """Read a constant design that all labels share as windows, if these do not overlap.

    A single observation gives None, as it needs no factorisation. The design is evaluated, so
    call this only where it may consist of windows.
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
