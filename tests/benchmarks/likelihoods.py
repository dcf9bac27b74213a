"""Functional networks behind other likelihoods: HMC beside Gibbs, PyMC's NUTS, and nutpie.

Of each model and sampler: effective draws per second of CPU time (tuning included, compilation
not), and R-hat: of the network's values in all rows the median (and the worst), of others the
worst. Arguments: names of models, then of samplers, all if left out.
"""

import sys
import time
import warnings

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_nnsteps as nns

ROWS, GROUPS = 400, 20
DRAWS, TUNE = 400, 400
QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}


def simulated(seed: int = 0):
    """Inputs, groups, and a function of the inputs."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 3))
    return rng, x, rng.integers(GROUPS, size=ROWS), np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]


def effects(group):
    """A random intercept."""
    a = pm.Normal("a", 0, tau=pm.Gamma("tau", 2, 1), shape=GROUPS)
    return a[group]


def network(x, outputs=None):
    return nns.blocks.hierarchical(x, hidden=(6,), outputs=outputs)


def poisson():
    rng, x, group, f = simulated()
    y = rng.poisson(np.exp(0.5 + f + 0.4 * rng.normal(size=GROUPS)[group]))
    pm.Poisson("y", pt.exp(effects(group) + network(x)), observed=y)


def negative_binomial():
    rng, x, group, f = simulated()
    mu = np.exp(1 + f + 0.4 * rng.normal(size=GROUPS)[group])
    y = rng.negative_binomial(2, 2 / (2 + mu))
    eta = effects(group) + network(x)
    pm.NegativeBinomial("y", pt.exp(eta), pm.HalfNormal("alpha", 3), observed=y)


def student_t():
    rng, x, _, f = simulated()
    y = f + 0.3 * rng.standard_t(3, size=ROWS)
    sigma = pm.HalfNormal("sigma", 1)
    pm.StudentT("y", pm.Gamma("nu", 2, 0.1), network(x), sigma=sigma, observed=y)


def varying_noise():
    rng, x, _, f = simulated()
    y = f + np.exp(-1 + 0.7 * x[:, 2]) * rng.normal(size=ROWS)
    f = network(x, outputs=2)
    pm.Normal("y", f[:, 0], pt.exp(f[:, 1]), observed=y)


def categorical():
    rng, x, _, f = simulated()
    logits = np.stack([2 * f, 2 * x[:, 2], np.zeros(ROWS)], axis=1) + rng.gumbel(size=(ROWS, 3))
    pm.Categorical("y", logit_p=network(x, outputs=3), observed=logits.argmax(axis=1))


def fixed_scales():
    """Weights of known widths under an unknown noise: nothing for Gibbs but the noise."""
    rng, x, _, f = simulated()
    W, b = pm.Normal("W", 0, 1, shape=(3, 6)), pm.Normal("b", 0, 1, shape=6)
    v, c = pm.Normal("v", 0, 1, shape=6), pm.Normal("c", 0, 1)
    g = pm.Deterministic("f", pt.tanh(x @ W + b) @ v + c)
    pm.Normal("y", g, pm.HalfNormal("sigma"), observed=f + 0.3 * rng.normal(size=ROWS))


MODELS = [poisson, negative_binomial, student_t, varying_noise, categorical, fixed_scales]


def by_pymc(**options):
    """Draws and the CPU time from the first to the last, those of tuning too."""
    times = []

    def note(**_):
        times.append(time.process_time())

    idata = pm.sample(
        DRAWS, tune=TUNE, chains=2, cores=1, random_seed=1, callback=note, **options, **QUIET
    )
    return idata, times[-1] - times[0]


def by_nuts_alone():
    nns.steps.set_auto_assign(False)
    try:
        return by_pymc(target_accept=0.9)
    finally:
        nns.steps.set_auto_assign(True)


def by_nutpie():
    import nutpie

    compiled = nutpie.compile_pymc_model(pm.modelcontext(None))
    began = time.process_time()
    options = {"chains": 2, "cores": 1, "seed": 1, "progress_bar": False, "target_accept": 0.9}
    idata = nutpie.sample(compiled, draws=DRAWS, tune=TUNE, **options)
    return idata, time.process_time() - began


SAMPLERS = {
    "default": by_pymc,
    "gibbs_and_nuts": lambda: by_pymc(nuts={"target_accept": 0.9}),
    "nuts": by_nuts_alone,
    "nutpie": by_nutpie,
}


def run(build, name: str) -> None:
    with pm.Model() as model:
        build()
    if name == "default":
        print("\n".join(f"    {row}" for row in nns.explain(model).beside), flush=True)
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        idata, cpu = SAMPLERS[name]()
    posterior, stats = idata["posterior"], idata["sample_stats"]
    if "f" not in posterior:
        raise ValueError("the network's values are missing")
    ess, rhat = az.ess(posterior["f"]).values, az.rhat(posterior["f"]).values
    told = [
        f"f {np.median(ess) / cpu:.2f} ({np.min(ess) / cpu:.2f}) "
        f"R-hat {np.median(rhat):.3f} ({np.max(rhat):.2f})"
    ]
    for rv in model.free_RVs:
        if rv.name.removeprefix("f::")[0] not in "WbvVc":
            x = posterior[rv.name]
            worst = np.min(az.ess(x).values) / cpu
            told.append(f"{rv.name} {worst:.2f} {np.max(az.rhat(x).values):.2f}")
    diverging = float(np.mean(stats["diverging"])) if "diverging" in stats else np.nan
    steps = float(np.mean(stats["n_leapfrog"])) if "n_leapfrog" in stats else np.nan
    print(
        f"{build.__name__:18s} {name:14s} {cpu:6.1f} s, diverging {diverging:.3f}, steps "
        f"{steps:.0f}: " + "; ".join(told),
        flush=True,
    )


def main() -> None:
    chosen = [build for build in MODELS if build.__name__ in sys.argv[1:]] or MODELS
    samplers = [name for name in SAMPLERS if name in sys.argv[1:]] or list(SAMPLERS)
    for build in chosen:
        for name in samplers:
            run(build, name)


if __name__ == "__main__":
    main()
