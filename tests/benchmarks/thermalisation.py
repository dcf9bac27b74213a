"""Thermalisation from zero weights in the paper's setting: interwoven beside plain Gibbs.

Sweeps and CPU seconds until the noise-free test error is within 1.5 times that of a chain from the
teacher (its mean over 400 sweeps), and the error at the end where it never is.
"""

import time
from typing import Any

import numpy as np

import pymc_nnsteps as nns
from tests.benchmarks.problems import teacher

NOISES = (1e-3, 1e-4)
N_TEACHERS = 3
SECONDS = {"plain": 150.0, "interwoven": 40.0}
BLOCK = 0.1
"""Share of the sweeps so far whose mean error is compared, so that luck does not decide."""


def main() -> None:
    for noise in NOISES:
        for seed in range(N_TEACHERS):
            model, state = teacher(seed, noise=noise)
            X = np.random.default_rng(1000 + seed).standard_normal((1000, 50))
            level = 1.5 * informed_error(model, state, X)
            print(f"  Delta = {noise:.0e}, teacher {seed}: until {level:.2e}")
            for name, interweave in {"plain": False, "interwoven": True}.items():
                step = nns.Gibbs(model=model, interweave=interweave)
                print(f"    {name:11}{thermalise(step, model, state, X, level, SECONDS[name])}")


def informed_error(model: Any, state: dict[str, np.ndarray], X: np.ndarray) -> float:
    step = nns.Gibbs(model=model, interweave=True)
    step.setup_chain(np.random.default_rng(1), 200, 0)
    point, errors = state, []
    for _ in range(600):
        point, _ = step.step(point)
        errors.append(error_of(point, state, X))
    return float(np.mean(errors[200:]))


def thermalise(
    step: nns.Gibbs, model: Any, state: Any, X: np.ndarray, level: float, seconds: float
) -> str:
    step.setup_chain(np.random.default_rng(2), 800, 0)
    point, errors, used = model.initial_point(), [], 0.0
    while used < seconds:
        start = time.process_time()
        point, _ = step.step(point)
        used += time.process_time() - start
        errors.append(error_of(point, state, X))
        block = errors[-max(10, int(BLOCK * len(errors))) :]
        if np.mean(block) < level:
            return f"{len(errors)} sweeps, {used:.1f} s"
    return f"not in {len(errors)} sweeps, {used:.0f} s; error {np.mean(block):.2e}"


def error_of(point: Any, state: Any, X: np.ndarray) -> float:
    values = (
        np.maximum(X @ p["W1"].T + p["b1"], 0) @ p["W2"][0] + p["b2"][0] for p in (point, state)
    )
    return float(np.mean((next(values) - next(values)) ** 2))


if __name__ == "__main__":
    main()
