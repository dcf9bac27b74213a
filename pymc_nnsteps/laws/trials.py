r"""Probabilities of trials, with a Beta prior.

Model, for a probability :math:`p` with children of :math:`s_c` successes and :math:`f_c`
failures (a Bernoulli variable, a number of successes, of failures before the n-th success, or of
trials until the first):

.. math::

    p \sim \text{Beta}(a, b), \qquad P(y_c \mid p) \propto p^{s_c} (1 - p)^{f_c}

Posterior: :math:`\text{Beta}(a + \sum_c s_c, b + \sum_c f_c)`. If the probability of a child is
:math:`1 - p`, its :math:`s_c` and :math:`f_c` are exchanged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar import basic as scalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import (
    BernoulliRV,
    BetaRV,
    BinomialRV,
    GeometricRV,
    NegBinomialRV,
)
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate, declined_as
from pymc_nnsteps.graphs.known import UNIT, kind_of
from pymc_nnsteps.graphs.lengths import lengths
from pymc_nnsteps.graphs.monomial import Monomial
from pymc_nnsteps.graphs.names import describe, distribution
from pymc_nnsteps.graphs.search import children, parameters, unwrapped
from pymc_nnsteps.graphs.values import scalar_constant, typed_like
from pymc_nnsteps.laws.conditional import (
    Conditional,
    Draw,
    Shapes,
    require_free,
    require_given,
    require_support,
    value_of,
)
from pymc_nnsteps.laws.entries import selected, summed
from pymc_nnsteps.laws.table import recognises

Counts = Callable[..., tuple[TensorVariable, TensorVariable]]

TRIALS: dict[type, Counts] = {
    BernoulliRV: lambda y: (y, 1 - y),
    BinomialRV: lambda y, n: (y, n - y),
    NegBinomialRV: lambda y, n: (n, y),
    GeometricRV: lambda y: (pt.ones_like(y), y - 1),
}
"""Successes and failures, as functions of a child's value and its parameters but the last."""


@dataclass(frozen=True)
class Trial:
    """Child whose probability consists of entries of the variable, or of one minus them."""

    value: TensorVariable
    successes: TensorVariable
    failures: TensorVariable
    form: Monomial


@dataclass(frozen=True)
class Probability(Conditional):
    """Full conditional of a probability of success."""

    draws: tuple[TensorVariable, ...]
    trials: tuple[Trial, ...]

    @property
    @override
    def name(self) -> str:
        return "Beta"

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [rv] = self.draws
        a, b = (parameter.astype(rv.dtype) for parameter in parameters(rv))
        for seen in self.trials:
            a += summed(seen.successes, seen.form, rv, seen.value)
            b += summed(seen.failures, seen.form, rv, seen.value)
        rng, value = pt.random.beta(a, b, size=lengths(rv), rng=rng, return_next_rng=True)
        info = np.finfo(rv.dtype)
        low, high = (pt.constant(v, dtype=rv.dtype) for v in (info.tiny, 1 - info.epsneg))
        return Draw(rng, {rv: typed_like(rv, pt.clip(value, low, high))})


@recognises(1000, "Beta", {BetaRV}, TRIALS.keys())
def match_probability(model: pm.Model, rv: TensorVariable) -> Probability:
    """Recognise a Beta variable that is the probability of its children."""
    require_free(model, rv)
    require_support(model, rv, UNIT)
    return Probability((rv,), tuple(_read(model, child, rv) for child in children(model, rv)))


def _read(model: pm.Model, child: TensorVariable, rv: TensorVariable) -> Trial:
    counts = TRIALS.get(kind_of(child))
    if counts is None:
        raise NotConjugate(
            f"child {describe(child)} is {distribution(child)}, of which it is no probability"
        )
    *others, probability = parameters(child)
    require_given(model, child, "more than the probability", others, {rv})
    value = value_of(model, child)
    complement = _complement_of(probability)
    stated = probability if complement is None else complement
    with declined_as(f"the probability of child {describe(child)} is neither it nor one minus it"):
        form = selected(stated, rv, model.basic_RVs, child)
    both = counts(value, *others)
    successes, failures = both if complement is None else both[::-1]
    return Trial(value, successes, failures, form)


def _complement_of(probability: TensorVariable) -> TensorVariable | None:
    """The ``p`` of a probability that is written as ``1 - p``, if it is."""
    node = unwrapped(probability).owner
    if node is None:
        return None
    if isinstance(node.op, DimShuffle):
        inner = _complement_of(node.inputs[0])
        return None if inner is None else inner.dimshuffle(node.op.new_order)
    if not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, scalar.Sub):
        return None
    one, other = node.inputs
    return other if scalar_constant(one) == 1 else None
