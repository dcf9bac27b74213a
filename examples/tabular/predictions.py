"""What a method says of held-out rows, and the scores of that.

Real targets have a predictive density, normal or a mixture of normals (one for each draw of a
posterior); classes have probabilities.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtri

LEVELS = tuple(round(0.1 * tenth, 1) for tenth in range(1, 10))
"""Probabilities of the central intervals whose coverage is kept."""

BINS = 10
"""Of the probability of the most probable class."""

LEAST = 1e-12
"""Probabilities below it count as this."""


@dataclass(frozen=True)
class Predicted:
    """Predictive law of each held-out target.

    Attributes
    ----------
    mean, sd : ndarray, shape (n_test,)
    log_density : ndarray, shape (n_test,)
        Logarithm of the predictive density at the targets.
    quantile : callable
        From a probability to quantiles, of shape (n_test,).
    """

    mean: np.ndarray
    sd: np.ndarray
    log_density: np.ndarray
    quantile: Callable[[float], np.ndarray]


def normal(mean: np.ndarray, sd: np.ndarray | float, y: np.ndarray) -> Predicted:
    """Normal predictions."""
    sd = np.broadcast_to(sd, mean.shape)
    return Predicted(mean, sd, normal_log_density(y, mean, sd), lambda p: mean + sd * ndtri(p))


def normals(means: np.ndarray, sds: np.ndarray, y: np.ndarray, seed: int) -> Predicted:
    """Mixtures of normals with equal weights.

    Parameters
    ----------
    means, sds : ndarray, shape (n_draws, n_test)
    y : ndarray, shape (n_test,)
    seed : int
        Of draws for the quantiles.
    """
    drawn = means + sds * np.random.default_rng(seed).standard_normal(means.shape)
    variance = means.var(axis=0) + np.mean(sds**2, axis=0)
    density = mean_density(normal_log_density(y, means, sds))
    return Predicted(
        means.mean(axis=0), np.sqrt(variance), density, lambda p: np.quantile(drawn, p, axis=0)
    )


def normal_log_density(y: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Logarithms of normal densities."""
    return -0.5 * np.log(2 * np.pi * sd**2) - 0.5 * ((y - mean) / sd) ** 2


def mean_density(log_densities: np.ndarray) -> np.ndarray:
    """Logarithm of the mean of densities over the first axis."""
    return logsumexp(log_densities, axis=0) - np.log(len(log_densities))


def scores(predicted: Predicted, y: np.ndarray, unit: float) -> dict[str, object]:
    """Scores of real targets, all but ``rmse`` with the targets' standard deviation as the unit.

    ``nld`` is the negative log density of the targets, ``nld_normal`` that of normals with the
    predictive mean and standard deviation; ``coverage_90`` the share of targets in their central
    90 % intervals, ``width_90`` the mean width of these, and ``coverage`` those of ``LEVELS``.
    """
    error = float(np.sqrt(np.mean((predicted.mean - y) ** 2)))
    coverage, width = {}, {}
    for level in LEVELS:
        low, high = (predicted.quantile((1 + sign * level) / 2) for sign in (-1, 1))
        coverage[level] = float(np.mean((low < y) & (y < high)))
        width[level] = float(np.mean(high - low))
    return {
        "rmse": unit * error,
        "rmse_standardised": error,
        "nld": float(-np.mean(predicted.log_density)),
        "nld_normal": float(-np.mean(normal_log_density(y, predicted.mean, predicted.sd))),
        **{f"coverage_{level:.0%}".rstrip("%"): coverage[level] for level in (0.5, 0.9)},
        **{f"width_{level:.0%}".rstrip("%"): width[level] for level in (0.5, 0.9)},
        "coverage": list(coverage.values()),
    }


def class_scores(probabilities: np.ndarray, y: np.ndarray) -> dict[str, object]:
    """Scores of classes: ``error``, ``nld`` and ``calibration_error``.

    The last is the mean over rows of the difference between confidence, the largest probability,
    and how often it is right, in bins of equal width. ``reliability`` has for each bin the number
    of rows, their mean confidence, and how many of them are right.

    Parameters
    ----------
    probabilities : ndarray, shape (n_test, n_classes)
    y : ndarray of int, shape (n_test,)
    """
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == y
    bins = np.minimum((BINS * confidence).astype(int), BINS - 1)
    count, sure, hit = (
        np.bincount(bins, weights=weights, minlength=BINS) for weights in (None, confidence, right)
    )
    of_truth = np.maximum(probabilities[np.arange(len(y)), y], LEAST)
    each = np.maximum(count, 1)
    return {
        "error": float(np.mean(~right)),
        "nld": float(-np.mean(np.log(of_truth))),
        "calibration_error": float(np.sum(np.abs(sure - hit)) / len(y)),
        "reliability": np.column_stack([count, sure / each, hit / each]).tolist(),
    }
