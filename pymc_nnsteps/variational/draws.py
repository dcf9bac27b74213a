"""Draws of weights, noise and scales, and of the values that a network passes on with them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from pymc_nnsteps.random.generalized_inverse_gaussian import generalized_inverse_gaussian_kernel
from pymc_nnsteps.variational.factors import LayerFactors
from pymc_nnsteps.variational.laws import GIG

__all__ = ["LayerDraws", "draw_forward", "draw_layer"]

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class LayerDraws:
    """Independent draws of what belongs to a layer, the first axis being that of the draws.

    Attributes
    ----------
    W : ndarray, shape (draws, units, fan_in)
    b, eta_sq : ndarray, shape (draws, units)
    tau : ndarray, shape (draws,), or None
    psi : ndarray, shape (draws, units, fan_in), or None
    """

    W: Numbers
    b: Numbers
    eta_sq: Numbers
    tau: Numbers | None
    psi: Numbers | None


def draw_layer(layer: LayerFactors, draws: int, rng: np.random.Generator) -> LayerDraws:
    """Draw from the approximation of one layer."""
    units, width = layer.mean.shape
    scale = np.sqrt(np.einsum("dii->di", layer.cov))
    safe = np.where(scale > 0, scale, 1)
    correlation = layer.cov / (safe[:, :, None] * safe[:, None, :])
    correlation[:, np.arange(width), np.arange(width)] = 1
    root = scale[:, :, None] * np.linalg.cholesky(correlation)
    noise = rng.standard_normal((units, width, draws))
    rows = layer.mean + (root @ noise).transpose(2, 0, 1)
    eta_sq = layer.beta / rng.standard_gamma(layer.alpha, size=(draws, units))
    tau = None if layer.tau is None else _draw_scale(layer.tau, (draws,), rng)
    psi = None if layer.psi is None else _draw_scale(layer.psi, (draws, units, width - 1), rng)
    return LayerDraws(rows[:, :, 1:], rows[:, :, 0], eta_sq, tau, psi)


def _draw_scale(law: GIG, shape: tuple[int, ...], rng: np.random.Generator) -> Numbers:
    out = np.empty(shape)
    given = (np.asarray(part, float) for part in (law.nu, law.delta2, law.lambda2))
    flat = [p.reshape(1) if p.size == 1 else np.broadcast_to(p, shape).ravel() for p in given]
    generalized_inverse_gaussian_kernel(rng, *flat, out.reshape(-1))
    return out


def draw_forward(
    temperature: float, layers: Sequence[LayerDraws], x: Numbers, rng: np.random.Generator
) -> tuple[list[tuple[Numbers, Numbers]], Numbers]:
    """Draw gates and activations forward, one set for each draw of the weights.

    Parameters
    ----------
    layers : sequence of LayerDraws
    x : ndarray, shape (n_obs, n_features)

    Returns
    -------
    hidden : list of (ndarray, ndarray), one for each hidden layer
        Gates and activations, shape (draws, n_obs, units).
    mean : ndarray, shape (draws, n_obs, n_outputs)
        Means of the outputs.
    """
    hidden = []
    for layer in layers[:-1]:
        z = x @ layer.W.transpose(0, 2, 1) + layer.b[:, None, :]
        gates = rng.random(z.shape) < scipy.special.expit(z / temperature)
        noise = rng.standard_normal(z.shape) * np.sqrt(layer.eta_sq)[:, None, :]
        x = gates * z + noise
        hidden.append((gates, x))
    last = layers[-1]
    return hidden, x @ last.W.transpose(0, 2, 1) + last.b[:, None, :]
