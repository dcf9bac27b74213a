"""Which weights and hidden units a network can do without (Section 3.4 of the paper, corrected)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from pymc_nnsteps.variational.factors import LayerFactors, NetworkPrior

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]

NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()


@dataclass(frozen=True)
class Selection:
    """A network without what it can do without.

    Attributes
    ----------
    layers : tuple of LayerFactors
        With zeros for the means and variances of what is left out.
    weights : tuple of ndarray of bool, one for each layer, shape (units, fan_in)
        Those that are kept.
    units : tuple of ndarray of bool, one for each hidden layer, shape (units,)
        Those that are kept.
    """

    layers: tuple[LayerFactors, ...]
    weights: tuple[Mask, ...]
    units: tuple[Mask, ...]


def select(network: NetworkPrior, layers: Sequence[LayerFactors], level: float) -> Selection:
    r"""Keep weights whose sign is known, at a Bayesian false discovery rate.

    Of a weight, :math:`Q = \Phi(|m|/\sqrt B)` is the probability of its sign. In the order of their
    Q, as many are kept as leave the average of :math:`1 - Q` among them below the level. A hidden
    unit without weights on one of its sides loses those on the other, until nothing changes. What a
    unit without inputs passes on, a constant, is added to the biases above.
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
