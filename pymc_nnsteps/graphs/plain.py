"""Models of named dimensions in plain tensors, which is what this package reads."""

from collections.abc import Mapping
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pymc.util import UNSET
from pytensor.compile import optdb
from pytensor.compile.ops import ViewOp
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.einsum import Einsum
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable
from pytensor.xtensor.basic import tensor_from_xtensor, xtensor_from_tensor
from pytensor.xtensor.type import XTensorSharedVariable, XTensorType

from pymc_nnsteps.graphs.search import model_or_context, once_per_model
from pymc_nnsteps.graphs.values import substitute


def model_to_read(model: pm.Model | None) -> pm.Model:
    """The given model, or that of the context, in plain tensors."""
    return plain_model(model_or_context(model))


@once_per_model
def plain_model(model: pm.Model) -> pm.Model:
    """Rewrite a model of :mod:`pymc.dims` in plain tensors, which this package and others read.

    Variables keep their names, dimensions, labels and transforms, so that draws of one model are
    draws of the other. Data are shared: ``pm.set_data`` on one model sets the data of both.

    Parameters
    ----------
    model : pm.Model
        A model without named dimensions is returned as it is.

    Returns
    -------
    pm.Model

    Raises
    ------
    ValueError
        If a variable has no form in plain tensors, or has a transform that is not PyMC's default.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc.dims as pmd, pymc_nnsteps as nns
    >>> with pm.Model(coords={"row": range(3), "column": ["a", "b"]}) as named:
    ...     x = pmd.Data("x", np.eye(3, 2), dims=("row", "column"))
    ...     w = pmd.Normal("w", 0, 1, dims="column")
    ...     seen = pmd.Data("seen", np.ones(3), dims="row")
    ...     y = pmd.Normal("y", x.dot(w, dim="column"), 1, observed=seen)
    >>> plain = nns.models.plain_model(named)
    >>> step = nns.Gibbs(["w"], model=plain)
    """
    if not any(isinstance(each.type, XTensorType) for each in model.named_vars.values()):
        return model
    plain, made = pm.Model(), dict[Variable, Variable]()
    plain._coords, plain._dim_lengths = model._coords, model._dim_lengths
    for variable in model.named_vars.values():
        made[variable] = _added(plain, model, variable, made)
    return plain


def _added(
    plain: pm.Model, model: pm.Model, variable: Any, made: Mapping[Variable, Variable]
) -> Variable:
    """Add what a variable of the model is in plain tensors, given those before it."""
    name, dims = str(variable.name), model.named_vars_to_dims.get(variable.name)
    if variable in model.data_vars:
        data = variable
        if isinstance(variable, XTensorSharedVariable):
            kind = TensorType(variable.type.dtype, variable.type.shape)
            data = TensorSharedVariable(kind, None, None, container=variable.container, name=name)  # type: ignore[arg-type]
        plain.register_data_var(data, dims=dims)
        return data
    expression = _lowered(variable, made)
    with plain:
        if variable in model.deterministics:
            return pm.Deterministic(name, expression, dims=dims)
        if variable in model.potentials:
            return pm.Potential(name, expression, dims=dims)
    value, transform = model.rvs_to_values[variable], model.rvs_to_transforms[variable]
    if variable in model.observed_RVs:
        observed = made.get(value, value)
        observed = observed.data if isinstance(observed, Constant) else _lowered(observed, made)
        return plain.register_rv(expression, name, observed=observed, dims=dims)
    default = UNSET if transform is not None else None
    start = model.rvs_to_initial_values.get(variable)
    start = _lowered(start, made) if isinstance(start, Variable) else start
    rv = plain.register_rv(expression, name, dims=dims, default_transform=default, initval=start)
    if getattr(plain.rvs_to_transforms[rv], "name", None) != getattr(transform, "name", None):
        raise ValueError(f"{name} has a transform of its own, which has no form of plain tensors.")
    return rv


def _lowered(expression: Variable, made: Mapping[Variable, Variable]) -> TensorVariable:
    """An expression in plain tensors, those of the model's variables among them."""
    if expression in made:
        return made[expression]  # type: ignore[return-value]
    if expression.owner is not None and isinstance(expression.owner.op, ViewOp):
        [expression] = expression.owner.inputs
        if expression in made:
            return made[expression]  # type: ignore[return-value]
    places = {variable: plain.type() for variable, plain in made.items()}
    stated: dict[Variable, Any] = dict(places)
    stated |= {
        leaf: pt.constant(leaf.data)
        for leaf in ancestors([expression])
        if isinstance(leaf, Constant) and isinstance(leaf.type, XTensorType)
    }
    for variable, plain in stated.items():
        if isinstance(variable.type, XTensorType):
            stated[variable] = xtensor_from_tensor(plain, dims=variable.type.dims)
    [found] = substitute([expression], stated)
    if isinstance(found.type, XTensorType):
        found = tensor_from_xtensor(found)
    graph = FunctionGraph(outputs=[found], clone=False)
    optdb.query("+lower_xtensor").rewrite(graph)
    [found] = graph.outputs
    for node in io_toposort([], [found]):
        if isinstance(node.op, Einsum):
            [inside] = inline_ofg_node(node)
            [found] = substitute([found], {node.outputs[0]: inside})
    [found] = substitute([found], {place: made[variable] for variable, place in places.items()})
    named = [v for v in ancestors([found]) if isinstance(v.type, XTensorType)]
    if named:
        raise ValueError(f"{expression} has {named[-1]}, which has no form of plain tensors.")
    return found
