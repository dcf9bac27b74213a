"""When a chain agrees with one that was in equilibrium from its start."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LIMIT = 4.0
"""Standard errors beyond which two means differ.

In equilibrium, the means of two chains differ in 0.3 % of windows of 25 autocorrelation times, in
1 % of those of 10, and in 3 % of those of 5, since errors are themselves estimated from a window.
"""

FEWEST_RECORDS = 16
"""Records that a window must have for its mean to have an error."""

FEWEST_WINDOWS = 2
"""Windows in which chains must agree to have merged."""

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Merging:
    """Whether and when a test function of two chains has merged."""

    # A chain that is apart is stuck if its own mean did not change between the last two windows (by
    # at most 4 errors), and moving if it did, or if it agrees in the last window only.
    state: str
    merged: float  # sweep after which the chains agree; NaN if they do not
    # Last sweep up to which they are known to differ in some window; 0 if there is none.
    apart: float
    # Of the means over all sweeps after merging, or over the last window, and its standard error.
    difference: float
    error: float


def windows(sweeps: NDArray[np.integer]) -> list[NDArray[np.bool_]]:
    """Records of the windows ``(N/2, N]``, ``(N/4, N/2]``, ..., the earliest first, if many."""
    ends: list[float] = [float(sweeps[-1])]
    while ends[-1] > 1:
        ends.append(ends[-1] / 2)
    found = [(sweeps > end / 2) & (sweeps <= end) for end in reversed(ends)]
    return [window for window in found if window.sum() >= FEWEST_RECORDS]


def merging(sweeps: NDArray[np.integer], chain: Array, reference: Array) -> Merging:
    """Compare a chain with one in equilibrium at the same sweeps, by means in windows.

    The rule is that of the notes of :func:`~pymc_nnsteps.lab.thermalize`.
    """
    parts = windows(sweeps)
    if len(parts) < FEWEST_WINDOWS:
        raise ValueError(
            f"records must leave at least {FEWEST_RECORDS} in the last half of all sweeps, and in "
            "the quarter before; ask for more sweeps or records."
        )
    means, errors = _summaries(parts, np.stack([chain, reference]))
    differences = means[0] - means[1]
    apart = _differ(differences, errors)
    ends = [float(sweeps[part][-1]) for part in parts]
    first = int(np.flatnonzero(apart)[-1]) + 1 if apart.any() else 0
    for k in range(first, len(parts) - FEWEST_WINDOWS + 1):
        difference, error = _pooled(differences[k:], errors[k:])
        if not _differ(difference, error):
            merged, before = (ends[k - 1], ends[k - 1] / 2) if k else (ends[0] / 2, 0.0)
            return Merging("merged", merged, before, difference, error)
    moved = _differ(means[0, -1] - means[0, -2], float(np.hypot(*errors[-2:])))
    state = "moving" if moved or not apart[-1] else "stuck"
    return Merging(state, np.nan, ends[-1], float(differences[-1]), float(errors[-1]))


def _summaries(parts: list[NDArray[np.bool_]], both: Array) -> tuple[Array, Array]:
    """Means of both chains in each window, and the error of their difference."""
    from arviz_stats.base.array import array_stats

    means = np.stack([both[:, part].mean(1) for part in parts], axis=1)
    errors = []
    for part in parts:
        values = both[1, part]
        error = array_stats.mcse(values, chain_axis=None, draw_axis=-1) if np.ptp(values) else 0.0
        errors.append(np.sqrt(2) * error)
    return means, np.array(errors)


def _differ(differences: Array | float, errors: Array | float) -> NDArray[np.bool_]:
    return np.asarray(np.abs(differences) > LIMIT * np.asarray(errors))


def _pooled(differences: Array, errors: Array) -> tuple[float, float]:
    """Mean weighted by precision, and its error; what has no error has all the weight."""
    exact = errors == 0
    weights = exact.astype(float) if exact.any() else errors**-2.0
    mean = float(np.average(differences, weights=weights))
    return mean, 0.0 if exact.any() else float(weights.sum() ** -0.5)
