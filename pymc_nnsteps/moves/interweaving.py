r"""Weights moved with their pre-activations, which keep their noise.

Given the pre-activations Z of a layer its weights are known to within the noise, and given the
weights so are the pre-activations: drawing each given the other moves by steps of that size,
however little the data say. The move here changes both at once, and lets only what is seen from
above decide (an ancillarity-sufficiency interweaving, Yu and Meng 2011). Model, for the rows
:math:`W_a` of a layer with inputs :math:`\tilde x`, an activation that is
:math:`\sigma(z) = s_k z + t_k` on its piece k, and activations X that are integrated out:

.. math::

    W_a &\sim N(\mu_a, \Lambda_a^{-1}), \qquad z_{na} = \tilde x_n \cdot W_a + e_{na}, \\
    y_n \mid Z &\sim N(C \sigma(z_n), V_n), \qquad V_n = \text{diag}(w_n)^{-1} + C \Sigma C^T

with y all that is seen of X from above (:mod:`.marginal_likelihood`). For one row, the noise e
and the other rows kept, with :math:`c_n = C_a^T V_n^{-1} C_a` and
:math:`g_n = C_a^T V_n^{-1} (y_n - \sum_{j \ne a} C_j \sigma(z_{nj}))`, the density is

.. math::

    \log p(W_a \mid e, y) = -\tfrac12 (W_a - \mu_a)^T \Lambda_a (W_a - \mu_a)
    + \sum_n [g_n \sigma(z_n) - \tfrac12 c_n \sigma(z_n)^2] + \text{const}.

On the present pieces this is :math:`N(m, P^{-1})` with

.. math::

    P = \Lambda_a + \sum_n c_n s_n^2 \tilde x_n \tilde x_n^T, \qquad
    P m = \Lambda_a \mu_a + \sum_n s_n (g_n - c_n (s_n e_n + t_n)) \tilde x_n.

Proposal: a Crank-Nicolson step in that Gaussian,

.. math:: W_a' = m + \rho (W_a - m) + \sqrt{1 - \rho^2}\, P^{-1/2} \xi,

which leaves it invariant, so that only samples which change their piece cost acceptance. It is
accepted with the ratio of Metropolis and Hastings; the proposal back is that of the pieces at
:math:`W_a'`, with determinants. Rows are moved in turn, in several passes.

**Kernels of a convolution** are moved likewise. A kernel is a row of weights that is seen at many
positions of an image. Model, for a kernel :math:`w_a` at the positions q of an image n with the
patches :math:`\tilde x`, with or without pooling by a known matrix A:

.. math::

    z_{naq} \sim N(\tilde x_{nq} \cdot w_a, \cdot), \qquad
    p_{naq} \sim N(\textstyle\sum_r A_{qr} z_{nar}, \cdot), \qquad
    y_n \mid p \sim N(\textstyle\sum_{aq} C_{aq} \sigma(p_{naq}), V_n)

with activations integrated out as above. Where there is pooling, z is integrated out as well:
with its noise and that of p in e, :math:`p_{naq} = \bar x_{nq} \cdot w_a + e_{naq}` with
:math:`\bar x = A \tilde x`, and e is kept. Let B and r be C and the residual of y, whitened by
:math:`V_n`. On the present pieces the density of :math:`w_a` is then :math:`N(m, P^{-1})` with

.. math::

    u_{ni} = \sum_q B_{i,aq} s_{naq} \bar x_{nq}, \qquad
    P = \Lambda_a + \sum_{ni} u_{ni} u_{ni}^T, \qquad
    P (m - w_a) = \Lambda_a (\mu_a - w_a) + \sum_{ni} u_{ni} r_{ni},

so that P costs one pass over the patches for each output i. Proposal and acceptance are those of
rows. Outputs are what sees the whole of an image: responses, utilities, or a dense layer. A
convolution above would see each position by outputs of its own, and is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.gaussian.layout import Member, block_of, dense_size, prior_of, split, with_labels
from pymc_nnsteps.gaussian.observation import Observation, evidence_of
from pymc_nnsteps.graphs.errors import NotConjugate, known_or_none
from pymc_nnsteps.graphs.known import describe, has_law
from pymc_nnsteps.graphs.linear_terms import Length, expand, varies
from pymc_nnsteps.graphs.piecewise_linear import PiecewiseForm
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.graphs.shapes import known_shape
from pymc_nnsteps.graphs.values import array_constant, typed_like
from pymc_nnsteps.laws.conditional import Conditional, Draw, Move, Shapes
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.laws.piecewise import PiecewiseGaussian
from pymc_nnsteps.moves.loops.interweaving import ActivationPieces, move_rows
from pymc_nnsteps.moves.loops.interwoven_kernels import move_kernels
from pymc_nnsteps.moves.loops.rows import LayerWeights
from pymc_nnsteps.moves.marginal_likelihood import (
    MarginalLikelihood,
    WithoutLayer,
    marginal_likelihood,
)
from pymc_nnsteps.moves.plan import Context, Options, proposes
from pymc_nnsteps.network.activations import read_activation
from pymc_nnsteps.random.op import uniform
from pymc_nnsteps.random.standard_normal import standard_normal

LONGEST_ROW = 128
"""Number of a unit's weights up to which they are interwoven where that is left open."""


