r"""Scales of a response, and of the activations below it, with these activations integrated out.

Given the activations of a layer the residuals of its response are as small as the response's
scale is, and given that scale the activations hold on to the response: each moves the other by
small steps. Model, with activations :math:`X_n` of a layer that m outputs see,

.. math::

    X_n \sim N(u_n, \Sigma), \qquad y_n \sim N(C X_n, D_n), \qquad
    y_n \mid u_n \sim N(C u_n, V_n), \quad V_n = D_n + C \Sigma C^T,

where a scale :math:`s` has the density p and enters by :math:`D_n \propto s^{2 p}` and
:math:`\Sigma \propto s^{2 q}` (one of the exponents is zero where it is the scale of the other
only). At :math:`s e^t`, with the eigenvalues :math:`\lambda_{nj}` of
:math:`D_n^{-1/2} C \Sigma C^T D_n^{-1/2}` and the entries :math:`\rho_{nj}` of
:math:`D_n^{-1/2} (y_n - C u_n)` along its eigenvectors, the log density of t is

.. math::

    \log p(s e^t) + t - \tfrac12 \sum_{nj} \Bigl[\log v_{nj}
    + \frac{\rho_{nj}^2}{v_{nj}}\Bigr] + \text{const}, \qquad
    v_{nj} = e^{2 p t} + \lambda_{nj} e^{2 q t},

and what further children say, of which s is the scale as well. Where s is the scale of one child of
several, that child is taken given the others: it is regressed on them, by what they have in common
(:mod:`pymc_nnsteps.gaussian.common_noise`), and s is in no other term. The density is stepped in by
:mod:`pymc_nnsteps.random.lattice`, whatever the prior. X must be drawn afresh before anything
else is given it (:mod:`.scan` checks it).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import eigh
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.common_noise import CommonNoise
from pymc_nnsteps.gaussian.groups import Said
from pymc_nnsteps.graphs.arrays import expand, varies
from pymc_nnsteps.graphs.search import given_any, parameters
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.kernels.ops import sum_over_variances
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.laws.scales import Scaled, ScaleLaw
from pymc_nnsteps.moves.marginal_likelihood import MarginalLikelihood
from pymc_nnsteps.random.lattice import POINTS, lattice_step

MOST_OUTPUTS = 100
"""Number of outputs up to which the eigenvalues of their covariance are found in each sweep."""

FEW_UNITS = 4
"""Number of outputs for each unit beyond which the activations take little of what residuals say:
no more than a quarter of the numbers that the scale of the response is known from."""


@dataclass(frozen=True)
class ResidualScale(Conditional):
    """A scale of the response to activations, or of these, which are integrated out.

    Attributes
    ----------
    likelihood : MarginalLikelihood
    of_response, of_activations : float
        The exponents p and q.
    elsewhere : tuple of Scaled
        Further children of the scale.
    child : TensorVariable, optional
        The response, where several children see the activations and it is the scale of one.
    """

    draws: tuple[TensorVariable, ...]
    likelihood: MarginalLikelihood
    of_response: float
    of_activations: float
    elsewhere: tuple[Scaled, ...]
    integrates_out: tuple[TensorVariable, ...]
    child: TensorVariable | None = None

    @property
    @override
    def name(self) -> str:
        return "step on a lattice"

    @override
    def how(self, rv: TensorVariable) -> list[str]:
        return [f"{without}, given which it moves by small steps" for without in self.without()]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [rv] = self.draws
        n_seen = self.likelihood.residual.size
        for seen in self.elsewhere:
            n_seen += seen.value.size
        widest = 2 / pt.sqrt(n_seen.astype("float64"))
        rng, shift = lattice_step(rng, self.log_density, widest, self.n_points)
        return Draw(rng, {rv: typed_like(rv, rv * pt.exp(shift))})

    @property
    def n_points(self) -> int:
        """More points where each of them costs a few numbers, and not a pass over the samples.

        Beside much noise of the activations the density of a response's scale is ten times wider
        than its number of samples says.
        """
        _, _, eigenvalues = along_eigenvectors(self.likelihood, self.child)
        return POINTS if eigenvalues.ndim else 4 * POINTS

    def log_density(self, shifts: TensorVariable) -> TensorVariable:
        """Log density of the scale's logarithm at shifts from the present one, up to a constant."""
        [rv] = self.draws
        number = rv.dimshuffle() if rv.ndim else rv
        prior = pm.logp(rv, (number * pt.exp(shifts)).dimshuffle(0, *["x"] * rv.ndim)).flatten()
        total: TensorVariable = prior + shifts + self._said_by_response(shifts)
        for seen in self.elsewhere:
            total += said_by(seen, seen.form.exponent * shifts)
        return total

    def _said_by_response(self, shifts: TensorVariable) -> TensorVariable:
        counted, squares, eigenvalues = along_eigenvectors(self.likelihood, self.child)
        if counted.ndim:
            return self._said_by_samples(shifts, counted, squares, eigenvalues)
        by_shift = shifts.dimshuffle(*["x"] * squares.ndim, 0)
        of_response = pt.exp(2 * self.of_response * by_shift)
        variance = of_response + eigenvalues[..., None] * pt.exp(2 * self.of_activations * by_shift)
        said = counted[..., None] * pt.log(variance) + squares[..., None] / variance
        return -said.sum(tuple(range(squares.ndim))) / 2

    def _said_by_samples(
        self,
        shifts: TensorVariable,
        is_seen: TensorVariable,
        squares: TensorVariable,
        spread: TensorVariable,
    ) -> TensorVariable:
        """The same where each sample has a variance of its own."""
        samples = (each.astype("float64") for each in (squares, spread, is_seen))
        exponents = (2 * self.of_response, 2 * self.of_activations)
        factors = (pt.exp(power * shifts.astype("float64")) for power in exponents)
        said: TensorVariable = sum_over_variances(*samples, *factors)
        return -said.astype(shifts.dtype) / 2


