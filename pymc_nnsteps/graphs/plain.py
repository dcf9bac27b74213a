"""Models of named dimensions in plain tensors, which readers and steps take in their place."""

from collections.abc import Callable
from operator import is_
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.util import UNSET
from pytensor.compile import optdb
from pytensor.compile.ops import ViewOp
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.einsum import Einsum
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable
from pytensor.xtensor.basic import tensor_from_xtensor, xtensor_from_tensor
from pytensor.xtensor.type import XTensorSharedVariable, XTensorType

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.search import model_or_context, once_per_model
from pymc_nnsteps.graphs.values import constant_or_none, substitute


def model_to_read(model: pm.Model | None) -> pm.Model:
    """The given model, or that of the context, in plain tensors."""
    return plain_model(model_or_context(model))


@once_per_model
def plain_model(model: pm.Model) -> pm.Model:
    """Rewrite a model of :mod:`pymc.dims` in plain tensors, for packages that read no others.

    Steps and functions of this package take the model itself, and do this by themselves. Variables
    keep their names, dimensions, labels and transforms, so that draws of one model are
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
    NotConjugate
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
    >>> nns.Gibbs(["w"], model=named).vars[0].dims, nns.Gibbs(["w"], model=plain).vars[0].ndim
    (('column',), 1)
    """
    if not any(isinstance(each.type, XTensorType) for each in model.named_vars.values()):
        return model
    plain, made = pm.Model(model=None), dict[Variable, Variable]()
    plain._coords, plain._dim_lengths = model._coords, model._dim_lengths
    for variable in model.named_vars.values():
        made[variable] = added(plain, model, variable, made, _lowered)
    return plain


Restate = Callable[[Variable, dict[Variable, Variable]], Any]
"""An expression of a model as that of another, given what is made of others, which it adds to."""


def restated(
    expression: Variable,
    made: dict[Variable, Variable],
    outputs: Callable[[Apply, list[Variable]], list[Variable]],
) -> Any:
    """An expression with other outputs of its nodes, given their inputs; they are added to made."""
    if expression not in made and isinstance(getattr(expression.owner, "op", None), ViewOp):
        [expression] = expression.owner.inputs
    for node in io_toposort(list(made), [expression]):
        given = [made.get(each, each) for each in node.inputs]
        made.update(zip(node.outputs, outputs(node, given), strict=True))
    return made.get(expression, expression)


def added(
    to: pm.Model, model: pm.Model, variable: Any, made: dict[Variable, Variable], restate: Restate
) -> Any:
    """Add a variable of a model to another one, given what those before it are there."""
    name, dims = str(variable.name), model.named_vars_to_dims.get(variable.name)
    if variable in model.data_vars:
        data = variable
        if isinstance(variable, XTensorSharedVariable):
            kind = TensorType(variable.type.dtype, variable.type.shape)
            data = TensorSharedVariable(kind, None, None, container=variable.container, name=name)  # type: ignore[arg-type]
        to.register_data_var(data, dims=dims)
        return data
    expression = restate(variable, made)
    with to:
        if variable in model.deterministics:
            return pm.Deterministic(name, expression, dims=dims)
        if variable in model.potentials:
            return pm.Potential(name, expression, dims=dims)
    value, transform = model.rvs_to_values[variable], model.rvs_to_transforms[variable]
    if variable in model.observed_RVs:
        observed = made.get(value, value)
        observed = observed.data if isinstance(observed, Constant) else restate(observed, made)
        return to.register_rv(expression, name, observed=observed, dims=dims)
    has_named_axes = isinstance(variable.type, XTensorType)
    default = UNSET if has_named_axes and transform is not None else transform
    start = model.rvs_to_initial_values.get(variable)
    start = restate(start, made) if isinstance(start, Variable) else start
    rv = to.register_rv(expression, name, dims=dims, default_transform=default, initval=start)
    if not _map_alike(transform, to.rvs_to_transforms[rv], rv):
        raise NotConjugate(
            f"{name} has a transform of its own, which has no form in plain tensors; leave out its "
            "transform, or default_transform."
        )
    return rv


def _map_alike(named: Any, plain: Any, rv: TensorVariable) -> bool:
    """Whether a transform of named dimensions and one of plain tensors have one name and bounds."""
    if getattr(named, "name", None) != getattr(plain, "name", None):
        return False
    if not isinstance(getattr(named, "lower", None), Constant):
        return True
    bounds = (None if b is None else pt.as_tensor(b) for b in plain.args_fn(*rv.owner.inputs))
    pairs = zip((named.lower, named.upper), (-np.inf, np.inf), bounds, strict=True)
    read = [(own.data, none if b is None else constant_or_none(b)) for own, none, b in pairs]
    return all(found is not None and np.allclose(own, found) for own, found in read)


def _lowered(expression: Variable, made: dict[Variable, Variable]) -> TensorVariable:
    """An expression in plain tensors, lowered node by node so that parts are shared."""
    for leaf in ancestors([expression], made):
        if isinstance(leaf, Constant) and isinstance(leaf.type, XTensorType):
            made[leaf] = pt.constant(leaf.data)
    found = restated(expression, made, _lowered_outputs)
    if isinstance(found.type, XTensorType):
        raise NotConjugate(f"{expression} has no form in plain tensors.")
    return found


def _lowered_outputs(node: Apply, given: list[Variable]) -> list[Variable]:
    """Outputs of a node in plain tensors, given its inputs in these."""
    if not any(isinstance(each.type, XTensorType) for each in (*node.inputs, *node.outputs)):
        if all(map(is_, given, node.inputs)):
            return node.outputs
        return substitute(node.outputs, dict(zip(node.inputs, given, strict=True)))
    places = [each if isinstance(each, Constant) else each.type() for each in given]
    dims = [getattr(each.type, "dims", None) for each in node.inputs]
    named = [
        p if d is None else xtensor_from_tensor(p, d) for p, d in zip(places, dims, strict=True)
    ]
    outputs: list[Any] = [
        tensor_from_xtensor(new) if isinstance(new.type, XTensorType) else new
        for new in node.op.make_node(*named).outputs
    ]
    graph = FunctionGraph(outputs=outputs, clone=False)
    optdb.query("+lower_xtensor").rewrite(graph)
    for inner in graph.toposort():
        if isinstance(inner.op, Einsum):
            [inside] = inline_ofg_node(inner)
            graph.replace(inner.outputs[0], inside)
    if any(isinstance(each.type, XTensorType) for each in ancestors(graph.outputs)):
        raise NotConjugate(f"{node} has no form in plain tensors.")
    return substitute(graph.outputs, dict(zip(places, given, strict=True)))
