"""Generalised inverse Gaussians against quadrature, for all orders, strengths and scales."""

import itertools

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import function
from pytensor.tensor.random import rng as symbolic_rng
from scipy import special, stats

from pymc_nnsteps.random import generalized_inverse_gaussian
from pymc_nnsteps.random.generalized_inverse_gaussian import generalized_inverse_gaussian_kernel
from tests.cases import quick
from tests.random.oracles import generalized_inverse_gaussian_cdf
from tests.statistics import assert_moments, assert_uniform

N = 100_000
ORDERS = [0.0, 1e-4, 0.1, 0.3, 0.399, 0.41, 0.5, 0.9, 1.5, 7.0, 300.0]
OMEGAS = [1e-12, 1e-3, 0.05, 0.199, 0.201, 0.6, 3.0, 40.0]


def draw(nu, delta2, lambda2, n=N, seed=0, dtype=np.float64, rng=None):
    params = (np.array([value], dtype) for value in (nu, delta2, lambda2))
    rng = np.random.default_rng(seed) if rng is None else rng
    return generalized_inverse_gaussian_kernel(rng, *params, np.empty(n, dtype))


def check(nu, delta2, lambda2, n=N):
    x = draw(nu, delta2, lambda2, n)
    assert_uniform(generalized_inverse_gaussian_cdf(x, nu, delta2, lambda2))


@pytest.mark.parametrize("order", quick(ORDERS, {0.0, 0.1, 0.399, 0.5, 1.5, 300.0}))
@pytest.mark.parametrize("omega", OMEGAS)
def test_order_and_omega_have_their_cdf(order, omega):
    """A wrong proposal or acceptance, a seam between two of them, a sign or a scale."""
    nu, scale = (order, 0.2) if omega in OMEGAS[::2] else (-order, 3.0)
    check(nu, omega * scale, omega / scale)


@pytest.mark.slow
@pytest.mark.parametrize(("nu", "omega"), [(0.0, 0.7), (-1.5, 3.0), (0.9, 0.3), (0.2, 0.1)])
def test_bulk_has_its_cdf(nu, omega):
    """A strength that is off by 2 % in the acceptance alone, where it moves the variance by 1 %."""
    check(nu, 0.2 * omega, omega / 0.2, n=1_500_000)


@pytest.mark.parametrize("nu", [-1e7, -1e5, -1e3, 1e4, 1e6])
@pytest.mark.parametrize("omega", [1e-12, 1.0, 1e3, 1e6])
def test_large_orders_have_their_cdf(nu, omega):
    """Rounding that is coarser than the distribution: its relative sd is 1e-3 or less."""
    check(nu, 2 * omega, omega / 2, n=30_000)


@pytest.mark.parametrize("nu", [-3.3, -0.5, 0.0, 0.2, 1.0])
def test_large_omega_has_its_cdf(nu):
    """A skewness lost or invented where the distribution is almost symmetric."""
    check(nu, 2e5, 3e6, n=30_000)


@pytest.mark.parametrize("nu", [0.05, 0.3, 0.5, 1.0, 4.0, 1e5])
def test_boundaries_are_gamma_and_inverse_gamma(nu):
    """A factor 2 in the rate; delta and lambda exchanged."""
    assert_uniform(stats.gamma(nu, scale=2 / 3).cdf(draw(nu, 0.0, 3.0)))
    assert_uniform(stats.invgamma(nu, scale=3 / 2).cdf(draw(-nu, 3.0, 0.0)))


@pytest.mark.parametrize("nu", [0.02, 0.3, 0.45, 0.5, 2.0])
def test_approach_to_the_boundary(nu):
    """A left end of the plateau that is lost, or invented, when it is far away."""
    assert_uniform(stats.gamma(nu, scale=2 / 3).cdf(draw(nu, 1e-290, 3.0)))


def test_logarithm_is_uniform_on_a_long_plateau():
    """Draws that underflow, or a plateau cut short: log10 x fills -200 .. 200."""
    x = draw(0.0, 2e-200, 2e-200)
    assert_uniform((np.log10(x) + 200) / 400)


@pytest.mark.parametrize(("nu", "omega"), [(0.0, 0.7), (0.1, 0.02), (-0.5, 2.0), (-1.5, 1.0)])
def test_moments(nu, omega):
    """A scale that is off, seen without the oracle: ratios of Bessel functions."""
    mean, square = special.kv([nu + 1, nu + 2], omega) / special.kv(nu, omega) * [0.3, 0.3**2]
    assert_moments(draw(nu, 0.3 * omega, omega / 0.3, n=1_000_000), mean, square - mean**2)


