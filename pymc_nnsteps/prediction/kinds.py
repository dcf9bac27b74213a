"""Predicted probabilities and responses of new rows."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV

from pymc_nnsteps.graphs.names import describe, distribution
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.network.activations import Largest, Threshold
from pymc_nnsteps.prediction.integration import Integrator
from pymc_nnsteps.prediction.noisy import NoisyPass, Other
from pymc_nnsteps.prediction.progress import tracked
from pymc_nnsteps.prediction.responses import responses

__all__ = ["predicted_probabilities", "predicted_responses"]


def predicted_probabilities(
    network: NoisyPass,
    rows: Sequence[np.ndarray],
    draws: Sequence[np.ndarray],
    n_draws: int,
    noise_draws: int,
    seed: int,
    progressbar: bool,
) -> NDArray[np.float64]:
    """Probabilities of classes given the weights, with the noise of hidden layers integrated out.

    Parameters
    ----------
    rows : sequence of ndarray, shape (n_obs, ...)
        The inputs, and data that go with their rows.
    draws : sequence of ndarray, shape (n_draws, ...)
        Of the network's weights.
    noise_draws : int
        Draws of the noise for each row.
    seed : int
        The noise is the same for all classes, so that their probabilities sum to one.

    Returns
    -------
    ndarray, shape (n_draws, n_obs, n_classes)
        Of 0 and 1: the probability of 1, for each column of the targets.
    """
    labels = _labels(network)
    columns = network.columns
    if n_draws * len(rows[0]) == 0:
        return np.empty((n_draws, len(rows[0]), len(labels) * math.prod(columns)))
    targets = [np.full((len(rows[0]), *columns), label) for label in labels]
    integrators = [
        Integrator(network, rows, y, noise_draws, np.random.default_rng(seed), apart=True)
        for y in targets
    ]
    found = []
    for draw in tracked("Probabilities", n_draws, progressbar):
        weights = [values[draw] for values in draws]
        logs = [integrator(weights).log.reshape(len(rows[0]), -1) for integrator in integrators]
        found.append(np.exp(np.concatenate(logs, axis=1)))
    return np.stack(found)


def predicted_responses(
    network: NoisyPass,
    rows: Sequence[np.ndarray],
    draws: Sequence[np.ndarray],
    n_draws: int,
    seed: int,
    progressbar: bool,
) -> NDArray[np.number]:
    """One response to each row and draw of the weights.

    Parameters
    ----------
    network, rows, draws, n_draws, seed, progressbar
        As for :func:`predicted_probabilities`.

    Returns
    -------
    ndarray, shape (n_draws, n_obs, n_outputs)
    """
    if n_draws * len(rows[0]) == 0:
        return np.empty((n_draws, len(rows[0]), math.prod(network.columns)), network.y.dtype)
    draw_response = responses(network, np.random.default_rng(seed))
    found = [
        draw_response(rows, [values[draw] for values in draws]).reshape(len(rows[0]), -1)
        for draw in tracked("Responses", n_draws, progressbar)
    ]
    return np.stack(found)


def _labels(network: NoisyPass) -> Sequence[int]:
    """Classes that get a probability each."""
    y, law = network.y, network.law
    kind = law.kind if isinstance(law, Other) else type(law)
    if kind in (Threshold, BernoulliRV):
        return (1,)
    if kind in (Largest, CategoricalRV):
        stated = network.parameters if kind is Largest else parameters(y)
        n_classes = network.at_rows(stated[0]).type.shape[-1]
        if n_classes is not None:
            return range(n_classes)
    raise ValueError(
        f'{describe(y)} is {distribution(y)}, whose classes are not known; kind="probability" is '
        'for classes, kind="response" draws what else is observed.'
    )
