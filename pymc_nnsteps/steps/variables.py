"""The model's variables as a step method meets them: chosen by its user, and as values."""

from collections.abc import Sequence

import pymc as pm
import pytensor.tensor as pt
from pymc.util import get_value_vars_from_user_vars
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable
from pytensor.xtensor.type import XTensorType, as_xtensor

from pymc_nnsteps.conditionals.structure import observed_values, substitute, typed_like

Vars = TensorVariable | str | Sequence[TensorVariable | str] | None
"""What a step method takes as its variables; None leaves the choice to it."""


def chosen(
    model: pm.Model, vars: TensorVariable | str | Sequence[TensorVariable | str]
) -> list[TensorVariable]:
    """Random variables that a step is asked to draw.

    Parameters
    ----------
    model : pm.Model
    vars : variable, name, or list of these
        Random variables or value variables of the model.

    Raises
    ------
    ValueError
        If something is not a free variable of the model.
    """
    given = vars if isinstance(vars, list | tuple) else [vars]
    for var in given:
        if not (var in model.named_vars if isinstance(var, str) else hasattr(var, "owner")):
            known = ", ".join(rv.name for rv in model.free_RVs)
            message = f"vars must be free variables of the model ({known}); got {var!r}."
            raise ValueError(message)
    named = [model[var] if isinstance(var, str) else var for var in given]
    values = dict.fromkeys(get_value_vars_from_user_vars(named, model))
    return [model.values_to_rvs[value] for value in values]


def natural_values(model: pm.Model) -> dict[Variable, Variable]:
    """Each random variable as a function of the model's value variables, or its data."""
    current: dict[Variable, Variable] = observed_values(model)
    for rv in model.free_RVs:
        value = model.rvs_to_values[rv]
        transform = model.rvs_to_transforms[rv]
        if transform is not None:
            inputs = substitute(rv.owner.inputs, current)
            value = transform.backward(value, *inputs)
        current[rv] = value
    return current


def as_tensor(value: Variable) -> TensorVariable:
    """A variable without the names of its dimensions, if it has any."""
    return pt.as_tensor(value, allow_xtensor_conversion=True)


def as_value(value: Variable, tensor: TensorVariable) -> Variable:
    """A tensor with the type of a value variable, named dimensions included."""
    typed = typed_like(as_tensor(value), tensor)
    if isinstance(value.type, XTensorType):
        return as_xtensor(typed, dims=value.type.dims)
    return typed
