"""Affine form: an expression as an offset plus structured linear maps of given variables.

The structure is kept, not multiplied out. A :class:`Term` says which output axes carry an axis
of the variable along entry by entry (rows of a weight matrix with their units, samples of a
latent layer, groups of an indexed effect) and over which axes of the variable the map sums, with
which coefficients (a design matrix). So ``X @ W.T`` reads as: axis 0 of W is carried to output
axis 1, axis 1 is summed with coefficient X, and all rows of W share one design.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce, singledispatch
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as scalar
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.structure import (
    NotConjugate,
    depends_on,
    describe,
    scalar_constant,
)

Length = TensorVariable | int


@dataclass(frozen=True)
class Link:
    """An output axis that carries axis ``axis`` of a variable, entry by entry.

    With ``index`` (an integer vector), entry ``i`` of the output axis carries entry ``index[i]``.
    """

    axis: int
    index: TensorVariable | None = None


@dataclass(frozen=True)
class Term:
    """One variable's part of an affine map.

    ``out[o] = sum_a coefficient[o, a] * v[a]``, where an output axis with a :class:`Link` fixes
    an axis of the variable instead of leaving it to the sum.

    Attributes
    ----------
    links : tuple of (Link or None)
        One per output axis.
    coefficient : TensorVariable
        Axes of the output, then axes of the variable. Of length one on the variable's linked
        axes, and wherever it does not vary.
    """

    links: tuple[Link | None, ...]
    coefficient: TensorVariable

    @property
    def out_ndim(self) -> int:
        """Number of output axes."""
        return len(self.links)

    @property
    def rv_ndim(self) -> int:
        """Number of axes of the variable."""
        return self.coefficient.ndim - self.out_ndim

    @property
    def linked_axes(self) -> set[int]:
        """Axes of the variable that are carried to an output axis."""
        return {link.axis for link in self.links if link is not None}

    def varies_along(self, axis: int) -> bool:
        """Whether the coefficient may vary along one of its axes."""
        return not self.coefficient.type.broadcastable[axis]


@dataclass(frozen=True)
class AffineMap:
    """An offset (None: zero) plus at most one term per variable."""

    offset: TensorVariable | None
    terms: Mapping[Variable, Term]


def affine(
    expression: TensorVariable, rvs: Collection[Variable], barriers: Collection[Variable] = ()
) -> AffineMap:
    """Read ``expression`` as an affine map of ``rvs``.

    Parameters
    ----------
    expression : TensorVariable
    rvs : collection of TensorVariable
        The variables. The result is affine in all of them jointly: a product of two of them is
        declined.
    barriers : collection of TensorVariable
        Random variables behind which the graph is not searched: what is given.

    Returns
    -------
    AffineMap

    Raises
    ------
    NotConjugate
        If the expression is not affine in the variables, or the graph does not establish it.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     w = pm.Normal("w", shape=(2, 3))
    >>> X = pt.matrix("X", shape=(5, 3))
    >>> term = affine(X @ w.T + 1, {w}).terms[w]
    >>> term.links, term.coefficient.type.shape
    ((None, Link(axis=0, index=None)), (5, 1, 1, 3))
    """
    if expression in rvs:
        links = tuple(Link(axis) for axis in range(expression.ndim))
        one = pt.ones((1,) * (2 * expression.ndim), dtype=expression.dtype)
        return AffineMap(None, {expression: Term(links, one)})
    if not depends_on(expression, rvs, barriers):
        return AffineMap(expression, {})
    node = expression.owner
    if isinstance(node.op, MakeVector):
        node = pt.join(0, *(entry[None] for entry in node.inputs)).owner
    if isinstance(node.op, RandomVariable):
        raise NotConjugate(f"it passes through the random variable {describe(expression)}")
    operands = [
        affine(operand, rvs, barriers)
        if isinstance(operand, TensorVariable)
        else AffineMap(operand, {})
        for operand in node.inputs
    ]
    return _read(node.op, node, operands)


def broadcast(form: AffineMap, source: TensorVariable, target: TensorVariable) -> AffineMap:
    """Broadcast the affine map of ``source`` to the axes of ``target``, which may be more."""
    order = ["x"] * (target.ndim - source.ndim) + list(range(source.ndim))
    offset = None if form.offset is None else form.offset.dimshuffle(order)
    one = source.dimshuffle(order).type.broadcastable
    terms = {}
    for rv, term in form.terms.items():
        term = _shuffle(term, order)
        for axis, link in enumerate(term.links):
            if link is not None and one[axis] and not target.type.broadcastable[axis]:
                if link.index is not None:
                    raise NotConjugate("an indexed axis of length one is broadcast")
                term = Term(_with(term.links, axis, None), term.coefficient)
        terms[rv] = term
    return AffineMap(offset, terms)


def cut_link(term: Term, out_axis: int, rv: TensorVariable) -> Term:
    """Sum over the variable's axis that is linked to ``out_axis``, with a selection matrix."""
    link = term.links[out_axis]
    assert link is not None
    links = _with(term.links, out_axis, None)
    if rv.type.broadcastable[link.axis] and link.index is None:
        return Term(links, term.coefficient)
    length = rv.shape[link.axis]
    index = pt.arange(length) if link.index is None else link.index
    selection = pt.eq(index[:, None], pt.arange(length)[None, :]).astype(term.coefficient.dtype)
    order: list[Any] = ["x"] * term.coefficient.ndim
    order[out_axis], order[term.out_ndim + link.axis] = 0, 1
    return Term(links, _times(term.coefficient, selection.dimshuffle(order)))


