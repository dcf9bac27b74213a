"""One seed, one stream: the same bits from C, Numba and FAST_COMPILE, and an RNG that advances."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pymc.pytensorf import resolve_backend_compile_kwargs
from pytensor import function
from pytensor.compile.io import In
from pytensor.tensor.random import rng as symbolic_rng

from pymc_nnsteps.compile import in_numba
from pymc_nnsteps.random import (
    argmax_utilities,
    generalized_inverse_gaussian,
    piecewise_normal,
    polya_gamma,
    truncated_normal,
)
from pymc_nnsteps.random.op import uniform
from pymc_nnsteps.random.standard_normal import standard_normal
from tests.cases import slow
from tests.random.oracles import ACTIVATIONS

MODES = {
    "c": resolve_backend_compile_kwargs("c", None)["mode"],
    "numba": "NUMBA",
    "fast_compile": "FAST_COMPILE",
}


def draw_all(mode, dtype, sigma_ndim, seed=0):
    """All draws in one graph, over all shapes of sigma that the ops broadcast."""
    rng = symbolic_rng()
    mu, x = pt.matrix("mu", dtype=dtype), pt.matrix("x", dtype=dtype)
    sigma = pt.tensor("sigma", dtype=dtype, shape=(None,) * sigma_ndim)
    labels = pt.vector("labels", dtype="int8")
    next_rng, truncated = truncated_normal(rng, mu, sigma, 0.0, np.inf)
    next_rng, piecewise = piecewise_normal(next_rng, mu, sigma, x, 0.5, *ACTIVATIONS["hard_tanh"])
    next_rng, utilities = argmax_utilities(next_rng, mu, sigma, labels, x)
    next_rng, gig = generalized_inverse_gaussian(next_rng, mu, x**2, sigma)
    next_rng, omega = polya_gamma(next_rng, 10 * x)
    next_rng, two_pieces = piecewise_normal(next_rng, mu, sigma, x, 0.5, *ACTIVATIONS["relu"])
    next_rng, normal = standard_normal(next_rng, mu.shape, dtype)
    next_rng, level = uniform(next_rng, mu.shape)
    inputs = [In(rng, mutable=True), mu, x, sigma, labels]
    outputs = [next_rng, truncated, piecewise, utilities, gig, omega, two_pieces, normal]
    outputs.append(level.astype(dtype))
    compiled = function(inputs, outputs, mode=mode)

    data = np.random.default_rng(1)
    values = [*data.normal(size=(2, 500, 5)), np.full((5,) * sigma_ndim, 0.3)]
    values = [np.asarray(value, dtype) for value in values]
    generator = np.random.default_rng(seed)
    first = compiled(generator, *values, data.integers(0, 5, 500).astype("int8"))
    second = compiled(first[0], *values, data.integers(0, 5, 500).astype("int8"))
    return generator, first, second


@pytest.mark.parametrize(
    ("dtype", "sigma_ndim", "modes"),
    [slow("float64", 0, ["c", "numba"]), ("float32", 1, ["c", "fast_compile"])],
)
def test_backends_draw_the_same_bits(dtype, sigma_ndim, modes):
    """Another stream, other arithmetic (fastmath above all) or another dtype in some backend."""
    draws = {mode: draw_all(MODES[mode], dtype, sigma_ndim)[1:] for mode in modes}
    for name, calls in draws.items():
        for call, reference in zip(calls, draws["c"], strict=True):
            for value, expected in zip(call[1:], reference[1:], strict=True):
                assert value.dtype == dtype
                np.testing.assert_array_equal(value, expected, err_msg=name)
        first, second = calls
        for one, other in zip(first[1:], second[1:], strict=True):
            assert not np.any(one == other), "two successive draws repeat"
        assert second[0].bit_generator.state == draws["c"][1][0].bit_generator.state


def test_mutable_generator_is_advanced_in_place():
    """An op that the in-place rewrite passes by: a copy of the generator for each draw."""
    generator, first, second = draw_all(MODES["c"], "float64", 0)
    assert first[0] is generator
    assert second[0] is generator


def test_generator_is_left_alone_unless_mutable():
    """A caller's generator advanced behind its back."""
    rng = symbolic_rng()
    _, z = truncated_normal(rng, np.zeros(4), 1.0, 0.0, 1.0)
    compiled = function([rng], z, mode=MODES["c"])
    generator = np.random.default_rng(0)
    state = generator.bit_generator.state
    np.testing.assert_array_equal(compiled(generator), compiled(generator))
    assert generator.bit_generator.state == state


def test_whole_numbers_and_half_precision_are_computed_in_float():
    """``pm.Normal("Z", X @ W, 1)`` states its scale as an int8."""
    rng = symbolic_rng()
    labels, pieces = np.array([0, 2]), ACTIVATIONS["relu"]

    def draws(mu, sigma, x):
        return [
            truncated_normal(rng, mu, sigma, 0, 3)[1],
            argmax_utilities(rng, mu, sigma, labels, x)[1],
            piecewise_normal(rng, mu, sigma, x, sigma, *pieces)[1],
        ]

    x = np.array([[1, 0, 2], [0, 1, 1]])
    stated = [
        draw
        for kind in ("int8", "float16", "float32")
        for draw in draws(x.astype(kind), np.ones((), kind), x.astype(kind))
    ]
    compiled = function([rng], stated, mode=MODES["fast_compile"])
    results = np.reshape(compiled(np.random.default_rng(0)), (3, 3, *x.shape))
    np.testing.assert_array_equal(results, np.stack([results[-1]] * 3))


def test_shapes_that_do_not_broadcast():
    """Two parameters of equal size and different shape, paired element by element."""
    rng = symbolic_rng()
    mu, lower = pt.matrix("mu"), pt.matrix("lower")
    _, z = truncated_normal(rng, mu, 1.0, lower, np.inf)
    compiled = function([rng, mu, lower], z, mode=MODES["c"])
    with pytest.raises((AssertionError, ValueError)):
        compiled(np.random.default_rng(0), np.zeros((2, 3), mu.dtype), np.zeros((3, 2), mu.dtype))


def test_kernels_work_where_no_cache_can_be_written(monkeypatch):
    """An import error on a read-only installation."""

    def refuse(self):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("numba.core.dispatcher.Dispatcher.enable_caching", refuse)
    assert in_numba.jit(lambda x: x + 1, "")(1) == 2
