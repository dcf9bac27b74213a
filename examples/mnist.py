"""Digits by two networks with noise on every layer: convolutional and fully connected.

    python examples/mnist.py                       # scikit-learn's digits, 8 x 8: two minutes
    python examples/mnist.py --data mnist10k.npz   # MNIST: a file with "images" and "labels"

The networks are those of Piccioli, Troiani and Zdeborova (arXiv 2306.02729): a convolution of two
channels, average pooling, ReLU and a dense layer; and a hidden layer of 12 ReLU units. Which digit
an image shows is the largest of ten noisy outputs (multinomial probit). A fifth of the images is
held out.

``mnist_error.png`` shows the error on these by the network of each sweep, without noise, and of the
vote of the second half of the sweeps so far; ``mnist_kernels.png`` the kernels at the last sweep;
``mnist_hard.png`` the held out images whose vote is closest, with the share of each digit.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import pymc_nnsteps as nns

SEED = 0
HERE = Path(__file__).parent


def main() -> None:
    """Sample both networks, print their errors and draw the figures."""
    arguments = parse_arguments()
    images, labels = load(arguments.data)
    held_out = np.random.default_rng(SEED).permutation(len(images)) < len(images) // 5
    train = images[~held_out], labels[~held_out]
    votes = {}
    for name, build in NETWORKS.items():
        print(f"{name}: {len(train[0])} images, {arguments.sweeps} sweeps")
        model, new = build(*train), images[held_out]
        with model:
            idata = pm.sample(
                arguments.sweeps,
                tune=0,
                chains=1,
                random_seed=SEED,
                var_names=nns.without_latents(),
                compute_convergence_checks=False,
            )
        rows = new if name == "convolutional" else new.reshape(len(new), -1)
        f = nns.predict(idata, rows, model=model).isel(chain=0)
        votes[name] = f.argmax("output").values
        if name == "convolutional":
            kernels = idata["posterior"]["W1"].isel(chain=0, draw=-1).values[:, 0]
            draw_kernels(kernels).savefig(HERE / "mnist_kernels.png", dpi=150)
        half = votes[name][arguments.sweeps // 2 :]
        error = np.mean(shares(half).argmax(1) != labels[held_out])
        print(f"  held out error of the vote of {len(half)} sweeps: {error:.1%}")
    draw_errors(votes, labels[held_out]).savefig(HERE / "mnist_error.png", dpi=150)
    half = votes["convolutional"][arguments.sweeps // 2 :]
    figure = draw_hard(images[held_out], labels[held_out], shares(half))
    figure.savefig(HERE / "mnist_hard.png", dpi=150)


def load(path: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Standardised images, and labels."""
    if path is None:
        images, labels = load_digits().images, load_digits().target
    else:
        with np.load(path) as data:
            images, labels = data["images"], data["labels"]
        size = round(images[0].size ** 0.5)
        images = images.reshape(-1, size, size)
    images, labels = images.astype(float), labels.astype(int)
    return (images - images.mean()) / images.std(), labels


def convolutional(images: np.ndarray, labels: np.ndarray) -> pm.Model:
    """A convolution with kernels of a seventh of the image, as in the paper."""
    kernel = 4 if images.shape[1] >= 16 else 2
    convolution = nns.models.Conv2D(2, kernel, stride=kernel // 2, pool=2)
    noise = 100.0 if images.shape[1] >= 16 else 2.0
    return nns.intermediate_noise_cnn(
        images, labels, convolutions=[convolution], noise=noise, likelihood="multinomial_probit"
    )


def fully_connected(images: np.ndarray, labels: np.ndarray) -> pm.Model:
    """A hidden layer of 12 units."""
    rows = images.reshape(len(images), -1)
    return nns.intermediate_noise_mlp(
        rows, labels, hidden=(12,), noise=2.0, likelihood="multinomial_probit"
    )


NETWORKS = {"convolutional": convolutional, "fully connected": fully_connected}


def shares(votes: np.ndarray) -> np.ndarray:
    """Share of the draws that vote for each digit, shape (images, 10)."""
    return np.stack([np.mean(votes == digit, axis=0) for digit in range(10)], axis=1)


def draw_errors(votes: dict[str, np.ndarray], labels: np.ndarray) -> Figure:
    """Error of each network against sweeps."""
    figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    for color, (name, given) in zip(("C0", "C1"), votes.items(), strict=True):
        sweeps = np.arange(1, len(given) + 1)
        ax.loglog(sweeps, np.mean(given != labels, axis=1), color, lw=0.5, alpha=0.5)
        some = np.unique(np.geomspace(1, len(given), 60).astype(int))
        by_vote = [np.mean(shares(given[n // 2 : n]).argmax(1) != labels) for n in some]
        ax.loglog(some, by_vote, color, label=f"{name}, vote")
    ax.set(xlabel="sweep", ylabel="held out error")
    ax.legend()
    return figure


def draw_kernels(kernels: np.ndarray) -> Figure:
    """Kernels as images."""
    figure, axes = plt.subplots(1, len(kernels), figsize=(5, 2.6), layout="constrained")
    limit = np.abs(kernels).max()
    for number, (ax, kernel) in enumerate(zip(axes, kernels, strict=True), 1):
        drawn = ax.imshow(kernel, cmap="RdBu", vmin=-limit, vmax=limit)
        ax.set(title=f"kernel {number}", xticks=[], yticks=[])
    figure.colorbar(drawn, ax=axes)
    return figure


def draw_hard(images: np.ndarray, labels: np.ndarray, share: np.ndarray) -> Figure:
    """The images whose vote is closest, and the share of each digit."""
    first, second = np.sort(share, axis=1)[:, :-3:-1].T
    hard = np.argsort(first - second)[:6]
    figure, axes = plt.subplots(2, len(hard), figsize=(10, 3.6), layout="constrained")
    for (above, below), image in zip(axes.T, hard, strict=True):
        above.imshow(images[image], cmap="gray_r")
        above.set(title=f"a {labels[image]}", xticks=[], yticks=[])
        below.bar(range(10), share[image])
        below.set(ylim=(0, 1), xticks=range(10))
    axes[1, 0].set_ylabel("share of draws")
    return figure


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="npz file with images and labels")
    parser.add_argument("--sweeps", type=int, default=1000)
    arguments = parser.parse_args()
    if arguments.sweeps < 2:
        parser.error("--sweeps must be 2 or more")
    return arguments


if __name__ == "__main__":
    main()
