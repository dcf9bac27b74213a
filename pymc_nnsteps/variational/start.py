r"""Starting point of a fit: units that bend within the data, outputs from ridge regression.

The optimum that is found depends on the start: gates soon are nearly certain, and stay so.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from pymc_nnsteps.variational.factors import LayerFactors, LayerPrior, NetworkPrior, gaussian_rows
from pymc_nnsteps.variational.laws import GIG
from pymc_nnsteps.variational.updates import update_scales

Numbers = NDArray[np.float64]
LayerStart = Literal["laplace", "spike_slab"]

VARIANCE = 0.01
"""Variance of the weights at the start."""

MARGIN = 0.05
"""Margin around the range of the data for bends of units, as a share of that range."""

PENALTIES = np.logspace(-3, 3, 13)
"""Candidate ridge penalties, per mean square of an activation and row."""


def start_layers(
    network: NetworkPrior,
    x: Numbers,
    y: Numbers,
    start: LayerStart,
    rng: np.random.Generator,
    n_obs: int | None = None,
) -> list[LayerFactors]:
    r"""Laws of weights, noise and scales to begin with (Appendix D.1), from rows x and y.

    Hidden weights are Laplace with scale :math:`\sqrt{2/D_{l-1}}`, or a mixture of zero and a
    normal law; biases are such that each unit bends at a random place within (and 5 % beyond) the
    range of its inputs. There may be more rows, ``n_obs`` in all.
    """
    n_obs = len(x) if n_obs is None else n_obs
    layers = []
    for prior in network.layers[:-1]:
        W = WEIGHTS[start](rng, prior.shape)
        low, high = x.min(axis=0), x.max(axis=0)
        place = rng.uniform(-MARGIN, 1 + MARGIN, size=prior.shape)
        b = -np.sum(W * (low + place * (high - low)), axis=1)
        layers.append(_layer(prior, np.column_stack([b, W]), n_obs))
        z = x @ W.T + b
        x = scipy.special.expit(z / network.temperature) * z
    layers.append(_layer(network.layers[-1], _ridge(x, y), n_obs))
    return layers


def _laplace(rng: np.random.Generator, shape: tuple[int, int]) -> Numbers:
    return rng.laplace(scale=np.sqrt(2 / shape[1]), size=shape)


def _spike_slab(rng: np.random.Generator, shape: tuple[int, int]) -> Numbers:
    root = np.sqrt(shape[1])
    slab = rng.normal(scale=np.sqrt(2 / root), size=shape)
    return np.where(rng.random(shape) < 1 / (1 + root), slab, 0.0)


WEIGHTS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Numbers]] = {
    "laplace": _laplace,
    "spike_slab": _spike_slab,
}


def _layer(prior: LayerPrior, mean: Numbers, n_obs: int) -> LayerFactors:
    """Weights about given means, noise with the precision of its prior, and scales that fit."""
    units, width = mean.shape
    precision = np.broadcast_to(np.eye(width) / VARIANCE, (units, width, width))
    shift = mean / VARIANCE
    _, cov, log_det = gaussian_rows(precision, shift)
    alpha = prior.alpha + n_obs / 2
    beta = alpha * prior.beta / prior.alpha
    scales = _about_centre(prior.tau), _about_centre(prior.psi)
    layer = LayerFactors(precision, shift, mean, cov, log_det, alpha, beta, *scales)
    return update_scales(prior, layer)


def _about_centre(prior: GIG | None) -> GIG | None:
    """A law whose mean inverse is that of the middle of the prior."""
    if prior is None:
        return None
    return GIG(-1.0, 2 * prior.centre, np.zeros_like(prior.centre))


def _ridge(x: Numbers, y: Numbers) -> Numbers:
    """Biases and weights of a ridge regression; the penalty has the least cross-validated error."""
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    left, values, right = np.linalg.svd(x - x_mean, full_matrices=False)
    projected = left.T @ (y - y_mean)
    size = max(float(np.mean(np.sum(x**2, axis=0))), np.finfo(float).tiny)
    best, weights = np.inf, np.zeros((y.shape[1], x.shape[1]))
    for penalty in PENALTIES * size:
        shrunk = values**2 / (values**2 + penalty)
        residuals = y - y_mean - left @ (shrunk[:, None] * projected)
        leverage = np.minimum(np.einsum("ni,i,ni->n", left, shrunk, left) + 1 / len(x), 1 - 1e-6)
        error = np.mean((residuals / (1 - leverage)[:, None]) ** 2)
        if error < best:
            best = error
            scaled = (values / (values**2 + penalty))[:, None] * projected
            weights = (right.T @ scaled).T
    return np.column_stack([y_mean - weights @ x_mean, weights])