@dataclass(frozen=True)
class InterwovenRows(Move, WithoutLayer):
    """Rows of a layer's weights with what follows from them, its activations integrated out."""

    name = "Metropolis-Hastings, interwoven"
    members: tuple[Member, ...]  # the weights, and biases
    inputs: TensorVariable  # shape (n_obs, d)
    passes: int | TensorVariable  # how often each row is moved

    @property
    def n_units(self) -> TensorVariable:
        """Number of rows."""
        return self.likelihood.rows.design.shape[1]

    @override
    def n_tuned(self, shapes: Shapes) -> int:
        return shapes[self.likelihood.activations][self.likelihood.units]

    def row_length(self, shapes: Shapes) -> int:
        """Number of weights and biases of a unit."""
        return dense_size(self.members, shapes)

    def unless_slow(self, options: Options, shapes: Shapes) -> Self:
        """The move, if it is asked for or takes no longer than all else."""
        if options.interweave == "auto" and (why := self.why_slow(shapes)):
            raise NotConjugate(f"{why} (interweave=True overrides this)")
        return self

    def why_slow(self, shapes: Shapes) -> str | None:
        """Why the move takes longer than all else, if it does."""
        n = self.row_length(shapes)
        return f"a unit has {n} weights, more than {LONGEST_ROW}" if n > LONGEST_ROW else None

    def weights_by_unit(self) -> LayerWeights[TensorVariable]:
        """Rows of the layer."""
        prior, units = prior_of(self.members), self.n_units

        def by_unit(array: TensorVariable) -> TensorVariable:
            return expand(with_labels(array, prior), {0: units})

        precision = by_unit(prior.precision)
        linear = pt.zeros_like(precision) if prior.mean is None else precision * by_unit(prior.mean)
        return LayerWeights(self.inputs, by_unit(block_of(self.members)), precision, linear)

    def values_of_weights(self, rows: TensorVariable) -> dict[TensorVariable, TensorVariable]:
        """Values of the variables that weights by unit are."""
        block = rows if prior_of(self.members).label_lengths else rows[0]
        return split(block, self.members)


