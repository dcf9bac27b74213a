r"""Gaussian vectors with a covariance matrix, their own or their children's, and Gaussian series.

Model, for a variable :math:`v` with a Normal or MvNormal prior and each Normal or MvNormal child:

.. math::

    v \sim N(\mu_0, \Lambda^{-1}), \qquad y_c \sim N(C_c v + o_c, Q_c^{-1})

with any covariance matrices, given or drawn. Posterior:

.. math::

    v \mid y \sim N(P^{-1} h, P^{-1}), \quad
    P = \Lambda + \sum_c C_c^T Q_c C_c, \quad
    h = \Lambda \mu_0 + \sum_c C_c^T Q_c (y_c - o_c).

All entries of :math:`v` are drawn at once, at a cost that grows with the cube of their number;
:mod:`.gaussian` draws variables without covariance matrices. If :math:`v` holds several vectors of
a MvNormal prior (correlated effects of groups, given their Cholesky factor) and each entry of a
child sees one vector, by its mean or its logit, the vectors are independent given the rest. Each is
then drawn with its own matrix.

**Random walks and autoregressions** of order one, all times at once. Model, for a series
:math:`v_1, \dots, v_T` (a GaussianRandomWalk has :math:`\rho = 1`):

.. math::

    v_1 \sim N(c_1, 1/e_1), \qquad v_t \mid v_{t-1} \sim N(c_t + \rho v_{t-1}, 1/e_t)

Each entry of a child sees the series at one time: Normal and LogNormal children by their mean,
Bernoulli and Binomial children by their logit (:mod:`.gaussian`). Posterior:
:math:`N(P^{-1} h, P^{-1})` with a tridiagonal

.. math::

    P_{tt} = e_t + \rho^2 e_{t+1} + a_t, \quad P_{t, t+1} = -\rho\, e_{t+1}, \quad
    h_t = e_t c_t - \rho\, e_{t+1} c_{t+1} + b_t

where :math:`a_t` and :math:`b_t` are the precision and the linear part that children add to
:math:`v_t`. A draw takes time linear in T and moves the series as one block.
"""

from dataclasses import dataclass
from typing import Any, cast, override

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar import basic as scalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.linalg import MatrixInverse, cholesky
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.ops import as_op, refuse_lost
from pymc_nnsteps.gaussian.bands import draw_tridiagonal
from pymc_nnsteps.gaussian.factor import draw_by_label, draw_from_factor
from pymc_nnsteps.gaussian.layout import Layout
from pymc_nnsteps.gaussian.observation import Child, evidence_of
from pymc_nnsteps.graphs.affine import affine, broadcast
from pymc_nnsteps.graphs.errors import NotConjugate, declined_as, known_or_none
from pymc_nnsteps.graphs.known import LINE, describe, distribution, is_a
from pymc_nnsteps.graphs.linear_terms import cut_link, flatten
from pymc_nnsteps.graphs.search import children, parameters
from pymc_nnsteps.graphs.shapes import lengths
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.laws.conditional import (
    Conditional,
    Draw,
    Shapes,
    precision_of,
    recognises,
    require_free,
    require_given,
    require_support,
    value_of,
)
from pymc_nnsteps.laws.gaussian import OBSERVED, augmented, cut_axes, observe
from pymc_nnsteps.random.standard_normal import standard_normal

GAUSSIAN = (NormalRV, MvNormalRV)


@dataclass(frozen=True)
class LinearChild:
    """Child ``value ~ N(design v + offset)``; the design has axes (child, entries of v)."""

    child: TensorVariable
    residual: TensorVariable
    design: TensorVariable


