r"""Shares of classes, with a Dirichlet prior.

Model, for a vector :math:`p` of shares, classes :math:`y_i` and counts :math:`n_j` of them:

.. math::

    p \sim \text{Dirichlet}(a), \qquad y_i \sim \text{Categorical}(p), \qquad
    n_j \sim \text{Multinomial}(N_j, p)

Posterior: :math:`\text{Dirichlet}(a_k + \sum_i 1[y_i = k] + \sum_j n_{jk})`.
"""

from dataclasses import dataclass
from typing import override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import SimplexTransform
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import CategoricalRV, DirichletRV, MultinomialRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate, declined_as
from pymc_nnsteps.graphs.known import is_a
from pymc_nnsteps.graphs.lengths import lengths
from pymc_nnsteps.graphs.linear_terms import Link
from pymc_nnsteps.graphs.monomial import Monomial
from pymc_nnsteps.graphs.names import describe, distribution
from pymc_nnsteps.graphs.search import children, parameters
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.laws.conditional import (
    Conditional,
    Draw,
    Shapes,
    require_free,
    require_given,
    require_support,
    value_of,
)
from pymc_nnsteps.laws.entries import selected, summed
from pymc_nnsteps.laws.table import recognises


@dataclass(frozen=True)
class Classes:
    """Counts of each class, with the axis of classes last, and the shares behind them."""

    counts: TensorVariable
    form: Monomial


@dataclass(frozen=True)
class Shares(Conditional):
    """Full conditional of vectors of shares."""

    draws: tuple[TensorVariable, ...]
    seen: tuple[Classes, ...]

    @property
    @override
    def name(self) -> str:
        return "Dirichlet"

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
    return Shares((rv,), tuple(_read(model, child, rv) for child in children(model, rv)))


def _read(model: pm.Model, child: TensorVariable, rv: TensorVariable) -> Classes:
    if not is_a(child, CategoricalRV, MultinomialRV):
        raise NotConjugate(
            f"child {describe(child)} is {distribution(child)}, neither classes nor their counts"
        )
    *others, shares = parameters(child)
    require_given(model, child, "more than the shares", others, {rv})
    counts = value_of(model, child)
    if is_a(child, CategoricalRV):
        counts = pt.eq(counts[..., None], pt.arange(shares.shape[-1]))
    with declined_as(f"the shares of child {describe(child)} are not its own"):
        form = selected(shares, rv, model.basic_RVs, counts)
    *rows, last = form.term.links
    classes = rv.ndim - 1
    if last != Link(classes) or classes in {link.axis for link in rows if link is not None}:
        raise NotConjugate(f"child {describe(child)} does not see its classes as they are")
    return Classes(counts, form)
