r"""Effects of groups, eliminated from a joint Gaussian by the structure of their groups.

Model, as in :mod:`.effects`, for effects :math:`a` of groups :math:`g(n)` and coefficients
:math:`\beta`:

.. math::

    a, \beta \sim N(\mu_0, \Lambda^{-1}), \qquad
    y_n \sim N(z_n \cdot a_{g(n)} + x_n \cdot \beta + o_n, 1 / w_n)

with diagonal :math:`\Lambda`. The joint precision matrix has a block :math:`A_g` for each group,
zeros between two groups of a kind, and a border for the coefficients:

.. math::

    P = \begin{pmatrix} A & B \\ B^T & D \end{pmatrix}, \quad
    A_g = \Lambda_g + \sum_{g(n) = g} w_n z_n z_n^T, \quad
    B_g = \sum_{g(n) = g} w_n z_n x_n^T.

With :math:`A = L L^T` block by block and :math:`H = L^{-1} B`, for standard normals
:math:`\xi, \eta`,

.. math::

    \beta &\sim N(S^{-1} (h_\beta - H^T L^{-1} h_a), S^{-1}), \qquad S = D - H^T H, \\
    a &= L^{-T} (L^{-1} h_a - H \beta + \xi).

The difference S loses digits where noise is small. Where all rows see a coefficient, S is formed as
a sum of squares: with :math:`M = A^{-1} B`,

.. math:: S = \Lambda_\beta + \sum_n w_n (x_n - M_{g(n)}^T z_n) (x_n - M_{g(n)}^T z_n)^T
          + \sum_g M_g^T \Lambda_g M_g,

and its linear part likewise, from the residual of the effects at :math:`\beta = 0`. If the factor
of S has lost digits all the same, the terms of this sum are not added up, but factorised as rows.
All sums are over rows, and each row adds to its own group: no matrix has both an axis of rows and
an axis of groups.

**Outputs with noise in common** are rows with noise of their own. For outputs k of a row n, with
whatever linear a mean :math:`m_{nk}` is, the model is

.. math::

    y_{nk} = m_{nk} + l_{nk} \cdot e_n + \epsilon_{nk}, \qquad
    e_n \sim N(0, \Sigma), \quad \epsilon_{nk} \sim N(0, 1 / w_{nk})

with diagonal :math:`\Sigma`. The outputs of a row have the covariance
:math:`V_n = \text{diag}(w_n)^{-1} + l_n \Sigma l_n^T = T_n\, \text{diag}(v_n)\, T_n^T`, where
:math:`T_n` is lower triangular with ones in its diagonal. So the entries of
:math:`T_n^{-1} y_n`, of which each is an output less its regression on those before it, are
independent with the variances :math:`v_n` around :math:`T_n^{-1} m_n`, which is linear in the same
variables. Where there is one output, only the variance changes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add, sub

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar import upcast
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.jit import jit
from pymc_nnsteps.compile.linear_algebra import Array
from pymc_nnsteps.compile.ops import as_op, refuse_lost
from pymc_nnsteps.gaussian.factor import LinearModel, draw_from_factor
from pymc_nnsteps.gaussian.layout import BlockPrior, Member, dense_size, prior_of
from pymc_nnsteps.graphs.linear_terms import Length, expand, flatten, varies
from pymc_nnsteps.random.standard_normal import standard_normal


@dataclass(frozen=True)
class Part:
    """How the rows of a child see a variable: all its entries, or those of their group."""

    design: TensorVariable  # coefficients of the entries that a row sees, shape (n or 1, k)
    # Group of each row, shape (n,); None if each row sees all k entries.
    index: TensorVariable | None
    groups: Length


@dataclass(frozen=True)
class ChildLikelihood:
    """Likelihood of a child: ``response = design entries + noise`` with precision ``weight``."""

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
        designs = first.design, second.design
        if second.index is None:
            return flatten(self._by_group(first.index, first.groups, *designs), 0, 2)
        index = first.index * second.groups + second.index
        sums = self._by_group(index, first.groups * second.groups, *designs)
        shape = (first.groups, second.groups, sums.shape[1], sums.shape[2])
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
        return self._by_group(first.index, first.groups, first.design, second.design)

    def linear(self, i: int) -> TensorVariable:
        """Weighted sums of responses, for all entries of a variable."""
        part = self.parts[i]
        if part.index is None:
            return self.dot(self._rows(part), self.response)
        response = self.response[:, None]
        return self._by_group(part.index, part.groups, part.design, response).flatten()

    def within(
        self, groups: Sequence[int], dense: Sequence[int], means: TensorVariable
    ) -> TensorVariable:
        """Rows of variables minus the part that the groups explain, shape (n, d)."""
        rows = pt.concatenate([self._rows_of_all(self.parts[i]) for i in dense], axis=1)
        return rows - self.of_groups(groups, means)

    def of_groups(self, groups: Sequence[int], entries: TensorVariable) -> TensorVariable:
        """Contribution of effects (groups, k, ...) to each row, shape (n, ...)."""
        index = self.parts[groups[0]].index
        assert index is not None
        parts = [self.parts[i] for i in groups]
        alike = all(part.design.type.broadcastable[0] for part in parts)
        rows = [part.design if alike else self._rows(part) for part in parts]
        design = pt.concatenate(rows, axis=1)
        flat = flatten(entries, 1, entries.ndim - 1)
        seen: TensorVariable = as_op(see_groups, 2)(index.astype("int64"), design, flat)
        return seen[:, 0] if entries.ndim == 2 else seen

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

    def _rows_of_all(self, part: Part) -> TensorVariable:
        """Coefficients of all entries, shape (n, entries)."""
        rows = self._rows(part)
        if part.index is None:
            return rows
        is_own = pt.eq(part.index[:, None], pt.arange(part.groups))
        return flatten(is_own[:, :, None] * rows[:, None, :], 1, 2)

    @property
    def arrays(self) -> list[Variable]:
        """All that it is made of."""
        of_parts = [array for p in self.parts for array in (p.design, p.index, p.groups)]
        return [self.response, self.weight, *(a for a in of_parts if isinstance(a, Variable))]

    def _by_group(
        self, index: TensorVariable, groups: Length, first: TensorVariable, second: TensorVariable
    ) -> TensorVariable:
        """Weighted sums of products of the rows of each group, shape (groups, k, d)."""
        dtype = upcast(first.dtype, second.dtype, self.weight.dtype)
        one = pt.ones((1, 1), dtype)
        shared = [rows if rows.type.broadcastable[0] else one for rows in (first, second)]
        a, b = (one if rows.type.broadcastable[0] else rows for rows in (first, second))
        k, d = (rows.type.shape[1] or rows.shape[1] for rows in (a, b))
        weight = self.weight if self._weighs else one[0]
        start = pt.zeros((groups, k * d), dtype)
        sums = as_op(add_products, 2)(start, index.astype("int64"), weight, a, b.astype(dtype))
        spread = sums.reshape((groups, k, d)) * shared[0][:, :, None] * shared[1][:, None, :]
        return spread if self._weighs else spread * self.weight[0]


class Factor:
    """Lower Cholesky factor of a matrix (groups, k, k) for each group, entry by entry."""

    def __init__(self, matrix: TensorVariable, k: int) -> None:
        square = pt.specify_shape(matrix, (None, k, k))
        self._k, self._diagonal = k, pt.diagonal(square, axis1=1, axis2=2)
        self._entries: dict[tuple[int, int], TensorVariable] = {}
        for j in range(k):
            for i in range(j, k):
                known = [self._entries[i, m] * self._entries[j, m] for m in range(j)]
                left = reduce(sub, known, square[:, i, j])
                self._entries[i, j] = pt.sqrt(left) if i == j else left / self._entries[j, j]

    @property
    def arrays(self) -> list[TensorVariable]:
        """The entries."""
        return list(self._entries.values())

    def refuse_lost(self, block: TensorVariable) -> TensorVariable:
        """A block (groups, k), if subtraction has left digits of each pivot."""
        if self._k == 1:
            return block
        roots = pt.stack([self._entries[i, i] for i in range(self._k)], axis=1)
        kept: TensorVariable = refuse_lost(self._diagonal.flatten(), roots.flatten(), block)
        return kept

    def solve_lower(self, right: TensorVariable) -> TensorVariable:
        """``L^{-1} right`` for ``right`` of shape (groups, k) or (groups, k, d)."""
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
    """Effects of groups at positions among all variables, independent given the rest."""

    def __init__(
        self,
        said: Sequence[ChildLikelihood],
        positions: Sequence[int],
        members: Sequence[Member],
        shapes: Mapping[TensorVariable, tuple[int, ...]],
    ) -> None:
        self._said, self._positions = said, positions
        self._prior, k = prior_of(members), dense_size(members, shapes)
        own = _blocks(said, positions, positions, lambda s, i, j: s.within_groups(i, j))
        self._factor = Factor(own + self._prior.precision[..., None] * pt.eye(k), k)
        [n_groups] = self._prior.label_lengths
        sums = [_linear(said, [i]).reshape((n_groups, -1)) for i in positions]
        linear = self._prior.linear(pt.concatenate(sums, axis=1))
        self._half = self._factor.solve_lower(linear)

    def _coupling(self, rest: Sequence[int]) -> TensorVariable:
        """``H``, shape (groups, k, d)."""
        stacked = _blocks(self._said, self._positions, rest, lambda s, i, j: s.coupling(i, j))
        return self._factor.solve_lower(stacked)

    def complement(
        self, rest: Sequence[int], prior: BlockPrior
    ) -> tuple[TensorVariable, TensorVariable]:
        """``S`` and its linear part, as differences."""
        flat = flatten(self._coupling(rest), 0, 2)
        precision, score = unconditional(self._said, rest, prior)
        return (precision - pt.dot(flat.T, flat), score - pt.dot(flat.T, self._half.flatten()))

    def complement_by_rows(
        self, dense: Sequence[int], prior: BlockPrior
    ) -> tuple[TensorVariable, TensorVariable]:
        """``S`` and its linear part as sums of squares, where all rows see: no digits are lost."""
        means, beyond, rows, left = self._unexplained(dense, self._coupling(dense))
        seen = list(zip(self._said, rows, left, strict=True))
        precision = pt.diag(prior.precision) + _sum(s.dot(within, within) for s, within, _ in seen)
        shrunk = pt.broadcast_to(self._prior.precision[..., None], means.shape) * means
        precision = precision + pt.tensordot(shrunk, means, [[0, 1], [0, 1]])
        score = _sum(s.dot(within, response) for s, within, response in seen)
        score = score + pt.tensordot(shrunk, beyond, [[0, 1], [0, 1]])
        return precision, prior.linear(score)

    def _unexplained(
        self, rest: Sequence[int], coupling: TensorVariable
    ) -> tuple[TensorVariable, TensorVariable, list[TensorVariable], list[TensorVariable]]:
        """``M``, effects less their prior mean where the rest is zero, and what they leave of rows.

        These are the rest's columns (n, d) and the response (n,) of each child.
        """
        means, start = self._factor.solve_upper(coupling), self._factor.solve_upper(self._half)
        rows = [s.within(self._positions, rest, means) for s in self._said]
        left = [s.response - s.of_groups(self._positions, start) for s in self._said]
        beyond = start if self._prior.mean is None else start - self._prior.mean
        return means, beyond, rows, left

    def seen_without(self, rest: Sequence[int]) -> LinearModel:
        """What children and the effects' prior say of the rest, as matrices of all entries."""
        coupling, own = self._coupling(rest), self._prior
        means, beyond, rows, left = self._unexplained(rest, coupling)
        designs, responses = [*rows, flatten(means, 0, 2)], [*left, beyond.flatten()]
        weights = [expand(s.weight, {0: s.response.shape[0]}) for s in self._said]
        weights.append(pt.broadcast_to(own.precision, beyond.shape).flatten())
        given: list[Variable] = [coupling, self._half, *self._factor.arrays, own.precision]
        given += [] if own.mean is None else [own.mean]
        given += [array for s in self._said for array in s.arrays]
        design, weight, response = map(pt.concatenate, (designs, weights, responses))
        return LinearModel(design, weight, response, tuple(given))

    def draw(
        self, rng: Variable, rest: Sequence[int], drawn: TensorVariable | None
    ) -> tuple[Variable, TensorVariable]:
        """Draw the effects given the rest."""
        half = self._half
        if drawn is not None:
            half = half - pt.tensordot(self._coupling(rest), drawn, 1)
        rng, noise = standard_normal(rng, self._prior.shape, self._prior.precision.dtype)
        return rng, self._factor.refuse_lost(self._factor.solve_upper(half + noise))

    def solve(self, right: TensorVariable) -> TensorVariable:
        """``P^{-1}`` times an array (groups, k, n), where nothing is left beside the effects."""
        return self._factor.solve_upper(self._factor.solve_lower(right))

    def solve_with(
        self,
        rest: Sequence[int],
        root: TensorVariable,
        right: TensorVariable,
        of_rest: TensorVariable,
    ) -> tuple[TensorVariable, TensorVariable]:
        """``P^{-1}`` times arrays (groups, k, n) and (d, n); ``root`` is the factor of S."""
        half, coupling = self._factor.solve_lower(right), self._coupling(rest)
        score = of_rest - pt.tensordot(coupling, half, [[0, 1], [0, 1]])
        found = draw_from_factor(root, score, pt.zeros_like(score))
        return self._factor.solve_upper(half - pt.tensordot(coupling, found, 1)), found


