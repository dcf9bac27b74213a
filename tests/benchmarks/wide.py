"""Wide networks, 256 of scikit-learn's digits: a proposal beside its matrix products.

The bound is the forward pass and the Cholesky factorisation as bare NumPy and SciPy calls.
blackjax's samplers run on the same log density where it is installed
(``pip install -e ".[benchmarks]"``).
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy import linalg, special
from sklearn.datasets import load_digits

import pymc_nnsteps as nns
from tests.benchmarks.problems import chain
from tests.benchmarks.timing import milliseconds, parts

WIDTHS = (512, 2048, 8192)
N_OBS, SIGMA, WEIGHT_VAR, BIAS_VAR = 256, 0.1, 2.0, 0.01
SIZE = 0.05
STEPS: dict[str, tuple[type, dict[str, float]]] = {
    "PCN": (nns.PCN, {"beta": SIZE}),
    "PCNL": (nns.PCNL, {"beta": SIZE}),
    "MALA": (nns.MALA, {"step_size": SIZE}),
}
PRODUCTS = ("Dot22", "Dot22Scalar", "Dot")

Contenders = dict[str, Callable[[], object]]


def main() -> None:
    for width in WIDTHS:
        report(width)


def report(width: int) -> None:
    X, Y = digits()
    model = nns.wide_mlp(X, Y, hidden=(width,))
    point = model.initial_point(0)

    def make(name: str, **options: Any) -> Any:
        method, size = STEPS[name]
        return method(["W1", "b1"], model=model, **size, **options)

    contenders: Contenders = {name: chain(make(name), point) for name in STEPS}
    contenders |= bare_calls(X, point) | blackjax_steps(X, Y, point)
    calls = max(1, 4096 // width)
    times = milliseconds(contenders, calls=calls, repeats=9)
    bound, products = times.pop("forward pass"), times.pop("products")
    print(
        f"  width {width}: forward pass and factorisation {bound:.2f} ms, "
        f"{products:.2f} ms without the activation"
    )
    for name, value in times.items():
        line = f"    {name:26} {value:7.2f} ms, {value / bound:5.2f} x the bound"
        if name in STEPS:
            profiled = make(name, compile_kwargs={"profile": True})
            shares = parts(profiled._proposal._propose, chain(profiled, point), calls)
            share = sum(shares.get(product, 0.0) for product in PRODUCTS)
            line += f"; matrix products are {share:.0%} of it"
        print(line, flush=True)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Standardised images and shifted one-hot labels."""
    X, labels = load_digits(return_X_y=True)
    X = X[:N_OBS]
    return (X - X.mean()) / X.std(), nns.models.one_hot(labels[:N_OBS], n_classes=10)


def bare_calls(X: np.ndarray, point: dict[str, np.ndarray]) -> Contenders:
    """The forward pass and the Cholesky factorisation, and nothing else."""
    W, ridge = point["W1"], SIGMA**2 * np.eye(len(X))

    def products() -> object:
        g = X @ W.T
        return linalg.cholesky(g @ g.T + ridge, lower=True, check_finite=False)

    def forward_pass() -> object:
        f = X @ W.T
        g = f * special.ndtr(f)
        return linalg.cholesky(g @ g.T + ridge, lower=True, check_finite=False)

    return {"products": products, "forward pass": forward_pass}


def blackjax_steps(X: np.ndarray, Y: np.ndarray, point: dict[str, np.ndarray]) -> Contenders:
    """MALA and elliptical slice sampling by blackjax, compiled by JAX for one thread."""
    if find_spec("blackjax") is None:
        return {}
    import blackjax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    inputs, targets = jnp.asarray(X), jnp.asarray(Y)
    features = X.shape[1]

    def log_likelihood(u: Any) -> Any:
        f = np.sqrt(WEIGHT_VAR / features) * inputs @ u[:, :-1].T + np.sqrt(BIAS_VAR) * u[:, -1]
        g = jax.nn.gelu(f, approximate=False)
        K = g @ g.T / g.shape[1] + BIAS_VAR + SIGMA**2 * jnp.eye(len(X))
        root = jnp.linalg.cholesky(K)
        whitened = jax.scipy.linalg.solve_triangular(root, targets, lower=True)
        log_det = jnp.log(jnp.diagonal(root)).sum()
        return -jnp.sum(whitened**2) / 2 - targets.shape[1] * log_det

    start = jnp.column_stack([point["W1"], point["b1"]])
    zeros, ones = jnp.zeros(start.size), jnp.ones(start.size)
    mala = blackjax.mala(lambda u: log_likelihood(u) - jnp.sum(u**2) / 2, SIZE**2 / 2)
    elliptical = blackjax.elliptical_slice(
        lambda u: log_likelihood(u.reshape(start.shape)), mean=zeros, cov=ones
    )

    def moving(sampler: Any, first: Any) -> Callable[[], object]:
        step, state, key = jax.jit(sampler.step), sampler.init(first), jax.random.key(0)

        def advance() -> None:
            nonlocal state, key
            key, current = jax.random.split(key)
            state, _ = step(current, state)
            jax.block_until_ready(state)

        return advance

    return {
        "blackjax MALA": moving(mala, start),
        "blackjax elliptical slice": moving(elliptical, start.ravel()),
    }


if __name__ == "__main__":
    main()
