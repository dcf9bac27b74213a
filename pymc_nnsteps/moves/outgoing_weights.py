r"""Weights through which one output sees a layer, with the layer's activations integrated out.

Given its activations a layer's outgoing weights are known as if these had been seen without noise,
and the activations of all units share among them what the output leaves open: a unit of small
weight that should have another one changes it by small steps. Here each of these weights is drawn
with the activations of all *other* units integrated out. Model, with activations
:math:`X_{na}` around :math:`u_{na}`, the activation of :math:`z_{na}` and any offset:

.. math::

    X_{na} \sim N(u_{na}, \tau_a), \qquad v_a \sim N(\nu_a, \kappa_a^{-1}), \qquad
    y_n \sim N(\textstyle\sum_a v_a X_{na}, 1 / w_n).

Without the activations of the other units the residual
:math:`r_n = y_n - \sum_{j \ne a} v_j u_{nj}` is :math:`N(v_a X_{na}, V_n)` with
:math:`V_n = 1 / w_n + \sum_{j \ne a} v_j^2 \tau_j`, in which there is no :math:`v_a`: both laws of

.. math::

    X_{na} \mid v_a &\sim N\bigl(u_{na} + v_a (r_n - v_a u_{na}) / (V_n S_n),\ S_n^{-1}\bigr),
    \qquad S_n = 1 / \tau_a + v_a^2 / V_n, \\
    v_a \mid X_a &\sim N\bigl(A^{-1} (\kappa_a \nu_a + \textstyle\sum_n X_{na} r_n / V_n),
    A^{-1}\bigr), \qquad A = \kappa_a + \textstyle\sum_n X_{na}^2 / V_n,

are exact, and are drawn from in this order for one unit after another.

X must be drawn afresh before anything else is given it (:mod:`.scan` checks it).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.layout import Member
from pymc_nnsteps.graphs.arrays import expand
from pymc_nnsteps.graphs.lengths import known_shape
from pymc_nnsteps.graphs.search import children, depends_on, given_any
from pymc_nnsteps.graphs.values import array_constant, substitute, typed_like
from pymc_nnsteps.kernels.ops import draw_outgoing
from pymc_nnsteps.kernels.outgoing_weights import Outgoing
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.moves.interweaving import Interweaving
from pymc_nnsteps.random.standard_normal import standard_normal


@dataclass(frozen=True)
class OutgoingWeights(Conditional):
    """Weights through which one output sees a layer, its activations integrated out.

    Attributes
    ----------
    rows : Interweaving
        The move of the layer's own weights, which knows what is seen of the activations.
    outgoing : Member
        The weights.
    """

    draws: tuple[TensorVariable, ...]
    rows: Interweaving
    outgoing: Member
    integrates_out: tuple[TensorVariable, ...]

    @property
    @override
    def name(self) -> str:
        return "Gaussian, one by one"

    def weights_by_unit(self) -> Outgoing[TensorVariable]:
        """The weights and their prior."""
        v = self.outgoing

        def by_unit(array: TensorVariable) -> TensorVariable:
            return pt.broadcast_to(array, v.rv.shape).flatten()

        precision = by_unit(v.precision)
        return Outgoing(v.rv.flatten(), precision, precision * by_unit(v.mean))

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        likelihood, v, weights = self.rows.likelihood, self.outgoing, self.weights_by_unit()
        pre = self.rows.pre_activations_by_unit()
        behind = self.rows.activation.offset
        offset = pt.zeros((1, 1)) if behind is None else likelihood.by_sample(behind).T
        rng, noise = standard_normal(rng, pre.shape, "float64")
        rng, normal = standard_normal(rng, weights.outgoing.shape, "float64")
        value = draw_outgoing(
            pre,
            self.rows.pieces(),
            expand(offset.astype("float64"), {0: pre.shape[0]}),
            weights,
            likelihood.above_one(pre.shape[1]),
            noise,
            normal,
        )
        return Draw(rng, {v.rv: typed_like(v.rv, value.reshape(v.rv.shape))})


def find_outgoing(
    model: pm.Model, rows: Interweaving, conditionals: Sequence[Conditional]
) -> OutgoingWeights | None:
    """The draw of the weights through which one output sees a layer; None if it does not so.

    Parameters
    ----------
    model : pm.Model
    rows : Interweaving
        The move of the layer's own weights.
    conditionals : sequence of Conditional
        Among them that of the outgoing weights.
    """
    likelihood = rows.likelihood
    if not likelihood.has_one_output:
        return None
    v, a = _entries_of(model, likelihood.rows.design), likelihood.activations
    drawn = [c for c in conditionals if isinstance(c, Gaussian) and v in c.draws]
    if not drawn or len(children(model, a)) != 1 or children(model, v) != children(model, a):
        return None
    if given_any([likelihood.rows.weight, likelihood.rows.score], [v]):
        return None
    [member] = [member for member in drawn[0].members if member.rv is v]
    return OutgoingWeights((v,), rows, member, (a,))


def _entries_of(model: pm.Model, design: TensorVariable) -> Any:
    """The variable whose entries, in their order, a design of one row is; None if it is not so.

    The design is linear in it, so that numbers at random tell.
    """
    variable: Any = design
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        [variable] = variable.owner.inputs
    if variable in model.free_RVs:
        return variable
    found = [rv for rv in model.free_RVs if depends_on(design, {rv}, model.basic_RVs)]
    if len(found) != 1:
        return None
    shape = [n for n in known_shape(model, found[0]) if n is not None]
    if len(shape) < found[0].ndim:
        return None
    values = np.random.default_rng(0).normal(size=shape).astype(design.dtype)
    numbers = array_constant(substitute([design], {found[0]: pt.constant(values)})[0])
    same = numbers is not None and np.array_equal(numbers.ravel(), values.ravel())
    return found[0] if same else None
