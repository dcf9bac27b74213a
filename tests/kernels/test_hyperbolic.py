"""The hyperbolic tangent of arrays beside NumPy's."""

import numpy as np

from pymc_nnsteps.kernels.hyperbolic import tanh

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-300, -1e-307, 19.9, -20.1, 1e300]


def test_values():
    """A wrong coefficient, or one doubling too few."""
    x = np.concatenate([np.linspace(-25, 25, 100_001), np.geomspace(1e-12, 1, 1000), SPECIAL])
    np.testing.assert_allclose(tanh(x), np.tanh(x), rtol=1.5e-15)
    np.testing.assert_array_equal(np.signbit(tanh(x)), np.signbit(np.tanh(x)))


def test_layouts():
    """Arrays that are not contiguous, or empty."""
    x = np.random.default_rng(0).normal(size=(6, 8))
    for each in (x, x.T, x[::2, 1:], x[:0]):
        np.testing.assert_allclose(tanh(each), np.tanh(each), rtol=1e-14)
