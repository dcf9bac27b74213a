r"""Levels exchanged between variables that children see added up.

Where several children see the same effects, each beside a network or coefficients of its own, no
draw holds all of these, and the common level of the effects moves only as far as the biases let
it. Model, for effects a of groups (or one number), and a bias :math:`b_c` of each child c,

.. math::

    a_g \sim N(\mu_g, \lambda_g^{-1}), \qquad b_c \sim N(\beta_c, \kappa_c^{-1}), \qquad
    y_c \mid a, b_c \sim p_c(\cdot \mid a_{g(n)} + b_c + o_{nc}).

With :math:`\delta` added to all entries of a and subtracted from each bias the children see what
they saw before. Given everything else the law of :math:`\delta` is therefore that of the priors,

.. math::

    \delta \sim N(h / P, 1 / P), \qquad P = \sum_g \lambda_g + \sum_c \kappa_c, \qquad
    h = \sum_g \lambda_g (\mu_g - a_g) - \sum_c \kappa_c (\beta_c - b_c),

whatever the laws of the children are, and the shifted values leave the posterior invariant (Liu
and Sabatti 2000, of translations). So do a number and effects of one child that no draw holds
both, and the columns of a matrix V and effects b of rows beside :math:`U V^T`: with
:math:`V + 1 \delta^T` and :math:`b - U \delta` children see what they saw before. In general, of
variables x that go to :math:`x + D_x \delta`,

.. math::

    P = \sum_x D_x^T \Lambda_x D_x, \qquad h = \sum_x D_x^T \Lambda_x (\mu_x - x).

The mean of 60 x 40 ratings, ``mu + b[:, None] + U @ V.T``, had 6 effective
draws of 2000, and has 1800 with these exchanges (60 by NUTS).
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.factor import draw_from_factor
from pymc_nnsteps.graphs.affine import affine
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.linear_terms import Term, same_link
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.graphs.values import constant_or_none, scalar_constant, typed_like
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes, normal_prior
from pymc_nnsteps.laws.effects import Effects
from pymc_nnsteps.laws.gaussian import Gaussian, observe
from pymc_nnsteps.moves.contract import Context, at_the_end, proposes
from pymc_nnsteps.moves.product_rays import Product, products
from pymc_nnsteps.moves.replacement import Proposals
from pymc_nnsteps.random.standard_normal import standard_normal


@dataclass(frozen=True)
class LevelExchange(Conditional):
    """Numbers that are added to some variables and subtracted from others.

    Attributes
    ----------
    designs : mapping from random variable to TensorVariable
        How each goes with the numbers, with its axes and that of the numbers; of length one are
        axes along which all entries go alike.
    priors : mapping from random variable to (TensorVariable, TensorVariable)
        Mean and precision.
    """

    name = "Gaussian"
    draws: tuple[TensorVariable, ...]
    designs: Mapping[TensorVariable, TensorVariable]
    priors: Mapping[TensorVariable, tuple[TensorVariable, TensorVariable]]
    supplements: bool = True

    @override
    def also(self, rv: TensorVariable) -> list[str]:
        return [f"level exchanged with {', '.join(map(describe, self.partners(rv)))}"]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        size = self.designs[self.draws[0]].shape[-1]
        precision, linear = pt.zeros((size, size)), pt.zeros(size)
        for rv, design in self.designs.items():
            mean, own = self.priors[rv]
            weight = own + pt.zeros_like(rv)
            alike = [axis for axis in range(rv.ndim) if design.type.broadcastable[axis]]
            each, score = (
                (part.sum(alike) if alike else part).flatten()
                for part in (weight, weight * (mean - rv))
            )
            rows = design.reshape((-1, size))
            precision += pt.dot(rows.T * each, rows)
            linear += pt.dot(score, rows)
        rng, noise = standard_normal(rng, (size,), "float64")
        root = cholesky(precision.astype("float64"), lower=True)
        step = draw_from_factor(root, linear.astype("float64"), noise)
        moved = {rv: rv + (design * step).sum(-1) for rv, design in self.designs.items()}
        return Draw(rng, {rv: typed_like(rv, there) for rv, there in moved.items()})


@proposes(priority=1000)
def propose_levels(context: Context) -> Proposals:
    """Propose to exchange levels when all else has been drawn."""
    if not context.options.rays or not context.sweep:
        return Proposals()
    return at_the_end(context, _exchanges(context))


def _exchanges(context: Context) -> Iterator[LevelExchange]:
    model = context.model
    drawn = [rv for c in context.blocks if isinstance(c, Gaussian | Effects) for rv in c.draws]
    for effects in drawn:
        seen_by = children(model, effects)
        if not seen_by or not all(_adds(context, effects, child) for child in seen_by):
            continue
        biases = [_bias_of(context, child, effects, drawn) for child in seen_by]
        found = [bias for bias in biases if bias is not None]
        if len(found) < len(seen_by) or any(
            effects in draw.draws and found[0] in draw.draws for draw in context.sweep
        ):
            continue
        signs = {effects: 1.0} | dict.fromkeys(found, -1.0)
        yield _exchange(model, {rv: s * pt.ones((1,) * (rv.ndim + 1)) for rv, s in signs.items()})
    for product in products(context):
        for rv in drawn:
            if len(product.down) == 1 and rv not in (product.up, *product.down):
                with contextlib.suppress(NotConjugate):
                    yield _exchange(model, _columns(model, product, rv))
                    break


def _exchange(model: pm.Model, designs: Mapping[TensorVariable, TensorVariable]) -> LevelExchange:
    return LevelExchange(tuple(designs), designs, {rv: normal_prior(model, rv) for rv in designs})


def _columns(
    model: pm.Model, product: Product, effects: TensorVariable
) -> dict[TensorVariable, TensorVariable]:
    """How columns of a factor are shifted, and effects of rows of the other one with them."""
    u, [v], columns = product.up, product.down, product.columns
    n_columns = len(columns) // 2
    if not u.ndim == v.ndim == effects.ndim + n_columns == 1 + n_columns:
        raise NotConjugate("these are no rows and columns of a matrix")
    if not children(model, u) == children(model, v) == children(model, effects):
        raise NotConjugate("they have different children")
    [row], [other] = ([axis for axis in range(rv.ndim) if axis != columns.get(rv)] for rv in (u, v))
    shares = set()
    for child in children(model, u):
        [of_v], [of_effects] = (observe(model, child, [rv]).terms for rv in (v, effects))
        of_u = affine(of_v.whole().coefficient, {u}, model.basic_RVs).terms[u]
        seen = [link and replace(link, axis=link.axis - row) for link in of_u.links[: child.ndim]]
        alike = all(map(same_link, seen, of_effects.links))
        if not alike or (of_v.linked_axes, of_effects.linked_axes) != ({other}, {0}):
            raise NotConjugate(f"{describe(child)} sees other rows")
        shares.add(_number(of_u) / _number(of_effects))
    if len(shares) > 1:
        raise NotConjugate("children see different shares of them")
    step = pt.expand_dims(pt.eye(u.shape[1 - row]), other) if columns else pt.ones((1, 1))
    by_row = u.dimshuffle(row, 1 - row if columns else "x")
    return {v: step, effects: -shares.pop() * by_row}


def _number(term: Term) -> float:
    """By which all entries of a variable are multiplied."""
    known = constant_or_none(term.whole().coefficient)
    if known is None or len(np.unique(known)) != 1 or not known.all():
        raise NotConjugate("a child sees no known share of it")
    return float(known.flat[0])


def _bias_of(
    context: Context, child: TensorVariable, effects: TensorVariable, drawn: list[TensorVariable]
) -> TensorVariable | None:
    """A number that all entries of a child see, and nothing else does."""
    for rv in drawn:
        alone = rv is not effects and children(context.model, rv) == (child,)
        if alone and all(rv.type.broadcastable) and _adds(context, rv, child):
            return rv
    return None


def _adds(context: Context, rv: TensorVariable, child: TensorVariable) -> bool:
    """Whether each entry of a child sees one entry of a variable, with the coefficient one."""
    try:
        normal_prior(context.model, rv)
        [term] = observe(context.model, child, [rv]).terms
    except NotConjugate:
        return False
    entries = [axis for axis, one in enumerate(rv.type.broadcastable) if not one]
    is_one = term.factor is None and term.picked is None
    return (
        is_one and scalar_constant(term.coefficient) == 1 and term.linked_axes.issuperset(entries)
    )
