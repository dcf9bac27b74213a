r"""Conjugate pairs: probabilities of trials, shares of classes, and precision matrices.

A probability :math:`p` with children of :math:`s_c` successes and :math:`f_c` failures (a Bernoulli
variable, a number of successes, of failures before the n-th success, or of trials until the
first) has

.. math::

    p \sim \text{Beta}(a, b), \quad P(y_c \mid p) \propto p^{s_c} (1 - p)^{f_c}, \quad
    p \mid y \sim \text{Beta}(a + \sum_c s_c, b + \sum_c f_c).

If the probability of a child is :math:`1 - p`, its :math:`s_c` and :math:`f_c` are exchanged. A
vector :math:`p` of shares, with classes :math:`y_i` and counts :math:`n_j` of them, has

.. math::

    p \sim \text{Dirichlet}(a), \quad y_i \sim \text{Categorical}(p), \quad
    n_j \sim \text{Multinomial}(N_j, p), \quad
    p \mid y, n \sim \text{Dirichlet}(a_k + \sum_i 1[y_i = k] + \sum_j n_{jk}).

A precision matrix :math:`W`, with vectors :math:`y_i`, has

.. math::

    W \sim \text{Wishart}(\nu, V), \quad y_i \sim N(\mu_i, W^{-1}), \quad
    W \mid y \sim \text{Wishart}\left(\nu + n,
    \left(V^{-1} + \sum_i (y_i - \mu_i)(y_i - \mu_i)^T\right)^{-1}\right).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import WishartRV
from pymc.distributions.transforms import CholeskyCovTransform, SimplexTransform
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar import basic as scalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.random.basic import (
    BernoulliRV,
    BetaRV,
    BinomialRV,
    CategoricalRV,
    DirichletRV,
    GeometricRV,
    MultinomialRV,
    MvNormalRV,
    NegBinomialRV,
)
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate, declined_as
from pymc_nnsteps.graphs.known import UNIT, describe, distribution, is_a, kind_of
from pymc_nnsteps.graphs.linear_terms import Link
from pymc_nnsteps.graphs.monomial import Monomial
from pymc_nnsteps.graphs.search import children, parameters, unwrapped
from pymc_nnsteps.graphs.shapes import lengths
from pymc_nnsteps.graphs.values import scalar_constant, typed_like
from pymc_nnsteps.laws.conditional import (
    Conditional,
    Draw,
    Shapes,
    recognises,
    require_free,
    require_given,
    require_support,
    selected,
    summed,
    value_of,
)
from pymc_nnsteps.laws.densities import DENSITIES, Array, Density, Random
from pymc_nnsteps.laws.multivariate import inverted, location

Counts = Callable[..., tuple[TensorVariable, TensorVariable]]

TRIALS: dict[type, Counts] = {
    BernoulliRV: lambda y: (y, 1 - y),
    BinomialRV: lambda y, n: (y, n - y),
    NegBinomialRV: lambda y, n: (n, y),
    GeometricRV: lambda y: (pt.ones_like(y), y - 1),
}
"""Successes and failures, as functions of a child's value and its parameters but the last."""


@dataclass(frozen=True)
class Trial:
    """Child whose probability consists of entries of the variable, or of one minus them."""

    value: TensorVariable
    successes: TensorVariable
    failures: TensorVariable
    form: Monomial


@dataclass(frozen=True)
class Probability(Conditional):
    """Full conditional of a probability of success."""

    name = "Beta"
    trials: tuple[Trial, ...]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [rv] = self.draws
        a, b = (parameter.astype(rv.dtype) for parameter in parameters(rv))
        for seen in self.trials:
            a += summed(seen.successes, seen.form, rv, seen.value)
            b += summed(seen.failures, seen.form, rv, seen.value)
        rng, value = pt.random.beta(a, b, size=lengths(rv), rng=rng, return_next_rng=True)
        info = np.finfo(rv.dtype)
        low, high = (pt.constant(v, dtype=rv.dtype) for v in (info.tiny, 1 - info.epsneg))
        return Draw(rng, {rv: typed_like(rv, pt.clip(value, low, high))})


@recognises(1000, "Beta", {BetaRV}, TRIALS.keys())
def match_probability(model: pm.Model, rv: TensorVariable) -> Probability:
    """Recognise a Beta variable that is the probability of its children."""
    require_free(model, rv)
    require_support(model, rv, UNIT)
    return Probability((rv,), tuple(_trial_of(model, child, rv) for child in children(model, rv)))


def _trial_of(model: pm.Model, child: TensorVariable, rv: TensorVariable) -> Trial:
    counts = TRIALS.get(kind_of(child))
    if counts is None:
        raise NotConjugate(
            f"child {describe(child)} is {distribution(child)}, not Bernoulli, Binomial, "
            "NegativeBinomial or Geometric"
        )
    *others, probability = parameters(child)
    require_given(model, child, "a parameter other than the probability", others, {rv})
    value = value_of(model, child)
    complement = _complement_of(probability)
    stated = probability if complement is None else complement
    with declined_as(f"the probability of child {describe(child)} is neither it nor one minus it"):
        form = selected(stated, rv, model.basic_RVs, child)
    both = counts(value, *others)
    successes, failures = both if complement is None else both[::-1]
    return Trial(value, successes, failures, form)


def _complement_of(probability: Any) -> Any:
    """The ``p`` of a probability that is written as ``1 - p``, if it is."""
    match unwrapped(probability).owner:
        case Apply(op=DimShuffle(new_order=order), inputs=[inner]):
            found = _complement_of(inner)
            return None if found is None else found.dimshuffle(order)
        case Apply(op=Elemwise(scalar_op=scalar.Sub()), inputs=[one, other]):
            return other if scalar_constant(one) == 1 else None
    return None


