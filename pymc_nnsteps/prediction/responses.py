"""Draws of responses, with the noise of all layers."""

from collections.abc import Callable, Sequence
from typing import Any, assert_never

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
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

    Parameters
    ----------
    network : NoisyPass
    rng : numpy.random.Generator

    Returns
    -------
    callable
        From the inputs, with data that go with their rows, and the values of the network's
        weights to a draw, of shape (n_obs,) or (n_obs, n_outputs).
    """
    generator = pt.random.rng("rng")
    noise = [*network.normal, *network.uniform]
    inputs = [*network.rows.values(), *noise, *network.weights.values()]
    arguments: list[Any] = [pytensor.In(generator, mutable=True), *inputs]
    with without_blas_notice():
        function = pytensor.function(
            arguments,
            [*_response(network, generator)],
            on_unused_input="ignore",
            **c_by_default(),
        )

    def draw(rows: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> NDArray[np.number]:
        nonlocal rng
        n_obs = len(rows[0])
        normal = [rng.standard_normal((n_obs, *e.type.shape[1:])) for e in network.normal]
        uniform = [rng.random((n_obs, *e.type.shape[1:])) for e in network.uniform]
        rng, drawn = function(rng, *rows, *normal, *uniform, *weights)
        return np.asarray(drawn)

    return draw


def _response(network: NoisyPass, rng: Variable) -> tuple[Variable, TensorVariable]:
    law = network.law
    if isinstance(law, Other):
        [first, *_] = network.rows.values()
        size = pt.stack([first.shape[0], *network.columns])
        rng, drawn = law.op.make_node(rng, size, *network.parameters).outputs
        return rng, drawn
    rng, drawn = rng.normal(*network.parameters)  # type: ignore[attr-defined]
    match law:
        case Normal():
            return rng, drawn
        case Threshold(level, increasing):
            label = pt.gt(drawn, level) if increasing else pt.lt(drawn, level)
            return rng, label.astype("int64")
        case Largest():
            return rng, pt.argmax(drawn, axis=-1)
    assert_never(law)
