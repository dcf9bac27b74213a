"""Effects that enter a model only by their differences from their own mean."""

from collections.abc import Collection, Sequence

import pymc as pm
from pytensor.graph.basic import Variable, equal_computations
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as scalar
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.search import depends_on, operands, unwrapped


def about_mean(model: pm.Model, child: TensorVariable, rv: TensorVariable) -> TensorVariable | None:
    """The expression ``rv - rv.mean()`` of a vector, if a child sees the vector by it alone.

    Parameters
    ----------
    model : pm.Model
    child : TensorVariable
        Random variable of the model.
    rv : TensorVariable

    Examples
    --------
    >>> with pm.Model() as model:
    ...     a = pm.Normal("a", shape=3)
    ...     y = pm.Normal("y", (a - a.mean())[[0, 1, 1, 2]], observed=[0.0, 1.0, 2.0, 3.0])
    >>> about_mean(model, y, a).owner.inputs[0] is a
    True
    """
    others = [other for other in model.basic_RVs if other is not rv]
    inputs = child.owner.inputs
    found = differences(inputs, rv, others)
    if len(found) != 1 or any(depends_on(each, [rv], [*others, *found]) for each in inputs):
        return None
    return found[0]


def differences(
    expressions: Sequence[Variable], rv: TensorVariable, barriers: Collection[Variable] = ()
) -> list[TensorVariable]:
    """The expressions ``rv - rv.mean()`` of a vector in the graphs of others.

    Parameters
    ----------
    expressions : sequence of Variable
    rv : TensorVariable
    barriers : collection of Variable
        Variables behind which the graphs are not searched.
    """
    if rv.ndim != 1:
        return []
    forms = [rv - rv.mean(axis, keepdims=kept) for axis in (None, 0) for kept in (False, True)]
    return [
        variable
        for variable in ancestors(expressions, blockers=[*barriers, rv])
        if isinstance(variable, TensorVariable)
        and _minuend(variable) is rv
        and any(equal_computations([variable], [form], [rv], [rv]) for form in forms)
    ]


def about_mean_of_first(vector: TensorVariable, n: int) -> TensorVariable:
    """Differences of all entries of a vector from the mean of its first ``n``."""
    return vector - vector[:n].mean()


def vector_about_mean(expression: TensorVariable) -> TensorVariable | None:
    """The vector, if the expression is :func:`about_mean_of_first` of it and all its entries."""
    expression = unwrapped(expression)
    vector = _minuend(expression)
    if vector is None or vector.ndim != 1 or (n := vector.type.shape[0]) is None:
        return None
    form = about_mean_of_first(vector, n)
    return vector if equal_computations([expression], [form], [vector], [vector]) else None


def _minuend(expression: TensorVariable) -> TensorVariable | None:
    difference = operands(expression, scalar.Sub)
    return None if difference is None else difference[0]
