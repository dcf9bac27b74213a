"""Identities of a density: where they hold, and how far from zero a mean of terms is."""

import numpy as np
import pytest
from scipy import special

from pymc_nnsteps.steps.identities import (
    Scales,
    Series,
    jumps,
    move_terms,
    moved,
    stein_terms,
    thinning,
)
from tests.statistics import Z_LIMIT

RNG = np.random.default_rng(0)


def autoregression(draws, coefficient):
    x = np.empty(draws)
    x[0] = RNG.normal()
    for i in range(1, draws):
        x[i] = coefficient * x[i - 1] + np.sqrt(1 - coefficient**2) * RNG.normal()
    return x


def gamma_scores(factor):
    """z-scores of all identities of a log Gamma(3) at draws that are scaled."""
    draws, rng = 4000, np.random.default_rng(1)
    series = [Series(draws, 1) for _ in range(5)]
    scales = Scales(np.array([1.0]), np.array([0.6]))

    def log_density(v):
        return float(3 * v[0] - np.exp(v[0]))

    for draw, x in enumerate(rng.gamma(3.0, size=draws)):
        v = np.log(factor * np.array([x]))
        new = moved(rng, v, 0, scales)
        terms, variances = move_terms(v[0], new[0], log_density(new) - log_density(v), 1.0)
        for each, term in zip(series, stein_terms(v, 3 - np.exp(v), scales), strict=False):
            each.add(draw, term)
        for each, term, variance in zip(series[2:], terms, variances, strict=True):
            each.add(draw, term, variance)
    return np.concatenate([each.z_scores() for each in series])


def test_identities_of_a_density():
    assert np.all(np.abs(gamma_scores(1.0)) < Z_LIMIT)
    assert np.sum(np.abs(gamma_scores(1.3)) > Z_LIMIT) >= 3


def test_a_value_too_rare_to_be_drawn_is_no_error():
    """A coin that shows its rarer side once in 10 000, among 1000 draws without it."""
    series = Series(1000, 1)
    for draw in range(1000):
        terms, variances = move_terms(0.0, 1.0, special.logit(1e-4), 0.5)
        series.add(draw, terms[:1], variances[:1])
    assert np.abs(series.z_scores()) < 1


@pytest.mark.parametrize("coefficient", [0.0, 0.9, 0.999])
def test_slow_chains_are_no_error(coefficient):
    """z-scores of means over chains, of which the slowest does not mix within batches."""
    scores = []
    for _ in range(100):
        series = Series(1000, 1)
        for draw, x in enumerate(autoregression(1000, coefficient)):
            series.add(draw, np.array([x]))
        scores.append(series.z_scores()[0])
    assert np.max(np.abs(scores)) < Z_LIMIT


def test_jumps():
    assert not jumps(lambda t: (abs(t - 0.3), np.sign(t - 0.3)), 0.02)
    assert not jumps(lambda t: (np.tanh(20 * t), 20 / np.cosh(20 * t) ** 2), 0.02)
    assert jumps(lambda t: (0.1 * (t > 0.7), 0.0), 0.02)
    assert jumps(lambda t: (-np.inf if t > 0.9 else 0.0, 0.0), 0.02)


def test_thinning():
    fast, slow = RNG.normal(size=(2000, 1)), autoregression(2000, 0.8)[:, None]
    assert thinning(fast) == 1
    assert 3 <= thinning(np.hstack([fast, slow])) <= 7