@dataclass(frozen=True)
class Classes:
    """Counts of each class, with the axis of classes last, and the shares behind them."""

    counts: TensorVariable
    form: Monomial


@dataclass(frozen=True)
class Shares(Conditional):
    """Full conditional of vectors of shares."""

    name = "Dirichlet"
    seen: tuple[Classes, ...]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [rv] = self.draws
        [a] = (parameter.astype(rv.dtype) for parameter in parameters(rv))
        for classes in self.seen:
            a = a + summed(classes.counts, classes.form, rv, classes.counts)
        size = lengths(rv)[:-1]
        rng, value = pt.random.dirichlet(a, size=size, rng=rng, return_next_rng=True)
        smallest = pt.constant(np.finfo(rv.dtype).tiny, dtype=rv.dtype)
        return Draw(rng, {rv: typed_like(rv, pt.maximum(value, smallest))})


@recognises(900, "Dirichlet", {DirichletRV}, {CategoricalRV, MultinomialRV})
def match_shares(model: pm.Model, rv: TensorVariable) -> Shares:
    """Recognise a Dirichlet variable whose children are classes or counts of them."""
    require_free(model, rv)
    require_support(model, rv, SimplexTransform)
    return Shares((rv,), tuple(_classes_of(model, child, rv) for child in children(model, rv)))


def _classes_of(model: pm.Model, child: TensorVariable, rv: TensorVariable) -> Classes:
    if not is_a(child, CategoricalRV, MultinomialRV):
        raise NotConjugate(
            f"child {describe(child)} is {distribution(child)}, not Categorical or Multinomial"
        )
    *others, shares = parameters(child)
    require_given(model, child, "a parameter other than the probabilities", others, {rv})
    counts = value_of(model, child)
    if is_a(child, CategoricalRV):
        counts = pt.eq(counts[..., None], pt.arange(shares.shape[-1]))
    with declined_as(f"the probabilities of child {describe(child)} are not entries of it"):
        form = selected(shares, rv, model.basic_RVs, counts)
    *rows, last = form.term.links
    classes = rv.ndim - 1
    if last != Link(classes) or classes in {link.axis for link in rows if link is not None}:
        raise NotConjugate(f"child {describe(child)} reorders or mixes its classes")
    return Classes(counts, form)


@dataclass(frozen=True)
class PrecisionMatrix(Conditional):
    """Full conditional of a precision matrix; the observations are vectors minus their means."""

    name = "Wishart"
    residuals: tuple[TensorVariable, ...]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [rv] = self.draws
        nu, scale = parameters(rv)
        root = _inverse(scale.astype(rv.dtype))
        inverse_scale = root.T @ root
        for residual in self.residuals:
            rows = residual.reshape((-1, rv.shape[-1]))
            nu = nu + rows.shape[0]
            inverse_scale += rows.T @ rows
        half = _inverse(cholesky(inverse_scale, lower=True))
        factor = cholesky(half.T @ half, lower=True)
        drawn: Any = WishartRV.rv_op(nu, factor, rng=rng)
        return Draw(drawn.owner.outputs[0], {rv: typed_like(rv, drawn)})


def _inverse(factor: TensorVariable) -> TensorVariable:
    """Inverse of a lower triangular matrix."""
    inverse: Any = solve_triangular(factor, pt.eye(factor.shape[0]), lower=True)
    return inverse


@recognises(1100, "Wishart", {WishartRV}, {MvNormalRV})
def match_wishart(model: pm.Model, rv: TensorVariable) -> PrecisionMatrix:
    """Recognise a Wishart variable that is the precision matrix of its children."""
    require_free(model, rv)
    require_support(model, rv, CholeskyCovTransform)
    if rv.ndim != 2:
        raise NotConjugate("it is an array of matrices; make each a variable of its own")
    residuals = tuple(_residual(model, child, rv) for child in children(model, rv))
    return PrecisionMatrix((rv,), residuals)


def _residual(model: pm.Model, child: TensorVariable, rv: TensorVariable) -> TensorVariable:
    if not is_a(child, MvNormalRV):
        raise NotConjugate(f"child {describe(child)} is {distribution(child)}, not MvNormal")
    mean, covariance = location(child), parameters(child)[1]
    require_given(model, child, "the mean", [mean], {rv})
    precision = inverted(covariance)
    while precision is not None and precision.owner and isinstance(precision.owner.op, DimShuffle):
        precision = precision.owner.inputs[0]
    if precision is None or unwrapped(precision) is not rv:
        raise NotConjugate(f"it is not the precision matrix tau= of child {describe(child)}")
    value = value_of(model, child)
    return (value - mean).astype(rv.dtype)


def _wishart(shape: tuple[int, ...], nu: Array, factor: Array) -> Density:
    """With a lower triangular factor of the scale matrix."""
    n = shape[-1]
    inverse = np.linalg.inv(factor @ factor.T)

    def log_density(x: Array) -> float:
        log_determinant = np.linalg.slogdet(x)[1]
        return float((nu - n - 1) * log_determinant / 2 - np.trace(inverse @ x) / 2)

    def sample(rng: Random, scale: float) -> Array:
        root = np.tril(rng.normal(size=shape), -1) + np.diag(rng.gamma(3.0, size=n))
        matrix: Array = min(scale, 10.0) * root @ root.T
        return matrix

    return Density(log_density, sample)


DENSITIES[WishartRV] = _wishart