@pytest.mark.parametrize("nu", [-3.0, -0.5, 0.0, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("exponent", [-660, 660])
def test_scale(nu, exponent):
    """Overflow of delta/lambda, or a draw that depends on the units: scales of 1e-200 and 1e200."""
    for delta2, lambda2 in [(1.5, 0.7), (1e-5, 1e-4)]:
        x = draw(nu, delta2, lambda2, n=1000)
        scaled = draw(nu, np.ldexp(delta2, exponent), np.ldexp(lambda2, -exponent), n=1000)
        np.testing.assert_array_equal(scaled, np.ldexp(x, exponent))


@pytest.mark.parametrize("nu", [0.1, 0.5, 0.8, 30.0])
@pytest.mark.parametrize("delta2", [0.0, 1e-3, 5.0])
def test_reciprocal(nu, delta2):
    """A sign of nu that does not exchange delta and lambda."""
    x, reciprocal = draw(nu, delta2, 3.0, n=1000), draw(-nu, 3.0, delta2, n=1000)
    np.testing.assert_allclose(x * reciprocal, 1.0, rtol=1e-14)


@pytest.mark.parametrize("order", [0.0, 1e-9, 0.1, 0.399, 0.4, 0.7, 2.0, 1e3, 1e9, 1e20, 1e31])
@pytest.mark.parametrize("omega", [1e-150, 1e-12, 1e-3, 0.1, 0.199, 0.2, 0.5, 2.0, 1e6, 1e31])
def test_few_proposals_are_rejected(order, omega):
    """An envelope that is loose somewhere: a proposal takes two random words or a little more."""
    n = 5000
    philox = np.random.Philox(0)
    draw(order, omega, omega, n, rng=np.random.Generator(philox))
    words = 4 * philox.state["state"]["counter"][0]
    assert words / n < 2.1 / 0.6


def test_beyond_floating_point_the_draw_is_the_mode():
    """Overflow or an endless loop where the sd is less than the spacing of numbers."""
    # nu = 3, delta^2 = 8 and lambda^2 = 2, times 1e200: mode (3 + sqrt(9 + 16)) / 2
    np.testing.assert_allclose(draw(3e200, 8e200, 2e200, n=3), 4.0, rtol=1e-15)
    np.testing.assert_allclose(draw(-3e200, 2e200, 8e200, n=3), 0.25, rtol=1e-15)


def test_any_input_terminates():
    """An endless loop on NaN, infinities or overflow; NaN from valid input."""
    values = [np.nan, np.inf, -np.inf, 0.0, 0.3, 0.5, -0.5, 1.0, -1.0, 1e32]
    values += [1e-300, 1e300, -1e300, 5e-324, 1.7e308]
    nu, delta2, lambda2 = np.array(list(itertools.product(values, repeat=3))).T.copy()
    rng = np.random.default_rng(0)
    x = generalized_inverse_gaussian_kernel(rng, nu, delta2, lambda2, np.empty(nu.size))
    valid = (
        np.isfinite(nu) & (delta2 >= 0) & (delta2 < np.inf) & (lambda2 >= 0) & (lambda2 < np.inf)
    )
    valid &= ((delta2 > 0) | (nu > 0)) & ((lambda2 > 0) | (nu < 0))
    assert np.isnan(x[~valid]).all()
    assert np.all(x[valid] >= 0)


@pytest.mark.parametrize("varied", range(3))
def test_parameters_that_are_shared(varied):
    """A proposal not chosen anew for each element when one parameter is an array."""
    n = 500
    values = np.geomspace(1e-5, 3.0, n)
    for nu, delta2 in [(2.0, 1.0), (-0.3, 0.01), (0.5, 1.0)]:
        drawn = []
        for size in (1, n):
            params = [np.full(size, value) for value in (nu, delta2, 2.0)]
            params[varied] = values
            rng = np.random.default_rng(0)
            out = generalized_inverse_gaussian_kernel(rng, *params, np.empty(n))
            drawn.append(out)
        np.testing.assert_array_equal(*drawn)


def test_each_element_has_its_own_parameters():
    """State of one element that leaks into the next."""
    nu = np.array([-2.0, 0.2, 0.5, 3.0, 0.7, 0.0])
    delta2 = np.array([1.0, 0.01, 2.0, 0.0, 1e-6, 5.0])
    lambda2 = np.array([0.0, 0.02, 1.0, 2.0, 1.0, 0.3])
    params = [np.tile(v, 50_000) for v in (nu, delta2, lambda2)]
    rng = np.random.default_rng(0)
    x = generalized_inverse_gaussian_kernel(rng, *params, np.empty(300_000))
    for column, *own in zip(x.reshape(-1, 6).T, nu, delta2, lambda2, strict=True):
        assert_uniform(generalized_inverse_gaussian_cdf(column, *own))


@pytest.mark.parametrize("nu", [-1.5, -0.5, 0.25])
def test_float32(nu):
    """Arithmetic in float32 instead of float64."""
    x = draw(nu, 0.125, 0.25, dtype=np.float32)
    assert x.dtype == np.float32
    assert_uniform(generalized_inverse_gaussian_cdf(x, nu, 0.125, 0.25))


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
def test_parameters_broadcast(mode):
    """A parameter raveled in the wrong order, or a shape or dtype lost on the way."""
    column, row = np.array([[1e16], [4e16]]), pt.vector("row", shape=(3,))
    rng = symbolic_rng()
    _, x = generalized_inverse_gaussian(rng, 1, column * row, row)
    assert x.type.shape == (2, 3)
    drawn = function([rng, row], x, mode=mode)(np.random.default_rng(0), np.array([1.0, 4.0, 9.0]))
    np.testing.assert_allclose(drawn, np.sqrt(column * np.ones(3)), rtol=1e-3)
