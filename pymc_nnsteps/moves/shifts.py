r"""Variables that are shifted together, where no other draw holds all of them.

Variables x go to :math:`x + D_x \delta`, whose Jacobian is one. If :math:`\delta` is drawn from the
density that the posterior has along these lines, it is left invariant (Liu and Sabatti 2000, of
translations). Of Normal variables :math:`x \sim N(\mu_x, \Lambda_x^{-1})`, and children
:math:`y_c`, Normal or by their Polya-Gamma variables, that see :math:`C_c \delta` of the change,

.. math::

    \delta \sim N(P^{-1} h, P^{-1}), \qquad
    P = \sum_x D_x^T \Lambda_x D_x + \sum_c C_c^T W_c C_c, \qquad
    h = \sum_x D_x^T \Lambda_x (\mu_x - x) + \sum_c C_c^T W_c (y_c - \bar y_c)

with the present mean :math:`\bar y_c`. Children that see no change count with no law at all.

**Levels exchanged.** Where several children see the same effects a of groups, each beside a bias
:math:`b_c` of its own, no draw holds all of these, and the common level of the effects moves only
as far as the biases let it. With :math:`\delta` added to all entries of a and subtracted from each
bias the children see what they saw before. So they do of a number and effects of one child that no
draw holds both, and of the columns of a matrix V and effects b of rows beside :math:`U V^T`: with
:math:`V + 1 \delta^T` and :math:`b - U \delta`.

**Common shifts.** Correlated effects of groups (vectors under one MvNormal law) and values of a
series are drawn given all else that a response sees, such as the bias of a network. One vector
added to all :math:`a_g` (the values of a series are vectors of one entry) is drawn jointly with
the numbers :math:`\beta` that the same children see. There
:math:`\log p(a + \delta) = \ell \cdot \delta - \tfrac12 \delta^T \Lambda \delta` up to a constant
gives :math:`\Lambda` and :math:`\ell` in place of :math:`D^T \Lambda D` and
:math:`D^T \Lambda (\mu - a)`.

**Means of effects.** Model, for effects a of groups (or coefficients of inputs) that have means
:math:`\mu`, other coefficients :math:`\beta` (an intercept, weights of a layer), and all children
y of both:

.. math::

    a \sim N(m + M \mu, \Lambda^{-1}), \qquad \mu, \beta \sim N, \qquad
    y \sim N(o + C a + D \beta, W^{-1})

with diagonal :math:`\Lambda` and W. Given the effects, :math:`\mu` moves by steps as small as what
they tell of it lets it, and what can be exchanged for it, such as the bias of a network, moves as
slowly. The draw here keeps :math:`e = a - m - M \mu` in place of a (an ancillarity-sufficiency
interweaving, Yu and Meng 2011; the Jacobian is one):

.. math::

    \mu, \beta \mid e, y \propto p(\mu) \, p(\beta) \,
    N(y; o + C (m + e) + C M \mu + D \beta, W^{-1}),

a Gaussian (:mod:`pymc_nnsteps.laws.gaussian`), and a is then :math:`m + M \mu + e`. A mean of means
moves these along too. Logistic children enter by their Polya-Gamma variables.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.ops import refuse_lost
from pymc_nnsteps.gaussian.factor import draw_from_factor
from pymc_nnsteps.gaussian.observation import Child
from pymc_nnsteps.graphs.affine import affine
from pymc_nnsteps.graphs.centred import Deviations
from pymc_nnsteps.graphs.errors import NotConjugate, known_or_none
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import Term, same_link
from pymc_nnsteps.graphs.search import children, parameters, stated_in
from pymc_nnsteps.graphs.shapes import lengths
from pymc_nnsteps.graphs.values import constant_or_none, scalar_constant, typed_like
from pymc_nnsteps.laws.any_scales import multiplied_by
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes, normal_prior, require_given
from pymc_nnsteps.laws.effects import Effects
from pymc_nnsteps.laws.gaussian import Gaussian, augmented, gaussian_of, observe
from pymc_nnsteps.laws.multivariate import GaussianSeries, GaussianVectors
from pymc_nnsteps.moves.plan import Context, follows
from pymc_nnsteps.moves.product_rays import Product, products
from pymc_nnsteps.random.standard_normal import standard_normal


@dataclass(frozen=True)
class Shift(Conditional):
    """Means of effects drawn with other coefficients, the effects' deviations kept."""

    block: Gaussian  # the means and the coefficients
    deviations: Deviations  # those of the effects
    supplements = True

    @property
    @override
    def name(self) -> str:
        return self.block.name

    @override
    def explain_move(self, rv: TensorVariable) -> list[str]:
        if rv in self.deviations.means:
            return ["shifted with its mean"]
        others = [other for other in self.block.draws if other is not rv]
        jointly = f"jointly with {', '.join(map(describe, others))} " if others else ""
        return [f"also {jointly}where {', '.join(map(describe, self.deviations.means))} is shifted"]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        drawn = self.block.draw(rng, shapes)
        return Draw(drawn.rng, {**drawn.values, **self.deviations.values(drawn.values)})


