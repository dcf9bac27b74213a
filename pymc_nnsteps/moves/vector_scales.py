r"""Scales of a response, one for each output or each group of rows, without the activations below.

As the one scale of a response (:mod:`.residual_scales`), each of several holds on to the
activations, and these to it. Model, with activations :math:`X_n \sim N(u_n, \Sigma)`, and scales
:math:`s_j` that have the densities :math:`p_j`:

.. math::

    y_n \mid u_n \sim N(C u_n, V_n), \qquad V_n = D_n + C \Sigma C^T,
    \qquad D_n = \text{diag}(d_n)

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

Each density is stepped in by a lattice as in :mod:`pymc_nnsteps.random.lattice`. X must be drawn
afresh before anything else is given it (:mod:`.scan` checks it).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import override

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.arrays import varies
from pymc_nnsteps.graphs.linear_terms import Link
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.kernels.ops import move_scales_of_groups, move_scales_of_outputs
from pymc_nnsteps.kernels.vector_scales import Lattices
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.laws.scales import Scaled, ScaleLaw
from pymc_nnsteps.moves.marginal_likelihood import MarginalLikelihood
from pymc_nnsteps.moves.residual_scales import MOST_OUTPUTS
from pymc_nnsteps.random.lattice import POINTS, lattice_of
from pymc_nnsteps.random.uniform import uniform

MOST_GROUPS = 1000
"""Number of groups of rows up to which their scales are drawn without the activations."""

FEW = 32
"""Number of scales up to which the points of each take no time beside the rest of a sweep."""


@dataclass(frozen=True)
class VectorScale(Conditional):
    """Scales of outputs or of groups of rows, with the activations below integrated out.

    Attributes
    ----------
    exponent : float
        The exponent p.
    groups : TensorVariable, optional
        The group of each row; None: each output has a scale.
    """

    name = "steps on lattices"
    draws: tuple[TensorVariable, ...]
    likelihood: MarginalLikelihood
    exponent: float
    groups: TensorVariable | None
    integrates_out: tuple[TensorVariable, ...]

    @override
    def how(self, rv: TensorVariable) -> list[str]:
        return [f"{without}, given which it moves by small steps" for without in self.without()]

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
        shift = move(lattices, count, *seen).reshape(rv.shape)
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
    found = [vector_scale(likelihood, c) for c in conditionals if isinstance(c, ScaleLaw)]
    return [
        scale
        for scale in found
        if scale is not None
        and math.prod(shapes[scale.draws[0]])
        <= (MOST_OUTPUTS if scale.groups is None else MOST_GROUPS)
    ]


def vector_scale(likelihood: MarginalLikelihood, scale: ScaleLaw) -> VectorScale | None:
    """Scales of the only child of activations, drawn without them; None if they are something else.

    Those of a child with missing entries are left to draws given the activations.
    """
    [rv], [seen, *others] = scale.draws, scale.scaled or (None,)
    if seen is None or others or all(rv.type.broadcastable):
        return None
    if [child.child for child in likelihood.fresh.observations] != [seen.child]:
        return None
    if seen.form.where is not None or seen.form.picked:
        return None
    if not likelihood.sees_in_order or likelihood.evidence_by(seen.child).factor is not None:
        return None
    carried = _carried(rv, seen)
    if carried is None:
        return None
    axis, link = carried
    [samples] = likelihood.seen_by(seen.child).label_axes
    if axis != samples:
        if link.index is not None or varies(likelihood.rows.weight, [0]) or seen.child.ndim > 2:
            return None
    elif (
        link.index is None or not likelihood.has_one_output or seen.form.term.varies_along(samples)
    ):
        return None
    return VectorScale((rv,), likelihood, seen.form.exponent, link.index, (likelihood.activations,))


def _carried(rv: TensorVariable, seen: Scaled) -> tuple[int, Link] | None:
    """The one axis of a child along which scales differ, and how it carries them."""
    links = [(axis, link) for axis, link in enumerate(seen.form.term.links) if link is not None]
    long = [axis for axis, is_one in enumerate(rv.type.broadcastable) if not is_one]
    differing = [(axis, link) for axis, link in links if link.axis in long]
    return differing[0] if len(long) == len(differing) == 1 else None
