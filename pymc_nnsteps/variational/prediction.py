r"""Predictions at new inputs, from the laws of weights and noise.

By Monte Carlo: weights and noise are drawn, and the network is run forward with its own gates and
noise. Or by iteration (Section 3.5): the laws of the new rows' gates and activations are fitted as
in training, without targets; this is deterministic, but holds the weights of hidden layers at
their means where it takes activations forward.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_nnsteps.variational.draws import draw_forward, draw_layer
from pymc_nnsteps.variational.factors import LayerFactors, NetworkPrior
from pymc_nnsteps.variational.rows import (
    activations,
    forward_gates,
    pre_activations,
    rows_at_once,
    update_gates,
)

__all__ = ["Prediction", "by_iteration", "by_monte_carlo"]

Numbers = NDArray[np.float64]

TOLERANCE = 1e-6
"""Largest change of a gate's probability at which an iteration ends."""


@dataclass(frozen=True)
class Prediction:
    """Moments of new targets.

    Attributes
    ----------
    mean, variance : ndarray, shape (n_obs, n_outputs)
    draws : ndarray, shape (draws, n_obs, n_outputs), or None
        Draws of the targets, from Monte Carlo.
    """

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
    """Draw weights and noise, and run the network forward.

    Parameters
    ----------
    layers : sequence of LayerFactors
    x : ndarray, shape (n_obs, n_features)
    """
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
    r"""Fit the laws of the new rows' activations and gates without targets.

    .. math::

        E[y] = \bar z_{L+1}, \qquad
        \operatorname{Var}[y] = V_{L+1} - \bar z_{L+1}^2 + \frac{\beta}{\alpha - 1}

    Parameters
    ----------
    layers : sequence of LayerFactors
    x : ndarray, shape (n_obs, n_features)
    iterations : int
        Most iterations.
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
