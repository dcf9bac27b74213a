"""What every builder and block does first: read data, name dimensions, look at the model around.

Everything that can be wrong is said before the first variable is added. A block's variables are
those of a nested model, so that their names start with the block's.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor import config
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor import TensorConstant, TensorVariable
from pytensor.tensor.random.type import RandomType
from pytensor.xtensor.type import XTensorType, as_xtensor

from pymc_nnsteps.arguments import positive_integer, require_choice, require_finite
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.initial_values import beginning
from pymc_nnsteps.graphs.search import columns_of, model_or_context
from pymc_nnsteps.models.parts import data, layers
from pymc_nnsteps.models.parts.context import (
    Dim,
    Stack,
    add_dims,
    add_rehearsed,
    check_dims,
    check_names,
    rehearsed,
)
from pymc_nnsteps.models.parts.inputs import Inputs
from pymc_nnsteps.models.parts.likelihoods import ObservedData, Start, likelihood_of
from pymc_nnsteps.tables import is_table, numbers, require_same_rows

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


USUAL = (0.01, 100.0)
"""Least standard deviation and largest root mean square of a column that are not warned of."""


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

    def add(
        self,
        build: Build,
        more_dims: Mapping[str, Dim] | None = None,
        usual: tuple[float, float] = USUAL,
        usual_targets: tuple[float, float] | None = None,
    ) -> pm.Model:
        """Add the network to the model whose context is open, or to a new one; look at scales."""
        warn_of_scales(self.inputs, self.response.real, usual, usual_targets)
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
    usual: tuple[float, float] = USUAL,
    usual_targets: tuple[float, float] | None = None,
    name: str = "X",
) -> None:
    """Warn the package's caller of constant data, and of columns whose scale is far from 1.

    Single constant columns of inputs, and small ones such as rare indicators, are no reason.
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
    # Standard deviations and root mean squares that do not overflow, means, shares of medians.
    size = np.maximum(np.abs(values).max(axis=0), np.finfo(values.dtype).tiny)
    unit = values / size
    spread, mean = unit.std(axis=0) * size, unit.mean(axis=0) * size
    typical = np.sqrt(np.square(unit).mean(axis=0)) * size
    shared = (values == np.median(values, axis=0)).mean(axis=0)
    far = np.flatnonzero(~constant & ((spread < least) & (shared < 0.5) | (typical > largest)))
    if not len(far):
        return None
    first = int(far[0])
    return (
        f"{name} has a scale far from 1 in {len(far)} of {len(spread)} columns (column "
        f"{columns[first]}: standard deviation {spread[first]:.3g}, mean {mean[first]:.3g}); "
        "the default priors are for standardised data."
    )


BEGIN = 'a block is a part of a model: call it inside of "with pm.Model():"'

Network = Callable[[TensorVariable], TensorVariable]
"""Adds the variables of a network to the model of the context, and returns its outputs."""


