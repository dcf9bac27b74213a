"""A random intercept beside a network: R-hat and ESS of what is identified, by plain pm.sample."""

import time

import arviz as az
import numpy as np
import pymc as pm

import pymc_nnsteps as nns

QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
GROUPS, ROWS = 11, 220


def model_of(seed: int) -> pm.Model:
    rng = np.random.default_rng(seed)
    x, group = rng.normal(size=(ROWS, 2)), rng.integers(GROUPS, size=ROWS)
    effect = 0.4 * rng.normal(size=GROUPS)[group]
    y = effect + 0.5 * np.abs(x[:, 0]) - 0.3 * x[:, 1] + 0.1 * rng.normal(size=ROWS)
    with pm.Model() as model:
        tau = pm.Gamma("tau", 2, 1)
        a = pm.Normal("a", 0, tau=tau, shape=GROUPS)
        f = nns.blocks.intermediate_noise(x, hidden=(5,))
        sigma = pm.HalfNormal("sigma", 1)
        mean = pm.Deterministic("mean", a[group] + f)
        pm.Normal("y", mean, sigma, observed=y)
    return model


def main(draws: int = 1500) -> None:
    print("seed  variable  R-hat  ESS median  ESS least  ESS per CPU second")
    for seed in range(3):
        with model_of(seed):
            start = time.process_time()
            idata = pm.sample(draws, tune=draws // 2, cores=1, random_seed=seed, **QUIET)
            seconds = time.process_time() - start
        for name in ("a", "mean", "sigma", "tau"):
            rhat = np.max(az.rhat(idata, var_names=[name])[name].values)
            ess = az.ess(idata, var_names=[name])[name].values
            middle = np.median(ess)
            print(
                f"{seed:4d}  {name:8s} {rhat:6.3f} {middle:11.0f} {np.min(ess):10.0f} "
                f"{middle / seconds:19.1f}"
            )


if __name__ == "__main__":
    main()
