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

and what further children say, of which s is the scale as well. Where s is the scale of some outputs
only, or the noise differs between samples, :math:`\log \det V_n + r_n^T V_n^{-1} r_n` is found by
eliminating the outputs in turn, for all samples of the same noise at once. The density is stepped
in by :mod:`pymc_nnsteps.random.lattice`, whatever the prior.

Several scales :math:`s_j`, of densities :math:`p_j`, move one after another, with
:math:`D_n = \text{diag}(d_n)`.

**Of groups of rows.** There is one output, and row n of group g has :math:`d_n \propto s_g^{2 p}`.
Given u the groups are independent: with the present variance d of the rows of one of them, and
their residuals :math:`r_n = y_n - C u_n`, the log density of t at :math:`s_g e^t` is

.. math::

    \log p_g(s_g e^t) + t - \tfrac12 \sum_{n \in g} \Bigl[\log v + \frac{r_n^2}{v}\Bigr]
    + \text{const}, \qquad v = d e^{2 p t} + C \Sigma C^T.

**Of outputs.** Output j has :math:`d_j \propto s_j^{2 p}` in all rows, so that these share V. Given
the other outputs and their scales it has the residuals and the variance

.. math:: r_n = \frac{(V^{-1} (y_n - C u_n))_j}{(V^{-1})_{jj}}, \qquad \frac{1}{(V^{-1})_{jj}},

in which :math:`s_j` moves :math:`d_j` alone, and the same density with
:math:`v = d_j e^{2 p t} + 1 / (V^{-1})_{jj} - d_j`. What the others say for themselves does not
depend on :math:`s_j`. The outputs have their turns one after another, and :math:`V^{-1}` changes by
a matrix of rank one after each. Sums of products of residuals are all that is needed of the rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import override

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import eigh
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import varies
from pymc_nnsteps.graphs.search import given_any, parameters
from pymc_nnsteps.graphs.values import constant_or_none, typed_like
from pymc_nnsteps.laws.any_scales import of_scaled
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.laws.scales import Scaled, ScaleLaw
from pymc_nnsteps.moves.loops.residual_scales import (
    Lattices,
    move_scales_of_groups,
    move_scales_of_outputs,
    sum_over_covariances,
    sum_over_variances,
)
from pymc_nnsteps.moves.marginal_likelihood import MarginalLikelihood, WithoutLayer
from pymc_nnsteps.random.lattice import POINTS, lattice_of, lattice_step
from pymc_nnsteps.random.op import uniform

MOST_OUTPUTS = 100
"""Number of outputs up to which the eigenvalues of their covariance are found in each sweep."""

MOST_BY_SAMPLE = 6
"""The same, where the covariance is factorised for each sample, or for each pattern of noise."""

FEW_UNITS = 4
"""Number of outputs for each unit beyond which the activations take little of what residuals say:
no more than a quarter of the numbers that the scale of the response is known from."""


class ScaleWithoutLayer(WithoutLayer):
    """A step of scales with the activations below integrated out."""

    @override
    def explain_law(self, rv: TensorVariable) -> list[str]:
        return [f"{without}, given which it moves by small steps" for without in self.without()]