def along_eigenvectors(
    likelihood: MarginalLikelihood, child: TensorVariable | None = None
) -> tuple[TensorVariable, TensorVariable, TensorVariable]:
    r"""How many responses there are, sums of :math:`\rho^2`, and :math:`\lambda`.

    Numbers, or one entry for each sample of an output, or for each of several outputs. Of a child,
    if one is given, these are given all others.
    """
    rows, residual = likelihood.rows, likelihood.residual
    n_obs = residual.shape[0].astype("float64")
    if child is not None or likelihood.has_one_output:
        weight, r, spread = _of_one_output(likelihood, child)
        if varies(weight, [0]) or varies(spread, [0]):
            return pt.gt(weight, 0), weight * pt.sqr(r), weight * spread
        return n_obs, weight[0] * pt.dot(r, r), weight[0] * spread[0]
    scaled = rows.design * pt.sqrt(likelihood.variance)
    root = pt.sqrt(expand(rows.weight, {1: scaled.shape[0]}))
    whitened = root.T * scaled
    found, vectors = eigh(pt.dot(whitened, whitened.T))
    squares = pt.sqr(pt.dot(root * residual, vectors)).sum(0)
    return n_obs, squares, pt.maximum(found, 0)


def _of_one_output(
    likelihood: MarginalLikelihood, child: TensorVariable | None
) -> tuple[TensorVariable, TensorVariable, TensorVariable]:
    """Precision, residual, and variance of the mean, of a response given all others."""
    rows = likelihood.rows
    if child is None:
        spread = pt.dot(pt.sqr(rows.design), likelihood.variance)
        return rows.weight[:, 0], likelihood.residual[:, 0], spread
    others = [o.child for o in likelihood.fresh.observations if o.child is not child]
    seen = [likelihood.evidence_by(each) for each in (*others, child)]
    mean = likelihood.by_sample(likelihood.layer.mean)
    loadings = tuple(each.whole_design[:, 0] for each in seen)
    said = [
        Said(each.response[:, 0] - (row * mean).sum(1), each.weight[:, 0], ())
        for each, row in zip(seen, loadings, strict=True)
    ]
    weight = said[-1].weight
    said[-1] = replace(said[-1], weight=pt.full((1,), np.inf, dtype=weight.dtype))
    *_, own = CommonNoise(tuple(range(len(said))), loadings, likelihood.variance).removed(said)
    return weight, own.response, pt.reciprocal(own.weight)


def said_by(seen: Scaled, shifts: TensorVariable) -> TensorVariable:
    """Log density of a child at shifts of its scale's logarithm, up to a constant."""
    order, rate = order_and_rate(seen)
    said: TensorVariable = -order * shifts - rate * pt.exp(-seen.role.power * shifts)
    return said


def order_and_rate(seen: Scaled) -> tuple[TensorVariable, TensorVariable]:
    """Sums of the order k, and of the statistic at the present scale, over a child's entries."""
    role = seen.role
    given = parameters(seen.child)
    zero = pt.zeros_like(seen.value)
    order = (role.order(seen.value, *given) + zero).sum()
    rate = (role.statistic(seen.value, *given) * given[role.scale] ** -role.power + zero).sum()
    return order, rate


