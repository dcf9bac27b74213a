r"""Scales: precisions, variances and their hyperparameters.

Model, for a positive variable :math:`v` with a prior of the generalised inverse Gaussian family
(Gamma, inverse Gamma and exponential included) and each child :math:`z_c`:

.. math::

    p(v) \propto v^{\nu - 1} \exp\left(-\tfrac12 (\delta^2/v + \lambda^2 v)\right), \qquad
    p(z_{ci} \mid v) \propto s_{ci}^{-k_{ci}} \exp(-t_{ci} s_{ci}^{-m_c}), \quad
    s_{ci} = a_{ci} v^{p_c}

with :math:`m_c p_c = \pm 1`. For a Normal child :math:`s` is its standard deviation,
:math:`k = 1`, :math:`t = (z - \mu)^2/2` and :math:`m = 2`; for a Gamma child of shape
:math:`\alpha` it is :math:`1/\text{rate}`, :math:`k = \alpha`, :math:`t = z`, :math:`m = 1`.
Posterior: a generalised inverse Gaussian (of a standard deviation: its square; under a uniform
prior: between the bounds) with

.. math::

    \nu - \sum_{ci} p_c k_{ci}, \qquad
    \delta^2 + 2 \sum_{m_c p_c = 1} t_{ci} a_{ci}^{-m_c}, \qquad
    \lambda^2 + 2 \sum_{m_c p_c = -1} t_{ci} a_{ci}^{-m_c}.

A Student-t child is a Normal child whose precision :math:`s^{-2}` is multiplied by its own
:math:`\lambda_{ci} \sim \text{Gamma}(\alpha/2, \alpha/2)`. :math:`\lambda_{ci}` is drawn first,
given :math:`v`, and forgotten afterwards:

.. math::

    \lambda_{ci} \sim \text{Gamma}\left(\tfrac12(\alpha + 1),
                                        \tfrac12(\alpha + (z - \mu)^2/s^2)\right), \qquad
    t = \lambda_{ci} (z - \mu)^2/2.

Half Student-t, half-Cauchy and exponential priors of standard deviations are mixtures. Their
auxiliary variable :math:`a` is drawn first and forgotten as well (Wand et al., *Mean field
variational Bayes for elaborate distributions*, 2011; Andrews and Mallows, 1974):

.. math::

    v^2 \mid a \sim \text{InvGamma}\left(\tfrac{\nu}{2}, \tfrac{\nu}{a}\right), \;
    a \sim \text{InvGamma}\left(\tfrac12, \tfrac{1}{\sigma^2}\right)
    \;\Rightarrow\; v \sim t^+_\nu(\sigma), \qquad
    v \mid a \sim N^+(0, a), \; a \sim \text{Exp}\left(\tfrac{\lambda^2}{2}\right)
    \;\Rightarrow\; v \sim \text{Exp}(\lambda).

Where all children equal their means exactly, as weights that start at zero do, the posterior may
be improper: for a half-Normal standard deviation it would be :math:`v^{-n} e^{-v^2/2}`, which has
no integral. If draws of other variables will change the children, :math:`v` keeps its value until
then. After the start this event has probability zero, so the posterior is left invariant.

These are Neal's conditionals of precisions (*Neural Network Models Implemented in the Flexible
Bayesian Modelling Software*, eqs 27-31), drawn exactly for all shapes, and the conditionals of
global and local scales of shrinkage priors.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import HalfCauchyRV, HalfStudentTRV, WeibullBetaRV
from pymc.distributions.multivariate import ZeroSumNormalRV
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import (
    ExponentialRV,
    GammaRV,
    HalfNormalRV,
    InvGammaRV,
    LaplaceRV,
    LogNormalRV,
    NormalRV,
    PoissonRV,
    StudentTRV,
    UniformRV,
)
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate, declined_as
from pymc_nnsteps.graphs.known import POSITIVE, describe, distribution, kind_of
from pymc_nnsteps.graphs.linear_terms import Link
from pymc_nnsteps.graphs.monomial import Monomial
from pymc_nnsteps.graphs.search import children, depends_on, parameters
from pymc_nnsteps.graphs.shapes import lengths
from pymc_nnsteps.graphs.values import constant_or_none, scalar_constant, typed_like
from pymc_nnsteps.laws.conditional import (
    Additive,
    Draw,
    Shapes,
    carried,
    recognises,
    require_free,
    require_given,
    require_support,
    summed,
    value_of,
)
from pymc_nnsteps.random.generalized_inverse_gaussian import (
    GeneralizedInverseGaussianRV,
    generalized_inverse_gaussian,
    truncated_generalized_inverse_gaussian,
)


@dataclass(frozen=True)
class Exponents:
    """``nu``, ``delta^2`` and ``lambda^2`` of a generalised inverse Gaussian."""

    nu: TensorVariable
    delta2: TensorVariable
    lambda2: TensorVariable

    def __add__(self, other: "Exponents") -> "Exponents":
        """Exponents of the product of two densities."""
        return Exponents(
            self.nu + other.nu, self.delta2 + other.delta2, self.lambda2 + other.lambda2
        )


def exponents(nu: Any = 0.0, delta2: Any = 0.0, lambda2: Any = 0.0) -> Exponents:
    """Exponents, zero where they are not given."""
    return Exponents(*(pt.as_tensor(part) for part in (nu, delta2, lambda2)))


PRIORS: dict[type, Callable[..., Exponents]] = {
    GammaRV: lambda shape, scale: exponents(shape, lambda2=2 / scale),
    ExponentialRV: lambda scale: exponents(pt.ones_like(scale), lambda2=2 / scale),
    InvGammaRV: lambda shape, scale: exponents(-shape, delta2=2 * scale),
    GeneralizedInverseGaussianRV: exponents,
}
"""Exponents of the recognised priors, as functions of the parameters of their Ops."""

SQUARES: dict[type, Callable[..., Exponents]] = {
    HalfNormalRV: lambda loc, sigma: exponents(0.5, lambda2=pt.reciprocal(pt.sqr(sigma)))
}
"""Exponents of the squares of variables, where only the square is generalised inverse Gaussian."""


@dataclass(frozen=True)
class ScaleMixture:
    """A prior whose square is generalised inverse Gaussian given an auxiliary variable.

    ``auxiliary`` has the exponents of that given the variable, ``square`` those of the square.
    """

    auxiliary: Callable[..., Exponents]
    square: Callable[..., Exponents]


def _inverse_gamma_mixture(nu: Any, v: TensorVariable, sigma: TensorVariable) -> Exponents:
    return exponents(-(nu + 1) / 2, delta2=2 * (nu / pt.sqr(v) + pt.reciprocal(pt.sqr(sigma))))


MIXTURES: dict[type, ScaleMixture] = {
    HalfStudentTRV: ScaleMixture(
        lambda v, nu, sigma: _inverse_gamma_mixture(nu, v, sigma),
        lambda a, nu, sigma: exponents(-nu / 2, delta2=2 * nu / a),
    ),
    HalfCauchyRV: ScaleMixture(
        lambda v, sigma: _inverse_gamma_mixture(1.0, v, sigma),
        lambda a, sigma: exponents(-0.5, delta2=2 / a),
    ),
    ExponentialRV: ScaleMixture(
        lambda v, scale: exponents(0.5, pt.sqr(v), pt.reciprocal(pt.sqr(scale))),
        lambda a, scale: exponents(0.5, lambda2=pt.reciprocal(a)),
    ),
}
"""Priors of standard deviations that are mixtures."""

BOUNDED = {UniformRV}
"""Priors that are constant between their two parameters."""

STANDARD_DEVIATIONS = (*SQUARES, *MIXTURES, *BOUNDED)


@dataclass(frozen=True)
class Role:
    """How a child's density ``s^-k exp(-t s^-m)`` depends on its scale ``s``."""

    scale: int  # position of ``s`` among the parameters
    power: float  # ``m``
    # ``k`` and ``t`` as functions of the child's value and its parameters.
    order: Callable[..., TensorVariable]
    statistic: Callable[..., TensorVariable]
    # Exponents of the full conditional of the child's own precision, which multiplies ``t``, as a
    # function of the child's value and its parameters.
    mixing: Callable[..., Exponents] | None = None
    # Position of a parameter that replaces ``m``; it has to be a known constant.
    shape: int | None = None


