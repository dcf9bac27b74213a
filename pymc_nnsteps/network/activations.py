r"""Inputs of the next layer: activations of a layer, a decision by utilities, or gates.

An activation is a piecewise-linear function of the pre-activations. A decision is a label, a side
of a threshold of its utility or the number of the largest one. Gates are
:math:`\gamma \sim \text{Bernoulli}(\sigma(z/T))`.
"""

from dataclasses import dataclass

import numpy as np
import pymc as pm
from pytensor.graph.basic import Constant, equal_computations
from pytensor.scalar import basic as scalar
from pytensor.scalar.math import Erf, Erfc, Sigmoid
from pytensor.tensor.basic import ARange
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Argmax, Max
from pytensor.tensor.random.basic import BernoulliRV, BinomialRV, CategoricalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate, declined_as
from pymc_nnsteps.graphs.known import describe, distribution, has_law, is_a
from pymc_nnsteps.graphs.monomial import REARRANGEMENTS
from pymc_nnsteps.graphs.piecewise_linear import PiecewiseForm, piecewise_linear
from pymc_nnsteps.graphs.search import dependents, operands, parameters, unwrapped
from pymc_nnsteps.graphs.shapes import known_shape
from pymc_nnsteps.graphs.values import scalar_constant


def logit_of(rv: TensorVariable) -> TensorVariable | None:
    """Logit of a binary variable whose probability is a sigmoid, indexed, reshaped or repeated."""
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
    raise NotConjugate(f"the mean of {describe(a)} is not recognised as gamma * z with gates gamma")


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
        f"the probability of {describe(gamma)} is not recognised as sigmoid(z / T) with the z of "
        "its activations and a number T"
    )


@dataclass(frozen=True)
class Threshold:
    """``y = 1[z > level]``, or ``<`` if not increasing."""

    level: float
    increasing: bool


@dataclass(frozen=True)
class Largest:
    """``y = argmax z`` along the last axis."""


def read_activation(model: pm.Model, z: TensorVariable, x: TensorVariable) -> PiecewiseForm:
    """Read the mean of a child as a piecewise-linear function of ``z``, plus an offset."""
    [mean, *_] = parameters(x)
    with declined_as(f"the mean of child {describe(x)} is not a piecewise-linear function of it"):
        return piecewise_linear(mean, z, model.basic_RVs, known_shape(model, z))


def decides(child: TensorVariable) -> bool:
    """Whether a child may be a decision by utilities: a class, or a side of a threshold."""
    if is_a(child, BernoulliRV):
        return logit_of(child) is None
    return is_a(child, CategoricalRV)


def read_decision(model: pm.Model, z: TensorVariable, y: TensorVariable) -> Threshold | Largest:
    """Read a label as a decision by utilities ``z``."""
    if is_a(y, BernoulliRV):
        return _threshold(model, z, y)
    if not is_a(y, CategoricalRV):
        raise NotConjugate(
            f"child {describe(y)} is {distribution(y)}, not Bernoulli or Categorical"
        )
    [p] = parameters(y)
    if not _is_one_hot_argmax(p, z, known_shape(model, z)):
        if _operations(model, z, p).isdisjoint({Argmax, scalar.EQ, scalar.NEQ}):
            raise NotConjugate(
                f"child {describe(y)} is {distribution(y)} with probabilities such as those of a "
                "softmax or an ordered model, not the index of its largest entry"
            )
        raise NotConjugate(
            f"the probabilities of child {describe(y)} are not the indicator of its largest "
            "entry, eq(argmax(z, axis=-1, keepdims=True), arange(n_classes))"
        )
    return Largest()


def _threshold(model: pm.Model, z: TensorVariable, y: TensorVariable) -> Threshold:
    [p] = parameters(y)
    try:
        form = piecewise_linear(p, z, model.basic_RVs, known_shape(model, z))
        form.require_plain()
    except NotConjugate as reason:
        raise NotConjugate(_why_no_threshold(model, z, y, reason)) from None
    step = form.function
    if form.offset is not None or step.lines not in (
        ((0.0, 0.0), (0.0, 1.0)),
        ((0.0, 1.0), (0.0, 0.0)),
    ):
        raise NotConjugate(
            f"the probability of child {describe(y)} is not the indicator of a threshold"
        )
    return Threshold(step.knots[0], step.lines[1] == (0.0, 1.0))


