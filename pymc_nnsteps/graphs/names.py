"""Names of variables and distributions as the user knows them."""

import pymc as pm
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import has_foreign_density, potential_on
from pymc_nnsteps.graphs.search import partly_observed


def describe(variable: Variable) -> str:
    """Name of a variable, or of the operation that made it if it has no name."""
    if variable.name:
        return str(variable.name)
    if variable.owner is None:
        return str(variable)
    op = getattr(variable.owner.op, "core_op", variable.owner.op)
    return str(type(getattr(op, "scalar_op", op)).__name__)


def describe_expression(variable: Variable) -> str:
    """Name of a variable, or of those that it is an expression of."""
    if variable.name or variable.owner is None:
        return describe(variable)
    inputs = (leaf for leaf in graph_inputs([variable]) if not isinstance(leaf, Constant))
    names = sorted({str(leaf.name) for leaf in inputs if leaf.name})
    return f"an expression of {', '.join(names)}" if names else describe(variable)


def distribution(rv: TensorVariable) -> str:
    """Name of the distribution of ``rv`` as PyMC prints it, with a note if it is not PyMC's."""
    op = rv.owner.op
    if (whole := partly_observed(rv)) is not None:
        return f"partly observed {distribution(whole)}"
    of_class = type(op).__name__.removesuffix("RV")
    if has_foreign_density(rv):
        return f"{of_class} with a density that is not PyMC's"
    names = getattr(op, "_print_name", None)
    name = str(names[0]) if names else of_class
    plain = isinstance(rv, TensorVariable)
    return name if plain else f"pymc.dims.{name} (stated in plain tensors by nns.plain_model)"


def law_as_stated(model: pm.Model, rv: TensorVariable) -> str:
    """Name of the distribution of ``rv``, with a transform and a potential that may change it."""
    transform, potential = model.rvs_to_transforms.get(rv), potential_on(model, rv)
    constraint = "" if transform is None else f" with the transform {type(transform).__name__}"
    weight = "" if potential is None else f" with the potential {potential.name}"
    return distribution(rv) + constraint + weight
