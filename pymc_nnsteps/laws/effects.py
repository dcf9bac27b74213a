r"""Joint draw of effects of groups and all other terms that enter a response linearly.

Model, for effects :math:`a` (intercepts and slopes) of groups :math:`g(n)`, of one or several
kinds of groups, and coefficients :math:`\beta` (of inputs, of activations, an intercept):

.. math::

    a, \beta \sim N(\mu_0, \Lambda^{-1}), \qquad
    y_n \sim N(z_n \cdot a_{g(n)} + x_n \cdot \beta + o_n, 1 / w_n)

with diagonal :math:`\Lambda`.
With several kinds of groups (crossed, nested), the kind with the most groups is eliminated
(:mod:`pymc_nnsteps.gaussian.groups`): its effects are independent given the rest. The other kinds
count as coefficients. Logistic children enter by their Polya-Gamma variables
(:mod:`.gaussian`).

Effects of one law that enter by their differences from their mean, :math:`a_g - \bar a`, are two
independent parts: the differences, drawn as above given that they sum to zero, and :math:`\bar a`,
drawn from its prior :math:`N(\mu_0, 1 / (G \Lambda))` because no child tells of it.
``pm.ZeroSumNormal`` is the first part alone (:mod:`.gaussian`). Matrices have such sums along one
axis or several. What sums to zero within a group is drawn by coordinates
(:mod:`pymc_nnsteps.gaussian.layout`). Sums over groups are conditioned on after the draw
(:mod:`pymc_nnsteps.gaussian.factor`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import mul
from typing import Any, override

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import ZeroSumNormalRV
from pytensor.graph.basic import Variable, equal_computations
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.ops import refuse_lost
from pymc_nnsteps.gaussian.factor import (
    Entries,
    draw_from_factor,
    given_zero_sums,
    sums_over,
    unless_rounding,
)
from pymc_nnsteps.gaussian.groups import (
    ChildLikelihood,
    CommonNoise,
    Eliminated,
    Part,
    unconditional,
)
from pymc_nnsteps.gaussian.layout import Member, coordinates, dense_size, prior_of, split
from pymc_nnsteps.gaussian.observation import Child, Observation
from pymc_nnsteps.graphs.centred import about_mean
from pymc_nnsteps.graphs.errors import NotConjugate, known_or_none
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import Term, align, cut_links, expand, flatten, pick
from pymc_nnsteps.graphs.rearranging import as_stated
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.graphs.shapes import length_of, lengths
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes, normal_prior, recognises
from pymc_nnsteps.laws.gaussian import (
    OBSERVED,
    augmented,
    decides_nothing,
    is_zero_sum,
    observe,
    zero_sum_axes,
    zero_sum_prior,
)
from pymc_nnsteps.random.standard_normal import standard_normal

MOST_COEFFICIENTS = 1000
"""Largest number of entries, apart from eliminated ones, that are drawn jointly."""


Sums = Mapping[TensorVariable, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class ChildParts:
    """Child, or one output of it, and how it sees each variable."""

    child: Child
    parts: tuple[Part, ...]
    output: int | None = None


@dataclass(frozen=True)
class Effects(Conditional):
    """Joint full conditional of effects of groups and all other linear terms of their children."""

    # The variables. The labels of an eliminated variable are its groups.
    members: tuple[Member, ...]
    seen: tuple[ChildParts, ...]
    integrates_out: tuple[TensorVariable, ...] = ()
    # Axes over which the entries of a variable sum to zero: by themselves, or together.
    sums: Sums = field(default_factory=dict)
    # Those of these that all children see by their differences from their mean.
    centred: tuple[TensorVariable, ...] = ()
    common_noise: tuple[CommonNoise, ...] = ()  # noise of what is seen, beside that of the children

    @property
    @override
    def name(self) -> str:
        return "Gaussian, by groups" if self._eliminated else "Gaussian"

    @property
    def _eliminated(self) -> list[int]:
        return [i for i, member in enumerate(self.members) if member.labels]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        rng, said = self._said(rng)
        groups = self._eliminated
        others = [i for i in range(len(self.members)) if i not in groups]
        dense = [i for i in others if all(seen.parts[i].index is None for seen in self.seen)]
        rest = dense + [i for i in others if i not in dense]
        eliminated = Eliminated(said, groups, self._some(groups), shapes) if groups else None
        # What is left when effects of groups are eliminated, by its Schur complement.
        drawn = root = None
        if rest:
            prior = prior_of(self._some(rest))
            precision, score, diagonal = self._of_rest(said, eliminated, dense, rest)
            root = cholesky(precision, lower=True)
            rng, noise = standard_normal(rng, prior.shape, prior.precision.dtype)
            drawn = draw_from_factor(root, score, noise)
            if eliminated is None or self._conditioned_on():
                drawn = refuse_lost(diagonal, pt.diagonal(root), drawn[None])[0]
            else:
                rows = eliminated.seen_without(rest)
                drawn = unless_rounding(drawn, diagonal, root, prior, rows, noise)
        # Then the effects of each group given that.
        block = None
        if eliminated is not None:
            rng, block = eliminated.draw(rng, rest, drawn)

        def solve(right: Entries) -> Entries:
            if root is None:
                assert eliminated is not None
                return (eliminated.solve(right[0]),)
            if eliminated is None:
                return (draw_from_factor(root, right[0], pt.zeros_like(right[0])),)
            return eliminated.solve_with(rest, root, *right)

        # Effects whose sum is zero: the draw is moved onto the plane where it is.
        kinds = [self._some(positions) for positions in (groups, rest) if positions]
        entries = tuple(part for part in (block, drawn) if part is not None)
        if fixed := self._conditioned_on():
            sums = tuple(_summed(members, fixed) for members in kinds)
            entries = given_zero_sums(entries, sums, solve(sums))
        values: dict[TensorVariable, TensorVariable] = {}
        for part, members in zip(entries, kinds, strict=True):
            values.update(split(part, members))
        for member in self.members:
            if member.rv in self.centred:
                rng, mean = _mean_of(rng, member, *self.sums[member.rv])
                values[member.rv] = typed_like(member.rv, values[member.rv] + mean)
        return Draw(rng, {rv: values[rv] for rv in self.draws})

    def _conditioned_on(self) -> list[tuple[Member, tuple[int, ...]]]:
        """Axes over which a variable, as it is drawn, has sums that are zero."""
        return [
            (member, axes)
            for member in self.members
            for axes in self.sums.get(member.rv, ())
            if not set(axes) <= set(member.contrasts)
        ]

    def _of_rest(
        self,
        said: Sequence[ChildLikelihood],
        eliminated: Eliminated | None,
        dense: Sequence[int],
        rest: Sequence[int],
    ) -> tuple[TensorVariable, TensorVariable, TensorVariable]:
        """Precision, linear part, and diagonal of the terms from which the precision was formed."""
        prior = prior_of(self._some(rest))
        whole, linear = unconditional(said, rest, prior)
        if eliminated is None:
            return whole, linear, pt.diagonal(whole)
        if not dense:
            return *eliminated.complement(rest, prior), pt.diagonal(whole)
        own, score = eliminated.complement_by_rows(dense, prior_of(self._some(dense)))
        if len(rest) == len(dense):
            return own, score, pt.diagonal(own)
        precision, differences = eliminated.complement(rest, prior)
        n = score.shape[0]
        return (
            pt.set_subtensor(precision[:n, :n], own),
            pt.set_subtensor(differences[:n], score),
            pt.diagonal(whole),
        )

    def _some(self, positions: Sequence[int]) -> list[Member]:
        return [self.members[i] for i in positions]

    def _said(self, rng: Variable) -> tuple[Variable, list[ChildLikelihood]]:
        said = []
        given: dict[TensorVariable, Observation] = {}
        for seen in self.seen:
            if seen.child.child not in given:
                rng, given[seen.child.child] = augmented(rng, seen.child)
            child = given[seen.child.child]
            weight, residual = align(child.precision, child.child.ndim), child.residual
            if seen.output is None:
                weight = weight.dimshuffle(row_axis(child.child))
            else:
                residual = residual[:, seen.output]
                weight = weight[:, 0 if weight.type.broadcastable[1] else seen.output]
            said.append(ChildLikelihood(residual.flatten(), weight, seen.parts))
        for noise in self.common_noise:
            said = noise.removed(said)
        return rng, said


def _summed(
    members: Sequence[Member], fixed: Sequence[tuple[Member, tuple[int, ...]]]
) -> TensorVariable:
    """What is summed of variables that are drawn side by side, with axes (labels, d, sums)."""
    labels = tuple(members[0].lengths[axis] for axis in members[0].labels)
    rows = []
    for member in members:
        columns = []
        for summed, axes in fixed:
            one = sums_over(summed, axes)
            if summed is not member:
                d = reduce(mul, [member.lengths[axis] for axis in member.dense], 1)
                one = pt.zeros((*labels, d, one.shape[-1]), one.dtype)
            columns.append(one)
        rows.append(pt.concatenate(columns, axis=-1))
    return pt.concatenate(rows, axis=-2)


def _mean_of(
    rng: Variable, member: Member, axes: tuple[int, ...]
) -> tuple[Variable, TensorVariable]:
    """Draw means of effects of one law over axes, of which no child tells."""
    rv, sizes = member.rv, lengths(member.rv)
    shape = [1 if axis in axes else size for axis, size in enumerate(sizes)]
    rng, noise = standard_normal(rng, shape, rv.dtype)
    noise = pt.specify_broadcastable(noise, *axes)
    precision = align(member.precision, rv.ndim) * reduce(mul, [sizes[axis] for axis in axes])
    return rng, align(member.mean, rv.ndim) + noise * pt.sqrt(pt.reciprocal(precision))


def row_axis(child: TensorVariable) -> int:
    """The only axis of a child, or the only one whose length is not one."""
    if child.ndim == 1:
        return 0
    axes = [axis for axis in range(child.ndim) if not child.type.broadcastable[axis]]
    if len(axes) != 1:
        raise NotConjugate(f"child {describe(child)} does not have exactly one axis of rows")
    return axes[0]


def _outputs(model: pm.Model, child: TensorVariable) -> Sequence[int | None]:
    """Columns of a child with several, whose rows are along its first axis; else only None."""
    if child.ndim != 2 or any(child.type.broadcastable):
        return [None]
    columns = length_of(model, child, 1)
    return [None] if columns is None else range(columns)


def _part(
    child: TensorVariable,
    rv: TensorVariable,
    term: Term,
    output: int | None,
    sums: Sequence[tuple[int, ...]],
) -> tuple[Part, int | None]:
    """How the rows of a child see a variable, and its axis of groups; coordinates of sums."""
    if output is None:
        row = row_axis(child)
    else:
        row, term = 0, pick(term, 1, output, rv)
    term = cut_links(term, [axis for axis in range(term.out_ndim) if axis != row], rv).whole()
    link = term.links[row]
    whole = link is not None and link.index is None
    if link is not None and (link.inner or (whole and not is_zero_sum(rv))):
        raise NotConjugate(f"each row of {describe(child)} depends on different entries")
    one = term.coefficient.type.broadcastable
    if not all(one[axis] for axis in range(term.out_ndim) if axis != row):
        raise NotConjugate(f"child {describe(child)} does not have exactly one axis of rows")
    groups = None if link is None else link.axis
    seen = [axis for axis in range(rv.ndim) if axis != groups]
    ordered = term.coefficient.dimshuffle(row, *(term.out_ndim + axis for axis in seen))
    sizes = lengths(rv)
    full = expand(ordered, {1 + i: sizes[axis] for i, axis in enumerate(seen)})
    for axis in _contrasts(sums, groups):
        full = coordinates(full, 1 + seen.index(axis), sizes[axis])
    design = flatten(full, 1, len(seen))
    if link is None:
        return Part(design, None, 1), None
    n_groups = sizes[link.axis]
    return Part(design, pt.arange(n_groups) if whole else link.index, n_groups), groups


def _contrasts(sums: Sequence[tuple[int, ...]], groups: int | None) -> tuple[int, ...]:
    """Axes along which entries sum to zero, within a group if there are any."""
    return tuple(axes[0] for axes in sums if len(axes) == 1 and axes[0] != groups)


def match_effects(model: pm.Model, rvs: Sequence[TensorVariable], shapes: Shapes) -> Effects:
    """Recognise variables that enter children linearly, each of them all or, whole, some."""
    priors = {
        rv: zero_sum_prior(model, rv) if is_zero_sum(rv) else normal_prior(model, rv) for rv in rvs
    }
    seen_by = {rv: children(model, rv) for rv in rvs}
    if not all(seen_by.values()):
        raise NotConjugate(f"{', '.join(map(describe, rvs))} do not all have children")
    together = {child for of_one in seen_by.values() for child in of_one}
    direct = [child for child in model.basic_RVs if child in together]
    in_part = [rv for rv in rvs if len(seen_by[rv]) < len(direct)]
    seen = []
    axes: dict[TensorVariable, int | None] = {}
    picked: dict[TensorVariable, list[Any]] = {rv: [] for rv in rvs}
    sums = {rv: _sums(model, rv, seen_by[rv], priors[rv]) for rv in rvs}
    centred = [rv for rv in rvs if sums[rv] and not is_zero_sum(rv)]
    for child in direct:
        about = {rv: about_mean(model, child, rv) if rv in centred else None for rv in rvs}
        stated = {
            rv: rv if seen is None else seen.expression
            for rv, seen in about.items()
            if child in seen_by[rv]
        }
        observation = observe(model, child, list(stated.values()))
        terms = dict(zip(stated, observation.terms, strict=True))
        for output in _outputs(model, child):
            parts = []
            for rv in rvs:
                if rv not in stated:
                    parts.append(Part(pt.zeros((1, rv.size), rv.dtype), None, 1))
                    continue
                part, groups = _part(child, rv, terms[rv], output, sums[rv])
                if axes.setdefault(rv, groups) != groups:
                    raise NotConjugate(f"the children of {describe(rv)} index different axes of it")
                if part.index is not None and groups is not None:
                    picked[rv].append(as_stated(part.index, stated[rv], groups))
                parts.append(part)
            if output is None:
                _require_weights_of_rows(observation)
            elif all(groups is None for groups in axes.values()):
                raise NotConjugate(f"the outputs of {describe(child)} have no group effects")
            seen.append(ChildParts(observation, tuple(parts), output))
    if any(axes[rv] is not None or sums[rv] for rv in in_part):
        raise NotConjugate(f"{', '.join(map(describe, in_part))} do not have the same children")
    labelled = _eliminated(axes, picked, shapes)
    members = [
        _member(rv, axes[rv], rv in labelled, priors[rv], _contrasts(sums[rv], axes[rv]), shapes)
        for rv in rvs
    ]
    if dense_size([m for m in members if not m.labels], shapes) > MOST_COEFFICIENTS:
        raise NotConjugate(f"more than {MOST_COEFFICIENTS} coefficients remain after elimination")
    return Effects(
        tuple(rvs),
        tuple(members),
        tuple(seen),
        sums={rv: over for rv, over in sums.items() if over},
        centred=tuple(centred),
    )


def _member(
    rv: TensorVariable,
    groups: int | None,
    is_eliminated: bool,
    prior: tuple[TensorVariable, TensorVariable],
    contrasts: tuple[int, ...],
    shapes: Shapes,
) -> Member:
    """A variable with its groups, if it has any, as labels or among the others."""
    if any(shapes[rv][axis] < 2 for axis in contrasts):
        raise NotConjugate(f"{describe(rv)} has a single entry along an axis that sums to zero")
    first = () if groups is None else (groups,)
    others = tuple(axis for axis in range(rv.ndim) if axis != groups)
    labels, dense = (first, others) if is_eliminated else ((), first + others)
    return Member(rv, labels, dense, *prior, contrasts=contrasts)


@recognises(
    650, "Gaussian, given that sums are zero", {ZeroSumNormalRV}, OBSERVED, when=decides_nothing
)
def match_zero_sum(model: pm.Model, rv: TensorVariable) -> Effects:
    """Recognise the full conditional of effects that sum to zero along one or several axes."""
    zero_sum_prior(model, rv)
    if not children(model, rv):
        raise NotConjugate("it has no children")
    shape = [length_of(model, rv, axis) for axis in range(rv.ndim)]
    known = tuple(length for length in shape if length is not None)
    if len(known) < len(shape):
        raise NotConjugate("its shape is not known")
    return match_effects(model, [rv], {rv: known})


def _sums(
    model: pm.Model,
    rv: TensorVariable,
    direct: Sequence[TensorVariable],
    prior: Iterable[TensorVariable],
) -> tuple[tuple[int, ...], ...]:
    """Axes over which entries of one law sum to zero, by prior or as all children see them."""
    if is_zero_sum(rv):
        return tuple((axis,) for axis in zero_sum_axes(rv))
    abouts = [about_mean(model, child, rv) for child in direct]
    [axes, *others] = {about and about.axes for about in abouts}
    if axes is None or others:
        return ()
    laws = [align(parameter, rv.ndim).type.broadcastable for parameter in prior]
    return (axes,) if all(law[axis] for law in laws for axis in axes) else ()


def _require_weights_of_rows(observation: Child) -> None:
    if isinstance(observation, Observation):
        child = observation.child
        one = align(observation.precision, child.ndim).type.broadcastable
        if not all(one[axis] for axis in range(child.ndim) if axis != row_axis(child)):
            raise NotConjugate(
                f"the scale of {describe(child)} is not known to be one number for each row"
            )


def _eliminated(
    axes: Mapping[TensorVariable, int | None],
    picked: Mapping[TensorVariable, list[Any]],
    shapes: Shapes,
) -> list[TensorVariable]:
    """Variables with the most groups whose entries all children pick by the same index."""
    grouped = {rv: shapes[rv][axis] for rv, axis in axes.items() if axis is not None}
    if not grouped:
        return []
    most = max(grouped, key=lambda rv: grouped[rv])
    return [
        rv
        for rv in grouped
        if grouped[rv] == grouped[most] and equal_computations(picked[rv], picked[most])
    ]


def largest(
    model: pm.Model, groups: Iterable[Sequence[TensorVariable]], shapes: Shapes
) -> Effects | None:
    """Join as many groups of variables as enter the same children linearly."""
    effects: Effects | None = None
    drawn: tuple[TensorVariable, ...] = ()
    left = list(groups)
    for _ in range(2):
        for rvs in left:
            effects = known_or_none(match_effects, model, [*drawn, *rvs], shapes) or effects
            drawn = () if effects is None else effects.draws
        left = [rvs for rvs in left if drawn and rvs[0] not in drawn]
    return effects
