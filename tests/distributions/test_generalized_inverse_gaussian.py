"""The generalised inverse Gaussian as a prior: density, gradients, limits, draws, NUTS."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from pymc.pytensorf import resolve_backend_compile_kwargs
from pytensor import config, function, grad
from scipy import special, stats

from pymc_nnsteps.distributions import GeneralizedInverseGaussian
from tests.random.oracles import generalized_inverse_gaussian_cdf
from tests.statistics import assert_moments, assert_uniform, batch_means_z_scores

MODES = {"c": resolve_backend_compile_kwargs("c", None)["mode"], "numba": "NUMBA"}
MODERATE = [(0.0, 1.0, 1.0), (1.3, 0.5, 2.0), (-3.0, 1.0, 0.2), (40.0, 3.0, 4.0), (0.2, 1e-3, 1e-2)]
EXTREME = [
    (-1e5, 1e-3, 5.0),
    (3.0, 1e6, 1.0),
    (0.3, 1e-120, 1e80),
    (-0.4, 1e-50, 1e-40),
]


def log_density(value, nu, delta, lam):
    return pm.logp(GeneralizedInverseGaussian.dist(nu, delta, lam), value)


@pytest.fixture(scope="module", params=MODES)
def compiled(request):
    """logp and its gradient in value, nu, delta and lam, of scalars."""
    args = [pt.scalar(name) for name in ("value", "nu", "delta", "lam")]
    value = log_density(*args)
    return function(args, [value, *grad(value, args)], mode=MODES[request.param])


@pytest.mark.parametrize(("nu", "delta", "lam"), MODERATE)
def test_logp_is_scipys(nu, delta, lam):
    """A factor 2 in delta^2 or lambda^2, the wrong constant, the wrong scale."""
    x = np.exp(np.linspace(-3, 3, 13)) * delta / lam
    expected = stats.geninvgauss(nu, delta * lam, scale=delta / lam).logpdf(x)
    np.testing.assert_allclose(log_density(x, nu, delta, lam).eval(), expected, rtol=1e-13)


@pytest.mark.parametrize(("nu", "delta", "lam"), MODERATE + EXTREME)
def test_density_integrates_to_one(nu, delta, lam, compiled):
    """A constant that is wrong, or lost to overflow or cancellation, at any order and scale."""
    r = np.hypot(nu, delta * lam)
    mode = np.log((r + nu) / lam**2) if nu >= 0 else np.log(delta**2 / (r - nu))
    reach = 2 * np.log1p(1 / (delta * lam)) + 20 if r < 1 else 9 / np.sqrt(r) + 36 / r
    y = np.linspace(mode - reach, mode + reach, 4001)
    density = np.exp([compiled(x, nu, delta, lam)[0] for x in np.exp(y)] + y)
    assert np.trapezoid(density, y) == pytest.approx(1.0, abs=1e-9)


def test_boundaries_are_gamma_and_inverse_gamma():
    """A limit that is not reached, or taken with delta and lambda exchanged."""
    x = np.geomspace(1e-4, 1e3, 20)
    for nu in (0.02, 0.7, 1.0, 6.0, 1e4):
        gamma = log_density(x, nu, 0.0, 3.0).eval()
        np.testing.assert_allclose(gamma, stats.gamma(nu, scale=2 / 9).logpdf(x), rtol=1e-11)
        inverse = log_density(x, -nu, 3.0, 0.0).eval()
        np.testing.assert_allclose(inverse, stats.invgamma(nu, scale=9 / 2).logpdf(x), rtol=1e-11)


def test_far_tails_at_the_boundaries():
    """0 times infinity where the value is further from the mode than exp(709)."""
    gamma, inverse = log_density(1e-300, 2.0, 0.0, 1e-15), log_density(1e300, -2.0, 1e-15, 0.0)
    expected = np.log(1e-300) + 2 * np.log(0.5e-30)
    assert gamma.eval() == pytest.approx(expected, rel=1e-14)
    assert inverse.eval() == pytest.approx(expected - 2 * np.log(1e300), rel=1e-14)


@pytest.mark.parametrize(("nu", "delta", "lam"), [*MODERATE, (-0.5, 2.0, 3.0), (1e4, 50.0, 100.0)])
def test_gradients(nu, delta, lam, compiled):
    """A term left out of the derivative of the constant; a sign or a branch of nu."""
    mode = np.exp(np.arcsinh(nu / (delta * lam))) * delta / lam
    for point in ([mode * 0.9, nu, delta, lam], [mode * 1.2, nu, delta, lam]):
        gradient = compiled(*point)[1:]
        for i, derivative in enumerate(gradient):
            step = 1e-5 * max(abs(point[i]), 1e-3)
            low, high = (
                compiled(*[*point[:i], point[i] + s, *point[i + 1 :]])[0] for s in (-step, step)
            )
            difference = (high - low) / (2 * step)
            assert derivative == pytest.approx(difference, rel=1e-5, abs=1e-6)


def test_gradients_at_the_boundaries(compiled):
    """0/0 in the gradient of a Gamma's or an inverse Gamma's parameters."""
    x, nu, strength = 0.7, 0.6, 1.3
    by_value, by_nu, by_rate = (
        (nu - 1) / x - strength**2 / 2,
        np.log(x * strength**2 / 2) - special.psi(nu),
        2 * nu / strength - strength * x,
    )
    expected = [by_value, by_nu, 0.0, by_rate]
    np.testing.assert_allclose(compiled(x, nu, 0.0, strength)[1:], expected, rtol=1e-13)
    # the density of 1/x, with Jacobian -2 log x
    expected = [-by_value / (1 / x) ** 2 - 2 * x, -by_nu, by_rate, 0.0]
    np.testing.assert_allclose(compiled(1 / x, -nu, strength, 0.0)[1:], expected, rtol=1e-13)


def test_constant_zeros():
    """A division by the constant 0 while PyTensor simplifies the graph."""
    with pm.Model() as model:
        strength = pm.HalfNormal("strength")
        GeneralizedInverseGaussian("x", 0.6, 0.0, strength)
        GeneralizedInverseGaussian("y", -0.6, strength, 0.0)
    with config.change_flags(on_opt_error="raise"):
        assert np.isfinite(model.compile_dlogp()(model.initial_point())).all()


def test_outside_the_support():
    np.testing.assert_array_equal(log_density([-1.0, 0.0], 1.0, 1.0, 1.0).eval(), -np.inf)


def test_invalid_parameters(compiled):
    """A sign lost in the square; a density that has no finite integral."""
    for params in [(1.0, -1.0, 1.0), (1.0, 1.0, -1.0), (-1.0, 0.0, 1.0), (0.0, 1.0, 0.0)]:
        with pytest.raises(ParameterValueError, match="nu > 0 where delta = 0"):
            compiled(1.0, *params)
        assert np.isnan(pm.draw(GeneralizedInverseGaussian.dist(*params)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("nu", "delta", "lam"), [(-1.0, 1.0, 0.5), (0, 2, 3), (0.2, 1e-3, 1.0)])
def test_draws(nu, delta, lam, mode):
    """Parameters that are squared once too often or not at all."""
    x = GeneralizedInverseGaussian.dist(nu, delta, lam, size=200_000)
    draws = pm.draw(x, random_seed=1, mode=MODES[mode])
    assert_uniform(generalized_inverse_gaussian_cdf(draws, nu, delta**2, lam**2))
    omega, scale = delta * lam, delta / lam
    mean, square = special.kv([nu + 1, nu + 2], omega) / special.kv(nu, omega) * [scale, scale**2]
    assert_moments(draws, mean, square - mean**2)


def test_python_numbers():
    """12 squared in the byte that PyTensor holds 12 in, or 1.0 in single precision."""
    expected = stats.geninvgauss(1.0, 60.0, scale=2.4).logpdf(2.0)
    for params in [(1, 12, 5), (1.0, 12.0, 5.0)]:
        assert log_density(2.0, *params).eval() == pytest.approx(expected, rel=1e-13)


@config.change_flags(mode="FAST_COMPILE")
def test_shapes_and_dims():
    """A size or a dimension that the support point or the draw ignores."""
    with pm.Model(coords={"row": range(3), "column": range(2)}) as model:
        GeneralizedInverseGaussian("x", [-1.0, 2.0], [[1.0]], 2.0, dims=("row", "column"))
        GeneralizedInverseGaussian("y", 0.0, pm.HalfNormal("delta", shape=4), 1.0)
        prior = pm.sample_prior_predictive(5, random_seed=0)["prior"]
    assert prior["x"].shape == (1, 5, 3, 2)
    assert prior["y"].shape == (1, 5, 4)
    point = model.initial_point()
    modes = (np.sqrt(5) - 1) / 4, (2 + np.sqrt(8)) / 4
    np.testing.assert_allclose(point["x_log__"], np.log([modes] * 3))
    assert point["y_log__"].shape == (4,)
    assert np.isfinite(model.compile_dlogp()(point)).all()


@pytest.mark.parametrize("compile_backend", ["c", "numba"])
def test_nuts_recovers_the_prior(compile_backend):
    """A Jacobian or a gradient that is wrong on the log scale."""
    nu, delta, lam = -1.5, 2.0, 1.0
    with pm.Model():
        GeneralizedInverseGaussian("x", nu, delta, lam, shape=10)
        trace = pm.sample(
            1000,
            tune=500,
            chains=1,
            cores=1,
            progressbar=False,
            random_seed=1,
            backend=compile_backend,
        )
    x = trace["posterior"]["x"].values[0]
    u = generalized_inverse_gaussian_cdf(x.ravel(), nu, delta**2, lam**2)
    scores = special.ndtri(u).reshape(x.shape)
    z = batch_means_z_scores(np.column_stack([scores.mean(1), (scores**2 - 1).mean(1)]))
    assert np.all(np.abs(z) < 5)
