"""Normals behind a piecewise-linear activation against quadrature in log space."""

import itertools

import numpy as np
import pytest
from scipy import special

from pymc_nnsteps.random.piecewise_normal import piecewise_normal_kernel
from pymc_nnsteps.random.standard_normal import AT_A_TIME
from pymc_nnsteps.random.two_pieces import ENOUGH, WORTH_A_TURN
from tests.random.oracles import ACTIVATIONS, activation, piecewise_normal_pit
from tests.statistics import assert_proportion, assert_uniform


def draw(mu, sigma, x, tau, act, n, seed=0, dtype=np.float64):
    mu, sigma, x, tau = (np.array([value], dtype) for value in (mu, sigma, x, tau))
    rng = np.random.default_rng(seed)
    return piecewise_normal_kernel(rng, mu, sigma, x, tau, *act, np.empty(n, dtype))


def check(act, mu, sigma, x, tau, n, **kwargs):
    z = draw(mu, sigma, x, tau, act, n, **kwargs)
    u, probabilities = piecewise_normal_pit(z.astype(float), mu, sigma, x, tau, act)
    pieces = np.searchsorted(act.knots, z)
    for k, probability in enumerate(probabilities):
        assert_proportion(pieces == k, probability)
    assert_uniform(u)


def random_activation(rng):
    k = rng.integers(1, 6)
    knots = np.sort(rng.normal(size=k))
    return activation(knots, rng.normal(size=k + 1), rng.normal(size=k + 1))


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("seed", range(3))
def test_bulk_has_its_cdf(name, seed):
    """A piece's probability, mean or variance off by 1 or 2 %, where pieces compete."""
    act, rng = ACTIVATIONS[name], np.random.default_rng(seed)
    mu, x = rng.normal(size=2)
    sigma, tau = np.exp(0.7 * rng.normal(size=2))
    check(act, mu, sigma, x, tau, 300_000)


@pytest.mark.parametrize("seed", range(20))
def test_random_activations_have_their_cdf(seed):
    """A wrong log density carried from knot to knot: many pieces, jumps, unequal scales."""
    rng = np.random.default_rng(seed)
    act = random_activation(rng)
    mu, x = 2 * rng.normal(size=2)
    sigma, tau = np.exp(1.2 * rng.normal(size=2))
    check(act, mu, sigma, x, tau, 50_000)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(
    ("mu", "x"), [(-1e3, 0.7), (1e3, -1e3), (-1e3, 1e3), (-0.5, -1e6), (1e6, 1e6), (-1e6, 0.3)]
)
def test_tails_have_their_cdf(name, mu, x):
    """Overflow, or odds lost to cancellation, a million noise scales from the activation."""
    check(ACTIVATIONS[name], mu, 1.0, x, 1.0, 50_000)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "abs", "hard_tanh", "steps"])
@pytest.mark.parametrize(("sigma", "tau"), [(1.0, 1e-4), (1e-4, 1.0), (1e-2, 1e-2)])
@pytest.mark.parametrize(("mu", "x"), [(-0.004, -0.003), (0.003, 0.02), (-1.0, 1.001)])
def test_unequal_scales_have_their_cdf(name, sigma, tau, mu, x):
    """Cancellation in a piece's mean, and pieces much narrower or wider than the noise."""
    check(ACTIVATIONS[name], mu, sigma, x, tau, 50_000)


def test_relu_odds_far_from_both_pieces():
    """Saturated or cancelled odds where x is far below a ReLU.

    Both pieces meet at z = 0 with the same density, and with mu = 0 and sigma = tau they
    weigh as Mills ratios of 0 and of -x / sqrt(2) sds of 1 / sqrt(2).
    """
    for x in (-8.0, -100.0):
        z = draw(0.0, 1.0, x, 1.0, ACTIVATIONS["relu"], 2_000_000)
        positive = np.sqrt(0.5) * special.erfcx(-x / 2)
        assert_proportion(z > 0, positive / (positive + 1))


