"""Predicted probabilities and responses of new rows."""

import math
from collections.abc import Sequence
from typing import Any, assert_never

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.shape_utils import change_dist_size
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import describe, distribution
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.network.activations import Largest, Threshold
from pymc_nnsteps.network.layers import Normal
from pymc_nnsteps.prediction.blocks import compiled, tracked
from pymc_nnsteps.prediction.forward import NoisyPass
from pymc_nnsteps.prediction.integration import Integrator
from pymc_nnsteps.prediction.laws import Other


def predicted_probabilities(
    network: NoisyPass,
    rows: Sequence[np.ndarray],
    draws: Sequence[np.ndarray],
    n_draws: int,
    noise_draws: int,
    seed: int,
    progressbar: bool,
) -> NDArray[np.float64]:
    """Probabilities (n_draws, n_obs, n_classes) with the noise of hidden layers integrated out.

    The noise has one seed for all classes, so that their probabilities sum to one.
    """
    labels, columns, n_obs = _labels(network), network.columns, len(rows[0])
    found = np.empty((n_draws, n_obs, len(labels) * math.prod(columns)))
    if not found.size:
        return found
    integrators = [
        Integrator(network, rows, y, noise_draws, np.random.default_rng(seed), apart=True)
        for y in (np.full((n_obs, *columns), label) for label in labels)
    ]
    for draw in tracked("Probabilities", n_draws, progressbar):
        weights = [values[draw] for values in draws]
        logs = [integrator(weights).log.reshape(n_obs, -1) for integrator in integrators]
        found[draw] = np.exp(np.concatenate(logs, axis=1))
    return found


def predicted_responses(
    network: NoisyPass,
    rows: Sequence[np.ndarray],
    draws: Sequence[np.ndarray],
    n_draws: int,
    seed: int,
    progressbar: bool,
) -> NDArray[np.number]:
    """One response (n_draws, n_obs, n_outputs), with all noise, to each row and draw."""
    y, n_obs, rng = network.y, len(rows[0]), np.random.default_rng(seed)
    found = np.empty((n_draws, n_obs, math.prod(network.columns)), y.dtype)
    if not found.size:
        return found
    response = _response(network)
    stated = [each for each in graph_inputs([response]) if isinstance(each.type, RandomType)]
    generators: dict[Variable, Variable] = {each: pt.random.rng() for each in stated}
    [drawn] = clone_replace([response], generators)
    noise = [*network.normal, *network.uniform]
    inputs = [*network.rows.values(), *noise, *network.weights.values()]
    function = compiled([*generators.values(), *inputs], drawn)
    for draw in tracked("Responses", n_draws, progressbar):
        normal = [rng.standard_normal((n_obs, *e.type.shape[1:])) for e in network.normal]
        uniform = [rng.random((n_obs, *e.type.shape[1:])) for e in network.uniform]
        own, weights = rng.spawn(len(generators)), [values[draw] for values in draws]
        try:
            found[draw] = function(*own, *rows, *normal, *uniform, *weights).reshape(n_obs, -1)
        except ValueError as reason:
            raise ValueError(
                f"{describe(y)} is {distribution(y)}, which has no draws at these rows ({reason}); "
                f"look in {', '.join(str(data.name) for data in network.rows)} for values that the "
                "model cannot have, such as negative ones."
            ) from reason
    return found


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


def _response(network: NoisyPass) -> TensorVariable:
    """A draw from the law of new rows."""
    law, y = network.law, network.y
    if isinstance(law, Other):
        container: Any = next(iter(network.rows))
        shape = container.shape[0], *network.columns
        return network.at_rows(change_dist_size(y, shape[: y.ndim - y.owner.op.ndim_supp]))
    rng: Any = pt.random.rng()
    drawn: TensorVariable = rng.normal(*network.parameters)[1]
    match law:
        case Normal():
            return drawn
        case Threshold(level, increasing):
            label = pt.gt(drawn, level) if increasing else pt.lt(drawn, level)
            return label.astype("int64")
        case Largest():
            return pt.argmax(drawn, axis=-1)
    assert_never(law)
