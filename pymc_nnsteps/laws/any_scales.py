r"""Positive numbers under a prior that gives their full conditional no known law.

A number :math:`v` of any density p is moved to :math:`v e^u`. The log density of u is :math:`\log
p(v e^u) + u` and a sum of powers of :math:`e^u`, whose coefficients are computed once. u is stepped
in by :mod:`pymc_nnsteps.random.lattice`: a draw that hardly depends on the present value, where the
children say as much as their numbers promise.

**Scales.** With the children of :mod:`.scales`, the sum is

.. math::

    - \sum_{ci} p_c k_{ci} u - \sum_c e^{-m_c p_c u} \sum_i t_{ci} s_{ci}^{-m_c}.

That of Student-t children is given precisions of their own, as in :mod:`.scales`. Where all
children equal their means exactly, and more draws change them, :math:`v` keeps its value: they
would send it towards zero.

**Factors.** So are numbers moved that multiply a part of what children see linearly, as the
standard deviation of effects does that are written as a product, ``sd * raw[group]`` with
``raw ~ N(0, 1)``. With children :math:`y_c \sim N(o_c + v h_c, \Lambda_c^{-1})` of diagonal
:math:`\Lambda_c`, and logistic ones by their Polya-Gamma variables, the sum is

.. math::

    a v e^u - \tfrac12 b v^2 e^{2u}, \qquad
    a = \sum_c h_c^T \Lambda_c (y_c - o_c), \qquad b = \sum_c h_c^T \Lambda_c h_c.

Steps are of about the width that the children give the logarithm where they put it, at
:math:`a / b`. Where h is zero, as where effects start at zero, :math:`v` keeps its value.

**Orbits,** on which several variables are multiplied by powers of one number. Coordinates
:math:`x_i` of degrees :math:`e_i` go to :math:`T_u x_i = e^{e_i u} x_i`, Gaussian ones about their
means. If u has the density

.. math:: q(u) \propto p(T_u x \mid y) \, e^{u \sum_i e_i},

:math:`T_u x` leaves the posterior invariant (Liu and Sabatti, *Generalised Gibbs sampler and
multigrid Monte Carlo for Bayesian computation*, 2000). What goes along with its scale has a density
that cancels its own part of the Jacobian. Of what is left, priors of scales are evaluated as they
are, and all else is a sum of powers of :math:`e^u` whose coefficients are computed once:

.. math:: \log q(u) = \sum_s [\log p(s e^{e_s u}) + n_s e_s u] + \kappa u + \sum_r c_r e^{r u} .

A child that stays, and whose scale is multiplied by :math:`e^{q u}` (of :mod:`.scales` the order k
and the statistic t), adds :math:`-k q u - t e^{-m q u}`. A Normal child whose mean changes by
:math:`h (e^{e u} - 1)`, of weight w and residual r where that part is left out, adds
:math:`a e^{e u} - \tfrac12 b e^{2 e u}` with :math:`a = h \cdot w r` and :math:`b = h \cdot w h`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import (
    HalfFlatRV,
    RiceRV,
    TruncatedNormalRV,
    WaldRV,
    WeibullBetaRV,
)
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BetaRV, LogNormalRV, ParetoRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.observation import Child
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import distribution, own_support
from pymc_nnsteps.graphs.linear_terms import Term, cut_links
from pymc_nnsteps.graphs.search import children, parameters
from pymc_nnsteps.graphs.values import constant_or_none, typed_like
from pymc_nnsteps.laws.conditional import (
    Conditional,
    Draw,
    Shapes,
    recognises,
    require_free,
    require_support,
)
from pymc_nnsteps.laws.gaussian import OBSERVED, augmented, decides_nothing, observe
from pymc_nnsteps.laws.scales import (
    CHILDREN,
    PRIORS,
    STANDARD_DEVIATIONS,
    Scaled,
    ScaleLaw,
    is_scale,
    may_change,
    scaled_child,
)
from pymc_nnsteps.random.lattice import lattice_step


@dataclass(frozen=True)
class Powers:
    """``order u + sum of coefficient e^(power u)``, of pairs (power, coefficient)."""

    order: TensorVariable | float
    terms: tuple[tuple[float, TensorVariable], ...] = ()

    def __add__(self, other: "Powers") -> "Powers":
        """The sum of both."""
        return Powers(self.order + other.order, self.terms + other.terms)

    def __call__(self, shifts: TensorVariable) -> TensorVariable:
        """The sum at shifts u."""
        each = (coefficient * pt.exp(power * shifts) for power, coefficient in self.terms)
        return reduce(add, each, self.order * shifts)


def of_scaled(seen: Scaled, degree: float) -> Powers:
    """What a child says that stays, of a shift by which its scale moves to the power ``degree``."""
    order, rate = order_and_rate(seen)
    return Powers(-degree * order, ((-seen.role.power * degree, -rate),))


def of_linear(a: TensorVariable, b: TensorVariable, degree: float) -> Powers:
    """What Normal children say of a part of their means that moves to the power ``degree``."""
    return Powers(0.0, ((degree, a), (2 * degree, -b / 2)))


def order_and_rate(seen: Scaled) -> tuple[TensorVariable, TensorVariable]:
    """Sums of the order k, and of the statistic at the present scale, over a child's entries."""
    role, given, zero = seen.role, parameters(seen.child), pt.zeros_like(seen.value)
    order = (role.order(seen.value, *given) + zero).sum()
    rate = (role.statistic(seen.value, *given) * given[role.scale] ** -role.power + zero).sum()
    return order, rate


