r"""The evidence lower bound (ELBO), exact, with all constants.

It is a function of the sums over rows and of the laws of weights, noise and scales. Terms in
:math:`E[\log \eta^2]`, :math:`E[\log\tau]` and :math:`E[\log\psi]` cancel, because the orders of
these laws are known.
"""

from collections.abc import Sequence

import numpy as np
import scipy

from pymc_nnsteps.variational.factors import LayerFactors, LayerPrior, NetworkPrior
from pymc_nnsteps.variational.laws import relative_entropy
from pymc_nnsteps.variational.rows import LOG_2PI, LayerStatistics, Statistics
from pymc_nnsteps.variational.updates import prior_precision, squared_error

__all__ = ["elbo"]


def elbo(network: NetworkPrior, layers: Sequence[LayerFactors], sums: Statistics) -> float:
    """Compute the evidence lower bound of ``log p(y)`` (Appendix B of the paper, corrected).

    Parameters
    ----------
    layers : sequence of LayerFactors
    sums : Statistics
        Sums over rows, from the present laws of activations and gates.
    """
    rows = sum(
        _of_rows(layer, seen, sums.n_obs, network.temperature)
        for layer, seen in zip(layers, sums.layers, strict=True)
    )
    priors = sum(
        _of_weights(prior, layer) + _of_noise(prior, layer)
        for prior, layer in zip(network.layers, layers, strict=True)
    )
    return float(sums.entropy + rows + priors)


def _of_rows(layer: LayerFactors, seen: LayerStatistics, n_obs: float, temperature: float) -> float:
    """Expected log densities of the layer's values and gates, without the logs of the noise."""
    errors = layer.noise_precision @ squared_error(layer, seen)
    gates = np.sum(layer.mean * seen.lean) / temperature
    doubt = np.sum(np.broadcast_to(seen.doubt, layer.second.shape) * layer.second)
    constants = n_obs * len(layer.mean) * LOG_2PI
    return float(-0.5 * (errors + constants) + gates - 0.5 * doubt / temperature**2)


def _of_weights(prior: LayerPrior, layer: LayerFactors) -> float:
    """Weights and scales, relative to their priors, without the logs of the scales."""
    expected = np.sum(prior_precision(prior, layer) * layer.squares)
    logs = np.log(prior.bias_var).sum() + np.log(prior.weight_var).sum()
    value = 0.5 * (layer.log_det.sum() + layer.mean.size - logs - expected)
    for law, its_prior in ((layer.tau, prior.tau), (layer.psi, prior.psi)):
        if law is not None and its_prior is not None:
            value -= relative_entropy(law, its_prior)
    return float(value)


def _of_noise(prior: LayerPrior, layer: LayerFactors) -> float:
    """Noise relative to its prior, with the expected logs of all that it is the noise of."""
    a, b = layer.alpha, layer.beta
    own = scipy.special.gammaln(a) - a * np.log(b) + a
    return float(
        np.sum(
            prior.alpha * np.log(prior.beta)
            - scipy.special.gammaln(prior.alpha)
            - prior.beta * a / b
            + own
        )
    )
