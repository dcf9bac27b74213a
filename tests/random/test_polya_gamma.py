"""Polya-Gamma draws against quadrature of their density, from no tilt to a tilt of 10 000."""

import numba
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import function
from pytensor.tensor.random import rng as symbolic_rng

from pymc_nnsteps.random import polya_gamma
from pymc_nnsteps.random.polya_gamma import is_below_series, polya_gamma_kernel
from tests.random.oracles import polya_gamma_cdf
from tests.statistics import assert_moments, assert_uniform

N = 100_000
ONE = np.ones(1)
TILTS = [0.0, 1e-8, 0.5, 2.0, 3.1, 3.2, 5.0, 12.0, 50.0, 300.0, 1e3, 1e4]


def draw(z, n=N, seed=0, dtype=np.float64, rng=None):
    rng = np.random.default_rng(seed) if rng is None else rng
    return polya_gamma_kernel(rng, np.full(n, z, dtype), ONE.astype(dtype), np.empty(n, dtype))


def moments(z):
    if z < 1e-3:
        return 1 / 4, 1 / 24
    t = np.tanh(z / 2)
    return t / (2 * z), (2 * t - z * (1 - t**2)) / (4 * z**3)


@pytest.mark.parametrize("z", TILTS)
def test_tilts_have_their_cdf(z):
    """A wrong mass, a wrong proposal on one side of the bend, an underflow at large tilts."""
    assert_uniform(polya_gamma_cdf(draw(z), z))


@pytest.mark.parametrize("z", [0.0, 1.0, 3.0, 4.0])
def test_bulk_has_its_cdf(z):
    """A mass that is off by 1 %, and the alternating series, which rejects 1 draw in 1000."""
    assert_uniform(polya_gamma_cdf(draw(z, n=2_000_000), z))


@pytest.mark.parametrize("z", TILTS)
def test_moments(z):
    """A scale that is off, seen without the oracle."""
    assert_moments(draw(z, n=500_000, seed=1), *moments(z))


def test_sums():
    """A draw too few or too many, counts of zero, and what is no count."""
    n, size = np.array([0.0, 1.0, 3.0, 8.0, 2.5, -1.0]), 200_000
    tilts = np.full(6 * size, 1.7)
    x = polya_gamma_kernel(
        np.random.default_rng(0), tilts, np.tile(n, size), np.empty(6 * size)
    ).reshape(size, 6)
    assert not x[:, 0].any()
    assert np.isnan(x[:, 4:]).all()
    mean, variance = moments(1.7)
    for column, count in zip(x.T[1:4], n[1:4], strict=True):
        assert_moments(column, count * mean, count * variance)


@numba.njit
def count_rejections(rng, x, n):
    count = 0
    for _ in range(n):
        count += not is_below_series(rng, x)
    return count


@pytest.mark.parametrize("x", [0.35, 0.5, 0.64, 0.6401, 0.8, 1.1])
def test_acceptance_is_the_series_over_its_first_term(x):
    """A term lost, or its sign: rare enough not to show in the draws' distribution."""
    n = np.arange(20)
    decay = 2 / x if x <= 0.64 else np.pi**2 * x / 2
    acceptance = np.sum((-1.0) ** n * (2 * n + 1) * np.exp(-decay * n * (n + 1)))
    trials = 20_000_000
    rejections = count_rejections(np.random.default_rng(0), x, trials)
    expected = trials * (1 - acceptance)
    assert abs(rejections - expected) < 4.5 * np.sqrt(expected)


def test_long_sum():
    """The definition: a sum of exponentials over (k - 1/2)^2 + z^2 / (4 pi^2)."""
    z, k = 2.5, np.arange(1, 2001)
    weights = 1 / (2 * np.pi**2 * ((k - 0.5) ** 2 + z**2 / (4 * np.pi**2)))
    exponentials = np.random.default_rng(0).standard_exponential((10_000, 2000))
    assert_uniform(polya_gamma_cdf(exponentials @ weights, z))


@pytest.mark.parametrize("z", [0.3, 4.0, 1e3])
def test_sign_is_of_no_matter(z):
    np.testing.assert_array_equal(draw(z, n=1000), draw(-z, n=1000))


@pytest.mark.parametrize("z", [*TILTS, 1e8, 1e100])
def test_few_proposals_are_rejected(z):
    """An envelope that is loose somewhere; a draw takes three to five random words."""
    n = 5000
    philox = np.random.Philox(0)
    draw(z, n, rng=np.random.Generator(philox))
    words = 4 * philox.state["state"]["counter"][0]
    assert words / n < 6.5


def test_any_input_terminates():
    """An endless loop on NaN or overflow; NaN from valid input."""
    z = np.array([np.nan, np.inf, -np.inf, 0.0, 5e-324, 1e-300, 1e20, -1e155, 1e200, 1.7e308])
    x = polya_gamma_kernel(np.random.default_rng(0), z, ONE, np.empty(z.size))
    np.testing.assert_array_equal(np.isnan(x), ~np.isfinite(z))
    assert np.all(x[3:] > 0)
    np.testing.assert_allclose(abs(z[6:]) * x[6:], 0.5, rtol=1e-8)


def test_each_element_has_its_own_tilt():
    tilts = np.array([0.0, 300.0, 1.0, 7.0])
    every = np.tile(tilts, N // 2)
    x = polya_gamma_kernel(np.random.default_rng(0), every, ONE, np.empty(2 * N))
    for column, z in zip(x.reshape(-1, 4).T, tilts, strict=True):
        assert_uniform(polya_gamma_cdf(column, z))


def test_float32():
    """Arithmetic in float32 instead of float64."""
    x = draw(2.5, dtype=np.float32)
    assert x.dtype == np.float32
    assert_uniform(polya_gamma_cdf(x.astype(float), 2.5))


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
def test_shapes(mode):
    """A shape or dtype lost on the way, or entries in another order."""
    z = np.array([[1e10, 2e10, 3e10], [4e10, 5e10, 6e10]])
    rng = symbolic_rng()
    for tilt in (z, z[0], z[0, 0], z.T):
        symbolic = pt.tensor("z", shape=(None,) * np.ndim(tilt))
        _, omega = polya_gamma(rng, symbolic)
        drawn = function([rng, symbolic], omega, mode=mode)(np.random.default_rng(0), tilt)
        assert drawn.shape == np.shape(tilt)
        np.testing.assert_allclose(2 * tilt * drawn, 1.0, rtol=1e-3)
