"""Is a sample from the distribution it claims? Thresholds shared by the exactness tests.

Seeds are fixed, so a check that passes once passes always; the limits are set so that a
correct sampler fails one check in a million. What an error must exceed to be seen is then a
matter of the sample's size: with 400 000 draws a variance that is off by 2 % has a z-score
of 9.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

Z_LIMIT = 5.0
P_LIMIT = 1e-6


def moment_z_scores(
    draws: ArrayLike, mean: ArrayLike, variance: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """z-scores of the sample's mean and of its variance about ``mean``, along axis 0.

    The standard error of the variance is estimated from the sample, so that the draws need
    not be normal.
    """
    draws, n = np.asarray(draws), len(np.asarray(draws))
    squares = (draws - mean) ** 2
    z_mean = (draws.mean(0) - mean) / np.sqrt(np.asarray(variance) / n)
    z_variance = (squares.mean(0) - variance) / (squares.std(0) / np.sqrt(n))
    return z_mean, z_variance


def assert_moments(draws: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> None:
    """Fail unless independent draws have this mean and this variance, along axis 0."""
    z_mean, z_variance = moment_z_scores(draws, mean, variance)
    assert np.all(np.abs(z_mean) < Z_LIMIT), f"z-scores of the mean: {z_mean}"
    assert np.all(np.abs(z_variance) < Z_LIMIT), f"z-scores of the variance: {z_variance}"


def assert_proportion(hits: ArrayLike, probability: float) -> None:
    """Fail unless independent events happened with this probability."""
    n, count = np.size(hits), np.sum(hits)
    law = stats.binom(n, np.clip(probability, 1e-12, 1 - 1e-12))
    p = min(law.cdf(count), law.sf(count - 1))
    assert p > P_LIMIT / 2, f"{count / n:.5g} of the draws, not {probability:.5g}; p = {p:.1e}"


def assert_uniform(probabilities: ArrayLike) -> None:
    """Fail unless independent draws, transformed by their own CDF, are uniform.

    Beside the Kolmogorov-Smirnov test this compares the moments of the normal scores, which
    see an error of scale that is spread too thinly over the CDF for the former.
    """
    p = stats.kstest(np.asarray(probabilities, float), "uniform").pvalue
    assert p > P_LIMIT, f"Kolmogorov-Smirnov p = {p:.1e}"
    assert_moments(special.ndtri(np.clip(probabilities, 1e-16, 1 - 1e-16)), 0.0, 1.0)


def batch_means_z_scores(statistics: ArrayLike, n_batches: int = 50) -> np.ndarray:
    """z-scores of the means of a Markov chain's statistics about zero, along axis 0.

    The standard error is that of the means of ``n_batches`` stretches of the chain; the scores
    of its Student distribution are returned as those of a normal.
    """
    values = np.asarray(statistics, float)
    n = len(values) // n_batches * n_batches
    means = values[:n].reshape((n_batches, n // n_batches, *values.shape[1:])).mean(1)
    t = means.mean(0) / (means.std(0, ddof=1) / np.sqrt(n_batches))
    return -np.sign(t) * special.ndtri(stats.t.sf(np.abs(t), n_batches - 1))


def chain_z_scores(draws: ArrayLike, mean: ArrayLike, covariance: ArrayLike) -> np.ndarray:
    """z-scores of a Markov chain's moments, given the mean and the covariance of its law.

    The moments are those of standardised coordinates, of each pair of them, and the average of
    all squares, which sees an error of scale that is too small for any one of them.
    """
    root = np.linalg.cholesky(covariance)
    standard = np.linalg.solve(root, (np.asarray(draws) - mean).T).T
    i, j = np.tril_indices(len(root))
    products = standard[:, i] * standard[:, j] - (i == j)
    average = np.mean(standard**2 - 1, axis=1, keepdims=True)
    return batch_means_z_scores(np.hstack([standard, products, average]))


def assert_chain_moments(draws: ArrayLike, mean: ArrayLike, covariance: ArrayLike) -> None:
    """Fail unless a Markov chain that is in its law has this mean and this covariance."""
    z = chain_z_scores(draws, mean, covariance)
    limit = bonferroni_limit(z.size, P_LIMIT)
    assert np.all(np.abs(z) < limit), f"z-scores beyond {limit:.1f}: {z[~(np.abs(z) < limit)]}"


def bonferroni_limit(n_tests: int, level: float) -> float:
    """Limit on ``n_tests`` z-scores that correct ones exceed with probability ``level``."""
    return float(-special.ndtri(level / n_tests / 2))
