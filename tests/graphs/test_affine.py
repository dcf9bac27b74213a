"""The affine form of an expression against the expression itself.

Every entry of the table is evaluated twice at random values: as written, and rebuilt densely from
what `affine` read (``offset + sum_a C[o, a] v[a]``, where links select). A dropped offset, a wrong
axis, a transposed or repeated index or a lost factor fails the comparison.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor import signal

from pymc_nnsteps.graphs.affine import affine, cut_link
from pymc_nnsteps.graphs.errors import NotConjugate
from tests.cases import quick
from tests.laws.graphs import evaluate

RNG = np.random.default_rng(20)
with pm.Model() as MODEL:
    W = pm.Normal("W", shape=(4, 3))
    V = pm.Normal("V", shape=(3, 4))
    w = pm.Normal("w", shape=3)
    b = pm.Normal("b", shape=4)
    s = pm.Normal("s")
    row = pm.Normal("row", shape=(1, 4))
    col = pm.Normal("col", shape=(4, 1))
    S = pm.Normal("S", shape=(4, 4))
    T = pm.Normal("T", shape=(2, 3, 4))
    theta = pm.Normal("theta", shape=5)
    X = pm.Data("X", RNG.normal(size=(6, 3)))
    H = pm.Data("H", RNG.normal(size=(6, 4)))
    Q = pm.Data("Q", RNG.normal(size=(2, 6, 4)))
    x = pm.Data("x", RNG.normal(size=6))
    groups = pm.Data("groups", np.array([0, 4, -1, 2, 2, 0]))
XC = RNG.normal(size=(6, 3))  # the same as constants: static shapes
HC = RNG.normal(size=(6, 4))
QC = RNG.normal(size=(2, 6, 4))
GC = np.array([1, 1, 4, 0, -2, 3])
POINT = {rv: RNG.normal(size=rv.type.shape) for rv in MODEL.free_RVs}


def rebuild(form, rv):
    """Offset plus dense sum, as a graph."""
    term = form.terms[rv].whole()
    n_out = term.out_ndim
    for axis, link in enumerate(term.links):
        if link is None:
            continue
        assert term.coefficient.type.broadcastable[n_out + link.axis]
        term = cut_link(term, axis, rv)
    v = rv.dimshuffle(*["x"] * n_out, *range(rv.ndim))
    axes = tuple(range(n_out, n_out + rv.ndim))
    out = (term.coefficient * v).sum(axis=axes) if axes else term.coefficient * v
    return out if form.offset is None else out + form.offset


def check(expression, *rvs):
    """Read for each variable alone (the others given) and for all of them jointly."""
    expression = pt.as_tensor(expression)
    for rv in rvs:
        form = affine(expression, {rv}, set(MODEL.free_RVs))
        assert set(form.terms) == {rv}
        term = form.terms[rv]
        assert term.out_ndim == expression.ndim
        assert term.rv_ndim == rv.ndim
        assert form.offset is None or form.offset.ndim == expression.ndim
        theirs, ours = evaluate([expression, rebuild(form, rv)], POINT)
        scale = np.abs(theirs).max(initial=0.0)
        np.testing.assert_allclose(
            np.broadcast_to(ours, theirs.shape), theirs, rtol=1e-12, atol=1e-12 * scale
        )
    if len(rvs) > 1:
        joint = affine(expression, set(rvs), set(MODEL.free_RVs))
        assert set(joint.terms) == set(rvs)
        offset = 0 if joint.offset is None else joint.offset
        total = sum((rebuild(type(joint)(None, joint.terms), rv) for rv in rvs), offset)
        theirs, ours = evaluate([expression, total], POINT)
        np.testing.assert_allclose(np.broadcast_to(ours, theirs.shape), theirs, atol=1e-11)


def mlp(X, W, b):
    return pt.dot(X, W.T) + b


with MODEL:
    NAMED = pm.Deterministic("named", X @ W.T)
    SQUEEZED = pm.Deterministic("squeezed", (H @ row.T)[:, 0])

AFFINE = {
    # products
    "at": (X @ W.T, W),
    "at, constants": (XC @ W.T, W),
    "at, other orientation": (X @ V, V),
    "at, variable first": ((W @ X.T).T, W),
    "at, variable first, not transposed back": (W @ X.T, W),
    "dot": (pt.dot(X, W.T), W),
    "pm.math.dot": (pm.math.dot(XC, V), V),
    "matmul": (pt.matmul(X, W.T), W),
    "vector": (X @ w, w),
    "vector, constants": (XC @ w, w),
    "vector first": (w @ X.T, w),
    "dot vector": (pt.dot(X, w), w),
    "matvec": (pt.matvec(X, w), w),
    "vecmat": (pt.vecmat(w, X.T), w),
    "vecdot": (pt.vecdot(X, w), w),
    "vector with vector": (pt.dot(w, XC[0]), w),
    "tensordot": (pt.tensordot(X, W, axes=[[1], [1]]), W),
    "tensordot 1": (pt.tensordot(X, V, axes=1), V),
    "tensordot, variable first": (pt.tensordot(W, X, axes=[[1], [1]]), W),
    "tensordot 3-D": (pt.tensordot(QC, W, axes=[[2], [0]]), W),
    "tensordot 3-D of data": (pt.tensordot(Q, W, axes=[[2], [0]]), W),
    "tensordot 3-D, other axis": (pt.tensordot(QC, S, axes=[[2], [1]]), S),
    "outer": (pt.outer(x, b), b),
    "outer, variable first": (pt.outer(w, x), w),
    "scalar times vector": (s * x, s),
    "both sides": (H @ W @ V, W, ),
    "both sides 2": (H @ S @ V.T, S),
    "three factors": ((H @ S) @ W, W),
    "matmul 3-D": (Q @ W, W),
    "matmul 3-D, constants": (QC @ W, W),
    "matmul 3-D, W.T": (Q @ V.T, V),
    "batched variable": (X @ T, T),
    "batched both": (Q @ T.swapaxes(-1, -2), T),
    "batched variable first": (T @ Q.swapaxes(-1, -2), T),
    "batched variable with vector": (T @ HC[0], T),
    "batch of one": (Q[:1] @ W, W),
    "batch of one, variable batched": (QC[:1] @ T.swapaxes(-1, -2), T),
    "variable becomes batched": (W[None] @ RNG.normal(size=(5, 3, 2)), W),
    "row vector as matrix": (row @ HC.T, row),
    "column as matrix": (HC @ col, col),
    "scalar output, sliced": ((H @ row.T)[:, 0], row),
    "scalar output, squeezed": (pt.squeeze(H @ row.T), row),
    "scalar output, squeezed axis": (pt.squeeze(H @ col, axis=1), col),
    "scalar output, flattened": ((H @ row.T).flatten(), row),
    "scalar output, raveled": ((HC @ row.T).ravel(), row),
    "scalar output, reshaped": ((HC @ row.T).reshape((6,)), row),
    "scalar output, reshaped -1": ((H @ row.T).reshape((-1,)), row),
    "scalar output, column": (HC @ col[:, 0], col),
    "variable squeezed": (HC @ row.squeeze(), row),
    # offsets and biases
    "bias": (X @ W.T + b, W, b),
    "bias first": (b + XC @ W.T, W, b),
    "bias as column": (pt.concatenate([X, pt.ones((6, 1))], 1)
                       @ pt.concatenate([W, b[:, None]], 1).T, W, b),
    "bias as first column": (pt.concatenate([np.ones((6, 1)), XC], 1)
                             @ pt.concatenate([b[:, None], W], axis=1).T, W, b),
    "bias as row": (pt.concatenate([XC, np.ones((6, 1))], 1)
                    @ pt.concatenate([V, b[None, :]], axis=0), V, b),
    "bias subtracted": (X @ W.T - b, W, b),
    "bias, negative map": (b - X @ W.T, W, b),
    "bias scalar": (X @ w + s, w, s),
    "bias as a row": (HC @ S + row, S, row),
    "bias column broadcast": (b[:, None] + (X @ W.T).T, b, W),
    "float offset": (X @ w + 0.1 + 0.7, w),
    "float offsets and factors": (0.1 * (0.3 + (X @ w) * 0.7 - 0.2) / 0.3, w),
    "many float factors": (pt.mul(0.1, w, 0.7, 0.3), w),
    "integer offset": (3 - 2 * w, w),
    "integer divisor": (w / 3, w),
    "divided by data": (pt.outer(x, b) / HC, b),
    "offset of data": (HC + b, b),
    "unsigned offset": (b - np.array([1, 2, 3, 200], dtype="uint8"), b),
    "boolean offset": (b - pt.gt(HC, 0), b),
    "boolean factor": (b * (H > 0), b),
    "small integers": (np.array([[100, 100, 1], [0, 0, 127]], dtype="int8") @ w, w),
    "sum of small integers": ((np.full((6, 4), 100, dtype="int8") * b).sum(), b),
    "product of small integers": ((s + pt.zeros((2, 3))) @ np.full((3, 4), 100, "int8"), s),
    "offset of another variable": (theta[groups] + X @ w, w),
    "offset broadcast up": (HC[0] + s, s),
    "offset of more axes": (QC + b, b),
    # sums and means
    "mean": ((X @ W.T).mean(), W),
    "mean 0": ((X @ W.T).mean(0), W),
    "mean 1": ((X @ W.T).mean(1), W),
    "sum": (W.sum(), W),
    "negative sum": (-W.sum(), W),
    "sum 0": (W.sum(0), W),
    "sum 1": ((X @ W.T).sum(1), W),
    "sum -1, keepdims": ((HC * b).sum(-1, keepdims=True), b),
    "sum of two axes": ((QC * b).sum((0, 2)), b),
    "sum over an axis it does not vary along": ((pt.zeros((6, 4)) + b).sum(0), b),
    "sum over an axis it does not vary along, with an offset": ((HC + b).sum(0), b),
    "sum over broadcast scalar": ((s + pt.zeros((3, 2))).sum(), s),
    "sum over broadcast scalar, data": ((s + H).sum(1), s),
    "sum of product": ((X * w).sum(-1), w),
    "sum of 3-D product": ((RNG.normal(size=(6, 4, 3)) * W).sum(-1), W),
    "sum of 3-D product, middle": ((RNG.normal(size=(6, 4, 3)) * W).sum(1), W),
    "sum, twice": ((T * RNG.normal(size=(5, 2, 3, 4))).sum(-1).sum(-1), T),
    "mean of a bias with offset": ((HC + b[None, :]).mean(axis=0) * 2, b),
    "centred": ((H - H.mean(0)) @ b, b),
    # slices and indices
    "slice": (W[:2], W),
    "slice of columns": (X[:, :2] @ W[:, :2].T, W),
    "slice with step": (W[:, ::2], W),
    "slice backwards": (W[::-1] * 2, W),
    "slice with negative bounds": (theta[-3:-1], theta),
    "slice of a slice": (theta[1:][::2][1:], theta),
    "slice of the output": ((X @ W.T)[2:5], W),
    "slice of the output's units": ((X @ W.T)[:, 1:], W),
    "slice of a 3-D": (T[:, 1:, ::-1], T),
    "entry": (W[1, 2], W),
    "negative entry": (W[-1, -2] * X, W),
    "row of it": (W[1] * X, W),
    "column of it": (W[:, -1] * H, W),
    "row of the output": ((X @ W.T)[-1], W),
    "entry times data": (x * w[2] + 1, w),
    "index": (theta[GC], theta),
    "index of data": (theta[groups], theta),
    "index, repeated and negative": (theta[np.array([0, 0, -1, -1, 2])], theta),
    "index times data": (theta[GC] * x + s, theta, s),
    "index of rows": ((S[GC % 4] * HC).sum(-1), S),
    "index of rows of data": ((W[groups % 4] * X).sum(1), W),
    "index of columns": (W[:, np.array([2, 0, 0])], W),
    "index of the output": ((X @ W.T)[groups], W),
    "index of the output's units": ((X @ W.T)[:, np.array([3, 3, 0])], W),
    "index of an index": (theta[GC][np.array([5, 0, 0])], theta),
    "index of an index of data": (theta[groups][groups], theta),
    "index of a slice": (theta[1:][np.array([0, 3, -1])], theta),
    "slice of an index": (theta[GC][::2], theta),
    "slice of an index, backwards": (theta[groups][::-1], theta),
    "entry of an index": (theta[groups][2] * x, theta),
    "sum of entries of an index": (HC @ theta[np.array([0, 0, 3, -1])], theta),
    "product with an index": (X[:, :2] @ theta[np.array([4, 1])], theta),
    "list index": (theta[[0, 1, 1]], theta),
    "index shifted": (theta[GC - 1 + 1], theta),
    "take": (pt.take(theta, groups), theta),
    "take rows": (pt.take(W, groups % 4, axis=0), W),
    "slice of one, squeezed": (theta[2:3].squeeze() * x, theta),
    "index of one, squeezed": (theta[np.array([3])].squeeze(), theta),
    "index of one, reshaped": (x * theta[np.array([-1])].reshape(()), theta),
    "column by a slice, squeezed": (HC @ W[:, 1:2].squeeze(), W),
    "column by a slice, flattened": (HC @ W[:, :1].flatten() + s, W, s),
    "column by a slice, reshaped": (W[:, -1:].reshape((4,)) * HC, W),
    "row by a slice, dropped": (W[2:3].dimshuffle(1), W),
    "row by a slice, summed": ((XC * W[2:3].squeeze(0)).sum(1), W),
    "output by a slice, squeezed": (((X @ W.T)[:, 2:3]).squeeze(1), W),
    # joins
    "concatenate": (pt.concatenate([w, b]), w, b),
    "concatenate with data": (pt.concatenate([w, x]), w),
    "concatenate columns": (pt.concatenate([W, S], axis=1), W, S),
    "concatenate broadcast": (pt.concatenate([pt.zeros((2, 4)) + b, HC * s], axis=0), b, s),
    "concatenate with an offset": (pt.concatenate([w + 1, b - 2]), w, b),
    "stack": (pt.stack([w, XC[0]]), w),
    "stack columns": (pt.stack([w, XC[1], XC[2]], 1), w),
    "stack scalars": (pt.stack([s, s * 2, 1.0, theta[0]]), s, theta),
    "stack entries": (XC @ pt.stack([s, 0.5 * s + 1, -s]), s),
    "concatenate with data first": (pt.concatenate([XC[0], w]), w),
    # axes
    "transpose": (W.T, W),
    "dimshuffle": (T.dimshuffle(2, "x", 0, 1), T),
    "transpose 3-D": (T.transpose(1, 2, 0) * 2, T),
    "swapaxes": (T.swapaxes(0, 2), T),
    "expand_dims": (pt.expand_dims(W, 0) * XC[:, None, :], W),
    "None": (W[None, :, :] * X[:, None, :], W),
    "atleast": (pt.atleast_2d(b), b),
    "ravel of a vector": (theta.ravel(), theta),
    "reshape to a column": (theta.reshape((5, 1)), theta),
    "reshape to a row": (theta.reshape((1, -1)) * 1.0, theta),
    "reshape by ones": (W.reshape((4, 1, 3)), W),
    "boolean index": (theta[np.array([True, False, True, True, False])] * 1.0, theta),
    "different axes": (b[:, None] + b[None, :], b),
    "matrix plus transpose": (S + S.T, S),
    "differences": (theta[1:] - theta[:-1], theta),
    "residual connection": (HC[:4] @ S + S, S),
    "reshape to the same": (W.reshape((4, 3)), W),
    "squeeze a row": (row.squeeze(), row),
    "broadcast_to": (pt.broadcast_to(b, (3, 4)), b),
    "broadcast_to scalar": (pt.broadcast_to(s, (3, 4)), s),
    "broadcast_to row": (pt.broadcast_to(row, (3, 4)), row),
    "broadcast_to column": (pt.broadcast_to(col, (4, 3)) * HC[:4, :3], col),
    "broadcast_to with an offset": (pt.broadcast_to(b + 1, (3, 4)), b),
    "ones times": (pt.ones((6, 1)) * b, b),
    "ones at": (pt.ones((6, 1)) @ row, row),
    "row broadcast": (row + HC, row),
    "column broadcast": (col * HC[:4], col),
    "row broadcast and summed": ((row * HC).sum(1), row),
    "row broadcast, then a product": ((row + HC) @ S, row),
    "scalar broadcast, then a product": ((s + HC) @ S, s, ),
    "vector broadcast, then a product": ((b + pt.zeros((6, 4))) @ HC.T, b),
    "vector broadcast along the summed axis": ((b[:, None] + pt.zeros((4, 3))) @ XC.T, b),
    "vector broadcast along a summed axis": ((x @ (b[None, :] + pt.zeros((6, 4)))), b),
    "specify_shape": (pt.specify_shape(X, (6, 3)) @ pt.specify_shape(W, (4, 3)).T, W),
    # wrappers
    "named": (NAMED + b, W, b),
    "named and squeezed": (SQUEEZED * 2, row),
    "cast": ((X @ W.T).astype("float64"), W),
    "identity": (pt.tensor_copy(W) * 2, W),
    "negated": (0 - (-W), W),
    "doubly negated bias": (-(HC - b), b),
    # the variable several times
    "twice": (W + W, W),
    "twice with coefficients": (HC * b + 2 * b - b / 3, b),
    "twice through a product": (X @ W.T + HC[:, :3] @ W.T, W),
    "twice through products": ((X @ w) * x + HC[:, :3] @ w - 1, w),
    "twice through the same index": (S[groups % 4, 0] + S[groups % 4, 2] * x, S),
    "twice through two indices": (W[groups % 4, 0] + W[groups % 3, 1] * x, W),
    "cancels in part": (w - 0.5 * w, w),
    "gathered and scaled": (2 * theta[GC] + 1, theta),
    "three variables": (X @ (W + s).T + b, W, s, b),
    "shape of the variable": (W / W.shape[0] + W.shape[1], W),
    "own length": (w.sum() / w.shape[0], w),
    # compositions
    "two linear layers": ((X @ W.T + b) @ S + 1, W, b),
    "second of two linear layers": ((X @ W.T + b) @ S + row, S, row),
    "polynomial design": (pt.stack([x**0, x, x**2], axis=1) @ w, w),
    "varying slopes": ((S[GC % 4] * HC).sum(-1) + theta[GC], S, theta),
    "per-unit factor": ((X @ W.T) * HC, W),
    "per-unit factor of a variable": ((X @ W.T) * b, W),
    "per-unit factor read for the factor": ((X @ W.T) * b, b),
    "weights scaled by a variable": (X @ (W * s).T, W),
    "weights scaled, scale": (X @ (W * s).T + s, s),
    "mixed": (((2 * (X @ W.T) - b / 3).T[:, ::-1] + x[::-1]).sum(0) * 0.1, W, b),
    "mixed 3-D": ((Q @ (S - row)).mean(0)[:, 2] + (H @ S)[:, 2], S),
    "factor analysis": (HC[:, :3] @ V + b, V, b),
    # reshapes that split and join axes
    "mixing reshape": (W.reshape((3, 4)), W),
    "flatten": (W.flatten(), W),
    "flatten, then a product": (HC.reshape(2, 12) @ W.flatten(), W),
    "ravel of a product": ((X @ W.T).ravel(), W),
    "ravel of a product with an offset": ((XC @ W.T + b).ravel() * 0.7, W, b),
    "inner axes joined": (QC[:, :, 0] @ T.reshape((2, 12))[:, :6].T, T),
    "inner axes joined, then a product": (T.reshape((2, -1)) @ QC.reshape(12, 4), T),
    "inner axes joined, data first": (QC.reshape(4, 12) @ T.reshape((2, 12)).T + QC[0, 0, 0], T),
    "inner axes joined, of a factor": ((T * QC[0, 1]).reshape((2, 12)) @ QC.reshape(12, 4), T),
    "outer axes joined": (T.reshape((6, 4)) + H, T),
    "outer axes joined, then a product": (HC @ T.reshape((6, 4)).T, T),
    "joined and split again": (T.reshape((2, 12)).reshape((2, 3, 4)) * 2, T),
    "joined and split in another way": (T.reshape((2, 12)).reshape((2, 4, 3)) * 2, T),
    "joined, of the transpose": (T.transpose(0, 2, 1).reshape((2, 12)) @ QC.reshape(12, 4), T),
    "joined and summed": (T.reshape((2, 12)).sum(1), T),
    "joined and indexed": (T.reshape((2, 12))[:, np.array([0, 5, 5, -1])], T),
    "joined and added": (T.reshape((2, 12)) + T.reshape((2, 12))[:, ::-1], T),
    "joined and repeated": (T[:1].reshape((1, 12)) + QC.reshape(4, 12), T),
    "joined and put beside": (pt.concatenate([T.reshape((2, 12)), QC[0, :2]], axis=1), T),
    "all joined": (T.flatten() @ QC.ravel()[:24], T),
    "split": (S.reshape((4, 2, 2)), S),
    "split, of data": ((X @ V).reshape((X.shape[0], 2, 2)), V),
    "split of an index": (theta[groups].reshape((2, 3)), theta),
    "first axes joined, of data": (((x[:, None, None] * V)).reshape((-1, 4)) @ S, V),
    "window means": (S.reshape((2, 2, 2, 2)).mean((1, 3)), S),
    "window means of an image each": (
        (QC[:, :, :, None] * b).reshape((2, 3, 2, 2, 2, 4)).mean((2, 4)), b),
    "strides by slices, stacked": (
        pt.stack([S[i:3 + i:2, j:3 + j:2] for i in (0, 1) for j in (0, 1)], axis=-1), S),
    # several indices at once
    "patches": (T.reshape((2, 12))[:, np.array([[0, 1, 4], [1, 2, 5], [-1, 0, 0]])], T),
    "patches, then a product": (
        H[:, np.array([[0, 1], [1, 2], [2, 3]])] @ W[:2, 0], W),
    "patches by a product": (S[:, np.array([[0, 1], [1, 2], [2, 3]])] @ HC[:2, :2], S),
    "patches by rows and columns": (
        T[:, np.array([0, 1])[:, None], np.array([[0, 2], [1, 3]])], T),
    "rows and columns": (S[np.array([0, 2])[:, None], np.array([1, -1, 0])], S),
    "rows and columns of a product": (
        (X @ W.T + b)[np.array([0, 2, 5]), np.array([3, 3, -1])], W, b),
    "rows and columns of data": ((X @ W.T)[groups, groups % 3], W),
    "an index apart from another": (T[np.array([0, 1, 1]), :, np.array([0, -1, 2])], T),
    "an index apart, of a product": ((QC @ W)[np.array([[0], [1]]), :, np.array([0, 2])], W),
    "index, number and range": (T[np.array([0, 1, 1]), 1:, 2], T),
    "ranges beside an index": (T[:, np.array([2, 0]), ::-2], T),
    "mask of all": (W[np.arange(12).reshape(4, 3) % 5 > 1], W),
    "mask of all, of a product": ((X @ W.T + b)[np.arange(24).reshape(6, 4) % 5 > 1], W, b),
    "mask of data": ((X @ W.T)[pt.gt(x, 0)], W),
    "scalar repeated by an index": ((s * pt.ones(3))[np.array([[0, 1], [2, 2]])], s),
    # what is put into an array
    "switch": (pt.switch(pt.gt(x[:3], 0), w, 0.3), w),
    "switch between both": (pt.switch(pt.gt(H[:4], 0), S + 1, b - 2 * S), S, b),
    "set a range": (pt.set_subtensor(pt.zeros(5)[:3], w), w),
    "set a constant": (pt.set_subtensor((X @ W.T + b)[0], 0.5), W, b),
    "set entries of it": (pt.set_subtensor(W[np.array([0, 2]), np.array([1, 1])], 7.0), W),
    "set a mask": (W[np.arange(12).reshape(4, 3) % 5 > 1].set(XC[0, 0]), W),
    "set a corner, then a product": (X @ pt.set_subtensor(W[0, 0], 1.0).T, W),
    "add to a part": (W[:, 1].inc(b), W, b),
    "add to entries, some of them twice": (pt.zeros(5)[np.array([0, 2, 2])].inc(w), w),
    "set entries, some of them twice": (pt.zeros(5)[np.array([0, 2, 2])].set(w * 2 + 1), w),
    "put into columns": (pt.zeros((4, 6))[:, 1:5].set(S + 1) @ H, S),
    "put into rows and columns": (
        pt.zeros((4, 4))[np.array([0, 2])[:, None], np.array([1, 3])].set(S[:2, :2]), S),
    "put and repeated": (pt.zeros((6, 4))[1:3].set(b) * HC, b),
    "put into itself": (S[0].set(b + S[1]), S, b),
    "padded": (pt.pad(T, ((0, 0), (1, 1), (2, 0)))[:, ::2], T),
    "padded by its edge": (pt.pad(w, 1, mode="edge"), w),
    "filled by masks": (
        pt.zeros(6)[np.arange(6) % 2 > 0].set(theta[:3])[np.arange(6) % 2 < 1].set(x[:3]), theta),
    # other operations
    "einsum": (pt.einsum("ni,oi->no", X, W), W),
    "einsum, three": (pt.einsum("ni,oi,o->n", XC, W, HC[0]), W),
    "einsum, images": (pt.einsum("nhw,hw->n", RNG.normal(size=(5, 4, 3)), W), W),
    "einsum, batches": (pt.einsum("bij,bjk->bik", QC, T.swapaxes(1, 2)), T),
    "einsum, transposed": (pt.einsum("ij->ji", W), W),
    "einsum, trace": (pt.einsum("ii->", S), S),
    "tile": (pt.tile(w, 2), w),
    "tile of a matrix": (pt.tile(W, (2, 3)), W),
    "repeat": (pt.repeat(W, 2, axis=1), W),
    "repeat by counts": (pt.repeat(b, np.array([2, 0, 1, 3])) * x, b),
    "repeat by counts of data": (pt.repeat(w, groups[np.array([3, 3, 1])]), w),
    "repeat of all": (pt.repeat(W, np.arange(12)), W),
    "scaled columns": (H @ pt.diag(b), b),
    "scaled rows": (pt.diag(b) @ (XC[:4] @ W.T + 1), b),
    "diagonal shifted": (pt.diag(w, 1), w),
    "diagonal of, shifted": (pt.diagonal(W, -1), W),
    "trace": (pt.trace(S), S),
    "cumulative along an axis": (pt.cumsum(X @ W.T + b, axis=0), W, b),
    "cumulative, then indexed": (pt.cumsum(theta * 0.3)[groups], theta),
    "kronecker": (pt.linalg.kron(W, HC[:2, :2]), W),
    "roll": (pt.roll(W, 1, axis=0), W),
    "split into parts": (pt.split(theta, [2, 3], n_splits=2)[1], theta),
    "convolution, kernel": (signal.convolve2d(QC, S[:2, :2], mode="valid"), S),
    "convolution, image": (signal.convolve2d(T, HC[:2, :2], mode="valid"), T),
    "convolution, full": (signal.convolve2d(T + 1, HC[:2, :2], mode="full"), T),
    "convolution, kernel and offset": (signal.convolve1d(XC, w[:2] + 1, mode="same"), w),
    "sum over a gathered axis": (theta[GC].sum(), theta),
    "tensordot of 2 axes": (pt.tensordot(QC, T[:, 0], axes=[[0, 2], [0, 1]]), T),
    "slice repeated": (theta[2:3] + HC[:, 0], theta),
    "slice repeated by a product": (T[:1] @ Q.swapaxes(-1, -2), T),
    "index matrix": (theta[np.array([[0, 1], [1, 2]])], theta),
    "two index vectors": (W[np.array([0, 1]), np.array([2, 2])], W),
    "index and slice": (W[np.array([0, 1]), 1:], W),
    "set": (pt.set_subtensor(pt.zeros(5)[:3], w), w),
    "cumulative": (pt.cumsum(w), w),
    "diagonal": (pt.diag(w), w),
    "diagonal of": (pt.diagonal(S), S),
    "random length repeat": (pt.repeat(w, 2), w),
}  # fmt: skip


FIRST = {name.replace(",", "").split()[0]: name for name in reversed(AFFINE)}
"""The first case of each operation, by the first word of its name."""


@pytest.mark.parametrize("name", quick(AFFINE, FIRST.values()))
def test_affine_form_is_the_expression(name):
    check(*AFFINE[name])


def test_structure_that_is_kept():
    """What the draws exploit: rows of W share one design, groups are an index, not a matrix."""
    term = affine(XC @ W.T + b, {W}).terms[W]
    assert [link and link.axis for link in term.links] == [None, 0]
    assert term.coefficient.type.shape == (6, 1, 1, 3)
    term = affine(XC @ W.T + b, {b}).terms[b]
    assert [link and link.axis for link in term.links] == [None, 0]
    assert term.coefficient.type.shape == (1, 1, 1)
    term = affine(theta[GC] * x, {theta}).terms[theta]
    assert term.links[0].index is not None
    # a reshape or an index that leaves an axis alone leaves its link; joined axes are no matrix
    term = affine(XC[:4].reshape(1, 12) @ T.reshape((2, 12)).T, {T}).terms[T]
    assert [link and link.axis for link in term.links] == [None, 0]
    assert term.coefficient.type.shape == (1, 1, 1, 3, 4)
    term = affine(S[groups % 4, 0] + S[groups % 4, 2] * x, {S}).terms[S]
    assert term.links[0].axis == 0
    kernels = pm.Normal.dist(shape=(2, 3, 2, 2))
    patches = pt.ones((5, 3, 3, 12))
    term = affine(patches @ kernels.reshape((2, 12)).T, {kernels}).terms[kernels]
    assert [link and link.axis for link in term.links] == [None, None, None, 0]
    assert term.coefficient.type.shape == (5, 3, 3, 1, 1, 3, 2, 2)
    images = pm.Normal.dist(shape=(X.shape[0], 3, 4))
    term = affine(images.reshape((X.shape[0], -1)) @ QC.reshape(12, 4), {images})
    assert [link and link.axis for link in term.terms[images].links] == [0, None]
    term = affine(images[:, [0, 1], np.array([[0, 1], [1, 2]])], {images}).terms[images]
    assert [link and link.axis for link in term.links] == [0, None, None]
    term = affine(images.reshape((X.shape[0], 12))[:, np.ones((2, 2, 5), int)] @ XC[:5], {images})
    assert [link and link.axis for link in term.terms[images].links] == [0, None, None, None]
    assert term.terms[images].coefficient.type.shape[0] == 1
    term = affine((XC @ W.T)[groups, groups % 3], {W}).terms[W]
    assert term.links[0].axis == 0
    assert term.coefficient.type.shape == (None, 1, 3)


UNARY = {
    "transpose": lambda e: e.T,
    "negate": lambda e: -e,
    "scale": lambda e: e * 0.3,
    "divide": lambda e: e / 0.7,
    "offset": lambda e: e + 0.1,
    "flip": lambda e: e[::-1],
    "tail": lambda e: e[1:],
    "gather": lambda e: e[np.array([0, -1, 1, 0])],
    "gather columns": lambda e: e[:, np.array([0, -1, -1, 0])],
    "data row": lambda e: e + pt.as_tensor(RNG2.normal(size=(1, 4)))[:, : e.shape[1]],
    "factor": lambda e: e * pt.as_tensor(RNG2.normal(size=(9, 1)))[: e.shape[0]],
    "weights": lambda e: pt.as_tensor(RNG2.normal(size=(3, 9)))[:, : e.shape[0]] @ e,
    "weights right": lambda e: e @ pt.as_tensor(RNG2.normal(size=(9, 4)))[: e.shape[1]],
    "join": lambda e: pt.concatenate([e, pt.zeros((1, e.shape[1]))]),
    "sum keepdims": lambda e: e.sum(0, keepdims=True) + pt.zeros((3, 1)),
    "mean columns": lambda e: pt.outer(e.mean(1), pt.as_tensor(RNG2.normal(size=4))),
    "dims": lambda e: e[:, None, :].sum(1),
    "twice": lambda e: 2 * e + e,
}
RNG2 = np.random.default_rng(3)


@pytest.mark.parametrize("seed", quick(range(60), range(30)))
def test_random_compositions(seed):
    """Chains of five operations on a matrix, a vector or a scalar among constants.

    A chain may be declined where it is not established; what is read must be right.
    """
    rng = np.random.default_rng(seed)
    rv = [W, b, s, row, col, S][seed % 6]
    expression = rv if rv.ndim == 2 else rv + pt.zeros((4, 4))
    names = []
    try:
        for name in rng.choice(list(UNARY), size=5):
            names.append(str(name))
            expression = UNARY[name](expression)
        evaluate([expression], POINT)
    except IndexError:
        return  # out of bounds as written
    try:
        check(expression, rv)
    except NotConjugate as error:
        reason = str(error)
    else:
        return
    assert "indexed axis" in reason or "different axes" in reason, (names, reason)


with MODEL:
    behind = pm.Normal("behind", X @ w)

DECLINED = {
    "maximum": (pt.maximum(W, 0), W, "not linear in it"),
    "exp": (pt.exp(X @ w), w, "not linear"),
    "square": (w**2, w, "not linear"),
    "sqr": (pt.sqr(w), w, "not linear"),
    "abs": (abs(w), w, "not linear"),
    "times itself": (w * w, w, "multiplied by an expression that depends on it"),
    "norm": ((w * w).sum(), w, "multiplied"),
    "quadratic form": (W.T @ W, W, "on both sides"),
    "two layers share it": (H @ S @ S, S, "on both sides"),
    "denominator": (1 / w, w, "not linear in it"),
    "divided by itself": (w / w.sum(), w, "not linear in it"),
    "random variable in between": (behind * 2, w, "enters through the random variable behind"),
    "softmax": (pm.math.softmax(w), w, "not a linear operation"),
    "switch on itself": (pt.switch(pt.gt(w, 0), w, 0.0), w, "not linear in it"),
    "comparison": (pt.gt(w, 0) * 1.0, w, "not linear in it"),
    "index beside it": (s + theta[pt.cast(s, "int64")], s, "index"),
    "slice bounds beside it": (s + x[: pt.cast(s, "int64")].sum(), s, "index"),
    "boolean index of itself": (W[W > 0], W, None),
    "used as an index": (theta[pt.cast(s, "int64")], s, "index"),
    "used as indices": (theta[pt.cast(b, "int64")], b, None),
    "used as a length": (pt.arange(pt.cast(s, "int64")) * 1.0, s, None),
    "rounded": (pt.round(w), w, "not linear in it"),
    "cast to integers": (pt.cast(w, "int64") * 2.0, w, "not linear in it"),
    "sorted": (pt.sort(w), w, None),
    "largest": (w.max(), w, None),
    "product": (w.prod(), w, None),
    "inverse": (pt.linalg.inv(S) @ HC[0], S, None),
    "kronecker with itself": (pt.linalg.kron(W, W), W, "multiplied"),
    "convolution with itself": (signal.convolve1d(w, w), w, None),
    "convolution of unknown lengths": (signal.convolve1d(X, w), w, "not a linear operation"),
    "cumulative product": (pt.cumprod(w), w, "multiplies its entries"),
    "set by itself": (pt.zeros(5)[pt.cast(s, "int64")].set(1.0), s, "index"),
    "set beside it": (w[pt.cast(s, "int64")].set(s), s, "index"),
    "variance": (w.var(), w, None),
    "standardised": ((w - w.mean()) / w.std(), w, None),
    "log of exp": (pt.log(pt.exp(w)), w, "not linear in it"),
}  # fmt: skip


@pytest.mark.parametrize("name", DECLINED)
def test_declined_with_a_reason(name):
    expression, rv, reason = DECLINED[name]
    with pytest.raises(NotConjugate, match=reason) as error:
        affine(expression, {rv})
    assert str(error.value)


def test_axes_joined_into_thousands_of_entries_are_declined():
    """They would be read by a matrix of their squares."""
    Z = pm.Normal.dist(shape=(41, 100))
    with pytest.raises(NotConjugate, match="flattened into one of 4100 entries"):
        affine(2 * Z.flatten(), {Z})


def test_products_of_two_variables_of_a_block_are_declined():
    """Affine in each is not affine in both: jointly they must not be read as linear."""
    expression = X @ W.T * s
    check(expression, W)
    check(expression, s)
    with pytest.raises(NotConjugate, match="multiplied"):
        affine(expression, {W, s})


def test_what_does_not_depend_on_it_is_the_offset():
    form = affine(X @ w, {b})
    assert not form.terms
    assert form.offset is not None


def test_a_barrier_hides_what_is_behind_it():
    """A given random variable is a number: what it is a function of does not matter."""
    form = affine(behind * 2, {w}, {behind})
    assert not form.terms
