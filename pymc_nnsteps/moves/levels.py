r"""Levels exchanged between effects and the biases of several children that see them.

Where several children see the same effects, each beside a network or coefficients of its own, no
draw holds all of these, and the common level of the effects moves only as far as the biases let
it. Model, for effects a of groups (or one number), and a bias :math:`b_c` of each child c,

.. math::

    a_g \sim N(\mu_g, \lambda_g^{-1}), \qquad b_c \sim N(\beta_c, \kappa_c^{-1}), \qquad
    y_c \mid a, b_c \sim p_c(\cdot \mid a_{g(n)} + b_c + o_{nc}).

With :math:`\delta` added to all entries of a and subtracted from each bias the children see what
they saw before. Given everything else the law of :math:`\delta` is therefore that of the priors,

.. math::

    \delta \sim N(h / P, 1 / P), \qquad P = \sum_g \lambda_g + \sum_c \kappa_c, \qquad
    h = \sum_g \lambda_g (\mu_g - a_g) - \sum_c \kappa_c (\beta_c - b_c),

whatever the laws of the children are, and the shifted values leave the posterior invariant (Liu
and Sabatti 2000, of translations).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import override

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.graphs.values import scalar_constant, typed_like
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes, normal_prior
from pymc_nnsteps.laws.effects import Effects
from pymc_nnsteps.laws.gaussian import Gaussian, observe
from pymc_nnsteps.moves.contract import Context, at_the_end, proposes
from pymc_nnsteps.moves.replacement import Proposals
from pymc_nnsteps.random.standard_normal import standard_normal


@dataclass(frozen=True)
class LevelExchange(Conditional):
    """A number added to effects and subtracted from the biases of their children.

    Attributes
    ----------
    signs : mapping from random variable to float
        One for effects, minus one for biases.
    priors : mapping from random variable to (TensorVariable, TensorVariable)
        Mean and precision.
    """

    draws: tuple[TensorVariable, ...]
    signs: Mapping[TensorVariable, float]
    priors: Mapping[TensorVariable, tuple[TensorVariable, TensorVariable]]
    supplements: bool = True

    @property
    @override
    def name(self) -> str:
        return "Gaussian"

    @override
    def also(self, rv: TensorVariable) -> list[str]:
        return [f"level exchanged with {', '.join(map(describe, self.partners(rv)))}"]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        precision = linear = pt.zeros(())
        for rv, sign in self.signs.items():
            mean, own = self.priors[rv]
            each = own + pt.zeros_like(rv)
            precision += each.sum()
            linear += sign * (each * (mean - rv)).sum()
        rng, noise = standard_normal(rng, (1,), "float64")
        shift = linear / precision + noise[0] / pt.sqrt(precision)
        return Draw(rng, {rv: typed_like(rv, rv + s * shift) for rv, s in self.signs.items()})


@proposes(priority=1000)
def propose_levels(context: Context) -> Proposals:
    """Propose to exchange levels when all else has been drawn."""
    if not context.options.rays or not context.sweep:
        return Proposals()
    return at_the_end(context, _exchanges(context))


def _exchanges(context: Context) -> Iterator[LevelExchange]:
    model = context.model
    drawn = [rv for c in context.blocks if isinstance(c, Gaussian | Effects) for rv in c.draws]
    for effects in drawn:
        seen_by = children(model, effects)
        if len(seen_by) < 2 or not all(_adds(context, effects, child) for child in seen_by):
            continue
        biases = [_bias_of(context, child, drawn) for child in seen_by]
        found = [bias for bias in biases if bias is not None]
        if len(found) < len(seen_by):
            continue
        signs = {effects: 1.0} | dict.fromkeys(found, -1.0)
        priors = {rv: normal_prior(model, rv) for rv in signs}
        yield LevelExchange(tuple(signs), signs, priors)


def _bias_of(
    context: Context, child: TensorVariable, drawn: list[TensorVariable]
) -> TensorVariable | None:
    """A number that all entries of a child see, and nothing else does."""
    for rv in drawn:
        alone = children(context.model, rv) == (child,)
        if alone and all(rv.type.broadcastable) and _adds(context, rv, child):
            return rv
    return None


def _adds(context: Context, rv: TensorVariable, child: TensorVariable) -> bool:
    """Whether each entry of a child sees one entry of a variable, with the coefficient one."""
    try:
        normal_prior(context.model, rv)
        [term] = observe(context.model, child, [rv]).terms
    except NotConjugate:
        return False
    entries = [axis for axis, one in enumerate(rv.type.broadcastable) if not one]
    is_one = term.factor is None and term.picked is None
    return (
        is_one and scalar_constant(term.coefficient) == 1 and term.linked_axes.issuperset(entries)
    )
