"""Expressions for all draws and inputs, in blocks of bounded memory, with a progress bar."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from time import monotonic

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.progress_bar import create_simple_progress
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.compiling import c_by_default, without_blas_notice
from pymc_nnsteps.graphs.search import dependents
from pymc_nnsteps.prediction.forward import ForwardPass

BLOCK_BYTES = 2**26
"""Memory that the hidden layers of one block of draws and inputs may take."""

SECONDS = 3.0
"""Delay in seconds before the progress bar appears."""


def compiled(
    inputs: Sequence[Variable], outputs: Variable | Sequence[Variable]
) -> pytensor.compile.Function:
    """Function for many calls; inputs that nothing depends on are taken too."""
    with without_blas_notice():
        return pytensor.function(inputs, outputs, on_unused_input="ignore", **c_by_default())


def evaluate(
    network: ForwardPass,
    values: Sequence[np.ndarray],
    draws: Sequence[np.ndarray],
    n_draws: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> np.ndarray:
    """Outputs (n_draws, n_obs, ...) at all draws of weights and values of rows."""
    [output], inputs, normal = network.parameters, list(network.rows.values()), network.normal
    drawn = [*network.weights.values(), *normal]
    batched = [pt.tensor(dtype=each.dtype, shape=(None, *each.type.shape)) for each in drawn]
    many = vectorize_graph(output, dict(zip(drawn, batched, strict=True)))
    function = compiled([*inputs, *batched], many)
    n_obs = len(values[0])
    width = max(
        1,
        _numbers_per_row(output, inputs),
        *(max(each.shape[1:], default=1) for each in draws),
    )
    rows = max(1, min(n_obs, BLOCK_BYTES // (8 * width)))
    step = max(1, BLOCK_BYTES // (8 * width * rows))

    def part(of_draws: slice) -> np.ndarray:
        at = [each[of_draws] for each in draws]
        parts = []
        for i in range(0, max(n_obs, 1), rows):
            some = [each[i : i + rows] for each in values]
            shapes = [(len(at[0]), len(some[0]), *e.type.shape[1:]) for e in normal]
            noise = [rng.standard_normal(shape) for shape in shapes]
            parts.append(function(*some, *at, *noise))
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


def tracked(title: str, n_steps: int, progressbar: bool) -> Iterator[int]:
    """Count steps, with a progress bar, if wanted, once they have taken three seconds."""
    start = monotonic()
    with ExitStack() as stack:
        progress = task = None
        for step in range(n_steps):
            yield step
            if progress is not None:
                progress.update(task, completed=step + 1)
            elif progressbar and monotonic() - start > SECONDS:
                progress = create_simple_progress(progressbar=True)
                stack.enter_context(progress)
                task = progress.add_task(title, completed=step + 1, total=n_steps)
