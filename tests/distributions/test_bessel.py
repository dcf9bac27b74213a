"""The Bessel function K and its derivatives beside SciPy, closed forms and 40-digit arithmetic."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pymc.pytensorf import resolve_backend_compile_kwargs
from pytensor import function, grad
from pytensor.gradient import NullTypeGradError
from scipy import special

from pymc_nnsteps.distributions.generalized_inverse_gaussian import (
    log_bessel_integral,
    log_integral,
    mean_phi,
)

MODES = {
    "c": resolve_backend_compile_kwargs("c", None)["mode"],
    "numba": "NUMBA",
    "fast_compile": "FAST_COMPILE",
}
# (nu, omega, log K_nu(omega)), by mpmath 1.4 with 40 digits.
REFERENCE = [
    (0.0, 1e-12, 3.323126019084379011696),
    (0.25, 1e-100, 58.33278946412926057576),
    (0.5, 1e5, -100005.5306713798403868),
    (3.5, 0.01, 19.05192720473858973725),
    (1000.0, 1e-3, 13505.42973557045337774),
    (1000.5, 2000.0, -1758.246023649444095045),
    (12345.6, 1.0, 112515.809731056986461),
    (1e5, 10.0, 890343.224333063797783),
    (2.0, 1e6, -1000006.681962051338347),
]
STRENGTHS = [1e-12, 1e-3, 0.2, 1.0, 9.0, 1e3, 1e6]


def log_k(nu, omega):
    r = np.hypot(nu, omega)
    a = (r + nu) / 2
    growth = r - nu * np.arcsinh(nu / omega)
    return log_integral(a, omega**2 / (4 * a)) - growth - np.log(2)


@pytest.mark.parametrize(("nu", "omega", "expected"), REFERENCE)
def test_reference_values(nu, omega, expected):
    """Overflow, underflow or an expansion used where it is not accurate."""
    assert log_k(nu, omega) == pytest.approx(expected, rel=1e-15, abs=1e-13)


@pytest.mark.parametrize("nu", [0.0, 0.1, 0.5, 1.0, 2.7, 20.0])
def test_scipy(nu):
    """The same where SciPy neither overflows nor underflows."""
    omega = np.geomspace(1e-6, 1e4, 50)
    expected = np.log(special.kve(nu, omega)) - omega
    np.testing.assert_allclose([log_k(nu, w) for w in omega], expected, rtol=3e-14, atol=3e-14)


@pytest.mark.parametrize("a", [1e-300, 1e-8, 0.3, 0.999, 1.0, 1.5, 40.0])
def test_gamma_boundary(a):
    """A wrong recurrence where one argument is 0 and the integrand decays slowly."""
    expected = special.gammaln(a) + a - a * np.log(a)
    for value in (log_integral(a, 0.0), log_integral(0.0, a)):
        assert value == pytest.approx(expected, rel=1e-13, abs=1e-13)
    assert mean_phi(a, 0.0) == pytest.approx(np.log(a) - special.psi(a), rel=1e-13)
    assert mean_phi(0.0, a) == 0.0


@pytest.mark.parametrize("r", [1e8, 1e30, 1e300])
def test_laplace_limit(r):
    """An endless loop, or phi(t) rounded to 0, where the integrand is very narrow."""
    for share in (0.0, 0.1, 0.5):
        a, b = r * (1 - share), r * share
        assert log_integral(a, b) == pytest.approx(np.log(2 * np.pi / r) / 2, abs=1e-8)
        assert mean_phi(a, b) == pytest.approx(0.5 / r, rel=1e-7)


@pytest.mark.parametrize("a", STRENGTHS)
@pytest.mark.parametrize("b", STRENGTHS)
def test_derivatives(a, b):
    """A mean over the wrong half of the integral, or of the wrong sign."""
    step = 1e-4
    for mean, low, high in [
        (a * mean_phi(a, b), (a * np.exp(-step), b), (a * np.exp(step), b)),
        (b * mean_phi(b, a), (a, b * np.exp(-step)), (a, b * np.exp(step))),
    ]:
        difference = (log_integral(*low) - log_integral(*high)) / (2 * step)
        assert mean == pytest.approx(difference, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("arguments", [(-1.0, 1.0), (0.0, 0.0), (np.nan, 1.0), (np.inf, 1.0)])
def test_invalid_arguments(arguments):
    """An endless loop."""
    assert np.isnan(log_integral(*arguments))
    assert np.isnan(mean_phi(*arguments))


@pytest.mark.parametrize(
    ("mode", "dtype"), [*((mode, "float64") for mode in MODES), (next(iter(MODES)), "float32")]
)
def test_backends(mode, dtype):
    """A backend in which the Op is missing, returns another dtype or does not broadcast."""
    a, b = pt.vector("a", dtype=dtype), pt.matrix("b", dtype=dtype, shape=(None, 1))
    value = log_bessel_integral(a, b)
    compiled = function([a, b], [value, *grad(value.sum(), [a, b])], mode=MODES[mode])
    args = np.array([0.5, 2.0], dtype), np.array([[0.25], [1.0], [3.0]], dtype)
    results = compiled(*args)
    means = np.vectorize(mean_phi)
    expected = [
        np.vectorize(log_integral)(*args),
        -means(*args).sum(0),
        -means(*args[::-1]).sum(1, keepdims=True),
    ]
    for result, values in zip(results, expected, strict=True):
        assert result.dtype == dtype
        np.testing.assert_allclose(result, values, rtol=1e-6 if dtype == "float32" else 1e-14)


def test_second_derivatives_are_refused():
    """A second derivative that is silently 0."""
    a, b = pt.scalars("a", "b")
    first = grad(log_bessel_integral(a, b), a)
    with pytest.raises((NullTypeGradError, NotImplementedError)):
        grad(first, b)
