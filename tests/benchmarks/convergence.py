"""Plain `pm.sample` of each kind of network, judged by PyMC's check and by `diagnose`.

Four chains of 1000 draws after 1000. Of each model and seed: the largest R-hat of all free
variables, effective draws of the slowest and function values per second of CPU (tuning included),
PyMC's warnings, and the verdict. Names of models on the command line, and a number of seeds; all
models and three seeds if left out.
"""

import os
import sys
from collections.abc import Callable

import arviz as az
import numpy as np
import pymc as pm
from pymc.stats.convergence import run_convergence_checks
from sklearn import datasets

import pymc_nnsteps as nns
from tests.benchmarks import likelihoods
from tests.benchmarks.problems import SHARED

SEEDS = 3
QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}


def standardised(values: np.ndarray) -> np.ndarray:
    return (values - values.mean(axis=0)) / values.std(axis=0)


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised inputs and targets; class labels as they are."""
    if name in ("yacht", "concrete"):
        rows = np.loadtxt(SHARED / "data" / f"{name}.csv", delimiter=",", skiprows=1)
        rows = np.random.default_rng(0).permutation(rows)[:200] if name == "concrete" else rows
        return standardised(rows[:, :-1]), standardised(rows[:, -1])
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return standardised(X), standardised(y) if name == "diabetes" else y


def hierarchical(name: str, hidden: tuple[int, ...] = (8,)) -> pm.Model:
    likelihood = "categorical" if name in ("iris", "wine") else "normal"
    return nns.hierarchical_mlp(*table(name), hidden=hidden, likelihood=likelihood)


def counts() -> pm.Model:
    with pm.Model() as model:
        likelihoods.negative_binomial()
    return model


def mixed() -> pm.Model:
    """A network with noise beside a random intercept."""
    _, x, group, f = likelihoods.simulated()
    rng = np.random.default_rng(1)
    y = f + 0.5 * rng.normal(size=likelihoods.GROUPS)[group] + 0.3 * rng.normal(size=len(x))
    with pm.Model() as model:
        eta = likelihoods.effects(group) + nns.blocks.intermediate_noise(x, hidden=(6,))
        pm.Normal("y", eta, pm.HalfNormal("sigma"), observed=y)
    return model


MODELS: dict[str, Callable[[], pm.Model]] = {
    **{f"hierarchical_{n}": lambda n=n: hierarchical(n) for n in ("diabetes", "yacht", "concrete")},
    **{f"hierarchical_{n}": lambda n=n: hierarchical(n) for n in ("iris", "wine")},
    "deep_diabetes": lambda: hierarchical("diabetes", (16, 16, 16)),
    "noise_diabetes": lambda: nns.intermediate_noise_mlp(*table("diabetes"), hidden=(8,)),
    "bow_tie_diabetes": lambda: nns.bow_tie(*table("diabetes"), hidden=(8,)),
    "counts": counts,
    "mixed": mixed,
}


def run(name: str, seed: int) -> None:
    model = MODELS[name]()
    began = os.times()
    with model:
        idata = pm.sample(1000, tune=1000, chains=4, random_seed=seed, **QUIET)
    ended = os.times()
    cpu = ended.user + ended.children_user - began.user - began.children_user
    posterior = idata["posterior"].to_dataset()
    stored = [n for n in nns.without_latents(model) if n in posterior]
    rhat, ess = (function(posterior[stored]) for function in (az.rhat, az.ess))
    worst = max(stored, key=lambda n: float(rhat[n].max()))
    slowest = min(stored, key=lambda n: float(ess[n].min()))
    inputs = model["inputs"].get_value()[:50] if "inputs" in model.named_vars else None
    if inputs is None:
        of_f, verdict = az.ess(posterior["f"]).values, ""
    else:
        diagnosis = nns.diagnose(idata, inputs, model=model)
        of_f = diagnosis.dataset["f"].sel(statistic="ess_bulk").values
        verdict = diagnosis.verdict
    warnings = [str(each.kind.name) for each in run_convergence_checks(idata, model)]
    print(
        f"  {name}, seed {seed}: {cpu:.0f} s; R-hat {float(rhat[worst].max()):.3f} ({worst}); per "
        f"second {float(ess[slowest].min()) / cpu:.2f} of {slowest}, {np.median(of_f) / cpu:.1f} "
        f"function values ({of_f.min() / cpu:.1f} of the least); PyMC warns of "
        f"{', '.join(warnings) or 'nothing'}. {verdict}",
        flush=True,
    )


def main() -> None:
    names = [argument for argument in sys.argv[1:] if argument in MODELS]
    seeds = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    for name in names or MODELS:
        for seed in range(1, 1 + next(iter(seeds), SEEDS)):
            run(name, seed)


if __name__ == "__main__":
    main()