@dataclass(frozen=True)
class GaussianVector(Conditional):
    """Full conditional of all entries of a Gaussian variable with covariance matrices around it."""

    name = "multivariate Gaussian"
    seen: tuple[LinearChild, ...]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [rv] = self.draws
        own = pt.eye(rv.size, dtype=rv.dtype).reshape((*lengths(rv), rv.size))
        precision = _product(rv, own, own)
        linear = _product(rv, own, _full(location(rv), rv)[..., None])
        for seen in self.seen:
            precision += _product(seen.child, seen.design, seen.design)
            linear += _product(seen.child, seen.design, seen.residual[..., None])
        factor = cholesky(precision, lower=True)
        rng, noise = standard_normal(rng, (rv.size,), rv.dtype)
        vector = draw_from_factor(factor, linear[:, 0], noise)
        vector = refuse_lost(pt.diagonal(precision), pt.diagonal(factor), vector[None])[0]
        return Draw(rng, {rv: typed_like(rv, vector.reshape(lengths(rv)))})


@dataclass(frozen=True)
class GaussianVectors(Conditional):
    """Full conditional of the vectors of a MvNormal variable, independent given the rest."""

    name = "multivariate Gaussian by label"
    observations: tuple[Child, ...]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [rv] = self.draws
        layout = Layout(rv, tuple(range(rv.ndim - 1)), (rv.ndim - 1,))
        precision = precision_matrix(rv)
        linear = (precision @ _full(location(rv), rv)[..., None])[..., 0]
        for observation in self.observations:
            rng, seen = augmented(rng, observation)
            evidence = evidence_of([layout], seen).in_double()
            precision = precision + evidence.information()
            linear = linear + evidence.linear()
        size = lengths(rv)
        precision = pt.broadcast_to(precision, (*size, size[-1]))
        rng, noise = standard_normal(rng, size, linear.dtype)
        vectors, factor = draw_by_label(precision, linear, noise, shapes[rv][-1])
        diagonal, roots = (
            pt.diagonal(each, axis1=-2, axis2=-1).flatten() for each in (precision, factor)
        )
        kept = refuse_lost(diagonal, roots, flatten(vectors, 0, rv.ndim - 1))
        return Draw(rng, {rv: typed_like(rv, kept.reshape(size))})

    def about_shift(self) -> tuple[TensorVariable, TensorVariable]:
        """Precision and linear part that the prior gives one vector added to all of them."""
        [rv] = self.draws
        precision = pt.broadcast_to(precision_matrix(rv), (*lengths(rv), lengths(rv)[-1]))
        linear = (precision @ (location(rv) - rv)[..., None])[..., 0]
        labels = tuple(range(rv.ndim - 1))
        return precision.sum(labels), linear.sum(labels)


def _full(array: TensorVariable, rv: TensorVariable) -> TensorVariable:
    return pt.broadcast_to(array, tuple(lengths(rv)))


def _product(rv: TensorVariable, left: TensorVariable, right: TensorVariable) -> TensorVariable:
    """``left^T Q right`` for the precision Q of a variable whose axes come first in both."""
    if is_a(rv, NormalRV):
        weight = precision_of(rv, parameters(rv)[1])
        weighted = right * weight[..., None] if weight.ndim else right * weight
    else:
        weighted = precision_matrix(rv) @ right
    flat = (rv.size, -1) if rv.ndim else (1, -1)
    return left.reshape(flat).T @ weighted.reshape(flat)


def precision_matrix(rv: TensorVariable) -> TensorVariable:
    """Inverse of the covariance of a multivariate normal variable."""
    covariance = parameters(rv)[1].astype(rv.dtype)
    stated = inverted(covariance)
    inverse: Any = pt.linalg.inv(covariance) if stated is None else stated
    return inverse


def inverted(matrix: Any) -> TensorVariable | None:
    """The matrix whose inverse is written in the graph, if it is."""
    match matrix.owner:
        case Apply(op=(DimShuffle() | Elemwise(scalar_op=scalar.Cast())) as op, inputs=[inner]):
            found: Any = inverted(inner)
            view: Any = op
            return None if found is None else view(found)
        case Apply(op=MatrixInverse() | Blockwise(core_op=MatrixInverse()), inputs=[inner]):
            return cast(TensorVariable, inner)
    return None