def unconditional(
    said: Sequence[ChildLikelihood], positions: Sequence[int], prior: BlockPrior
) -> tuple[TensorVariable, TensorVariable]:
    """Precision and linear part of variables, given all others."""
    precision = _blocks(said, positions, positions, lambda s, i, j: s.gram(i, j))
    return precision + pt.diag(prior.precision), prior.linear(_linear(said, positions))


def _linear(said: Sequence[ChildLikelihood], positions: Sequence[int]) -> TensorVariable:
    return pt.concatenate([_sum(s.linear(i) for s in said) for i in positions])


def _sum(arrays: Iterable[TensorVariable]) -> TensorVariable:
    return reduce(add, arrays)


def _blocks(
    said: Sequence[ChildLikelihood],
    rows: Sequence[int],
    columns: Sequence[int],
    information: Callable[[ChildLikelihood, int, int], TensorVariable],
) -> TensorVariable:
    """Matrices of pairs of variables, side by side in the last two axes."""
    stacked = [
        pt.concatenate([_sum(information(s, i, j) for s in said) for j in columns], axis=-1)
        for i in rows
    ]
    return pt.concatenate(stacked, axis=-2)


@dataclass(frozen=True)
class CommonNoise:
    """Noise that some outputs have in common."""

    outputs: tuple[int, ...]  # their positions among all
    loadings: tuple[TensorVariable, ...]  # how each of them sees the noise, shape (n or 1, d)
    variance: TensorVariable  # shape (d,)
    # The row of each entry, and the number of rows, of outputs without an entry in each row.
    rows: Mapping[int, tuple[TensorVariable, Length]] = field(default_factory=dict)

    def removed(self, said: Sequence[ChildLikelihood]) -> list[ChildLikelihood]:
        """What all outputs say, those with common noise, by one index, as others without."""
        every = list(said)
        for position, (index, n_rows) in self.rows.items():
            every[position] = _in_rows(every[position], index, n_rows)
        seen = [every[position] for position in self.outputs]
        left = {
            (i, j): pt.dot(self.loadings[i] * self.loadings[j], self.variance)
            for i in range(len(seen))
            for j in range(i + 1)
        }
        for j, own in enumerate(seen):
            left[j, j] = left[j, j] + pt.reciprocal(own.weight)
        for j, position in enumerate(self.outputs):
            every[position] = seen[j] = replace(seen[j], weight=pt.reciprocal(left[j, j]))
            for i in range(j + 1, len(seen)):
                share = left[i, j] / left[j, j]
                seen[i] = _less(seen[i], share, seen[j])
                for m in range(j + 1, i + 1):
                    left[i, m] = left[i, m] - share * left[m, j]
        return every


