r"""A Gaussian block, and the forms in which it can be drawn, the cheapest first.

All have the same law: with a diagonal prior precision :math:`\Lambda` and children
:math:`y_c \sim N(C_c v + o_c, w_c^{-1})`, at each label

.. math::

    v \mid y \sim N(P^{-1} h, P^{-1}), \quad
    P = \Lambda + \sum_c C_c^T w_c C_c, \quad
    h = \Lambda \mu_0 + \sum_c C_c^T w_c (y_c - o_c).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.ops import as_op, plus
from pymc_nnsteps.gaussian.bands import draw_banded, draw_windows
from pymc_nnsteps.gaussian.factor import SMALL, draw_by_label, draw_from_factor, unless_lost
from pymc_nnsteps.gaussian.labels import draw_few_rows, draw_labels
from pymc_nnsteps.gaussian.layout import BlockPrior
from pymc_nnsteps.gaussian.observation import Evidence, SharedDesign, Total, rows_of, total_of
from pymc_nnsteps.graphs.linear_terms import Length, expand, flatten, matmul_last
from pymc_nnsteps.graphs.search import draws_at_random
from pymc_nnsteps.graphs.values import array_constant
from pymc_nnsteps.random.standard_normal import standard_normal

LEAST = 256
"""Least number of entries for which a band is factorised faster than the whole matrix."""

Drawn = tuple[Variable, TensorVariable]
"""The generator after a draw, and the block with axes (labels, d)."""


@dataclass(frozen=True)
class Sizes:
    """Numbers that decide which form of a block is cheapest."""

    # Number of labels, and of entries at each (d).
    labels: int
    entries: int
    rows: tuple[int, ...]  # number of rows of the design, for each child


@dataclass(frozen=True)
class Block:
    """Prior of a block and the likelihood of its children."""

    prior: BlockPrior
    evidence: tuple[Evidence, ...]  # one for each child
    # Lengths of the dense axes of the block's only variable; empty where it has several.
    dense: tuple[Length, ...]
    independent: bool  # whether the entries of the block are independent: each is a label
    sizes: Sizes
    summed: Total | None = None  # sums over rows that are not here, in the place of ``evidence``

    @property
    def has_children(self) -> bool:
        """Whether there is more than the prior."""
        return bool(self.evidence) or self.summed is not None

    @cached_property
    def total(self) -> Total | None:
        """Precision and linear part that the children add; None without children."""
        if not self.evidence:
            return self.summed
        return total_of(self.evidence, elementwise=self.independent)

    @cached_property
    def rows(self) -> SharedDesign | None:
        """Likelihood of the children through designs that labels share, if there are such."""
        return rows_of(self.evidence)

    @cached_property
    def rows_in_part(self) -> SharedDesign | None:
        """The same with children that see some of the labels: the others have weight zero."""
        return rows_of(self.evidence, in_part=True)

    def by_case(self, rows: SharedDesign) -> tuple[TensorVariable, TensorVariable]:
        """Weight and score of every row, with all labels in one axis."""
        every_row = {self.prior.n_label_axes: rows.design.shape[0]}
        weight, score = (
            self.prior.cases(expand(array, every_row)) for array in (rows.weight, rows.score)
        )
        return weight, score

    @property
    def only(self) -> Evidence | None:
        """Likelihood of the only child, if there is one and all labels share its information."""
        if len(self.evidence) == 1 and self.prior.shared and self.evidence[0].shared:
            return self.evidence[0]
        return None

    @property
    def shares_precision(self) -> bool:
        """Whether neither the prior nor the information varies with the label."""
        return self.prior.shared and self.total is not None and self.total.shared

    @property
    def many_labels(self) -> bool:
        """Whether there are as many labels as entries, or more."""
        return self.sizes.labels >= self.sizes.entries

    @property
    def few_rows(self) -> bool:
        """Whether the only child has fewer rows than the block has entries."""
        return self.only is not None and self.sizes.rows[0] < self.sizes.entries


Draws = Callable[[Variable, Block], Drawn]


@dataclass
class Form:
    """A way to draw a block, and the blocks to which it applies."""

    applies: Callable[[Block], bool]
    draw: Draws


FORMS: list[Form] = []
"""The first that applies is the one that is drawn."""


def form(applies: Callable[[Block], bool]) -> Callable[[Draws], Draws]:
    """Enter the decorated draw in the list of forms, with the blocks to which it applies."""

    def enter(draw: Draws) -> Draws:
        FORMS.append(Form(applies, draw))
        return draw

    return enter


@form(lambda block: block.independent or not block.has_children)
def diagonal(rng: Variable, block: Block) -> Drawn:
    r"""Entries are independent, as where no child sums over them: a diagonal precision.

    .. math:: v_i = h_i / P_{ii} + \xi_i / \sqrt{P_{ii}}
    """
    prior, total = block.prior, block.total
    precision = prior.precision if total is None else prior.precision + total.information
    linear = prior.linear(None if total is None else total.linear)
    rng, noise = prior.noise(rng)
    return rng, linear / precision + noise / pt.sqrt(precision)


@form(lambda block: block.few_rows and windows_of(block.evidence[0]) is not None)
def windows(rng: Variable, block: Block) -> Drawn:
    """No two rows of a constant design see the same entry: nothing is factorised."""
    [seen], prior = block.evidence, block.prior
    found, n = windows_of(seen), prior.n_label_axes
    assert found is not None
    index, coefficient = found
    rng, noise = prior.noise(rng)
    cases = as_op(draw_windows, 2)(
        pt.constant(index),
        pt.constant(coefficient),
        pt.reciprocal(prior.shared_precision()),
        pt.broadcast_to(pt.reciprocal(seen.weight.dimshuffle(n)), seen.response.shape[n:]),
        prior.cases(prior.center),
        prior.cases(seen.response),
        flatten(noise, 0, n),
    )
    return rng, prior.block(cases)


@form(lambda block: block.few_rows)
def observations(rng: Variable, block: Block) -> Drawn:
    r"""The only child has fewer rows than entries: the rows are factorised (Matheron's rule).

    With :math:`v_0` from the prior, of covariance S, and :math:`e` from the noise,

    .. math::

        v = v_0 + A (y - C v_0 - e), \qquad A = S C^T (C S C^T + w^{-1})^{-1}.
    """
    [seen], prior = block.evidence, block.prior
    n = prior.n_label_axes
    variance = pt.reciprocal(prior.shared_precision())
    design, weight = seen.whole_design.dimshuffle(n, n + 1), seen.weight.dimshuffle(n)
    rng, noise = prior.noise(rng)
    start = noise * pt.sqrt(variance)
    if prior.mean is not None:
        start = start + prior.mean
    size = (*prior.label_lengths, design.shape[0])
    rng, error = standard_normal(rng, size, noise.dtype)
    surprise = seen.response - matmul_last(start, design.T) - error / pt.sqrt(weight)
    scaled = design * variance
    if design.type.broadcastable[0]:
        total = (scaled * design).sum() + pt.reciprocal(weight[0])
        return rng, plus(start, pt.specify_broadcastable(surprise, n) * (scaled[0] / total))
    noise_covariance = pt.eye(design.shape[0], dtype=design.dtype) * pt.reciprocal(weight)
    covariance = pt.dot(scaled, design.T) + noise_covariance
    factor = cholesky(covariance, lower=True)
    half = solve_triangular(factor, scaled, lower=True)
    gain = solve_triangular(factor.T, half, lower=False)
    drawn = plus(start, matmul_last(surprise, gain))
    return rng, unless_lost(drawn, covariance, factor, prior, block.evidence, noise)


def _is_banded(block: Block) -> bool:
    seen = block.only
    if seen is None or len(block.dense) < 2 or block.sizes.entries < LEAST:
        return False
    return block.many_labels and any(map(draws_at_random, ancestors([seen.design])))


@form(_is_banded)
def banded(rng: Variable, block: Block) -> Drawn:
    """Each row of random coefficients sees a part of a large block: the factor is a band."""
    [seen], prior = block.evidence, block.prior
    n = prior.n_label_axes
    rng, noise = prior.noise(rng)
    design = seen.whole_design.dimshuffle(n, n + 1)
    cases, precision, factor = as_op(draw_banded, 2, 2, 2)(
        design,
        expand(seen.weight.dimshuffle(n), {0: design.shape[0]}),
        prior.cases(seen.response),
        prior.shared_precision(),
        prior.cases_or_one(prior.center),
        pt.stack([pt.as_tensor(length, dtype="int64") for length in block.dense]),
        flatten(noise, 0, n),
    )
    drawn = prior.block(cases)
    return rng, unless_lost(drawn, precision, factor, prior, block.evidence, noise)


def _is_few_rows(block: Block) -> bool:
    if block.shares_precision or block.rows_in_part is None:
        return False
    [n_rows, _] = block.rows_in_part.design.type.shape
    if n_rows is None:
        if any(seen.picked is not None for seen in block.evidence):
            return False
        n_rows = sum(block.sizes.rows)
    # LAPACK factorises large matrices; rows have a matrix for each label if the prior varies.
    takes = 4 if block.sizes.entries > SMALL else 1 if block.prior.shared else 2
    return takes * n_rows < block.sizes.entries


@form(_is_few_rows)
def few_rows(rng: Variable, block: Block) -> Drawn:
    """Labels weigh few rows, each in its own way: matrices of the rows are factorised."""
    prior, rows, n = block.prior, block.rows_in_part, block.prior.n_label_axes
    assert rows is not None
    rng, noise = prior.noise(rng)
    rng, error = standard_normal(rng, (*prior.label_lengths, rows.design.shape[0]), noise.dtype)
    cases = as_op(draw_few_rows, 2)(
        rows.design,
        *block.by_case(rows),
        prior.cases_or_one(prior.precision),
        prior.cases_or_one(prior.center),
        flatten(error, 0, n),
        flatten(noise, 0, n),
    )
    return rng, prior.block(cases)


@form(
    lambda block: any(seen.weighted_by_label for seen in block.evidence) and block.rows is not None
)
def labels(rng: Variable, block: Block) -> Drawn:
    """Labels weigh rows each in its own way: a kernel holds one label's matrix at a time."""
    prior, rows = block.prior, block.rows
    assert rows is not None
    rng, noise = prior.noise(rng)
    cases = as_op(draw_labels, 2)(
        rows.design,
        *block.by_case(rows),
        prior.cases(prior.linear(reduce(add, (seen.linear() for seen in block.evidence)))),
        prior.cases(prior.precision),
        prior.cases(prior.center),
        flatten(noise, 0, prior.n_label_axes),
    )
    return rng, prior.block(cases)


@form(lambda block: block.shares_precision)
def shared(rng: Variable, block: Block) -> Drawn:
    r"""Labels share a matrix :math:`P = L L^T`: :math:`v = L^{-T} (L^{-1} h + \xi)` at each."""
    prior, total = block.prior, block.total
    assert total is not None
    n = prior.n_label_axes
    information = total.information.dimshuffle(n, n + 1)
    diagonal = pt.eye(prior.shape[-1], dtype=information.dtype) * prior.shared_precision()
    precision = information + diagonal
    factor = cholesky(precision, lower=True)
    linear = prior.linear(total.linear)
    rng, noise = prior.noise(rng)
    if block.many_labels:
        inverse = solve_triangular(factor, pt.eye(factor.shape[0], dtype=factor.dtype), lower=True)
        half = matmul_last(linear, inverse.T) + noise
        drawn = matmul_last(half, inverse)
    else:
        cases = draw_from_factor(factor, prior.cases(linear).T, flatten(noise, 0, n).T).T
        drawn = prior.block(cases)
    return rng, unless_lost(drawn, precision, factor, prior, block.evidence, noise)


@form(lambda block: block.has_children)
def batched(rng: Variable, block: Block) -> Drawn:
    """A precision matrix at each label: a stack of factorisations."""
    prior, total = block.prior, block.total
    assert total is not None
    unit = pt.eye(prior.precision.shape[-1], dtype=prior.precision.dtype)
    precision = prior.with_every_label(prior.precision[..., None] * unit + total.information)
    linear = prior.with_every_label(prior.linear(total.linear))
    rng, noise = prior.noise(rng)
    drawn, factor = draw_by_label(precision, linear, noise, block.sizes.entries)
    return rng, unless_lost(drawn, precision, factor, prior, block.evidence, noise)


def windows_of(seen: Evidence) -> tuple[NDArray[np.int64], NDArray[np.floating]] | None:
    """Row of each of d entries (-1 for none), and its coefficient, of a constant shared design.

    None if rows have entries in common, or of a single row. The design is evaluated.
    """
    n = seen.n_label_axes
    design = seen.whole_design.dimshuffle(n, n + 1)
    found = array_constant(design)
    if found is None or len(found) < 2:
        return None
    sees = found != 0
    if (sees.sum(axis=0) > 1).any():
        return None
    index = np.where(sees.any(axis=0), sees.argmax(axis=0), -1)
    return index, found.sum(axis=0)


def draw(rng: Variable, block: Block) -> Drawn:
    """Draw a block in the first form that applies."""
    return next(form for form in FORMS if form.applies(block)).draw(rng, block)
