"""The hyperbolic tangent of arrays beside NumPy's."""

import numpy as np
import pytest

from pymc_nnsteps.kernels.hyperbolic import tanh, tanh_single

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-300, -1e-307, 19.9, -20.1, 1e300]


@pytest.mark.parametrize(
    ("function", "dtype", "rtol"), [(tanh, "float64", 1.5e-15), (tanh_single, "float32", 5e-7)]
)
def test_values(function, dtype, rtol):
    """A wrong coefficient, or one doubling too few."""
    x = np.concatenate([np.linspace(-25, 25, 100_001), np.geomspace(1e-12, 1, 1000), SPECIAL])
    with np.errstate(over="ignore", under="ignore"):
        x = x.astype(dtype)
    found, expected = function(x), np.tanh(x.astype("float64"))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=0)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_layouts():
    """Arrays that are not contiguous, or empty."""
    x = np.random.default_rng(0).normal(size=(6, 8))
    for each in (x, x.T, x[::2, 1:], x[:0]):
        np.testing.assert_allclose(tanh(each), np.tanh(each), rtol=1e-14)