def _why_no_threshold(
    model: pm.Model, z: TensorVariable, y: TensorVariable, reason: NotConjugate
) -> str:
    functions = _operations(model, z, parameters(y)[0])
    if functions & {Erf, Erfc}:
        return (
            f"child {describe(y)} has a probit probability; give it latent utilities, "
            "z ~ Normal(eta, 1), and p=gt(z, 0)"
        )
    if functions & {Sigmoid, scalar.Exp}:
        return f"the probability of child {describe(y)} has no logit; state it by logit_p="
    return f"the probability of child {describe(y)} is not a threshold of it: {reason}"


def _operations(model: pm.Model, z: TensorVariable, p: TensorVariable) -> set[type]:
    """Classes of the operations that lead from ``z`` to ``p``, of each entry where these are."""
    ops = [variable.owner.op for variable in dependents(p, {z}, model.basic_RVs) - {z}]
    return {type(getattr(op, "scalar_op", op)) for op in ops}


def _is_one_hot_argmax(p: TensorVariable, z: TensorVariable, shape: tuple[int | None, ...]) -> bool:
    """Whether ``p`` is 1 where the last axis of ``z`` has its largest entry, and 0 elsewhere."""
    node = unwrapped(p, casts=True).owner
    if node is None or not isinstance(node.op, Elemwise) or p.ndim != z.ndim:
        return False
    if isinstance(node.op.scalar_op, scalar.Switch):
        condition, one, zero = node.inputs
        decides = scalar_constant(one) == 1 and scalar_constant(zero) == 0
        return decides and _is_one_hot_argmax(condition, z, shape)
    if not isinstance(node.op.scalar_op, scalar.EQ):
        return False
    first, second = ((side, *_source_axes(side)) for side in node.inputs)
    return any(
        (_reduces(a, Argmax, z) and _is_class_range(b, z, shape))
        or (_reduces(a, Max, z) and unwrapped(b[0]) is z)
        for a, b in ((first, second), (second, first))
    )


Side = tuple[TensorVariable, TensorVariable, list[int]]
"""An operand, the expression before axes of length one were added, and its axes."""


def _source_axes(side: TensorVariable) -> tuple[TensorVariable, list[int]]:
    side = unwrapped(side, casts=True)
    if side.owner is not None and isinstance(side.owner.op, DimShuffle):
        order, source = side.owner.op.new_order, side.owner.inputs[0]
        if [axis for axis in order if axis != "x"] == list(range(source.ndim)):
            return unwrapped(source, casts=True), [i for i, axis in enumerate(order) if axis != "x"]
    return side, list(range(side.ndim))


def _reduces(side: Side, op: type[Argmax | Max], z: TensorVariable) -> bool:
    """Whether an operand is a reduction of ``z`` over its last axis."""
    _, source, axes = side
    node = source.owner
    return (
        node is not None
        and isinstance(node.op, op)
        and unwrapped(node.inputs[0]) is z
        and (node.op.axis == (z.ndim - 1,) or (node.op.axis is None and z.ndim == 1))
        and axes == list(range(z.ndim - 1))
    )


def _is_class_range(side: Side, z: TensorVariable, shape: tuple[int | None, ...]) -> bool:
    """Whether an operand counts the entries of the last axis of ``z``: 0, 1, ..."""
    _, classes, axes = side
    if axes != [z.ndim - 1]:
        return False
    if isinstance(classes, Constant):
        return shape[-1] is not None and np.array_equal(classes.data, np.arange(shape[-1]))
    if classes.owner is None or not isinstance(classes.owner.op, ARange):
        return False
    start, stop, step = classes.owner.inputs
    counts_all = scalar_constant(stop) == shape[-1] or equal_computations([stop], [z.shape[-1]])
    return scalar_constant(start) == 0 and scalar_constant(step) == 1 and counts_all
