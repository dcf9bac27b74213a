r"""Means of effects moved with the effects, which keep their deviations.

Model, for effects a of groups (or coefficients of inputs) that have means :math:`\mu`, other
coefficients :math:`\beta` (an intercept, weights of a layer), and all children y of both:

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
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import override

import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import affine
from pymc_nnsteps.graphs.centred import Deviations
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.linear_terms import Term
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import children, parameters, stated_in
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes, normal_prior, require_given
from pymc_nnsteps.laws.gaussian import Gaussian, gaussian_of, observe
from pymc_nnsteps.moves.contract import Context, at_the_end, proposes
from pymc_nnsteps.moves.replacement import Proposals


@dataclass(frozen=True)
class Shift(Conditional):
    """Means of effects drawn with other coefficients, the effects' deviations kept.

    Attributes
    ----------
    block : Gaussian
        The means and the coefficients.
    deviations : Deviations
        Those of the effects.
    """

    draws: tuple[TensorVariable, ...]
    block: Gaussian
    deviations: Deviations
    supplements: bool = True

    @property
    @override
    def name(self) -> str:
        return self.block.name

    @override
    def also(self, rv: TensorVariable) -> list[str]:
        if rv in self.deviations.means:
            return ["shifted with its mean"]
        others = [other for other in self.block.draws if other is not rv]
        jointly = f"jointly with {', '.join(map(describe, others))} " if others else ""
        return [f"also {jointly}where {', '.join(map(describe, self.deviations.means))} is shifted"]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        drawn = self.block.draw(rng, shapes)
        return Draw(drawn.rng, {**drawn.values, **self.deviations.values(drawn.values)})


@proposes(priority=800)
def propose_shifts(context: Context) -> Proposals:
    """Propose to shift effects with their means when all else has been drawn."""
    if not context.options.rays or not context.sweep:
        return Proposals()
    return at_the_end(context, _shifts(context))


def _shifts(context: Context) -> Iterator[Shift]:
    """One for all means of effects that the same responses see; those of means come after."""
    model = context.model
    latent = {rv for drawn in context.sweep for rv in drawn.integrates_out}
    blocks = [block for block in context.blocks if isinstance(block, Gaussian)]
    coefficients = [rv for block in blocks for rv in block.draws if rv not in latent]
    effects = {rv for block in blocks for rv in _effects(model, block) if rv not in latent}
    shifted: set[TensorVariable] = set()
    for mean in reversed(coefficients):
        if mean in shifted or effects.isdisjoint(children(model, mean)):
            continue
        try:
            shift = shift_of(model, [mean], effects)
        except NotConjugate:
            continue
        for rv in coefficients:
            if rv not in shift.draws:
                with contextlib.suppress(NotConjugate):
                    shift = shift_of(model, [*shift.block.draws, rv], effects)
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
            _picks(seen.terms[i])
            or (_sums(seen.terms[i]) and _have_one_mean(model, rv, seen.terms[i]))
            for seen in block.observations
        )
    ]


def _picks(term: Term) -> bool:
    return any(link is not None and link.index is not None for link in term.links)


def _sums(term: Term) -> bool:
    return len(term.linked_axes) < term.rv_ndim


def _have_one_mean(model: pm.Model, rv: TensorVariable, term: Term) -> bool:
    """Whether all entries of a sum have the same mean: of all sums, or an entry of a variable.

    Rows of a layer may have a mean each that is an entry of the layer below, but these are sums
    themselves, and other moves take them along.
    """
    mean = parameters(rv)[0]
    varying = [axis for axis, one in enumerate(mean.type.broadcastable) if not one]
    if not term.linked_axes.issuperset(varying):
        return False
    return not varying or any(
        _carries(mean, mu, varying) and _is_stated(model, mu)
        for mu in stated_in([mean], model.free_RVs)
    )


def _carries(mean: TensorVariable, mu: TensorVariable, axes: Collection[int]) -> bool:
    """Whether axes of a mean are axes of a variable, entry by entry."""
    try:
        links = affine(mean, {mu}).terms[mu].links
    except NotConjugate:
        return False
    return all(links[axis] is not None for axis in axes)


def _is_stated(model: pm.Model, mu: TensorVariable) -> bool:
    """Whether the mean of a variable is the same for all entries, or depends on no variable."""
    mean = parameters(mu)[0]
    return all(mean.type.broadcastable) or not stated_in([mean], model.free_RVs)


def shift_of(
    model: pm.Model, rvs: Sequence[TensorVariable], effects: Collection[TensorVariable]
) -> Shift:
    """The joint draw of variables that shifts the effects whose means they are."""
    moved: list[TensorVariable] = []
    below: set[TensorVariable] = set()
    for rv in model.free_RVs:
        if rv in effects and any(rv in children(model, mean) for mean in [*rvs, *moved]):
            moved.append(rv)
    deviations = Deviations()
    for rv in moved:
        mean, _ = normal_prior(model, rv)
        require_given(model, rv, "the scale", parameters(rv)[1:], [*rvs, *moved])
        deviations = deviations.of(rv, mean)
    for rv in [*rvs, *moved]:
        below.update(child for child in children(model, rv) if child not in moved)
    observations = [
        observe(model, child, rvs, deviations) for child in model.basic_RVs if child in below
    ]
    return Shift((*rvs, *moved), gaussian_of(model, rvs, observations), deviations)