def _with(links: tuple[Link | None, ...], axis: int, link: Link | None) -> tuple[Link | None, ...]:
    return (*links[:axis], link, *links[axis + 1 :])


def _without(links: tuple[Link | None, ...], axis: int) -> tuple[Link | None, ...]:
    return (*links[:axis], *links[axis + 1 :])


def _shuffle(term: Term, order: Sequence[Any]) -> Term:
    """Permute, insert ("x") and drop output axes."""
    trailing = range(term.out_ndim, term.coefficient.ndim)
    return Term(
        tuple(None if axis == "x" else term.links[axis] for axis in order),
        term.coefficient.dimshuffle(*order, *trailing),
    )


def _scale(term: Term, factor: TensorVariable) -> Term:
    """Multiply by a factor that has the output's axes."""
    lifted = factor.dimshuffle(*range(factor.ndim), *["x"] * term.rv_ndim)
    return Term(term.links, _times(term.coefficient, lifted))


def _times(coefficient: TensorVariable, factor: TensorVariable) -> TensorVariable:
    """Product, without the coefficient that a variable starts with: one."""
    if all(coefficient.type.broadcastable) and scalar_constant(coefficient) == 1:
        return factor.astype(coefficient.dtype)
    return coefficient * factor


def _add(rv: Variable, terms: Mapping[Variable, Term], term: Term) -> Term:
    """Sum of a term and the one of the same variable in ``terms``, if any."""
    if rv not in terms:
        return term
    if terms[rv].links != term.links:
        raise NotConjugate("it enters a sum twice, along different axes")
    return Term(term.links, terms[rv].coefficient + term.coefficient)


def _full(offset: TensorVariable, source: TensorVariable) -> TensorVariable:
    """Offset with the shape of the expression it belongs to."""
    if offset.type.broadcastable == source.type.broadcastable:
        return offset
    return pt.broadcast_to(offset, source.shape)


def _linear(
    node: Apply, operands: Sequence[AffineMap], on_term: Callable[[Variable, Term], Term]
) -> AffineMap:
    """Result of an operation that is linear in its first input and takes the others as given."""
    form, *others = operands
    if any(other.terms for other in others):
        raise NotConjugate(f"{node.op} takes it as an index, a shape or a length")
    source, *given = node.inputs
    offset = None
    if form.offset is not None:
        offset = node.op(_full(form.offset, source), *given)
    return AffineMap(offset, {rv: on_term(rv, term) for rv, term in form.terms.items()})


@singledispatch
def _read(op: Op, node: Apply, operands: Sequence[AffineMap]) -> AffineMap:
    raise NotConjugate(f"{describe(node.outputs[0])} is not a linear operation")


@_read.register(ViewOp)
@_read.register(CheckAndRaise)
@_read.register(SpecifyShape)
def _read_view(op: Op, node: Apply, operands: Sequence[AffineMap]) -> AffineMap:
    return _linear(node, operands, lambda rv, term: term)