def _ones(z: TensorVariable, *parameters: TensorVariable) -> TensorVariable:
    return pt.ones_like(z)


def _half_square(z: TensorVariable, mu: TensorVariable, s: TensorVariable) -> TensorVariable:
    return pt.sqr(z - mu) / 2


def _free_share(z: TensorVariable, s: TensorVariable, lengths: TensorVariable) -> TensorVariable:
    """Number of free entries, those along each axis fixed by a sum less one, over that of all."""
    return pt.ones_like(z) * pt.prod((lengths - 1) / lengths)


def _precision_of_case(
    z: TensorVariable, alpha: TensorVariable, mu: TensorVariable, s: TensorVariable
) -> Exponents:
    return exponents((alpha + 1) / 2, lambda2=alpha + pt.sqr((z - mu) / s))


CHILDREN: dict[type, Role] = {
    NormalRV: Role(1, 2, _ones, _half_square),
    HalfNormalRV: Role(1, 2, _ones, _half_square),
    ZeroSumNormalRV: Role(0, 2, _free_share, lambda z, s, lengths: pt.sqr(z) / 2),
    StudentTRV: Role(
        2, 2, _ones, lambda z, alpha, mu, s: _half_square(z, mu, s), _precision_of_case
    ),
    LogNormalRV: Role(1, 2, _ones, lambda z, mu, s: _half_square(pt.log(z), mu, s)),
    LaplaceRV: Role(1, 1, _ones, lambda z, mu, s: abs(z - mu)),
    GammaRV: Role(1, 1, lambda z, shape, s: shape, lambda z, shape, s: z),
    ExponentialRV: Role(0, 1, _ones, lambda z, s: z),
    PoissonRV: Role(0, -1, lambda z, mean: -z, _ones),
    WeibullBetaRV: Role(1, 1, lambda z, shape, s: shape, lambda z, shape, s: z**shape, shape=0),
    InvGammaRV: Role(1, -1, lambda z, shape, s: -shape, lambda z, shape, s: 1 / z),
}
"""Roles of scales by the Op of the child; the scale of a Poisson variable is its mean."""


