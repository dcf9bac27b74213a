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

X must be drawn afresh before anything else is given it (:mod:`.scan` checks it).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.layout import Member
from pymc_nnsteps.graphs.arrays import expand, varies
from pymc_nnsteps.graphs.search import children, depends_on, given_any
from pymc_nnsteps.graphs.shapes import known_shape
from pymc_nnsteps.graphs.values import array_constant, scalar_constant, substitute, typed_like
from pymc_nnsteps.kernels.collapse import Above
from pymc_nnsteps.kernels.ops import draw_outgoing
from pymc_nnsteps.kernels.outgoing_weights import Prior
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.moves.interweaving import Interweaving
from pymc_nnsteps.moves.marginal_likelihood import MarginalLikelihood
from pymc_nnsteps.random.standard_normal import standard_normal

MOST_OUTPUTS = 4
"""Number of outputs up to which ``V`` is inverted for each unit and sample, where it varies."""


@dataclass(frozen=True)
class OutgoingWeights(Conditional):
    """Weights through which outputs see a layer, its activations integrated out.

    Attributes
    ----------
    rows : Interweaving
        The move of the layer's own weights, which knows what is seen of the activations.
    outgoing : tuple of Member
        The weights.
    places : TensorVariable, shape (m, units)
        Which of their entries each output sees each unit through, counted along all axes of the
        first variable, then of the second, and so on.
    """

    draws: tuple[TensorVariable, ...]
    rows: Interweaving
    outgoing: tuple[Member, ...]
    places: TensorVariable
    integrates_out: tuple[TensorVariable, ...]

    @property
    @override
    def name(self) -> str:
        return "Gaussian, unit by unit"

    def weights(self) -> TensorVariable:
        """The weights, shape (m, units)."""
        return self._by_output([member.rv for member in self.outgoing])

    def prior(self) -> Prior[TensorVariable]:
        """Their prior."""
        precision = self._by_output([member.precision for member in self.outgoing])
        mean = self._by_output([member.mean for member in self.outgoing])
        return Prior(precision, precision * mean)

    def _by_output(self, arrays: Sequence[TensorVariable]) -> TensorVariable:
        full = [
            pt.broadcast_to(array, member.rv.shape).flatten()
            for member, array in zip(self.outgoing, arrays, strict=True)
        ]
        entries = full[0] if len(full) == 1 else pt.concatenate(full)
        return entries[self.places]

    def values_of(self, weights: TensorVariable) -> dict[TensorVariable, TensorVariable]:
        """Values of the variables that weights of shape (m, units) are."""
        values, first = {}, pt.constant(0)
        entries = pt.zeros(self.places.size, weights.dtype)[self.places].set(weights)
        for v in self.draws:
            values[v] = typed_like(v, entries[first : first + v.size].reshape(v.shape))
            first += v.size
        return values

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        likelihood, rows = self.rows.likelihood, self.rows
        pre, behind = rows.pre_activations_by_unit(), rows.activation.offset
        offset = pt.zeros((1, 1)) if behind is None else likelihood.by_sample(behind).T
        response = expand(likelihood.response(None), {0: pre.shape[1]})
        rng, noise = standard_normal(rng, pre.shape, "float64")
        rng, normal = standard_normal(rng, self.places.T.shape, "float64")
        value = draw_outgoing(
            pre,
            rows.pieces(),
            expand(offset.astype("float64"), {0: pre.shape[0]}),
            self.prior(),
            Above(self.weights(), likelihood.weight, response, likelihood.variance),
            noise,
            normal,
        )
        return Draw(rng, self.values_of(value))


def find_outgoing(
    model: pm.Model, rows: Interweaving, conditionals: Sequence[Conditional]
) -> OutgoingWeights | None:
    """The draw of the weights through which outputs of a child see a layer; None if there is none.

    Parameters
    ----------
    rows : Interweaving
        The move of the layer's own weights.
    conditionals : sequence of Conditional
        Among them that of the outgoing weights.
    """
    likelihood = rows.likelihood
    found = outgoing_of(model, likelihood, conditionals)
    if found is None:
        return None
    members, places = found
    if len(places) > 1 and not _pays(model, likelihood, len(places)):
        return None
    return OutgoingWeights(
        tuple(member.rv for member in members),
        *(rows, members, pt.constant(places), (likelihood.activations,)),
    )


def outgoing_of(
    model: pm.Model, likelihood: MarginalLikelihood, conditionals: Sequence[Conditional]
) -> tuple[tuple[Member, ...], Any] | None:
    """The weights through which all outputs see a layer, and their places.

    None if outputs see it in another way, or the weights have other children.
    """
    vs, places = _entries_of(model, likelihood.rows.design)
    seen_by = children(model, likelihood.activations)
    if not vs or any(set(children(model, v)) - set(seen_by) for v in vs):
        return None
    if given_any([likelihood.rows.weight, likelihood.rows.score], vs):
        return None
    drawn = {m.rv: m for c in conditionals if isinstance(c, Gaussian) for m in c.members}
    return None if set(vs) - set(drawn) else (tuple(drawn[v] for v in vs), places)


def bias_beside(
    v: TensorVariable, likelihood: MarginalLikelihood, conditionals: Sequence[Conditional]
) -> Member | None:
    """A number that all entries of the response see, drawn with the outgoing weights v.

    None where the response sees the layer times a factor: kernels are told the response divided
    by it, which does not see the number itself.
    """
    [block] = [c for c in conditionals if isinstance(c, Gaussian) and v in c.draws]
    layer_seen, *others = likelihood.fresh.observations
    if others or len(block.observations) != 1 or layer_seen.terms[0].factor is not None:
        return None
    [seen] = block.observations
    for member, term in zip(block.members, seen.terms, strict=True):
        one_number = all(member.rv.type.broadcastable) and not member.contrasts
        if one_number and term.factor is None and scalar_constant(term.coefficient) == 1.0:
            return member
    return None


def _pays(model: pm.Model, likelihood: MarginalLikelihood, n_outputs: int) -> bool:
    """Whether chains gain by the draw where there are several outputs."""
    every_sample = varies(likelihood.rows.weight, [0])
    return not (every_sample and n_outputs > MOST_OUTPUTS) and all(
        child in model.observed_RVs or not children(model, child)
        for child in children(model, likelihood.activations)
    )


def _entries_of(model: pm.Model, design: TensorVariable) -> tuple[list[TensorVariable], Any]:
    """The variables whose entries a design consists of, and their places; none if it does not.

    The design is linear in them, so that numbers at random tell.
    """
    found = [rv for rv in model.free_RVs if depends_on(design, {rv}, model.basic_RVs)]
    rng, values = np.random.default_rng(0), {}
    for rv in found:
        shape = [n for n in known_shape(model, rv) if n is not None]
        if len(shape) < rv.ndim:
            return [], None
        values[rv] = rng.normal(size=shape).astype(design.dtype)
    constants = {rv: pt.constant(value) for rv, value in values.items()}
    numbers = array_constant(substitute([design], constants)[0])
    entries = np.concatenate([value.ravel() for value in values.values()] or [np.empty(0)])
    if numbers is None or numbers.size != entries.size:
        return [], None
    order = np.argsort(entries)
    places = order[np.argsort(np.argsort(numbers, axis=None)).reshape(numbers.shape)]
    return (found, places) if np.array_equal(entries[places], numbers) else ([], None)
