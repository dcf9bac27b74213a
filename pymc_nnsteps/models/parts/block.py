"""What every block does first: look at its inputs, and at the model that it is to be a part of.

A block's variables are those of a nested model, so that their names start with the block's.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, get_args

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor import TensorConstant, TensorVariable
from pytensor.tensor.random.type import RandomType
from pytensor.xtensor.type import XTensorType, as_xtensor

from pymc_nnsteps.arguments import positive_integer, require_choice, require_finite
from pymc_nnsteps.graphs.initial_values import beginning
from pymc_nnsteps.graphs.search import columns_of, model_or_context
from pymc_nnsteps.kernels.compiling import ONCE
from pymc_nnsteps.models.parts import data, layers
from pymc_nnsteps.models.parts.context import (
    Dim,
    Stack,
    add_dims,
    check_dims,
    check_names,
    rehearsed,
)
from pymc_nnsteps.models.parts.inputs import Inputs
from pymc_nnsteps.models.parts.likelihoods import Start
from pymc_nnsteps.models.parts.scaffold import warn_of_scales
from pymc_nnsteps.tables import is_table, numbers

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

    def add(self, network: Network, usual: tuple[float, float] = (0.01, 100.0)) -> TensorVariable:
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
                warn_of_scales(inputs, None, usual=usual, name="x")
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
