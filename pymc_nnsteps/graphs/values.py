"""Values in a graph: constants, data, and variables replaced by others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.pytensorf import constant_fold
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.basic import Alloc, get_underlying_scalar_constant_value
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.search import draws_at_random, entering, random_in


def observed_values(model: pm.Model) -> dict[Any, Any]:
    """Mapping from observed variables to their data."""
    return {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}


def typed_like(rv: TensorVariable, value: TensorVariable) -> TensorVariable:
    """New value of a random variable, with its dtype and static shape."""
    return pt.specify_shape(value.astype(rv.dtype), rv.type.shape)


def substitute(expressions: Iterable[Variable], replacements: Mapping[Any, Variable]) -> list[Any]:
    """Replace variables in expressions by others, not inside the replacements."""
    wanted = list(expressions)
    new: dict[Any, Any] = dict(replacements)
    for node in io_toposort(list(replacements), wanted):
        if not new.keys().isdisjoint(node.inputs):
            inputs = [new.get(variable, variable) for variable in node.inputs]
            same = [_dtype(old) == _dtype(i) for old, i in zip(node.inputs, inputs, strict=True)]
            if isinstance(node.op, Alloc) and all(same):
                # To infer its type anew would rewrite all that the lengths depend on.
                rebuilt = Apply(node.op, inputs, [output.clone() for output in node.outputs])
            else:
                rebuilt = node.clone_with_new_inputs(inputs, strict=all(same))
            new.update(zip(node.outputs, rebuilt.outputs, strict=True))
    return [new.get(expression, expression) for expression in wanted]


def substitute_given(
    expressions: Sequence[Variable], replacements: Mapping[Any, Variable]
) -> list[Any]:
    """Replace variables in expressions of random variables; observed ones are their data."""
    given: dict[Any, Variable] = {variable: variable for variable in random_in(expressions)}
    return substitute(expressions, given | dict(replacements))


def natural_values(model: pm.Model) -> dict[Variable, Variable]:
    """Mapping from random variables to functions of the value variables, or to data."""
    current: dict[Variable, Variable] = observed_values(model)
    for rv in model.free_RVs:
        value = model.rvs_to_values[rv]
        transform = model.rvs_to_transforms[rv]
        if transform is not None:
            inputs = substitute(rv.owner.inputs, current)
            value = transform.backward(value, *inputs)
        current[rv] = value
    return current


def _dtype(variable: Variable) -> str | None:
    return getattr(variable.type, "dtype", None)


def constant_or_none(variable: Any) -> NDArray[Any] | None:
    """Value of an expression of constants."""
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    [folded] = constant_fold([variable], raise_not_constant=False)
    return np.asarray(folded) if isinstance(folded, np.ndarray) else None


def scalar_constant(variable: Variable) -> float | None:
    """Value of a constant whose entries are all equal, seen through broadcasts and casts."""
    found = get_underlying_scalar_constant_value(variable, raise_not_constant=False)
    return float(found) if isinstance(found, np.ndarray) and found == found else None


def array_constant(expression: Variable) -> NDArray[Any] | None:
    """Value of an expression of constants and static lengths; None for any other expression."""
    for variable in entering([expression]):
        if variable.owner is None and not isinstance(variable, Constant):
            return None
        if draws_at_random(variable):
            return None
    return constant_or_none(expression)