@dataclass(frozen=True)
class Scaled:
    """A child whose scale is a power of the variable."""

    child: TensorVariable
    value: TensorVariable
    role: Role
    form: Monomial

    @property
    def scales_all(self) -> bool:
        """Whether all entries of the child have the scale, and none a precision of its own."""
        return self.form.where is None and self.role.mixing is None

    def evidence(self, rng: Variable, rv: TensorVariable, root: int) -> tuple[Variable, Exponents]:
        """Add to the exponents of ``rv**root``; the child's own precision is drawn first."""
        given = [parameter.astype(rv.dtype) for parameter in parameters(self.child)]
        rate = self.form.exponent * self.role.power
        order = self.role.order(self.value, *given)
        statistic = self.role.statistic(self.value, *given)
        if self.role.mixing is not None:
            rng, precision = _draw(rng, self.role.mixing(self.value, *given), rv.dtype)
            statistic = precision * statistic
        coefficient = self.form.term.coefficient
        coefficient = coefficient.dimshuffle(*range(coefficient.ndim - rv.ndim))
        statistic = 2 * statistic * coefficient ** float(-self.role.power)
        nu = summed(-self.form.exponent / root * order, self.form, rv, self.value)
        squares = summed(statistic, self.form, rv, self.value)
        zero = pt.zeros_like(squares)
        return rng, Exponents(nu, squares, zero) if rate > 0 else Exponents(nu, zero, squares)


