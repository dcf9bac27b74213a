"""Latent utilities behind a label: conditionals, invariance of the scan, and no ties."""

import numpy as np
import pytest
from pytensor import function
from pytensor.tensor.random import rng as symbolic_rng
from scipy import stats

from pymc_nnsteps.random import argmax_utilities
from pymc_nnsteps.random.truncated_normal import argmax_utilities_kernel
from tests.random.oracles import truncated_normal_cdf
from tests.statistics import P_LIMIT, assert_uniform


def scan(mu, sigma, labels, current, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    sigma = np.atleast_2d(np.asarray(sigma, dtype))
    mu, current = mu.astype(dtype), current.astype(dtype)
    return argmax_utilities_kernel(rng, mu, sigma, labels, current, np.empty_like(mu))


@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("per_class", [False, True])
def test_conditionals_have_their_cdf(scale, per_class):
    """A bound taken from the wrong element or side, a mean or sd from the wrong class."""
    rng = np.random.default_rng(1)
    n, k = 200_000, 3
    mu, current = scale * rng.normal(size=(2, n, k))
    sigma = np.array([0.3, 1.0, 2.5]) if per_class else np.array(0.7)
    labels = rng.integers(0, k, n)
    z = scan(mu, sigma, labels, current)
    sds = np.broadcast_to(sigma, (n, k))

    chosen = np.arange(k) == labels[:, None]
    highest = np.where(chosen, -np.inf, current).max(1)
    top = z[chosen]
    assert_uniform(truncated_normal_cdf(top, mu[chosen], sds[chosen], highest, np.inf))
    below = np.repeat(top, k - 1)
    others = ~chosen
    assert_uniform(truncated_normal_cdf(z[others], mu[others], sds[others], -np.inf, below))


def test_scan_leaves_the_posterior_invariant():
    """A scan of the wrong blocks: from exact posterior rows it must give posterior rows."""
    rng = np.random.default_rng(2)
    mu, sigma = np.array([0.5, -0.3, 0.1, 0.0]), 0.8
    rows = mu + sigma * rng.normal(size=(1_500_000, 4))
    rows = rows[rows.argmax(1) == 1]
    start, reference = np.array_split(rows, 2)
    labels = np.ones(len(start), np.int64)
    z = scan(np.tile(mu, (len(start), 1)), sigma, labels, start)
    for a in range(4):
        p = stats.ks_2samp(z[:, a], reference[: len(z), a], method="asymp").pvalue
        assert p > P_LIMIT


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 2, 7])
def test_the_label_is_the_argmax_without_ties(dtype, k):
    """A tie or an inversion after rounding, above all in float32 and far in the tail."""
    rng = np.random.default_rng(3)
    n = 100_000
    mu = rng.normal(size=(n, k)) * 10.0 ** rng.integers(-2, 6, (n, 1))
    current = rng.normal(size=(n, k)) * 10.0 ** rng.integers(-2, 6, (n, 1))
    labels = rng.integers(0, k, n)
    z = scan(mu, 1e-3, labels, current, dtype=dtype)
    assert z.dtype == dtype
    assert np.isfinite(z).all()
    chosen = np.arange(k) == labels[:, None]
    assert np.all(z[chosen] > np.where(chosen, -np.inf, z).max(1))


@pytest.mark.parametrize("label", [-1, 3])
def test_label_out_of_range(label):
    """Memory written out of bounds."""
    with pytest.raises(ValueError, match="not the index of a class"):
        scan(np.zeros((2, 3)), 1.0, np.array([0, label]), np.zeros((2, 3)))


def test_labels_must_be_integers():
    """Labels truncated to integers without a word."""
    with pytest.raises(TypeError, match="labels must be integers, not float64"):
        argmax_utilities(symbolic_rng(), np.zeros((2, 3)), 1.0, np.zeros(2), np.zeros((2, 3)))


@pytest.mark.parametrize("sigma", [0.5, np.full(3, 0.5), np.full((4, 3), 0.5)])
def test_sigma_broadcasts(sigma):
    """A scale read along the wrong axis, or refused."""
    rng = symbolic_rng()
    mu = np.random.default_rng(0).normal(size=(4, 3))
    _, z = argmax_utilities(rng, mu, sigma, np.array([0, 1, 2, 0], "int8"), mu)
    assert z.type.shape == (4, 3)
    drawn = function([rng], z)(np.random.default_rng(0))
    np.testing.assert_array_equal(drawn.argmax(1), [0, 1, 2, 0])
    assert drawn.sum() == pytest.approx(scan(mu, 0.5, np.array([0, 1, 2, 0]), mu).sum())
