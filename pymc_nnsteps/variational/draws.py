"""Draws and predictions of an approximation, and which weights and units it can do without.

Predictions at new inputs are made by Monte Carlo: weights and noise are drawn, and the network is
run forward with its own gates and noise. Or by iteration (Section 3.5): the laws of the new rows'
gates and activations are fitted as in training, without targets; this is deterministic, but holds
the weights of hidden layers at their means where it takes activations forward.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from pymc_nnsteps.random.generalized_inverse_gaussian import generalized_inverse_gaussian_kernel
from pymc_nnsteps.variational.factors import GIG, LayerFactors, NetworkPrior
from pymc_nnsteps.variational.rows import (
    activations,
    chunks,
    forward_gates,
    pre_activations,
    update_gates,
)

Numbers = NDArray[np.float64]


LayerDraws = dict[str, Numbers]
"""Draws of a layer's variables by their roles, along the first axis."""


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
    scales = {}
    if layer.tau is not None and layer.psi is not None:
        scales["tau"] = _draw_scale(layer.tau, (draws,), rng)
        scales["psi"] = _draw_scale(layer.psi, (draws, units, width - 1), rng)
    return scales | {"W": rows[:, :, 1:], "b": rows[:, :, 0], "eta_sq": eta_sq}


def _draw_scale(law: GIG, shape: tuple[int, ...], rng: np.random.Generator) -> Numbers:
    out = np.empty(shape)
    given = (np.asarray(part, float) for part in (law.nu, law.delta2, law.lambda2))
    flat = [p.reshape(1) if p.size == 1 else np.broadcast_to(p, shape).ravel() for p in given]
    generalized_inverse_gaussian_kernel(rng, *flat, out.reshape(-1))
    return out


def draw_forward(
    temperature: float, layers: Sequence[LayerDraws], x: Numbers, rng: np.random.Generator
) -> Numbers:
    """Means of outputs (draws, n_obs, outputs), given draws of gates and activations."""
    for layer in layers[:-1]:
        z = x @ layer["W"].transpose(0, 2, 1) + layer["b"][:, None, :]
        gates = rng.random(z.shape) < scipy.special.expit(z / temperature)
        noise = rng.standard_normal(z.shape) * np.sqrt(layer["eta_sq"])[:, None, :]
        x = gates * z + noise
    last = layers[-1]
    return x @ last["W"].transpose(0, 2, 1) + last["b"][:, None, :]


TOLERANCE, ITERATIONS = 1e-6, 60
"""Largest change of a gate's probability at which iterations end, and the most of these."""


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
            draw_forward(network.temperature, drawn, x[rows], rng)
            for rows in chunks(network, len(x), draws)
        ],
        axis=1,
    )
    noise = drawn[-1]["eta_sq"][:, None, :]
    targets = means + rng.standard_normal(means.shape) * np.sqrt(noise)
    return Prediction(means.mean(axis=0), means.var(axis=0) + noise.mean(axis=0), targets)


def by_iteration(network: NetworkPrior, layers: Sequence[LayerFactors], x: Numbers) -> Prediction:
    r"""Fit the laws of the activations and gates of new rows x without targets.

    .. math::

        E[y] = \bar z_{L+1}, \qquad
        \operatorname{Var}[y] = V_{L+1} - \bar z_{L+1}^2 + \frac{\beta}{\alpha - 1}
    """
    parts = [_iterate(network, layers, x[rows]) for rows in chunks(network, len(x))]
    mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
    last = layers[-1]
    return Prediction(mean, variance + last.beta / (last.alpha - 1))


def _iterate(
    network: NetworkPrior, layers: Sequence[LayerFactors], x: Numbers
) -> tuple[Numbers, Numbers]:
    """Mean and variance of the outputs' means."""
    gates = forward_gates(network, layers, x)
    for _ in range(ITERATIONS):
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


Mask = NDArray[np.bool_]

NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()


@dataclass(frozen=True)
class Selection:
    """A network of the weights (units, fan_in) and units (units,) that masks keep."""

    layers: tuple[LayerFactors, ...]
    weights: tuple[Mask, ...]
    units: tuple[Mask, ...]


def select(network: NetworkPrior, layers: Sequence[LayerFactors], level: float) -> Selection:
    r"""Keep weights whose sign is known, at a Bayesian false discovery rate (Section 3.4).

    With :math:`Q = \Phi(|m|/\sqrt B)`, as many are kept in this order as leave the average of
    :math:`1 - Q` below the level. A unit without weights on one side loses those on the other; what
    one without inputs passes on, a constant, goes into the biases above.
    """
    kept = _discoveries(layers, level)
    folded = list(layers)
    while True:
        before = sum(mask.sum() for mask in kept)
        for index in range(network.depth):
            incoming, outgoing = kept[index], kept[index + 1]
            for unit in np.flatnonzero(~incoming.any(axis=1) & outgoing.any(axis=0)):
                constant = _mean_without_inputs(folded[index], unit, network.temperature)
                mean = folded[index + 1].mean.copy()
                mean[:, 0] += constant * mean[:, 1 + unit] * outgoing[:, unit]
                folded[index + 1] = replace(folded[index + 1], mean=mean)
            dead = ~incoming.any(axis=1) | ~outgoing.any(axis=0)
            incoming[dead], outgoing[:, dead] = False, False
        if sum(mask.sum() for mask in kept) == before:
            break
    units = tuple(mask.any(axis=1) for mask in kept[:-1])
    biases = [*units, np.ones(len(kept[-1]), dtype=bool)]
    masked = (
        _masked(layer, np.column_stack([bias, mask]))
        for layer, bias, mask in zip(folded, biases, kept, strict=True)
    )
    return Selection(tuple(masked), tuple(kept), units)


def _discoveries(layers: Sequence[LayerFactors], level: float) -> list[Mask]:
    """Weights that are kept before units are pruned."""
    scales = [np.sqrt(np.einsum("dii->di", layer.cov)[:, 1:]) for layer in layers]
    signs = [
        scipy.special.ndtr(np.abs(layer.mean[:, 1:]) / scale)
        for layer, scale in zip(layers, scales, strict=True)
    ]
    ordered = np.sort(np.concatenate([sign.ravel() for sign in signs]))[::-1]
    rates = np.cumsum(1 - ordered) / np.arange(1, len(ordered) + 1)
    count = int(np.searchsorted(rates, level, side="left"))
    threshold = ordered[count - 1] if count else np.inf
    return [sign >= threshold for sign in signs]


def _mean_without_inputs(layer: LayerFactors, unit: np.intp, temperature: float) -> float:
    """Mean activation of a unit that has its bias only."""
    scale = np.sqrt(layer.cov[unit, 0, 0])
    bias = layer.mean[unit, 0] + scale * NODES
    return float(NODE_WEIGHTS @ (scipy.special.expit(bias / temperature) * bias))


def _masked(layer: LayerFactors, mask: Mask) -> LayerFactors:
    """A layer whose other weights are zero; those that are kept have their marginal law."""
    both = mask[:, :, None] & mask[:, None, :]
    return replace(layer, mean=np.where(mask, layer.mean, 0), cov=np.where(both, layer.cov, 0))
