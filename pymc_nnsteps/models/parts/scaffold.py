"""What every builder does first: read data, name dimensions, look at the model around.

Everything that can be wrong is said before the first variable is added.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from pytensor import config
from pytensor.tensor import TensorVariable

from pymc_nnsteps.arguments import require_choice, require_finite
from pymc_nnsteps.graphs.initial_values import beginning
from pymc_nnsteps.models.parts import data, layers
from pymc_nnsteps.models.parts.context import Dim, Stack, add_rehearsed
from pymc_nnsteps.models.parts.inputs import Inputs
from pymc_nnsteps.models.parts.likelihoods import (
    ObservedData,
    Start,
    likelihood_of,
)
from pymc_nnsteps.tables import numbers, require_same_rows

Build = Callable[[TensorVariable, ObservedData], object]
"""Adds a network of inputs and its observed variable to the model whose context is open."""


class Response:
    """Targets of a network with their law, and what is ``given`` with so many rows."""

    def __init__(
        self,
        likelihood: str,
        own: Sequence[str],
        X: object,
        y: object,
        n_obs: int,
        given: Mapping[str, object],
    ) -> None:
        self.law = likelihood_of(likelihood, own, given)
        two, more = (
            ("probit", "multinomial_probit") if "probit" in own else ("bernoulli", "categorical")
        )
        self.targets = self.law.read(y, n_obs, two, more)
        require_same_rows(X, y)
        self.row_data: dict[str, NDArray[Any]] = {}  # of shape (n_obs,)
        for name in ("exposure", "censored"):
            if (values := given.get(name)) is not None:
                self.row_data[name] = _row_data(name, values, n_obs)
                require_same_rows(X, values, names=("X", name))
        # Targets that are real numbers about the outputs, without gaps.
        self.real = self.targets.filled if "sigma" in self.law.accepts else None
        labels = self.targets.outputs
        self.n_classes = len(labels or ())
        # Classes that one output tells apart have a dimension of their own.
        are_apart = self.n_classes > self.targets.n_outputs
        self.dims = {"class": Dim(self.n_classes, labels)} if are_apart else {}
        self.outputs = None if are_apart else labels

    def add(self) -> ObservedData:
        """Add the data to the model; of targets with gaps PyMC makes free variables itself."""
        targets, dims = self.targets, ("obs", "output")[: self.targets.values.ndim]
        y = (
            np.ma.masked_invalid(targets.values)
            if targets.missing.any()
            else pm.Data("targets", targets.values, dims=dims)
        )
        more = {name: pm.Data(name, each, dims="obs") for name, each in self.row_data.items()}
        return ObservedData(y, targets.n_outputs, self.n_classes, **more)


def _row_data(name: str, given: object, n_obs: int) -> NDArray[Any]:
    """A positive number, or True or False, for each row."""
    advice = "pass True and False" if name == "censored" else "convert it first"
    values = numbers(name, given, ("obs",), advice).values
    if values.shape != (n_obs,):
        raise ValueError(
            f"{name} must have shape ({n_obs},), one entry for each row of X; got {values.shape}."
        )
    require_finite(name, values.astype(float))
    if name == "censored":
        if not np.isin(values, (0, 1)).all():
            raise ValueError(
                "censored must be True where a duration is only known to exceed y, and "
                "False elsewhere; got other values."
            )
        return values.astype(bool)
    if (values <= 0).any():
        raise ValueError(
            f"{name} must be positive; got {values[values <= 0][0]:g} at "
            f"{name}[{(values <= 0).argmax()}]; leave such rows out."
        )
    return values.astype(config.floatX)


class Scaffold:
    """Data of a network with these hidden layers, and the dimensions of all its layers."""

    def __init__(
        self,
        X: ArrayLike | pd.DataFrame,
        y: object,
        hidden: Sequence[int],
        likelihood: str,
        own: Sequence[str],
        start: str,
        standardize: bool,
        missing: data.Missing,
        given: Mapping[str, object],
        embed: Mapping[str, int] | None = None,
        starts: Sequence[str] = get_args(Start),
    ) -> None:
        require_choice("start", start, starts)
        self.start, self.inputs = start, data.inputs(X, standardize, missing, embed)
        self.n_obs = len(self.inputs.table)
        self.response = Response(likelihood, own, X, y, self.n_obs, given)
        widths = enumerate(layers.layer_sizes(hidden), 1)
        outputs = Dim(self.response.targets.n_outputs, self.response.outputs)
        of_hidden = {f"hidden{layer}": Dim(width) for layer, width in widths}
        self.dims = {**self.inputs.of_network, **of_hidden, "output": outputs}
        units = tuple(dim.length for dim in self.dims.values())
        self.stack = Stack(units, tuple(self.dims), "obs")

    def add(self, build: Build, more_dims: Mapping[str, Dim] | None = None) -> pm.Model:
        """Add the network to the model whose context is open, or to a new one."""
        layers.require_size(self.stack.units, self.n_obs)
        dims = self.inputs.dims("feature") | self.dims | self.response.dims | dict(more_dims or {})

        def whole() -> None:
            inputs, seen = self.inputs.add("inputs", ("obs", "feature")), self.response.add()
            with beginning(self.start):
                build(inputs, seen)

        return add_rehearsed(whole, dims, self.n_obs)


PACKAGE = str(Path(__file__).parents[2])


def warn_of_scales(
    inputs: Inputs,
    targets: NDArray[Any] | None,
    *,
    usual: tuple[float, float] = (0.01, 100.0),
    usual_targets: tuple[float, float] | None = None,
    name: str = "X",
) -> None:
    """Warn the package's caller of constant data, and of columns whose scale is far from 1.

    Single constant columns of inputs, and small ones such as rare indicators, are no reason.
    ``usual`` are the least standard deviation and the largest root mean square of a column.
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
            f"{columns[first]}: {values[0, first]:.3g}); a constant carries no information."
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
