"""Error functions and tangents of arrays beside SciPy's and NumPy's."""

import numpy as np
import pytest
from scipy import special

from pymc_nnsteps.compile import error_functions

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-310, -1e-300, 0.5, -0.5, 26.5, 26.7, -40.0]


@pytest.mark.parametrize("name", ["erf", "erfc"])
def test_values(name):
    """A wrong coefficient, or a branch that starts at the wrong place."""
    x = np.concatenate([np.linspace(-8, 26, 100_001), np.geomspace(1e-12, 1, 1000)])
    expected = getattr(special, name)(x)
    # Where erfc is tiny its relative error is that of x^2, in SciPy as well as here.
    rtol = 1e-15 + 2e-16 * (x**2 if name == "erfc" else 0)
    error = np.abs(getattr(error_functions, name)(x) - expected)
    assert np.all(error <= 2 * rtol * expected.__abs__())


@pytest.mark.parametrize("name", ["erf", "erfc"])
def test_special_values(name):
    x = np.array(SPECIAL)
    values, expected = getattr(error_functions, name)(x), getattr(special, name)(x)
    np.testing.assert_allclose(values, expected, rtol=1e-13)
    np.testing.assert_array_equal(np.signbit(values), np.signbit(expected))


@pytest.mark.parametrize("name", ["erf", "erfc"])
def test_layouts(name):
    """An array that is not contiguous, or that is overwritten."""
    x = np.random.default_rng(0).normal(size=(6, 8))
    for each in (x, x.T, x[::2, 1:], x[:0], x[0, 0]):
        before = each.copy()
        np.testing.assert_allclose(
            getattr(error_functions, name)(each), getattr(special, name)(each), rtol=1e-14
        )
        np.testing.assert_array_equal(each, before)


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-15), ("float32", 1e-7)])
def test_tangents(dtype, rtol):
    """A wrong power of two, digits lost about zero, or entries in another order."""
    x = np.concatenate([np.linspace(-25, 25, 100_001), np.geomspace(1e-12, 1, 1000), SPECIAL])
    with np.errstate(under="ignore"):
        x = x[: len(x) // 4 * 4].reshape(4, -1).astype(dtype)
    for each in (x, x.T, x[::2, 1:], x[:0]):
        found, expected = error_functions.tanh.numba(each), np.tanh(each.astype("float64"))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=0)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
