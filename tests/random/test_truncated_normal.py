"""Truncated normals against their CDF, from the bulk to a million sds, and at the bounds."""

import itertools

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import function
from pytensor.tensor.random import rng as symbolic_rng

from pymc_nnsteps.random import truncated_normal
from pymc_nnsteps.random.truncated_normal import truncated_normal_kernel
from tests.random.oracles import truncated_normal_cdf
from tests.statistics import assert_moments, assert_uniform

N = 400_000
DISTANCES = [1e-8, 0.1, 0.7, 1.0, 3.0, 30.0, 1e3, 1e6]
INSIDE = [(-np.inf, np.inf), (-0.0, np.inf), (-2, 1e-8), (-1.2, 1.3), (-0.01, 2.6), (-1e-8, 1e-8)]


def draw(mu, sigma, lower, upper, n=N, seed=0, dtype=np.float64):
    params = [np.array([value], dtype) for value in (mu, sigma, lower, upper)]
    rng = np.random.default_rng(seed)
    return truncated_normal_kernel(rng, *params, np.empty(n, dtype))


@pytest.mark.parametrize("a", DISTANCES)
def test_one_sided_tail_has_its_cdf(a):
    """A wrong rate or acceptance in the tail; relative precision lost beside a far bound."""
    z = draw(-a, 1.0, 0.0, np.inf)
    assert z.min() >= 0
    assert_uniform(truncated_normal_cdf(z, -a, 1.0, 0.0, np.inf))


@pytest.mark.parametrize("a", [1e-8, 3.0, 1e6])
@pytest.mark.parametrize("relative_width", [1e-8, 0.3, 1.0, 1.8, 6.0])
def test_interval_in_the_tail_has_its_cdf(a, relative_width):
    """A wrong choice between uniform and exponential proposals, or of their acceptance."""
    width = relative_width / (1 + a)
    z = draw(-a, 1.0, 0.0, width, n=250_000)
    assert z.min() >= 0
    assert z.max() <= width
    assert_uniform(truncated_normal_cdf(z, -a, 1.0, 0.0, width))


@pytest.mark.parametrize(("lower", "upper"), INSIDE)
def test_interval_around_the_mean_has_its_cdf(lower, upper):
    """A wrong acceptance where the mean is inside; a variance that is off by 1 %."""
    mu, sigma = 0.7, 3.0
    z = draw(mu, sigma, mu + sigma * lower, mu + sigma * upper)
    assert_uniform(truncated_normal_cdf(z, mu, sigma, mu + sigma * lower, mu + sigma * upper))


def test_half_normal_moments():
    """A scale that is off, seen without the oracle: mean sqrt(2/pi), variance 1 - 2/pi."""
    assert_moments(draw(0.0, 1.0, 0.0, np.inf), np.sqrt(2 / np.pi), 1 - 2 / np.pi)


@pytest.mark.parametrize(("lower", "upper"), [(0.3, np.inf), (0.3, 1.1), (5.0, 5.001)])
def test_reflection(lower, upper):
    """A sign lost when the interval lies below the mean rather than above it."""
    above, below = draw(0.0, 1.0, lower, upper, n=1000), draw(0.0, 1.0, -upper, -lower, n=1000)
    np.testing.assert_array_equal(above, -below)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_are_never_violated(dtype):
    """Rounding, to float32 above all, that carries a draw past a bound."""
    rng = np.random.default_rng(1)
    n = 200_000
    mu = rng.normal(size=n) * 10.0 ** rng.integers(-3, 7, n)
    sigma = 10.0 ** rng.integers(-4, 3, n)
    lower = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4, n)
    upper = lower + np.abs(rng.normal(size=n)) * 10.0 ** rng.integers(-8, 3, n)
    mu, sigma, lower, upper = (v.astype(dtype) for v in (mu, sigma, lower, upper))
    z = truncated_normal_kernel(rng, mu, sigma, lower, upper, np.empty(n, dtype))
    assert np.all((z >= lower) & (z <= upper))


def test_equal_bounds_return_the_bound():
    """A division of zero by zero, or an endless loop, on a degenerate interval."""
    bounds = np.array([-1e300, -2.0, 0.0, 0.3, 1e6])
    rng = np.random.default_rng(0)
    one = np.ones(1)
    z = truncated_normal_kernel(rng, 0.3 * one, one, bounds, bounds, np.empty(5))
    np.testing.assert_array_equal(z, bounds)


def test_any_input_terminates():
    """An endless loop on NaN, infinities or overflow; NaN from finite, valid input."""
    values = [np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, 1e-300, 1e300, -1e300, 5e-324, 1e8]
    mu, sigma, lower, upper = np.array(list(itertools.product(values, repeat=4))).T.copy()
    rng = np.random.default_rng(0)
    z = truncated_normal_kernel(rng, mu, sigma, lower, upper, np.empty(mu.size))
    invalid = ~((lower <= upper) & (sigma > 0)) | np.isnan(mu)
    assert np.isnan(z[invalid]).all()
    valid = ~invalid & np.isfinite(mu) & np.isfinite(sigma)
    assert np.all((z[valid] >= lower[valid]) & (z[valid] <= upper[valid]))


def test_parameters_broadcast():
    """A parameter raveled in the wrong order, or a shape or dtype lost on the way."""
    column = pt.constant(np.arange(4.0)[:, None])
    row = pt.vector("row", shape=(3,))
    rng = symbolic_rng()
    _, z = truncated_normal(rng, column, 1e-6, column + 10 * row, np.inf)
    assert z.type.shape == (4, 3)
    drawn = function([rng, row], z)(np.random.default_rng(0), np.array([0.0, 1.0, 2.0]))
    expected = np.arange(4.0)[:, None] + 10 * np.arange(3.0)
    np.testing.assert_allclose(drawn, expected, atol=1e-5)