@follows(priority=800)
def _shifts(context: Context) -> Iterator[Shift]:
    """One for all means of effects that the same responses see; those of means come after."""
    model, latent = context.model, context.integrated_out
    blocks = [block for block in context.blocks if isinstance(block, Gaussian)]
    coefficients = [rv for block in blocks for rv in block.draws if rv not in latent]
    effects = {rv for block in blocks for rv in _effects(model, block) if rv not in latent}
    shifted: set[TensorVariable] = set()
    for mean in reversed(coefficients):
        if mean in shifted or effects.isdisjoint(children(model, mean)):
            continue
        shift = known_or_none(shift_of, model, [mean], effects)
        if shift is None:
            continue
        for rv in coefficients:
            if rv not in shift.draws:
                more = [*shift.block.draws, rv]
                shift = known_or_none(shift_of, model, more, effects) or shift
        means = [rv for rv in shift.block.draws if not effects.isdisjoint(children(model, rv))]
        shifted.update(means)
        effects.update(means)
        yield shift


def _effects(model: pm.Model, block: Gaussian) -> list[TensorVariable]:
    """Variables of which a child picks entries, or sees sums of entries with the same mean."""
    return [
        rv
        for i, rv in enumerate(block.draws)
        if any(
            any(link is not None and link.index is not None for link in term.links)
            or (len(term.linked_axes) < term.rv_ndim and _have_one_mean(model, rv, term))
            for term in (seen.terms[i] for seen in block.observations)
        )
    ]


def _have_one_mean(model: pm.Model, rv: TensorVariable, term: Term) -> bool:
    """Whether all entries of a sum have the same mean: of all sums, or an entry of a variable."""
    mean = parameters(rv)[0]
    varying = [axis for axis, one in enumerate(mean.type.broadcastable) if not one]
    if not varying or not term.linked_axes.issuperset(varying):
        return not varying
    for mu in stated_in([mean], model.free_RVs):
        form, own = known_or_none(affine, mean, {mu}), parameters(mu)[0]
        carried = form is not None and all(form.terms[mu].links[axis] for axis in varying)
        # The mean of mu is itself the same for all its entries, or no variable.
        if carried and (all(own.type.broadcastable) or not stated_in([own], model.free_RVs)):
            return True
    return False


def shift_of(
    model: pm.Model, rvs: Sequence[TensorVariable], effects: Collection[TensorVariable]
) -> Shift:
    """The joint draw of variables that shifts the effects whose means they are."""
    moved: list[TensorVariable] = []
    for rv in model.free_RVs:
        if rv in effects and any(rv in children(model, mean) for mean in [*rvs, *moved]):
            moved.append(rv)
    deviations = Deviations()
    for rv in moved:
        mean, _ = normal_prior(model, rv)
        require_given(model, rv, "the scale", parameters(rv)[1:], [*rvs, *moved])
        deviations = deviations.of(rv, mean)
    below = {child for rv in [*rvs, *moved] for child in children(model, rv)}.difference(moved)
    observations = [
        observe(model, child, rvs, deviations) for child in model.basic_RVs if child in below
    ]
    return Shift((*rvs, *moved), gaussian_of(model, rvs, observations), deviations)


Correlated = GaussianVectors | GaussianSeries
Designs = Mapping[TensorVariable, TensorVariable]


@dataclass(frozen=True)
class Translation(Conditional):
    """Numbers by which variables are shifted together."""

    name = "Gaussian"
    # How each goes with the numbers, with its axes and that of the numbers; of length one are axes
    # along which all entries go alike.
    designs: Designs
    # Precision, a matrix or its diagonal, and linear part of a shift of the entries that do not go
    # alike.
    priors: Mapping[TensorVariable, tuple[TensorVariable, TensorVariable]]
    # Children that see a change, and what of each number, in rows.
    seen: tuple[tuple[Child, TensorVariable], ...] = ()
    supplements = True

    @override
    def explain_move(self, rv: TensorVariable) -> list[str]:
        others = ", ".join(map(describe, self.partners(rv)))
        if not self.seen:
            return [f"level exchanged with {others}"]
        first = self.draws[0]
        alone = f"also jointly with the level of {describe(first)}"
        return [f"shifted with {others}" if rv is first else alone]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        size = self.designs[self.draws[0]].shape[-1]
        precision, linear = pt.zeros((size, size)), pt.zeros(size)
        for rv, design in self.designs.items():
            (own, score), rows = self.priors[rv], design.reshape((-1, size))
            precision += pt.dot(rows.T * own if own.ndim == 1 else pt.dot(rows.T, own), rows)
            linear += pt.dot(score, rows)
        for child, rows in self.seen:
            rng, seen = augmented(rng, child)
            weight, residual = (
                pt.broadcast_to(array, seen.child.shape).flatten().astype("float64")
                for array in (seen.precision, seen.residual)
            )
            precision += pt.dot(rows * weight, rows.T)
            linear += pt.dot(rows * weight, residual)
        rng, noise = standard_normal(rng, (size,), "float64")
        root = cholesky(precision.astype("float64"), lower=True)
        step = draw_from_factor(root, linear.astype("float64"), noise)
        step = refuse_lost(pt.diagonal(precision), pt.diagonal(root), step[None])[0]
        moved = {rv: rv + (design * step).sum(-1) for rv, design in self.designs.items()}
        return Draw(rng, {rv: typed_like(rv, there) for rv, there in moved.items()})


