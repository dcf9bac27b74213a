"""The contract of a law, the table of laws, and what their recognisers share.

A conditional draws one or several free random variables of a model from their joint full
conditional, as a PyTensor graph in terms of the model's other random variables. The Gibbs step
chains such graphs into one compiled sweep.

The decorator :func:`recognises` enters a recogniser in the table, by the prior of a variable and
its children. The package imports every module of this room, so one new file adds a law.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import IntEnum
from typing import ClassVar, override

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import AffineMap, broadcast
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import (
    LINE,
    Support,
    describe,
    distribution,
    is_a,
    is_onto,
    kind_of,
    potential_on,
)
from pymc_nnsteps.graphs.linear_terms import Link, expand
from pymc_nnsteps.graphs.monomial import Monomial, monomial
from pymc_nnsteps.graphs.search import (
    children,
    depends_on,
    depends_on_random_data,
    once_per_model,
    parameters,
)
from pymc_nnsteps.graphs.shapes import lengths, require_fitting_types
from pymc_nnsteps.graphs.values import scalar_constant

Shapes = Mapping[TensorVariable, tuple[int, ...]]


@dataclass(frozen=True)
class Draw:
    """One symbolic draw."""

    rng: Variable  # the generator after the draw
    # New values of the random variables that are drawn.
    values: Mapping[TensorVariable, TensorVariable]
    # Mean acceptance probabilities of Metropolis-Hastings moves, one for each adapted number.
    acceptance: TensorVariable | None = None
    # Numbers whose averages over the tuning the move is given.
    averages: TensorVariable | None = None
    # Values of auxiliary variables outside the model, for the draws that follow in the sweep.
    auxiliary: Mapping[TensorVariable, TensorVariable] = field(default_factory=dict)


class Group(IntEnum):
    """Place in a parallel scan, which draws these groups one after another."""

    POST_ACTIVATIONS = 0
    WEIGHTS = 1
    OTHERS = 2


@dataclass(frozen=True)
class Conditional(ABC):
    """The full conditional of ``draws``."""

    draws: tuple[TensorVariable, ...]  # the random variables that a draw gives new values
    # Whether the draw is a move beside other draws of all its variables.
    supplements: ClassVar[bool] = False

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the conditional in the table of :func:`pymc_nnsteps.explain`."""

    @property
    def integrates_out(self) -> tuple[TensorVariable, ...]:
        """Variables that the draw is not given, and that must be drawn afresh after it."""
        return ()

    def group(self, model: pm.Model) -> Group:
        """Place in a parallel scan."""
        return Group.POST_ACTIVATIONS if self.integrates_out else Group.OTHERS

    def explain_law(self, rv: TensorVariable) -> list[str]:
        """What :func:`pymc_nnsteps.explain` says of a variable whose law this is."""
        jointly = [f"jointly with {_names(self.partners(rv))}"] if self.partners(rv) else []
        return jointly + self.without()

    def explain_move(self, rv: TensorVariable) -> list[str]:
        """What :func:`pymc_nnsteps.explain` adds for a variable whose law is another one."""
        return [f"also with {what}" for what in self.without()]

    def without(self) -> list[str]:
        """Which variables are integrated out, in words; nothing if none are."""
        out = self.integrates_out
        return [f"{_names(out)} integrated out"] if out else []

    def partners(self, rv: TensorVariable) -> list[TensorVariable]:
        """The variables that are drawn with another one."""
        return [other for other in self.draws if other is not rv]

    @abstractmethod
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        """One draw, a graph of the model's other random variables; shapes choose its form."""


def _names(rvs: Iterable[TensorVariable]) -> str:
    return ", ".join(map(describe, rvs))


@dataclass(frozen=True)
class Move(Conditional):
    """A Metropolis-Hastings move with proposals that are tuned."""

    _: KW_ONLY
    # Adapted numbers in [0, 1), a vector; smaller ones give bolder proposals.
    tuning: TensorVariable
    # Averages over the tuning of the numbers that a draw reports, a vector; zero at first.
    averages: TensorVariable | None = None
    n_averages: int = 0  # its length
    every: int = 1  # number of sweeps of which one has the move
    target_accept: ClassVar[float] = 0.5  # probability of acceptance that is tuned to
    # Whether it begins only after other draws have brought the chain near the posterior.
    waits: ClassVar[bool] = False

    def n_tuned(self, shapes: Shapes) -> int:
        """Length of ``tuning``."""
        return 1

    @override
    def explain_move(self, rv: TensorVariable) -> list[str]:
        return [f"interwoven with {_names(self.partners(rv))}"]


class Additive(Conditional):
    """A conditional that depends on children by sums over their entries, such as of shards."""

    @abstractmethod
    def link(self, child: TensorVariable, axis: int) -> Link | None:
        """How an axis of a child carries the drawn entries along; None if it does not."""

    @abstractmethod
    def sums(
        self, rng: Variable, children: Collection[TensorVariable]
    ) -> tuple[Variable, tuple[TensorVariable, ...]]:
        """Sums over the entries of children; the generator is for their auxiliary variables."""

    @abstractmethod
    def draw_given(self, rng: Variable, shapes: Shapes, sums: Sequence[TensorVariable]) -> Draw:
        """One draw, given the sums of all children."""


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
        f"| {_kinds(law.priors)} | {_kinds(law.children)} | {law.name} |" for law in laws_in_order()
    ]
    return "\n".join(["| prior | children | full conditional |", "|---|---|---|", *rows, ""])


