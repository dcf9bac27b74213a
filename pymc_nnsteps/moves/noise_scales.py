r"""Scales of hidden noise moved with it, or against another, the activations integrated out.

**With this noise.** Given the pre-activations the scale of their noise is known to one part in the
root of twice their number, and hardly moves; and so they hold on to it. Model, with activations X
that are integrated out,

.. math::

    z_n = m_n + s^q \epsilon_n, \quad \epsilon_n \sim N(0, D), \qquad
    y_n \mid z_n \sim N(C \sigma(z_n), V) .

With the standardised noise :math:`\epsilon` held, the log density of t at :math:`s e^t` is

.. math::

    \log p(s e^t) + t - \tfrac12 \sum_n r_n(t)^T V^{-1} r_n(t) + \text{const}, \qquad
    r_n(t) = y_n - C \sigma(m_n + e^{q t} (z_n - m_n)),

and what further children say, of which s is the scale as well. It is stepped in by
:mod:`pymc_nnsteps.random.lattice`. With the draw of s given z this interweaves two schemes (Yu and
Meng, *To center or not to center*, JCGS 20, 2011).

**Against that of the response.** A response of one output, with the same noise in all samples,
knows the sum of both only:

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
picked at random.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, override

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.groups import ChildLikelihood, CommonNoise
from pymc_nnsteps.graphs.errors import known_or_none
from pymc_nnsteps.graphs.known import describe, has_law
from pymc_nnsteps.graphs.linear_terms import varies
from pymc_nnsteps.graphs.search import children, given_any, parameters, random_in
from pymc_nnsteps.graphs.values import substitute, typed_like
from pymc_nnsteps.laws.any_scales import log_prior, of_scaled
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.laws.scales import Scaled, ScaleLaw
from pymc_nnsteps.moves.marginal_likelihood import MarginalLikelihood, WithoutLayer
from pymc_nnsteps.moves.residual_scales import along_eigenvectors, residual_scale
from pymc_nnsteps.random.lattice import lattice_step
from pymc_nnsteps.random.op import uniform

POINTS = 16
"""Points of a lattice, each of which takes a pass over the samples."""

WIDEST = 0.5
"""Largest spacing of the points."""


@dataclass(frozen=True)
class NoiseScale(WithoutLayer):
    """A scale of pre-activations' noise, and these."""

    name = "step on a lattice"
    noise: Scaled  # how the pre-activations depend on the scale
    elsewhere: tuple[Scaled, ...]  # further children of the scale
    supplements = True

    @override
    def explain_move(self, rv: TensorVariable) -> list[str]:
        [other] = self.partners(rv)
        return [f"with {describe(other)}, standardised noise held"]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        s, z = self.draws
        rng, shift = lattice_step(rng, self.log_density, WIDEST, POINTS)
        values = {s: s * pt.exp(shift), z: self._shifted(shift)}
        return Draw(rng, {rv: typed_like(rv, value) for rv, value in values.items()})

    def log_density(self, shifts: TensorVariable) -> TensorVariable:
        """Log density of the scale's logarithm at shifts from the present one, up to a constant."""
        s, z = self.draws
        total = log_prior(s, shifts)
        for seen in self.elsewhere:
            total += of_scaled(seen, seen.form.exponent)(shifts)
        misfit = _misfit(self.likelihood)
        by_shift = shifts.dimshuffle(0, *["x"] * z.ndim)
        moved = pt.specify_shape(self._shifted(by_shift), (None, *z.type.shape)).astype(z.dtype)
        # Another variable of the model stands for itself, whatever its parameters depend on.
        stands_for: dict[Any, Any] = {rv: rv.type() for rv in random_in([misfit])}
        [bare] = substitute([misfit], stands_for)
        found = vectorize_graph([bare], {stands_for[z]: moved})
        [misfits] = substitute(found, {place: rv for rv, place in stands_for.items()})
        total -= misfits / 2
        return total

    def _shifted(self, shift: TensorVariable) -> TensorVariable:
        """The pre-activations at a shift."""
        _, z = self.draws
        mean = parameters(z)[0]
        shifted: TensorVariable = mean + pt.exp(self.noise.form.exponent * shift) * (z - mean)
        return shifted


def _misfit(likelihood: MarginalLikelihood) -> TensorVariable:
    """Squares of what is seen less its mean, over its variance without the activations."""
    if not likelihood.has_outputs_of_samples:
        _, squares, eigenvalues = along_eigenvectors(likelihood)
        return pt.true_div(squares, 1 + eigenvalues).sum()
    outputs = range(likelihood.rows.design.type.shape[0] or 0)
    residual, weight = likelihood.residual, likelihood.weight_in_part
    said = [ChildLikelihood(residual[:, i], weight[:, i], ()) for i in outputs]
    loadings = tuple(likelihood.rows.design[i : i + 1] for i in outputs)
    apart = CommonNoise(tuple(outputs), loadings, likelihood.variance).removed(said)
    return reduce(add, [(own.weight * pt.sqr(own.response)).sum() for own in apart])


def find_noise_scale(
    model: pm.Model, likelihood: MarginalLikelihood, conditionals: Sequence[Conditional]
) -> NoiseScale | None:
    """The move of pre-activations with the scale of their noise, if that has one entry."""
    a = likelihood.activations
    if likelihood.has_outputs_of_samples and likelihood.rows.design.type.shape[0] is None:
        return None
    for scale in (c for c in conditionals if isinstance(c, ScaleLaw)):
        [s] = scale.draws
        for noise in scale.scaled:
            z, elsewhere = noise.child, tuple(x for x in scale.scaled if x is not noise)
            if (
                has_law(model, z, NormalRV)
                and z in model.free_RVs
                and children(model, z) == (a,)
                and given_any([likelihood.layer.mean], [z])
                and not likelihood.depends_on([z, s])
                and not given_any([likelihood.variance], [z, s])
                and not given_any([parameters(z)[0]], [s])
                and all(s.type.broadcastable)
                and noise.form.where is None
                and all(seen.scales_all for seen in elsewhere)
                and not given_any(
                    [part for x in elsewhere for part in (x.value, *parameters(x.child))], [a, z]
                )
            ):
                return NoiseScale((s, z), likelihood, noise, elsewhere)
    return None


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
        rng, t = lattice_step(rng, lambda t: self.log_density(t, picked), 2 * WIDEST, 2 * POINTS)
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
    shared = rows.design, likelihood.layer.mean
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
                and not given_any([*shared, likelihood.variance, *parameters(v)], [s])
                and not given_any([*shared, rows.weight, *parameters(s)], [v])
            ):
                exponents = scale.of_response, noise.form.exponent
                moves = [NoiseExchange((s, v), likelihood, *exponents)]
                found += moves if all(v.type.broadcastable) else PICKED * moves
    return found
