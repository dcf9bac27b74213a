"""Densities of the final random draws of laws, each with points at which to evaluate it.

``DENSITIES`` holds them by the Op that draws. A law whose draw ends with another Op adds its
density in its own module. :mod:`.verification` compares them with a model's log density.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray
from pytensor.tensor.random.basic import BetaRV, DirichletRV, GammaRV

from pymc_nnsteps.random.generalized_inverse_gaussian import (
    GeneralizedInverseGaussianRV,
    TruncatedGeneralizedInverseGaussianRV,
)
from pymc_nnsteps.random.piecewise_normal import PiecewiseNormalRV
from pymc_nnsteps.random.polya_gamma import PolyaGammaRV
from pymc_nnsteps.random.truncated_normal import ArgmaxUtilitiesRV, TruncatedNormalRV

Array = NDArray[np.float64]
Random = np.random.Generator


@dataclass(frozen=True)
class Density:
    """Law of an array."""

    # Log density of an array, up to a constant that depends on the parameters alone. It is
    # normalised if draws of the Op may be auxiliary.
    log_density: Callable[[Array], float]
    # ``sample(rng, scale)``: a point, farther from the bulk for a larger scale. At a scale of one
    # it may lie outside the support.
    sample: Callable[[Random, float], Array]


def generalized_inverse_gaussian(
    shape: tuple[int, ...], nu: Array, delta2: Array, lambda2: Array
) -> Density:
    """Log density, normalised where ``delta2`` or ``lambda2`` is zero or both are positive."""
    order = np.abs(nu)
    rate = np.where(nu > 0, lambda2, delta2) / 2
    omega = np.sqrt(delta2 * lambda2)
    bessel = np.log(2 * scipy.special.kve(order, omega)) - omega + nu * np.log(delta2 / lambda2) / 2
    gamma = scipy.special.gammaln(order) - order * np.log(rate)
    integral = np.where(omega == 0, gamma, np.where(np.isfinite(bessel), bessel, 0.0))

    def log_density(x: Array) -> float:
        kernel = (nu - 1) * np.log(x) - (delta2 / x + lambda2 * x) / 2
        return float(np.sum(kernel - integral))

    return Density(log_density, _positive(shape))


def truncated_generalized_inverse_gaussian(
    shape: tuple[int, ...], nu: Array, delta2: Array, lambda2: Array, lower: Array, upper: Array
) -> Density:
    """Generalised inverse Gaussian between finite bounds."""
    share = _share(shape)
    return Density(
        lambda x: float(np.sum((nu - 1) * np.log(x) - (delta2 / x + lambda2 * x) / 2)),
        lambda rng, scale: lower + (upper - lower) * share(rng, scale),
    )


def _positive(shape: tuple[int, ...]) -> Callable[[Random, float], Array]:
    return lambda rng, scale: np.exp(min(scale, 3.0) * rng.normal(size=shape))


def _share(shape: tuple[int, ...]) -> Callable[[Random, float], Array]:
    return lambda rng, scale: scipy.special.expit(min(scale, 5.0) * rng.normal(size=shape))


def polya_gamma(shape: tuple[int, ...], z: Array, n: Array) -> Density:
    """PG(n, z), up to a factor that depends on the value and n alone."""

    def log_density(x: Array) -> float:
        log_cosh = np.logaddexp(z / 2, -z / 2)
        return float(np.sum(n * log_cosh - np.square(z) * x / 2))

    return Density(log_density, _positive(shape))


def gamma(shape: tuple[int, ...], alpha: Array, scale: Array) -> Density:
    """Gamma, normalised."""
    law = scipy.stats.gamma(alpha, scale=scale)
    return Density(lambda x: float(law.logpdf(x).sum()), _positive(shape))


def beta(shape: tuple[int, ...], a: Array, b: Array) -> Density:
    """Beta."""
    law = scipy.stats.beta(a, b)
    return Density(lambda p: float(law.logpdf(p).sum()), _share(shape))


def dirichlet(shape: tuple[int, ...], a: Array) -> Density:
    """Dirichlet along the last axis."""
    return Density(
        lambda p: float(np.sum((a - 1) * np.log(p))),
        lambda rng, scale: scipy.special.softmax(min(scale, 3.0) * rng.normal(size=shape), axis=-1),
    )


def piecewise_normal(
    shape: tuple[int, ...],
    mu: Array,
    sigma: Array,
    x: Array,
    tau: Array,
    knots: Array,
    slopes: Array,
    intercepts: Array,
) -> Density:
    """Normal seen through a piecewise-linear activation."""

    def log_density(z: Array) -> float:
        k = np.searchsorted(knots, z)
        seen = (x - slopes[k] * z - intercepts[k]) / tau
        return float(np.sum(-0.5 * np.square((z - mu) / sigma) - 0.5 * np.square(seen)))

    return Density(log_density, lambda rng, scale: scale * rng.normal(size=shape))


def truncated_normal(
    shape: tuple[int, ...], mu: Array, sigma: Array, lower: Array, upper: Array
) -> Density:
    """Normal beyond one bound; at a scale of one, one entry lies on the wrong side."""
    mu, sigma, lower, upper = (np.broadcast_to(p, shape) for p in (mu, sigma, lower, upper))
    inside = np.where(np.isfinite(lower), 1.0, -1.0)
    bound = np.where(np.isfinite(lower), lower, upper)

    def log_density(z: Array) -> float:
        within = np.all((z > lower) & (z < upper))
        return float(np.sum(-0.5 * np.square((z - mu) / sigma))) if within else -np.inf

    def sample(rng: Random, scale: float) -> Array:
        away = np.abs(scale * rng.normal(size=shape))
        if scale == 1.0 and mu.size:
            away.reshape(-1)[rng.integers(mu.size)] *= -1
        value: Array = bound + inside * away
        return value

    return Density(log_density, sample)


def argmax_utilities(
    shape: tuple[int, ...], mu: Array, sigma: Array, labels: Array, current: Array
) -> Density:
    """Normals whose argmax is known; at a scale of one, the argmax may be another."""
    rows = np.arange(len(mu))
    largest = labels.astype(int)

    def log_density(z: Array) -> float:
        if not np.array_equal(z.argmax(1), largest):
            return -np.inf
        return float(np.sum(-0.5 * np.square((z - mu) / sigma)))

    def sample(rng: Random, scale: float) -> Array:
        z = scale * rng.normal(size=mu.shape)
        if scale != 1.0:
            found = z.argmax(1)
            swapped = z[rows, largest].copy()
            z[rows, largest] = z[rows, found]
            z[rows, found] = np.where(found == largest, z[rows, found], swapped)
        return z

    return Density(log_density, sample)


DENSITIES: dict[type, Callable[..., Density]] = {
    ArgmaxUtilitiesRV: argmax_utilities,
    BetaRV: beta,
    DirichletRV: dirichlet,
    GammaRV: gamma,
    GeneralizedInverseGaussianRV: generalized_inverse_gaussian,
    PiecewiseNormalRV: piecewise_normal,
    PolyaGammaRV: polya_gamma,
    TruncatedGeneralizedInverseGaussianRV: truncated_generalized_inverse_gaussian,
    TruncatedNormalRV: truncated_normal,
}
"""Densities by Op: ``DENSITIES[type(op)](shape, *parameters)``."""
