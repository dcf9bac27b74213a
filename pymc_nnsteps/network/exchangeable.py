"""Units of a layer that a model does not tell apart: they may change places, and some their signs.

All variables that have an axis of a layer's units are permuted along it together. Each expression
of the model is then permuted likewise, or, where units are summed over, stays as it is; so does the
density. This is followed through the graph operation by operation
(:mod:`pymc_nnsteps.graphs.rows`), from one axis of a weight; the variables that have to be permuted
too are found where an operation pairs units with entries that stay. Where an array of units is
joined to others, as learnt rows of a category to other inputs, they are some of the entries along
an axis. Signs are followed in the same way, through odd functions and even ones, products and sums.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pymc as pm
from pymc.distributions.transforms import LogExpM1, LogOddsTransform, LogTransform
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as scalar
from pytensor.scalar.math import Erf
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.random.basic import LaplaceRV, NormalRV, StudentTRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import describe, is_by_entry, kind_of
from pymc_nnsteps.graphs.rearranging import reshaped_axes
from pymc_nnsteps.graphs.row_axes import MixesRows, RowAxis, Rows, row_axis_of
from pymc_nnsteps.graphs.rows import follow_rows
from pymc_nnsteps.graphs.search import once_per_model, parameters, stated_in
from pymc_nnsteps.graphs.values import scalar_constant
from pymc_nnsteps.network.network import unconstrained

LOCATIONS: Mapping[type, int] = {NormalRV: 0, StudentTRV: 1, LaplaceRV: 0}
"""Symmetric laws, and which of their parameters they are symmetric about."""

ODD = (
    *(scalar.Neg, scalar.Sign, scalar.Cast, scalar.Identity),
    *(scalar.Tanh, scalar.ArcTan, scalar.Sin, scalar.Sinh, scalar.ArcSinh, Erf),
)
EVEN = (scalar.Abs, scalar.Sqr, scalar.Cos, scalar.Cosh)
"""Functions of one operand."""

BY_ENTRY = (type(None), LogTransform, LogExpM1, LogOddsTransform)
"""Transforms that act on each entry alike."""


@dataclass(frozen=True)
class ExchangeableUnits:
    """Units of one layer."""

    # Free variables that are permuted together, and which entries along which axis.
    axes: Mapping[TensorVariable, Rows]
    # Of these, variables whose entries for a unit may all change sign together.
    signs: tuple[frozenset[TensorVariable], ...] = ()


@once_per_model
def exchangeable_units(model: pm.Model) -> tuple[ExchangeableUnits, ...]:
    """Layers of a model whose units may change places.

    A layer is summed over in a product with weights, so that it has two variables without bounds:
    the weights into its units, and those behind them.
    """
    found: list[ExchangeableUnits] = []
    weights = unconstrained(model)
    for rv in (rv for rv in weights if rv.ndim > 1):
        for axis in range(rv.ndim):
            place = Rows(axis)
            if any(units.axes.get(rv) == place for units in found) or rv.type.shape[axis] == 1:
                continue
            try:
                axes = _Search(model).axes({rv: place})
            except MixesRows:
                continue
            if sum(other in axes for other in weights) > 1:
                ordered = {other: axes[other] for other in model.free_RVs if other in axes}
                found.append(ExchangeableUnits(ordered, _signs(model, ordered)))
    return tuple(found)


def why_told_apart(model: pm.Model, weights: TensorVariable) -> str:
    """Why none of the axes of some weights are those of units that may change places."""
    if any(weights in units.axes for units in exchangeable_units(model)):
        return ""
    reasons = []
    for axis in range(weights.ndim):
        try:
            _Search(model).axes({weights: Rows(axis)})
        except MixesRows as reason:
            reasons.append(f"along axis {axis} {reason}")
    return "; ".join(reasons)


def _signs(
    model: pm.Model, axes: Mapping[TensorVariable, Rows]
) -> tuple[frozenset[TensorVariable], ...]:
    """Variables of a layer that may change sign together."""
    found: list[frozenset[TensorVariable]] = []
    for rv in unconstrained(model):
        if rv in axes and not any(rv in signs for signs in found):
            try:
                turned = _Search(model, signs=True).axes({rv: axes[rv]})
            except MixesRows:
                continue
            if turned.items() <= axes.items():
                found.append(frozenset(turned))
    return tuple(found)


def _of_parts(
    op: Op,
    node: Apply,
    places: Sequence[RowAxis],
    axis_of: Callable[[Op, Apply, Sequence[RowAxis]], RowAxis],
) -> RowAxis:
    """Place of the outputs of a node, units being some of the entries along an axis."""
    parts = {place.within for place in places if isinstance(place, Rows)}
    if len(parts) > 1:
        raise MixesRows("pairs units with others")
    [within] = parts or {None}
    if isinstance(op, Join) and within is None:
        within = _joined(op, node, places)
        if within is not None:
            return Rows(op.axis % node.outputs[0].type.ndim, within)
    try:
        found = axis_of(op, node, [Rows(p.axis) if isinstance(p, Rows) else p for p in places])
    except MixesRows as reason:
        if reason.lacking is None:
            raise
        operand, place = reason.lacking
        raise MixesRows(str(reason), (operand, replace(place, within=within))) from None
    return replace(found, within=within) if isinstance(found, Rows) else found


def _joined(op: Join, node: Apply, places: Sequence[RowAxis]) -> tuple[int, int] | None:
    """The first and number of entries that one array has in others joined along its units."""
    axis = op.axis % node.outputs[0].type.ndim
    numbers = [i for i, place in enumerate(places) if place == Rows(axis)]
    lengths = [array.type.shape[axis] for array in node.inputs[: numbers[0] + 1]] if numbers else []
    if len([place for place in places if place]) != 1 or not lengths or None in lengths:
        return None
    *before, own = lengths
    return sum(n or 0 for n in before), own or 0


def _axis_of_units(op: Op, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    """Axis of the units in the outputs of a node; none where they are summed over."""
    first = places[0]
    match op:
        case RandomVariable() if not any(places):
            return None  # a law that is a parameter, as of the scales of a Cholesky factor
        case Shape() | Shape_i():
            return None
        case SpecifyShape() | Softmax() | LogSoftmax() if isinstance(first, Rows):
            return first
        case Alloc() if isinstance(first, Rows):
            return Rows(first.axis + node.outputs[0].type.ndim - node.inputs[0].type.ndim)
        case Reshape() if isinstance(first, Rows):
            return _reshaped(first.axis, node)
        case CAReduce() if isinstance(first, Rows):
            n_axes = node.inputs[0].type.ndim
            if op.axis is None or first.axis in {axis % n_axes for axis in op.axis}:
                return None
        case Dot():
            return _product(node, places, 0)
        case Blockwise() if isinstance(op.core_op, Dot):
            return _product(node, places, op.batch_ndim(node))
    return row_axis_of(op, node, places)


def _product(node: Apply, places: Sequence[RowAxis], n_batch: int) -> RowAxis:
    """Units in a product of two arrays, summed over where both have them along the common axis."""
    common = [n_batch + 1 if node.inputs[0].type.ndim > n_batch + 1 else n_batch, n_batch]
    on_common = [place == Rows(axis) for place, axis in zip(places, common, strict=True)]
    if all(on_common):
        return None
    if any(on_common) and None in places:
        lacking = places.index(None)
        raise MixesRows("sums over units", (node.inputs[lacking], Rows(common[lacking])))
    return row_axis_of(node.op, node, places)


def _reshaped(axis: int, node: Apply) -> RowAxis:
    """Units after a reshape that leaves them an axis of their own."""
    for sides in reshaped_axes(node):
        arrays = zip((node.inputs[0], node.outputs[0]), sides, strict=True)
        old, new = ([i for i in run if not x.type.broadcastable[i]] for x, run in arrays)
        if old == [axis] and len(new) == 1:
            return Rows(new[0])
    raise MixesRows("is not known to keep units whole")


def _axis_of_signs(op: Op, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    """Axis of the units whose signs the outputs of a node have."""
    match op:
        case RandomVariable() if not any(places):
            return None
        case Elemwise():
            return _turned(op.scalar_op, node, places)
        case CAReduce():
            place = row_axis_of(op, node, places)
            if isinstance(op, Sum):
                return place
        case Dot() | Shape() | Shape_i() | SpecifyShape() | Alloc() | Reshape():
            return _axis_of_units(op, node, places)
        case Blockwise() if isinstance(op.core_op, Dot):
            return _axis_of_units(op, node, places)
        case DimShuffle() | Subtensor() | ViewOp() | CheckAndRaise():
            return row_axis_of(op, node, places)
    raise MixesRows("is not known to be odd")


def _turned(op: Any, node: Apply, places: Sequence[RowAxis]) -> RowAxis:
    """Signs of an elementwise function, even or odd in each operand that has them."""
    [place, *others] = {place for place in places if place is not None}
    if others:
        raise MixesRows("pairs signs with each other")
    assert isinstance(place, Rows)
    if isinstance(op, scalar.Add | scalar.Sub):
        for operand, its_place in zip(node.inputs, places, strict=True):
            if its_place is None and scalar_constant(operand) != 0:
                raise MixesRows("adds entries of one sign", (operand, place))
        return place
    if isinstance(op, scalar.Mul | scalar.TrueDiv):
        return place if sum(each is not None for each in places) % 2 else None
    if isinstance(op, scalar.Clip) and places[1:] == [None, None]:
        lower, upper = (scalar_constant(bound) for bound in node.inputs[1:])
        if lower is not None and upper is not None and lower == -upper:
            return place
    if isinstance(op, EVEN):
        return None
    if isinstance(op, ODD):
        return place
    raise MixesRows("is neither odd nor even")


class _Search:
    """Search for all axes along which variables are permuted, or change signs, together."""

    def __init__(self, model: pm.Model, *, signs: bool = False) -> None:
        self._model, self._signs = model, signs

    def axes(self, known: dict[TensorVariable, Rows]) -> dict[TensorVariable, Rows]:
        """All axes that are changed with those that are known."""
        while True:
            try:
                more = self._missing(known)
                if not more:
                    return known
            except MixesRows as reason:
                more = self._behind(known, *reason.lacking) if reason.lacking else {}
                if not more:
                    raise
            known = {**known, **more}

    def _missing(self, known: Mapping[TensorVariable, Rows]) -> dict[TensorVariable, Rows]:
        """Variables that change because their parameters do; none if all is consistent."""
        for rv in self._model.basic_RVs:
            place = self._of_parameters(known, rv)
            if place is not None and known.get(rv) != place:
                if rv not in self._model.free_RVs or rv in known:
                    raise MixesRows(f"{describe(rv)} distinguishes the units")
                return {rv: place}
        for term in self._model.potentials:
            if self._place(known, term) is not None and self._signs:
                raise MixesRows(f"{describe(term)} would change")
        return {}

    def _of_parameters(
        self, known: Mapping[TensorVariable, Rows], rv: TensorVariable
    ) -> Rows | None:
        """Axis of a variable along which its parameters change."""
        op: Any = rv.owner.op
        if not is_by_entry(rv):
            tensors = [each for each in rv.owner.inputs if isinstance(each, TensorVariable)]
            if rv in known or any(self._place(known, each) is not None for each in tensors):
                raise MixesRows(f"{describe(rv)} is not known to be drawn entry by entry")
            return None
        if rv in known:
            self._require_law(rv)
        found: Rows | None = None
        for i, (parameter, core) in enumerate(zip(parameters(rv), op.ndims_params, strict=True)):
            place = self._place(known, parameter)
            n_batch = parameter.ndim - core
            first = rv.ndim - n_batch
            if place is not None:
                if place.axis >= n_batch or not self._may_change(rv, i):
                    raise MixesRows(f"{describe(rv)} depends on several units at once")
                found = replace(place, axis=first + place.axis)
            elif rv in known and self._has_to_change(rv, i, known[rv].axis - first):
                lacking = parameter, replace(known[rv], axis=known[rv].axis - first)
                raise MixesRows(
                    f"{describe(rv)} has different parameters for different units", lacking
                )
        return found

    def _behind(
        self, known: Mapping[TensorVariable, Rows], part: Any, place: Rows
    ) -> dict[TensorVariable, Rows]:
        """A variable that has to change for an expression to change along an axis."""
        unknown = stated_in([part], self._model.basic_RVs).difference(known)
        for rv in (rv for rv in self._model.free_RVs if rv in unknown):
            for own in (replace(place, axis=axis) for axis in range(rv.ndim)):
                try:
                    is_behind = self._place({**known, rv: own}, part) == place
                except MixesRows as other:
                    is_behind = other.lacking is not None
                if is_behind:
                    return {rv: own}
        return {}

    def _place(self, known: Mapping[TensorVariable, Rows], part: Any) -> Rows | None:
        """Axis along which an expression changes."""
        places: dict[Any, Any] = {rv: (rv, known.get(rv)) for rv in self._model.basic_RVs}
        axis_of = partial(_of_parts, axis_of=_axis_of_signs if self._signs else _axis_of_units)
        place = follow_rows(part, places, row_axis_of=axis_of)[1]
        assert place is None or isinstance(place, Rows)
        return place

    def _require_law(self, rv: TensorVariable) -> None:
        """Refuse a variable whose density changes with it."""
        if self._signs:
            if kind_of(rv) not in LOCATIONS or rv not in unconstrained(self._model):
                raise MixesRows(f"{describe(rv)} has no symmetric distribution")
        elif not isinstance(self._model.rvs_to_transforms[rv], BY_ENTRY):
            raise MixesRows(f"{describe(rv)} is transformed as a whole")

    def _may_change(self, rv: TensorVariable, i: int) -> bool:
        """Whether a variable may change as its i-th parameter does."""
        return not self._signs or LOCATIONS.get(kind_of(rv)) == i

    def _has_to_change(self, rv: TensorVariable, i: int, axis: int) -> bool:
        """Whether the i-th parameter of a variable that changes has to change, along an axis."""
        parameter = parameters(rv)[i]
        if self._signs:
            return self._may_change(rv, i) and scalar_constant(parameter) != 0
        return axis >= 0 and not parameter.type.broadcastable[axis]
