"""The model's variables as a step method meets them: chosen by its user, and as values."""

from collections.abc import Sequence

import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.search import stated_in

Vars = TensorVariable | str | Sequence[TensorVariable | str] | None
"""Type of the ``vars`` argument of a step method; None leaves the choice to the step."""


def chosen(
    model: pm.Model, vars: TensorVariable | str | Sequence[TensorVariable | str]
) -> list[TensorVariable]:
    """Random variables that a step is asked to draw, by these, their values or their names."""
    given = vars if isinstance(vars, list | tuple) else [vars]
    return list(dict.fromkeys(_free_variable(model, var) for var in given))


def _free_variable(model: pm.Model, var: object) -> TensorVariable:
    named: object = model.named_vars.get(var) if isinstance(var, str) else var
    if isinstance(named, Variable):
        rv = model.values_to_rvs.get(named, named)
        if rv in model.free_RVs:
            return rv
        problem = _problem(model, rv)
    else:
        problem = f"got {var!r}"
    known = ", ".join(rv.name for rv in model.free_RVs)
    raise ValueError(f"vars must be free variables of the model ({known}); {problem}.")


def _problem(model: pm.Model, variable: Variable) -> str:
    """Why a step cannot draw something that is not a free variable."""
    name = describe(variable)
    if variable in model.observed_RVs:
        return f"{name} is observed"
    if variable in model.data_vars:
        return f"{name} is data"
    sources = stated_in([variable], model.free_RVs)
    if sources:
        names = ", ".join(rv.name for rv in model.free_RVs if rv in sources)
        return f"{name} is computed from {names}: name these instead"
    return f"{name} does not belong to this model"


def require_continuous(rvs: Sequence[TensorVariable], step: str) -> None:
    """Check that a step that follows gradients is given continuous variables."""
    discrete = [describe(rv) for rv in rvs if not rv.dtype.startswith("float")]
    if discrete:
        raise ValueError(
            f"{', '.join(discrete)} is discrete, but {step} moves continuous variables; "
            "leave it to another step."
        )
