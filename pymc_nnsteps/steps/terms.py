r"""A log density by what it needs of the rows of data: a sum of terms, or a function of such sums.

Where each row of some observations depends on its own row of data containers alone, their log
density and its gradient are sums over blocks of rows. What is computed of a block stays in the
processor's cache, and memory does not grow with the data: on 14 000 rows a gradient takes a half to
a quarter of the time. With a Gaussian block integrated out the log density is a function of sums
over rows,

.. math::

    \log p(\theta) = F(\theta, S(\theta)), \quad S = \sum_i s(\theta, x_i, y_i),

the block's information and linear part, and the log density of the rows where the block is zero.
Its gradient is :math:`\partial F / \partial \theta + \sum_i (\partial s_i / \partial \theta)^T
\, \partial F / \partial S`: first the sums, then F, then the second sum.

**The integral.** Where the posterior of a block :math:`v` given all else is
:math:`N(P^{-1} h, P^{-1})` (:mod:`pymc_nnsteps.laws.gaussian`), the density of all else is

.. math::

    \log \int p(\theta, v, y)\, dv = \log p(\theta, v = 0, y)
    + \tfrac12 h^T P^{-1} h - \tfrac12 \log |P| + \text{constant},

P and h functions of :math:`\theta`. With :math:`m = P^{-1} h` the gradients of the two terms are
:math:`m` with respect to h and :math:`-\tfrac12 (m m^T + P^{-1})` with respect to P.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.rewriting import canonical
from pymc_nnsteps.gaussian.layout import BlockPrior, dense_size, prior_of
from pymc_nnsteps.gaussian.observation import Child, Observation, Total, evidence_of, total_of
from pymc_nnsteps.graphs.errors import known_or_none
from pymc_nnsteps.graphs.known import Unknown, describe, is_by_entry, prior_kind
from pymc_nnsteps.graphs.linear_terms import expand, flatten
from pymc_nnsteps.graphs.row_axes import MixesRows, Rows
from pymc_nnsteps.graphs.rows import follow_rows, require_aligned
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.graphs.shapes import lengths, stated_lengths
from pymc_nnsteps.graphs.values import natural_values, substitute, typed_like
from pymc_nnsteps.laws.conditional import Shapes
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.laws.recognition import find_conditionals, match
from pymc_nnsteps.moves.plan import Choice
from pymc_nnsteps.steps.network_curvature import network_curvature
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
    """A log density of value variables: a sum over rows, or a function of such sums."""

    rest: TensorVariable  # what is no sum over rows
    # Sums over the rows of data: of one block of rows, if the data have only these. The first one
    # is a part of the log density.
    sums: tuple[TensorVariable, ...]
    by_row: ByRow  # these rows
    # What stands for the sums in ``rest``, if this is a function of them.
    given: tuple[TensorVariable, ...] = ()

    def graphs(
        self,
        moved: Mapping[Variable, Variable],
        parts: Sequence[TensorVariable],
        is_first: TensorVariable,
        given: TensorVariable,
    ) -> list[TensorVariable]:
        """Vectors of :class:`~pymc_nnsteps.steps.trajectories.Density`.

        Of a sum over rows it is the vector that one block of these adds: the log density and its
        gradient in ``parts``, of which ``moved`` is made; ``is_first`` is one for the first block,
        else zero.
        """
        if not self.given:
            rest, rows = substitute([self.rest, *self.sums], moved)
            return [_with_gradient(is_first * rest + rows, parts, list(moved))]
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
    return Terms(rest, sums, found, given)


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


LARGEST = 100
"""Upper limit of the entries of a block per label for ``collapse="auto"``."""


def block_to_collapse(
    model: pm.Model, rvs: Sequence[TensorVariable], collapse: Choice, shapes: Shapes
) -> Gaussian | None:
    """The largest Gaussian block, but not all, of some variables, if it is to be integrated out."""
    if collapse is False or (collapse == "auto" and not _is_precise_network(model, rvs)):
        return None
    members = [rv for rv in rvs if _is_gaussian(model, rv)]
    blocks = [c for c in find_conditionals(model, members) if isinstance(c, Gaussian)]
    sizes = {block: dense_size(block.members, shapes) for block in blocks}
    block = max(sizes, key=sizes.__getitem__, default=None)
    if block is not None and len(block.draws) < len(rvs):
        total = likelihood(block, block.observations)
        cheap = sizes[block] <= LARGEST and _is_shared(prior_of(block.members), total)
        cheap = cheap and any(seen.child not in rvs for seen in block.observations)
        return block if collapse is True or cheap else None
    if collapse is True:
        what = "none of" if block is None else "all of"
        raise ValueError(
            f"collapse is True, but {what} {', '.join(map(describe, rvs))} can be integrated out "
            f"and drawn exactly; {'pass False' if block is None else 'use nns.Gibbs'}."
        )
    return None


def _is_precise_network(model: pm.Model, rvs: Sequence[TensorVariable]) -> bool:
    """Whether variables are weights, in float64, of a network that can be read."""
    is_network = known_or_none(network_curvature, model, rvs) is not None
    return is_network and all(rv.dtype == "float64" for rv in rvs)


def _is_gaussian(model: pm.Model, rv: TensorVariable) -> bool:
    found = known_or_none(match, model, rv)
    return isinstance(found, Gaussian) and all(
        isinstance(seen, Observation) for seen in found.observations
    )


def log_integral(model: pm.Model, block: Gaussian, total: Total | None) -> TensorVariable:
    """Log integral over a block, relative to the log density with the block at zero."""
    prior = prior_of(block.members)
    n = len(prior.label_lengths)
    labels = dict(enumerate(prior.label_lengths))
    diagonal = prior.precision[..., None] * pt.eye(prior.precision.shape[-1])
    precision = diagonal if total is None else diagonal + total.information
    linear = prior.linear(None if total is None else total.linear)
    h = flatten(expand(linear, labels), 0, n)
    if _is_shared(prior, total):
        p, h = precision.dimshuffle("x", n, n + 1), h[None]
    else:
        p, h = flatten(expand(precision, labels), 0, n), h[:, None]
    p, h = substitute([p.astype("float64"), h.astype("float64")], natural_values(model))
    return _log_gaussian_integral(p, h)


def likelihood(block: Gaussian, observations: Sequence[Child]) -> Total | None:
    """Total of the contributions of some children of a block, if there are any."""
    evidence = []
    for seen in observations:
        assert isinstance(seen, Observation)
        evidence.append(evidence_of(block.members, seen))
    return total_of(evidence, elementwise=False) if evidence else None


def _is_shared(prior: BlockPrior, total: Total | None) -> bool:
    """Whether all labels have the same precision matrix."""
    return prior.shared and (total is None or total.shared)


def _log_gaussian_integral(p: TensorVariable, h: TensorVariable) -> TensorVariable:
    """Sum over g, r of ``h_gr^T P_g^-1 h_gr / 2 - log |P_g| / 2``, with its gradient by hand."""
    p_in, h_in = p.type(), h.type()
    root = cholesky(p_in, lower=True)
    whitened = solve_triangular(root, h_in.mT, lower=True, b_ndim=2)
    log_roots = pt.log(pt.diagonal(root, axis1=-2, axis2=-1)).sum()
    value = pt.sqr(whitened).sum() / 2 - h_in.shape[1] * log_roots

    def pullback(
        inputs: list[TensorVariable],
        outputs: list[TensorVariable],
        cotangents: list[TensorVariable],
    ) -> list[TensorVariable]:
        p, h = inputs
        [slope] = cotangents
        inverse_root = solve_triangular(
            cholesky(p, lower=True), pt.broadcast_to(pt.eye(p.shape[-1]), p.shape), lower=True
        )
        inverse = inverse_root.mT @ inverse_root
        m = h @ inverse
        return [-slope / 2 * (m.mT @ m + h.shape[1] * inverse), slope * m]

    integral: Any = OpFromGraph([p_in, h_in], [value], inline=True, pullback=pullback)
    return integral(p, h)
