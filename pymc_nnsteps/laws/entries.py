"""Entries of a variable that make up a parameter of a child, and sums over them."""

from collections.abc import Collection
from dataclasses import replace

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import AffineMap, broadcast
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.linear_terms import Link, expand
from pymc_nnsteps.graphs.monomial import Monomial, monomial
from pymc_nnsteps.graphs.shapes import lengths
from pymc_nnsteps.graphs.values import scalar_constant


def carried(
    expression: TensorVariable,
    rv: TensorVariable,
    barriers: Collection[TensorVariable],
    target: TensorVariable,
) -> Monomial:
    """Read an expression as a power of ``rv``, with the axes of a target to which it broadcasts."""
    form = monomial(expression, rv, barriers)
    term = broadcast(AffineMap(None, {rv: form.term}), expression, target).terms[rv]
    return replace(form, term=term)


def selected(
    expression: TensorVariable,
    rv: TensorVariable,
    barriers: Collection[TensorVariable],
    target: TensorVariable,
) -> Monomial:
    """Read an expression that consists of entries of ``rv`` only."""
    form = carried(expression, rv, barriers, target)
    if form.exponent != 1 or scalar_constant(form.term.coefficient) != 1 or form.where is not None:
        raise NotConjugate("it does not enter unchanged")
    return form


def summed(
    array: TensorVariable, form: Monomial, rv: TensorVariable, target: TensorVariable
) -> TensorVariable:
    """Sum of an array over the target's entries that share an entry of ``rv``, of its axes."""
    array = array.astype(rv.dtype)
    if form.where is not None:
        array = pt.switch(form.where, array, pt.zeros((), dtype=rv.dtype))
    full = pt.broadcast_to(array, target.shape)
    links = form.term.links
    repeated = [axis for axis, link in enumerate(links) if link is None]
    kept: list[Link] = [link for link in links if link is not None]
    total = full.sum(repeated) if repeated else full
    for axis, link in enumerate(kept):
        if link.index is not None:
            front = pt.moveaxis(expand(total, {axis: link.index.shape[0]}), axis, 0)
            zeros = pt.zeros((lengths(rv)[link.axis], *list(front.shape)[1:]), dtype=rv.dtype)
            total = pt.moveaxis(zeros[link.index].inc(front), 0, axis)
    axes = [link.axis for link in kept]
    total = total.dimshuffle(
        *(axes.index(axis) if axis in axes else "x" for axis in range(rv.ndim))
    )
    for axis, entry in form.picked:
        only = pt.zeros(lengths(rv)[axis], dtype=rv.dtype)[entry].set(1)
        total *= only.dimshuffle(*(0 if i == axis else "x" for i in range(rv.ndim)))
    return total
