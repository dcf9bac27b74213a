"""Operations on symbolic arrays whose axes have length one where they do not vary."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.linear_terms import Length


def matmul_last(array: TensorVariable, matrix: TensorVariable) -> TensorVariable:
    """``array @ matrix`` over the last axis of ``array``, as one matrix product."""
    if array.ndim <= 2:
        return pt.dot(array, matrix)
    leading = list(array.shape)[:-1]
    product = pt.dot(flatten(array, 0, array.ndim - 1), matrix)
    return product.reshape((*leading, matrix.shape[1]))


def varies(array: TensorVariable, axes: Iterable[int]) -> bool:
    """Whether an array may vary along any of the axes."""
    return any(not array.type.broadcastable[axis] for axis in axes)


def align(array: TensorVariable, ndim: int) -> TensorVariable:
    """Prepend axes of length one."""
    return array.dimshuffle(*["x"] * (ndim - array.ndim), *range(array.ndim))


def expand(array: TensorVariable, lengths: Mapping[int, Length]) -> TensorVariable:
    """Spread axes of length one to the given lengths."""
    one = array.type.broadcastable
    if not any(one[axis] for axis in lengths):
        return array
    shape = [lengths.get(a, 1) if one[a] else array.shape[a] for a in range(array.ndim)]
    return pt.broadcast_to(array, shape)


def flatten(array: TensorVariable, start: int, count: int) -> TensorVariable:
    """Merge ``count`` axes into one; zero axes give a new axis of length one."""
    if count == 1:
        return array
    if count == 0:
        return pt.expand_dims(array, start)
    one = array.type.broadcastable
    shape: list[Length] = [1 if one[axis] else array.shape[axis] for axis in range(array.ndim)]
    merged = reduce(lambda a, b: a * b, shape[start : start + count])
    return array.reshape((*shape[:start], merged, *shape[start + count :]))


def concatenate(
    arrays: Sequence[TensorVariable], label_lengths: Sequence[Length]
) -> TensorVariable:
    """Join along the last axis; label axes are spread where only some of the arrays vary."""
    if len(arrays) == 1:
        return arrays[0]
    spread = {
        axis: length
        for axis, length in enumerate(label_lengths)
        if any(varies(array, [axis]) for array in arrays)
    }
    return pt.concatenate([expand(array, spread) for array in arrays], axis=-1)