@_read.register(Elemwise)
def _read_elemwise(op: Elemwise, node: Apply, operands: Sequence[AffineMap]) -> AffineMap:
    [out] = node.outputs
    forms = [
        broadcast(form, source, out) for form, source in zip(operands, node.inputs, strict=True)
    ]
    match op.scalar_op:
        case scalar.Add() | scalar.Sub():
            negative = isinstance(op.scalar_op, scalar.Sub)
            signs = [1] + [-1 if negative else 1] * (len(forms) - 1)
            offsets = [
                form.offset if sign == 1 else -form.offset
                for sign, form in zip(signs, forms, strict=True)
                if form.offset is not None
            ]
            terms: dict[Variable, Term] = {}
            for sign, form in zip(signs, forms, strict=True):
                for rv, term in form.terms.items():
                    signed = term if sign == 1 else Term(term.links, -term.coefficient)
                    terms[rv] = _add(rv, terms, signed)
            return AffineMap(reduce(lambda a, b: a + b, offsets) if offsets else None, terms)
        case scalar.Neg() | scalar.Identity() | scalar.Cast() if out.dtype.startswith("float"):
            [form] = forms
            offset = None if form.offset is None else op(form.offset)
            terms = {rv: Term(t.links, op(t.coefficient)) for rv, t in form.terms.items()}
            return AffineMap(offset, terms)
        case scalar.Mul():
            [form, *others] = sorted(forms, key=lambda form: not form.terms)
            if any(other.terms for other in others):
                raise NotConjugate("it is multiplied with an expression that depends on it")
            return _multiply(form, reduce(lambda a, b: a * b, (o.offset for o in others)))
        case scalar.TrueDiv() if not forms[1].terms:
            return _multiply(forms[0], 1 / forms[1].offset)
    raise NotConjugate(f"{describe(out)} is not linear in it")


def _multiply(form: AffineMap, factor: TensorVariable) -> AffineMap:
    offset = None if form.offset is None else form.offset * factor
    return AffineMap(offset, {rv: _scale(term, factor) for rv, term in form.terms.items()})


@_read.register(DimShuffle)
def _read_dimshuffle(op: DimShuffle, node: Apply, operands: Sequence[AffineMap]) -> AffineMap:
    return _linear(node, operands, lambda rv, term: _shuffle(term, op.new_order))


@_read.register(Reshape)
def _read_reshape(op: Reshape, node: Apply, operands: Sequence[AffineMap]) -> AffineMap:
    order = trivial_reshape(node)
    if order is not None:
        return _linear(node, operands, lambda rv, term: _shuffle(term, order))
    return _linear(node, operands, lambda rv, term: _reshape_leading(term, node))


def trivial_reshape(node: Apply) -> list[Any] | None:
    """The dimshuffle that a reshape amounts to if it only adds or drops axes of length one."""
    source, [out] = node.inputs[0], node.outputs
    long_source = [axis for axis, one in enumerate(source.type.broadcastable) if not one]
    long_out = [axis for axis, one in enumerate(out.type.broadcastable) if not one]
    pairs = list(zip(long_source, long_out, strict=False))
    same = len(long_source) == len(long_out) and (
        len(pairs) <= 1
        or all(
            source.type.shape[a] is not None and source.type.shape[a] == out.type.shape[b]
            for a, b in pairs
        )
    )
    if not same:
        return None
    order: list[Any] = ["x"] * out.ndim
    for a, b in pairs:
        order[b] = a
    return order


def _reshape_leading(term: Term, node: Apply) -> Term:
    """Reshape the axes before the links, which stand on equal trailing axes (as in tensordot)."""
    source, [out] = node.inputs[0], node.outputs
    n_kept = 0
    for a, b in zip(reversed(source.type.shape), reversed(out.type.shape), strict=False):
        if a is None or a != b:
            break
        n_kept += 1
    n_source, n_out = source.ndim - n_kept, out.ndim - n_kept
    if any(link is not None for link in term.links[:n_source]):
        raise NotConjugate("a reshape mixes its axes (use transposes, indexing or tensordot)")
    links = (*(None,) * n_out, *term.links[n_source:])
    trailing = list(range(n_source, term.coefficient.ndim))
    if not any(term.varies_along(axis) for axis in range(n_source)):
        return Term(links, term.coefficient.dimshuffle(*["x"] * n_out, *trailing))
    kept = [term.coefficient.shape[i] for i in trailing]
    spread = pt.broadcast_to(term.coefficient, (*list(source.shape)[:n_source], *kept))
    static = [1 if term.coefficient.type.broadcastable[i] else None for i in trailing]
    reshaped = spread.reshape((*list(out.shape)[:n_out], *kept))
    return Term(links, pt.specify_shape(reshaped, [*[None] * n_out, *static]))