class NetworkBlock:
    """A network within a model, with the arguments of all blocks and the ``dims`` it may add."""

    def __init__(
        self,
        x: Any,
        hidden: Sequence[int],
        outputs: int | None,
        name: str,
        dims: str | Sequence[str] | None,
        start: Start,
    ) -> None:
        require_choice("start", start, get_args(Start))
        if not isinstance(name, str) or not name or "::" in name:
            raise ValueError(f'name must be a name such as "f", without "::"; got {name!r}.')
        self.name, self.start, self.is_vector = name, start, outputs is None
        self.table = data.inputs(x, name="x") if is_table(x) else None
        self.named: tuple[str, ...] | None = None  # dimensions of inputs of pymc.dims
        if isinstance(getattr(x, "type", None), XTensorType):
            self.named, x = x.type.dims, x.values
        self.inputs = _inputs(x if self.table is None else self.table.table)
        sizes = layers.layer_sizes(hidden)
        n_outputs = 1 if outputs is None else positive_integer("outputs", outputs)
        n_features = self.inputs.type.shape[1] or int(
            np.asarray(pytensor.function([], self.inputs.shape[1], mode="FAST_COMPILE")())
        )
        units = (n_features, *sizes, n_outputs)
        layers.require_size(units, 1)

        model = model_or_context(None, BEGIN)
        row_dim, feature = _dims_of(model, self.inputs)
        if self.named is not None:
            row_dim, feature = (dim if dim in model.dim_lengths else None for dim in self.named)
        output_dim, n_axes = f"{name}::output", 1 if outputs is None else 2
        given = (dims,) if isinstance(dims, str) else dims
        if given is not None:
            _require_dims(model, given, n_axes)
            row_dim, output_dim = (*given, output_dim)[:2]
        layer_dims = [f"{name}::hidden{layer}" for layer in range(1, len(sizes) + 1)]
        unit_dims = (feature or f"{name}::input", *layer_dims, output_dim)
        self.stack = Stack(units, unit_dims, row_dim)
        self.dims = dict(zip(unit_dims, map(Dim, units), strict=True))
        if self.table is not None:
            self.dims[unit_dims[0]] = Dim(units[0], self.table.features)
        self.output_dims = None if row_dim is None else (row_dim, output_dim)[:n_axes]

    def add(self, network: Network, usual: tuple[float, float] = USUAL) -> TensorVariable:
        """Add a network to the model of the context, and return its output, named as the inputs."""
        model = model_or_context(None, BEGIN)
        known = {name: Dim(int(length.eval())) for name, length in model.dim_lengths.items()}
        alone = rehearsed(lambda: self._outputs(network), known | self.dims)
        names = [f"{self.name}::{name}" for name in alone.named_vars]
        used = {*model.named_vars, *model.coords}
        others = (f"{self.name}{number}" for number in count(2))
        free = next(name for name in others if model.name_for(name) not in used)
        advice = f'give this block a name of its own, such as name="{free}"'
        check_names(model, [self.name, *names], self.dims, advice)
        check_dims(model, self.dims)
        if all(map(_is_data, graph_inputs([self.inputs]))):
            feature = self.stack.unit_dims[0]
            labels = self.dims[feature].labels or model.coords.get(feature)
            inputs = Inputs(self.inputs.eval(mode=ONCE), labels)
            if (inputs.values != inputs.values[:1]).any():  # otherwise they hold a place
                warn_of_scales(inputs, None, usual, name="x")
        add_dims(model, self.dims)
        with pm.Model(name=self.name):
            outputs = self._outputs(network)
        f = outputs[:, 0] if self.is_vector else outputs
        f = pm.Deterministic(self.name, f, dims=self.output_dims)
        if self.named is None:
            return f
        dims = (self.named[0], self.stack.unit_dims[-1])[: f.ndim]
        named: TensorVariable = as_xtensor(f, dims=self.output_dims or dims)
        return named

    def _outputs(self, network: Network) -> TensorVariable:
        inputs = self.inputs
        if self.table is not None:
            inputs = self.table.add("inputs", (None, self.stack.unit_dims[0]))
        with beginning(self.start):
            return network(inputs)


def _inputs(x: Any) -> TensorVariable:
    try:
        inputs: TensorVariable = pt.as_tensor_variable(x)
    except (TypeError, ValueError, NotImplementedError):
        if isinstance(x, Variable):
            raise ValueError(f"x must be a tensor or an array of numbers; got {type(x)}.") from None
        advice = "pass a tensor or an array of numbers"
        inputs = pt.as_tensor_variable(numbers("x", x, ("obs", "feature"), advice).values)
    if inputs.ndim != 2:
        hint = "; for a single feature pass x[:, None]" if inputs.ndim == 1 else ""
        raise ValueError(
            f"x must be 2-D with shape (n_obs, n_features); it has {inputs.ndim} axes{hint}."
        )
    if isinstance(inputs, TensorConstant):
        require_finite("x", inputs.data)
    if inputs.dtype.startswith(("bool", "int", "uint")):
        return inputs.astype(pytensor.config.floatX)
    return inputs


def _is_data(leaf: Variable) -> bool:
    return isinstance(leaf, Constant | SharedVariable) and not isinstance(leaf.type, RandomType)


def _dims_of(model: pm.Model, inputs: TensorVariable) -> tuple[str | None, str | None]:
    """Dimensions of a variable of the model, whose columns may be shifted and scaled."""
    named = [variable for variable in model.named_vars.values() if variable.ndim == 2]
    variable = columns_of(inputs, named)
    if variable is None:
        return None, None
    row_dim, feature = model.named_vars_to_dims.get(variable.name, (None, None))
    return row_dim, feature


def _require_dims(model: pm.Model, dims: Sequence[str], count: int) -> None:
    what = "one name, of the rows" if count == 1 else "two names, of the rows and of the outputs"
    if len(dims) != count or not all(isinstance(dim, str) for dim in dims):
        raise ValueError(f"dims must be {what}; got {dims!r}.")
    if dims[0] not in model.dim_lengths:
        raise ValueError(
            f'dims names "{dims[0]}", which the model does not have; add it to the coords of the '
            "model."
        )