@dataclass(frozen=True)
class Interweaving(InterwovenRows):
    """Rows of a layer's weights with its pre-activations, its activations integrated out."""

    pre_activations: TensorVariable  # one of the draws; the others are weights
    activation: PiecewiseForm  # the mean of the activations as a function of the pre-activations
    unpooled: Gaussian | None = None  # the draw of the pre-activations that are pooled, if any are
    waits = True
    kernel = move_rows

    @property
    @override
    def integrates_out(self) -> tuple[TensorVariable, ...]:
        unpooled = () if self.unpooled is None else self.unpooled.draws
        return (*super().integrates_out, *unpooled)

    def pre_activations_by_unit(self) -> TensorVariable:
        """Shape (units, n_obs)."""
        return self.pre_activations.dimshuffle(self.likelihood.units, self.likelihood.samples)

    def pre_activations_by_row(self) -> TensorVariable:
        """Those that each row of weights leads to."""
        return self.pre_activations_by_unit()

    def pieces(self) -> ActivationPieces[TensorVariable]:
        """Pieces of the activation."""
        function = self.activation.function
        values = function.knots, function.slopes, function.intercepts
        return ActivationPieces(*(pt.constant(each, dtype="float64") for each in values))

    def response(self) -> TensorVariable:
        """What is seen from above without the part of the activations' offset, (n_obs, m)."""
        response = self.likelihood.response(self.activation.offset)
        return expand(response, {0: self.pre_activations.shape[self.likelihood.samples]})

    def by_axes(self, pre_activations: TensorVariable) -> TensorVariable:
        """Pre-activations by unit, with the axes of the variable."""
        order = (1, 0) if self.likelihood.units == 1 else (0, 1)
        return pre_activations.dimshuffle(order)

    def values_of(
        self, rows: TensorVariable, pre_activations: TensorVariable
    ) -> dict[TensorVariable, TensorVariable]:
        """Values of the variables that weights and pre-activations by unit are."""
        z = self.pre_activations
        return {**self.values_of_weights(rows), z: typed_like(z, self.by_axes(pre_activations))}

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        units = self.n_units
        rng, normal = standard_normal(rng, (self.passes, units, self.inputs.shape[1]), "float64")
        rng, level = uniform(rng, (self.passes, units))
        rows, moved, acceptance = as_op(self.kernel, 2, 2, 1)(
            self.weights_by_unit(),
            self.pre_activations_by_row(),
            self.pieces(),
            self.likelihood.above(self.response()),
            self.tuning,
            normal,
            level.astype("float64"),
        )
        return Draw(rng, self.values_of(rows, moved), acceptance=acceptance)


def match_interweaving(
    model: pm.Model, z: TensorVariable, conditionals: Sequence[Conditional], passes: int
) -> Interweaving:
    """Find the weights and the activations of pre-activations, to be moved with them."""
    gaussian = [c for c in conditionals if isinstance(c, Gaussian)]
    likelihood, activation = layer_above(model, z, gaussian)
    for block in [c for c in gaussian if only_child(c) is z]:
        inputs = _inputs(model, block, likelihood)
        if inputs is not None:
            break
    else:
        raise NotConjugate("no weights enter it alone, with a row for each of its units")
    a = likelihood.activations
    if likelihood.depends_on([*block.draws, z]):
        raise NotConjugate(f"a child of {describe(a)} also depends on it or its weights")
    return Interweaving(
        (*block.draws, z),
        likelihood,
        block.members,
        inputs,
        passes,
        z,
        activation,
        tuning=pt.dvector(f"rho of {describe(z)}"),
    )


def layer_above(
    model: pm.Model,
    z: TensorVariable,
    conditionals: Sequence[Gaussian],
    *,
    of_positions: bool = False,
) -> tuple[MarginalLikelihood, PiecewiseForm]:
    """What is seen of the activations that alone see pre-activations, and their mean."""
    direct = children(model, z)
    if z.ndim < 2 or len(direct) != 1 or not has_law(model, direct[0], NormalRV):
        raise NotConjugate("it is not the pre-activations of exactly one layer of activations")
    [a] = direct
    drawn = {rv: c for c in conditionals for rv in c.draws}
    if a not in drawn:
        raise NotConjugate(f"{describe(a)} has no Gaussian conditional")
    activation = read_activation(model, z, a)
    activation.require_plain()
    if not any(activation.function.slopes):
        raise NotConjugate(f"the mean of {describe(a)} is piecewise constant in it")
    likelihood = marginal_likelihood(drawn[a], of_positions=of_positions)
    if z.type.broadcastable != a.type.broadcastable:
        raise NotConjugate(f"{describe(a)} has different axes")
    return likelihood, activation


def only_child(weights: Gaussian) -> TensorVariable | None:
    """The one child of a block, if it has one."""
    seen = weights.observations
    return seen[0].child if len(seen) == 1 else None