@_read.register(Alloc)
def _read_alloc(op: Alloc, node: Apply, operands: Sequence[AffineMap]) -> AffineMap:
    [out] = node.outputs
    form = _linear(node, operands, lambda rv, term: term)
    terms = broadcast(AffineMap(None, form.terms), node.inputs[0], out).terms
    return AffineMap(form.offset, terms)


@_read.register(Sum)
def _read_sum(op: Sum, node: Apply, operands: Sequence[AffineMap]) -> AffineMap:
    source = node.inputs[0]
    axes = range(source.ndim) if op.axis is None else op.axis

    def sum_term(rv: Variable, term: Term) -> Term:
        for axis in sorted(axes, reverse=True):
            term = _sum_axis(term, axis, source.shape[axis])
        return term

    return _linear(node, operands, sum_term)


def _sum_axis(term: Term, axis: int, length: Length) -> Term:
    kept = [i for i in range(term.coefficient.ndim) if i != axis]
    link = term.links[axis]
    if link is not None:
        if link.index is not None:
            raise NotConjugate("an indexed axis is summed over")
        kept[kept.index(term.out_ndim + link.axis)] = axis
        coefficient = term.coefficient.dimshuffle(kept)
    elif term.varies_along(axis):
        coefficient = term.coefficient.sum(axis)
    else:
        coefficient = term.coefficient.dimshuffle(kept) * length
    return Term(_without(term.links, axis), coefficient.astype(term.coefficient.dtype))


@_read.register(Blockwise)
def _read_blockwise(op: Blockwise, node: Apply, operands: Sequence[AffineMap]) -> AffineMap:
    if not isinstance(op.core_op, Dot):
        raise NotConjugate(f"{describe(node.outputs[0])} is not a linear operation")
    return _read_matmul(op, node, operands)


@_read.register(Dot)
def _read_matmul(op: Op, node: Apply, operands: Sequence[AffineMap]) -> AffineMap:
    left, right = operands
    if left.terms and right.terms:
        raise NotConjugate("a matrix product has it on both sides")
    [out] = node.outputs
    if left.terms:
        form, source, matrix, axis = left, node.inputs[0], node.inputs[1], out.ndim - 1
        offset = None if left.offset is None else op(_full(left.offset, source), matrix)
    else:
        form, source, matrix, axis = right, node.inputs[1], node.inputs[0].mT, out.ndim - 2
        offset = None if right.offset is None else op(node.inputs[0], _full(right.offset, source))
    terms = {}
    for rv, term in form.terms.items():
        for i in range(out.ndim - 2):
            if source.type.broadcastable[i] and not out.type.broadcastable[i]:
                term = Term(_with(term.links, i, None), term.coefficient)
        terms[rv] = _contract(term, axis, matrix, rv)
    return AffineMap(offset, terms)


def _contract(term: Term, axis: int, matrix: TensorVariable, rv: Variable) -> Term:
    """Sum output axis ``axis`` against the second last axis of a matrix; its last takes its place.

    Batch axes of the matrix align with the output's.
    """
    link = term.links[axis]
    if link is not None and link.index is not None:
        term, link = cut_link(term, axis, rv), None
    n_out, batch = term.out_ndim, list(range(term.out_ndim - 2))
    summed, replacing = n_out - 2, n_out - 1
    links = _with(term.links, axis, None)
    order: list[Any]
    if link is not None:
        on_variable: list[Any] = list(range(term.coefficient.ndim))
        on_variable[n_out + link.axis], on_variable[axis] = axis, "x"
        order = [*batch, *["x"] * (2 + term.rv_ndim)]
        order[n_out + link.axis], order[axis] = summed, replacing
        return Term(
            links, _times(term.coefficient.dimshuffle(on_variable), matrix.dimshuffle(order))
        )
    if not term.varies_along(axis):
        order = [*batch, *["x"] * (2 + term.rv_ndim)]
        order[axis] = summed
        return Term(links, _times(term.coefficient, matrix.sum(-2).dimshuffle(order)))
    if all(matrix.type.broadcastable[:-2]):
        product = pt.tensordot(term.coefficient, matrix.dimshuffle(summed, replacing), [axis, 0])
        return Term(links, pt.moveaxis(product, -1, axis))
    order = [*batch, *["x"] * (3 + term.rv_ndim)]
    order[axis], order[axis + 1] = summed, replacing
    spread = pt.expand_dims(term.coefficient, axis + 1)
    return Term(links, (spread * matrix.dimshuffle(order)).sum(axis))


