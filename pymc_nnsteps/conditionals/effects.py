r"""All that enters a response linearly, drawn jointly, where groups have effects of their own.

Model, for effects :math:`a` (intercepts and slopes) of groups :math:`g(n)`, of one or several
kinds of groups, and coefficients :math:`\beta` (of inputs, of activations, an intercept):

.. math::

    a, \beta \sim N(\mu_0, \Lambda^{-1}), \qquad
    y_n \sim N(z_n \cdot a_{g(n)} + x_n \cdot \beta + o_n, 1 / w_n)

with diagonal :math:`\Lambda`. The precision matrix of both has a block for each group, no entry
between two groups of a kind, and the coefficients seen by all:

.. math::

    P = \begin{pmatrix} A & B \\ B^T & D \end{pmatrix}, \quad
    A_g = \Lambda_g + \sum_{g(n) = g} w_n z_n z_n^T, \quad
    B_g = \sum_{g(n) = g} w_n z_n x_n^T.

With :math:`A = L L^T` block by block and :math:`H = L^{-1} B`, for standard normals
:math:`\xi, \eta`,

.. math::

    \beta &\sim N(S^{-1} (h_\beta - H^T L^{-1} h_a), S^{-1}), \qquad S = D - H^T H, \\
    a &= L^{-T} (L^{-1} h_a - H \beta + \xi).

The difference S loses digits where noise is small, and is formed as a sum of squares where all rows
see a coefficient: with :math:`M = A^{-1} B`,

.. math:: S = \Lambda_\beta + \sum_n w_n (x_n - M_{g(n)}^T z_n) (x_n - M_{g(n)}^T z_n)^T
          + \sum_g M_g^T \Lambda_g M_g,

its linear part alike from what the effects leave at :math:`\beta = 0`.
All sums are over rows, of which each adds to its own group: no matrix has an axis of rows and one
of groups. Of several kinds of groups (crossed, nested) the one with the most is eliminated like
this; the others stand among the coefficients. Logistic children join in by their Polya-Gamma
variables (:mod:`.augmentation`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add, sub
from typing import Any, override

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable, equal_computations
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.augmentation import augmented
from pymc_nnsteps.conditionals.blocks import (
    BlockPrior,
    Child,
    Member,
    Observation,
    dense_size,
    prior_of,
    split,
)
from pymc_nnsteps.conditionals.conditional import Conditional, Draw, Shapes, normal_prior
from pymc_nnsteps.conditionals.gaussian import Gaussian, observe
from pymc_nnsteps.conditionals.gaussian_draws import draw_from_factor, linear_of
from pymc_nnsteps.graphs.arrays import align, expand, flatten, varies
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.lengths import lengths
from pymc_nnsteps.graphs.linear_terms import Length, Term, cut_links
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.kernels.ops import refuse_lost
from pymc_nnsteps.random.standard_normal import standard_normal

MOST_COEFFICIENTS = 1000
"""Number of entries up to which those that are not eliminated are drawn jointly."""


@dataclass(frozen=True)
class Part:
    """How the rows of a child see a variable: all its entries, or those of their group.

    Attributes
    ----------
    design : TensorVariable, shape (n or 1, k)
        Coefficients of the entries that a row sees.
    index : TensorVariable, shape (n,), optional
        The group of each row; None: each row sees all k entries there are.
    groups : Length
    """

    design: TensorVariable
    index: TensorVariable | None
    groups: Length


@dataclass(frozen=True)
class Seen:
    """A child, and how it sees each variable."""

    child: Child
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Said:
    """What a child says: ``response = design entries + noise`` with precision ``weight``."""

    response: TensorVariable
    weight: TensorVariable
    parts: tuple[Part, ...]

    def gram(self, i: int, j: int) -> TensorVariable:
        """Information between all entries of two variables."""
        first, second = self.parts[i], self.parts[j]
        if first.index is None and second.index is None:
            return self.dot(self._rows(first), self._rows(second))
        if first.index is None:
            return self.gram(j, i).T
        product = first.design[:, :, None] * second.design[:, None, :]
        if second.index is None:
            rows = first.design[:, :, None] * self._rows(second)[:, None, :]
            return flatten(self._by_group(rows, first.index, first.groups), 0, 2)
        index = first.index * second.groups + second.index
        sums = self._by_group(product, index, first.groups * second.groups)
        shape = (first.groups, second.groups, product.shape[1], product.shape[2])
        square = sums.reshape(shape).dimshuffle(0, 2, 1, 3)
        return square.reshape((shape[0] * shape[2], shape[1] * shape[3]))

    def coupling(self, i: int, j: int) -> TensorVariable:
        """Information between groups and all entries of a variable, (groups, k, entries)."""
        k = self.parts[i].design.shape[1]
        flat = self.gram(i, j)
        return flat.reshape((flat.shape[0] // k, k, flat.shape[1]))

    def within_groups(self, i: int, j: int) -> TensorVariable:
        """Information between variables of the same groups, (groups, k, k)."""
        first, second = self.parts[i], self.parts[j]
        assert first.index is not None
        product = first.design[:, :, None] * second.design[:, None, :]
        return self._by_group(product, first.index, first.groups)

    def linear(self, i: int) -> TensorVariable:
        """Information times what is seen, of all entries of a variable."""
        part = self.parts[i]
        if part.index is None:
            return self.dot(self._rows(part), self.response)
        rows = part.design * self.response[:, None]
        return self._by_group(rows, part.index, part.groups).flatten()

    def within(
        self, groups: Sequence[int], dense: Sequence[int], means: TensorVariable
    ) -> TensorVariable:
        """Rows of variables without what their groups explain of them, (n, d)."""
        rows = pt.concatenate([self._rows(self.parts[i]) for i in dense], axis=1)
        return rows - self.of_groups(groups, means)

    def of_groups(self, groups: Sequence[int], entries: TensorVariable) -> TensorVariable:
        """What rows see of effects (groups, k, ...), with axes (n, ...)."""
        index = self.parts[groups[0]].index
        assert index is not None
        design = pt.concatenate([self._rows(self.parts[i]) for i in groups], axis=1)
        by_entry = design.dimshuffle(0, 1, *["x"] * (entries.ndim - 2))
        seen: TensorVariable = (by_entry * entries[index]).sum(1)
        return seen

    def dot(self, rows: TensorVariable, others: TensorVariable) -> TensorVariable:
        """Weighted product over rows."""
        if self._weighs:
            return pt.dot((rows * self.weight[:, None]).T, others)
        return pt.dot(rows.T, others) * self.weight[0]

    @property
    def _weighs(self) -> bool:
        return varies(self.weight, [0])

    def _rows(self, part: Part) -> TensorVariable:
        return expand(part.design, {0: self.response.shape[0]})

    def _by_group(
        self, rows: TensorVariable, index: TensorVariable, groups: Length
    ) -> TensorVariable:
        """Weighted sums of the rows of each group."""
        if self._weighs:
            rows = rows * self.weight.dimshuffle(0, *["x"] * (rows.ndim - 1))
        full = expand(rows, {0: index.shape[0]})
        sums = pt.zeros((groups, *list(full.shape)[1:]), full.dtype)[index].inc(full)
        return sums if self._weighs else sums * self.weight[0]


class Factor:
    """Lower Cholesky factor of a matrix for each group, entry by entry.

    Parameters
    ----------
    matrix : TensorVariable, shape (groups, k, k)
    k : int
    """

    def __init__(self, matrix: TensorVariable, k: int) -> None:
        square = pt.specify_shape(matrix, (None, k, k))
        self._k = k
        self._entries: dict[tuple[int, int], TensorVariable] = {}
        for j in range(k):
            for i in range(j, k):
                known = [self._entries[i, m] * self._entries[j, m] for m in range(j)]
                left = reduce(sub, known, square[:, i, j])
                self._entries[i, j] = pt.sqrt(left) if i == j else left / self._entries[j, j]

    def solve_lower(self, right: TensorVariable) -> TensorVariable:
        """``L^{-1} right``, right of shape (groups, k) or (groups, k, d)."""
        solved: list[TensorVariable] = []
        for i in range(self._k):
            known = [self._entry(i, m, right) * solved[m] for m in range(i)]
            solved.append(reduce(sub, known, right[:, i]) / self._entry(i, i, right))
        return pt.stack(solved, axis=1)

    def solve_upper(self, right: TensorVariable) -> TensorVariable:
        """``L^{-T} right``."""
        solved: dict[int, TensorVariable] = {}
        for i in reversed(range(self._k)):
            known = [self._entry(m, i, right) * solved[m] for m in range(i + 1, self._k)]
            solved[i] = reduce(sub, known, right[:, i]) / self._entry(i, i, right)
        return pt.stack([solved[i] for i in range(self._k)], axis=1)

    def _entry(self, i: int, j: int, right: TensorVariable) -> TensorVariable:
        return self._entries[i, j].dimshuffle(0, *["x"] * (right.ndim - 2))


class Eliminated:
    """Effects of groups, given which groups are independent.

    Parameters
    ----------
    said : sequence of Said
    positions : sequence of int
        Of the variables among all.
    members : sequence of Member
        These variables.
    shapes : mapping from random variable to tuple of int
    """

    def __init__(
        self,
        said: Sequence[Said],
        positions: Sequence[int],
        members: Sequence[Member],
        shapes: Shapes,
    ) -> None:
        self._said, self._positions = said, positions
        self._prior, k = prior_of(members), dense_size(members, shapes)
        own = _blocks(said, positions, positions, lambda s, i, j: s.within_groups(i, j))
        self._factor = Factor(own + self._prior.precision[..., None] * pt.eye(k), k)
        [n_groups] = self._prior.label_lengths
        sums = [_linear(said, [i]).reshape((n_groups, -1)) for i in positions]
        linear = linear_of(self._prior, pt.concatenate(sums, axis=1))
        self._half = self._factor.solve_lower(linear)

    def _coupling(self, rest: Sequence[int]) -> TensorVariable:
        """``H``, shape (groups, k, d)."""
        stacked = _blocks(self._said, self._positions, rest, lambda s, i, j: s.coupling(i, j))
        return self._factor.solve_lower(stacked)

    def complement(
        self, rest: Sequence[int], prior: BlockPrior
    ) -> tuple[TensorVariable, TensorVariable]:
        """``S`` and its linear part, by differences from what it is without the groups."""
        flat = flatten(self._coupling(rest), 0, 2)
        precision, score = _unconditional(self._said, rest, prior)
        return (
            precision - pt.dot(flat.T, flat),
            score - pt.dot(flat.T, self._half.flatten()),
        )

    def complement_by_rows(
        self, dense: Sequence[int], prior: BlockPrior
    ) -> tuple[TensorVariable, TensorVariable]:
        """The same of variables that all rows see, as sums of squares, which loses no digits."""
        means = self._factor.solve_upper(self._coupling(dense))
        own = self._prior.precision
        start = self._factor.solve_upper(self._half)
        rows = [(s, s.within(self._positions, dense, means)) for s in self._said]
        precision = pt.diag(prior.precision) + _sum(s.dot(within, within) for s, within in rows)
        shrunk = pt.broadcast_to(own[..., None], means.shape) * means
        precision = precision + pt.tensordot(shrunk, means, [[0, 1], [0, 1]])
        left = [s.response - s.of_groups(self._positions, start) for s in self._said]
        score = _sum(s.dot(within, r) for (s, within), r in zip(rows, left, strict=True))
        beyond = start if self._prior.mean is None else start - self._prior.mean
        score = score + pt.tensordot(shrunk, beyond, [[0, 1], [0, 1]])
        return precision, linear_of(prior, score)

    def draw(
        self, rng: Variable, rest: Sequence[int], drawn: TensorVariable | None
    ) -> tuple[Variable, TensorVariable]:
        """Draw the effects given the rest."""
        half = self._half
        if drawn is not None:
            half = half - pt.tensordot(self._coupling(rest), drawn, 1)
        rng, noise = standard_normal(rng, self._prior.shape, self._prior.precision.dtype)
        return rng, self._factor.solve_upper(half + noise)


@dataclass(frozen=True)
class Effects(Conditional):
    """Joint full conditional of effects of groups and of what else enters their children linearly.

    Attributes
    ----------
    members : tuple of Member
        The variables. Groups that are eliminated are labels.
    seen : tuple of Seen
    """

    draws: tuple[TensorVariable, ...]
    members: tuple[Member, ...]
    seen: tuple[Seen, ...]
    integrates_out: tuple[TensorVariable, ...] = ()

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
        dense = [i for i in range(len(self.members)) if i not in groups and self._is_dense(i)]
        rest = dense + [i for i in range(len(self.members)) if i not in (*groups, *dense)]
        eliminated = Eliminated(said, groups, self._some(groups), shapes) if groups else None
        values: dict[TensorVariable, TensorVariable] = {}
        drawn = None
        if rest:
            prior = prior_of(self._some(rest))
            precision, score, diagonal = self._of_rest(said, eliminated, dense, rest)
            root = cholesky(precision, lower=True)
            rng, noise = standard_normal(rng, prior.shape, prior.precision.dtype)
            drawn = draw_from_factor(root, score, noise)
            drawn = refuse_lost(diagonal, pt.diagonal(root), drawn[None])[0]
            values.update(split(drawn, self._some(rest)))
        if eliminated is not None:
            rng, block = eliminated.draw(rng, rest, drawn)
            values.update(split(block, self._some(groups)))
        return Draw(rng, {rv: values[rv] for rv in self.draws})

    def _of_rest(
        self,
        said: Sequence[Said],
        eliminated: Eliminated | None,
        dense: Sequence[int],
        rest: Sequence[int],
    ) -> tuple[TensorVariable, TensorVariable, TensorVariable]:
        """Precision, its linear part, and the diagonal of what the precision was formed of."""
        prior = prior_of(self._some(rest))
        whole, linear = _unconditional(said, rest, prior)
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

    def _is_dense(self, i: int) -> bool:
        return all(seen.parts[i].index is None for seen in self.seen)

    def _said(self, rng: Variable) -> tuple[Variable, list[Said]]:
        said = []
        for seen in self.seen:
            rng, child = augmented(rng, seen.child)
            weight = align(child.precision, child.child.ndim).dimshuffle(row_axis(child.child))
            said.append(Said(child.residual.flatten(), weight, seen.parts))
        return rng, said


def _unconditional(
    said: Sequence[Said], positions: Sequence[int], prior: BlockPrior
) -> tuple[TensorVariable, TensorVariable]:
    """Precision and linear part of variables given all others."""
    precision = _blocks(said, positions, positions, lambda s, i, j: s.gram(i, j))
    return precision + pt.diag(prior.precision), linear_of(prior, _linear(said, positions))


def _linear(said: Sequence[Said], positions: Sequence[int]) -> TensorVariable:
    return pt.concatenate([_sum(s.linear(i) for s in said) for i in positions])


def _sum(arrays: Iterable[TensorVariable]) -> TensorVariable:
    return reduce(add, arrays)


def _blocks(
    said: Sequence[Said],
    rows: Sequence[int],
    columns: Sequence[int],
    information: Callable[[Said, int, int], TensorVariable],
) -> TensorVariable:
    """Matrices of pairs of variables, side by side in the last two axes."""
    stacked = [
        pt.concatenate([_sum(information(s, i, j) for s in said) for j in columns], axis=-1)
        for i in rows
    ]
    return pt.concatenate(stacked, axis=-2)


def row_axis(child: TensorVariable) -> int:
    """The only axis of a child that is not of length one.

    Raises
    ------
    NotConjugate
    """
    axes = [axis for axis in range(child.ndim) if not child.type.broadcastable[axis]]
    if len(axes) != 1:
        raise NotConjugate(f"child {describe(child)} has not one axis of rows")
    return axes[0]


def _part(child: TensorVariable, rv: TensorVariable, term: Term) -> tuple[Part, int | None]:
    """How the rows of a child see a variable, and which of its axes are the groups."""
    row = row_axis(child)
    term = cut_links(term, [axis for axis in range(child.ndim) if axis != row], rv).whole()
    link = term.links[row]
    if link is not None and (link.index is None or link.inner):
        raise NotConjugate(f"each row of {describe(child)} sees entries of its own")
    one = term.coefficient.type.broadcastable
    if not all(one[axis] for axis in range(child.ndim) if axis != row):
        raise NotConjugate(f"child {describe(child)} has not one axis of rows")
    groups = None if link is None else link.axis
    seen = [axis for axis in range(rv.ndim) if axis != groups]
    ordered = term.coefficient.dimshuffle(row, *(child.ndim + axis for axis in seen))
    sizes = lengths(rv)
    full = expand(ordered, {1 + i: sizes[axis] for i, axis in enumerate(seen)})
    design = flatten(full, 1, len(seen))
    if link is None:
        return Part(design, None, 1), None
    return Part(design, link.index, sizes[link.axis]), groups


def match_effects(model: pm.Model, rvs: Sequence[TensorVariable], shapes: Shapes) -> Effects:
    """Recognise variables that enter the same children linearly.

    Raises
    ------
    NotConjugate
    """
    priors = {rv: normal_prior(model, rv) for rv in rvs}
    direct = children(model, rvs[0])
    if not direct or any(children(model, rv) != direct for rv in rvs):
        raise NotConjugate(f"{', '.join(map(describe, rvs))} do not have the same children")
    seen = []
    axes: dict[TensorVariable, int | None] = {}
    for child in direct:
        observation = observe(model, child, rvs)
        parts = []
        for rv, term in zip(rvs, observation.terms, strict=True):
            part, groups = _part(child, rv, term)
            if axes.setdefault(rv, groups) != groups:
                raise NotConjugate(f"the children of {describe(rv)} pick entries of other axes")
            parts.append(part)
        _require_weights_of_rows(observation)
        seen.append(Seen(observation, tuple(parts)))
    labelled = _eliminated(rvs, axes, seen, shapes)
    members = []
    for rv in rvs:
        groups = axes[rv]
        first = () if groups is None else (groups,)
        others = tuple(axis for axis in range(rv.ndim) if axis != groups)
        labels, dense = (first, others) if rv in labelled else ((), first + others)
        members.append(Member(rv, labels, dense, *priors[rv]))
    if dense_size([m for m in members if not m.labels], shapes) > MOST_COEFFICIENTS:
        raise NotConjugate(f"more than {MOST_COEFFICIENTS} coefficients are not eliminated")
    return Effects(tuple(rvs), tuple(members), tuple(seen))


def _require_weights_of_rows(observation: Child) -> None:
    if isinstance(observation, Observation):
        child = observation.child
        one = align(observation.precision, child.ndim).type.broadcastable
        if not all(one[axis] for axis in range(child.ndim) if axis != row_axis(child)):
            raise NotConjugate(f"the scale of {describe(child)} is not known to be that of rows")


def _eliminated(
    rvs: Sequence[TensorVariable],
    axes: Mapping[TensorVariable, int | None],
    seen: Sequence[Seen],
    shapes: Shapes,
) -> list[TensorVariable]:
    """Variables of the most groups, of which all children pick the same entries."""
    grouped = {rv: shapes[rv][axis] for rv in rvs if (axis := axes[rv]) is not None}
    if not grouped:
        return []
    most = max(grouped, key=lambda rv: grouped[rv])

    def picked_by(rv: TensorVariable) -> list[Any]:
        indices = (s.parts[rvs.index(rv)].index for s in seen)
        return [index for index in indices if index is not None]

    return [
        rv
        for rv in grouped
        if grouped[rv] == grouped[most] and equal_computations(picked_by(rv), picked_by(most))
    ]


def join_effects(
    model: pm.Model, blocks: Sequence[Conditional], shapes: Shapes
) -> list[tuple[Effects, list[Gaussian]]]:
    """Join effects of groups with what else enters their children linearly.

    Variables that other draws integrate out are left to themselves.

    Returns
    -------
    list of (Effects, list of Gaussian)
        Each with the blocks that it takes the place of.
    """
    found: list[tuple[Effects, list[Gaussian]]] = []
    latent = {rv for block in blocks for rv in block.integrates_out}
    left = [
        block
        for block in blocks
        if isinstance(block, Gaussian) and block.observations and latent.isdisjoint(block.draws)
    ]
    while left:
        seen_by = children(model, left[0].draws[0])
        alike = [block for block in left if children(model, block.draws[0]) == seen_by]
        effects = largest(model, [block.draws for block in alike], shapes)
        taken = alike[:1]
        if effects is not None:
            taken = [block for block in alike if block.draws[0] in effects.draws]
            if len(taken) > 1:
                found.append((effects, taken))
        left = [block for block in left if block not in taken]
    return found


def largest(
    model: pm.Model, groups: Iterable[Sequence[TensorVariable]], shapes: Shapes
) -> Effects | None:
    """Join variables, group by group, as far as they enter the same children linearly."""
    effects = None
    for rvs in groups:
        drawn = () if effects is None else effects.draws
        try:
            effects = match_effects(model, [*drawn, *rvs], shapes)
        except NotConjugate:
            continue
    return effects
