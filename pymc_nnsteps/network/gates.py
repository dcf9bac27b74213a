r"""Binary gates, :math:`\gamma \sim \text{Bernoulli}(\sigma(z/T))`, and what they are gates of."""

import pymc as pm
from pytensor.scalar import basic as scalar
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.basic import BernoulliRV, BinomialRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import has_law, is_a
from pymc_nnsteps.graphs.monomial import REARRANGEMENTS
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import operands, parameters, unwrapped

__all__ = ["gated", "logit_of", "temperature_of"]


def logit_of(rv: TensorVariable) -> TensorVariable | None:
    """Logit of a Bernoulli or Binomial variable whose probability is written as a sigmoid.

    The sigmoid may be indexed, reshaped or repeated.
    """
    if not is_a(rv, BernoulliRV, BinomialRV):
        return None
    return _logit(parameters(rv)[-1])


def _logit(probability: TensorVariable) -> TensorVariable | None:
    node = unwrapped(probability).owner
    if node is None:
        return None
    if isinstance(node.op, Elemwise):
        return node.inputs[0] if isinstance(node.op.scalar_op, Sigmoid) else None
    if not isinstance(node.op, REARRANGEMENTS):
        return None
    inner = _logit(node.inputs[0])
    if inner is None:
        return None
    rearranged: TensorVariable = node.op.make_node(inner, *node.inputs[1:]).outputs[0]
    return rearranged


def gated(
    model: pm.Model, a: TensorVariable, mean: TensorVariable
) -> tuple[TensorVariable, TensorVariable]:
    """Gates and pre-activations of activations, ``gamma * z``."""
    factors = operands(mean, scalar.Mul) or []
    if len(factors) == 2:
        for gamma, z in (factors, factors[::-1]):
            if gamma in model.free_RVs and has_law(model, gamma, BernoulliRV):
                return gamma, z
    raise NotConjugate(f"the mean of {describe(a)} is not read as gamma * z with gates gamma")


def temperature_of(gamma: TensorVariable, z: TensorVariable) -> TensorVariable | None:
    """``T``, where gates have probability ``sigmoid(z / T)``; None, where it is ``sigmoid(z)``."""
    logit = logit_of(gamma)
    if logit is not None:
        logit = unwrapped(logit)
        if logit is z:
            return None
        quotient = operands(logit, scalar.TrueDiv)
        if quotient is not None and quotient[0] is z:
            return quotient[1]
    raise NotConjugate(
        f"the probability of {describe(gamma)} is not read as sigmoid(z / T) with the z of its "
        "activations and a number T"
    )
