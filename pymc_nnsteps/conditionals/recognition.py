"""Which conditional a variable has: the table of recognisers, blocks, and explanations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import override

import pymc as pm
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.augmentation import logit_of
from pymc_nnsteps.conditionals.conditional import Conditional, normal_prior
from pymc_nnsteps.conditionals.gates import match_gates
from pymc_nnsteps.conditionals.gaussian import Gaussian, match_gaussian
from pymc_nnsteps.conditionals.interweaving import match_interweaving
from pymc_nnsteps.conditionals.piecewise import PiecewiseGaussian, match_piecewise
from pymc_nnsteps.conditionals.probit import match_probit
from pymc_nnsteps.conditionals.scales import PRIORS, is_scale, match_scale
from pymc_nnsteps.conditionals.structure import (
    NotConjugate,
    children,
    describe,
    distribution,
    model_or_context,
)


def match(model: pm.Model, rv: TensorVariable) -> Conditional:
    """Find the full conditional of a free random variable.

    Parameters
    ----------
    model : pm.Model
    rv : TensorVariable
        A free random variable of ``model``.

    Returns
    -------
    Conditional

    Raises
    ------
    NotConjugate
        With the variable, the child that stands in the way, and the reason.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.StudentT("y", nu=4, mu=mu, observed=[1.0, 2.0])
    >>> match(model, mu)
    Traceback (most recent call last):
        ...
    pymc_nnsteps.conditionals.structure.NotConjugate: mu: child y is StudentT, not Normal
    """
    try:
        if type(rv.owner.op) in PRIORS:
            return match_scale(model, rv)
        if isinstance(rv.owner.op, BernoulliRV):
            return match_gates(model, rv)
        if not isinstance(rv.owner.op, NormalRV) and is_scale(model, rv):
            raise NotConjugate(
                f"its prior is {distribution(rv)}; a scale is drawn where the precision has a "
                "Gamma prior or the variance an InverseGamma prior"
            )
        normal_prior(model, rv)
        direct = children(model, rv)
        if any(_is_decision(child) for child in direct):
            return match_probit(model, rv)
        try:
            return match_gaussian(model, [rv])
        except NotConjugate as not_gaussian:
            if len(direct) != 1 or not isinstance(direct[0].owner.op, NormalRV):
                raise
            try:
                return match_piecewise(model, rv)
            except NotConjugate as not_piecewise:
                raise NotConjugate(f"{not_gaussian}; {not_piecewise}") from None
    except NotConjugate as reason:
        raise NotConjugate(f"{describe(rv)}: {reason}") from None


def _is_decision(child: TensorVariable) -> bool:
    """Whether a child may be a function of utilities: a class, or a side of a threshold."""
    if isinstance(child.owner.op, BernoulliRV):
        return logit_of(child) is None
    return isinstance(child.owner.op, CategoricalRV)


def find_conditionals(model: pm.Model, rvs: Sequence[TensorVariable]) -> list[Conditional]:
    """Find the full conditionals of several variables, in the model's order.

    Gaussian variables that share their children and the axes that these carry along (weights and
    biases of a layer, coefficients and intercept of a regression) are joined into one block.

    Raises
    ------
    NotConjugate
        For the first variable that has none.
    """
    conditionals: list[Conditional] = []
    for rv in (rv for rv in model.free_RVs if rv in rvs):
        found = match(model, rv)
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
    """Position and replacement of an earlier block that ``found`` can be drawn with."""
    seen = [observation.child for observation in found.observations]
    for position, other in enumerate(conditionals):
        shares_children = isinstance(other, Gaussian) and seen == [
            observation.child for observation in other.observations
        ]
        if seen and shares_children:
            try:
                return position, match_gaussian(model, [*other.draws, *found.draws])
            except NotConjugate:
                continue
    return None


@dataclass(frozen=True)
class Explanation:
    """What :func:`explain` found: one row per free variable, printed as a table.

    Attributes
    ----------
    rows : tuple of (str, str or None, str)
        Variable, conditional (None if there is none), and how or why not.
    """

    rows: tuple[tuple[str, str | None, str], ...]

    @override
    def __str__(self) -> str:
        table = [("variable", "conditional", "")]
        table += [(variable, found or "-", why) for variable, found, why in self.rows]
        widths = [max(len(row[column]) for row in table) for column in range(2)]
        lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in table]
        return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{self}</pre>"


def explain(model: pm.Model | None = None) -> Explanation:
    """Show which free variables of a model have a conditional that Gibbs can draw from.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context if not given.

    Returns
    -------
    Explanation
        Prints as a table: variable, conditional, and the variables it is drawn jointly with or
        the reason why there is none. Of pre-activations it also says which weights are moved
        with them (:class:`~pymc_nnsteps.Gibbs`, ``interweave``), or why none are.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model:
    ...     slope = pm.Normal("slope")
    ...     curve = pm.Laplace("curve", 0, 1)
    ...     mean = slope * np.arange(3.0) + curve * np.arange(3.0) ** 2
    ...     y = pm.Normal("y", mean, 0.1, observed=[0.1, 0.9, 2.1])
    >>> print(nns.explain(model))
    variable  conditional
    -------------------------------------------------------
    slope     Gaussian     children: y
    curve     -            its prior is Laplace, not Normal
    """
    model = model_or_context(model)
    reasons: dict[TensorVariable, str] = {}
    for rv in model.free_RVs:
        try:
            match(model, rv)
        except NotConjugate as reason:
            reasons[rv] = str(reason).removeprefix(f"{describe(rv)}: ")
    recognised = [rv for rv in model.free_RVs if rv not in reasons]
    conditionals = find_conditionals(model, recognised)
    found = {rv: c for c in conditionals for rv in c.draws}
    rows: list[tuple[str, str | None, str]] = []
    for rv in model.free_RVs:
        if rv in found:
            moved = _moved_with(model, found[rv], conditionals)
            rows.append(_row(model, rv, found[rv], [moved] if moved else []))
        else:
            rows.append((describe(rv), None, reasons[rv]))
    return Explanation(tuple(rows))


def _moved_with(
    model: pm.Model, found: Conditional, conditionals: Sequence[Conditional]
) -> str | None:
    """Whether pre-activations are also moved with their weights, or why not."""
    if not isinstance(found, PiecewiseGaussian):
        return None
    [z] = found.draws
    try:
        move = match_interweaving(model, z, conditionals, passes=1)
    except NotConjugate as reason:
        return f"not interwoven: {reason}"
    return f"interwoven with {', '.join(describe(member.rv) for member in move.members)}"


def _row(
    model: pm.Model, rv: TensorVariable, found: Conditional, notes: list[str]
) -> tuple[str, str, str]:
    others = [describe(other) for other in found.draws if other is not rv]
    if others:
        notes = [f"jointly with {', '.join(others)}", *notes]
    notes = [*notes, f"children: {', '.join(map(describe, children(model, rv))) or 'none'}"]
    return describe(rv), found.name, "; ".join(notes)
