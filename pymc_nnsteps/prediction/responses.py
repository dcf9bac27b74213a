"""Draws of responses, with the noise of all layers."""

from collections.abc import Callable, Sequence
from typing import Any, assert_never

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.shape_utils import change_dist_size
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.kernels.compiling import c_by_default, without_blas_notice
from pymc_nnsteps.network.activations import Largest, Threshold
from pymc_nnsteps.network.layers import Normal
from pymc_nnsteps.prediction.noisy import NoisyPass, Other

__all__ = ["responses"]


def responses(
    network: NoisyPass, rng: np.random.Generator
) -> Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], NDArray[np.number]]:
    """A function that draws responses to inputs, given weights.

    Returns
    -------
    callable
        From the inputs, with data that go with their rows, and the values of the network's
        weights to a draw, of shape (n_obs,) or (n_obs, n_outputs).
    """
    response = _response(network)
    stated = [each for each in graph_inputs([response]) if isinstance(each.type, RandomType)]
    generators: dict[Variable, Variable] = {each: pt.random.rng() for each in stated}
    [drawn] = clone_replace([response], generators)
    noise = [*network.normal, *network.uniform]
    inputs = [*network.rows.values(), *noise, *network.weights.values()]
    with without_blas_notice():
        function = pytensor.function(
            [*generators.values(), *inputs], drawn, on_unused_input="ignore", **c_by_default()
        )

    def draw(rows: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> NDArray[np.number]:
        n_obs = len(rows[0])
        normal = [rng.standard_normal((n_obs, *e.type.shape[1:])) for e in network.normal]
        uniform = [rng.random((n_obs, *e.type.shape[1:])) for e in network.uniform]
        own = rng.spawn(len(generators))
        return np.asarray(function(*own, *rows, *normal, *uniform, *weights))

    return draw


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
