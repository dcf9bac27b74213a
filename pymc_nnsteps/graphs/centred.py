"""Variables stated by their differences from a mean: their own, or that of their law."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable, equal_computations
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as scalar
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.search import depends_on, operands, unwrapped
from pymc_nnsteps.graphs.values import substitute_given, typed_like


class AboutMean(NamedTuple):
    """An expression ``rv - rv.mean(axes)``, and the axes."""

    expression: TensorVariable
    axes: tuple[int, ...]


def about_mean(model: pm.Model, child: TensorVariable, rv: TensorVariable) -> AboutMean | None:
    """The expression ``rv - rv.mean(axes)``, if a variable enters a child through it alone."""
    others = [other for other in model.basic_RVs if other is not rv]
    inputs = child.owner.inputs
    found = _found(inputs, rv, others)
    seen_beside = [*others, *(each.expression for each in found)]
    if len(found) != 1 or any(depends_on(each, [rv], seen_beside) for each in inputs):
        return None
    return found[0]


def differences(expressions: Sequence[Variable], rv: TensorVariable) -> list[TensorVariable]:
    """The expressions ``rv - rv.mean()`` of a vector in the graphs of others."""
    return [each.expression for each in _found(expressions, rv, ())] if rv.ndim == 1 else []


def _found(
    expressions: Sequence[Variable], rv: TensorVariable, barriers: Collection[Variable]
) -> list[AboutMean]:
    """The expressions ``rv - rv.mean(axes)`` in the graphs of others."""
    return [
        AboutMean(variable, axes)
        for variable in ancestors(expressions, blockers=[*barriers, rv])
        if isinstance(variable, TensorVariable)
        and _minuend(variable) is rv
        and (axes := _axes_of_mean(variable, rv)) is not None
    ]


def _axes_of_mean(variable: TensorVariable, rv: TensorVariable) -> tuple[int, ...] | None:
    """Axes of the mean that an expression takes off a variable, if it is ``rv - rv.mean(axes)``."""
    every = tuple(range(rv.ndim))
    means = [
        (every, rv.mean(axis, keepdims=kept)) for axis in (None, every) for kept in (False, True)
    ]
    for axis in every:
        means += [((axis,), rv.mean(axis, keepdims=True))]
        means += [((axis,), pt.expand_dims(rv.mean(axis), axis))]
    means += [((0,), rv.mean(0))] if every else []
    for axes, mean in means:
        if equal_computations([variable], [rv - mean], [rv], [rv]):
            return axes
    return None


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


@dataclass(frozen=True)
class Deviations:
    """Means of variables, of which the deviations are kept while the means move."""

    # A variable whose mean depends on another one comes after it.
    means: Mapping[TensorVariable, TensorVariable] = field(default_factory=dict)
    kept: Mapping[TensorVariable, TensorVariable] = field(default_factory=dict)  # the deviations

    def of(self, rv: TensorVariable, mean: TensorVariable) -> "Deviations":
        """These, and that of one more variable."""
        return Deviations({**self.means, rv: mean}, {**self.kept, rv: rv - mean})

    def restate(self, expression: TensorVariable) -> TensorVariable:
        """An expression in terms of means and deviations."""
        stated: dict[TensorVariable, TensorVariable] = {}
        for rv, mean in self.means.items():
            stated[rv] = self.kept[rv] + _given(mean, stated)
        return _given(expression, stated)

    def values(
        self, drawn: Mapping[TensorVariable, TensorVariable]
    ) -> dict[TensorVariable, TensorVariable]:
        """Values of the variables where their means depend on new values of others."""
        values = dict(drawn)
        for rv, mean in self.means.items():
            values[rv] = typed_like(rv, rv + (_given(mean, values) - mean))
        return {rv: values[rv] for rv in self.means}

    @property
    def barriers(self) -> Collection[TensorVariable]:
        """Expressions in which nothing moves."""
        return self.kept.values()


def _given(
    expression: TensorVariable, values: Mapping[TensorVariable, TensorVariable]
) -> TensorVariable:
    if not values:
        return expression
    [found] = substitute_given([expression], values)
    stated: TensorVariable = found
    return stated