@dataclass(frozen=True)
class ResidualScale(ScaleWithoutLayer):
    """A scale of the response to activations, or of these, which are integrated out."""

    name = "step on a lattice"
    # The exponents p and q.
    of_response: float
    of_activations: float
    elsewhere: tuple[Scaled, ...]  # further children of the scale
    # Whether it is the scale of all outputs of the response, or of the activations.
    is_of_all: bool = True
    # One for each output of which it is the scale, else zero, shape (m,); None where all are
    # scaled alike and their noise is the same in all samples.
    outputs: TensorVariable | None = None
    entry: tuple[int, ...] = ()  # which entry of the variable it is

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [rv] = self.draws
        n_seen = self.likelihood.residual.size
        for seen in self.elsewhere:
            n_seen += seen.value.size
        widest = 2 / pt.sqrt(n_seen.astype("float64"))
        rng, shift = lattice_step(rng, self.log_density, widest, self.n_points)
        return Draw(rng, {rv: typed_like(rv, rv * self.factor(shift))})

    def factor(self, shifts: TensorVariable) -> TensorVariable:
        """Of the variable, at a shift of the scale's logarithm, or several along a first axis."""
        [rv] = self.draws
        factor = pt.exp(shifts.dimshuffle(*range(shifts.ndim), *["x"] * rv.ndim))
        return pt.switch(pt.zeros_like(rv)[self.entry].set(1), factor, 1) if self.entry else factor

    @property
    def n_points(self) -> int:
        """More points of a scale beside activations' noise, where each costs a few numbers."""
        return POINTS if varies(self.likelihood.rows.weight, [0]) else 4 * POINTS

    def log_density(self, shifts: TensorVariable) -> TensorVariable:
        """Log density of the scale's logarithm at shifts from the present one, up to a constant."""
        [rv] = self.draws
        prior = pm.logp(rv, rv * self.factor(shifts), warn_rvs=False)
        total: TensorVariable = prior.sum(tuple(range(1, prior.ndim))) + shifts
        total += self._said_by_response(shifts)
        for seen in self.elsewhere:
            total += of_scaled(seen, seen.form.exponent)(shifts)
        return total

    def _said_by_response(self, shifts: TensorVariable) -> TensorVariable:
        exponents = (2 * self.of_response, 2 * self.of_activations)
        factors = tuple(pt.exp(power * shifts.astype("float64")) for power in exponents)
        if self.outputs is not None:
            rows = self._by_output(self.outputs)
            said: TensorVariable = as_op(sum_over_covariances, 1)(*rows, *factors)
            return -said.astype(shifts.dtype) / 2
        counted, squares, eigenvalues = along_eigenvectors(self.likelihood)
        if counted.ndim:
            samples = (each.astype("float64") for each in (squares, eigenvalues, counted))
            said = as_op(sum_over_variances, 1)(*samples, *factors)
            return -said.astype(shifts.dtype) / 2
        by_shift = shifts.dimshuffle(*["x"] * squares.ndim, 0)
        of_response = pt.exp(2 * self.of_response * by_shift)
        variance = of_response + eigenvalues[..., None] * pt.exp(2 * self.of_activations * by_shift)
        said = counted[..., None] * pt.log(variance) + squares[..., None] / variance
        return -said.sum(tuple(range(squares.ndim))) / 2

    def _by_output(self, is_scaled: TensorVariable) -> list[TensorVariable]:
        """What kernels are told of the outputs, of which some have the scale."""
        likelihood = self.likelihood.apart
        design, residual = likelihood.rows.design, likelihood.residual
        weight, spread = likelihood.weight_in_part, pt.dot(design * likelihood.variance, design.T)
        return [each.astype("float64") for each in (weight, residual, spread, is_scaled)]


def along_eigenvectors(
    likelihood: MarginalLikelihood,
) -> tuple[TensorVariable, TensorVariable, TensorVariable]:
    r"""Numbers of responses, sums of :math:`\rho^2`, and :math:`\lambda`."""
    rows, residual = likelihood.rows, likelihood.residual
    n_obs = residual.shape[0].astype("float64")
    if likelihood.has_one_output:
        weight, r = rows.weight[:, 0], residual[:, 0]
        spread = pt.dot(pt.sqr(rows.design), likelihood.variance)
        if varies(weight, [0]):
            return pt.gt(weight, 0), weight * pt.sqr(r), weight * spread
        return n_obs, weight[0] * pt.dot(r, r), weight[0] * spread[0]
    scaled = rows.design * pt.sqrt(likelihood.variance)
    root = pt.sqrt(likelihood.weight_in_part)
    whitened = root.T * scaled
    found, vectors = eigh(pt.dot(whitened, whitened.T))
    squares = pt.sqr(pt.dot(root * residual, vectors)).sum(0)
    return n_obs, squares, pt.maximum(found, 0)


def find_residual_scales(
    likelihood: MarginalLikelihood,
    conditionals: Sequence[Conditional],
    shapes: Shapes,
    declined: dict[TensorVariable, str],
) -> list[ResidualScale]:
    """The scale of a layer's noise, or else that of its response, drawn without the layer.

    A draw of both costs more than it gains. Reasons why a scale has none go to ``declined``.
    """
    a = likelihood.activations
    seen_by = [seen.child for seen in likelihood.fresh.observations]
    n_obs = shapes[a][likelihood.samples]
    n_seen = sum(math.prod(shapes[child]) for child in seen_by)
    of_few_units = n_seen >= FEW_UNITS * math.prod(shapes[a])
    scales, reasons = [], {}
    for law in (c for c in conditionals if isinstance(c, ScaleLaw)):
        for entry, seen in parts_of(law, shapes):
            if of_few_units and all(each.child is not a for each in seen):
                continue
            try:
                scale = residual_scale(likelihood, law, entry, seen)
                if scale is None:
                    continue
                limit = MOST_OUTPUTS if scale.outputs is None else MOST_BY_SAMPLE
                if n_seen > limit * n_obs:
                    raise NotConjugate(f"more than {limit} outputs depend on {describe(a)}")
                scales.append(scale)
            except NotConjugate as reason:
                reasons[law.draws[0]] = f"not drawn without {describe(a)}: {reason}"
    of_all = [scale for scale in scales if scale.is_of_all]
    if not of_all:
        declined |= reasons
    first = sorted(of_all, key=lambda scale: scale.of_activations == 0)[:1]
    return first + [scale for scale in scales if not scale.is_of_all]


