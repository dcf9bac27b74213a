"""Power form: how a positive variable enters a scale, as ``coefficient * v ** exponent``.

Scales are written in many ways (``sigma=s``, ``tau=t``, ``1 / sqrt(t)``, products of several
scales, one scale per row or per group, stacked with others). All of them consist of powers of the
variable, whose axes the result carries along, and of entries that do not depend on it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as scalar
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import AffineMap, affine, broadcast, read_operation, restated
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import Link, Term, pick, with_link, without_link
from pymc_nnsteps.graphs.search import dependents
from pymc_nnsteps.graphs.values import scalar_constant

REARRANGEMENTS = (
    Alloc,
    AdvancedSubtensor,
    CheckAndRaise,
    DimShuffle,
    Reshape,
    SpecifyShape,
    Subtensor,
    ViewOp,
)
"""Operations that only rearrange entries of the first input."""

UNARY = {scalar.Sqrt: 0.5, scalar.Sqr: 2.0, scalar.Reciprocal: -1.0}
"""Exponents of operations of one argument."""


@dataclass(frozen=True)
class Monomial:
    """``out = coefficient * v ** exponent``; the links of the term are the axes carried along."""

    # Its coefficient has the output's axes, then the variable's axes, which have length one.
    term: Term
    exponent: float
    # The only entry that enters along each axis of the variable that is not carried along, if the
    # axis is longer than one.
    picked: tuple[tuple[int, Any], ...] = ()
    # Entries that depend on the variable, with axes that broadcast to the output's; the others
    # equal the coefficient. None: all entries.
    where: TensorVariable | None = None


def monomial(
    expression: TensorVariable, rv: TensorVariable, barriers: Collection[TensorVariable] = ()
) -> Monomial:
    """Read ``expression`` as a power of ``rv`` times a coefficient, entry by entry.

    The variable is positive: its absolute value is read as itself and its sign as one.

    Examples
    --------
    >>> tau = pt.vector("tau", shape=(3,))
    >>> form = monomial(2 / pt.sqrt(tau)[None, :], tau)
    >>> form.term.links, form.exponent
    ((None, Link(axis=0, index=None, inner=())), -0.5)
    """
    return _read(expression, rv, dependents(expression, {rv}, barriers))


def _read(expression: TensorVariable, rv: TensorVariable, dependent: set[Variable]) -> Monomial:
    if expression is rv:
        return Monomial(affine(rv, {rv}).terms[rv], 1.0)
    if expression not in dependent:
        order = (*range(expression.ndim), *["x"] * rv.ndim)
        return _constant(expression.dimshuffle(order), expression.ndim)
    node = expression.owner
    other = restated(expression)
    if other is not None:
        return _read(other, rv, dependent | dependents(other, dependent, node.inputs))
    if isinstance(node.op, Elemwise):
        return _read_elemwise(node, [_read(o, rv, dependent) for o in node.inputs], rv)
    if isinstance(node.op, Join):
        return _joined([_read(o, rv, dependent) for o in node.inputs], node.inputs, node.op.axis)
    source, *given = node.inputs
    if not dependent.isdisjoint(given):
        raise NotConjugate(f"{describe(expression)} is not a power of it")
    form = _read(source, rv, dependent)
    where = None
    if form.where is not None:
        if not isinstance(node.op, REARRANGEMENTS):
            raise NotConjugate(
                f"{describe(expression)} joins entries that depend on it with entries that do not"
            )
        full = pt.specify_shape(pt.broadcast_to(form.where, source.shape), source.type.shape)
        where = node.op.make_node(full, *given).outputs[0]
    if isinstance(node.op, Subtensor):
        indices = indices_from_subtensor(given, node.op.idx_list)
        if not all(isinstance(index, slice) for index in indices):
            return _pick(form, indices, where, rv)
    carried = read_operation(
        node, [AffineMap(None, {rv: form.term}), *(AffineMap(other, {}) for other in given)]
    )
    if carried.offset is not None:
        raise NotConjugate(f"{describe(expression)} has entries that do not depend on it")
    term = carried.terms[rv]
    lost = form.term.linked_axes - term.linked_axes
    if not all(rv.type.broadcastable[axis] for axis in lost):
        raise NotConjugate(f"{describe(expression)} does not keep its entries apart")
    return Monomial(term, form.exponent, form.picked, where)


def _constant(coefficient: TensorVariable, ndim: int) -> Monomial:
    """Form of an expression of ``ndim`` axes that does not depend on the variable."""
    return Monomial(Term((None,) * ndim, coefficient), 0.0)


def _joined(forms: Sequence[Monomial], parts: Sequence[TensorVariable], axis: int) -> Monomial:
    """Join parts along an axis, some of which may not depend on the variable."""
    variable_axes = [1] * (forms[0].term.coefficient.ndim - parts[0].ndim)
    coefficient = pt.join(
        axis,
        *(
            pt.broadcast_to(form.term.coefficient, (*part.shape, *variable_axes))
            for form, part in zip(forms, parts, strict=True)
        ),
    )
    static: list[Any] = [*[None] * parts[0].ndim, *variable_axes]
    coefficient = pt.specify_shape(coefficient, static)
    powers = [form for form in forms if form.exponent != 0]
    if not powers:
        return _constant(coefficient, parts[0].ndim)
    first, *others = powers
    rest = without_link(first.term.links, axis)
    for other in others:
        if (other.exponent, without_link(other.term.links, axis)) != (first.exponent, rest):
            raise NotConjugate("it enters the parts of a concatenation in different ways")
    link, picked = _link_of_joined(forms, [part.shape[axis] for part in parts], axis)
    term = Term((*rest[:axis], link, *rest[axis:]), coefficient)
    return Monomial(term, first.exponent, picked, _where_of_joined(forms, parts, axis))


def _where_of_joined(
    forms: Sequence[Monomial], parts: Sequence[TensorVariable], axis: int
) -> TensorVariable | None:
    if all(form.exponent != 0 and form.where is None for form in forms):
        return None
    wheres = [
        pt.constant(form.exponent != 0, dtype="bool") if form.where is None else form.where
        for form in forms
    ]
    full = [pt.broadcast_to(w, part.shape) for w, part in zip(wheres, parts, strict=True)]
    return pt.join(axis, *full)


def _link_of_joined(
    forms: Sequence[Monomial], lengths: Sequence[Any], axis: int
) -> tuple[Link | None, tuple[tuple[int, Any], ...]]:
    """Link of a joined axis, and the entries that are picked along other axes."""
    ways = [(form.term.links[axis], dict(form.picked)) for form in forms if form.exponent != 0]
    (link, picked), *others = ways
    if link is None and all(other == (None, picked) for other in others):
        return None, tuple(picked.items())
    carried = {link.axis for link, _ in ways if link is not None} or {
        a for a, entry in picked.items() if any(other[1].get(a) != entry for other in others)
    }
    source = carried.pop()
    rest = [{a: entry for a, entry in picked.items() if a != source} for _, picked in ways]
    if (
        carried
        or any(other != rest[0] for other in rest)
        or any(link is None and source not in picked for link, picked in ways)
    ):
        raise NotConjugate("it enters the parts of a concatenation along different axes")
    indices = []
    for form, length in zip(forms, lengths, strict=True):
        link, picked = form.term.links[axis], dict(form.picked)
        if link is None:
            entry = picked[source] if form.exponent != 0 else 0
            indices.append(pt.full((length,), entry, dtype="int64"))
        else:
            indices.append(pt.arange(length) if link.index is None else link.index)
    return Link(source, pt.concatenate(indices)), tuple(rest[0].items())


def _pick(
    form: Monomial, indices: Sequence[Any], where: TensorVariable | None, rv: TensorVariable
) -> Monomial:
    """Entries at an index of numbers and full slices."""
    term, picked = form.term, form.picked
    for axis, index in reversed(list(enumerate(indices))):
        if isinstance(index, slice):
            if index != slice(None):
                raise NotConjugate("it is indexed by a number and a slice at once")
            continue
        entry = int(index.data) if isinstance(index, Constant) else index
        link = term.links[axis]
        if link is not None:
            picked = (*picked, (link.axis, entry if link.index is None else link.index[entry]))
        term = pick(Term(with_link(term.links, axis, None), term.coefficient), axis, entry, rv)
    return Monomial(term, form.exponent, picked, where)


def _read_elemwise(node: Any, operands: list[Monomial], rv: TensorVariable) -> Monomial:
    [out] = node.outputs
    forms = [
        replace(f, term=broadcast(AffineMap(None, {rv: f.term}), o, out).terms[rv])
        for f, o in zip(operands, node.inputs, strict=True)
    ]
    first, *others = forms
    match node.op.scalar_op:
        case scalar.Mul():
            return reduce(_product, forms)
        case scalar.TrueDiv():
            return _product(first, _raise(others[0], -1.0))
        case scalar.Pow() if (exponent := scalar_constant(node.inputs[1])) is not None:
            return _raise(first, exponent)
        case scalar.Sqrt() | scalar.Sqr() | scalar.Reciprocal() as op:
            return _raise(first, UNARY[type(op)])
        case scalar.Abs() | scalar.Neg() | scalar.Identity() | scalar.Cast() if (
            out.dtype.startswith("float")
        ):
            return replace(first, term=Term(first.term.links, node.op(first.term.coefficient)))
        case scalar.Sign():
            return _constant(pt.sign(first.term.coefficient), out.ndim)
    raise NotConjugate(f"{describe(out)} is not a power of it")


def _raise(form: Monomial, exponent: float) -> Monomial:
    coefficient = form.term.coefficient**exponent
    if exponent == 0:
        return _constant(coefficient, form.term.out_ndim)
    raised = Term(form.term.links, coefficient)
    return replace(form, term=raised, exponent=form.exponent * exponent)


def _product(first: Monomial, second: Monomial) -> Monomial:
    coefficient = first.term.coefficient * second.term.coefficient
    if 0 in (first.exponent, second.exponent):
        one = second if first.exponent == 0 else first
        return replace(one, term=Term(one.term.links, coefficient))
    if not _same_entries(first, second):
        raise NotConjugate("it enters a product twice, along different axes")
    exponent = first.exponent + second.exponent
    if exponent == 0:
        return _constant(coefficient, first.term.out_ndim)
    return replace(first, term=Term(first.term.links, coefficient), exponent=exponent)


def _same_entries(first: Monomial, second: Monomial) -> bool:
    """Whether the same entries of the variable enter the same entries of two expressions."""
    axes, indices = [], []
    for form in (first, second):
        links, picked = form.term.links, form.picked
        axes.append(([link and link.axis for link in links], [axis for axis, _ in picked]))
        indices.append([link and link.index for link in links] + [i for _, i in picked])
        indices[-1].append(form.where)
    return axes[0] == axes[1] and all(_same(a, b) for a, b in zip(*indices, strict=True))


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Variable) and isinstance(second, Variable):
        return equal_computations([first], [second])
    return first is second or first == second
