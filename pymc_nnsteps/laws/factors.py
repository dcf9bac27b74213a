r"""Positive numbers that multiply a part of what children see linearly.

So does the standard deviation of effects that are written as a product, ``sd * raw[group]`` with
``raw ~ N(0, 1)``. Model, for a positive number :math:`v` of any density p and each child c:

.. math:: y_c \sim N(o_c + v h_c, \Lambda_c^{-1})

with diagonal :math:`\Lambda_c`; logistic children enter by their Polya-Gamma variables. At
:math:`v e^u` the log density of u is, up to a constant,

.. math::

    \log p(v e^u) + u + a v e^u - \tfrac12 b v^2 e^{2u}, \qquad
    a = \sum_c h_c^T \Lambda_c (y_c - o_c), \qquad b = \sum_c h_c^T \Lambda_c h_c.

The sums are taken once, and u is stepped in by :mod:`pymc_nnsteps.random.lattice`, in steps of
about the width that the children give the logarithm where they put it, at :math:`a / b`. Where h
is zero, as where effects start at zero, :math:`v` keeps its value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import override

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.observation import Child
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.linear_terms import Term, cut_links
from pymc_nnsteps.graphs.names import distribution
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.laws.any_scales import OTHERS, number_of, require_positive
from pymc_nnsteps.laws.augmentation import augmented
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes, require_free
from pymc_nnsteps.laws.gaussian import OBSERVED, decides_nothing, observe
from pymc_nnsteps.laws.scale_priors import PRIORS, STANDARD_DEVIATIONS
from pymc_nnsteps.laws.scales import is_scale
from pymc_nnsteps.laws.table import recognises
from pymc_nnsteps.random.lattice import lattice_step


@dataclass(frozen=True)
class Factor(Conditional):
    """Step of a positive number that multiplies a part of what its children see."""

    name = "step on a lattice"
    draws: tuple[TensorVariable, ...]
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
        is_free = pt.eq(b, 0)
        widest = 2 / pt.sqrt(1 + pt.sqr(pt.maximum(a, 0)) / pt.switch(is_free, 1, b))
        rng, shift = lattice_step(rng, partial(self.log_density, (a, b)), widest)
        shift = pt.switch(is_free, 0.0, shift)
        return Draw(rng, {rv: typed_like(rv, rv * pt.exp(shift))})

    def log_density(self, sums: Sequence[TensorVariable], shifts: TensorVariable) -> TensorVariable:
        """Log density of the logarithm at shifts from the present one, up to a constant."""
        [rv], (a, b) = self.draws, sums
        there = number_of(rv) * pt.exp(shifts)
        prior = pm.logp(rv, there.dimshuffle(0, *["x"] * rv.ndim), warn_rvs=False).flatten()
        total: TensorVariable = prior + shifts + a * there - b * pt.sqr(there) / 2
        return total.astype("float64")


def multiplied_by(rv: TensorVariable, term: Term) -> TensorVariable:
    """What one number multiplies in the mean of a child, with the axes of the child."""
    whole = cut_links(term, range(term.out_ndim), rv).whole().coefficient
    part: TensorVariable = whole.dimshuffle(*range(term.out_ndim))
    return part


def _multiplies(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether a variable is seen, and not as a scale or by decisions."""
    return bool(children(model, rv)) and not is_scale(model, rv) and decides_nothing(model, rv)


@recognises(
    1400,
    "step on a lattice, of one number that multiplies what is seen linearly",
    {*OTHERS, *PRIORS, *STANDARD_DEVIATIONS},
    OBSERVED,
    when=_multiplies,
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