def find_residual_scales(
    likelihood: MarginalLikelihood, conditionals: Sequence[Conditional], shapes: Shapes
) -> list[ResidualScale]:
    """The scale of a layer's noise, or else that of its response, drawn without the layer.

    Once one of them moves freely the other one does: a draw of both costs more than it gains.
    Children with scales of their own have a draw each.

    Parameters
    ----------
    likelihood : MarginalLikelihood
    conditionals : sequence of Conditional
        Among them those of the scales.
    shapes : mapping from random variable to tuple of int
    """
    seen_by = [seen.child for seen in likelihood.fresh.observations]
    n_obs = shapes[likelihood.activations][likelihood.samples]
    n_seen = sum(math.prod(shapes[child]) for child in seen_by)
    if n_seen > MOST_OUTPUTS * n_obs:
        return []
    few_units = n_seen >= FEW_UNITS * math.prod(shapes[likelihood.activations])
    found = [residual_scale(likelihood, c) for c in conditionals if isinstance(c, ScaleLaw)]
    scales = [
        scale
        for scale in found
        if scale is not None and not (few_units and scale.of_activations == 0)
    ]
    of_all = [scale for scale in scales if scale.child is None]
    first = sorted(of_all, key=lambda scale: scale.of_activations == 0)[:1]
    return first + [scale for scale in scales if scale.child is not None]


def residual_scale(likelihood: MarginalLikelihood, scale: ScaleLaw) -> ResidualScale | None:
    """A scale of activations or of their response, drawn without them; None if it is neither."""
    [rv], a = scale.draws, likelihood.activations
    scaled = {seen.child: seen for seen in scale.scaled}
    own = scaled.pop(a, None)
    children = [seen.child for seen in likelihood.fresh.observations]
    seen_above = [scaled.pop(child) for child in children if child in scaled]
    parts = [seen for seen in (own, *seen_above) if seen is not None]
    if not parts or not all(rv.type.broadcastable):
        return None
    exponents = {seen.form.exponent for seen in seen_above}
    alike = len(seen_above) == len(children) and len(exponents) == 1
    child = None
    if seen_above and not (alike and likelihood.sees_each_once):
        if own is not None or len(seen_above) > 1 or not _is_seen_by_vectors(likelihood):
            return None
        [child] = [seen.child for seen in seen_above]
    elif not likelihood.has_one_output and varies(likelihood.rows.weight, [0]):
        return None
    elsewhere = tuple(scaled.values())
    if any(seen.form.where is not None for seen in (*parts, *elsewhere)):
        return None
    for seen in elsewhere:
        if seen.role.mixing is not None or given_any([seen.value, *parameters(seen.child)], [a]):
            return None
    of_response = seen_above[0].form.exponent if seen_above else 0.0
    of_activations = 0.0 if own is None else own.form.exponent
    return ResidualScale((rv,), likelihood, of_response, of_activations, elsewhere, (a,), child)


def _is_seen_by_vectors(likelihood: MarginalLikelihood) -> bool:
    """Whether each child has one entry for each sample, in their order."""
    children = [seen.child for seen in likelihood.fresh.observations]
    designs = [likelihood.evidence_by(child).design for child in children]
    return likelihood.sees_in_order and not any(varies(design, [1]) for design in designs)


def scale_of_response(
    likelihood: MarginalLikelihood, conditionals: Sequence[Conditional]
) -> ResidualScale | None:
    """The scale of a response that has the same one for all samples and no other child.

    None if there is none, or more than one.
    """
    if varies(likelihood.rows.weight, [0]):
        return None
    found = [residual_scale(likelihood, c) for c in conditionals if isinstance(c, ScaleLaw)]
    scales = [
        scale
        for scale in found
        if scale is not None and not scale.of_activations and not scale.elsewhere
    ]
    return scales[0] if len(scales) == 1 else None


def prior_ratio(scale: ResidualScale, shift: TensorVariable) -> TensorVariable:
    """Log of the ratio of the prior of s to the flat density, at a shift of log s to here."""
    [s] = scale.draws
    there = pm.logp(s, s * pt.exp(shift), warn_rvs=False)
    ratio: TensorVariable = (there - pm.logp(s, s, warn_rvs=False)).sum() + shift
    return ratio - scale.of_response * shift
