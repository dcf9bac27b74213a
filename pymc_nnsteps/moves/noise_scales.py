r"""Scales of pre-activations' noise moved with this noise, the layer's activations integrated out.

Given the pre-activations the scale of their noise is known to one part in the root of twice their
number, and hardly moves; and so they hold on to it. Model, with activations X that are integrated
out,

.. math::

    z_n = m_n + s^q \epsilon_n, \quad \epsilon_n \sim N(0, D), \qquad
    y_n \mid z_n \sim N(C \sigma(z_n), V) .

With the standardised noise :math:`\epsilon` held, the log density of t at :math:`s e^t` is

.. math::

    \log p(s e^t) + t - \tfrac12 \sum_n r_n(t)^T V^{-1} r_n(t) + \text{const}, \qquad
    r_n(t) = y_n - C \sigma(m_n + e^{q t} (z_n - m_n)),

and what further children say, of which s is the scale as well. It is stepped in by
:mod:`pymc_nnsteps.random.lattice`. With the draw of s given z this interweaves two schemes (Yu and
Meng, *To center or not to center*, JCGS 20, 2011). X must be drawn afresh before anything else is
given it (:mod:`.contract` checks it).
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
from pymc_nnsteps.graphs.known import describe, has_law
from pymc_nnsteps.graphs.linear_terms import expand
from pymc_nnsteps.graphs.search import children, given_any, parameters, random_in
from pymc_nnsteps.graphs.values import substitute, typed_like
from pymc_nnsteps.laws.any_scales import log_prior, of_scaled
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.laws.scales import Scaled, ScaleLaw
from pymc_nnsteps.moves.marginal_likelihood import MarginalLikelihood, WithoutLayer
from pymc_nnsteps.moves.residual_scales import along_eigenvectors
from pymc_nnsteps.random.lattice import lattice_step

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
    residual, weight = likelihood.residual, likelihood.rows.weight
    weight = expand(weight, {1: len(outputs)})
    said = [ChildLikelihood(residual[:, i], weight[:, i], ()) for i in outputs]
    loadings = tuple(likelihood.rows.design[i : i + 1] for i in outputs)
    apart = CommonNoise(tuple(outputs), loadings, likelihood.variance).removed(said)
    return reduce(add, [(own.weight * pt.sqr(own.response)).sum() for own in apart])


def find_noise_scale(
    model: pm.Model, likelihood: MarginalLikelihood, conditionals: Sequence[Conditional]
) -> NoiseScale | None:
    """The move of a layer's pre-activations with the scale of their noise.

    None if this is fixed, has several entries, or is that of the activations as well.
    """
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
                and not any(
                    seen.role.mixing is not None
                    or seen.form.where is not None
                    or given_any([seen.value, *parameters(seen.child)], [a, z])
                    for seen in elsewhere
                )
            ):
                return NoiseScale((s, z), likelihood, noise, elsewhere)
    return None