def log_prior(rv: TensorVariable, shifts: TensorVariable) -> TensorVariable:
    """Log density of the logarithm of a number at shifts from the present one."""
    there = rv * pt.exp(shifts.dimshuffle(0, *["x"] * rv.ndim))
    prior: TensorVariable = pm.logp(rv, there, warn_rvs=False).flatten() + shifts
    return prior


OTHERS = {
    BetaRV,
    HalfFlatRV,
    LogNormalRV,
    MixtureRV,
    ParetoRV,
    RiceRV,
    TruncatedNormalRV,
    TruncatedRV,
    WaldRV,
    WeibullBetaRV,
}
"""Priors of positive numbers that have no law of their own."""


@dataclass(frozen=True)
class AnyNumber(Conditional):
    """Step of the logarithm of a positive number, whatever its prior."""

    name = "step on a lattice"

    def step(
        self, rng: Variable, said: Powers, widest: TensorVariable, stays: TensorVariable
    ) -> Draw:
        """The number after a step, or as it is where it ``stays``, by what children say of it."""
        [rv] = self.draws
        rng, shift = lattice_step(rng, partial(self.log_density, said), widest)
        return Draw(rng, {rv: typed_like(rv, rv * pt.exp(pt.switch(stays, 0.0, shift)))})

    def log_density(self, said: Powers, shifts: TensorVariable) -> TensorVariable:
        """Log density of the logarithm at shifts from the present one, up to a constant."""
        return (log_prior(self.draws[0], shifts) + said(shifts)).astype("float64")


@dataclass(frozen=True)
class AnyScale(AnyNumber, ScaleLaw):
    """Step of a positive scale of children, whatever its prior; it may keep where all are zero."""

    keeps: bool

    @override
    def sums(
        self, rng: Variable, children: Collection[TensorVariable]
    ) -> tuple[Variable, tuple[TensorVariable, ...]]:
        """The order, and for each power of the number what is multiplied by it."""
        [rv] = self.draws
        order, rates = pt.zeros(()), dict.fromkeys(self._powers(), pt.zeros(()))
        for seen in self.scaled:
            if seen.child in children:
                rng, said = seen.evidence(rng, rv, 1)
                order += number_of(said.nu)
                rates[_power(seen)] += number_of(said.delta2 + said.lambda2) / 2
        return rng, (order, *rates.values())

    @override
    def draw_given(self, rng: Variable, shapes: Shapes, sums: Sequence[TensorVariable]) -> Draw:
        [rv], (order, *rates) = self.draws, sums
        powers = list(zip(self._powers(), rates, strict=True))
        above = sum((rate for power, rate in powers if power < 0), pt.zeros(()))
        has_no_law = pt.lt(order, 0) & pt.eq(above, 0) & np.bool_(self.keeps)
        said = Powers(order, tuple((p, -rate * number_of(rv) ** p) for p, rate in powers))
        return self.step(rng, said, 2 / pt.sqrt(1 + abs(order)), has_no_law)

    def _powers(self) -> list[float]:
        return list(dict.fromkeys(_power(seen) for seen in self.scaled))