def parts_of(scale: ScaleLaw, shapes: Shapes) -> list[tuple[tuple[int, ...], list[Scaled]]]:
    """The entries of a scale that children see one each of, and these children."""
    [rv] = scale.draws
    if all(rv.type.broadcastable):
        return [((), list(scale.scaled))]
    parts: dict[tuple[int, ...], list[Scaled]] = {}
    for seen in scale.scaled:
        along = sorted(seen.form.picked, key=itemgetter(0))
        numbers = [(axis, constant_or_none(pt.as_tensor(index))) for axis, index in along]
        entry = tuple(int(n) % shapes[rv][axis] for axis, n in numbers if n is not None)
        if len(entry) < rv.ndim:
            return []
        parts.setdefault(entry, []).append(seen)
    return list(parts.items())


def cover(scales: Sequence[Conditional], rv: TensorVariable, shapes: Shapes) -> bool:
    """Whether draws of a scale together move each of its entries."""
    own = [scale for scale in scales if scale.draws == (rv,)]
    entries = {scale.entry for scale in own if isinstance(scale, ResidualScale) and scale.entry}
    return len(entries) == math.prod(shapes[rv]) or len(own) > len(entries)


def residual_scale(
    likelihood: MarginalLikelihood,
    scale: ScaleLaw,
    entry: tuple[int, ...] = (),
    seen_by: Sequence[Scaled] | None = None,
) -> ResidualScale | None:
    """A scale, or an entry of it, of activations or their response, drawn without them."""
    [rv], a = scale.draws, likelihood.activations
    if not entry and not all(rv.type.broadcastable):
        return None
    scaled = {seen.child: seen for seen in (scale.scaled if seen_by is None else seen_by)}
    own = scaled.pop(a, None)
    children = [seen.child for seen in likelihood.fresh.observations]
    seen_above = [scaled.pop(child) for child in children if child in scaled]
    parts = [seen for seen in (own, *seen_above) if seen is not None]
    if not parts:
        return None
    names = ", ".join(describe(seen.child) for seen in seen_above)
    if len({seen.form.exponent for seen in seen_above}) > 1:
        raise NotConjugate(f"the scales of {names} are different powers of it")
    if seen_above and not likelihood.sees_entries_once:
        raise NotConjugate(f"{names} may depend on an entry of {describe(a)} twice")
    for seen in seen_above:
        if not likelihood.has_no_zero_factor(seen.child):
            raise NotConjugate(f"the factor of {describe(a)} in {describe(seen.child)} may be zero")
    elsewhere = tuple(scaled.values())
    for seen in (*parts, *elsewhere):
        if seen.form.where is not None:
            raise NotConjugate(f"a condition selects the scale of {describe(seen.child)}")
    for seen in elsewhere:
        if seen.role.mixing is not None or given_any([seen.value, *parameters(seen.child)], [a]):
            raise NotConjugate(f"{describe(seen.child)} has the same scale in another way")
    outputs = None
    if likelihood.has_outputs_of_samples or (seen_above and len(children) > 1):
        outputs = likelihood.are_of([seen.child for seen in seen_above])
    of_response = seen_above[0].form.exponent if seen_above else 0.0
    of_activations = 0.0 if own is None else own.form.exponent
    return ResidualScale(
        *((rv,), likelihood, of_response, of_activations, elsewhere),
        *(own is not None or len(seen_above) == len(children), outputs, entry),
    )


def prior_ratio(scale: ResidualScale, shift: TensorVariable) -> TensorVariable:
    """Log of the ratio of the prior of s to the flat density, at a shift of log s to here."""
    [s] = scale.draws
    there = pm.logp(s, s * scale.factor(shift), warn_rvs=False)
    ratio: TensorVariable = (there - pm.logp(s, s, warn_rvs=False)).sum() + shift
    return ratio - scale.of_response * shift


MOST_GROUPS = 1000
"""Number of groups of rows up to which their scales are drawn without the activations."""