def location(rv: TensorVariable) -> TensorVariable:
    """Mean of a Gaussian variable before PyMC repeats it to the length of the covariance."""
    return _unfilled(parameters(rv)[0])


def _unfilled(mean: Any) -> TensorVariable:
    match mean.owner:
        case Apply(op=DimShuffle(new_order=order), inputs=[inner]):
            return _unfilled(inner).dimshuffle(order)
        case Apply(op=Elemwise(scalar_op=scalar.Second()), inputs=[_, inner]):
            return _unfilled(inner)
    return mean


@recognises(
    500,
    "multivariate Gaussian",
    GAUSSIAN,
    {*GAUSSIAN, *OBSERVED},
    when=lambda model, rv: any(is_a(v, MvNormalRV) for v in (rv, *children(model, rv))),
)
def match_multivariate(model: pm.Model, rv: TensorVariable) -> GaussianVector | GaussianVectors:
    """Recognise a Gaussian variable whose prior or child has a covariance matrix."""
    require_free(model, rv)
    require_support(model, rv, LINE)
    if (seen := _seen_by_label(model, rv)) is not None:
        return GaussianVectors((rv,), seen)
    return GaussianVector((rv,), tuple(_read(model, child, rv) for child in children(model, rv)))


def _seen_by_label(model: pm.Model, rv: TensorVariable) -> tuple[Child, ...] | None:
    """How children see several vectors, if each entry of a child sees one vector."""
    if rv.ndim < 2 or not is_a(rv, MvNormalRV):
        return None
    *labels, last = range(rv.ndim)
    found = []
    for child in children(model, rv):
        seen = known_or_none(observe, model, child, [rv])
        if seen is None or not seen.terms[0].linked_axes.issuperset(labels):
            return None
        found.append(cut_axes(seen, rv, [last]))
    return tuple(found)


def _read(model: pm.Model, child: TensorVariable, rv: TensorVariable) -> LinearChild:
    if not is_a(child, *GAUSSIAN):
        raise NotConjugate(
            f"child {describe(child)} is {distribution(child)}, not Normal or MvNormal"
        )
    require_given(model, child, "the scale", parameters(child)[1:], {rv})
    mean = location(child)
    with declined_as(f"the mean of child {describe(child)} is not affine in it"):
        form = broadcast(affine(mean, {rv}, model.basic_RVs), mean, child)
    term = form.terms[rv]
    for axis, link in enumerate(term.links):
        if link is not None:
            term = cut_link(term, axis, rv)
    value = value_of(model, child)
    axes: list[Any] = [*value.shape, *lengths(rv)]
    design = pt.broadcast_to(term.whole().coefficient, axes).reshape((*value.shape, rv.size))
    residual = value if form.offset is None else value - form.offset
    return LinearChild(child, residual.astype(rv.dtype), design.astype(rv.dtype))


@dataclass(frozen=True)
class Start:
    """Means and precisions of a series, time last: of the ``first`` value and ``later`` steps."""

    first: tuple[TensorVariable, TensorVariable]
    later: tuple[TensorVariable, TensorVariable]
    slope: TensorVariable