@dataclass(frozen=True)
class ScaleLaw(Additive):
    """Full conditional of a positive variable that scales its children."""

    scaled: tuple[Scaled, ...]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        children = [seen.child for seen in self.scaled]
        rng, sums = self.sums(rng, children) if children else (rng, ())
        return self.draw_given(rng, shapes, sums)

    @override
    def link(self, child: TensorVariable, axis: int) -> Link | None:
        [seen] = [seen for seen in self.scaled if seen.child is child]
        return seen.form.term.links[axis]


@dataclass(frozen=True)
class Scale(ScaleLaw):
    """Full conditional of a scale that is generalised inverse Gaussian."""

    root: int  # power of the variable that is generalised inverse Gaussian
    # Exponents of the prior of that power; for a mixture, those beside the mixture.
    prior: Exponents
    mixture: ScaleMixture | None = None
    bounds: tuple[TensorVariable, TensorVariable] | None = None
    # Whether the variable keeps its value where its law is improper, as where all children are
    # zero. The children or their means have to be drawn as well.
    keeps: bool = False

    @property
    @override
    def name(self) -> str:
        name = "generalised inverse Gaussian"
        name = name if self.bounds is None else f"truncated {name}"
        name = name if self.root == 1 else f"root of a {name}"
        return name if self.mixture is None else f"{name}, by a mixture"

    @override
    def sums(
        self, rng: Variable, children: Collection[TensorVariable]
    ) -> tuple[Variable, tuple[TensorVariable, ...]]:
        each = []
        for seen in self.scaled:
            if seen.child in children:
                rng, evidence = seen.evidence(rng, self.draws[0], self.root)
                each.append(evidence)
        said = reduce(add, each)
        return rng, (said.nu, said.delta2, said.lambda2)

    @override
    def draw_given(self, rng: Variable, shapes: Shapes, sums: Sequence[TensorVariable]) -> Draw:
        [rv], total = self.draws, self.prior
        if sums:
            total += Exponents(*sums)
        if self.mixture is not None:
            given = [parameter.astype(rv.dtype) for parameter in parameters(rv)]
            rng, auxiliary = _draw(rng, self.mixture.auxiliary(rv, *given), rv.dtype)
            total += self.mixture.square(auxiliary, *given)
        nu = pt.broadcast_to(total.nu, lengths(rv)) if rv.ndim else total.nu
        total = Exponents(nu, total.delta2, total.lambda2)
        if self.bounds is None:
            rng, value = _draw(rng, total, rv.dtype)
        else:
            bounds = [bound.astype(rv.dtype) ** self.root for bound in self.bounds]
            rng, value = truncated_generalized_inverse_gaussian(
                rng, nu.astype(rv.dtype), total.delta2, total.lambda2, *bounds
            )
        value = value if self.root == 1 else pt.sqrt(value)
        if self.keeps:
            value = pt.switch(self._has_no_law(total), rv, value)
        return Draw(rng, {rv: typed_like(rv, value)})

    def _has_no_law(self, total: Exponents) -> TensorVariable:
        """Whether the density has no integral, at zero or at infinity."""
        at_zero = pt.eq(total.delta2, 0) & pt.le(total.nu, 0)
        if self.bounds is not None:
            return at_zero & pt.eq(self.bounds[0], 0)
        return at_zero | (pt.eq(total.lambda2, 0) & pt.ge(total.nu, 0))


def _draw(rng: Variable, law: Exponents, dtype: str) -> tuple[Variable, TensorVariable]:
    return generalized_inverse_gaussian(rng, law.nu.astype(dtype), law.delta2, law.lambda2)


