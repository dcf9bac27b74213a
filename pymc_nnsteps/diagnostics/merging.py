"""When a chain cannot be told any more from one that was in equilibrium from its start."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LIMIT = 4.0
"""Standard errors beyond which two means differ.

Of windows of two chains in equilibrium 0.4 % do if they are 20 autocorrelation times long, and
4 % if they are 5 (with errors that are themselves estimated from a window).
"""

FEWEST_RECORDS = 16
"""Records that a window must have for its mean to have an error."""

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Merging:
    """Whether and when a test function of two chains has merged.

    Attributes
    ----------
    state : {"merged", "moving", "stuck"}
        Of a chain that is apart: whether its own mean still changes.
    merged : float
        Sweep after which the chains agree; NaN if they do not.
    apart : float
        Last sweep up to which they are known to differ in some window; 0 if there is none.
    difference, error : float
        Of the means over all sweeps after merging, or over the last window, and its standard
        error.
    """

    state: str
    merged: float
    apart: float
    difference: float
    error: float


def windows(sweeps: NDArray[np.integer]) -> list[NDArray[np.bool_]]:
    """Records of the windows ``(N/2, N]``, ``(N/4, N/2]``, ..., the earliest first.

    Windows with few records are left out.
    """
    ends: list[float] = [float(sweeps[-1])]
    while ends[-1] > 1:
        ends.append(ends[-1] / 2)
    found = [(sweeps > end / 2) & (sweeps <= end) for end in reversed(ends)]
    return [window for window in found if window.sum() >= FEWEST_RECORDS]


def merging(sweeps: NDArray[np.integer], chain: Array, reference: Array) -> Merging:
    """Compare a chain with one in equilibrium, by the means of a test function in windows.

    In each window the difference of means is divided by its Monte Carlo error (both chains'
    together, from their effective sample sizes in this window). The chain has merged after the
    first window from whose end on this ratio is at most 4 in each later window, and for all of
    these together, weighted by their precision. At least the last half of all sweeps agrees then.

    Parameters
    ----------
    sweeps : ndarray of int, shape (n_records,)
        Increasing.
    chain, reference : ndarray, shape (n_records,)
        The test function at these sweeps.

    Returns
    -------
    Merging

    Raises
    ------
    ValueError
        If there are too few records for a window.

    Examples
    --------
    >>> import numpy as np
    >>> sweeps, rng = np.arange(1, 1025), np.random.default_rng(0)
    >>> chain, reference = rng.normal(size=(2, 1024)) + [100 * 0.9**sweeps, np.zeros(1024)]
    >>> merging(sweeps, chain, reference).merged
    64.0
    """
    parts = windows(sweeps)
    if not parts:
        raise ValueError(
            f"records must leave at least {FEWEST_RECORDS} in the last half of all sweeps; ask for "
            "more sweeps or records."
        )
    means, variances = (
        np.stack(part) for part in zip(*_summaries(parts, chain, reference), strict=True)
    )
    differences, errors = means[:, 0] - means[:, 1], np.sqrt(variances.sum(1))
    apart = _differ(differences, errors)
    ends = [float(sweeps[part][-1]) for part in parts]
    first = int(np.flatnonzero(apart)[-1]) + 1 if apart.any() else 0
    for k in range(first, len(parts)):
        difference, error = _pooled(differences[k:], errors[k:])
        if not _differ(difference, error):
            merged, before = (ends[k - 1], ends[k - 1] / 2) if k else (ends[0] / 2, 0.0)
            return Merging("merged", merged, before, difference, error)
    own_change, own_error = np.diff(means[-2:, 0]), np.sqrt(variances[-2:, 0].sum())
    state = "moving" if _differ(own_change, own_error).any() or len(parts) == 1 else "stuck"
    return Merging(state, np.nan, ends[-1], float(differences[-1]), float(errors[-1]))


def _summaries(
    parts: list[NDArray[np.bool_]], chain: Array, reference: Array
) -> Iterator[tuple[Array, Array]]:
    """Means of both chains in each window, and squares of their Monte Carlo errors."""
    from arviz_stats.base.array import array_stats

    both = np.stack([chain, reference])
    for part in parts:
        values = both[:, part]
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = array_stats.mcse(values, chain_axis=None, draw_axis=-1)
        yield values.mean(1), np.where(np.ptp(values, axis=1) > 0, errors, 0.0) ** 2


def _differ(differences: Array | float, errors: Array | float) -> NDArray[np.bool_]:
    return np.asarray(np.abs(differences) > LIMIT * np.asarray(errors))


def _pooled(differences: Array, errors: Array) -> tuple[float, float]:
    """Mean weighted by precision, and its error; what has no error has all the weight."""
    exact = errors == 0
    weights = exact.astype(float) if exact.any() else errors**-2.0
    mean = float(np.average(differences, weights=weights))
    return mean, 0.0 if exact.any() else float(weights.sum() ** -0.5)
