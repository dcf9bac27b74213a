"""Power form: how a positive variable enters a scale, as ``coefficient * v ** exponent``.

Scales are written in many ways (``sigma=s``, ``tau=t``, ``1 / sqrt(t)``, products of several
scales, one scale per row or per group): all of them are powers of the variable, whose axes the
result carries along.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar import basic as scalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.affine import AffineMap, affine, broadcast, read_operation
from pymc_nnsteps.conditionals.structure import (
    NotConjugate,
    dependents,
    describe,
    scalar_constant,
)
from pymc_nnsteps.conditionals.terms import Term

UNARY = {scalar.Sqrt: 0.5, scalar.Sqr: 2.0, scalar.Reciprocal: -1.0}
"""Exponents of operations of one argument."""


@dataclass(frozen=True)
class PowerForm:
    """``out = coefficient * v ** exponent``, where the term tells which axes are carried along.

    The coefficient has the output's axes followed by the variable's, all of length one.
    """

    term: Term
    exponent: float


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
    carried = read_operation(
        node, [AffineMap(None, {rv: form.term}), *(AffineMap(other, {}) for other in given)]
    )
    term = carried.terms[rv]
    if term.linked_axes != form.term.linked_axes:
        raise NotConjugate(f"{describe(expression)} does not carry its entries along")
    return PowerForm(term, form.exponent)


def _read_elemwise(node: Any, operands: list[PowerForm], rv: TensorVariable) -> PowerForm:
    [out] = node.outputs
    forms = [
        PowerForm(broadcast(AffineMap(None, {rv: f.term}), o, out).terms[rv], f.exponent)
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
            return PowerForm(
                Term(first.term.links, node.op(first.term.coefficient)), first.exponent
            )
        case scalar.Sign():
            return PowerForm(Term((None,) * out.ndim, pt.sign(first.term.coefficient)), 0.0)
    raise NotConjugate(f"{describe(out)} is not a power of it")


def _raise(form: PowerForm, exponent: float) -> PowerForm:
    raised = form.term.coefficient**exponent
    return PowerForm(Term(form.term.links, raised), form.exponent * exponent)


def _product(first: PowerForm, second: PowerForm) -> PowerForm:
    links = {form.term.links for form in (first, second) if form.exponent != 0}
    if len(links) > 1:
        raise NotConjugate("it enters a product twice, along different axes")
    coefficient = first.term.coefficient * second.term.coefficient
    carried = links.pop() if links else first.term.links
    return PowerForm(Term(carried, coefficient), first.exponent + second.exponent)
