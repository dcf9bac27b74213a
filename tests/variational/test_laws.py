"""Moments of generalised inverse Gaussian laws against quadrature and known functions."""

import numpy as np
import pytest
from scipy import integrate, special, stats

from pymc_nnsteps.variational.factors import GIG, log_bessel, relative_entropy


def moment(law, power):
    """``log`` of the integral of ``x**power`` times the density without its constant."""
    nu, delta2, lambda2 = law.nu + power, float(law.delta2), float(law.lambda2)

    def exponent(t):
        return nu * t - 0.5 * (delta2 * np.exp(-t) + lambda2 * np.exp(t))

    centre = np.log(GIG(nu, law.delta2, law.lambda2).centre)
    width = 12 / np.sqrt(0.5 * (delta2 * np.exp(-centre) + lambda2 * np.exp(centre)))
    grid = np.linspace(centre - 2 * width, centre + 2 * width, 40_001)
    values = exponent(grid)
    top = values.max()
    return top + np.log(integrate.simpson(np.exp(values - top), x=grid))


@pytest.mark.parametrize("nu", [-1276.5, -60.2, -2.0, -1.0, -0.5, 0.0, 0.2, 0.5, 0.9, 1.5, 40.3])
@pytest.mark.parametrize(("delta2", "lambda2"), [(0.7, 1.9), (12.0, 0.3), (1300.0, 2.0)])
def test_moments(nu, delta2, lambda2):
    law = GIG(nu, np.float64(delta2), np.float64(lambda2))
    constant = moment(law, 0)
    np.testing.assert_allclose(law.log_constant, constant, rtol=1e-10, atol=1e-8)
    np.testing.assert_allclose(np.log(law.mean), moment(law, 1) - constant, atol=1e-8)
    np.testing.assert_allclose(np.log(law.mean_inverse), moment(law, -1) - constant, atol=1e-8)
    variance = np.exp(moment(law, 2) - constant) - np.exp(2 * (moment(law, 1) - constant))
    np.testing.assert_allclose(law.standard_deviation, np.sqrt(variance), rtol=1e-3)


def test_limits():
    """Where one of delta and lambda is zero the law is gamma or inverse gamma."""
    zero = np.zeros(())
    inverse, gamma = GIG(-2.5, np.float64(3.0), zero), GIG(2.5, zero, np.float64(3.0))
    known = stats.invgamma(2.5, scale=1.5), stats.gamma(2.5, scale=2 / 3)
    for law, same in zip((inverse, gamma), known, strict=True):
        np.testing.assert_allclose(law.mean, same.mean())
        np.testing.assert_allclose(law.standard_deviation, same.std())
        log_density = (law.nu - 1) * np.log(0.4) - 0.5 * (law.delta2 / 0.4 + law.lambda2 * 0.4)
        np.testing.assert_allclose(log_density - law.log_constant, same.logpdf(0.4))
    np.testing.assert_allclose(gamma.mean_inverse, 3.0 / (2 * 1.5))
    np.testing.assert_allclose(inverse.mean_inverse, 5 / 3)
    assert GIG(-0.7, np.float64(1.0), zero).mean == np.inf
    assert GIG(-1.7, np.float64(1.0), zero).standard_deviation == np.inf


def test_bessel_functions_of_any_size():
    x = np.array([1e-160, 1e-3, 2.0, 700.0])
    moderate = np.log(special.kve(3.2, x[1:])) - x[1:]
    np.testing.assert_allclose(log_bessel(-3.2, x)[1:], moderate)
    leading = special.gammaln(3.2) + 3.2 * np.log(2 / x[0]) - np.log(2)
    np.testing.assert_allclose(log_bessel(3.2, x)[0], leading)
    upward = np.logaddexp(log_bessel(1275.5, x), np.log(2 * 1276.5 / x) + log_bessel(1276.5, x))
    np.testing.assert_allclose(log_bessel(1277.5, x), upward, rtol=1e-12)


@pytest.mark.parametrize("nu", [-1.5, -0.5, 0.5])
def test_relative_entropy(nu):
    q, p = GIG(nu, np.float64(0.8), np.float64(1.3)), GIG(nu, np.float64(1.1), np.float64(0.4))
    x = stats.geninvgauss(nu, np.sqrt(0.8 * 1.3), scale=np.sqrt(0.8 / 1.3))
    other = stats.geninvgauss(nu, np.sqrt(1.1 * 0.4), scale=np.sqrt(1.1 / 0.4))
    expected = x.expect(lambda value: x.logpdf(value) - other.logpdf(value))
    np.testing.assert_allclose(relative_entropy(q, p), expected, rtol=1e-6)
    assert relative_entropy(q, q) == 0
