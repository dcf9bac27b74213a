r"""Weights through which outputs see a layer, with the layer's activations integrated out.

Given its activations a layer's outgoing weights are known as if these had been seen without noise,
and the activations of all units share among them what the outputs leave open: a unit of small
weights that should have others changes them by small steps. Here the weights of each unit are drawn
with the activations of all *other* units integrated out. Model, with activations
:math:`X_{na}` around :math:`u_{na}`, the activation of :math:`z_{na}` and any offset, and weights
:math:`v_a` of a unit, one for each output:

.. math::

    X_{na} \sim N(u_{na}, \tau_a), \qquad v_a \sim N(\nu_a, \Lambda_a^{-1}), \qquad
    y_n \sim N(\textstyle\sum_a v_a X_{na}, \text{diag}(w_n)^{-1}).

Without the activations of the other units the residual
:math:`r_n = y_n - \sum_{j \ne a} v_j u_{nj}` is :math:`N(v_a X_{na}, V_n)` with
:math:`V_n = \text{diag}(w_n)^{-1} + \sum_{j \ne a} \tau_j v_j v_j^T`, in which there is no
:math:`v_a`: both laws of

.. math::

    X_{na} \mid v_a &\sim N\bigl(u_{na} + v_a^T V_n^{-1} (r_n - v_a u_{na}) / S_n,\ S_n^{-1}\bigr),
    \qquad S_n = 1 / \tau_a + v_a^T V_n^{-1} v_a, \\
    v_a \mid X_a &\sim N\bigl(A^{-1} (\Lambda_a \nu_a
    + \textstyle\sum_n X_{na} V_n^{-1} r_n), A^{-1}\bigr), \qquad
    A = \Lambda_a + \textstyle\sum_n X_{na}^2 V_n^{-1},

are exact, and are drawn from in this order for one unit after another. Where all samples have the
same w, one matrix :math:`V` of outputs by outputs is inverted for each unit. Several outputs that
are latent themselves, such as the next layer's pre-activations, have no such draw: it gains nothing
there.

**Units along rays** are moved with the weights that one output sees them through. What the output
sees of a unit does not change where the unit's weights are multiplied and its outgoing weight is
divided by the same number. Given each other they hold on to that number; what
decides it is how much noise of the layer the output is to see, and with it what is left to the
scale of the response. Model, with an activation :math:`\sigma(c z) = c\, \sigma(z)` for all
:math:`c > 0` (:math:`\max(z, 0)`, the absolute value), activations X that are integrated out and
D units,

.. math::

    w_a \sim N(\mu_a, \Lambda_a^{-1}), \qquad z_{na} = \tilde x_n \cdot w_a + e_{na}, \qquad
    v_a \sim N(\nu_a, \lambda_a^{-1}), \\
    y_n \mid Z \sim N(\textstyle\sum_a v_a \sigma(z_{na}), V), \qquad
    V = s^2 + \sum_a v_a^2 \tau_a .

For one unit a of d weights, the ray takes, with the noise e kept,

.. math::

    w_a \to e^u w_a, \qquad v_a \to e^{-u} v_a, \qquad
    s^2 \to s^2 + v_a^2 \tau_a (1 - e^{-2 u}),

so that V does not change, and y sees :math:`v_a \sigma(\tilde x_n \cdot w_a + e_{na} e^{-u})` in
the place of :math:`v_a \sigma(z_{na})`: of a unit only its noise. These maps are a group, with the
Jacobian :math:`e^{(d - 1) u}` in :math:`(w_a, e, v_a, s^2)`. The density of u is

.. math::

    \log q(u) = (d - 1) u - \frac{1}{2 V} \sum_n r_n(u)^2
    - \tfrac12 e^{2u} w_a^T \Lambda_a w_a + e^u w_a^T \Lambda_a \mu_a
    - \tfrac12 e^{-2u} \lambda_a v_a^2 + e^{-u} \lambda_a v_a \nu_a + \log p(s^2(u))

where :math:`s^2(u)` is positive. Where s is no variable, or has other children, it stays, and
:math:`-\tfrac n2 \log V(u)` comes in. u is stepped in by :mod:`pymc_nnsteps.random.lattice`,
for one unit after another, from the first or from the last with the same probability. All units
are moved as if the density of s were flat, :math:`p(s^2) \propto 1 / s`, which is a reversible
step; it is accepted with the ratio that the prior of s has to this one (Liu, *Monte Carlo
Strategies in Scientific Computing*, 2001, section 9.4.3).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.gaussian.layout import Member, by_label
from pymc_nnsteps.gaussian.observation import Observation
from pymc_nnsteps.graphs.errors import known_or_none
from pymc_nnsteps.graphs.linear_terms import Term, cut_links, expand, varies
from pymc_nnsteps.graphs.search import children, depends_on, given_any
from pymc_nnsteps.graphs.shapes import known_shape
from pymc_nnsteps.graphs.values import array_constant, substitute, typed_like
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.laws.scales import ScaleLaw
from pymc_nnsteps.moves.interweaving import Interweaving, InterwovenKernels
from pymc_nnsteps.moves.loops.outgoing_weights import GaussianPrior, draw_outgoing, move_units
from pymc_nnsteps.moves.loops.rows import Above
from pymc_nnsteps.moves.marginal_likelihood import MarginalLikelihood, WithoutLayer
from pymc_nnsteps.moves.plan import Context, proposes
from pymc_nnsteps.moves.residual_scales import ResidualScale, parts_of, prior_ratio, residual_scale
from pymc_nnsteps.random.op import uniform
from pymc_nnsteps.random.standard_normal import standard_normal

MOST_OUTPUTS = 4
"""Number of outputs up to which ``V`` is inverted for each unit and sample, where it varies."""


@dataclass(frozen=True)
class ByOutput:
    """Entries of variables, of which each output sees some and no two the same."""

    members: tuple[Member, ...]
    # Which entries each output sees, counted along all axes of the first variable, then of the
    # second, and so on, shape (m, n). All are seen.
    places: np.ndarray

    @property
    def rvs(self) -> tuple[TensorVariable, ...]:
        """The variables."""
        return tuple(member.rv for member in self.members)

    def value(self) -> TensorVariable:
        """The entries, shape (m, n)."""
        return self.by_output(self.rvs)

    def prior(self) -> GaussianPrior[TensorVariable]:
        """Their prior."""
        precision = self.by_output([member.precision for member in self.members])
        mean = self.by_output([member.mean for member in self.members])
        return GaussianPrior(precision, precision * mean)

    def by_output(self, arrays: Sequence[TensorVariable]) -> TensorVariable:
        """Entries of arrays of the shapes of the variables, shape (m, n)."""
        full = [
            pt.broadcast_to(array, rv.shape).flatten()
            for rv, array in zip(self.rvs, arrays, strict=True)
        ]
        entries = full[0] if len(full) == 1 else pt.concatenate(full)
        return entries[pt.constant(self.places)]

    def values_of(self, entries: TensorVariable) -> dict[TensorVariable, TensorVariable]:
        """Values of the variables whose entries, shape (m, n), are given."""
        values, first = {}, pt.constant(0)
        places = pt.constant(self.places)
        flat = pt.zeros(self.places.size, entries.dtype)[places].set(entries)
        for rv in self.rvs:
            values[rv] = typed_like(rv, flat[first : first + rv.size].reshape(rv.shape))
            first += rv.size
        return values


@dataclass(frozen=True)
class OutgoingWeights(WithoutLayer):
    """Weights through which outputs see a layer, its activations integrated out."""

    name = "Gaussian, unit by unit"
    # The move of the layer's own weights, which knows what is seen of the activations.
    rows: Interweaving
    outgoing: ByOutput

    def above(self) -> Above[TensorVariable]:
        """What kernels are told of the outputs, of which the weights are the design."""
        likelihood, n_obs = self.likelihood, self.rows.pre_activations_by_unit().shape[1]
        response = expand(likelihood.response(None), {0: n_obs})
        return likelihood.above(response)._replace(design=self.outgoing.value())

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        likelihood, rows = self.likelihood, self.rows
        pre, behind = rows.pre_activations_by_unit(), rows.activation.offset
        offset = pt.zeros((1, 1)) if behind is None else by_label(likelihood.layer, behind).T
        rng, noise = standard_normal(rng, pre.shape, "float64")
        rng, normal = standard_normal(rng, self.outgoing.places.T.shape, "float64")
        value = as_op(draw_outgoing, 2)(
            pre,
            rows.pieces(),
            expand(offset.astype("float64"), {0: pre.shape[0]}),
            self.outgoing.prior(),
            self.above(),
            noise,
            normal,
        )
        return Draw(rng, self.outgoing.values_of(value))


@proposes(priority=310)
def propose_outgoing(context: Context) -> None:
    """Propose to draw the weights that see a layer, after the move of its own."""
    for rows in context.sweep:
        if isinstance(rows, Interweaving):
            outgoing = find_outgoing(context.model, rows, context.blocks)
            context.put([rows, outgoing], at=rows)


def find_outgoing(
    model: pm.Model, rows: Interweaving, conditionals: Sequence[Conditional]
) -> OutgoingWeights | None:
    """The draw of the weights through which outputs of a child see a layer, if there is one."""
    likelihood = rows.likelihood
    outgoing = outgoing_of(model, likelihood, conditionals)
    if outgoing is None:
        return None
    if varies(likelihood.rows.weight, [0]) and len(outgoing.places) > MOST_OUTPUTS:
        return None
    return OutgoingWeights(outgoing.rvs, likelihood, rows, outgoing)


def outgoing_of(
    model: pm.Model, likelihood: MarginalLikelihood, conditionals: Sequence[Conditional]
) -> ByOutput | None:
    """The weights through which all outputs see a layer, if they have no other children."""
    design = likelihood.rows.design
    vs = [rv for rv in model.free_RVs if depends_on(design, {rv}, model.basic_RVs)]
    seen_by = children(model, likelihood.activations)
    if not vs or any(set(children(model, v)) - set(seen_by) for v in vs):
        return None
    if given_any([likelihood.rows.weight, likelihood.rows.score], vs):
        return None
    drawn = {m.rv: m for c in conditionals if isinstance(c, Gaussian) for m in c.members}
    places = _places_of(model, design, vs)
    if places is None or set(vs) - set(drawn):
        return None
    n_entries = sum(math.prod(n or 0 for n in known_shape(model, v)) for v in vs)
    if not np.array_equal(np.sort(places, axis=None), np.arange(n_entries)):
        return None
    if len(places) > 1 and any(c in model.free_RVs and children(model, c) for c in seen_by):
        return None
    return ByOutput(tuple(drawn[v] for v in vs), places)


def outputs_by_child(
    model: pm.Model, likelihood: MarginalLikelihood, outgoing: ByOutput
) -> dict[TensorVariable, np.ndarray] | None:
    """The output that each row of the design by which a child sees the layer belongs to."""
    found = {}
    for seen in likelihood.fresh.observations:
        rows = likelihood.evidence_by(seen.child).rows(in_part=True)
        places = None if rows is None else _places_of(model, rows.design, outgoing.rvs)
        if places is None:
            return None
        same = (places[:, None] == outgoing.places).all(-1)
        if not (same.sum(1) == 1).all():
            return None
        found[seen.child] = same.argmax(1)
    return found


def scales_of_response(
    context: Context, likelihood: MarginalLikelihood, outgoing: ByOutput
) -> tuple[tuple[ResidualScale, ...], np.ndarray]:
    """Scales without other children that outputs have, and of which outputs, (max(1, k), m).

    Of one output, where it has the same scale for all samples; none of an output with several.
    """
    outputs, m = outputs_by_child(context.model, likelihood, outgoing), len(outgoing.places)
    found: list[tuple[ResidualScale, np.ndarray]] = []
    if outputs is not None and not (m == 1 and varies(likelihood.rows.weight, [0])):
        for law in (law for law in context.blocks if isinstance(law, ScaleLaw)):
            for some in parts_of(law, context.shapes):
                scale = known_or_none(residual_scale, likelihood, law, *some)
                if scale is not None and not scale.of_activations and not scale.elsewhere:
                    scaled_by = [seen.child for seen in some[1]]
                    found.append((scale, _scaled_by(likelihood, scaled_by, outputs, m)))
    alone = sum((scaled for _, scaled in found), np.zeros(m)) == 1
    found = [(scale, of) for scale, of in found if of.any() and alone[of > 0].all()]
    return tuple(scale for scale, _ in found), np.array([of for _, of in found] or [np.zeros(m)])


def _scaled_by(
    likelihood: MarginalLikelihood,
    children: Sequence[TensorVariable],
    outputs: Mapping[TensorVariable, np.ndarray],
    m: int,
) -> np.ndarray:
    """One for each output of some children; none if others see one, or two a sample of it."""
    scaled = np.zeros(m)
    for output in range(m):
        seen_by = [child for child, of_rows in outputs.items() if output in of_rows]
        own = [child for child in seen_by if child in children]
        if own and not (own == seen_by and likelihood.are_apart(own)):
            return np.zeros(m)
        scaled[output] = bool(own)
    return scaled


def biases_beside(
    context: Context, likelihood: MarginalLikelihood, outgoing: ByOutput
) -> ByOutput | None:
    """Numbers of which all entries of each output see one of its own, drawn as Gaussians.

    None where an output sees the layer times a factor: kernels are told the response divided by it.
    """
    model, outputs = context.model, outputs_by_child(context.model, likelihood, outgoing)
    if outputs is None or any(s.terms[0].factor is not None for s in likelihood.fresh.observations):
        return None
    blocks = [c for c in context.blocks if isinstance(c, Gaussian)]
    blocks.sort(key=lambda block: not set(block.draws) & set(outgoing.rvs))
    found: dict[int, tuple[Member, int]] = {}
    for child, of_rows in outputs.items():
        entries = _biases_of(model, likelihood.seen_by(child), blocks, outputs)
        if entries is None:
            return None
        for row, entry in entries.items():
            if found.setdefault(int(of_rows[row]), entry) != entry:
                return None
    members = tuple(dict.fromkeys(member for member, _ in found.values()))
    sizes = [math.prod(n or 0 for n in known_shape(model, member.rv)) for member in members]
    first = dict(zip(members, np.cumsum([0, *sizes]), strict=False))
    places = np.array([first[m] + i for m, i in (found[k] for k in sorted(found))])
    is_whole = np.array_equal(np.sort(places), np.arange(sum(sizes)))
    if not is_whole or len(found) < len(outgoing.places):
        return None
    return ByOutput(members, places[:, None])


def _biases_of(
    model: pm.Model,
    layer_seen: Observation,
    blocks: Sequence[Gaussian],
    seen_by: Collection[TensorVariable],
) -> dict[int, tuple[Member, int]] | None:
    """The number that a child sees beside each row of the design by which it sees the layer."""
    for block in blocks:
        if {seen.child for seen in block.observations} <= set(seen_by):
            for seen in block.observations:
                for member, term in zip(block.members, seen.terms, strict=True):
                    if seen.child is layer_seen.child and not member.contrasts:
                        entries = _entries_beside(model, member.rv, term, layer_seen)
                        if entries is not None:
                            return {row: (member, entry) for row, entry in entries.items()}
    return None


def _entries_beside(
    model: pm.Model, rv: TensorVariable, term: Term, layer_seen: Observation
) -> dict[int, int] | None:
    """The entry of a variable that a child sees times one beside each row of a layer's design."""
    shape = [n for n in known_shape(model, rv) if n is not None]
    if term.factor is not None or len(shape) < rv.ndim:
        return None
    of_entries = cut_links(term, range(term.out_ndim), rv).coefficient
    numbers = array_constant(substitute([of_entries], {rv: pt.constant(np.zeros(shape))})[0])
    axes, picked = layer_seen.varying_axes, layer_seen.terms[0].picked
    if numbers is None or len(axes) > 1:
        return None
    if picked is None:
        length = known_shape(model, layer_seen.child)[axes[0]] if axes else 1
        row = None if length is None else np.arange(length)
        behind = term.out_ndim - 1 - axes[0] if axes else 0
    else:
        row, behind = array_constant(picked.index), 0
    if row is None:
        return None
    row = row.reshape(-1, *[1] * behind)
    lengths = np.broadcast_shapes(numbers.shape[: term.out_ndim], row.shape)
    row = np.broadcast_to(row, lengths).ravel()
    seen = np.broadcast_to(numbers, (*lengths, *shape)).reshape(len(row), -1)
    found = {}
    for i in np.unique(row):
        entries = seen[row == i]
        one = int(entries[0].argmax())
        if not np.array_equal(
            entries, np.broadcast_to(np.arange(seen.shape[1]) == one, entries.shape)
        ):
            return None
        found[int(i)] = one
    return found


