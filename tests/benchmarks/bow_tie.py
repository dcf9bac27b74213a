"""Bow-tie networks: time of a sweep with and without joint moves, ESS, and peak memory.

The problem with 270 observations is the simulated one of Sheinkman and Wade (Section 4.1). ESS is
that of function values at 30 points, the median, of two chains from starts of their own.
"""

import json
import sys
import time

import arviz as az
import numpy as np
import pymc as pm

import pymc_nnsteps as nns
from tests.benchmarks.memory import peak_memory
from tests.benchmarks.problems import chain
from tests.benchmarks.timing import milliseconds, run_program

SETTINGS = {
    "N =  927, 8-50-1": (927, 8, (50,)),
    "N =  270, 2-20-1": (270, 2, (20,)),
    "N =  270, 2-20-20-1": (270, 2, (20, 20)),
}
DRAWS = 2_000


def problem(n_obs: int, n_features: int, hidden: tuple[int, ...]) -> pm.Model:
    rng = np.random.default_rng(36)
    X = rng.uniform(-2, 2, size=(n_obs, n_features))
    y = 0.1 * X[:, 0] ** 2 + 10 * np.sin(X[:, 0]) + 0.5 * rng.standard_normal(n_obs)
    return nns.bow_tie(X, y, hidden=hidden)


def main() -> None:
    for n_obs, units, n_layers in [(20_000, 100, 1), (10_000, 100, 2)]:
        before, after = run_program("bow_tie", str(n_obs), str(units), str(n_layers))
        array = 8 * n_obs * units**2 / 2**20
        print(
            f"  N = {n_obs}, {n_layers} x {units} units: {after - before:.0f} MB for the sweep; an "
            f"array of N x D x D would be {array:.0f} MB"
        )
    for name, setting in SETTINGS.items():
        model = problem(*setting)
        start = model.initial_point(0)
        steps = {
            label: nns.Gibbs(model=model, interweave=interweave)
            for label, interweave in {"plain": False, "interwoven": True}.items()
        }
        times = milliseconds(
            {label: chain(step, start) for label, step in steps.items()}, calls=20, repeats=9
        )
        for label, step in steps.items():
            effective, seconds = effective_size(model, step)
            print(
                f"  {name:20} {label:10} {times[label]:6.2f} ms per sweep, ESS {effective:5.0f} of "
                f"{2 * DRAWS}, {effective / seconds:5.1f} per second"
            )


def effective_size(model: pm.Model, step: nns.Gibbs) -> tuple[float, float]:
    """ESS of function values, and the CPU seconds it took."""
    X = np.random.default_rng(0).uniform(-2, 2, size=(30, model["inputs"].get_value().shape[1]))
    kept = [v.name for v in model.free_RVs if not v.name.startswith(("gamma", "a"))]
    start = time.process_time()
    idata = pm.sample(
        DRAWS,
        tune=DRAWS // 2,
        chains=2,
        cores=1,
        step=step,
        model=model,
        var_names=kept,
        random_seed=1,
        progressbar=False,
        quiet=True,
        compute_convergence_checks=False,
    )
    seconds = time.process_time() - start
    values = nns.predict(idata, X, model=model)
    return float(az.ess(values.to_dataset())["f"].median()), seconds


def memory_of_a_sweep(n_obs: int, units: int, n_layers: int) -> tuple[float, float]:
    """Peak memory in MB before and after compiling and making a few sweeps."""
    model = problem(n_obs, 3, (units,) * n_layers)
    point = model.initial_point(0)
    before = peak_memory()
    step = nns.Gibbs(model=model, initial_point=point)
    for _ in range(2):
        point, _ = step.step(point)
    return before, peak_memory()


if __name__ == "__main__":
    print(json.dumps(memory_of_a_sweep(*map(int, sys.argv[1:]))))
