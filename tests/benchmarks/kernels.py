"""The random draws: nanoseconds each, near the bulk and far from it."""

from collections.abc import Callable

import numpy as np

from pymc_nnsteps.random.generalized_inverse_gaussian import generalized_inverse_gaussian_kernel
from pymc_nnsteps.random.piecewise_normal import piecewise_normal_kernel
from pymc_nnsteps.random.polya_gamma import polya_gamma_kernel
from pymc_nnsteps.random.standard_normal import standard_normal_kernel
from pymc_nnsteps.random.truncated_normal import argmax_utilities_kernel, truncated_normal_kernel
from tests.benchmarks.timing import milliseconds

N = 100_000


def main() -> None:
    for dtype in ("float64", "float32"):
        print(f"  {dtype}")
        for name, value in milliseconds(cases(dtype), calls=5, repeats=9).items():
            print(f"    {1e6 * value / N:6.1f} ns  {name}")


def cases(dtype: str) -> dict[str, Callable[[], object]]:
    """Each kernel on ``N`` draws."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal(N).astype(dtype)
    noise = rng.standard_normal(N).astype(dtype)
    one, zero, infinity = (np.array([v], dtype) for v in (1.0, 0.0, np.inf))
    out = np.empty(N, dtype)
    knots, slopes, intercepts = np.zeros(1), np.array([0.0, 1.0]), np.zeros(2)

    def truncated(mu: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> Callable[[], object]:
        return lambda: truncated_normal_kernel(rng, mu, one, lower, upper, out)

    def relu(scale: float) -> Callable[[], object]:
        sigma, tau = np.array([scale], dtype), np.array([scale], dtype)
        x = np.maximum(z, 0) + tau * noise
        return lambda: piecewise_normal_kernel(
            rng, z, sigma, x, tau, knots, slopes, intercepts, out
        )

    def gig(nu: np.ndarray, delta2: np.ndarray, lambda2: np.ndarray) -> Callable[[], object]:
        return lambda: generalized_inverse_gaussian_kernel(rng, nu, delta2, lambda2, out)

    delta2, lambda2 = np.exp(z), np.exp(noise)
    orders = 5 * rng.standard_normal(N).astype(dtype)

    def omega(z: np.ndarray) -> Callable[[], object]:
        return lambda: polya_gamma_kernel(rng, z, one, out)

    classes = 10
    utilities = z.reshape(-1, classes)
    labels = rng.integers(classes, size=len(utilities))
    return {
        "standard normal": lambda: standard_normal_kernel(rng, np.array([N]), out),
        "truncated normal, z > 0 with means near 0": truncated(z, zero, infinity),
        "truncated normal, z > 1000 with means near 0": truncated(z, one * 1000, infinity),
        "truncated normal, 2 < z < 3 with means near 0": truncated(z, one * 2, one * 3),
        "seen through ReLU, noise sd 1": relu(1.0),
        "seen through ReLU, noise sd 0.01": relu(0.01),
        "utilities of 10 classes": lambda: argmax_utilities_kernel(
            rng, utilities, np.ones((1, 1), dtype), labels, utilities, out.reshape(-1, classes)
        ),
        "generalised inverse Gaussian, all parameters different": gig(orders, delta2, lambda2),
        "  order 0": gig(zero, delta2, lambda2),
        "  order -1/2": gig(-one / 2, delta2, lambda2),
        "  order 1e5": gig(one * 100_000, delta2, lambda2),
        "  orders near 0, delta near 1e-3": gig(orders / 50, delta2 / 1_000_000, lambda2),
        "  order 1, parameters shared": gig(one, one, one),
        "  Gamma": gig(one * 2, zero, lambda2),
        "Polya-Gamma, tilts near 2": omega(2 * z),
        "  tilts near 100": omega(100 * z),
    }


if __name__ == "__main__":
    main()
