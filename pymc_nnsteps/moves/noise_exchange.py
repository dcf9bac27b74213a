r"""Noise of a response exchanged with that of the activations below, which are integrated out.

A response of one output, with the same noise in all samples, knows the sum of both only:

.. math::

    a_n \sim N(u_n, \Sigma), \quad y_n \sim N(C a_n, d) \quad \Longrightarrow \quad
    y_n \mid u_n \sim N(C u_n, d + e + r),

where e is the part of :math:`C \Sigma C^T` that has the scale v, of all units or of one of them, r
the rest, and d has the scale s. The sum :math:`T = d + e` is held, so the likelihood is too, and t
moves in :math:`d = T / (1 + e^{-t})`. With :math:`d \propto s^{2 p}` and
:math:`e \propto v^{2 q}`,

.. math::

    \Bigl|\frac{\partial (\log d, \log e)}{\partial (\log T, t)}\Bigr| = 1,

so that the log density of t is that of :math:`\log s` plus that of :math:`\log v` under their
priors. It is stepped in by :mod:`pymc_nnsteps.random.lattice`. Of scales of units a move has one,
picked at random. The activations must be drawn afresh before anything else is given them
(:mod:`.contract` checks it).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import override

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import known_or_none
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import varies
from pymc_nnsteps.graphs.search import given_any, parameters
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.laws.any_scales import log_prior
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.laws.scales import ScaleLaw
from pymc_nnsteps.moves.marginal_likelihood import MarginalLikelihood, WithoutLayer
from pymc_nnsteps.moves.residual_scales import residual_scale
from pymc_nnsteps.random.lattice import lattice_step
from pymc_nnsteps.random.op import uniform

WIDEST = 0.5
"""Largest spacing of the points of t."""

PICKED = 4
"""Number of moves in a sweep if units have a scale each."""


@dataclass(frozen=True)
class NoiseExchange(WithoutLayer):
    """The scale of a response and that of the activations below, at the sum of their variances."""

    name = "step on a lattice"
    of_response: float  # the exponent p
    of_activations: float  # the exponent q
    supplements = True

    @override
    def explain_move(self, rv: TensorVariable) -> list[str]:
        [other] = self.partners(rv)
        return [f"in exchange with {describe(other)}"]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        s, v = self.draws
        rng, level = uniform(rng, (1,))
        picked = pt.floor(level[0] * v.size).astype("int64")
        rng, t = lattice_step(rng, lambda t: self.log_density(t, picked), WIDEST)
        of_s, of_v = self.shifts(t, picked)
        values = {s: s * pt.exp(of_s), v: v * _factor(v, of_v, picked)}
        return Draw(rng, {rv: typed_like(rv, value) for rv, value in values.items()})

    def log_density(self, t: TensorVariable, picked: TensorVariable) -> TensorVariable:
        """Log density at shifts of t from the present one, up to a constant."""
        s, v = self.draws
        of_s, of_v = self.shifts(t, picked)
        there = v * _factor(v, of_v, picked)
        prior: TensorVariable = pm.logp(v, there, warn_rvs=False)
        return log_prior(s, of_s) + prior.sum(tuple(range(1, prior.ndim))) + of_v

    def shifts(
        self, t: TensorVariable, picked: TensorVariable
    ) -> tuple[TensorVariable, TensorVariable]:
        """Shifts of the logarithms of both scales at shifts of t; zero without activations."""
        _, v = self.draws
        by_unit = pt.sqr(self.likelihood.rows.design[0]) * self.likelihood.variance
        e = by_unit.sum() if all(v.type.broadcastable) else by_unit[picked]
        now = -pt.log(self.likelihood.weight[0, 0]) - pt.log(e)
        of_s = (pt.softplus(-now) - pt.softplus(-now - t)) / (2 * self.of_response)
        of_v = (pt.softplus(now) - pt.softplus(now + t)) / (2 * self.of_activations)
        is_there = pt.gt(e, 0)
        return pt.switch(is_there, of_s, 0), pt.switch(is_there, of_v, 0)


def _factor(v: TensorVariable, shift: TensorVariable, picked: TensorVariable) -> TensorVariable:
    """Of an entry of v at shifts of its logarithm, which may have an axis in front."""
    factor = pt.exp(shift.dimshuffle(*range(shift.ndim), *["x"] * v.ndim))
    at_entry = pt.eq(pt.arange(v.size).reshape(v.shape), picked)
    return pt.switch(at_entry, factor, 1)


def find_noise_exchange(
    likelihood: MarginalLikelihood, conditionals: Sequence[Conditional]
) -> list[NoiseExchange]:
    """The exchange between the scale of a layer's only response and that of its own noise."""
    a, rows = likelihood.activations, likelihood.rows
    if not likelihood.has_one_output or varies(rows.weight, [0]):
        return []
    laws = [law for law in conditionals if isinstance(law, ScaleLaw) and len(law.scaled) == 1]
    found: list[NoiseExchange] = []
    for own in (law for law in laws if law.scaled[0].child is a):
        [v], [noise] = own.draws, own.scaled
        carried = [axis for axis, link in enumerate(noise.form.term.links) if link is not None]
        one_each = carried == [likelihood.units] and not noise.form.picked
        if noise.form.where is not None or not (all(v.type.broadcastable) or one_each):
            continue
        for law in laws:
            [s] = law.draws
            scale = known_or_none(residual_scale, likelihood, law)
            if (
                scale is not None
                and scale.of_response
                and not scale.of_activations
                and not given_any([rows.design, likelihood.layer.mean, *parameters(v)], [s])
                and not given_any([likelihood.variance], [s])
                and not given_any([rows.design, rows.weight, *parameters(s)], [v])
                and not given_any([likelihood.layer.mean], [v])
            ):
                exponents = scale.of_response, noise.form.exponent
                moves = [NoiseExchange((s, v), likelihood, *exponents)]
                found += moves if all(v.type.broadcastable) else PICKED * moves
    return found
