"""The table of laws: which recognisers to ask about a variable, by its prior and its children.

A law is entered where it is defined, by :func:`recognises` above its recogniser; every module of
this room is imported with the package. So one new file adds a law.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.conditional import Conditional
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import kind_of
from pymc_nnsteps.graphs.names import describe, distribution
from pymc_nnsteps.graphs.search import children

Recogniser = Callable[[pm.Model, TensorVariable], Conditional]
Condition = Callable[[pm.Model, TensorVariable], bool]


@dataclass(frozen=True)
class Law:
    """A line of the table.

    Attributes
    ----------
    priors : collection of type
        Ops of the variable's own distribution.
    children : collection of type
        Ops of the children that it knows.
    recogniser : callable
        ``recogniser(model, rv)`` gives the conditional or raises NotConjugate.
    when : callable, optional
        ``when(model, rv)``: what else has to hold for the law to be asked.
    """

    priors: Collection[type]
    children: Collection[type]
    recogniser: Recogniser
    when: Condition | None = None

    def is_for(self, model: pm.Model, rv: TensorVariable) -> bool:
        """Whether it is for variables with this prior, in this model."""
        return kind_of(rv) in self.priors and (self.when is None or self.when(model, rv))

    def knows_children(self, model: pm.Model, rv: TensorVariable) -> bool:
        """Whether it knows a child of a variable, or the variable has none."""
        kinds = {kind_of(child) for child in children(model, rv)}
        return not kinds or not kinds.isdisjoint(self.children)

    def recognise(self, model: pm.Model, rv: TensorVariable) -> Conditional:
        """The conditional of a variable, of whose children the law knows all.

        Raises
        ------
        NotConjugate
        """
        found = self.recogniser(model, rv)
        for child in children(model, rv):
            if kind_of(child) not in self.children:
                raise NotConjugate(f"child {describe(child)} is {distribution(child)}")
        return found


_TABLE: list[Law] = []


def recognises[R: Recogniser](
    priors: Collection[type], children: Collection[type], when: Condition | None = None
) -> Callable[[R], R]:
    """Enter the recogniser that is decorated into the table.

    Of several that recognise the same variable the one that was entered first wins; modules are
    imported in the order of their names, and after those that they import.

    Parameters
    ----------
    priors, children, when
        As of :class:`Law`. A collection that grows later, such as the keys of a dictionary that
        other modules may add to, is read as it is when the table is asked.

    Examples
    --------
    >>> from pytensor.tensor.random.basic import BetaRV, GeometricRV
    >>> from pymc_nnsteps.graphs.errors import NotConjugate
    >>> def match_trials(model, rv):
    ...     raise NotConjugate("not written yet")
    >>> law = Law({BetaRV}, {GeometricRV}, match_trials)
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     n = pm.Geometric("n", p)
    >>> law.is_for(model, p) and law.knows_children(model, p)
    True
    """

    def enter(recognise: R) -> R:
        _TABLE.append(Law(priors, children, recognise, when))
        return recognise

    return enter


def laws_of(model: pm.Model, rv: TensorVariable) -> list[Law]:
    """Laws that are to be asked about a variable, in their order.

    Where none is for its children, the first for its prior, which says what is wrong.
    """
    of_prior = [law for law in _TABLE if law.is_for(model, rv)]
    return [law for law in of_prior if law.knows_children(model, rv)] or of_prior[:1]