def _in_rows(said: ChildLikelihood, index: TensorVariable, n_rows: Length) -> ChildLikelihood:
    """What an output says, with an entry for each row, of weight zero where it has none."""

    def in_rows(array: TensorVariable) -> TensorVariable:
        zeros = pt.zeros((n_rows, *list(array.shape)[1:]), array.dtype)
        placed: TensorVariable = zeros[index].set(array)
        return placed

    parts = tuple(replace(part, design=in_rows(part.design)) for part in said.parts)
    return ChildLikelihood(in_rows(said.response), in_rows(said.weight), parts)


def _less(said: ChildLikelihood, share: TensorVariable, other: ChildLikelihood) -> ChildLikelihood:
    """What an output says without a share of another one."""
    parts = tuple(
        replace(own, design=own.design - share[:, None] * before.design)
        for own, before in zip(said.parts, other.parts, strict=True)
    )
    return ChildLikelihood(said.response - share * other.response, said.weight, parts)


@jit
def add_products(start: Array, index: Array, weight: Array, first: Array, second: Array) -> Array:
    """Sums (groups, k * d) of ``weight * first second^T`` over the rows of each group.

    Row i belongs to ``index[i]``; an index of no group makes all NaN. Weight, first (n or 1, k) and
    second (n or 1, d) may be common to all rows.
    """
    out = start.copy()
    groups, k, d = len(start), first.shape[1], second.shape[1]
    weighs, sees, pairs = int(len(weight) > 1), int(len(first) > 1), int(len(second) > 1)
    for row in range(len(index)):
        group = index[row]
        if group < 0 or group >= groups:
            out[:] = np.nan
            break
        sums, other = out[group], second[pairs * row]
        for i in range(k):
            scaled = weight[weighs * row] * first[sees * row, i]
            if scaled != 0.0:
                for j in range(d):
                    sums[i * d + j] += scaled * other[j]
    return out


@jit
def see_groups(index: Array, design: Array, entries: Array) -> Array:
    """``entries[group]^T design`` of each row, (n, d); NaN where there is no such group."""
    n, groups, k = len(index), len(entries), design.shape[1]
    d, varies = entries.shape[1] // k, int(len(design) > 1)
    out = np.zeros((n, d), entries.dtype)
    for row in range(n):
        group, seen = index[row], out[row]
        if group < 0 or group >= groups:
            seen[:] = np.nan
        else:
            of_group = entries[group]
            for i in range(k):
                share = design[varies * row, i]
                if share != 0.0:
                    for j in range(d):
                        seen[j] += share * of_group[i * d + j]
    return out
