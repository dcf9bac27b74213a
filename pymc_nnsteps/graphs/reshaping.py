"""Reshapes in an affine form: axes that are kept, split and joined."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.shape import Reshape
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import AffineMap, linear, reads
from pymc_nnsteps.graphs.linear_terms import Length, Link, Term, axis_lengths, cut_links, shuffle

Groups = list[tuple[range, range]]


def trivial_reshape(node: Any) -> list[Any] | None:
    """Dimshuffle equal to a reshape that only adds or drops axes of length one."""
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


def reshaped_axes(node: Any) -> Groups:
    """Runs of axes of the input of a reshape, and the axes of its output that they become.

    Both sides of a run have the same number of entries. Runs are as short as static types and the
    graph of the new shape establish.
    """
    source, shape = node.inputs
    [out] = node.outputs
    before, after = source.type.shape, out.type.shape
    fewer = min(source.ndim, out.ndim)

    def same(i: int, j: int) -> bool:
        if before[i] is None or after[j] is None:
            return _states_length(shape, j % out.ndim, source, i % source.ndim)
        return bool(before[i] == after[j])

    n_first = next((i for i in range(fewer) if not same(i, i)), fewer)
    n_last = next((i for i in range(fewer - n_first) if not same(-1 - i, -1 - i)), fewer - n_first)
    first = [(range(i, i + 1), range(i, i + 1)) for i in range(n_first)]
    last = [
        (range(source.ndim - i, source.ndim - i + 1), range(out.ndim - i, out.ndim - i + 1))
        for i in range(n_last, 0, -1)
    ]
    inner = range(n_first, source.ndim - n_last), range(n_first, out.ndim - n_last)
    return [*first, *_split_run(before, after, *inner), *last]


def _states_length(shape: TensorVariable, j: int, source: TensorVariable, i: int) -> bool:
    """Whether the graph of an entry of a new shape is the length of an axis of the source."""
    if shape.owner is None or not isinstance(shape.owner.op, MakeVector):
        return False
    lengths: list[Variable] = [shape.owner.inputs[j], source.shape[i]]
    graph = FunctionGraph(outputs=lengths, clone=True)
    rewrite_graph(graph, include=("ShapeOpt", "canonicalize"))
    stated, own = graph.outputs
    return stated.type == own.type and equal_computations([stated], [own])


def _split_run(
    before: Sequence[int | None], after: Sequence[int | None], source: range, out: range
) -> Groups:
    """Cut a run wherever both sides have reached the same number of entries."""
    if not source and not out:
        return []
    lengths = [before[i] for i in source], [after[j] for j in out]
    if not source or not out or any(None in side or 0 in side for side in lengths):
        return [(source, out)]
    products = [list(accumulate(side, mul)) for side in lengths]
    common = sorted(set(products[0]) & set(products[1]))
    groups, i, j = [], 0, 0
    for product in common:
        to_i, to_j = (len(side) - side[::-1].index(product) for side in products)
        groups.append((source[i:to_i], out[j:to_j]))
        i, j = to_i, to_j
    return groups


@reads(Reshape)
def _read_reshape(op: Reshape, node: Any, operands: Sequence[AffineMap]) -> AffineMap:
    order = trivial_reshape(node)
    if order is not None:
        return linear(node, operands, lambda rv, term: shuffle(term, order, rv))
    groups = reshaped_axes(node)
    return linear(node, operands, lambda rv, term: _reshaped(term, node, groups, rv))


def _reshaped(term: Term, node: Any, groups: Groups, rv: TensorVariable) -> Term:
    source, [out] = node.inputs[0], node.outputs
    links: list[Link | None] = []
    term = term.whole()
    for before, after in groups:
        carried = _carried(term, source, before, out, after, rv)
        if carried is None:
            term = cut_links(term, before, rv)
        links.extend(carried or [None] * len(after))
    coefficient = term.coefficient
    spread: list[Length] = list(coefficient.shape)
    lengths: list[Length] = []
    static: list[Any] = []
    for before, after in groups:
        varies = any(term.varies_along(axis) for axis in before)
        if varies and len(before) == len(after) == 1:
            lengths.append(coefficient.shape[before[0]])
        elif varies:
            for axis in before:
                [spread[axis]] = axis_lengths(source, [axis])
            lengths.extend(axis_lengths(out, after))
        else:
            lengths.extend([1] * len(after))
        static.extend([None if varies else 1] * len(after))
    for axis in range(term.out_ndim, coefficient.ndim):
        lengths.append(coefficient.shape[axis])
        static.append(1 if coefficient.type.broadcastable[axis] else None)
    full = pt.broadcast_to(coefficient, spread)
    return Term(tuple(links), pt.specify_shape(full.reshape(lengths), static))


def _carried(
    term: Term,
    source: TensorVariable,
    before: range,
    out: TensorVariable,
    after: range,
    rv: TensorVariable,
) -> list[Link | None] | None:
    """Links of a run of output axes; None if the links of the source have to be cut."""
    links = [link for axis in before if (link := term.links[axis]) is not None]
    if len(before) == len(after) == 1:
        return [term.links[before[0]]]
    if not links or any(link.index is not None for link in links):
        return None
    if any(term.varies_along(axis) for axis in before):
        return None
    axes = [axis for link in links for axis in link.axes]
    repeated = [axis for axis in before if term.links[axis] is None]
    if len(after) == 1 and all(source.type.broadcastable[axis] for axis in repeated):
        return [Link(axes[0], inner=tuple(axes[1:]))]
    lengths = [rv.type.shape[axis] for axis in axes]
    if len(before) == 1 and None not in lengths and lengths == [out.type.shape[a] for a in after]:
        return [Link(axis) for axis in axes]
    return None
