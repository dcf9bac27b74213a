r"""Latent utilities behind a hard decision: a threshold or an argmax.

Binary probit, entry by entry, with posterior

.. math::

    z \sim N(F, \Delta), \quad y = 1[z > t]
    \qquad\Rightarrow\qquad z \mid y \sim N(F, \Delta) \text{ truncated to its side of } t.

Multinomial probit, row by row along the last axis (Piccioli et al., eqs E23-E26):

.. math::

    z_a \sim N(F_a, \Delta), \quad y = \operatorname{argmax}_a z_a,

drawn as a block scan: :math:`z_y` truncated to above the other utilities, then all others
truncated to below :math:`z_y`.
"""

from dataclasses import dataclass
from typing import override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.scalar import basic as scalar
from pytensor.scalar.math import Erf, Erfc, Sigmoid
from pytensor.tensor.basic import ARange
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Argmax, Max
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.conditional import Conditional, Draw, Shapes, normal_prior, value_of
from pymc_nnsteps.conditionals.gaussian import decides
from pymc_nnsteps.conditionals.piecewise import entries_like
from pymc_nnsteps.conditionals.table import recognises
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import is_a
from pymc_nnsteps.graphs.lengths import known_shape
from pymc_nnsteps.graphs.names import describe, distribution
from pymc_nnsteps.graphs.piecewise_linear import piecewise_linear
from pymc_nnsteps.graphs.search import children, dependents, parameters, unwrapped
from pymc_nnsteps.graphs.values import scalar_constant, typed_like
from pymc_nnsteps.random import argmax_utilities, truncated_normal


@dataclass(frozen=True)
class Threshold(Conditional):
    """Full conditional of utilities whose side of a threshold is the Bernoulli child."""

    draws: tuple[TensorVariable, ...]
    above: TensorVariable
    threshold: float
    increasing: bool

    @property
    @override
    def name(self) -> str:
        return "truncated normal (binary probit)"

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [z] = self.draws
        mean, sigma = parameters(z)
        threshold, infinity = (pt.constant(v, dtype=z.dtype) for v in (self.threshold, np.inf))
        lower = pt.switch(self.above, threshold, -infinity)
        upper = pt.switch(self.above, infinity, threshold)
        rng, value = truncated_normal(rng, mean, sigma, lower, upper)
        return Draw(rng, {z: typed_like(z, value)})


@dataclass(frozen=True)
class LargestUtility(Conditional):
    """Full conditional of utilities whose argmax is the Categorical child."""

    draws: tuple[TensorVariable, ...]
    labels: TensorVariable

    @property
    @override
    def name(self) -> str:
        return "truncated normals (multinomial probit)"

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [z] = self.draws
        mean, sigma = parameters(z)
        if mean.type.broadcastable != z.type.broadcastable:
            mean = pt.broadcast_to(mean, z.shape)
        if z.ndim == 2:
            rng, value = argmax_utilities(rng, mean, sigma, self.labels, z)
            return Draw(rng, {z: typed_like(z, value)})
        if not all(sigma.type.broadcastable):
            sigma = pt.broadcast_to(sigma, z.shape)
        mean, sigma, current = (
            a.reshape((-1, a.shape[-1])) for a in (mean, pt.atleast_1d(sigma), z)
        )
        rng, value = argmax_utilities(rng, mean, sigma, self.labels.flatten(), current)
        return Draw(rng, {z: typed_like(z, value.reshape(z.shape))})


def _decides_something(model: pm.Model, z: TensorVariable) -> bool:
    return any(decides(child) for child in children(model, z))


@recognises({NormalRV}, {BernoulliRV, CategoricalRV}, when=_decides_something)
def match_probit(model: pm.Model, z: TensorVariable) -> Conditional:
    """Recognise ``z`` as utilities behind a hard decision.

    Raises
    ------
    NotConjugate
    """
    normal_prior(model, z)
    direct = children(model, z)
    if len(direct) != 1:
        raise NotConjugate(
            f"utilities have one child; its children are {', '.join(map(describe, direct))}"
        )
    [y] = direct
    if y in model.free_RVs:
        raise NotConjugate(
            f"child {describe(y)}, which it decides, is free: given each other neither would move"
        )
    if is_a(y, BernoulliRV):
        return _match_threshold(model, z, y)
    if is_a(y, CategoricalRV):
        return _match_largest(model, z, y)
    raise NotConjugate(f"child {describe(y)} is {distribution(y)}, not a decision")


def _match_threshold(model: pm.Model, z: TensorVariable, y: TensorVariable) -> Threshold:
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
        raise NotConjugate(f"the probability of child {describe(y)} is not 0 or 1 by a threshold")
    increasing = step.lines[1] == (0.0, 1.0)
    successes = entries_like(model, value_of(model, y), y, z)
    return Threshold((z,), pt.eq(successes, int(increasing)), step.knots[0], increasing)


def _why_no_threshold(
    model: pm.Model, z: TensorVariable, y: TensorVariable, reason: NotConjugate
) -> str:
    [p] = parameters(y)
    functions = {
        type(getattr(variable.owner.op, "scalar_op", None))
        for variable in dependents(p, {z}, model.basic_RVs) - {z}
    }
    if functions & {Erf, Erfc}:
        return (
            f"child {describe(y)} has a probit probability; give it latent utilities, "
            "z ~ Normal(eta, 1), and p=gt(z, 0)"
        )
    if functions & {Sigmoid, scalar.Exp}:
        return f"the probability of child {describe(y)} has no logit; state it by logit_p="
    return f"the probability of child {describe(y)} is not a threshold of it: {reason}"


def _match_largest(model: pm.Model, z: TensorVariable, y: TensorVariable) -> LargestUtility:
    [p] = parameters(y)
    if not _is_one_hot_argmax(p, z, known_shape(model, z)):
        raise NotConjugate(
            f"the probabilities of child {describe(y)} are not the indicator of its largest "
            "entry, eq(argmax(z, axis=-1, keepdims=True), arange(n_classes))"
        )
    labels, rows = known_shape(model, y), known_shape(model, z)[:-1]
    same = [
        (a == 1) == (b == 1) and (None in (a, b) or a == b)
        for a, b in zip(labels, rows, strict=False)
    ]
    if len(labels) != len(rows) or not all(same):
        raise NotConjugate(f"child {describe(y)} repeats it along an axis")
    return LargestUtility((z,), value_of(model, y))


def _is_one_hot_argmax(p: TensorVariable, z: TensorVariable, shape: tuple[int | None, ...]) -> bool:
    """Whether ``p`` is 1 where the last axis of ``z`` has its largest entry, and 0 elsewhere."""
    node = _strip(p).owner
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


def _strip(expression: TensorVariable) -> TensorVariable:
    """See through names, views and casts."""
    expression = unwrapped(expression)
    while (
        expression.owner is not None
        and isinstance(expression.owner.op, Elemwise)
        and isinstance(expression.owner.op.scalar_op, scalar.Cast)
    ):
        expression = unwrapped(expression.owner.inputs[0])
    return expression


def _source_axes(side: TensorVariable) -> tuple[TensorVariable, list[int]]:
    side = _strip(side)
    if side.owner is not None and isinstance(side.owner.op, DimShuffle):
        order, source = side.owner.op.new_order, side.owner.inputs[0]
        if [axis for axis in order if axis != "x"] == list(range(source.ndim)):
            return _strip(source), [i for i, axis in enumerate(order) if axis != "x"]
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
