"""An expression for all draws and inputs, in blocks of bounded memory."""

import math
from collections.abc import Sequence

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.search import dependents
from pymc_nnsteps.kernels.compiling import c_by_default, without_blas_notice
from pymc_nnsteps.prediction.progress import tracked

BLOCK_BYTES = 2**26
"""Memory that the hidden layers of one block of draws and inputs may take."""


def evaluate(
    output: TensorVariable,
    inputs: Sequence[TensorVariable],
    weights: Sequence[TensorVariable],
    draws: Sequence[np.ndarray],
    values: Sequence[np.ndarray],
    n_draws: int,
    progressbar: bool = False,
) -> np.ndarray:
    """Evaluate ``output`` for all draws of the weights and all rows of the inputs.

    Parameters
    ----------
    output : TensorVariable, shape (n_obs, ...)
        In terms of inputs and weights.
    inputs : sequence of TensorVariable, shape (n_obs, ...)
        With the same rows.
    weights : sequence of TensorVariable
    draws : sequence of ndarray, shape (n_draws, ...)
        Values of the weights.
    values : sequence of ndarray, shape (n_obs, ...)
        Values of the inputs.
    progressbar : bool
        Whether to show one if it takes long.

    Returns
    -------
    ndarray, shape (n_draws, n_obs, ...)
    """
    batched = [pt.tensor(dtype=w.dtype, shape=(None, *w.type.shape)) for w in weights]
    many = vectorize_graph(output, dict(zip(weights, batched, strict=True)))
    with without_blas_notice():
        function = pytensor.function([*inputs, *batched], many, **c_by_default())
    n_obs = len(values[0])
    width = max(
        1,
        _numbers_per_row(output, inputs),
        *(max(each.shape[1:], default=1) for each in draws),
    )
    rows = max(1, min(n_obs, BLOCK_BYTES // (8 * width)))
    step = max(1, BLOCK_BYTES // (8 * width * rows))

    def part(of_draws: slice) -> np.ndarray:
        drawn = [each[of_draws] for each in draws]
        parts = [
            function(*(each[i : i + rows] for each in values), *drawn)
            for i in range(0, max(n_obs, 1), rows)
        ]
        return np.concatenate(parts, axis=min(len(draws), 1))

    if not draws:
        return np.stack([part(slice(0))] * n_draws)
    starts = range(0, max(n_draws, 1), step)
    blocks = tracked("Forward pass", len(starts), progressbar)
    return np.concatenate([part(slice(starts[i], starts[i] + step)) for i in blocks])


def _numbers_per_row(output: TensorVariable, inputs: Sequence[TensorVariable]) -> int:
    """Numbers that the largest layer holds for each row, as far as types tell."""
    arrays = [
        array for array in dependents(output, set(inputs)) if isinstance(array.type, TensorType)
    ]
    return max((math.prod(n or 1 for n in array.type.shape) for array in arrays), default=1)
