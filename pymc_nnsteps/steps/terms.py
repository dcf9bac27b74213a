r"""A log density by what it needs of the rows of data: a sum of terms, or a function of such sums.

Where each row of some observations depends on its own row of data containers alone, their log
density and its gradient are sums over blocks of rows. What is computed of a block stays in the
processor's cache, and memory does not grow with the data: on 14 000 rows a gradient takes a half to
a quarter of the time. With a Gaussian block integrated out (:mod:`.integrated`) the log density is
a function of sums over rows,

.. math::

    \log p(\theta) = F(\theta, S(\theta)), \quad S = \sum_i s(\theta, x_i, y_i),

the block's information and linear part, and the log density of the rows where the block is zero.
Its gradient is :math:`\partial F / \partial \theta + \sum_i (\partial s_i / \partial \theta)^T
\, \partial F / \partial S`: first the sums, then F, then the second sum.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.observation import Total
from pymc_nnsteps.graphs.known import Unknown, is_by_entry, prior_kind
from pymc_nnsteps.graphs.row_axes import MixesRows, Rows
from pymc_nnsteps.graphs.rows import follow_rows, require_aligned
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.graphs.shapes import lengths, stated_lengths
from pymc_nnsteps.graphs.values import natural_values, substitute, typed_like
from pymc_nnsteps.kernels.rewriting import canonical
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.steps.integrated import likelihood, log_integral
from pymc_nnsteps.steps.target import gradient_of, log_density

ROWS = 512
"""Rows of a block: some ten layers of 16 units of them fill half a megabyte."""


@dataclass(frozen=True)
class ByRow:
    """Observed variables whose rows are independent given the free variables."""

    factors: tuple[TensorVariable, ...] = ()
    # Data with one entry for each row, along the first axis.
    containers: frozenset[SharedVariable] = frozenset()

    def has_rows(self, part: Any) -> bool:
        """Whether what is computed from data has one entry for each row, along its first axis."""
        place = follow_rows(part, {data: (data, Rows(0)) for data in self.containers})[1]
        if place is None:
            return False
        if place != Rows(0) or part.type.shape[0] is not None:
            raise MixesRows("has rows that cannot be cut")
        return True

    def mixed(self, outputs: Sequence[Variable], roots: Collection[Variable]) -> list[Variable]:
        """What is computed of data, has no rows, and is another for each block of rows."""
        found: list[Variable] = []
        varying = set(roots)
        for node in io_toposort([*roots, *self.containers], outputs):
            if varying.isdisjoint(node.inputs):
                new = [v for v in node.outputs if not self._is_cut_like_its_rows(v)]
                found += new
                varying.update(new)
            else:
                varying.update(node.outputs)
        return found

    def _is_cut_like_its_rows(self, part: Any) -> bool:
        try:
            self.has_rows(part)
        except MixesRows:
            return False
        return True


def by_row(model: pm.Model, factors: Sequence[TensorVariable]) -> ByRow:
    """Those of some factors of a log density that are sums over the rows of the same data."""
    observed = [
        rv
        for rv in factors
        if rv in model.observed_RVs and is_by_entry(rv) and prior_kind(model, rv) is not Unknown
    ]
    lengths = {rv: _length(model, rv) for rv in observed}
    first = next((n for n in lengths.values() if n is not None), None)
    if first is None:
        return ByRow()
    chosen = tuple(rv for rv in observed if lengths[rv] == first)
    parts = [part for rv in chosen for part in (model.rvs_to_values[rv], *parameters(rv))]
    containers = frozenset(
        data
        for data in _data_of(parts)
        if getattr(data.type, "shape", ())[:1] == (None,)
        and len(data.get_value(borrow=True)) == first
    )
    others = [
        part
        for factor in factors
        if factor not in chosen
        for part in (factor, model.rvs_to_values.get(factor, factor))
    ]
    if not containers.isdisjoint(_data_of(others)):
        return ByRow()
    found = ByRow(chosen, containers)
    try:
        for rv in chosen:
            _require_own_rows(model, rv, found)
    except MixesRows:
        return ByRow()
    return found


def _length(model: pm.Model, rv: TensorVariable) -> int | None:
    """Rows of the data that a variable is observed to have, if they are all in one container."""
    data = _data_of([model.rvs_to_values[rv]])
    return len(data[0].get_value(borrow=True)) if rv.ndim and len(data) == 1 else None


def _data_of(parts: Collection[Variable]) -> list[SharedVariable]:
    return [leaf for leaf in ancestors(parts) if isinstance(leaf, SharedVariable)]


def _require_own_rows(model: pm.Model, rv: TensorVariable, found: ByRow) -> None:
    """Check that each row of an observed variable is a function of the containers' same row."""
    if not found.has_rows(model.rvs_to_values[rv]):
        raise MixesRows(f"{rv.name} is observed without rows")
    known: dict[Any, Any] = {free: (free, None) for free in model.free_RVs}
    known |= {data: (data, Rows(0)) for data in found.containers}
    given = parameters(rv)
    for parameter, core in zip(given, rv.owner.op.ndims_params, strict=True):
        _, place = follow_rows(parameter, known)
        require_aligned(parameter, place, rv.ndim + core)


FEWEST = 3_000
"""Rows from which sums come first: of fewer, what is computed for them is kept for the gradient."""


@dataclass(frozen=True)
class Terms:
    """A log density in terms of a model's value variables."""

    rest: TensorVariable  # what is no sum over rows
    # Sums over the rows of data: of one block of rows, if the data have only these. The first one
    # is a part of the log density.
    sums: tuple[TensorVariable, ...]
    by_row: ByRow  # these rows

    def graphs(
        self,
        moved: Mapping[Variable, Variable],
        parts: Sequence[TensorVariable],
        is_first: TensorVariable,
        given: TensorVariable,
    ) -> list[TensorVariable]:
        """Vectors that one block of rows adds: the log density and its gradient in ``parts``.

        ``moved`` is made of these; ``is_first`` is one for the first block of rows, else zero.
        """
        rest, rows = substitute([self.rest, *self.sums], moved)
        return [_with_gradient(is_first * rest + rows, parts, list(moved))]


@dataclass(frozen=True)
class OfSums(Terms):
    """A log density that is a function of sums over rows."""

    given: tuple[TensorVariable, ...] = ()  # what stands for the sums in ``rest``

    def graphs(
        self,
        moved: Mapping[Variable, Variable],
        parts: Sequence[TensorVariable],
        is_first: TensorVariable,
        given: TensorVariable,
    ) -> list[TensorVariable]:
        """Vectors of :class:`~pymc_nnsteps.kernels.trajectories.Density`."""
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
    rest, rows = canonical(substitute([rest, rows], _zeros(model, block.draws)))
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
    return {v: typed_like(v, array) for v, array in zip(values, arrays, strict=True)}


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
