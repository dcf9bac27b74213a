"""Effects of groups beside a network: R-hat and ESS of what is identified, by plain pm.sample.

With scales moved along rays and without, and by nutpie on the same model without hidden noise.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product

import arviz as az
import numpy as np
import pymc as pm
from pytensor.tensor.variable import TensorVariable

import pymc_nnsteps as nns

QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
GROUPS, ROWS, UNITS = 11, 220, 5


def network(x: np.ndarray, noise: bool) -> TensorVariable:
    if noise:
        return nns.blocks.intermediate_noise(x, hidden=(UNITS,))
    w = pm.Normal("w", 0, x.shape[1] ** -0.5, shape=(x.shape[1], UNITS))
    z = x @ w + pm.Normal("b", 0, 1, shape=UNITS)
    v = pm.Normal("v", 0, UNITS**-0.5, shape=UNITS)
    return pm.math.maximum(z, 0) @ v + pm.Normal("c", 0, 1)


def intercepts(x: np.ndarray, group: np.ndarray, other: np.ndarray) -> TensorVariable:
    return pm.Normal("a", 0, tau=pm.Gamma("tau", 2, 1), shape=GROUPS)[group]


def crossed(x: np.ndarray, group: np.ndarray, other: np.ndarray) -> TensorVariable:
    d = pm.Normal("d", 0, pm.HalfNormal("s", 1), shape=5)
    return intercepts(x, group, other) + d[other]


def slopes(x: np.ndarray, group: np.ndarray, other: np.ndarray) -> TensorVariable:
    d = pm.Normal("d", 0, pm.HalfNormal("s", 1), shape=GROUPS)
    return intercepts(x, group, other) + d[group] * x[:, 1]


def centred(x: np.ndarray, group: np.ndarray, other: np.ndarray) -> TensorVariable:
    raw = pm.Normal("raw", 0, pm.HalfNormal("s", 1), shape=GROUPS)
    d = pm.Deterministic("d", raw - raw.mean())
    return intercepts(x, group, other) + d[group] * x[:, 1]


MODELS = {"intercepts": intercepts, "crossed": crossed, "slopes": slopes, "centred": centred}
Effects = Callable[[np.ndarray, np.ndarray, np.ndarray], TensorVariable]


def model_of(effects: Effects, seed: int, noise: bool = True) -> pm.Model:
    rng = np.random.default_rng(seed)
    x, group = rng.normal(size=(ROWS, 2)), rng.integers(GROUPS, size=ROWS)
    other = rng.integers(5, size=ROWS)
    effect = 0.4 * rng.normal(size=GROUPS)[group]
    if effects is crossed:
        effect += 0.3 * rng.normal(size=5)[other]
    if effects in (slopes, centred):
        effect += 0.3 * rng.normal(size=GROUPS)[group] * x[:, 1]
    y = effect + 0.5 * np.abs(x[:, 0]) - 0.3 * x[:, 1] + 0.1 * rng.normal(size=ROWS)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        mean = effects(x, group, other) + network(x, noise)
        pm.Normal("y", pm.Deterministic("mean", mean), sigma, observed=y)
    return model


def counts_of(seed: int, noise: bool = True) -> pm.Model:
    """Poisson counts, whose network has no hidden noise for either sampler."""
    rng = np.random.default_rng(seed)
    x, group = rng.normal(size=(400, 2)), rng.integers(GROUPS, size=400)
    effect = 0.4 * rng.normal(size=GROUPS)[group]
    y = rng.poisson(np.exp(1 + effect + 0.5 * np.abs(x[:, 0]) - 0.3 * x[:, 1]))
    with pm.Model() as model:
        f = nns.blocks.hierarchical(pm.Data("inputs", x), hidden=(6,))
        mean = pm.Deterministic("mean", pm.math.exp(intercepts(x, group, group) + f))
        pm.Poisson("y", mean, observed=y, shape=group.shape)
    return model


def main(draws: int = 1500, seeds: int = 3) -> None:
    print("model       seed  sampler   variable  R-hat  ESS median  ESS least  per CPU second")
    measured = {name: partial(model_of, effects) for name, effects in MODELS.items()}
    for (name, build), seed in product({**measured, "counts": counts_of}.items(), range(seeds)):
        for sampler in ("rays", "nutpie") if name == "counts" else ("no rays", "rays", "nutpie"):
            model = build(seed, noise=sampler != "nutpie")
            options = {"nuts_sampler": "nutpie"} if sampler == "nutpie" else {}
            with model:
                if sampler == "no rays":
                    options["step"] = nns.Gibbs(rays=False)
                start = time.process_time()
                idata = pm.sample(
                    draws, tune=draws // 2, chains=2, cores=1, random_seed=seed, **options, **QUIET
                )
                seconds = time.process_time() - start
            for variable in ("a", "tau", "d", "s", "mean", "sigma"):
                if variable not in model.named_vars:
                    continue
                rhat = np.max(az.rhat(idata, var_names=[variable])[variable].values)
                ess = az.ess(idata, var_names=[variable])[variable].values
                print(
                    f"{name:11s} {seed:4d}  {sampler:8s}  {variable:8s} {rhat:6.3f}"
                    f" {np.median(ess):11.0f} {np.min(ess):10.0f}"
                    f" {np.median(ess) / seconds:15.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