@follows(priority=1000)
def _exchanges(context: Context) -> Iterator[Translation]:
    """Exchanges of levels."""
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


def _exchange(model: pm.Model, designs: Designs) -> Translation:
    priors = {rv: _prior_along(model, rv, design) for rv, design in designs.items()}
    return Translation(tuple(designs), designs, priors)


def _prior_along(
    model: pm.Model, rv: TensorVariable, design: TensorVariable
) -> tuple[TensorVariable, TensorVariable]:
    """Precision and linear part that a Normal prior gives shifts of entries that go alike."""
    mean, precision = normal_prior(model, rv)
    weight = precision + pt.zeros_like(rv)
    alike = [axis for axis in range(rv.ndim) if design.type.broadcastable[axis]]
    own, score = (part.sum(alike).flatten() for part in (weight, weight * (mean - rv)))
    return own, score


def _columns(model: pm.Model, product: Product, effects: TensorVariable) -> Designs:
    """How columns of a factor are shifted, and effects of rows of the other one with them."""
    u, [v], columns = product.up, product.down, product.columns
    n_columns = len(columns) // 2
    if not u.ndim == v.ndim == effects.ndim + n_columns == 1 + n_columns:
        raise NotConjugate("these are not the rows and columns of a matrix")
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
            raise NotConjugate(f"{describe(child)} depends on other rows")
        shares.add(_number(of_u) / _number(of_effects))
    if len(shares) > 1:
        raise NotConjugate("children depend on them in different proportions")
    step = pt.expand_dims(pt.eye(u.shape[1 - row]), other) if columns else pt.ones((1, 1))
    by_row = u.dimshuffle(row, 1 - row if columns else "x")
    return {v: step, effects: -shares.pop() * by_row}


def _number(term: Term) -> float:
    """By which all entries of a variable are multiplied."""
    known = constant_or_none(term.whole().coefficient)
    if known is None or len(np.unique(known)) != 1 or not known.all():
        raise NotConjugate("a child does not multiply all of it by one known number")
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
    seen = known_or_none(observe, context.model, child, [rv])
    if seen is None or known_or_none(normal_prior, context.model, rv) is None:
        return False
    [term] = seen.terms
    entries = [axis for axis, one in enumerate(rv.type.broadcastable) if not one]
    is_one = term.factor is None and term.picked is None
    return (
        is_one and scalar_constant(term.coefficient) == 1 and term.linked_axes.issuperset(entries)
    )


@follows(priority=1200)
def _common_shifts(context: Context) -> Iterator[Translation]:
    """Shifts of effects, or of a series, with the numbers beside them."""
    model, latent = context.model, context.integrated_out
    linear = [rv for c in context.blocks if isinstance(c, Gaussian) for rv in c.draws]
    numbers = [rv for rv in linear if all(rv.type.broadcastable) and rv not in latent]
    for block in context.blocks:
        if isinstance(block, Correlated):
            seen_by = children(model, block.draws[0])
            beside = [rv for rv in numbers if seen_by and children(model, rv) == seen_by]
            if beside:
                with contextlib.suppress(NotConjugate):
                    yield _common_shift(model, block, beside)


def _common_shift(
    model: pm.Model, block: Correlated, beside: Sequence[TensorVariable]
) -> Translation:
    """The joint draw of a shift and of numbers."""
    [effects], is_series = block.draws, isinstance(block, GaussianSeries)
    n = 1 if is_series else lengths(effects)[-1]
    unit = pt.eye(n + len(beside))
    places = [0] if is_series else [0, 1]
    own = (unit[0] if is_series else unit[:n]).dimshuffle(
        *["x"] * (effects.ndim + 1 - len(places)), *places
    )
    designs = {effects: own}
    for i, rv in enumerate(beside):
        designs[rv] = unit[n + i].dimshuffle(*["x"] * rv.ndim, 0)
    priors = {rv: _prior_along(model, rv, designs[rv]) for rv in beside}
    found = []
    for seen in block.observations:
        child, whole = seen.child, seen.terms[0].whole().coefficient
        *terms, _ = observe(model, child, [*beside, effects]).terms
        last = "x" if is_series else whole.ndim - 1
        parts = [whole.dimshuffle(last, *range(child.ndim))]
        parts += [multiplied_by(rv, one)[None] for rv, one in zip(beside, terms, strict=True)]
        rows = [pt.broadcast_to(part, (part.shape[0], *child.shape)) for part in parts]
        along = pt.concatenate(rows).reshape((unit.shape[0], -1)).astype("float64")
        found.append((observe(model, child, []), along))
    return Translation(
        (effects, *beside), designs, {effects: block.about_shift(), **priors}, tuple(found)
    )