@pytest.mark.parametrize("n", [ENOUGH - 1, AT_A_TIME + WORTH_A_TURN - 2])
@pytest.mark.parametrize("parameters", [(0.3, 1.0, -0.2, 0.7), (1.2, 1.0, -0.6, 0.7)])
def test_draws_that_are_proposed_alone_have_their_cdf(parameters, n):
    """Proposals that were rejected left in place, where draws are few or the last turn is not full.

    With the second parameters both pieces' modes lie outside them.
    """
    act = ACTIVATIONS["relu"]
    z = np.concatenate([draw(*parameters, act, n, seed) for seed in range(200_000 // n)])
    u, probabilities = piecewise_normal_pit(z, *parameters, act)
    assert_proportion(z > 0, probabilities[1])
    assert_uniform(u)


def test_excess_over_a_knot_keeps_relative_precision():
    """A draw computed as mean + sd * normal, whose rounding is coarser than its distribution."""
    z = draw(-1e6, 1.0, 0.0, 1.0, activation([0], [0, 0], [1e9, 0]), 100_000)
    assert np.all(z > 0)
    assert np.unique(z).size > 99_000
    assert_uniform(-np.expm1(-1e6 * z))


def test_arrays_equal_scalars():
    """Constants of a piece not recomputed for each element when sigma or tau is an array."""
    rng = np.random.default_rng(0)
    n = 1000
    mu, x = rng.normal(size=(2, n))
    for act in ACTIVATIONS.values():
        drawn = []
        for sigma, tau in itertools.product(*[(np.full(1, 0.5), np.full(n, 0.5))] * 2):
            out = np.empty(n)
            generator = np.random.default_rng(1)
            piecewise_normal_kernel(generator, mu, sigma, x, tau, *act, out)
            drawn.append(out)
        for other in drawn[1:]:
            np.testing.assert_array_equal(drawn[0], other)


@pytest.mark.parametrize("name", ["steps", "relu"])
def test_each_element_has_its_own_parameters(name):
    """State of one element that leaks into the next, or proposals of another that waits."""
    rng = np.random.default_rng(0)
    act = ACTIVATIONS[name]
    mu, x = 2 * rng.normal(size=(2, 8))
    sigma, tau = np.exp(rng.normal(size=(2, 8)))
    repeated = [np.tile(v, 20_000) for v in (mu, sigma, x, tau)]
    z = piecewise_normal_kernel(rng, *repeated, *act, np.empty(160_000)).reshape(-1, 8)
    for i in range(8):
        u, _ = piecewise_normal_pit(z[:, i].copy(), mu[i], sigma[i], x[i], tau[i], act)
        assert_uniform(u)


@pytest.mark.parametrize("name", ["relu", "abs", "steps"])
def test_float32(name):
    """Arithmetic in float32 instead of float64."""
    check(ACTIVATIONS[name], -0.25, 0.5, -0.125, 0.75, 100_000, dtype=np.float32)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_finite_input_gives_finite_draws(name):
    """NaN, overflow or an endless loop over sixteen orders of magnitude, alone and combined."""
    values = [0.0, 1e-8, -1e-8, 1.0, -1.0, 1e8, -1e8]
    scales = [1e-8, 1.0, 1e8]
    grid = np.array(list(itertools.product(values, scales, values, scales))).T.copy()
    rng = np.random.default_rng(0)
    z = piecewise_normal_kernel(rng, *grid, *ACTIVATIONS[name], np.empty(grid.shape[1]))
    assert np.isfinite(z).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_any_input_terminates(name):
    """An endless loop on NaN, infinities or overflow."""
    values = [np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, 1e-300, 1e300, 5e-324, 1e8]
    grid = np.array(list(itertools.product(values, repeat=4))).T.copy()
    rng = np.random.default_rng(0)
    z = piecewise_normal_kernel(rng, *grid, *ACTIVATIONS[name], np.empty(grid.shape[1]))
    assert np.isnan(z[np.isnan(grid).any(0) | (grid[[1, 3]] == 0).any(0)]).all()


def test_wrong_number_of_pieces():
    """Memory read out of bounds."""
    with pytest.raises(ValueError, match="K knots"):
        draw(0.0, 1.0, 0.0, 1.0, activation([0], [0, 1, 1], [0, 0]), 3)
