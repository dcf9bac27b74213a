"""Draws of weights, noise and scales, of values passed on with them, and predictions.

Predictions at new inputs are made by Monte Carlo: weights and noise are drawn, and the network is
run forward with its own gates and noise. Or by iteration (Section 3.5): the laws of the new rows'
gates and activations are fitted as in training, without targets; this is deterministic, but holds
the weights of hidden layers at their means where it takes activations forward.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from pymc_nnsteps.random.generalized_inverse_gaussian import generalized_inverse_gaussian_kernel
from pymc_nnsteps.variational.factors import LayerFactors, NetworkPrior
from pymc_nnsteps.variational.laws import GIG
from pymc_nnsteps.variational.rows import (
    activations,
    forward_gates,
    pre_activations,
    rows_at_once,
    update_gates,
)

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class LayerDraws:
    """Independent draws of what belongs to a layer, the first axis being that of the draws."""

    W: Numbers  # shape (draws, units, fan_in)
    # shape (draws, units).
    b: Numbers
    eta_sq: Numbers
    tau: Numbers | None  # shape (draws,), or None
    psi: Numbers | None  # shape (draws, units, fan_in), or None


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
    """Draw gates and activations (draws, n_obs, units) of hidden layers, and the means of outputs.

    There is one set for each draw of the weights.
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


TOLERANCE = 1e-6
"""Largest change of a gate's probability at which an iteration ends."""


@dataclass(frozen=True)
class Prediction:
    """Moments (n_obs, n_outputs) of new targets, and draws of them from Monte Carlo, if any."""

    mean: Numbers
    variance: Numbers
    draws: Numbers | None = None


def by_monte_carlo(
    network: NetworkPrior,
    layers: Sequence[LayerFactors],
    x: Numbers,
    draws: int,
    rng: np.random.Generator,
) -> Prediction:
    """Draw weights and noise, and run the network forward from rows x."""
    drawn = [draw_layer(layer, draws, rng) for layer in layers]
    means = np.concatenate(
        [
            draw_forward(network.temperature, drawn, x[rows], rng)[1]
            for rows in _chunks(len(x), max(rows_at_once(network) // draws, 1))
        ],
        axis=1,
    )
    noise = drawn[-1].eta_sq[:, None, :]
    targets = means + rng.standard_normal(means.shape) * np.sqrt(noise)
    return Prediction(means.mean(axis=0), means.var(axis=0) + noise.mean(axis=0), targets)


def by_iteration(
    network: NetworkPrior, layers: Sequence[LayerFactors], x: Numbers, iterations: int = 60
) -> Prediction:
    r"""Fit the laws of the activations and gates of new rows x without targets.

    .. math::

        E[y] = \bar z_{L+1}, \qquad
        \operatorname{Var}[y] = V_{L+1} - \bar z_{L+1}^2 + \frac{\beta}{\alpha - 1}
    """
    size = rows_at_once(network)
    parts = [_iterate(network, layers, x[rows], iterations) for rows in _chunks(len(x), size)]
    mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
    last = layers[-1]
    return Prediction(mean, variance + last.beta / (last.alpha - 1))


def _iterate(
    network: NetworkPrior, layers: Sequence[LayerFactors], x: Numbers, iterations: int
) -> tuple[Numbers, Numbers]:
    """Mean and variance of the outputs' means."""
    gates = forward_gates(network, layers, x)
    for _ in range(iterations):
        chain = activations(network, layers, x, None, gates)
        new = update_gates(network, layers, chain)
        change = max(
            (
                np.max(np.abs(np.tanh(a.logit / 2) - np.tanh(b.logit / 2))) / 2
                for a, b in zip(new, gates, strict=True)
            ),
            default=0.0,
        )
        gates = new
        if change < TOLERANCE:
            break
    chain = activations(network, layers, x, None, gates)
    z, second = pre_activations(layers[-1], chain[-1])
    return z, second - z**2


def _chunks(n_rows: int, size: int) -> list[slice]:
    return [slice(first, first + size) for first in range(0, n_rows, size)]
