r"""Positive numbers under a prior that gives their full conditional no known law.

A number :math:`v` of any density p is moved to :math:`v e^u`. The log density of u is
:math:`\log p(v e^u) + u` and, by :mod:`.orbits`, a sum of powers of :math:`e^u`, whose coefficients
are computed once. u is stepped in by :mod:`pymc_nnsteps.random.lattice`: a draw that hardly depends
on the present value, where the children say as much as their numbers promise.

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
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
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
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.graphs.values import constant_or_none, typed_like
from pymc_nnsteps.laws.augmentation import augmented
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes, require_free, require_support
from pymc_nnsteps.laws.gaussian import OBSERVED, decides_nothing, observe
from pymc_nnsteps.laws.orbits import Powers, log_prior, of_linear
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
from pymc_nnsteps.laws.table import recognises
from pymc_nnsteps.random.lattice import lattice_step

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
    """Step of a positive number that scales its children, whatever its prior.

    If it ``keeps``, it keeps its value where all children are zero, as more draws change them.
    """

    keeps: bool

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        rng, said = self.sums(rng, [seen.child for seen in self.scaled])
        return self.draw_given(rng, shapes, said)

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
        raise NotConjugate(f"its prior is {distribution(rv)} and not known to be positive")
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
            f"its prior is {distribution(rv)}; a scale of several entries is drawn where its own "
            "prior is HalfNormal, HalfCauchy, HalfStudentT, Exponential or Uniform, that of the "
            "precision or rate Gamma, or of the variance InverseGamma"
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
            f"its prior is {distribution(rv)} and it multiplies what is seen; it has several "
            "entries, where one number has a law: name each of them"
        )
    require_positive(model, rv)
    return Factor((rv,), tuple(observe(model, child, [rv]) for child in children(model, rv)))
