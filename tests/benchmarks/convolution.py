"""Images: a sweep of the paper's convolutional network, and of two convolutions in a row.

MNIST, 10 000 images, a convolution of two channels 4 x 4 with stride 2, 2 x 2 average pooling and a
dense layer; then 2 000 images with convolutions of 8 and 16 channels 3 x 3, each pooled. And the
paper's two networks on 8 000 images: errors on the other 2 000.
"""

import json
import resource
import sys

import numpy as np

import pymc_nnsteps as nns
from tests.benchmarks.problems import chain, image_error, mnist
from tests.benchmarks.timing import milliseconds, parts, run_program

NETWORKS = {
    "paper": (10_000, [nns.models.Conv2D(2, 4, stride=2, pool=2)]),
    "two": (2_000, [nns.models.Conv2D(8, 3, pool=2), nns.models.Conv2D(16, 3, pool=2)]),
}


def main() -> None:
    if mnist() is None:
        print("  The MNIST images are not there: skipped.")
        return
    for name, precision in (("paper", "float64"), ("paper", "float32"), ("two", "float64")):
        found = run_program("convolution", name, PYTENSOR_FLAGS=f"floatX={precision}")
        n_images, convolutions = NETWORKS[name]
        channels = " and ".join(str(layer.channels) for layer in convolutions)
        print(
            f"  {n_images} images, {channels} channels, {precision}: {found['sweep']:.0f} ms per "
            f"sweep, peak memory {found['memory']:.1f} GB"
        )
        for part, value in found["parts"].items():
            print(f"    {value:6.1%}  {part}")
    for network in ("convolution", "dense"):
        found = run_program("convolution", network, PYTENSOR_FLAGS="floatX=float32")
        errors = ", ".join(f"{error:.1%} at {sweep}" for sweep, error in found.items())
        print(f"  8 000 images, {network} network, float32: test error {errors} sweeps")


def measure(name: str) -> dict[str, object]:
    data = mnist()
    assert data is not None
    X, y = data
    n_images, convolutions = NETWORKS[name]
    images, labels = X[:n_images].reshape(-1, 28, 28), y[:n_images]
    model = nns.intermediate_noise_cnn(
        images,
        labels,
        convolutions=convolutions,
        noise=100.0,
        likelihood="multinomial_probit",
    )
    with model:
        step = nns.Gibbs(compile_kwargs={"profile": True})
    advance = chain(step, model.initial_point())
    times = milliseconds({"sweep": advance}, calls=1, repeats=9)
    return {
        **times,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "parts": parts(step._sweep.compiled, advance, calls=5),
    }


def errors(network: str) -> dict[int, float]:
    """Test errors by sweep, from zero weights."""
    data = mnist()
    assert data is not None
    X, y = data
    if network == "dense":
        model = nns.intermediate_noise_mlp(
            X[:8000], y[:8000], hidden=(12,), noise=2.0, likelihood="multinomial_probit"
        )
    else:
        model = nns.intermediate_noise_cnn(
            X[:8000].reshape(-1, 28, 28),
            y[:8000],
            convolutions=NETWORKS["paper"][1],
            noise=100.0,
            likelihood="multinomial_probit",
        )
    point, found = model.initial_point(), {}
    with model:
        step = nns.Gibbs(sweeps=100, interweave=False)
    step.setup_chain(np.random.default_rng(0), 0, 0)
    for sweep in range(100, 1001, 100):
        point, _ = step.step(point)
        found[sweep] = image_error(point, X[8000:], y[8000:])
    return found


if __name__ == "__main__":
    [name] = sys.argv[1:]
    print(json.dumps(measure(name) if name in NETWORKS else errors(name)))
