"""Variables stated as their mean and what they deviate from it by."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.values import substitute_given, typed_like


@dataclass(frozen=True)
class Deviations:
    """Means of variables, of which the deviations are kept while the means move.

    Attributes
    ----------
    means : mapping from random variable to TensorVariable
        A variable whose mean depends on another one comes after it.
    kept : mapping from random variable to TensorVariable
        The deviations.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     a = pm.Normal("a", mu, shape=3)
    >>> moved = Deviations().of(a, mu).values({mu: mu + 1.0})[a]
    >>> bool((moved - a).eval().round(6).max() == 1)
    True
    """

    means: Mapping[TensorVariable, TensorVariable] = field(default_factory=dict)
    kept: Mapping[TensorVariable, TensorVariable] = field(default_factory=dict)

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