def _inputs(
    model: pm.Model, weights: Gaussian, likelihood: MarginalLikelihood
) -> TensorVariable | None:
    """Inputs that all units share, if the pre-activations have a row of the weights for each."""
    [seen] = weights.observations
    one_unit = known_shape(model, seen.child)[likelihood.units] == 1
    units = [] if one_unit and not weights.members[0].labels else [likelihood.units]
    return design_of_all(weights, units) if seen.varying_axes == [likelihood.samples] else None


def design_of_all(weights: Gaussian, labels: Sequence[int]) -> TensorVariable | None:
    """The design, shape (rows, d), by which a child sees all weights with these labels alike."""
    [seen] = weights.observations
    if not isinstance(seen, Observation) or seen.label_axes != labels:
        return None
    evidence = evidence_of(weights.members, seen)
    design = evidence.whole_design
    if evidence.indexed or varies(design, range(evidence.n_label_axes)):
        return None
    return design.dimshuffle(design.ndim - 2, design.ndim - 1)


@dataclass(frozen=True)
class InterwovenKernels(Interweaving):
    """Kernels of a convolution with its (pooled) pre-activations, activations integrated out.

    The inputs are patches, or pooled patches, shape (n_obs * positions, d).
    """

    kernel = move_kernels

    @override
    def why_slow(self, shapes: Shapes) -> str | None:
        if self.likelihood.has_one_output:
            return super().why_slow(shapes)
        return "several outputs depend on its positions, and each costs a pass over the patches"

    @property
    @override
    def n_units(self) -> TensorVariable:
        return self.pre_activations.shape[1]

    @override
    def pre_activations_by_unit(self) -> TensorVariable:
        z = self.pre_activations
        return z.reshape((z.shape[0], pt.prod(z.shape[1:]))).T

    @override
    def pre_activations_by_row(self) -> TensorVariable:
        z = self.pre_activations
        return pt.swapaxes(z, 0, 1).reshape((z.shape[1], pt.prod(z.shape) // z.shape[1]))

    @override
    def by_axes(self, pre_activations: TensorVariable) -> TensorVariable:
        z = self.pre_activations
        shape = z.shape[1], z.shape[0], *(z.shape[axis] for axis in range(2, z.ndim))
        return pt.swapaxes(pre_activations.reshape(shape), 0, 1)


def match_kernels(
    model: pm.Model, z: TensorVariable, conditionals: Sequence[Conditional], passes: int
) -> InterwovenKernels:
    """Find the kernels and the activations of pre-activations, to be moved with them."""
    gaussian = [c for c in conditionals if isinstance(c, Gaussian)]
    likelihood, activation = layer_above(model, z, gaussian, of_positions=True)
    a, layer = likelihood.activations, likelihood.layer
    if (layer.labels, layer.dense) != ((0,), tuple(range(1, a.ndim))):
        raise NotConjugate(f"the axes of {describe(a)} are not samples, channels and positions")
    above = [seen.child for seen in likelihood.fresh.observations]
    if mapped := [child for child in above if child.ndim > 2]:
        raise NotConjugate(f"{describe(mapped[0])} has an output for each of its positions")
    found = [(c, _pooling(model, c, z)) for c in gaussian if only_child(c) is z]
    unpooled, pooling = next(((c, A) for c, A in found if A is not None), (None, None))
    first = z if unpooled is None else unpooled.draws[0]
    for weights in gaussian:
        patches = _patches(model, weights) if only_child(weights) is first else None
        if patches is not None:
            break
    else:
        raise NotConjugate("no kernels enter it alone, at the positions of each sample")
    if likelihood.depends_on([*weights.draws, z, first]):
        raise NotConjugate(f"a child of {describe(a)} also depends on it or its weights")
    return InterwovenKernels(
        (*weights.draws, z),
        likelihood,
        weights.members,
        patches if pooling is None else _pooled(patches, pooling),
        passes,
        z,
        activation,
        unpooled,
        tuning=pt.dvector(f"rho of {describe(z)}"),
    )


def _pooling(model: pm.Model, pixels: Gaussian, pooled: TensorVariable) -> NDArray[Any] | None:
    """The matrix (positions, pixels) by which pooled pre-activations alone see others."""
    [z, *others] = pixels.draws
    if others or children(model, z) != (pooled,) or z.ndim != pooled.ndim:
        return None
    [seen] = pixels.observations
    shape = known_shape(model, z)
    axes = [axis for axis in range(z.ndim) if axis in seen.label_axes]
    carried = [link.axis for link in seen.terms[0].links if link is not None]
    whole = 0 in axes and (1 in axes or shape[1] == 1)
    if not isinstance(seen, Observation) or carried != axes or not whole:
        return None
    evidence = evidence_of(pixels.members, seen)
    design = evidence.whole_design
    if varies(design, range(design.ndim - 2)):
        return None
    window = array_constant(design.dimshuffle(design.ndim - 2, design.ndim - 1))
    indices = dict(zip(axes, evidence.index, strict=True))
    alone = [axis for axis in axes if axis > 1]
    each = [_picks(indices[axis], shape[axis]) for axis in alone]
    known = [matrix for matrix in each if matrix is not None]
    if window is None or len(known) < len(each) or indices[0] or indices.get(1):
        return None
    both: NDArray[Any] = np.eye(1)
    for matrix in known:
        both = np.kron(both, matrix)
    if alone == list(range(2, 2 + len(alone))):
        return np.kron(both, window)
    return np.kron(window, both) if alone == list(range(z.ndim - len(alone), z.ndim)) else None


def _picks(
    index: tuple[TensorVariable, Length] | None, length: int | None
) -> NDArray[np.floating] | None:
    """The matrix by which rows or columns of pixels are picked; None if that is not known."""
    entries = np.arange(length or 0) if index is None else array_constant(index[0])
    return None if length is None or entries is None else np.eye(length)[entries]


def _pooled(patches: TensorVariable, pooling: NDArray[Any]) -> TensorVariable:
    """Pooled patches of each image, shape (n_obs * positions, d)."""
    pixels = patches.T.reshape((-1, pooling.shape[1]))
    return pt.dot(pixels, pooling.T).reshape((patches.shape[1], -1)).T


def _patches(model: pm.Model, weights: Gaussian) -> TensorVariable | None:
    """Patches that all kernels share, if pre-activations have a kernel for each channel."""
    [seen] = weights.observations
    shape = known_shape(model, seen.child)
    channels = [] if shape[1] == 1 and not weights.members[0].labels else [1]
    if any(axis not in (1, *seen.varying_axes) and n != 1 for axis, n in enumerate(shape)):
        return None
    return design_of_all(weights, channels)


@proposes(priority=300)
def propose_interwoven(context: Context) -> None:
    """Propose to move weights with their pre-activations."""
    interweave = context.options.interweave
    if interweave is False:
        return
    moves: dict[TensorVariable, Interweaving] = {}
    by_variable = {block.draws[0]: block for block in context.blocks}
    for block in context.blocks:
        [z, *others] = block.draws
        if others or not isinstance(block, PiecewiseGaussian | Gaussian):
            continue
        if isinstance(block, PiecewiseGaussian):
            move = context.read(z, "interwoven", _match, context, z, moves)
        else:
            move = known_or_none(_match, context, z, moves)
        if move is None:
            continue
        a = move.likelihood.activations
        moves[a] = move
        if a not in context.layers:
            draws = (*move.likelihood.before, move, move.likelihood.fresh, move.unpooled, block)
            context.put(draws, at=by_variable[a], removes=(move.unpooled, block))
    if interweave is True and not (moves or context.layers):
        raise ValueError(
            "interweave is True, but no pre-activations behind a piecewise-linear activation, and "
            "no binary gates, are drawn together with their weights and activations; use "
            '"auto".'
        )
    layers = {a: move.likelihood for a, move in moves.items() if a.ndim == 2}
    context.layers = layers | context.layers


def _match(
    context: Context, z: TensorVariable, moves: Mapping[TensorVariable, Interweaving]
) -> Interweaving:
    """The move of pre-activations whose activations are in none."""
    match = match_interweaving if z.ndim <= 2 else match_kernels
    move = match(context.model, z, context.blocks, context.options.passes)
    a = move.likelihood.activations
    if a in moves:
        raise NotConjugate(
            f"{describe(a)} is moved together with {describe(moves[a].pre_activations)}"
        )
    return move.unless_slow(context.options, context.shapes)
