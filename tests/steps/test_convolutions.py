"""Networks of images: every law against the model's own density, and against other wordings.

Two models of the same law that are drawn by the same seed have the same draws, but for rounding:
a convolution at a single position and a dense layer, and a network as the builder and as users
write it.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.steps.networks import needs_gibbs
from tests.cases import quick

RNG = np.random.default_rng(5)
IMAGES, Y = RNG.normal(size=(5, 2, 5, 6)), RNG.normal(size=5)

NETWORKS = {
    "stride, padding, remainder": {
        "convolutions": [nns.models.Conv2D(3, (3, 2), stride=(2, 1), padding=(1, 0), pool=(2, 2))],
    },
    "two in a row, classes": {
        "convolutions": [nns.models.Conv2D(2, 2, padding=1, pool=(2, 3)), nns.models.Conv2D(3, 2)],
        "activation": "hard_tanh",
        "hidden": (2,),
        "y": ["a", "b", "c", "a", "b"],
        "likelihood": "multinomial_probit",
    },
}


@pytest.mark.parametrize("name", quick(NETWORKS, {"stride, padding, remainder"}))
def test_laws_are_the_models(name):
    noise = {"pre": 0.3, "pool": 0.2, "post": 0.5, "output": 0.4}
    model = nns.intermediate_noise_cnn(**({"X": IMAGES, "y": Y, "noise": noise} | NETWORKS[name]))
    table = nns.verify(model, random_seed=1)
    assert all(needs_gibbs(model, rv) for rv in model.free_RVs)
    drawn = {name for variables, _, _ in table.rows for name in variables.split(", ")}
    assert drawn == {rv.name for rv in model.free_RVs}
    assert "interwoven with" in str(nns.explain(model, details=True))


def drawn(model, sweeps=3, **options):
    """The point after some sweeps, by the same random numbers for each model."""
    options = {"interweave": False, "relabel": False, **options}
    step = nns.Gibbs(model=model, sweeps=sweeps, **options)
    step.setup_chain(np.random.default_rng(8), 0, 0)
    point, _ = step.step(model.initial_point())
    return point


def test_one_position_is_a_dense_layer():
    options = {"noise": 0.3, "activation": "leaky_relu"}
    whole = nns.models.Conv2D(3, (5, 6))
    images = drawn(nns.intermediate_noise_cnn(IMAGES, Y, convolutions=[whole], **options))
    rows = drawn(nns.intermediate_noise_mlp(IMAGES.reshape(5, -1), Y, hidden=(3,), **options))
    for name, value in rows.items():
        np.testing.assert_allclose(images[name].reshape(value.shape), value, rtol=1e-8, atol=1e-8)


def windows_of_constants(images, W):
    """Patches by NumPy where images are data, by two indices where they are not."""
    if isinstance(images, np.ndarray):
        seen = np.lib.stride_tricks.sliding_window_view(images, W.type.shape[2:], (2, 3))
    else:
        (_, _, height, width), (_, _, ky, kx) = images.type.shape, W.type.shape
        rows = np.arange(height - ky + 1)[:, None, None, None] + np.arange(ky)[:, None]
        columns = np.arange(width - kx + 1)[:, None, None] + np.arange(kx)
        seen = images[:, :, rows, columns]
    seen = pt.as_tensor(seen).transpose(0, 2, 3, 1, 4, 5)
    n, height, width, fan_in = *seen.shape[:3], int(np.prod(W.type.shape[1:]))
    patches = seen.reshape((n, height, width, fan_in))
    return (patches @ W.reshape((W.shape[0], fan_in)).T).transpose(0, 3, 1, 2)


def sums_of_slices(images, W):
    """One product for each weight of a kernel."""
    (_, _, height, width), (_, _, ky, kx) = images.shape, W.type.shape
    return sum(
        (
            W[None, :, :, y, x, None, None]
            * images[:, None, :, y : height - ky + 1 + y, x : width - kx + 1 + x]
        ).sum(2)
        for y in range(ky)
        for x in range(kx)
    )


def stacked_slices(images, W):
    """Patches as slices stacked, and a product with the kernels as a matrix."""
    (n, channels, height, width), (out, _, ky, kx) = images.shape, W.type.shape
    height, width = height - ky + 1, width - kx + 1
    images = pt.as_tensor(images)
    slices = [images[:, :, y : y + height, x : x + width] for y in range(ky) for x in range(kx)]
    patches = pt.stack(slices, axis=2).reshape((n, channels * ky * kx, height * width))
    return (W.reshape((out, channels * ky * kx)) @ patches).reshape((n, out, height, width))


def mean_of_reshaped(Z):
    n, channels, height, width = Z.type.shape
    return Z.reshape((n, channels, height // 2, 2, width // 2, 2)).mean((3, 5))


def mean_of_indexed(Z):
    _, _, height, width = Z.type.shape
    rows = np.arange(height).reshape(-1, 1, 2, 1)
    columns = np.arange(width).reshape(1, -1, 1, 2)
    return Z[:, :, rows, columns].mean((-2, -1))


def product_with_constants(Z):
    _, _, height, width = Z.type.shape
    down, right = (np.kron(np.eye(n // 2), np.ones((2, 1)) / 2) for n in (height, width))
    return pt.tensordot(pt.tensordot(Z, down, [[2], [0]]), right, [[2], [0]])


NAMES = ("W1", "b1", "Z2", "P2", "X2", "W2", "b2", "Z3", "X3", "W3", "b3")
STYLES = {
    "windows of constants": (windows_of_constants, mean_of_reshaped),
    "sums of slices": (sums_of_slices, mean_of_indexed),
    "stacked slices": (stacked_slices, product_with_constants),
}


def by_hand(convolve, pool):
    """Two convolutions, pooling between them, and a dense layer."""
    n = len(IMAGES)
    with pm.Model() as model:
        W1, b1 = (
            pm.Normal("W1", 0, 12**-0.5, shape=(2, 2, 2, 3)),
            pm.Normal("b1", 0, 12**-0.5, shape=2),
        )
        Z2 = pm.Normal("Z2", convolve(IMAGES, W1) + b1[:, None, None], 0.5, shape=(n, 2, 4, 4))
        P2 = pm.Normal("P2", pool(Z2), 0.5, shape=(n, 2, 2, 2))
        X2 = pm.Normal("X2", pm.math.maximum(P2, 0), 0.5, shape=(n, 2, 2, 2))
        W2, b2 = (
            pm.Normal("W2", 0, 4**-0.5, shape=(3, 2, 1, 2)),
            pm.Normal("b2", 0, 4**-0.5, shape=3),
        )
        Z3 = pm.Normal("Z3", convolve(X2, W2) + b2[:, None, None], 0.5, shape=(n, 3, 2, 1))
        X3 = pm.Normal("X3", pm.math.maximum(Z3, 0), 0.5, shape=(n, 3, 2, 1))
        W3, b3 = pm.Normal("W3", 0, 6**-0.5, shape=(1, 6)), pm.Normal("b3", 0, 6**-0.5, shape=1)
        pm.Normal("y", (X3.flatten(2) @ W3.T + b3)[:, 0], 0.5, observed=Y)
    return model


@pytest.fixture(scope="module")
def built():
    convolutions = [nns.models.Conv2D(2, (2, 3), pool=2), nns.models.Conv2D(3, (1, 2))]
    return drawn(nns.intermediate_noise_cnn(IMAGES, Y, convolutions=convolutions, noise=0.25))


@pytest.mark.slow
@pytest.mark.parametrize("style", ["windows of constants", "stacked slices"])
def test_networks_by_hand_are_drawn_like_the_builders(style, built):
    found = drawn(by_hand(*STYLES[style]))
    assert found.keys() == built.keys()
    for name, value in built.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-7, atol=1e-7, err_msg=name)


@pytest.mark.slow
def test_a_network_of_sums_of_slices():
    """It has the same laws, of which X2's is drawn in another form, from other noise."""
    rows = nns.verify(by_hand(*STYLES["sums of slices"]), random_seed=0).rows
    assert {name for names, *_ in rows for name in names.split(", ")} == set(NAMES)
    assert max(difference for *_, difference in rows) < 1