@dataclass(frozen=True)
class Factor(AnyNumber):
    """Step of a positive number that multiplies a part of what its children see."""

    observations: tuple[Child, ...]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [rv] = self.draws
        a = b = pt.zeros((), dtype="float64")
        for child in self.observations:
            rng, seen = augmented(rng, child)
            part = multiplied_by(rv, seen.terms[0])
            weighted = seen.precision * part + pt.zeros_like(seen.value)
            a += (weighted * seen.residual).sum()
            b += (weighted * part).sum()
        is_free, number = pt.eq(b, 0), number_of(rv)
        widest = 2 / pt.sqrt(1 + pt.sqr(pt.maximum(a, 0)) / pt.switch(is_free, 1, b))
        return self.step(rng, of_linear(a * number, b * number**2, 1.0), widest, is_free)


def _power(seen: Scaled) -> float:
    """Power of the number by which the statistic of a child is multiplied."""
    return float(-seen.form.exponent * seen.role.power)


def number_of(array: TensorVariable) -> TensorVariable:
    """The one entry of an array, in double precision."""
    number: TensorVariable = array.astype("float64").dimshuffle()
    return number


def require_positive(model: pm.Model, rv: TensorVariable) -> None:
    """Check that a variable may take all values of a prior of positive numbers."""
    support = own_support(rv)
    bound = None if support is None or support[0] is None else pt.as_tensor(support[0])
    least = None if bound is None else constant_or_none(bound)
    if support is None or least is None or not np.all(least >= 0):
        raise NotConjugate(f"its prior, {distribution(rv)}, is not known to be positive")
    require_support(model, rv, support)


@recognises(
    1300,
    "step on a lattice, of one number",
    {*OTHERS, *PRIORS, *STANDARD_DEVIATIONS},
    CHILDREN.keys(),
    when=is_scale,
)
def match_any_scale(model: pm.Model, rv: TensorVariable) -> AnyScale:
    """Recognise a positive number that scales its children."""
    require_free(model, rv)
    if not all(rv.type.broadcastable):
        raise NotConjugate(
            f"its prior is {distribution(rv)}; a scale of several entries needs the prior "
            "HalfNormal, HalfCauchy, HalfStudentT, Exponential or Uniform, a Gamma prior of the "
            "precision or rate, or an InverseGamma prior of the variance"
        )
    require_positive(model, rv)
    scaled = tuple(scaled_child(model, child, rv) for child in children(model, rv))
    return AnyScale((rv,), scaled, may_change(model, rv, scaled))


def multiplied_by(rv: TensorVariable, term: Term) -> TensorVariable:
    """What one number multiplies in the mean of a child, with the axes of the child."""
    whole = cut_links(term, range(term.out_ndim), rv).whole().coefficient
    part: TensorVariable = whole.dimshuffle(*range(term.out_ndim))
    return part


@recognises(
    1400,
    "step on a lattice, of one number that multiplies what is seen linearly",
    {*OTHERS, *PRIORS, *STANDARD_DEVIATIONS},
    OBSERVED,
    when=lambda model, rv: (
        bool(children(model, rv)) and not is_scale(model, rv) and decides_nothing(model, rv)
    ),
)
def match_factor(model: pm.Model, rv: TensorVariable) -> Factor:
    """Recognise a positive number in which the means or logits of its children are linear."""
    require_free(model, rv)
    if not all(rv.type.broadcastable):
        raise NotConjugate(
            f"its prior is {distribution(rv)}, and it multiplies the mean of its children; such a "
            "variable must be a scalar: make each entry a variable of its own"
        )
    require_positive(model, rv)
    return Factor((rv,), tuple(observe(model, child, [rv]) for child in children(model, rv)))
