r"""Identities that hold for draws from a given density, and z-scores of deviations from them.

For a density :math:`p(v)` and any fixed :math:`c`, **Stein's identities** hold for each entry
:math:`v_i` along which :math:`p` is continuous and has no boundary:

.. math:: E\, \partial_i \log p = 0, \qquad E\, (v_i - c) \partial_i \log p = -1.

**Balance of moves** holds for every density, of integers too. Let :math:`v'` be proposed along a
coordinate by a symmetric rule and :math:`a = p(v') / (p(v) + p(v'))`. A chain that accepts with
this probability leaves :math:`p` as it is, so that for any :math:`h(v, v') = -h(v', v)`

.. math:: E\, a\, h = 0.

For small moves this is Stein's identity, for the two values of a coin the balance of its flips.
Since :math:`v'` is not proposed by what is checked, mass that a law leaves out shows. Given the
pair :math:`\{v, v'\}` the variance of :math:`a h` is :math:`a (1 - a) h^2`: it is known also where
one of the two is too rare to be among the draws.

All of these hold given the other entries, too. So a chain need not have seen all modes of
:math:`p` for them, which is what makes them quick.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from pymc_nnsteps.steps.tuning import autocorrelation_time

Array = NDArray[Any]

N_BATCHES = 50
"""Number of batches of a chain; their means give the standard error of the whole mean."""

N_AXES = 20

HALVINGS = 16
"""Number of bisections of a line in the search for a jump of the log density."""

SMALLEST_JUMP = 0.02

STEIN = ("E d log p = 0", "E (v - c) d log p = -1")
MOVES = ("moves up = down", "moves out = in", "moves to denser = to rarer places")


class Series:
    """Means, expected to be zero, of terms along a chain of some draws, one term for each entry."""

    def __init__(self, draws: int, size: int) -> None:
        self._draws = draws
        self._sums = np.zeros((min(N_BATCHES, draws), size))
        self._variances = np.zeros(size)

    def add(self, draw: int, terms: Array, variances: Array | float = 0.0) -> None:
        """Add the terms of a draw and their known variances."""
        self._sums[draw * len(self._sums) // self._draws] += terms
        self._variances += variances

    def z_scores(self) -> Array:
        """z-scores of each entry, and of the mean of all entries if there are several."""
        sums, variances = self._sums, self._variances
        n, size = sums.shape
        if size > 1:
            sums = np.column_stack([sums, sums.mean(axis=1)])
            variances = np.append(variances, variances.sum() / size**2)
        total = sums.sum(axis=0)
        alike = _resemblance(sums)
        effective = n * (1 - alike) / (1 + alike)
        error = np.sqrt(np.maximum(n * sums.var(axis=0, ddof=1) * n / effective, variances))
        certain = np.where(total == 0, 0.0, np.copysign(np.inf, total))
        t = np.divide(total, error, out=certain, where=error > 0)
        freedom = np.maximum(1, effective - 1)
        scores: Array = -np.sign(t) * scipy.special.ndtri(scipy.special.stdtr(freedom, -np.abs(t)))
        return scores


def _resemblance(sums: Array) -> Array:
    """Autocorrelation of neighbouring batches, which lowers their effective number."""
    deviations = sums - sums.mean(axis=0)
    squares = np.sum(deviations**2, axis=0)
    products = np.sum(deviations[1:] * deviations[:-1], axis=0)
    alike = np.divide(products, squares, out=np.zeros_like(squares), where=squares > 0)
    return np.clip(alike, 0, 0.99)


def limit(n_tests: int, level: float) -> float:
    """Limit that any of ``n_tests`` z-scores exceeds with a probability of at most ``level``."""
    return float(-scipy.special.ndtri(level / max(1, n_tests) / 2))


@dataclass(frozen=True)
class Scales:
    """Fixed centre and reach of each entry of a variable, used in its identities."""

    centre: Array
    reach: Array  # size of moves: roughly the standard deviation given all other entries

    @classmethod
    def of(cls, values: Array, slopes: Array | None) -> "Scales":
        """Scales from draws, one per row, and slopes of the log density at these draws."""
        spread = values.std(axis=0)
        if slopes is not None:
            size = np.median(np.abs(slopes), axis=0) / scipy.special.ndtri(0.75)
            spread = spread / np.maximum(1, spread * size)
        return cls(values.mean(axis=0), np.where(spread > 0, spread, 1.0))


def stein_terms(value: Array, slope: Array, scales: Scales) -> tuple[Array, Array]:
    """Terms of Stein's two identities for each entry of a variable, in units of its reach."""
    return slope * scales.reach, (value - scales.centre) * slope + 1


