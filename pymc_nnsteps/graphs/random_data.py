"""Refusal of log densities that draw random numbers of their own."""

from collections.abc import Collection
from typing import Any

import pymc as pm
from pymc.logprob.basic import conditional_logp
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.shape import Shape, Shape_i

from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import draws_at_random
from pymc_nnsteps.graphs.values import observed_values


def refuse_random_data(model: pm.Model) -> None:
    """Check that the log density of a model is a function of its variables and data.

    With :func:`pymc.Minibatch`, or a random variable outside the model, the log density differs
    between evaluations.
    """
    roots = [*model.basic_RVs, *model.potentials, *observed_values(model).values()]
    drawn = {v.owner for v in ancestors(roots) if v.owner is not None and draws_at_random(v)}
    if drawn <= {rv.owner for rv in model.basic_RVs}:
        return
    # The other draws may be parts of a distribution, such as components of a mixture.
    values: dict[Any, Any] = {rv: rv.type() for rv in model.free_RVs}
    values |= {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    densities = conditional_logp(values, warn_rvs=False)
    terms: dict[Any, Variable] = {rv: densities[value] for rv, value in values.items()}
    terms |= {potential: potential for potential in model.potentials}
    for name, term in terms.items():
        culprit = _drawn_in(term, model.basic_RVs)
        if culprit is not None:
            raise ValueError(
                f"The log density of {describe(name)} is random: {describe(culprit)} is drawn anew "
                "whenever it is evaluated; give all of the data in place of a pm.Minibatch, and "
                "make random variables the model's own, by a name."
            )


def _drawn_in(expression: Variable, known: Collection[Variable]) -> Variable | None:
    """Random draws in an expression, without those behind ``known`` or in shapes."""
    seen = set(known)
    pending = [expression]
    while pending:
        variable = pending.pop()
        if variable in seen or variable.owner is None:
            continue
        seen.add(variable)
        if draws_at_random(variable):
            return variable
        if not isinstance(variable.owner.op, Shape | Shape_i):
            pending.extend(variable.owner.inputs)
    return None
