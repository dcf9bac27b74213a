"""Networks of images that users write by hand, in several styles."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor import signal

import pymc_nnsteps as nns

RNG = np.random.default_rng(4)
IMAGES = RNG.normal(size=(3, 5, 5))
POSITIONS = np.add.outer(np.add.outer(5 * np.arange(4), np.arange(4)).ravel(), [0, 1, 5, 6])


def by_an_index(images, kernels):
    """Patches by one index of flattened images, and a product with flattened kernels."""
    patches = images.reshape((3, 25))[:, POSITIONS]
    return (patches @ kernels.reshape((2, 4)).T).reshape((3, 4, 4, 2)).transpose(0, 3, 1, 2)


def by_slices(images, kernels):
    """Shifted images, stacked, and an einsum."""
    shifted = [images[:, i : 4 + i, j : 4 + j] for i in (0, 1) for j in (0, 1)]
    return pt.einsum("nhwk,ok->nohw", pt.stack(shifted, axis=-1), kernels.reshape((2, 4)))


def by_a_convolution(images, kernels):
    """PyTensor's own convolution, of kernels turned round."""
    return signal.convolve2d(images[:, None], kernels[None, :, ::-1, ::-1], mode="valid")


def network(convolution):
    """Two channels, pooled by windows and by slices, and a dense layer on top."""
    with pm.Model() as model:
        kernels, biases = pm.Normal("kernels", shape=(2, 2, 2)), pm.Normal("biases", shape=2)
        images = pm.Data("images", IMAGES, shape=IMAGES.shape)
        mean = convolution(images, kernels) + biases[:, None, None]
        Z = pm.Normal("Z", mean, 0.5, shape=(3, 2, 4, 4))
        A = pm.Normal("A", pt.maximum(Z, 0), 0.3, shape=(3, 2, 4, 4))
        pooled = A.reshape((3, 2, 2, 2, 2, 2)).mean((3, 5))
        P = pm.Normal("P", pooled, 0.2, shape=(3, 2, 2, 2))
        hidden = convolution(pt.pad(P[:, 0], ((0, 0), (1, 2), (2, 1))), kernels * 0.5)[:, 0]
        w = pm.Normal("w", shape=(2, 8))
        pm.Normal("y", P.reshape((3, 8)) @ w.T, 0.4, observed=RNG.normal(size=(3, 2)))
        pm.Normal("t", hidden, 0.4, observed=RNG.normal(size=(3, 4, 4)))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("convolution", [by_an_index, by_slices, by_a_convolution])
def test_laws_are_those_of_the_model(convolution):
    """A pixel of another place, a kernel that is not turned, a window over the wrong axes."""
    rows = nns.verify(network(convolution), random_seed=0).rows
    assert [row[:2] for row in rows] == [
        ("kernels", "Gaussian"),
        ("biases", "Gaussian"),
        ("Z", "piecewise Gaussian, 2 pieces"),
        ("A", "Gaussian"),
        ("P", "Gaussian"),
        ("w", "Gaussian"),
    ]
