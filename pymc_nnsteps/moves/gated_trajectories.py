r"""Hamiltonian trajectories of all weights of a layer behind gates, with the gates summed out.

Gates that are held pin the signs of pre-activations, local scales pin weights, and both pin the
global scales. Here all weights of a layer and above it move at once, with their scales. Model, for
a layer of D units with inputs :math:`\tilde x`, activations that are integrated out, a response
with m outputs, of which each sample has some, and local scales :math:`\psi`,

.. math::

    w_{aj} \sim N(0, \tau_1 \psi_{aj}), \qquad \psi_{aj} \sim \text{InvGamma}(\alpha, \beta), \qquad
    \gamma_{na} \sim \text{Bernoulli}(s_{na}), \quad s_{na} = \sigma(\ell_{na}), \\
    y_n \mid \gamma \sim N(b + \textstyle\sum_a v_a \gamma_{na} m_{na},\ V_n), \qquad
    V_n = \text{diag}(s_n^2) + \sum_a \eta_a^2 v_a v_a^T,

with :math:`\ell` and m affine in :math:`\tilde x \cdot w_a` as in :mod:`.interwoven_gates`, and
:math:`v_a` with :math:`\tau_2` like w. Without :math:`\psi` the weights are Student-t,

.. math:: p(w_{aj} \mid \tau_1) \propto \tau_1^{-1/2}
    \Bigl(1 + \frac{w_{aj}^2}{2 \beta \tau_1}\Bigr)^{-\alpha - 1/2}.

**A smooth density.** Without the gates the response has the moments

.. math::

    M_n = b + \sum_a v_a s_{na} m_{na}, \qquad
    U_n = V_n + \sum_a s_{na} (1 - s_{na}) m_{na}^2 v_a v_a^T .

The trajectory runs on the prior times :math:`q_n = (1 - \epsilon) N(y_n; M_n, U_n) + \epsilon
N(y_n; M_n, k U_n)`. The wider Gaussian keeps a rare gate, which no draw finds again, from holding a
chain where it is.

**Coordinates.** A unit says the same with its weights times c and :math:`v_a` divided by c. So the
coordinates are :math:`\operatorname{asinh}(v_{ia} / c)`, for output i, and
:math:`w_a \sqrt{|v_a|^2 + c^2}`, in which such a ray is a straight line; then b, and logarithms
of :math:`\eta_a^2`, of the response's variances, of :math:`\tau_1` and :math:`\tau_2`. The density
has the factor :math:`\prod_a (|v_a|^2 + c^2)^{-d/2} \prod_i (v_{ia}^2 + c^2)^{1/2}`, for rows of d
weights. The metric is the Fisher information, averaged over units while tuning: of rows
:math:`k \tilde X^T \tilde X` and the precision of the prior, of all else the mean square of slopes.

**What is exact.** At the end the gates are drawn unit by unit, each given those before it and the
moments of those behind it,

.. math::

    \operatorname{logit} r_{na} = \ell_{na} + m_{na} v_a^T U_{na}^{-1} (R_{na} - v_a m_{na} / 2),
    \qquad R_{na} = y_n - b - \sum_{j < a} v_j \gamma_{nj} m_{nj} - \sum_{j > a} v_j s_{nj} m_{nj},

with :math:`U_{na} = V_n + \sum_{j > a} s_{nj} (1 - s_{nj}) m_{nj}^2 v_j v_j^T`. The end is accepted
with the ratio of energies on the smooth density, times the ratio at both ends of

.. math::

    \prod_n \frac{N(y_n; b + \sum_a v_a \gamma_{na} m_{na}, V_n)
    \prod_a \text{Bernoulli}(\gamma_{na}; s_{na})}
    {q_n \prod_a \text{Bernoulli}(\gamma_{na}; r_{na})}

in which the gates at the beginning stand as they are. The smooth density and the draw of gates
need not be right for this, only the same both ways. (Units are in the order of what their gates
leave open, most of it first, at either end.) Where the mean acceptance by this factor is below one
half, twice this share of sweeps has a trajectory, and at least a twentieth. Where all have one,
the rows are moved half as often.

Then :math:`\psi` is drawn given weights and global scales, whether the end is accepted or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import override

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.gaussian.layout import Member, by_label, prior_of, with_labels
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import concatenate, expand
from pymc_nnsteps.graphs.values import scalar_constant, substitute, typed_like
from pymc_nnsteps.laws.conditional import Draw, Shapes
from pymc_nnsteps.laws.scales import Exponents, Scale
from pymc_nnsteps.moves.interwoven_gates import InterwovenGates
from pymc_nnsteps.moves.layer_trajectories import Trajectory
from pymc_nnsteps.moves.loops.gated_density import Laws, Tails
from pymc_nnsteps.moves.loops.gated_trajectories import move_gated_layer, n_averages
from pymc_nnsteps.moves.loops.outgoing_weights import GaussianPrior
from pymc_nnsteps.moves.marginal_likelihood import MarginalLikelihood
from pymc_nnsteps.moves.outgoing_weights import (
    ByOutput,
    biases_beside,
    outgoing_of,
    scales_of_response,
)
from pymc_nnsteps.moves.plan import Context, proposes
from pymc_nnsteps.random.op import uniform
from pymc_nnsteps.random.standard_normal import standard_normal

MOST_OUTPUTS = 6
"""Number of outputs up to which their covariance is inverted for each sample of each step."""


@dataclass(frozen=True)
class Variance:
    """A scale as the variance to which it is proportional, to a power."""

    law: Scale
    power: int  # the variance is proportional to this power of the variable

    @property
    def rv(self) -> TensorVariable:
        """The scale."""
        [rv] = self.law.draws
        return rv

    @property
    def value(self) -> TensorVariable:
        """The power of the scale."""
        return pt.flatten(self.rv) ** self.power

    @property
    def prior(self) -> Exponents:
        """Exponents of the prior of the variance."""
        prior = self.law.prior
        return prior if self.power > 0 else Exponents(-prior.nu, prior.lambda2, prior.delta2)

    def shifted(self, shift: TensorVariable) -> TensorVariable:
        """The scale where the logarithm of the variance is shifted."""
        return typed_like(self.rv, self.rv * pt.exp(shift.reshape(self.rv.shape) / self.power))


@dataclass(frozen=True)
class Shrunk:
    """Scales of weights."""

    member: Member  # the weights
    # The local scales, which are integrated out; None: the weights are Gaussian.
    local: Variance | None
    # The global scale. Beside weights that have one, local scales of others are held.
    total: Variance | None

    def tails(self) -> tuple[TensorVariable, ...]:
        """Precision, linear part, order and rate, each of the shape of the weights."""
        weights, precision = self.member.rv, self.member.precision
        zero, one = pt.zeros_like(weights), pt.ones_like(weights)
        if self.local is None:
            return zero + precision, zero + precision * self.member.mean, zero, one
        local = self.local.value.reshape(self.local.rv.shape)
        prior = self.local.prior
        return zero, zero, zero + 0.5 - prior.nu, zero + prior.delta2 / (precision * local)


@dataclass(frozen=True)
class GatedTrajectories(Trajectory):
    """Weights of a layer, its gates, its outgoing weights, the bias of the output and scales."""

    rows: InterwovenGates  # the move of the layer's own weights
    incoming: tuple[Shrunk, ...]  # the members of these
    outgoing: tuple[Shrunk, ...]  # the weights through which outputs see the layer
    seen: ByOutput  # the same by output
    biases: ByOutput | None  # the biases of the outputs, if they are moved as well
    noise: Variance | None  # the variances of the layer's noise, if they are moved as well
    responses: tuple[Variance, ...]  # those of the response that are
    scaled: np.ndarray  # one for each output of such a variance, shape (max(1, k), m)

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        weights, gates = self.rows.weights_by_unit(), self.rows.gated_units()
        units, d = weights.rows.shape
        n_obs = gates.gates.shape[1]
        (n_scales, m), outgoing = self.scaled.shape, self._outgoing()
        response = self.rows.response() + outgoing[0][:, units]
        rng, normal = standard_normal(rng, (units * (d + m + 1) + n_scales + 2 + m,), "float64")
        rng, refresh = uniform(rng, (units, n_obs))
        rng, level = uniform(rng, (3,))
        move = as_op(move_gated_layer, 2, 2, 2, 1, 1, 1, 1)
        rows, opened, seen, bias, shifts, probability, numbers = move(
            weights,
            gates,
            self._row_tails(),
            *outgoing,
            self.likelihood.above(response, in_part=True),
            pt.constant(self.scaled, dtype="float64"),
            self._laws(units),
            pt.dot(weights.inputs.T, weights.inputs),
            self.averages,
            self.tuning,
            normal,
            refresh,
            level.astype("float64"),
        )
        values = {**self.rows.values_of(rows, opened), **self.seen.values_of(seen)}
        if self.biases is not None:
            values |= self.biases.values_of(bias[:, None])
        for scale, place in self._scales(units):
            values[scale.rv] = scale.shifted(shifts[place])
        for local in _local_of((*self.incoming, *self.outgoing)):
            before = rng.type()
            drawn = replace(local.law, keeps=False).draw(before, shapes)
            results = [drawn.rng, drawn.values[local.rv]]
            rng, values[local.rv] = substitute(results, {**values, before: rng})
        return Draw(rng, values, acceptance=probability[:1], averages=numbers)

    def _scales(self, units: TensorVariable) -> list[tuple[Variance, slice]]:
        """The scales that are moved, and their places among all."""
        last = units + len(self.scaled)
        every = [
            (self.noise, slice(0, units)),
            *((scale, slice(units + k, units + k + 1)) for k, scale in enumerate(self.responses)),
            (_total_of(self.incoming), slice(last, last + 1)),
            (_total_of(self.outgoing), slice(last + 1, last + 2)),
        ]
        return [(scale, place) for scale, place in every if scale is not None]

    def _laws(self, units: TensorVariable) -> Laws[TensorVariable]:
        """Order, and factors of the exponentials, in densities of shifts of the logarithms."""
        n_scales, m = self.scaled.shape
        order = inverse = direct = pt.zeros(units + n_scales + 2)
        moves = pt.zeros(units + n_scales + 2 + m)
        for scale, place in self._scales(units):
            value, prior = scale.value, scale.prior
            parts = prior.nu, prior.delta2 / (2 * value), prior.lambda2 * value / 2
            full = [pt.broadcast_to(pt.flatten(part), value.shape) for part in parts]
            order = order[place].set(full[0])
            inverse = inverse[place].set(full[1])
            direct = direct[place].set(full[2])
            moves = moves[place].set(1.0)
        if self.biases is not None:
            moves = moves[units + n_scales + 2 :].set(1.0)
        return Laws(order, inverse, direct, moves)

    def _row_tails(self) -> Tails[TensorVariable]:
        members = [shrunk.member for shrunk in self.incoming]
        prior = prior_of(members)
        parts = zip(*(shrunk.tails() for shrunk in self.incoming), strict=True)
        blocks = (
            concatenate(
                [by_label(m, part) for m, part in zip(members, of_each, strict=True)],
                prior.label_lengths,
            )
            for of_each in parts
        )
        [gates] = self.rows.gates.draws
        units = gates.shape[self.likelihood.units]
        return Tails(*(expand(with_labels(block, prior), {0: units}) for block in blocks))

    def _outgoing(self) -> tuple[TensorVariable, Tails[TensorVariable]]:
        """Outgoing weights and biases (zero if there are none), and priors, (m, units + 1)."""
        parts = zip(*(shrunk.tails() for shrunk in self.outgoing), strict=True)
        tails = [self.seen.by_output(of_each) for of_each in parts]
        zero, one = pt.zeros((len(self.scaled[0]), 1)), pt.ones((len(self.scaled[0]), 1))
        value, prior = zero, GaussianPrior(zero, zero)
        if self.biases is not None:
            value, prior = self.biases.value(), self.biases.prior()
        joined = (
            pt.concatenate(pair, axis=1) for pair in zip(tails, (*prior, zero, one), strict=True)
        )
        return pt.concatenate([self.seen.value(), value], axis=1), Tails(*joined)


def _total_of(weights: Sequence[Shrunk]) -> Variance | None:
    totals = [shrunk.total for shrunk in weights if shrunk.total is not None]
    return totals[0] if totals else None


def _local_of(weights: Sequence[Shrunk]) -> list[Variance]:
    return [shrunk.local for shrunk in weights if shrunk.local is not None]


@proposes(priority=900)
def propose_gated_trajectories(context: Context) -> None:
    """Propose trajectories after the moves of weights behind gates."""
    for move in context.sweep if context.options.trajectories else ():
        if isinstance(move, InterwovenGates):
            trajectory = context.read(
                move.draws[-1], "along trajectories", find_gated_trajectories, move, context
            )
            if trajectory is not None:
                context.put([trajectory.rows, trajectory], at=move)


def find_gated_trajectories(move: InterwovenGates, context: Context) -> GatedTrajectories | None:
    """The trajectories of a layer's weights, if activations behind closed gates are about zero."""
    likelihood, blocks = move.likelihood, context.blocks
    seen = outgoing_of(context.model, likelihood, blocks)
    [behind_gates] = move.gates.observations
    if seen is None or behind_gates.offset is not None:
        return None
    if len(seen.places) > MOST_OUTPUTS:
        raise NotConjugate(f"more than {MOST_OUTPUTS} outputs depend on them")
    [gates] = move.gates.draws
    scales = _Scales(context)
    incoming = scales.of_all(move.members)
    outgoing = scales.of_all(seen.members)
    if incoming is None or outgoing is None:
        return None
    biases = biases_beside(context, likelihood, seen)
    noise = scales.of_units(likelihood.activations, likelihood.units)
    responses, scaled = scales.of_response(likelihood, seen)
    weights = (*incoming, *outgoing)
    moved = (_total_of(incoming), _total_of(outgoing), noise, *responses)
    name = describe(gates)
    averages = pt.dvector(f"metric of {name}")
    n_scales, m = scaled.shape
    return GatedTrajectories(
        (
            *move.weights.draws,
            gates,
            *seen.rvs,
            *(() if biases is None else biases.rvs),
            *(variance.rv for variance in moved if variance is not None),
            *(local.rv for local in _local_of(weights)),
        ),
        likelihood,
        replace(move, passes=passes_beside(averages, context.options.passes)),
        incoming,
        outgoing,
        seen,
        biases,
        noise,
        responses,
        scaled,
        tuning=pt.dvector(f"step size of {name}"),
        averages=averages,
        n_averages=n_averages(move.row_length(context.shapes), m, n_scales),
    )


