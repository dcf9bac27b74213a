"""What mixes rows is declined, what keeps them apart is computed as by hand, row by row."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr

import pymc_nnsteps as nns
from pymc_nnsteps.activations import Normalize
from pymc_nnsteps.prediction import blocks
from tests.cases import quick

RNG = np.random.default_rng(0)
N_OBS = 4
X = RNG.normal(size=(N_OBS, 4))  # as many columns as rows, and as units: lengths tell nothing
ORDER = np.array([2, 0, 3, 1])
CONSTANT = pt.as_tensor(RNG.normal(size=(N_OBS, 4)))
DRAWS = {"W": RNG.normal(size=(1, 2, 4, 4)), "b": RNG.normal(size=(1, 2, 4))}


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    """Many small graphs, each evaluated a few times."""
    monkeypatch.setattr(blocks, "c_by_default", lambda: {"mode": "FAST_COMPILE"})


def network(f, observe="normal"):
    """A model of the output ``f(x, W, b)``, seen in one of the ways that predict knows."""
    with pm.Model() as model:
        x = pm.Data("inputs", X)
        W, b = pm.Normal("W", shape=(4, 4)), pm.Normal("b", shape=4)
        output = f(x, W, b)
        y = np.zeros((N_OBS, 4)[: output.ndim])
        if observe == "normal":
            pm.Normal("y", output, 1, observed=y)
        elif observe == "latent":
            pm.Normal("y", pm.Normal("z", output, 1), 1, observed=y)
        elif observe == "decision":
            z = pm.Normal("z", output, 1)
            pm.Bernoulli("y", p=pt.gt(z, 0).astype("float64"), observed=y)
        else:
            pm.StudentT("y", 4, pm.Deterministic("f", output), sigma=1, observed=y)
    return model


def draws():
    stored = {
        name: (("chain", "draw", *(f"{name}_dim_{i}" for i in range(value.ndim - 2))), value)
        for name, value in DRAWS.items()
    }
    return xr.Dataset(stored, {"chain": [0], "draw": [0, 1]})


def row_by_row(f, rows):
    """``f`` of every row on its own, for every draw."""
    x, W, b = pt.matrix(shape=(1, 4)), pt.matrix(shape=(4, 4)), pt.vector(shape=(4,))
    function = pytensor.function(
        [x, W, b], f(x, W, b), mode="FAST_COMPILE", on_unused_input="ignore"
    )
    weights = zip(DRAWS["W"][0], DRAWS["b"][0], strict=True)
    return np.array([[[function(row[None], *each)[0] for row in rows] for each in weights]])


ROW_BY_ROW = {
    "linear": lambda x, W, b: x @ W + b,
    "dot": lambda x, W, b: pt.dot(x, W),
    "vector": lambda x, W, b: x @ b,
    "transposed product": lambda x, W, b: (W @ x.T).T,
    "einsum": lambda x, W, b: pt.einsum("ni,io->no", x, W),
    "tensordot": lambda x, W, b: pt.tensordot(x, W, [[1], [1]]),
    "outer": lambda x, W, b: pt.outer(x[:, 0], b),
    "batched product": lambda x, W, b: (x[:, None, :] @ W)[:, 0],
    "product of each row": lambda x, W, b: (x[:, None, :] * W @ x[:, :, None])[..., 0],
    "inverses": lambda x, W, b: pt.linalg.inv(pt.eye(4) + x[:, :, None] ** 2 * pt.eye(4)) @ b,
    "two layers": lambda x, W, b: pt.tanh(x @ W + b) @ W.T,
    "softmax over units": lambda x, W, b: pt.special.softmax(x @ W, axis=-1),
    "log-sum-exp over units": lambda x, W, b: pt.logsumexp(x @ W, axis=1),
    "normalised units": lambda x, W, b: Normalize(2)(x @ W),
    "centred units": lambda x, W, b: x - x.mean(axis=1, keepdims=True),
    "spread of units": lambda x, W, b: (x @ W).std(axis=1),
    "largest unit": lambda x, W, b: (x @ W).max(axis=1),
    "sorted units": lambda x, W, b: pt.sort(x, axis=1),
    "cumulated units": lambda x, W, b: pt.cumsum(x, axis=1),
    "switch": lambda x, W, b: pt.switch(x > b, x, 0.1 * x),
    "clipped": lambda x, W, b: pt.clip(x @ W, -1, 1),
    "column": lambda x, W, b: (x @ W)[:, 1],
    "reversed columns": lambda x, W, b: x[:, ::-1],
    "chosen columns": lambda x, W, b: (x @ W)[:, ORDER],
    "lookup": lambda x, W, b: b[(x[:, 0] > 0).astype(int)],
    "lookup of rows": lambda x, W, b: W[(x[:, 0] > 0).astype(int)],
    "lookup of columns": lambda x, W, b: W[:, (x[:, 0] > 0).astype(int)].T,
    "joined columns": lambda x, W, b: pt.concatenate([x[:, :2], x[:, 2:] ** 2], axis=1) @ W,
    "column of ones": lambda x, W, b: (
        pt.concatenate([x[:, 1:], pt.ones((x.shape[0], 1))], axis=1) @ W
    ),
    "stacked": lambda x, W, b: pt.stack([x @ b, x[:, 0]], axis=1),
    "changed column": lambda x, W, b: pt.set_subtensor(x[:, 0], 1.0) @ W,
    "added to a column": lambda x, W, b: pt.inc_subtensor(x[:, 0], x[:, 1]) @ W,
    "repeated bias": lambda x, W, b: x + pt.broadcast_to(b, x.shape),
    "flat": lambda x, W, b: (x @ b[:, None]).reshape((-1,)),
    "squeezed": lambda x, W, b: (x @ b[:, None]).squeeze(-1),
    "image": lambda x, W, b: x.reshape((-1, 2, 2)).sum(axis=1),
    "image by the number of rows": lambda x, W, b: x.reshape((x.shape[0], 2, 2)).max(axis=2),
    "convolution": lambda x, W, b: pt.signal.convolve1d(x, b[:2], mode="same"),
    "there and back": lambda x, W, b: (x.T + b[:, None]).T,
    "ones like": lambda x, W, b: pt.ones_like(x) * b + x,
    "statistics of the weights": lambda x, W, b: (x - W.mean(axis=0)) / W.std(axis=0),
}
QUICK = {
    "linear", "einsum", "tensordot", "batched product", "inverses", "two layers",
    "softmax over units", "normalised units", "spread of units", "sorted units", "switch",
    "column", "chosen columns", "lookup of rows", "joined columns", "column of ones",
    "changed column", "repeated bias", "image by the number of rows", "convolution",
    "there and back",
}  # fmt: skip

MIXED = {
    "index": lambda x, W, b: (x @ W)[ORDER],
    "index, turned": lambda x, W, b: (x @ W)[ORDER].T,
    "reversed": lambda x, W, b: (x @ W)[::-1],
    "one row for all": lambda x, W, b: x @ W + x[0],
    "rolled": lambda x, W, b: pt.roll(x @ W, 1, axis=0),
    "shifted": lambda x, W, b: pt.concatenate([x[1:], x[:1]], axis=0),
    "difference": lambda x, W, b: x - pt.concatenate([x[1:], x[:1]]),
    "transposed": lambda x, W, b: W @ x.T,
    "gram": lambda x, W, b: x @ x.T,
    "gram again": lambda x, W, b: x @ W @ x.T @ x,
    "attention": lambda x, W, b: pt.special.softmax(x @ x.T, axis=1) @ x,
    "kernel of differences": lambda x, W, b: pt.exp(-((x[:, None] - x[None]) ** 2).sum(-1)) @ W,
    "mean": lambda x, W, b: (x - x.mean(axis=0)) @ W,
    "mean of all": lambda x, W, b: (x - x.mean()) @ W,
    "standardised": lambda x, W, b: x / x.std(axis=0),
    "largest of all": lambda x, W, b: x / abs(x).max(),
    "norm": lambda x, W, b: x / pt.linalg.norm(x, axis=0),
    "product of rows": lambda x, W, b: x * pt.prod(x, axis=0),
    "batch normalisation": lambda x, W, b: Normalize()((x @ W).T).T,
    "cumulated": lambda x, W, b: pt.cumsum(x @ W, axis=0),
    "flat cumulated": lambda x, W, b: pt.cumsum(x).reshape((4, 4)),
    "sorted": lambda x, W, b: pt.sort(x @ W, axis=0),
    "ranks": lambda x, W, b: pt.argsort(x, axis=0) * 1.0,
    "argmax": lambda x, W, b: W[pt.argmax(x, axis=0)],
    "softmax over rows": lambda x, W, b: pt.special.softmax(x @ W, axis=0),
    "softmax over all": lambda x, W, b: pt.special.softmax(x @ W, axis=None),
    "log-sum-exp": lambda x, W, b: x - pt.logsumexp(x, axis=0),
    "constant in front": lambda x, W, b: CONSTANT @ x,
    "weight of each row": lambda x, W, b: x + W,
    "weight of each row, masked": lambda x, W, b: pt.switch(x > 0, x, W),
    "joined rows": lambda x, W, b: pt.concatenate([x[:2], x[2:] * 2]),
    "numbers of rows": lambda x, W, b: x @ W + pt.arange(x.shape[0])[:, None],
    "count": lambda x, W, b: x @ W / x.shape[0],
    "count of entries": lambda x, W, b: x @ W / x.size,
    "reshaped": lambda x, W, b: x.reshape((4, -1)).T,
    "columns first": lambda x, W, b: x.T.reshape(x.shape),
    "half rows": lambda x, W, b: x.reshape((-1, 2)).reshape((2, -1)).reshape((-1, 4))[::-1],
    "two rows": lambda x, W, b: x.reshape((-1, 2, 4)).sum(axis=1, keepdims=True)[:, 0],
    "identity of rows": lambda x, W, b: pt.eye(x.shape[0]) @ x,
    "triangle": lambda x, W, b: pt.tril(x),
    "diagonal": lambda x, W, b: pt.diagonal(x),
    "changed row": lambda x, W, b: pt.set_subtensor(x[0], 0.0),
    "constant column put in": lambda x, W, b: pt.set_subtensor(x[:, 0], CONSTANT[:, 0]),
    "put in a constant": lambda x, W, b: pt.set_subtensor(CONSTANT[:, 0], x[:, 0]),
    "convolution along rows": lambda x, W, b: pt.signal.convolve1d(x.T, b[:2], mode="same").T,
    "solve": lambda x, W, b: pt.linalg.solve(x.T @ x + pt.eye(4), x.T).T,
    "entry by rows": lambda x, W, b: x[pt.arange(4), ORDER],
    "own entry": lambda x, W, b: x[pt.arange(4), x[:, 0].astype(int)],
    "condition": lambda x, W, b: x[x[:, 0] > -9],
    "scan": lambda x, W, b: pytensor.scan(
        lambda row, before: row + before,
        sequences=[x],
        outputs_info=[pt.zeros(4)],
        return_updates=False,
    ),
    "random": lambda x, W, b: x + pm.Normal.dist(0, 1, shape=(4,)),
}


@pytest.mark.parametrize("name", quick(ROW_BY_ROW, QUICK))
def test_what_keeps_rows_apart_is_computed(name):
    """At more rows, at fewer and in another order, as if there were no other rows."""
    f = ROW_BY_ROW[name]
    model = network(f)
    for rows in (X, X[ORDER], X[1:3], np.concatenate([X, -X, X])):
        expected = row_by_row(f, rows)
        found = nns.predict(draws(), rows, model=model)
        np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("observe", ["normal", "latent", "decision", "named"])
@pytest.mark.parametrize("f", MIXED.values(), ids=MIXED)
def test_what_mixes_rows_is_declined(f, observe):
    model = network(f, observe)
    with pytest.raises(ValueError, match=r"^predict cannot tell what [fyz] computes from each row"):
        nns.predict(draws(), X, model=model)
