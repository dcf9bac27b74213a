r"""Binary gates: Bernoulli variables that switch a part of their children's means.

Model, for each gate with children that see it alone:

.. math::

    \gamma \sim \text{Bernoulli}(p), \qquad y_c \sim N(o_c + \gamma s_c, 1/w_c)

Posterior, gate by gate (Sheinkman and Wade, *Variational Bayesian Bow tie Neural Networks with
Shrinkage*, Section 2.4):

.. math::

    \operatorname{logit} P(\gamma = 1 \mid y) = \operatorname{logit} p
    + \sum_c w_c s_c (y_c - o_c - \tfrac12 s_c).
"""

from dataclasses import dataclass
from typing import override

import pymc as pm
import pytensor.tensor as pt
from pytensor import config
from pytensor.graph.basic import Variable
from pytensor.scalar import basic as scalar
from pytensor.tensor.random.basic import BernoulliRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.layout import Layout
from pymc_nnsteps.gaussian.observation import Child, evidence_of
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import LINE, describe, distribution, is_a
from pymc_nnsteps.graphs.search import children, dependents, parameters
from pymc_nnsteps.graphs.shapes import lengths
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes, require_free, require_support
from pymc_nnsteps.laws.gaussian import OBSERVED, augmented, observe
from pymc_nnsteps.laws.table import recognises
from pymc_nnsteps.network.activations import logit_of
from pymc_nnsteps.random.op import uniform


@dataclass(frozen=True)
class GateConditional(Conditional):
    """Full conditional of Bernoulli variables that enter their children's means one by one."""

    name = "Bernoulli"
    logit: TensorVariable
    observations: tuple[Child, ...]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [gates] = self.draws
        layout = Layout(gates, tuple(range(gates.ndim)), ())
        logit = self.logit
        for observation in self.observations:
            rng, seen = augmented(rng, observation)
            evidence = evidence_of([layout], seen)
            log_ratio = evidence.linear() - evidence.information_diagonal() / 2
            labels = sorted(seen.terms[0].linked_axes)
            logit = logit + log_ratio.dimshuffle(
                *(labels.index(axis) if axis in labels else "x" for axis in range(gates.ndim))
            )
        rng, level = uniform(rng, lengths(gates))
        return Draw(rng, {gates: typed_like(gates, pt.lt(level, pt.sigmoid(logit)))})


HARD = (
    scalar.Sign,
    scalar.Floor,
    scalar.Ceil,
    scalar.Trunc,
    scalar.RoundHalfToEven,
    scalar.RoundHalfAwayFromZero,
)
"""Scalar operations with steps and float results."""


def _decided_by(model: pm.Model, probability: TensorVariable) -> TensorVariable | None:
    """Continuous free variable that a probability depends on through a function with steps."""
    for z in model.free_RVs:
        if z.dtype.startswith("float"):
            for variable in dependents(probability, {z}, model.basic_RVs) - {z}:
                scalar_op = getattr(variable.owner.op, "scalar_op", None)
                if not variable.type.dtype.startswith("float") or isinstance(scalar_op, HARD):
                    return z
    return None


@recognises(400, "Bernoulli", {BernoulliRV}, OBSERVED)
def match_gates(model: pm.Model, rv: TensorVariable) -> GateConditional:
    """Recognise a free Bernoulli variable that its children see entry by entry."""
    require_free(model, rv)
    require_support(model, rv, LINE)
    if not is_a(rv, BernoulliRV):
        raise NotConjugate(f"its prior is {distribution(rv)}, not Bernoulli")
    observations = tuple(observe(model, child, [rv]) for child in children(model, rv))
    for seen in observations:
        [term] = seen.terms
        summed = set(range(rv.ndim)) - term.linked_axes
        if any(not rv.type.broadcastable[axis] for axis in summed):
            raise NotConjugate(
                f"child {describe(seen.child)} sums over its entries, which makes them dependent"
            )
    logit = logit_of(rv)
    if logit is None:
        [probability] = parameters(rv)
        if (decider := _decided_by(model, probability)) is not None:
            raise NotConjugate(
                f"its probability is 0 or 1 given {describe(decider)}: given each other, neither "
                "could change"
            )
        probability = probability.astype(config.floatX)
        logit = pt.log(probability) - pt.log1p(-probability)
    return GateConditional((rv,), logit.astype(config.floatX), observations)
