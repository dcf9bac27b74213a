"""Kernels in C++ and by Numba."""

import numpy as np
import pytest

from pymc_nnsteps.kernels import gaussian, translation
from pymc_nnsteps.kernels.jit import jit
from pymc_nnsteps.random.truncated_normal import truncated_normal_kernel


@jit
def kept_from_round_to_round(x):
    for i in range(len(x)):
        if i == 0:
            first = x[0]
        x[i] = first
    return x


def test_what_a_branch_of_a_loop_need_not_set_is_refused():
    """A kernel that keeps a value for all draws once gave zeros from the second draw on."""
    with pytest.raises(translation.UntranslatableError, match="set first before the loop"):
        translation.source(kept_from_round_to_round.__wrapped__)


def test_both_compilers_do_the_same_arithmetic():
    """Of a kernel with products, branches, parts of arrays and errors, and of one that draws."""
    rng = np.random.default_rng(0)
    design, weight = rng.normal(size=(9, 4)), rng.gamma(2.0, size=(3, 9))
    score, linear, noise = (rng.normal(size=(3, n)) for n in (9, 4, 4))
    given = design, weight, score, linear, np.ones((3, 4)), np.zeros((1, 1)), noise
    found, expected = (f(*given) for f in (gaussian.draw_labels, gaussian.draw_labels.numba))
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    kernel = truncated_normal_kernel
    given = np.zeros(500), np.ones(1), np.full(1, 0.5), np.array([np.inf])
    draws = [f(np.random.default_rng(1), *given, np.empty(500)) for f in (kernel, kernel.numba)]
    np.testing.assert_array_equal(*draws)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        gaussian.factorise(-np.eye(2))


def test_what_is_not_known_is_refused():
    @jit
    def kernel(x):
        return np.fft.fft(x)

    with pytest.raises(translation.UntranslatableError, match="fft"):
        translation.source(kernel.__wrapped__)
