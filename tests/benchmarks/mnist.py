"""MNIST, 10 000 images, 784-12-10 multinomial probit: a sweep, and where its time goes.

The bound is 1.3 times the sweep's matrix products as bare NumPy calls in the same precision,
plus 25 ns for each latent variable.
"""

import json
from collections.abc import Callable

import numpy as np
import pytensor

import pymc_nnsteps as nns
from tests.benchmarks.problems import chain, mnist
from tests.benchmarks.timing import milliseconds, parts, run_program

HIDDEN, CLASSES = 12, 10


def main() -> None:
    if mnist() is None:
        print("  The MNIST images are not there: skipped.")
        return
    for precision in ("float64", "float32"):
        found = run_program("mnist", PYTENSOR_FLAGS=f"floatX={precision}")
        print(
            f"  {precision}: {found['sweep']:.1f} ms per sweep, "
            f"{found['sweep'] / found['bound']:.2f} of the bound {found['bound']:.1f} ms "
            f"(matrix products {found['products']:.1f} ms)"
        )
        for name, value in found["parts"].items():
            print(f"    {value:6.1%}  {name}")


def measure() -> dict[str, object]:
    data = mnist()
    assert data is not None
    X, y = data
    model = nns.intermediate_noise_mlp(
        X, y, hidden=(HIDDEN,), noise=2.0, likelihood="multinomial_probit"
    )
    with model:
        step, profiled = nns.Gibbs(), nns.Gibbs(compile_kwargs={"profile": True})
    point = model.initial_point()
    contenders = {"sweep": chain(step, point), "products": products(X)}
    times = milliseconds(contenders, calls=5, repeats=15)
    n_latent = len(X) * (2 * HIDDEN + CLASSES)
    bound = 1.3 * (times["products"] + 25e-6 * n_latent)
    return {
        **times,
        "bound": bound,
        "parts": parts(profiled._sweep.compiled, chain(profiled, point)),
    }


def products(X: np.ndarray) -> Callable[[], None]:
    """The matrix products of a sweep."""
    rng, n = np.random.default_rng(0), len(X)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(pytensor.config.floatX)

    x1 = np.column_stack([X, np.ones(n)]).astype(pytensor.config.floatX)
    x2, z2, z3 = normal(n, HIDDEN + 1), normal(n, HIDDEN), normal(n, CLASSES)
    w1, w2 = normal(HIDDEN, x1.shape[1]), normal(CLASSES, HIDDEN + 1)
    factor = normal(HIDDEN, HIDDEN)

    def run() -> None:
        x1.T @ z2  # W1: linear term
        x1 @ w1.T  # Z2: mean
        z3 @ w2[:, :-1] @ factor.T @ factor  # X2: linear term, and two triangular products
        x2.T @ x2, x2.T @ z3  # W2: Gram matrix and linear term
        x2 @ w2.T  # Z3: mean

    return run


if __name__ == "__main__":
    print(json.dumps(measure()))
