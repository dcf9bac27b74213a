r"""Scales under a prior that gives their full conditional no known law.

Model, with the children of :mod:`.scales` and a positive number :math:`v` of any density p: at
:math:`v e^u` the log density of u is, up to a constant,

.. math::

    \log p(v e^u) + \Bigl(1 - \sum_{ci} p_c k_{ci}\Bigr) u
    - \sum_c e^{-m_c p_c u} \sum_i t_{ci} s_{ci}^{-m_c}.

The sums are taken once, and u is stepped in by :mod:`pymc_nnsteps.random.lattice`: a draw that
hardly depends on the present value, where the children say as much as their numbers promise. That
of Student-t children is given precisions of their own, as in :mod:`.scales`.

Where all children equal their means exactly, and more draws change them, :math:`v` keeps its value:
they would send it towards zero.
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

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import own_support
from pymc_nnsteps.graphs.names import distribution
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.graphs.values import constant_or_none, typed_like
from pymc_nnsteps.laws.conditional import Draw, Shapes, require_free, require_support
from pymc_nnsteps.laws.scale_priors import PRIORS, STANDARD_DEVIATIONS
from pymc_nnsteps.laws.scales import CHILDREN, Scaled, ScaleLaw, is_scale, may_change, scaled_child
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
class AnyScale(ScaleLaw):
    """Step of a positive number that scales its children, whatever its prior.

    If it ``keeps``, it keeps its value where all children are zero, as more draws change them.
    """

    name = "step on a lattice"
    draws: tuple[TensorVariable, ...]
    scaled: tuple[Scaled, ...]
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
        widest = 2 / pt.sqrt(1 + abs(order))
        rng, shift = lattice_step(rng, partial(self.log_density, sums), widest)
        if self.keeps:
            above = [r for r, power in zip(rates, self._powers(), strict=True) if power < 0]
            has_no_law = pt.lt(order, 0) & pt.eq(sum(above, pt.zeros(())), 0)
            shift = pt.switch(has_no_law, 0.0, shift)
        return Draw(rng, {rv: typed_like(rv, rv * pt.exp(shift))})

    def log_density(self, sums: Sequence[TensorVariable], shifts: TensorVariable) -> TensorVariable:
        """Log density of the logarithm at shifts from the present one, up to a constant."""
        [rv], (order, *rates) = self.draws, sums
        number = number_of(rv)
        there = (number * pt.exp(shifts)).dimshuffle(0, *["x"] * rv.ndim)
        total = pm.logp(rv, there, warn_rvs=False).flatten() + (1 + order) * shifts
        for rate, power in zip(rates, self._powers(), strict=True):
            total -= rate * number**power * pt.exp(power * shifts)
        return total.astype("float64")

    def _powers(self) -> list[float]:
        return list(dict.fromkeys(_power(seen) for seen in self.scaled))


def _power(seen: Scaled) -> float:
    """Power of the number by which the statistic of a child is multiplied."""
    return float(-seen.form.exponent * seen.role.power)


def number_of(array: TensorVariable) -> TensorVariable:
    """The one entry of an array, in double precision."""
    number: TensorVariable = array.astype("float64").dimshuffle()
    return number


def _is_at_least_zero(bound: TensorVariable) -> bool:
    least = constant_or_none(bound)
    return least is not None and bool(np.all(least >= 0))


def require_positive(model: pm.Model, rv: TensorVariable) -> None:
    """Check that a variable may take all values of a prior of positive numbers."""
    support = own_support(rv)
    least = None if support is None or support[0] is None else pt.as_tensor(support[0])
    if support is None or least is None or not _is_at_least_zero(least):
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
