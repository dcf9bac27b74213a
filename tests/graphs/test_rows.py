"""Rows of random graphs: what is said to keep them apart does so."""

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_nnsteps.graphs.row_axes import MixesRows, Rows
from pymc_nnsteps.graphs.rows import follow_rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 4))  # as many columns as rows, and as units: lengths tell nothing
ORDER = np.array([2, 0, 3, 1])
WEIGHTS = [RNG.normal(size=(4, 4)), RNG.normal(size=4)]


STEPS = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a @ b,
    lambda a, b: pt.switch(a > 0, a, b),
    lambda a, b: pt.concatenate([a, b], axis=0)[:4],
    lambda a, b: pt.concatenate([a, b], axis=1)[:, :4],
    lambda a, b: pt.stack([a, b]).sum(axis=0),
    lambda a, b: (a[:, :, None] * b[:, None, :]).sum(axis=1),
    lambda a, b: (a[:, None] - b[None]).sum(axis=-1),
    lambda a, b: pt.matmul(a[:, None, :], b[None])[:, 0],
    lambda a, b: pt.set_subtensor(a[:, 1], b[:, 0]),
    lambda a, b: pt.set_subtensor(a[1], b[0]),
    lambda a, b: a[(b[:, 0] > 0).astype(int)],
    lambda a, b: a[:, (b[0] > 0).astype(int)],
    lambda a, b: pt.broadcast_to(a[0], b.shape),
    lambda a, b: pt.tanh(a),
    lambda a, b: a.T,
    lambda a, b: a[::-1],
    lambda a, b: a[:, ::-1],
    lambda a, b: a[ORDER],
    lambda a, b: a[:, ORDER],
    lambda a, b: a - a.mean(axis=0, keepdims=True),
    lambda a, b: a - a.mean(axis=1, keepdims=True),
    lambda a, b: pt.cumsum(a, axis=0),
    lambda a, b: pt.cumsum(a, axis=1),
    lambda a, b: pt.special.softmax(a, axis=0),
    lambda a, b: pt.special.softmax(a, axis=1),
    lambda a, b: pt.sort(a, axis=-1),
    lambda a, b: a.reshape((-1, 2, 2)).transpose((0, 2, 1)).reshape((-1, 4)),
    lambda a, b: a.reshape((2, 2, -1))[::-1].reshape((4, -1)),
    lambda a, b: a.reshape((a.shape[0], 2, 2)).reshape(a.shape),
    lambda a, b: a.T.reshape(a.shape),
    lambda a, b: pt.ones((a.shape[0], 1)) * b,
    lambda a, b: pt.zeros_like(a) + b[:, 0][:, None],
]


def random_graph(seed):
    """A few steps from the inputs and the weights; everything is of shape (4, 4) at four rows."""
    rng = np.random.default_rng(seed)

    def f(x, W, b):
        made = [x, x, W]
        for step in rng.choice(len(STEPS), size=rng.integers(1, 6)):
            one, other = rng.choice(len(made), size=2)
            made += [STEPS[step](made[one], made[other])] * 2
        return made[-1] + x * b

    return f


def test_random_graphs():
    """What is accepted has the same answer with other rows around, in another order or alone."""
    accepted = 0
    inputs, weights = pt.matrix(), [pt.matrix(shape=(4, 4)), pt.vector(shape=(4,))]
    x = pt.matrix(shape=(None, 4))
    for seed in range(250):
        output = random_graph(seed)(inputs, *weights)
        known = {inputs: (x, Rows(0)), **{weight: (weight, None) for weight in weights}}
        try:
            computed, place = follow_rows(output, known)
        except MixesRows:
            continue
        if place != Rows(0):
            continue
        accepted += 1
        options = {"mode": "FAST_COMPILE", "on_unused_input": "ignore"}
        own = pytensor.function([x, *weights], computed, **options)
        model = pytensor.function([inputs, *weights], output, **options)
        expected = model(X, *WEIGHTS)
        np.testing.assert_allclose(own(X, *WEIGHTS), expected, rtol=1e-9, err_msg=str(seed))
        for rows in (ORDER, [2], [0, 1, 2, 3, 3, 1]):
            found = own(X[rows], *WEIGHTS)
            np.testing.assert_allclose(found, expected[rows], rtol=1e-9, err_msg=str(seed))
    assert accepted > 40
