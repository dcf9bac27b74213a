r"""Pre-activations under a noisy piecewise-linear activation or a hard decision, and gates.

Model, entry by entry:

.. math::

    z \sim N(F, \Delta_Z), \qquad x \sim N(\sigma(z), \Delta_X),
    \qquad \sigma(z) = s_k z + c_k \text{ for } z \in (t_k, t_{k+1}).

Posterior, a mixture of truncated normals (Piccioli et al., eq. 10 and Appendix E):

.. math::

    p(z \mid x) \propto \sum_k 1[t_k < z < t_{k+1}]\, N(z \mid F, \Delta_Z)\,
    N(x \mid s_k z + c_k, \Delta_X).

Where the activation is applied to :math:`u = a z + b`, entry by entry, :math:`u` is drawn in this
way, with mean :math:`a F + b` and variance :math:`a^2 \Delta_Z`. Entries of :math:`x` that see the
same entry of :math:`z` are replaced by their weighted mean, with the sum of their precisions.
Entries of :math:`z` that no entry of :math:`x` sees are drawn from the prior.

**Utilities** behind a threshold or an argmax. Binary probit, entry by entry, with posterior

.. math::

    z \sim N(F, \Delta), \quad y = 1[z > t]
    \qquad\Rightarrow\qquad z \mid y \sim N(F, \Delta) \text{ truncated to its side of } t.

Multinomial probit, row by row along the last axis (Piccioli et al., eqs E23-E26):

.. math::

    z_a \sim N(F_a, \Delta), \quad y = \operatorname{argmax}_a z_a,

drawn as a block scan: :math:`z_y` truncated to above the other utilities, then all others
truncated to below :math:`z_y`.

**Binary gates** are Bernoulli variables that switch a part of their children's means. Model, for
each gate with children that see it alone:

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

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor import config
from pytensor.graph.basic import Variable
from pytensor.scalar import basic as scalar
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.layout import Layout
from pymc_nnsteps.gaussian.observation import Child, evidence_of
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import LINE, describe, distribution, is_a
from pymc_nnsteps.graphs.piecewise_linear import Argument, PiecewiseForm, PiecewiseFunction
from pymc_nnsteps.graphs.search import children, dependents, parameters
from pymc_nnsteps.graphs.shapes import known_shape, lengths
from pymc_nnsteps.graphs.values import constant_or_none, typed_like
from pymc_nnsteps.laws.conditional import (
    Conditional,
    Draw,
    Shapes,
    normal_prior,
    precision_of,
    recognises,
    require_free,
    require_given,
    require_support,
    value_of,
)
from pymc_nnsteps.laws.gaussian import OBSERVED, augmented, decides_nothing, observe
from pymc_nnsteps.network.activations import Threshold, logit_of, read_activation, read_decision
from pymc_nnsteps.random import argmax_utilities, piecewise_normal, truncated_normal
from pymc_nnsteps.random.op import uniform


@dataclass(frozen=True)
class PiecewiseGaussian(Conditional):
    """Full conditional of pre-activations whose only child sees them through an activation."""

    activation: PiecewiseFunction
    observed: TensorVariable
    observed_sigma: TensorVariable
    argument: Argument | None

    @property
    @override
    def name(self) -> str:
        return f"piecewise Gaussian, {len(self.activation.lines)} pieces"

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [z], function = self.draws, self.activation
        pieces = function.knots, function.slopes, function.intercepts
        mean, sigma = parameters(z)
        if self.argument is not None:
            slope, shift = self.argument.slope, self.argument.shift
            mean, sigma = slope * mean + shift, pt.abs(slope) * sigma
        rng, value = piecewise_normal(
            rng,
            mean,
            sigma,
            self.observed,
            self.observed_sigma,
            *(pt.constant(values, dtype=z.dtype) for values in pieces),
            size=lengths(z),
        )
        if self.argument is not None:
            value = (value - shift) / slope
        return Draw(rng, {z: typed_like(z, value)})


@recognises(
    600,
    "piecewise Gaussian, behind a piecewise-linear activation",
    {NormalRV},
    {NormalRV},
    when=lambda model, z: len(children(model, z)) == 1,
)
def match_piecewise(model: pm.Model, z: TensorVariable) -> PiecewiseGaussian:
    """Recognise ``z`` as a Gaussian seen through a noisy piecewise-linear activation."""
    normal_prior(model, z)
    [x] = children(model, z)
    if not is_a(x, NormalRV):
        raise NotConjugate(f"child {describe(x)} is {distribution(x)}, not Normal")
    _, sigma = parameters(x)
    require_given(model, x, "the scale", [sigma], {z})
    form = read_activation(model, z, x)
    value = value_of(model, x)
    observed = value if form.offset is None else value - form.offset
    if form.places is not None:
        return PiecewiseGaussian((z,), form.function, *_gathered(form, observed, sigma, x, z))
    entries = entries_like(model, observed, x, z)
    if all(sigma.type.broadcastable):
        scale = sigma.dimshuffle(*["x"] * z.ndim)
    else:
        scale = entries_like(model, pt.broadcast_to(sigma, x.shape), x, z)
    argument = None
    if form.argument is not None:
        parts = (form.argument.slope.astype(z.dtype), form.argument.shift.astype(z.dtype))
        full = (pt.broadcast_to(part, x.shape) for part in parts)
        argument = Argument(*(entries_like(model, part, x, z) for part in full))
    return PiecewiseGaussian((z,), form.function, entries, scale, argument)


def _gathered(
    form: PiecewiseForm,
    observed: TensorVariable,
    sigma: TensorVariable,
    x: TensorVariable,
    z: TensorVariable,
) -> tuple[TensorVariable, TensorVariable, Argument | None]:
    """Observation of each entry of ``z``, its scale, and the argument of the activation."""
    assert form.places is not None

    def spread(array: TensorVariable) -> TensorVariable:
        return pt.broadcast_to(array, x.shape).flatten()

    def put(array: TensorVariable, around: float) -> TensorVariable:
        full = pt.full((z.size,), around, dtype=z.dtype)
        return full[places].set(spread(array.astype(z.dtype))).reshape(lengths(z))

    places = spread(form.places)
    argument = None
    if form.argument is not None:
        known = constant_or_none(form.places)
        if known is None or len(np.unique(known)) < known.size or form.places.ndim < x.ndim:
            raise NotConjugate(f"child {describe(x)} uses it with several shifts or scales")
        argument = Argument(put(form.argument.slope, 1.0), put(form.argument.shift, 0.0))
    zeros = pt.zeros((z.size,), dtype=z.dtype)
    weight = spread(precision_of(z, sigma))
    total = zeros[places].inc(weight)
    score = zeros[places].inc(weight * spread(observed))
    mean = pt.switch(pt.eq(total, 0), zeros, score / total)
    shape = lengths(z)
    return mean.reshape(shape), pt.reciprocal(pt.sqrt(total)).reshape(shape), argument


def entries_like(
    model: pm.Model, array: TensorVariable, source: TensorVariable, target: TensorVariable
) -> TensorVariable:
    """Move an array from the axes of ``source`` to those of ``target``, except axes of length 1."""
    shapes = known_shape(model, source), known_shape(model, target)
    long_source, long_target = ([n for n in shape if n != 1] for shape in shapes)
    known = zip(long_source, long_target, strict=False)
    if len(long_source) != len(long_target) or any(None not in (a, b) and a != b for a, b in known):
        raise NotConjugate(f"child {describe(source)} broadcasts it along an axis")
    one_source, one_target = ([n == 1 for n in shape] for shape in shapes)
    if one_source == one_target:
        return array
    return array.reshape(target.shape)


@dataclass(frozen=True)
class UtilityBehindThreshold(Conditional):
    """Full conditional of utilities whose side of a threshold is the Bernoulli child."""

    name = "truncated normal (binary probit)"
    above: TensorVariable
    decision: Threshold

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [z] = self.draws
        mean, sigma = parameters(z)
        threshold, infinity = (pt.constant(v, dtype=z.dtype) for v in (self.decision.level, np.inf))
        lower = pt.switch(self.above, threshold, -infinity)
        upper = pt.switch(self.above, infinity, threshold)
        rng, value = truncated_normal(rng, mean, sigma, lower, upper)
        return Draw(rng, {z: typed_like(z, value)})


@dataclass(frozen=True)
class LargestUtility(Conditional):
    """Full conditional of utilities whose argmax is the Categorical child."""

    name = "truncated normals (multinomial probit)"
    labels: TensorVariable

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


@recognises(
    700,
    "truncated normal, behind a threshold or an argmax",
    {NormalRV},
    {BernoulliRV, CategoricalRV},
    when=lambda model, z: not decides_nothing(model, z),
)
def match_probit(model: pm.Model, z: TensorVariable) -> Conditional:
    """Recognise ``z`` as utilities behind a hard decision."""
    normal_prior(model, z)
    direct = children(model, z)
    if len(direct) != 1:
        raise NotConjugate(
            f"utilities must have one child; its children are {', '.join(map(describe, direct))}"
        )
    [y] = direct
    if y in model.free_RVs:
        raise NotConjugate(
            f"child {describe(y)}, which it determines, is a free variable: given each other, "
            "neither could change"
        )
    decision = read_decision(model, z, y)
    if not isinstance(decision, Threshold):
        return _match_largest(model, z, y)
    successes = entries_like(model, value_of(model, y), y, z)
    return UtilityBehindThreshold((z,), pt.eq(successes, int(decision.increasing)), decision)


def _match_largest(model: pm.Model, z: TensorVariable, y: TensorVariable) -> LargestUtility:
    labels, rows = known_shape(model, y), known_shape(model, z)[:-1]
    same = [
        (a == 1) == (b == 1) and (None in (a, b) or a == b)
        for a, b in zip(labels, rows, strict=False)
    ]
    if len(labels) != len(rows) or not all(same):
        raise NotConjugate(f"child {describe(y)} broadcasts it along an axis")
    return LargestUtility((z,), value_of(model, y))


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
