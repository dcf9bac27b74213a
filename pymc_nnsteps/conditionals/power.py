"""Power form: how a positive variable enters a scale, as ``coefficient * v ** exponent``.

Scales are written in many ways (``sigma=s``, ``tau=t``, ``1 / sqrt(t)``, products of several
scales, one scale per row or per group): all of them are powers of the variable, whose axes the
result carries along.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar import basic as scalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.affine import AffineMap, affine, broadcast, read_operation
from pymc_nnsteps.conditionals.structure import (
    NotConjugate,
    dependents,
    describe,
    scalar_constant,
)
from pymc_nnsteps.conditionals.terms import Term, without_link

UNARY = {scalar.Sqrt: 0.5, scalar.Sqr: 2.0, scalar.Reciprocal: -1.0}
"""Exponents of operations of one argument."""


@dataclass(frozen=True)
class PowerForm:
    """``out = coefficient * v ** exponent``, where the term tells which axes are carried along.

    The coefficient has the output's axes followed by the variable's, all of length one. Of an
    axis of the variable that is not carried along, ``picked`` tells the only entry that enters
    (none where it has length one).
    """

    term: Term
    exponent: float
    picked: tuple[tuple[int, Any], ...] = ()


def power(
    expression: TensorVariable, rv: TensorVariable, barriers: Collection[TensorVariable] = ()
) -> PowerForm:
    """Read ``expression`` as a power of ``rv`` times a coefficient, entry by entry.

    Parameters
    ----------
    expression : TensorVariable
    rv : TensorVariable
        A positive variable: its absolute value is read as itself and its sign as one.
    barriers : collection of TensorVariable
        Random variables behind which the graph is not searched.

    Raises
    ------
    NotConjugate
        If it is not of this form, or the graph does not establish it.

    Examples
    --------
    >>> tau = pt.vector("tau", shape=(3,))
    >>> form = power(2 / pt.sqrt(tau)[None, :], tau)
    >>> form.term.links, form.exponent
    ((None, Link(axis=0, index=None)), -0.5)
    """
    return _read(expression, rv, dependents(expression, {rv}, barriers))


def _read(expression: TensorVariable, rv: TensorVariable, dependent: set[Variable]) -> PowerForm:
    if expression is rv:
        return PowerForm(affine(rv, {rv}).terms[rv], 1.0)
    if expression not in dependent:
        order = (*range(expression.ndim), *["x"] * rv.ndim)
        return PowerForm(Term((None,) * expression.ndim, expression.dimshuffle(order)), 0.0)
    node = expression.owner
    if isinstance(node.op, Elemwise):
        return _read_elemwise(node, [_read(o, rv, dependent) for o in node.inputs], rv)
    source, *given = node.inputs
    if not dependent.isdisjoint(given):
        raise NotConjugate(f"{describe(expression)} is not a power of it")
    form = _read(source, rv, dependent)
    if isinstance(node.op, Subtensor):
        indices = indices_from_subtensor(given, node.op.idx_list)
        if not all(isinstance(index, slice) for index in indices):
            return _pick(form, indices)
    carried = read_operation(
        node, [AffineMap(None, {rv: form.term}), *(AffineMap(other, {}) for other in given)]
    )
    term = carried.terms[rv]
    lost = form.term.linked_axes - term.linked_axes
    if not all(rv.type.broadcastable[axis] for axis in lost):
        raise NotConjugate(f"{describe(expression)} does not carry its entries along")
    return PowerForm(term, form.exponent, form.picked)


def _pick(form: PowerForm, indices: Sequence[Any]) -> PowerForm:
    """The entries at an index of numbers and full slices."""
    term, picked = form.term, form.picked
    for axis, index in reversed(list(enumerate(indices))):
        if isinstance(index, slice):
            if index != slice(None):
                raise NotConjugate("it is indexed by a number and a range at once")
            continue
        entry = int(index.data) if isinstance(index, Constant) else index
        link = term.links[axis]
        if link is not None:
            picked = (*picked, (link.axis, entry if link.index is None else link.index[entry]))
        coefficient = term.coefficient
        if term.varies_along(axis):
            coefficient = pt.take(coefficient, entry, axis=axis)
        else:
            coefficient = coefficient.dimshuffle(*(i for i in range(coefficient.ndim) if i != axis))
        term = Term(without_link(term.links, axis), coefficient)
    return PowerForm(term, form.exponent, picked)


def _read_elemwise(node: Any, operands: list[PowerForm], rv: TensorVariable) -> PowerForm:
    [out] = node.outputs
    forms = [
        PowerForm(broadcast(AffineMap(None, {rv: f.term}), o, out).terms[rv], f.exponent, f.picked)
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
        case scalar.Abs() | scalar.Neg() | scalar.Identity() | scalar.Cast():
            same = Term(first.term.links, node.op(first.term.coefficient))
            return PowerForm(same, first.exponent, first.picked)
        case scalar.Sign():
            return PowerForm(Term((None,) * out.ndim, pt.sign(first.term.coefficient)), 0.0)
    raise NotConjugate(f"{describe(out)} is not a power of it")


def _raise(form: PowerForm, exponent: float) -> PowerForm:
    raised = form.term.coefficient**exponent
    return PowerForm(Term(form.term.links, raised), form.exponent * exponent, form.picked)


def _product(first: PowerForm, second: PowerForm) -> PowerForm:
    ways = {(form.term.links, form.picked) for form in (first, second) if form.exponent != 0}
    if len(ways) > 1:
        raise NotConjugate("it enters a product twice, along different axes")
    coefficient = first.term.coefficient * second.term.coefficient
    links, picked = ways.pop() if ways else (first.term.links, ())
    return PowerForm(Term(links, coefficient), first.exponent + second.exponent, picked)