@dataclass(frozen=True)
class Axes:
    """Directions in which all variables of a chain move together, the longest ones."""

    places: dict[str, slice]  # slice of each variable, by name, in the vector of all entries
    # centre, spread of shape (n,).
    centre: Array
    spread: Array
    # shape (n_axes, n): directions of the axes, with entries in units of their spread.
    directions: Array
    lengths: Array  # shape (n_axes,): standard deviations along the axes

    @classmethod
    def of(cls, values: Mapping[str, Array]) -> "Axes":
        """Axes from draws, one per row of each variable."""
        vectors = {name: value.reshape(len(value), -1) for name, value in values.items()}
        ends = np.cumsum([vector.shape[1] for vector in vectors.values()])
        places = {
            name: slice(end - vector.shape[1], end)
            for (name, vector), end in zip(vectors.items(), ends, strict=True)
        }
        draws = np.hstack(list(vectors.values()))
        spread = draws.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        centre = draws.mean(axis=0)
        _, sizes, directions = np.linalg.svd((draws - centre) / spread, full_matrices=False)
        kept = int(np.sum(sizes[:N_AXES] > 0))
        return cls(places, centre, spread, directions[:kept], sizes[:kept] / np.sqrt(len(draws)))

    def terms(self, point: Mapping[str, Array], slopes: Mapping[str, Array]) -> tuple[Array, Array]:
        """Terms of Stein's two identities along each axis."""
        at, slope = (
            np.concatenate([np.ravel(given[name]) for name in self.places])
            for given in (point, slopes)
        )
        along = self.directions @ (slope * self.spread)
        place = self.directions @ ((at - self.centre) / self.spread)
        return along * self.lengths, place * along + 1

    def variables(self, axis: int) -> list[str]:
        """Variables that move most along an axis, or along all axes if ``axis`` is out of range."""
        moves = self.directions[axis : axis + 1] if axis < len(self.directions) else self.directions
        shares = {name: float(np.sum(moves[:, place] ** 2)) for name, place in self.places.items()}
        return [name for name, share in shares.items() if share > max(shares.values()) / 4]


def moved(rng: np.random.Generator, value: Array, i: int, scales: Scales) -> Array:
    """Propose a symmetric move of one entry, short or long; integers move to other integers."""
    proposed: Array = value.copy()
    step = scales.reach.flat[i] * np.exp(0.5 + 0.7 * rng.normal()) * rng.normal()
    if value.dtype.kind != "f":
        step = np.copysign(max(1.0, abs(np.rint(step))), step)
    proposed.flat[i] = value.flat[i] + step
    return proposed


def move_terms(old: float, new: float, log_ratio: float, centre: float) -> tuple[Array, Array]:
    """Terms of the balance of a move by each test function, and their variances."""
    accepted = scipy.special.expit(log_ratio)
    tests = np.array(
        [
            np.sign(new - old),
            np.sign(abs(new - centre) - abs(old - centre)),
            np.tanh(log_ratio / 2),
        ]
    )
    return accepted * tests, accepted * (1 - accepted) * tests**2


def jumps(along: Callable[[float], tuple[float, float]], tolerance: float) -> bool:
    """Whether a log density jumps on a line from 0 to 1, by bisection towards the largest error."""
    places = {place: along(place) for place in (0.0, 1.0)}
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        if _missed(places, low, high) < tolerance:
            return False
        middle = (low + high) / 2
        places[middle] = along(middle)
        if _missed(places, low, middle) > _missed(places, middle, high):
            high = middle
        else:
            low = middle
    return True


def _missed(places: Mapping[float, tuple[float, float]], low: float, high: float) -> float:
    (first, slope), (last, end_slope) = places[low], places[high]
    with np.errstate(invalid="ignore"):
        missed = abs(last - first - (high - low) * (slope + end_slope) / 2)
    return np.inf if np.isnan(missed) else float(missed)


def thinning(series: Array, longest: int = 20) -> int:
    """Thinning interval that makes draws of the slowest series nearly independent."""
    return max([1, *(min(longest, round(autocorrelation_time(x) / 2)) for x in series.T)])
