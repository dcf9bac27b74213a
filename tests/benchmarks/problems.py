"""The problems that are timed: the paper's synthetic setting, and MNIST."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

import pymc_nnsteps as nns

SHARED = Path(__file__).parents[3] / "shared"


def teacher_data(
    seed: int, *, n_obs: int = 2084, n_features: int = 50, hidden: int = 10, noise: float = 1e-4
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Inputs and targets of a teacher, and its state: an exact draw from the posterior."""
    rng, d = np.random.default_rng(seed), n_features
    X, scale = rng.standard_normal((n_obs, d)), np.sqrt(noise)
    W1, b1 = rng.standard_normal((hidden, d)) / d**0.5, rng.standard_normal(hidden) / d**0.5
    W2, b2 = rng.standard_normal((1, hidden)) / hidden**0.5, rng.standard_normal(1) / hidden**0.5
    Z2 = X @ W1.T + b1 + scale * rng.standard_normal((n_obs, hidden))
    X2 = np.maximum(Z2, 0) + scale * rng.standard_normal((n_obs, hidden))
    y = (X2 @ W2.T + b2)[:, 0] + scale * rng.standard_normal(n_obs)
    return X, y, {"W1": W1, "b1": b1, "Z2": Z2, "X2": X2, "W2": W2, "b2": b2}


def teacher(
    seed: int, *, n_obs: int = 2084, hidden: int = 10, noise: float = 1e-4
) -> tuple[pm.Model, dict[str, np.ndarray]]:
    """The paper's setting, and the teacher's state."""
    X, y, state = teacher_data(seed, n_obs=n_obs, hidden=hidden, noise=noise)
    return nns.intermediate_noise_mlp(X, y, hidden=(hidden,), noise=noise), state


def plain_gibbs(model: pm.Model, state: dict[str, np.ndarray], seed: int) -> Any:
    """The plain NumPy sampler of a teacher's problem at ``state``; None where it is absent."""
    if not (SHARED / "reference" / "numpy_gibbs.py").exists():
        return None
    sys.path.append(str(SHARED / "reference"))
    from numpy_gibbs import ReluRegressionGibbs

    X, y = (model[name].get_value() for name in ("inputs", "targets"))
    plain = ReluRegressionGibbs(X, y, len(state["b1"]), 1e-4, seed)
    plain.W1 = np.column_stack([state["W1"], state["b1"]])
    plain.W2 = np.append(state["W2"], state["b2"])
    plain.Z, plain.X = state["Z2"].copy(), state["X2"].copy()
    return plain


def mnist() -> tuple[np.ndarray, np.ndarray] | None:
    """10 000 images, standardised, and labels, shuffled; None where absent."""
    path = SHARED / "data" / "mnist10k.npz"
    if not path.exists():
        return None
    order = np.random.default_rng(0).permutation(10_000)
    with np.load(path) as data:
        images = data["images"].reshape(10_000, -1)[order].astype(float)
        labels = data["labels"][order].astype(int)
    return (images - images.mean()) / images.std(), labels


def image_error(point: dict[str, np.ndarray], images: np.ndarray, labels: np.ndarray) -> float:
    """Share of images that the noise-free network of a point classifies wrongly.

    Of the paper's two networks for MNIST: 784-12-10, and a convolution of two channels 4 x 4 with
    stride 2, 2 x 2 average pooling, 72-10.
    """
    kernels, biases = point["W1"], point["b1"]
    if kernels.ndim == 4:
        squares = images.reshape(-1, 28, 28)
        patches = np.lib.stride_tricks.sliding_window_view(squares, (4, 4), (1, 2))[:, ::2, ::2]
        z = np.einsum("nijyx,ayx->naij", patches, kernels[:, 0]) + biases[:, None, None]
        pooled = z[:, :, :12, :12].reshape(-1, 2, 6, 2, 6, 2).mean((3, 5))
        z = pooled.reshape(len(pooled), -1)
    else:
        z = images @ kernels.T + biases
    scores = np.maximum(z, 0) @ point["W2"].T + point["b2"]
    return float(np.mean(scores.argmax(1) != labels))


def chain(step: nns.Gibbs, point: dict[str, Any]) -> Any:
    """A function that moves a chain on by one draw at each call."""
    state = [point]
    step.setup_chain(np.random.default_rng(0), 0, 0)

    def advance() -> None:
        state[0], _ = step.step(state[0])

    return advance
