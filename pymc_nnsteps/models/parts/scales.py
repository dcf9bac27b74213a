"""Warnings of data that are not on the scale that default priors are made for."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_nnsteps.models.parts.data import Inputs

__all__ = ["warn_of_scales"]

PACKAGE = str(Path(__file__).parents[2])


def warn_of_scales(
    inputs: Inputs,
    targets: NDArray[Any] | None,
    *,
    usual: tuple[float, float] = (0.01, 100.0),
    usual_targets: tuple[float, float] | None = None,
    name: str = "X",
) -> None:
    """Warn of constant data, and of columns whose scale is far from 1.

    The warning points at the caller of the package. Constant columns of inputs, as of an intercept,
    are no reason for a warning unless all are; nor are small ones in which half of the rows or more
    share a value, as of rare indicators. Targets are real, of shape (n_obs,) or (n_obs, n_outputs);
    None for classes. ``usual`` are the least standard deviation and the largest root mean square of
    a column.
    """
    found = [_problem(name, inputs.values, usual, inputs.features, all_constant=True)]
    if targets is not None:
        columns = targets.reshape(len(targets), -1)
        found.append(_problem("y", columns, usual_targets or usual, None, all_constant=False))
    for problem in filter(None, found):
        warnings.warn(problem, UserWarning, skip_file_prefixes=(PACKAGE,))


def _problem(
    name: str,
    values: NDArray[Any],
    usual: tuple[float, float],
    columns: Sequence[object] | None,
    *,
    all_constant: bool,
) -> str | None:
    least, largest = usual
    columns = range(values.shape[1]) if columns is None else columns
    constant = (values == values[0]).all(axis=0)
    if len(values) > 1 and (constant.all() if all_constant else constant.any()):
        first = int(constant.argmax())
        return (
            f"{name} is constant in {constant.sum()} of {len(constant)} columns (column "
            f"{columns[first]}: {values[0, first]:.3g}); there is nothing to learn from that."
        )
    spread, typical, mean, shared = np.transpose([_moments(column) for column in values.T])
    far = np.flatnonzero(~constant & ((spread < least) & (shared < 0.5) | (typical > largest)))
    if not len(far):
        return None
    first = int(far[0])
    return (
        f"{name} has a scale far from 1 in {len(far)} of {len(spread)} columns (column "
        f"{columns[first]}: standard deviation {spread[first]:.3g}, mean {mean[first]:.3g}); "
        "the default priors are for standardised data."
    )


def _moments(column: NDArray[Any]) -> tuple[float, float, float, float]:
    """Standard deviation, root mean square, mean, and the share of values that are the median."""
    size = max(np.abs(column).max(), np.finfo(column.dtype).tiny)
    unit = column / size
    shared = (column == np.median(column)).mean()
    return unit.std() * size, np.sqrt(np.square(unit).mean()) * size, unit.mean() * size, shared
