"""What every builder does first: read data, name dimensions, look at the model around.

Everything that can be wrong is said before the first variable is added.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import ArrayLike
from pytensor.tensor import TensorVariable

from pymc_nnsteps.models.parts import data, layers
from pymc_nnsteps.models.parts.context import Dim, add_rehearsed, layer_dims, rehearsed
from pymc_nnsteps.models.parts.data import Observed
from pymc_nnsteps.models.parts.stack import Stack
from pymc_nnsteps.tables import require_same_rows

__all__ = ["Build", "Scaffold", "observed_targets", "scaffold"]

Build = Callable[[TensorVariable, Observed], object]
"""Adds a network of inputs and targets to the model whose context is open."""


@dataclass(frozen=True)
class Scaffold:
    """Data of a network, and the dimensions of its layers.

    Attributes
    ----------
    units : tuple of int
        Widths of the layers, from the inputs to the outputs.
    dims : dict of str to Dim
        ``"feature"``, ``"hidden1"``, ..., ``"output"``.
    """

    inputs: data.Inputs
    targets: data.Targets
    units: tuple[int, ...]
    dims: dict[str, Dim]

    @property
    def n_obs(self) -> int:
        """Number of rows."""
        return len(self.inputs.table)

    @property
    def n_layers(self) -> int:
        """Number of layers of weights."""
        return len(self.units) - 1

    @property
    def stack(self) -> Stack:
        """The layers."""
        return Stack(self.units, tuple(self.dims), "obs")

    @property
    def row_dims(self) -> tuple[str, ...]:
        """Dimensions of the targets."""
        return ("obs", "output")[: self.targets.values.ndim]

    def alone(self, build: Build, more_dims: Mapping[str, Dim] | None = None) -> pm.Model:
        """The network in a model of its own."""
        dims = {**self.dims, **(more_dims or {})}
        return rehearsed(lambda: build(*self._containers()), dims)

    def add(self, build: Build, more_dims: Mapping[str, Dim] | None = None) -> pm.Model:
        """Add the network to the model whose context is open, or to a new one.

        Parameters
        ----------
        more_dims : mapping of str to Dim, optional
            Dimensions beside those of the layers.
        """
        layers.require_size(self.units, self.n_obs)
        dims = {**self.dims, **(more_dims or {})}
        return add_rehearsed(lambda: build(*self._containers()), dims, self.n_obs)

    def _containers(self) -> tuple[TensorVariable, Observed]:
        return (
            self.inputs.add("inputs", ("obs", "feature")),
            observed_targets(self.targets, self.row_dims),
        )


def observed_targets(targets: data.Targets, dims: tuple[str, ...]) -> Observed:
    """Add the data container ``"targets"`` to the model, unless there are missing targets.

    Returns
    -------
    TensorVariable or MaskedArray
        What ``observed=`` takes: of a masked array PyMC makes free variables of missing entries.
    """
    if targets.missing.any():
        return np.ma.masked_invalid(targets.values)
    return pm.Data("targets", targets.values, dims=dims)


def scaffold(
    X: ArrayLike | pd.DataFrame,
    y: ArrayLike | pd.Series | pd.DataFrame,
    read_targets: Callable[..., data.Targets],
    hidden: Sequence[int],
    standardize: bool,
    missing: data.Missing,
) -> Scaffold:
    """Read the data of a network with these hidden layers."""
    inputs = data.inputs(X, standardize, missing)
    n_obs, n_features = inputs.table.shape
    targets = read_targets(y, n_obs)
    require_same_rows(X, y)
    units = (n_features, *layers.layer_sizes(hidden), targets.n_outputs)
    return Scaffold(inputs, targets, units, layer_dims(units, inputs.features, targets.outputs))
