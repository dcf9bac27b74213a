r"""A log density by what it needs of the rows of data: a sum of terms, or a function of such sums.

A log density that is a sum over rows has a gradient that is one. With a Gaussian block integrated
out (:mod:`.integrated`) it is a function of sums over rows,

.. math::

    \log p(\theta) = F(\theta, S(\theta)), \quad S = \sum_i s(\theta, x_i, y_i),

the block's information and linear part, and the log density of the rows where the block is zero.
Its gradient is :math:`\partial F / \partial \theta + \sum_i (\partial s_i / \partial \theta)^T
\, \partial F / \partial S`: first the sums, then F, then the second sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.evidence import Total
from pymc_nnsteps.graphs.shapes import lengths, stated_lengths
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.steps.integrated import likelihood, log_integral
from pymc_nnsteps.steps.row_blocks import ByRow, by_row
from pymc_nnsteps.steps.target import gradient_of, log_density
from pymc_nnsteps.steps.variables import as_value

FEWEST = 3_000
"""Rows from which sums come first: of fewer, what is computed for them is kept for the gradient."""


@dataclass(frozen=True)
class Terms:
    """A log density in terms of a model's value variables.

    Attributes
    ----------
    rest : TensorVariable
        What is no sum over rows.
    sums : tuple of TensorVariable
        Sums over the rows of data: of one block of rows, if the data have only these. The first one
        is a part of the log density.
    by_row : ByRow
        These rows.
    """

    rest: TensorVariable
    sums: tuple[TensorVariable, ...]
    by_row: ByRow

    def graphs(
        self,
        moved: Mapping[Variable, Variable],
        parts: Sequence[TensorVariable],
        is_first: TensorVariable,
        given: TensorVariable,
    ) -> list[TensorVariable]:
        """Vectors that one block of rows adds: the log density and its gradient.

        Parameters
        ----------
        moved : mapping
            Value variables that are moved, by what is made of ``parts``.
        parts : sequence of TensorVariable
            What the gradient refers to.
        is_first : TensorVariable
            One for the first block of rows, else zero.
        given : TensorVariable
            What the functions of these graphs are given beside places and numbers.
        """
        rest, rows = substitute([self.rest, *self.sums], moved)
        return [_with_gradient(is_first * rest + rows, parts, list(moved))]


@dataclass(frozen=True)
class OfSums(Terms):
    """A log density that is a function of sums over rows.

    Attributes
    ----------
    given : tuple of TensorVariable
        What stands for the sums in ``rest``.
    """

    given: tuple[TensorVariable, ...] = ()

    def graphs(
        self,
        moved: Mapping[Variable, Variable],
        parts: Sequence[TensorVariable],
        is_first: TensorVariable,
        given: TensorVariable,
    ) -> list[TensorVariable]:
        """Vectors of :class:`~pymc_nnsteps.kernels.trajectories.Density`.

        The sums of one block of rows; the log density of given sums, its gradient and that in the
        sums; the gradient of the sums of one block of rows, times ``given``.
        """
        sums = substitute(self.sums, moved)
        pieces = _pieces(given, sums)
        known: dict[Any, Any] = {**moved}
        known.update(zip(self.given, pieces, strict=True))
        [density] = substitute([self.rest], known)
        slopes: Any = grad(density, pieces)
        through = {s: piece.astype(s.dtype) for s, piece in zip(sums, pieces, strict=True)}
        by_rows: Any = grad(None, list(parts), known_grads=through, disconnected_inputs="ignore")
        whole = _with_gradient(density, parts, list(moved))
        return [_flat(sums), pt.concatenate([whole, _flat(slopes)]), _flat(by_rows)]


def terms(model: pm.Model, factors: Sequence[TensorVariable], block: Gaussian | None) -> Terms:
    """Log density of some factors, with a Gaussian block integrated out if one is given."""
    children = [] if block is None else [seen.child for seen in block.observations]
    found = by_row(model, list(dict.fromkeys([*factors, *children])))
    if block is not None and not _is_worth_two_passes(block, found):
        found = ByRow()
    rest = log_density(model, [f for f in factors if f not in found.factors])
    rows = log_density(model, [f for f in found.factors if f in factors])
    if block is None:
        return Terms(rest, (rows,), found)
    rest, rows = substitute([rest, rows], _zeros(model, block.draws))
    inside = likelihood(block, [s for s in block.observations if s.child in found.factors])
    others = likelihood(block, [s for s in block.observations if s.child not in found.factors])
    if inside is None:
        return Terms(rest + log_integral(model, block, others), (rows,), found)
    information, linear = substitute([inside.information, inside.linear], natural_values(model))
    sums = (rows, information, linear)
    given = tuple(s.type.clone(dtype="float64")() for s in sums)
    total = Total(*given[1:])
    rest += given[0] + log_integral(model, block, total if others is None else total + others)
    return OfSums(rest, sums, found, given)


def _is_worth_two_passes(block: Gaussian, found: ByRow) -> bool:
    """Whether the rows are many, and no length of what is observed is known without them."""
    of_rows = [seen.child for seen in block.observations if seen.child in found.factors]
    n_rows = max((len(data.get_value(borrow=True)) for data in found.containers), default=0)
    return n_rows >= FEWEST and all(_has_length_of(child, found) for child in of_rows)


def _has_length_of(child: TensorVariable, found: ByRow) -> bool:
    [length, *_] = stated_lengths(child)
    return length is None or (
        isinstance(length, Variable) and not found.containers.isdisjoint(ancestors([length]))
    )


def _zeros(model: pm.Model, rvs: Sequence[TensorVariable]) -> dict[Any, Any]:
    """Zeros for the value variable of each."""
    arrays = substitute([pt.zeros(lengths(rv), rv.dtype) for rv in rvs], natural_values(model))
    values = [model.rvs_to_values[rv] for rv in rvs]
    return {v: as_value(v, array) for v, array in zip(values, arrays, strict=True)}


def _with_gradient(
    density: TensorVariable, parts: Sequence[TensorVariable], values: Sequence[Variable]
) -> TensorVariable:
    return pt.concatenate([density[None], _flat(gradient_of(density, parts, values))])


def _flat(arrays: Sequence[TensorVariable]) -> TensorVariable:
    vector: TensorVariable = pt.concatenate([array.ravel().astype("float64") for array in arrays])
    return vector


def _pieces(vector: TensorVariable, like: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Arrays of the shapes of others, one after another in a vector."""
    shapes = [
        [array.shape[axis] if n is None else n for axis, n in enumerate(array.type.shape)]
        for array in like
    ]
    sizes = [pt.prod(pt.stack([1, *shape])) for shape in shapes]
    ends = list(accumulate(sizes))
    return [
        vector[end - size : end].reshape(shape, ndim=len(shape))
        for size, end, shape in zip(sizes, ends, shapes, strict=True)
    ]
