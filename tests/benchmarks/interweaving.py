"""Interwoven Gibbs beside plain Gibbs, PyMC's NUTS and nutpie: ESS of function values.

ESS is the median over 50 new inputs, of two chains and medians over three data sets, per second of
CPU time, tuning included, compilation left out and included. NUTS samples the classical posterior,
without latent variables, of the same data and output noise. Synthetic data have a teacher, from
which chains start where the noise is too little for chains from zero to meet. nutpie is left out
where it is not installed (``pip install -e ".[benchmarks]"``).
"""

import importlib.util
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
from sklearn.datasets import load_diabetes

import pymc_nnsteps as nns
from tests.benchmarks.problems import teacher_data

N_DATA_SETS = 3
QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}


@dataclass(frozen=True)
class Problem:
    """Data and noise, and perhaps the weights from which chains start."""

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    hidden: int
    noise: float
    start: dict[str, np.ndarray] | None

    def model(self, *, latent: bool) -> pm.Model:
        noise = self.noise if latent else {"pre": 0, "post": 0, "output": self.noise}
        return nns.intermediate_noise_mlp(self.X, self.y, hidden=(self.hidden,), noise=noise)


def synthetic(n_obs: int, d: int, hidden: int, noise: float, *, informed: bool) -> Any:
    def problem(seed: int) -> Problem:
        X, y, state = teacher_data(seed, n_obs=n_obs, n_features=d, hidden=hidden, noise=noise)
        X_new = np.random.default_rng(1000 + seed).standard_normal((50, d))
        return Problem(X, y, X_new, hidden, noise, state if informed else None)

    return problem


def diabetes(seed: int) -> Problem:
    X, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    X, y = (v[order] for v in ((X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()))
    return Problem(X[50:], y[50:], X[:50], 10, 0.3, None)


@dataclass(frozen=True)
class Setting:
    """How problems are made, and the draws of each sampler after half as many of tuning."""

    problem: Callable[[int], Problem]
    draws: dict[str, int]


SETTINGS = {
    "n =  500, 20-5-1, 1e-2": Setting(
        synthetic(500, 20, 5, 1e-2, informed=False),
        {"plain": 20_000, "interwoven": 4_000, "NUTS": 1_000, "nutpie": 1_000},
    ),
    "n = 2084, 50-10-1, 1e-3": Setting(
        synthetic(2084, 50, 10, 1e-3, informed=True),
        {"plain": 10_000, "interwoven": 2_000, "NUTS": 100, "nutpie": 300},
    ),
    "n = 2084, 50-10-1, 1e-4": Setting(
        synthetic(2084, 50, 10, 1e-4, informed=True),
        {"plain": 10_000, "interwoven": 2_000, "NUTS": 100, "nutpie": 300},
    ),
    "diabetes, 10-10-1, 0.3": Setting(
        diabetes, {"plain": 10_000, "interwoven": 4_000, "NUTS": 1_000, "nutpie": 1_000}
    ),
}


@dataclass(frozen=True)
class Run:
    """What a sampler did: ESS, R-hat, and CPU seconds of compiling and of sampling."""

    ess: float
    rhat: float
    compiling: float
    sampling: float


def main() -> None:
    samplers = ["plain", "interwoven", "NUTS"]
    if importlib.util.find_spec("nutpie") is None:
        print("  nutpie is not installed and left out.")
    else:
        samplers.append("nutpie")
    for name, setting in SETTINGS.items():
        print(f"  {name}")
        problems = [setting.problem(seed) for seed in range(N_DATA_SETS)]
        runs = {s: [run(s, p, setting.draws[s]) for p in problems] for s in samplers}
        for sampler, its in runs.items():
            print(
                f"    {sampler:11}"
                f"{median(r.ess / r.sampling for r in its):8.2f} per second,"
                f"{median(r.ess / (r.sampling + r.compiling) for r in its):8.2f} with compilation; "
                f"ESS {', '.join(f'{r.ess:.0f}' for r in its)} of {2 * setting.draws[sampler]}, "
                f"R-hat {', '.join(f'{r.rhat:.2f}' for r in its)}",
                flush=True,
            )
        for other in samplers[:1] + samplers[2:]:
            ratios = [
                (a.ess / a.sampling) / (b.ess / b.sampling)
                for a, b in zip(runs["interwoven"], runs[other], strict=True)
            ]
            print(f"    interwoven / {other}: {median(ratios):.1f} x")


def run(sampler: str, problem: Problem, draws: int) -> Run:
    model = problem.model(latent=sampler in ("plain", "interwoven"))
    begin = time.process_time()
    sample = SAMPLERS[sampler](model, problem, draws)
    compiled = time.process_time()
    with warnings.catch_warnings(action="ignore"):
        idata = sample()
    sampled = time.process_time()
    values = nns.predict(idata, problem.X_new, model=model).to_dataset()
    ess, rhat = (float(f(values)["f"].median()) for f in (az.ess, az.rhat))
    return Run(ess, rhat, compiled - begin, sampled - compiled)


def start_of(model: pm.Model, problem: Problem) -> dict[str, np.ndarray] | None:
    if problem.start is None:
        return None
    return {rv.name: problem.start[rv.name] for rv in model.free_RVs}


def gibbs(interweave: bool) -> Any:
    def prepare(model: pm.Model, problem: Problem, draws: int) -> Any:
        step = nns.Gibbs(model=model, interweave=interweave)
        return lambda: pm.sample(
            draws,
            tune=draws // 2,
            chains=2,
            cores=1,
            step=step,
            model=model,
            initvals=start_of(model, problem),
            var_names=[v.name for v in model.free_RVs if v.name[0] in "Wb"],
            random_seed=1,
            **QUIET,
        )

    return prepare


def nuts(model: pm.Model, problem: Problem, draws: int) -> Any:
    start = start_of(model, problem)
    init = "jitter+adapt_diag" if start is None else "adapt_diag"
    points, step = pm.init_nuts(
        init=init, chains=2, initvals=start, random_seed=1, model=model, progressbar=False
    )
    return lambda: pm.sample(
        draws,
        tune=max(draws // 2, 200),
        chains=2,
        cores=1,
        step=step,
        model=model,
        initvals=points,
        random_seed=1,
        **QUIET,
    )


def nutpie_nuts(model: pm.Model, problem: Problem, draws: int) -> Any:
    import nutpie

    start = start_of(model, problem)
    compiled = nutpie.compile_pymc_model(
        model,
        backend="numba",
        **({} if start is None else {"initial_points": start, "jitter_rvs": set()}),
    )
    return lambda: nutpie.sample(
        compiled,
        draws=draws,
        tune=max(draws // 2, 200),
        chains=2,
        cores=1,
        seed=1,
        progress_bar=False,
    )


SAMPLERS = {
    "plain": gibbs(False),
    "interwoven": gibbs(True),
    "NUTS": nuts,
    "nutpie": nutpie_nuts,
}