@dataclass(frozen=True)
class GaussianSeries(Conditional):
    """Full conditional of a series whose entries each child sees one by one."""

    name = "Gaussian series"
    prior: Start
    observations: tuple[Child, ...]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [rv] = self.draws
        shape = tuple(rv.shape)
        batch, n_times = shape[:-1], shape[-1]

        def joined(*parts: TensorVariable) -> TensorVariable:
            sizes = zip(parts, (1, n_times - 1), strict=True)
            return pt.concatenate(
                [pt.broadcast_to(part, (*batch, n)) for part, n in sizes], axis=-1
            )

        def shifted(array: TensorVariable) -> TensorVariable:
            return pt.concatenate([array[..., 1:], pt.zeros_like(array[..., :1])], axis=-1)

        mean, precision = map(joined, self.prior.first, self.prior.later)
        slope, following = self.prior.slope, shifted(precision)
        diagonal = precision + pt.sqr(slope) * following
        linear = precision * mean - slope * following * shifted(mean)
        layout = Layout(rv, tuple(range(rv.ndim)), ())
        for observation in self.observations:
            rng, seen = augmented(rng, observation)
            evidence = evidence_of([layout], seen)
            diagonal += evidence.information_diagonal()[..., 0]
            linear += evidence.linear()[..., 0]
        rng, noise = standard_normal(rng, shape, rv.dtype)
        arrays = (diagonal, -slope * following, linear, noise)
        flat = (pt.broadcast_to(array, shape).reshape((-1, n_times)) for array in arrays)
        return Draw(rng, {rv: typed_like(rv, as_op(draw_tridiagonal, 2)(*flat).reshape(shape))})

    def about_shift(self) -> tuple[TensorVariable, TensorVariable]:
        """Precision and linear part that the prior gives one number added to all values."""
        [rv], slope = self.draws, self.prior.slope
        first, later = rv[..., :1], rv[..., 1:] - slope * rv[..., :-1]
        steps = (
            (first, pt.ones_like(slope), self.prior.first),
            (later, 1 - slope, self.prior.later),
        )
        total = linear = pt.zeros((), dtype=rv.dtype)
        for step, moved, (mean, precision) in steps:
            weight = precision * moved + pt.zeros_like(step)
            total += (weight * moved).sum()
            linear += (weight * (mean - step)).sum()
        return total.reshape((1, 1)), linear.reshape((1,))


@recognises(800, "Gaussian series, all times at once", {RandomWalkRV, AutoRegressiveRV}, OBSERVED)
def match_series(model: pm.Model, rv: TensorVariable) -> GaussianSeries:
    """Recognise a Gaussian random walk, or an autoregression of order one."""
    require_free(model, rv)
    require_support(model, rv, LINE)
    walk = is_a(rv, RandomWalkRV)
    prior = _walk(rv) if walk else _autoregression(rv)
    observations = []
    for child in children(model, rv):
        seen = observe(model, child, [rv])
        [term] = seen.terms
        if len(term.linked_axes) < rv.ndim:
            raise NotConjugate(f"child {describe(child)} depends on it at several times at once")
        observations.append(seen)
    return GaussianSeries((rv,), prior, tuple(observations))


def _walk(rv: TensorVariable) -> Start:
    """Innovations of a random walk, with the time axis first."""
    if rv.owner.op.ndim_supp != 1:
        raise NotConjugate("its value at each time is a vector")
    laws = []
    for innovation in rv.owner.inputs[:2]:
        mean, sigma = _normal(innovation, "an innovation")
        order = (*range(1, innovation.ndim), 0)
        precision = precision_of(rv, sigma)
        laws.append((mean.astype(rv.dtype).dimshuffle(order), precision.dimshuffle(order)))
    first, later = laws
    return Start(first, later, pt.ones((1,), dtype=rv.dtype))


def _autoregression(rv: TensorVariable) -> Start:
    op = rv.owner.op
    if op.ar_order != 1:
        raise NotConjugate(f"it is an autoregression of order {op.ar_order}, not 1")
    rho, sigma, first, *_ = rv.owner.inputs
    mean, spread = _normal(first, "the first value")
    rho = rho.astype(rv.dtype)
    constant = rho[..., :1] if op.constant_term else pt.zeros((1,), dtype=rv.dtype)
    later = constant, precision_of(rv, sigma)[..., None]
    return Start((mean.astype(rv.dtype), precision_of(rv, spread)), later, rho[..., -1:])


def _normal(rv: TensorVariable, role: str) -> tuple[TensorVariable, TensorVariable]:
    if not is_a(rv, NormalRV):
        raise NotConjugate(f"{role} is {distribution(rv)}, not Normal")
    mean, sigma = parameters(rv)
    return mean, sigma
