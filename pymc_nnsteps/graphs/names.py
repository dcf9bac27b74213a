"""What the parts of a graph are called, in words that the user knows."""

from pymc.distributions.distribution import PartialObservedRV
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable


def describe(variable: Variable) -> str:
    """Name a variable as its user knows it: by its name, else by the operation that made it."""
    if variable.name:
        return str(variable.name)
    if variable.owner is None:
        return str(variable)
    op = getattr(variable.owner.op, "core_op", variable.owner.op)
    return str(type(getattr(op, "scalar_op", op)).__name__)


def distribution(rv: TensorVariable) -> str:
    """Name of the distribution of ``rv``, as PyMC prints it."""
    op = rv.owner.op
    if isinstance(op, PartialObservedRV):
        return f"partly observed {distribution(rv.owner.inputs[0])}"
    names = getattr(op, "_print_name", None)
    name = str(names[0]) if names else type(op).__name__.removesuffix("RV")
    return name if isinstance(rv, TensorVariable) else f"pymc.dims.{name}"
