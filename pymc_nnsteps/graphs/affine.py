"""Affine form: an expression as an offset plus structured linear maps of given variables.

A :class:`Term` keeps the structure of a map. Some output axes carry an axis of the variable along
entry by entry (rows of a weight matrix with their units, samples of a latent layer, groups of an
indexed effect). The map sums over the other axes of the variable, with coefficients (a design
matrix). So ``X @ W.T`` reads as: output axis 1 carries axis 0 of W, axis 1 is summed with
coefficient X, and all rows of W share one design.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce, singledispatch
from typing import Any

import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor import config
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as scalar
from pytensor.tensor.basic import Alloc, AllocDiag, ExtractDiag, Join, MakeVector, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.signal.conv import Convolve1d, Convolve2d
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import (
    Link,
    Term,
    add,
    apply_along,
    contract,
    cut_link,
    cut_links,
    negate,
    pad,
    repeat_axis,
    scale,
    shuffle,
    sum_axis,
    with_link,
)
from pymc_nnsteps.graphs.search import dependents


@dataclass(frozen=True)
class AffineMap:
    """Offset (None: zero) plus at most one term per variable."""

    offset: TensorVariable | None
    terms: Mapping[TensorVariable, Term]


def affine(
    expression: TensorVariable,
    rvs: Collection[TensorVariable],
    barriers: Collection[TensorVariable] = (),
) -> AffineMap:
    """Read ``expression`` as an affine map of ``rvs``.

    The result is affine in all of them jointly: a product of two of them is declined. The graph is
    not searched behind ``barriers``, given random variables.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     w = pm.Normal("w", shape=(2, 3))
    >>> X = pt.matrix("X", shape=(5, 3))
    >>> term = affine(X @ w.T + 1, {w}).terms[w]
    >>> term.links, term.coefficient.type.shape
    ((None, Link(axis=0, index=None, inner=())), (5, 1, 1, 3))
    """
    form = _affine(expression, rvs, dependents(expression, rvs, barriers))
    inner = {
        rv: [axis for axis, link in enumerate(term.links) if link is not None and link.inner]
        for rv, term in form.terms.items()
    }
    terms = {rv: cut_links(term, inner[rv], rv) for rv, term in form.terms.items()}
    return AffineMap(form.offset, terms)


def _affine(
    expression: TensorVariable, rvs: Collection[TensorVariable], dependent: set[Variable]
) -> AffineMap:
    if expression in rvs:
        links = tuple(Link(axis) for axis in range(expression.ndim))
        dtype = expression.dtype if expression.dtype.startswith("float") else config.floatX
        one = pt.ones((1,) * (2 * expression.ndim), dtype=dtype)
        return AffineMap(None, {expression: Term(links, one)})
    if expression not in dependent:
        return AffineMap(expression, {})
    node = expression.owner
    other = restated(expression)
    if other is not None:
        return _affine(other, rvs, dependent | dependents(other, dependent, node.inputs))
    if isinstance(node.op, RandomVariable | SymbolicRandomVariable):
        raise NotConjugate(f"it enters through the random variable {describe(expression)}")
    operands = []
    for operand in node.inputs:
        if isinstance(operand, TensorVariable):
            operands.append(_affine(operand, rvs, dependent))
        elif operand in dependent:
            raise NotConjugate("it is used as an index")
        else:
            operands.append(AffineMap(operand, {}))
    return read_operation(node, operands)


def broadcast(form: AffineMap, source: TensorVariable, target: TensorVariable) -> AffineMap:
    """Broadcast the affine map of ``source`` to the axes of ``target``."""
    order = ["x"] * (target.ndim - source.ndim) + list(range(source.ndim))
    offset = None if form.offset is None else form.offset.dimshuffle(order)
    one = source.dimshuffle(order).type.broadcastable
    terms = {}
    for rv, term in form.terms.items():
        term = shuffle(term, order, rv)
        for axis, link in enumerate(term.links):
            if link is not None and one[axis] and not target.type.broadcastable[axis]:
                term = repeat_axis(term, axis, rv)
        terms[rv] = term
    return AffineMap(offset, terms)


def full(offset: TensorVariable, source: TensorVariable) -> TensorVariable:
    """Offset with the shape of its expression."""
    if offset.type.broadcastable == source.type.broadcastable:
        return offset
    return pt.broadcast_to(offset, source.shape)


def linear(
    node: Any, operands: Sequence[AffineMap], on_term: Callable[[TensorVariable, Term], Term]
) -> AffineMap:
    """Affine map of an operation that is linear in its first input; the other inputs are given."""
    form, *others = operands
    if any(other.terms for other in others):
        raise NotConjugate(f"{node.op} uses it as an index, a shape or a length")
    source, *given = node.inputs
    offset = None
    if form.offset is not None:
        offset = node.op(full(form.offset, source), *given)
    return AffineMap(offset, {rv: on_term(rv, term) for rv, term in form.terms.items()})


def read_operation(node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    """Affine map of the output of an operation, from those of its inputs."""
    return _read(node.op, node, operands)


@singledispatch
def _read(op: Op, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    raise NotConjugate(f"{describe(node.outputs[0])} is not a linear operation")


reads = _read.register
"""Decorator that registers the reader of an operation: ``reader(op, node, operands)``."""


@reads(ViewOp)
@reads(CheckAndRaise)
@reads(SpecifyShape)
def _read_view(op: Op, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    return linear(node, operands, lambda rv, term: term)


@reads(Elemwise)
def _read_elemwise(op: Any, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    [out] = node.outputs
    forms = [
        _in_dtype(broadcast(form, source, out), out.dtype)
        for form, source in zip(operands, node.inputs, strict=True)
    ]
    match op.scalar_op:
        case scalar.Add() | scalar.Sub() | scalar.Neg() as kind:
            signs = [1 if isinstance(kind, scalar.Add) else -1] * len(forms)
            signs[0] = -1 if isinstance(kind, scalar.Neg) else 1
            offsets = [
                form.offset if sign == 1 else -form.offset
                for sign, form in zip(signs, forms, strict=True)
                if form.offset is not None
            ]
            terms: dict[TensorVariable, Term] = {}
            for sign, form in zip(signs, forms, strict=True):
                for rv, term in form.terms.items():
                    terms[rv] = add(rv, terms, term if sign == 1 else negate(term))
            return AffineMap(reduce(lambda a, b: a + b, offsets) if offsets else None, terms)
        case scalar.Identity() | scalar.Cast() if out.dtype.startswith("float") or not isinstance(
            op.scalar_op, scalar.Cast
        ):
            [form] = forms
            offset = None if form.offset is None else op(form.offset)
            terms = {rv: Term(t.links, op(t.whole().coefficient)) for rv, t in form.terms.items()}
            return AffineMap(offset, terms)
        case scalar.Second():
            return forms[1]
        case scalar.Switch() if not forms[0].terms:
            return _switched(op, forms)
        case scalar.Mul():
            [form, *others] = sorted(forms, key=lambda form: not form.terms)
            if any(other.terms for other in others):
                raise NotConjugate("it is multiplied by an expression that depends on it")
            factors: list[Any] = [other.offset for other in others]
            return _multiply(form, reduce(lambda a, b: a * b, factors))
        case scalar.TrueDiv() if not forms[1].terms:
            return _multiply(forms[0], pt.reciprocal(forms[1].offset))
    raise NotConjugate(f"{describe(out)} is not linear in it")


def _in_dtype(form: AffineMap, dtype: str) -> AffineMap:
    """Cast offsets to the dtype of the result, as PyTensor stores literals in few bits."""
    if not dtype.startswith("float"):
        dtype = config.floatX
    if form.offset is None or form.offset.dtype == dtype:
        return form
    return AffineMap(form.offset.astype(dtype), form.terms)


def _multiply(form: AffineMap, factor: TensorVariable) -> AffineMap:
    offset = None if form.offset is None else form.offset * factor
    return AffineMap(offset, {rv: scale(term, factor) for rv, term in form.terms.items()})


def _switched(op: Any, forms: Sequence[AffineMap]) -> AffineMap:
    """Entries of one or the other expression, by a given condition."""
    condition, *sides = forms
    zero = pt.zeros((), dtype=config.floatX)
    offset = None
    if any(side.offset is not None for side in sides):
        offset = op(
            condition.offset, *(zero if side.offset is None else side.offset for side in sides)
        )
    terms: dict[TensorVariable, Term] = {}
    for chosen, side in zip((pt.neq, pt.eq), sides, strict=True):
        for rv, term in side.terms.items():
            mask = chosen(condition.offset, 0).astype(term.coefficient.dtype)
            terms[rv] = add(rv, terms, scale(term, mask))
    return AffineMap(offset, terms)


@reads(DimShuffle)
def _read_dimshuffle(op: DimShuffle, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    return linear(node, operands, lambda rv, term: shuffle(term, op.new_order, rv))


@reads(Alloc)
def _read_alloc(op: Alloc, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    [out] = node.outputs
    form = linear(node, operands, lambda rv, term: term)
    terms = broadcast(AffineMap(None, form.terms), node.inputs[0], out).terms
    return AffineMap(form.offset, terms)


@reads(Sum)
def _read_sum(op: Sum, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    source = node.inputs[0]
    axes = range(source.ndim) if op.axis is None else op.axis

    def sum_term(rv: TensorVariable, term: Term) -> Term:
        for axis in sorted(axes, reverse=True):
            term = sum_axis(term, axis, source.shape[axis], rv)
        return term

    return linear(node, operands, sum_term)


@reads(Blockwise)
def _read_blockwise(op: Blockwise, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    if not isinstance(op.core_op, Dot):
        raise NotConjugate(f"{describe(node.outputs[0])} is not a linear operation")
    return _read_matmul(op, node, operands)


@reads(Dot)
def _read_matmul(op: Any, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    left, right = operands
    if left.terms and right.terms:
        raise NotConjugate("it is on both sides of a matrix product")
    [out] = node.outputs
    if left.terms:
        form, source, matrix, axis = left, node.inputs[0], node.inputs[1].mT, out.ndim - 1
        offset = None if left.offset is None else op(full(left.offset, source), node.inputs[1])
    else:
        form, source, matrix, axis = right, node.inputs[1], node.inputs[0], out.ndim - 2
        offset = None if right.offset is None else op(node.inputs[0], full(right.offset, source))
    terms = {}
    for rv, term in form.terms.items():
        for i in range(out.ndim - 2):
            if source.type.broadcastable[i] and not out.type.broadcastable[i]:
                term = repeat_axis(term, i, rv)
        terms[rv] = contract(term, axis, matrix, rv)
    return AffineMap(offset, terms)


@reads(Join)
def _read_join(op: Join, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    axis = op.axis
    offsets = [
        pt.zeros_like(tensor) if part.offset is None else full(part.offset, tensor)
        for part, tensor in zip(operands, node.inputs, strict=True)
    ]
    terms: dict[TensorVariable, Term] = {}
    for position, part in enumerate(operands):
        for rv, term in part.terms.items():
            term = cut_link(term, axis, rv)
            lengths = [tensor.shape[axis] for tensor in node.inputs]
            terms[rv] = add(rv, terms, pad(term, axis, lengths, position))
    return AffineMap(pt.concatenate(offsets, axis=axis), terms)


@reads(CumOp)
def _read_cumulative(op: CumOp, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    [source], axis = node.inputs, op.axis
    if op.mode != "add":
        raise NotConjugate(f"{describe(node.outputs[0])} multiplies its entries together")

    def cumulative(rv: TensorVariable, term: Term) -> Term:
        coefficient = apply_along(term, [axis], source, rv, lambda array: pt.cumsum(array, axis))
        return Term(with_link(term.links, axis, None), coefficient)

    return linear(node, operands, cumulative)


# --- composite operations ------------------------------------------------------------------


def restated(expression: TensorVariable) -> TensorVariable | None:
    """The expression in terms of simpler operations on the same inputs, if there is such a form."""
    return _restate(expression.owner.op, expression.owner, expression)


@singledispatch
def _restate(op: Op, node: Any, out: TensorVariable) -> TensorVariable | None:
    return None


@_restate.register(MakeVector)
def _restate_vector(op: MakeVector, node: Any, out: TensorVariable) -> TensorVariable:
    return pt.join(0, *(entry[None] for entry in node.inputs))


@_restate.register(OpFromGraph)
def _restate_graph(op: OpFromGraph, node: Any, out: TensorVariable) -> TensorVariable | None:
    if isinstance(op, SymbolicRandomVariable):
        return None
    inner = op.fgraph.bind(dict(zip(op.fgraph.inputs, node.inputs, strict=True)))
    return inner[node.outputs.index(out)]


@_restate.register(ExtractDiag)
def _restate_entries(op: ExtractDiag, node: Any, out: TensorVariable) -> TensorVariable:
    [matrix] = node.inputs
    last = pt.moveaxis(matrix, (op.axis1, op.axis2), (-2, -1))
    below, above = max(-op.offset, 0), max(op.offset, 0)
    entries = pt.arange(pt.minimum(last.shape[-2] - below, last.shape[-1] - above))
    return last[..., entries + below, entries + above]


@_restate.register(Blockwise)
@_restate.register(Dot)
def _restate_product(op: Any, node: Any, out: TensorVariable) -> TensorVariable | None:
    """Product with a diagonal matrix, as a scaling of rows or columns; or a convolution."""
    core = getattr(op, "core_op", op)
    if isinstance(core, Convolve1d | Convolve2d):
        return _restate_convolution(node, core.ndim)
    if not isinstance(core, Dot):
        return None
    left, right = node.inputs
    if (entries := _diagonal_of(right)) is not None:
        return left * entries[None, :]
    if (entries := _diagonal_of(left)) is not None:
        return right * entries[:, None]
    return None


def _diagonal_of(matrix: TensorVariable) -> TensorVariable | None:
    if matrix.ndim != 2 or matrix.owner is None or not isinstance(matrix.owner.op, AllocDiag):
        return None
    return matrix.owner.inputs[0] if matrix.owner.op.offset == 0 else None


@_restate.register(Repeat)
def _restate_repeat(op: Repeat, node: Any, out: TensorVariable) -> TensorVariable:
    source, repeats = node.inputs
    entries = pt.repeat(pt.arange(source.shape[op.axis]), repeats, axis=0)
    return source[(slice(None),) * op.axis + (entries,)]


@_restate.register(Split)
def _restate_split(op: Split, node: Any, out: TensorVariable) -> TensorVariable | None:
    source, lengths = node.inputs
    if not isinstance(lengths, Constant):
        return None
    position = node.outputs.index(out)
    start = int(lengths.data[:position].sum())
    part = slice(start, start + int(lengths.data[position]))
    return source[(slice(None),) * op.axis + (part,)]


@_restate.register(CumOp)
def _restate_cumulative(op: CumOp, node: Any, out: TensorVariable) -> TensorVariable | None:
    [source] = node.inputs
    return CumOp(0, op.mode)(source.ravel()) if op.axis is None else None


def _restate_convolution(node: Any, ndim: int) -> TensorVariable | None:
    """Convolution as sums over windows: ``out[o] = sum_k kernel[k] image[o + K - 1 - k]``."""
    image, kernel, full_mode = node.inputs
    lengths = [x.type.shape[-ndim:] for x in (image, kernel)]
    full = pt.as_tensor(full_mode).flatten()
    while full.owner is not None:
        full = full.owner.inputs[0]
    if not isinstance(full, Constant) or any(None in stated for stated in lengths):
        return None
    sizes = list(zip(*lengths, strict=True))
    if not full.data and any(n < k for n, k in sizes):
        return None
    if full.data:
        around = [(k - 1, k - 1) for _, k in sizes]
        width = [(0, 0)] * (image.ndim - ndim) + around
        image = pt.pad(image, width, mode="constant", constant_values=0)
        sizes = [(n + 2 * (k - 1), k) for n, k in sizes]
    windows = []
    for position, (n, k) in enumerate(sizes):
        window = pt.arange(n - k + 1)[:, None] + pt.arange(k)[::-1][None, :]
        order: list[Any] = ["x"] * (2 * ndim)
        order[position], order[ndim + position] = 0, 1
        windows.append(window.dimshuffle(order))
    patches = image[(..., *windows)]
    weights = pt.expand_dims(kernel, tuple(range(-2 * ndim, -ndim)))
    return (patches * weights).sum(tuple(range(-ndim, 0)))
