"""Recognition of the conditional of a variable, by the table of laws, and of blocks."""

from collections.abc import Collection, Mapping, Sequence

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate, known_or_none
from pymc_nnsteps.graphs.known import describe, distribution
from pymc_nnsteps.laws.conditional import Conditional, laws_of
from pymc_nnsteps.laws.gaussian import Gaussian, match_gaussian
from pymc_nnsteps.laws.scales import is_scale


def match(model: pm.Model, rv: TensorVariable) -> Conditional:
    """Find the full conditional of a free random variable.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.StudentT("y", nu=4, mu=mu, observed=[1.0, 2.0])
    >>> match(model, mu)
    Traceback (most recent call last):
        ...
    pymc_nnsteps.graphs.errors.NotConjugate: mu: child y is StudentT, not Normal
    """
    reasons: list[str] = []
    for law in laws_of(model, rv):
        try:
            return law.recognise(model, rv)
        except NotConjugate as reason:
            reasons.append(str(reason))
    why = "; ".join(dict.fromkeys(reasons)) or _unknown(model, rv)
    raise NotConjugate(f"{describe(rv)}: {why}")


def _unknown(model: pm.Model, rv: TensorVariable) -> str:
    """Why there is no law for a variable."""
    if is_scale(model, rv):
        return (
            f"its prior is {distribution(rv)}; a scale needs the prior HalfNormal, Exponential, "
            "Gamma, InverseGamma, LogNormal, TruncatedNormal or another one of positive numbers"
        )
    return f"its prior is {distribution(rv)}, not Normal"


def recognise(
    model: pm.Model,
) -> tuple[dict[TensorVariable, Conditional], dict[TensorVariable, str]]:
    """Conditionals of free variables, and the reasons why the others have none."""
    recognised: dict[TensorVariable, Conditional] = {}
    reasons: dict[TensorVariable, str] = {}
    for rv in model.free_RVs:
        try:
            recognised[rv] = match(model, rv)
        except NotConjugate as reason:
            reasons[rv] = str(reason).removeprefix(f"{describe(rv)}: ")
    return recognised, reasons


def find_conditionals(model: pm.Model, rvs: Collection[TensorVariable]) -> list[Conditional]:
    """Find the full conditionals of several variables, in the model's order.

    Those that :func:`recognise` has found, by their variables, are not looked for again.

    Gaussian variables that share their children and the axes that these carry along (weights and
    biases of a layer, coefficients and intercept of a regression) are joined into one block.
    """
    conditionals: list[Conditional] = []
    for rv in (rv for rv in model.free_RVs if rv in rvs):
        found = rvs[rv] if isinstance(rvs, Mapping) else match(model, rv)
        joined = _join(model, conditionals, found) if isinstance(found, Gaussian) else None
        if joined is None:
            conditionals.append(found)
        else:
            position, block = joined
            conditionals[position] = block
    return conditionals


def _join(
    model: pm.Model, conditionals: Sequence[Conditional], found: Gaussian
) -> tuple[int, Gaussian] | None:
    """Position of an earlier block that ``found`` can be joined with, and the joint block."""
    seen = [observation.child for observation in found.observations]
    for position, other in enumerate(conditionals):
        if isinstance(other, Gaussian) and seen and seen == [s.child for s in other.observations]:
            block = known_or_none(match_gaussian, model, [*other.draws, *found.draws])
            if block is not None:
                return position, block
    return None