@_read.register(Subtensor)
def _read_subtensor(op: Subtensor, node: Apply, operands: Sequence[AffineMap]) -> AffineMap:
    source, *index_inputs = node.inputs
    indices = indices_from_subtensor(index_inputs, op.idx_list)

    def index_term(rv: Variable, term: Term) -> Term:
        for axis, index in reversed(list(enumerate(indices))):
            if not isinstance(index, slice):
                term = _pick(term, axis, index, rv)
            elif index != slice(None):
                term = _take(term, axis, pt.arange(source.shape[axis])[index])
        return term

    return _linear(node, operands, index_term)


@_read.register(AdvancedSubtensor)
def _read_advanced(op: AdvancedSubtensor, node: Apply, operands: Sequence[AffineMap]) -> AffineMap:
    source, *index_inputs = node.inputs
    indices = indices_from_subtensor(index_inputs, op.idx_list)
    others = [i for i in indices if isinstance(i, slice) and i != slice(None)]
    vectors = [(axis, i) for axis, i in enumerate(indices) if not isinstance(i, slice)]
    [(axis, index), *more] = vectors
    if others or more or index.ndim != 1 or index.dtype == "bool":
        raise NotConjugate("it is indexed by something else than one integer vector")
    if not (isinstance(index, Constant) and (index.data >= 0).all()):
        index = pt.switch(pt.lt(index, 0), index + source.shape[axis], index)
    return _linear(node, operands, lambda rv, term: _take(term, axis, index))


def _take(term: Term, axis: int, index: TensorVariable) -> Term:
    """Entries ``index`` of output axis ``axis``."""
    coefficient, link = term.coefficient, term.links[axis]
    if term.varies_along(axis):
        coefficient = pt.take(coefficient, index, axis=axis)
    if link is None:
        return Term(term.links, coefficient)
    composed = index if link.index is None else link.index[index]
    return Term(_with(term.links, axis, Link(link.axis, composed)), coefficient)


def _pick(term: Term, axis: int, index: Any, rv: Variable) -> Term:
    """Entry ``index`` of output axis ``axis``, which is dropped."""
    if term.links[axis] is not None:
        term = cut_link(term, axis, rv)
    links = _without(term.links, axis)
    if term.varies_along(axis):
        return Term(links, pt.take(term.coefficient, index, axis=axis))
    kept = [i for i in range(term.coefficient.ndim) if i != axis]
    return Term(links, term.coefficient.dimshuffle(kept))


@_read.register(Join)
def _read_join(op: Join, node: Apply, operands: Sequence[AffineMap]) -> AffineMap:
    axis = op.axis
    offsets = [
        pt.zeros_like(tensor) if part.offset is None else _full(part.offset, tensor)
        for part, tensor in zip(operands, node.inputs, strict=True)
    ]
    terms: dict[Variable, Term] = {}
    for position, part in enumerate(operands):
        for rv, term in part.terms.items():
            if term.links[axis] is not None:
                term = cut_link(term, axis, rv)
            lengths = [tensor.shape[axis] for tensor in node.inputs]
            terms[rv] = _add(rv, terms, _pad(term, axis, lengths, position))
    return AffineMap(pt.concatenate(offsets, axis=axis), terms)


def _pad(term: Term, axis: int, lengths: Sequence[Length], position: int) -> Term:
    """Embed output axis ``axis`` as the ``position``-th of parts with the given lengths."""
    shape: list[Any] = list(term.coefficient.shape)
    blocks = []
    for i, length in enumerate(lengths):
        shape[axis] = length
        part = term.coefficient if i == position else pt.zeros((), dtype=term.coefficient.dtype)
        blocks.append(pt.broadcast_to(part, shape))
    static = [1 if one else None for one in term.coefficient.type.broadcastable]
    static[axis] = None
    return Term(term.links, pt.specify_shape(pt.concatenate(blocks, axis=axis), static))