def _places_of(
    model: pm.Model, design: TensorVariable, vs: Sequence[TensorVariable]
) -> np.ndarray | None:
    """Which entry of some variables each entry of a linear design is, by numbers at random."""
    rng, values = np.random.default_rng(0), {}
    for rv in vs:
        shape = [n for n in known_shape(model, rv) if n is not None]
        if len(shape) < rv.ndim:
            return None
        values[rv] = rng.normal(size=shape).astype(design.dtype)
    constants = {rv: pt.constant(value) for rv, value in values.items()}
    numbers = array_constant(substitute([design], constants)[0])
    entries = np.concatenate([value.ravel() for value in values.values()])
    if numbers is None:
        return None
    order = np.argsort(entries)
    found = np.searchsorted(entries[order], numbers)
    places: np.ndarray = order[np.minimum(found, len(order) - 1)]
    return places if np.array_equal(entries[places], numbers) else None


@dataclass(frozen=True)
class UnitRays(WithoutLayer):
    """Weights and pre-activations of a layer's units, and their outgoing weights."""

    name = "step along rays of units"
    outgoing: OutgoingWeights  # the draw of the outgoing weights, which knows the layer
    scale: ResidualScale | None  # the scale of the response, if it is moved as well
    supplements = True

    @override
    def explain_move(self, rv: TensorVariable) -> list[str]:
        return ["along rays of units"]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        rows, above = self.outgoing.rows, self.outgoing.above()
        pre = rows.pre_activations_by_unit()
        slopes = rows.activation.function.slopes
        rng, level = uniform(rng, (pre.shape[0] + 1, 3))
        level = level.astype("float64")
        moved_rows, moved, weights, after = as_op(move_units, 2, 2, 1, 1)(
            rows.weights_by_unit(),
            pre,
            pt.constant([slopes[0], slopes[-1]], dtype="float64"),
            self.outgoing.outgoing.prior(),
            above,
            pt.constant([float(self.scale is not None)], dtype="float64"),
            level,
        )
        values = {
            **rows.values_of(moved_rows, moved),
            **self.outgoing.outgoing.values_of(weights[None, :]),
        }
        if self.scale is None:
            return Draw(rng, values)
        [s] = self.scale.draws
        shift = pt.log(after * above.weight[0])[0] / (2 * self.scale.of_response)
        accepted = pt.le(pt.log(level[-1, 1]), prior_ratio(self.scale, shift))
        values[s] = typed_like(s, s * self.scale.factor(shift))
        return Draw(rng, {rv: pt.switch(accepted, new, rv) for rv, new in values.items()})


@proposes(priority=330)
def propose_unit_rays(context: Context) -> None:
    """Propose to move units along rays, after the draw of their outgoing weights."""
    for outgoing in context.sweep if context.options.rays else ():
        if isinstance(outgoing, OutgoingWeights):
            context.put([outgoing, find_unit_rays(context, outgoing)], at=outgoing)


def find_unit_rays(context: Context, outgoing: OutgoingWeights) -> UnitRays | None:
    """The move of a layer's units along rays; None if what is seen of them changes on these."""
    rows, activation = outgoing.rows, outgoing.rows.activation
    function = activation.function
    if isinstance(rows, InterwovenKernels) or not rows.likelihood.has_one_output:
        return None
    if activation.offset is not None or any(function.knots) or any(function.intercepts):
        return None
    if varies(rows.likelihood.rows.weight, [0]):
        return None
    scales, _ = scales_of_response(context, rows.likelihood, outgoing.outgoing)
    [scale] = scales or [None]
    draws = (*rows.draws, *outgoing.draws, *(() if scale is None else scale.draws))
    return UnitRays(draws, rows.likelihood, outgoing, scale)
