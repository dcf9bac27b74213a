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
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.search import children, parameters
from pymc_nnsteps.graphs.shapes import known_shape
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes, normal_prior, value_of
from pymc_nnsteps.laws.gaussian import decides_nothing
from pymc_nnsteps.laws.piecewise import entries_like
from pymc_nnsteps.laws.table import recognises
from pymc_nnsteps.network.activations import Threshold, read_decision
from pymc_nnsteps.random import argmax_utilities, truncated_normal


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
            f"utilities have one child; its children are {', '.join(map(describe, direct))}"
        )
    [y] = direct
    if y in model.free_RVs:
        raise NotConjugate(
            f"child {describe(y)}, which it decides, is free: given each other neither would move"
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
        raise NotConjugate(f"child {describe(y)} repeats it along an axis")
    return LargestUtility((z,), value_of(model, y))