def is_scale(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether the scale of a child depends on ``rv``."""
    return any(
        (role := CHILDREN.get(kind_of(child))) is not None
        and depends_on(parameters(child)[role.scale], {rv}, model.basic_RVs)
        for child in children(model, rv)
    )


@recognises(
    300,
    "root of a generalised inverse Gaussian, truncated at the prior's bounds",
    STANDARD_DEVIATIONS,
    CHILDREN.keys(),
    when=is_scale,
)
@recognises(200, "generalised inverse Gaussian", PRIORS.keys(), CHILDREN.keys())
def match_scale(model: pm.Model, rv: TensorVariable) -> Scale:
    """Recognise a positive variable that scales its children."""
    require_free(model, rv)
    op = kind_of(rv)
    given = [parameter.astype(rv.dtype) for parameter in parameters(rv)]
    if op is HalfNormalRV and scalar_constant(given[0]) != 0:
        raise NotConjugate("the support of its prior does not start at zero")
    require_support(model, rv, _bounds(rv) if op in BOUNDED else POSITIVE)
    scaled = tuple(scaled_child(model, child, rv) for child in children(model, rv))
    root = _root(rv, scaled)
    law = Scale((rv,), scaled, root, exponents(), keeps=may_change(model, rv, scaled))
    if op in BOUNDED:
        bounds = _bounds(rv)
        if (least := constant_or_none(bounds[0])) is None or np.any(least < 0):
            raise NotConjugate("its prior, Uniform, is not known to be positive")
        return replace(law, prior=exponents(1 / root), bounds=bounds)
    if root == 1:
        return replace(law, prior=PRIORS[op](*given))
    if op in MIXTURES:
        return replace(law, mixture=MIXTURES[op])
    return replace(law, prior=SQUARES[op](*given))


def _bounds(rv: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    lower, upper = parameters(rv)
    return lower, upper


def may_change(model: pm.Model, rv: TensorVariable, scaled: Sequence[Scaled]) -> bool:
    """Whether other draws change a child of a variable or the child's location."""
    others = set(model.free_RVs) - {rv}
    return any(
        seen.child in others
        or any(
            depends_on(parameter, others, model.basic_RVs)
            for i, parameter in enumerate(parameters(seen.child))
            if i != seen.role.scale
        )
        for seen in scaled
    )


def _root(rv: TensorVariable, scaled: Sequence[Scaled]) -> int:
    """Power of a variable that its children require, if the prior has a law for it."""
    op = kind_of(rv)
    known = [1] if op in PRIORS or op in BOUNDED else []
    known += [2] if op in STANDARD_DEVIATIONS else []
    asked = [abs(seen.form.exponent * seen.role.power) for seen in scaled]
    for root in known:
        if all(math.isclose(power, root, rel_tol=1e-9) for power in asked):
            return root
    for seen, power in zip(scaled, asked, strict=True):
        if not any(math.isclose(power, root, rel_tol=1e-9) for root in known):
            raise NotConjugate(
                f"its prior is {distribution(rv)}, for which no conditional is known where the "
                f"scale of child {describe(seen.child)} is proportional to its power "
                f"{seen.form.exponent:g}"
            )
    raise NotConjugate(
        "it enters the scales of its children with different powers: "
        f"{', '.join(describe(seen.child) for seen in scaled)}"
    )


def scaled_child(model: pm.Model, child: TensorVariable, rv: TensorVariable) -> Scaled:
    """Recognise how the scale of a child depends on a positive variable."""
    role = CHILDREN.get(kind_of(child))
    if role is None:
        raise NotConjugate(
            f"child {describe(child)} is {distribution(child)}, without a known scale"
        )
    given = parameters(child)
    scale = given[role.scale]
    others = [other for i, other in enumerate(given) if i != role.scale]
    require_given(model, child, "a parameter other than the scale", others, {rv})
    with declined_as(f"the scale of child {describe(child)} is not a power of it"):
        form = carried(scale, rv, model.basic_RVs, child)
    if role.shape is not None:
        power = scalar_constant(given[role.shape])
        if power is None:
            raise NotConjugate(f"the shape of child {describe(child)} is not one known number")
        role = replace(role, power=power)
    return Scaled(child, value_of(model, child), role, form)
