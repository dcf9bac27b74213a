"""Rows of groups: sums over them, and what they see of their group."""

import numpy as np

from pymc_nnsteps.kernels.jit import jit
from pymc_nnsteps.kernels.linear_algebra import Array


@jit
def add_products(start: Array, index: Array, weight: Array, first: Array, second: Array) -> Array:
    """Add ``weight * first second^T`` of each row to the sums of its group.

    Parameters
    ----------
    start : array, shape (groups, k * d)
    index : array of int, shape (n,)
        Group of each row. Where there is no such group, all sums are NaN.
    weight : array, shape (n,) or (1,)
    first : array, shape (n, k) or (1, k)
    second : array, shape (n, d) or (1, d)

    Returns
    -------
    array, shape (groups, k * d)
    """
    out = start.copy()
    groups, k, d = len(start), first.shape[1], second.shape[1]
    weighs, sees, pairs = int(len(weight) > 1), int(len(first) > 1), int(len(second) > 1)
    for row in range(len(index)):
        group = index[row]
        if group < 0 or group >= groups:
            out[:] = np.nan
            break
        sums, other = out[group], second[pairs * row]
        for i in range(k):
            scaled = weight[weighs * row] * first[sees * row, i]
            if scaled != 0.0:
                for j in range(d):
                    sums[i * d + j] += scaled * other[j]
    return out


@jit
def see_groups(index: Array, design: Array, entries: Array) -> Array:
    """``entries[group]^T design`` of each row.

    Parameters
    ----------
    index : array of int, shape (n,)
        Group of each row. What a row without such a group sees is NaN.
    design : array, shape (n, k) or (1, k)
    entries : array, shape (groups, k * d)

    Returns
    -------
    array, shape (n, d)
    """
    n, groups, k = len(index), len(entries), design.shape[1]
    d, varies = entries.shape[1] // k, int(len(design) > 1)
    out = np.zeros((n, d), entries.dtype)
    for row in range(n):
        group, seen = index[row], out[row]
        if group < 0 or group >= groups:
            seen[:] = np.nan
        else:
            of_group = entries[group]
            for i in range(k):
                share = design[varies * row, i]
                if share != 0.0:
                    for j in range(d):
                        seen[j] += share * of_group[i * d + j]
    return out