def passes_beside(averages: TensorVariable, passes: int) -> TensorVariable:
    """How often rows are moved: half as often where all sweeps have a trajectory."""
    known = pt.gt(averages[0], 0)
    share = pt.switch(known, pt.clip(2 * averages[-1], 0, 1), 0)
    fewer: TensorVariable = passes - pt.floor(passes // 2 * share + 0.5).astype("int64")
    return fewer


@dataclass(frozen=True)
class _Scales:
    """Scales of a model, each with one child."""

    context: Context

    def of_child(self, rv: TensorVariable, child: TensorVariable | None) -> Variance | None:
        """A scale as a variance, if it has this child alone and a law that is no mixture."""
        laws = [c for c in self.context.blocks if isinstance(c, Scale) and c.draws == (rv,)]
        scaled = [seen for law in laws for seen in law.scaled]
        if not scaled or (child is not None and [seen.child for seen in scaled] != [child]):
            return None
        [law] = laws
        of_squares = all(seen.scales_all and seen.role.power == 2 for seen in scaled)
        if not of_squares or law.mixture is not None or law.bounds is not None:
            return None
        return Variance(law, round(2 * scaled[0].form.exponent))

    def of_units(self, a: TensorVariable, axis: int) -> Variance | None:
        """The variances of a layer's noise, one for each unit."""
        for rv in self.context.model.free_RVs:
            variance = self.of_child(rv, a)
            if variance is None or rv.ndim != 1:
                continue
            link = variance.law.link(a, axis)
            if link is not None and link.index is None:
                return variance
        return None

    def of_response(
        self, likelihood: MarginalLikelihood, outgoing: ByOutput
    ) -> tuple[tuple[Variance, ...], np.ndarray]:
        """The variances of the response, and of which outputs each is that."""
        found, scaled = scales_of_response(self.context, likelihood, outgoing)
        variances = [
            (variance, of)
            for scale, of in zip(found, scaled, strict=False)
            if not scale.entry and (variance := self.of_child(scale.draws[0], None))
        ]
        if not variances:
            return (), np.zeros_like(scaled[:1])
        return tuple(variance for variance, _ in variances), np.array([of for _, of in variances])

    def of_all(self, members: Sequence[Member]) -> tuple[Shrunk, ...] | None:
        """The scales of several weights; None if these have more than one global scale."""
        found = tuple(self.of_weights(member) for member in members)
        totals = [shrunk for shrunk in found if shrunk.total is not None]
        if len(totals) > 1:
            return None
        return tuple(
            each if each.total or not totals else Shrunk(each.member, None, None) for each in found
        )

    def of_weights(self, member: Member) -> Shrunk:
        """The scales of weights: local ones with inverse gamma laws, and a global one of these."""
        weights, shapes = member.rv, self.context.shapes
        found = [self.of_child(rv, weights) for rv in self.context.model.free_RVs]
        scales = [variance for variance in found if variance is not None]
        local = [v for v in scales if shapes[v.rv] == shapes[weights] and self._is_local(v, member)]
        total = [v for v in scales if all(v.rv.type.broadcastable) and v not in local]
        if len(local) != 1 or scalar_constant(member.mean) != 0:
            return Shrunk(member, None, None)
        return Shrunk(member, local[0], total[0] if len(total) == 1 else None)

    def _is_local(self, variance: Variance, member: Member) -> bool:
        """Whether each weight has its own scale with an inverse gamma variance."""
        weights = member.rv
        if scalar_constant(variance.prior.lambda2) != 0:
            return False
        links = [variance.law.link(weights, axis) for axis in range(weights.ndim)]
        return all(
            (link is not None and link.axis == axis and link.index is None)
            or self.context.shapes[weights][axis] == 1
            for axis, link in enumerate(links)
        )
