"""The law of a sum of units against closed forms, wherever its argument is."""

import itertools

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm

from pymc_nnsteps.prediction import sums

N_LAWS = 300


def gates(rng):
    """A mixture of few normals, its components in logs, and their means."""
    n, scale = int(rng.choice([1, 2, 4, 8])), 10 ** rng.uniform(-1, 1)
    p = np.clip(1 / (1 + np.exp(3 * scale * rng.normal(size=n))), 1e-12, 1 - 1e-12)
    location = 3 * scale * np.stack([rng.normal(size=n), np.zeros(n)])
    weight, bound = np.stack([p, 1 - p]), np.full((2, n), np.inf)
    patterns = np.array(list(itertools.product([0, 1], repeat=n)))
    units = np.arange(n)
    components = np.log(weight[patterns, units]).sum(1), location[patterns, units].sum(1)
    return (weight, location, 0 * location, -bound, bound), components


def a_kinked_unit(rng):
    """One unit of a leaky ReLU, of which the parts are normals, cut off."""
    slope, mean, sd = rng.choice([0, 0.01, -1]), 10 ** rng.uniform(-1, 1) * rng.normal(), 1.3
    weight, factor = np.ones(2), 10 ** rng.uniform(-1, 1) * np.array([slope, 1.0])
    location, scale, knot = factor * mean, factor * sd, -mean / sd
    return weight, location, scale, np.array([-np.inf, knot]), np.array([knot, np.inf])


def log_density_of_a_kinked_unit(parts, variance, y):
    weight, location, scale, lower, upper = parts
    both = scale**2 + variance
    mean, sd = scale * (y - location) / both, np.sqrt(variance / both)
    low, high = (lower - mean) / sd, (upper - mean) / sd
    low, high = np.where(low > 0, -high, low), np.where(low > 0, -low, high)
    mass = log_ndtr(high) + np.log1p(-np.exp(log_ndtr(low) - log_ndtr(high)))
    return logsumexp(np.log(weight) + norm.logpdf(y, location, np.sqrt(both)) + mass)


@pytest.mark.parametrize("seed", range(2))
def test_far_tails_and_laws_of_several_modes(seed):
    """A saddle point that was not found, or too short a period, is a wrong number without error."""
    rng = np.random.default_rng(seed)
    found, expected = [], []
    for number in range(N_LAWS):
        variance = 10 ** rng.uniform(-4, 0.5)
        parts, components = gates(rng) if number % 2 else (a_kinked_unit(rng), None)
        stacked = (np.reshape(part, (2, 1, -1)) for part in parts)
        law = sums.Sum(np.zeros(1), np.array([variance]), *stacked)
        y = rng.normal() * 10 ** rng.uniform(-1, 2) * law.spread(np.zeros(1)) / 15
        found.append(sums.log_density(law, y)[0])
        if components is None:
            expected.append(log_density_of_a_kinked_unit(parts, variance, y[0]))
            continue
        logs, means = components
        of_y = y[0], means, variance**0.5
        expected.append(logsumexp(logs + norm.logpdf(*of_y)))
        for tail, exact in zip(sums.log_tail(law, y[0]), (norm.logsf, norm.logcdf), strict=True):
            found.append(tail[0])
            expected.append(logsumexp(logs + exact(*of_y)))
    is_lost = np.isnan(found)
    assert is_lost.mean() < 0.1
    np.testing.assert_allclose(
        np.array(found)[~is_lost], np.array(expected)[~is_lost], rtol=1e-6, atol=1e-7
    )