FEW = 32
"""Number of scales up to which the points of each take no time beside the rest of a sweep."""


@dataclass(frozen=True)
class VectorScale(ScaleWithoutLayer):
    """Scales of outputs or of groups of rows, with the activations below integrated out."""

    name = "steps on lattices"
    exponent: float  # the exponent p
    # The group of each row; None: each output has a scale.
    groups: TensorVariable | None

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [rv] = self.draws
        count, *seen = self.seen()
        rng, levels = uniform(rng, (3, rv.size))
        levels = levels.astype("float64")
        widest = 2 / pt.sqrt(pt.maximum(count, 1.0))
        n_points = 4 * POINTS if math.prod(shapes[rv]) <= FEW else POINTS
        points = lattice_of(levels[:2], widest, n_points)
        lattices = self.lattices(points, levels[2])
        move = move_scales_of_outputs if self.groups is None else move_scales_of_groups
        shift = as_op(move, 1)(lattices, count, *seen).reshape(rv.shape)
        return Draw(rng, {rv: typed_like(rv, rv * pt.exp(shift))})

    def lattices(self, points: TensorVariable, level: TensorVariable) -> Lattices[TensorVariable]:
        """Lattices (q, m) of the scales' logarithms, and their prior there."""
        [rv] = self.draws
        q, m = points.shape
        there = rv * pt.exp(points.T.reshape((m, *rv.shape)))
        prior = pm.logp(rv, there, warn_rvs=False).reshape((m, q)).T + points
        power = pt.constant([2 * self.exponent], dtype="float64")
        return Lattices(power, points, prior, level)

    def seen(self) -> tuple[TensorVariable, TensorVariable, TensorVariable, TensorVariable]:
        """Numbers of rows, sums of squares, and variances due to the scales and to the rest."""
        [rv] = self.draws
        likelihood = self.likelihood
        design = likelihood.rows.design.astype("float64")
        residual = likelihood.residual.astype("float64")
        variance = pt.reciprocal(likelihood.weight.astype("float64"))
        spread = pt.dot(design * likelihood.variance, design.T)
        if self.groups is None:
            count = residual.shape[:1].astype("float64")
            return count, pt.dot(residual.T, residual), variance[0], spread
        zeros = pt.zeros(rv.size, dtype="float64")
        count = zeros[self.groups].inc(1.0)
        squares = zeros[self.groups].inc(pt.sqr(residual[:, 0]))
        # A mean of equal numbers: where PyTensor fuses sums with a set, it sums that as well.
        total = zeros[self.groups].inc(variance[:, 0])
        own = pt.switch(pt.gt(count, 0), total / pt.maximum(count, 1.0), 1.0)
        return count, squares, own, spread[0]


def find_vector_scales(
    likelihood: MarginalLikelihood, conditionals: Sequence[Conditional], shapes: Shapes
) -> list[VectorScale]:
    """Scales of outputs, or of groups of rows, that are drawn without a layer's activations."""
    laws = [law for law in conditionals if isinstance(law, ScaleLaw)]
    found = [_vector_scale(likelihood, law, shapes) for law in laws]
    return [scale for scale in found if scale is not None]


def _vector_scale(
    likelihood: MarginalLikelihood, scale: ScaleLaw, shapes: Shapes
) -> VectorScale | None:
    """Scales of the only child of activations, without missing entries, drawn without them."""
    [rv], [seen, *others] = scale.draws, scale.scaled or (None,)
    if (
        seen is None
        or others
        or [child.child for child in likelihood.fresh.observations] != [seen.child]
        or not likelihood.sees_in_order
        or likelihood.evidence_by(seen.child).factor is not None
    ):
        return None
    form, long = seen.form, [axis for axis, one in enumerate(rv.type.broadcastable) if not one]
    links = enumerate(form.term.links)
    carried = [(axis, link) for axis, link in links if link is not None and link.axis in long]
    if not len(long) == len(carried) == 1 or form.where is not None or form.picked:
        return None
    [(axis, link)], [samples] = carried, likelihood.seen_by(seen.child).label_axes
    if axis == samples:
        fits = likelihood.has_one_output and not form.term.varies_along(samples)
        fits, most = fits and link.index is not None, MOST_GROUPS
    else:
        fits = not varies(likelihood.rows.weight, [0]) and seen.child.ndim <= 2
        fits, most = fits and link.index is None, MOST_OUTPUTS
    if not fits or math.prod(shapes[rv]) > most:
        return None
    return VectorScale((rv,), likelihood, form.exponent, link.index)
