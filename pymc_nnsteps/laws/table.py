"""The table of laws: the recognisers of a variable, by its prior and its children.

The decorator :func:`recognises` enters a recogniser in the table. The package imports every module
of this room, so one new file adds a law.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe, distribution, kind_of
from pymc_nnsteps.graphs.search import children, once_per_model
from pymc_nnsteps.laws.conditional import Conditional

Recogniser = Callable[[pm.Model, TensorVariable], Conditional]
Condition = Callable[[pm.Model, TensorVariable], bool]


@dataclass(frozen=True, eq=False)
class Law:
    """Line of the table."""

    priority: int  # of laws for the same variable, those of lower numbers are asked first
    name: str  # the full conditional
    priors: Collection[type]  # ops of the variable's own distribution
    children: Collection[type]  # ops of the children that the law knows
    recogniser: Recogniser  # ``recogniser(model, rv)`` gives the conditional or raises NotConjugate
    when: Condition | None = None  # ``when(model, rv)``: a further condition for asking the law

    def is_for(self, model: pm.Model, rv: TensorVariable) -> bool:
        """Whether the law is for variables with this prior, in this model."""
        return kind_of(rv) in self.priors and (self.when is None or self.when(model, rv))

    def knows_children(self, model: pm.Model, rv: TensorVariable) -> bool:
        """Whether the law knows a child of the variable, or the variable has no children."""
        kinds = {kind_of(child) for child in children(model, rv)}
        return not kinds or not kinds.isdisjoint(self.children)

    def recognise(self, model: pm.Model, rv: TensorVariable) -> Conditional:
        """Conditional of a variable all of whose children the law knows."""
        found = _answer(model, self, rv)
        if isinstance(found, str):
            raise NotConjugate(found)
        return found


@once_per_model
def _answer(model: pm.Model, law: Law, rv: TensorVariable) -> Conditional | str:
    """The conditional that a law gives for a variable, or why it gives none."""
    try:
        found = law.recogniser(model, rv)
    except NotConjugate as reason:
        return str(reason)
    for child in children(model, rv):
        if kind_of(child) not in law.children:
            return f"child {describe(child)} is {distribution(child)}"
    return found


_TABLE: list[Law] = []


def recognises[R: Recogniser](
    priority: int,
    name: str,
    priors: Collection[type],
    children: Collection[type],
    when: Condition | None = None,
) -> Callable[[R], R]:
    """Enter the decorated recogniser in the table.

    The arguments are attributes of :class:`Law`; priorities of the package are multiples of 100. A
    collection may grow later, as the keys of a dictionary do: it is read when the table is asked.
    """
    if any(law.priority == priority for law in _TABLE):
        raise ValueError(f"priority {priority} is that of another law; choose a free one.")

    def enter(recognise: R) -> R:
        _TABLE.append(Law(priority, name, priors, children, recognise, when))
        return recognise

    return enter


def laws_in_order() -> list[Law]:
    """All laws, those of lower priority numbers first."""
    return sorted(_TABLE, key=lambda law: law.priority)


def as_markdown() -> str:
    """All laws as a table of Markdown: prior, children, full conditional."""
    rows = [
        f"| {_names(law.priors)} | {_names(law.children)} | {law.name} |" for law in laws_in_order()
    ]
    return "\n".join(["| prior | children | full conditional |", "|---|---|---|", *rows, ""])


def _names(kinds: Collection[type]) -> str:
    """Distributions of Ops, as PyMC prints them."""
    return ", ".join(sorted(getattr(kind, "_print_name", (kind.__name__,))[0] for kind in kinds))


def laws_of(model: pm.Model, rv: TensorVariable) -> list[Law]:
    """Laws to ask about a variable, by priority, or the one that gives the reason for none."""
    of_prior = [law for law in laws_in_order() if law.is_for(model, rv)]
    return [law for law in of_prior if law.knows_children(model, rv)] or of_prior[:1]