def _kinds(kinds: Collection[type]) -> str:
    """Distributions of Ops, as PyMC prints them."""
    return ", ".join(sorted(getattr(kind, "_print_name", (kind.__name__,))[0] for kind in kinds))


def laws_of(model: pm.Model, rv: TensorVariable) -> list[Law]:
    """Laws to ask about a variable, by priority, or the one that gives the reason for none."""
    of_prior = [law for law in laws_in_order() if law.is_for(model, rv)]
    return [law for law in of_prior if law.knows_children(model, rv)] or of_prior[:1]


def require_free(model: pm.Model, rv: TensorVariable) -> None:
    """Check that a full conditional is the product of the prior and the children.

    It is not with a potential, a child's transform, random data, or children of other shapes than
    data.
    """
    if rv not in model.free_RVs:
        raise NotConjugate(f"{describe(rv)} is not a free random variable of the model")
    if (potential := potential_on(model, rv)) is not None:
        raise NotConjugate(f"the potential {describe(potential)} depends on it")
    direct = children(model, rv)
    for child in direct:
        if (transform := model.rvs_to_transforms.get(child)) is not None:
            natural = transform.backward(model.rvs_to_values[child], *child.owner.inputs)
            if depends_on(natural, {rv}, model.basic_RVs):
                raise NotConjugate(f"the transform of child {describe(child)} depends on it")
        if child in model.observed_RVs and not is_onto(model, child, LINE):
            raise NotConjugate(f"the data of child {describe(child)} are transformed")
    for variable in (rv, *direct):
        if variable in model.observed_RVs:
            require_fitting_types(model, variable)
        if depends_on_random_data(model, variable):
            raise NotConjugate(
                f"{describe(variable)} depends on data that are redrawn at each evaluation of the "
                "model"
            )


def require_support(model: pm.Model, rv: TensorVariable, support: Support) -> None:
    """Check that a free variable may take every value of the support of its draw."""
    if not is_onto(model, rv, support):
        name = type(model.rvs_to_transforms[rv]).__name__
        raise NotConjugate(f"the transform {name} constrains it to other values than its prior")


def require_given(
    model: pm.Model,
    child: TensorVariable,
    role: str,
    given: Iterable[TensorVariable],
    rvs: Collection[TensorVariable],
) -> None:
    """Check that parameters of a child, which have a role, do not depend on the drawn variables."""
    if any(depends_on(parameter, rvs, model.basic_RVs) for parameter in given):
        raise NotConjugate(f"{role} of child {describe(child)} depends on it")


def normal_prior(model: pm.Model, rv: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Mean and precision of a free variable with an untransformed Normal prior."""
    if not is_a(rv, NormalRV):
        raise NotConjugate(f"its prior is {distribution(rv)}, not Normal")
    require_free(model, rv)
    require_support(model, rv, LINE)
    mean, sigma = parameters(rv)
    return mean, precision_of(rv, sigma)


def precision_of(rv: TensorVariable, sigma: TensorVariable) -> TensorVariable:
    """``1 / sigma^2`` in the dtype of ``rv`` (PyTensor stores literals in float32)."""
    return pt.reciprocal(pt.sqr(sigma.astype(rv.dtype)))


def value_of(model: pm.Model, rv: TensorVariable) -> TensorVariable:
    """Data of an observed variable; a free variable itself."""
    return model.rvs_to_values[rv] if rv in model.observed_RVs else rv


def carried(
    expression: TensorVariable,
    rv: TensorVariable,
    barriers: Collection[TensorVariable],
    target: TensorVariable,
) -> Monomial:
    """Read an expression as a power of ``rv``, with the axes of a target to which it broadcasts."""
    form = monomial(expression, rv, barriers)
    term = broadcast(AffineMap(None, {rv: form.term}), expression, target).terms[rv]
    return replace(form, term=term)


def selected(
    expression: TensorVariable,
    rv: TensorVariable,
    barriers: Collection[TensorVariable],
    target: TensorVariable,
) -> Monomial:
    """Read an expression that consists of entries of ``rv`` only."""
    form = carried(expression, rv, barriers, target)
    if form.exponent != 1 or scalar_constant(form.term.coefficient) != 1 or form.where is not None:
        raise NotConjugate("it does not enter unchanged")
    return form


def summed(
    array: TensorVariable, form: Monomial, rv: TensorVariable, target: TensorVariable
) -> TensorVariable:
    """Sum of an array over the target's entries that share an entry of ``rv``, of its axes."""
    array = array.astype(rv.dtype)
    if form.where is not None:
        array = pt.switch(form.where, array, pt.zeros((), dtype=rv.dtype))
    full = pt.broadcast_to(array, target.shape)
    links = form.term.links
    repeated = [axis for axis, link in enumerate(links) if link is None]
    kept: list[Link] = [link for link in links if link is not None]
    total = full.sum(repeated) if repeated else full
    for axis, link in enumerate(kept):
        if link.index is not None:
            front = pt.moveaxis(expand(total, {axis: link.index.shape[0]}), axis, 0)
            zeros = pt.zeros((lengths(rv)[link.axis], *list(front.shape)[1:]), dtype=rv.dtype)
            total = pt.moveaxis(zeros[link.index].inc(front), 0, axis)
    axes = [link.axis for link in kept]
    total = total.dimshuffle(
        *(axes.index(axis) if axis in axes else "x" for axis in range(rv.ndim))
    )
    for axis, entry in form.picked:
        only = pt.zeros(lengths(rv)[axis], dtype=rv.dtype)[entry].set(1)
        total *= only.dimshuffle(*(0 if i == axis else "x" for i in range(rv.ndim)))
    return total
