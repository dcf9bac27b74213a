"""From import to the first draw and prediction: seconds of CPU, compilers included.

Each builder's default model of the README's data, beside PyMC's own NUTS on a network without
noise, with PyMC's own predictions, and on the same model, where it can draw that. Cold: PyTensor's
and Numba's caches of compiled code are empty. Python's bytecode is there in both cases, as after an
installation by pip.
"""

import compileall
import json
import resource
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

STAGES = ("import", "build", "first draw", "predict", "log_likelihood")
NETWORKS = (
    "NUTS",
    "intermediate_noise_mlp",
    "NUTS intermediate_noise_mlp",
    "bow_tie",
    "hierarchical_mlp",
    "NUTS hierarchical_mlp",
    "wide_mlp",
)


def main() -> None:
    import pymc_nnsteps
    from tests.benchmarks.timing import run_program

    compileall.compile_dir(Path(pymc_nnsteps.__file__).parent, quiet=1)
    print(" " * 36 + "".join(f"{name:>16}" for name in (*STAGES, "total")))
    for network in NETWORKS:
        with tempfile.TemporaryDirectory() as directory:
            caches = {
                "PYTENSOR_FLAGS": f"base_compiledir={Path(directory) / 'pytensor'}",
                "NUMBA_CACHE_DIR": str(Path(directory) / "numba"),
            }
            for name in ("cold", "warm"):
                stages = run_program("start", network, **caches)
                shown = (*stages, sum(stages))
                print(f"{network:30}{name:6}" + "".join(f"{s:15.1f}s" for s in shown), flush=True)


def seconds() -> float:
    """CPU time of this process and of compilers that it has waited for."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage)


def measure(network: str) -> list[float]:
    """Seconds of each stage."""
    times = [seconds()]

    def stage(f: Callable[[], Any]) -> Any:
        result = f()
        times.append(seconds())
        return result

    is_nuts, builder = network.startswith("NUTS"), network.removeprefix("NUTS").strip()
    stage(modules if builder else modules_of_nuts)
    import numpy as np
    import pymc as pm

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5))
    y = np.abs(X[:, 0]) + 0.1 * rng.normal(size=200)
    quiet = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    if not builder:
        model = stage(lambda: plain(X, y))
    else:
        import pymc_nnsteps as nns

        options = {"hidden": (256,)} if builder == "wide_mlp" else {}
        model = stage(lambda: getattr(nns, builder)(X, y, **options))
    if not is_nuts:

        def draw() -> Any:
            with model:
                steps = {"step": [nns.PCNL()]} if builder == "wide_mlp" else {}
                return pm.sample(1, tune=0, chains=1, **steps, **quiet)

        idata = stage(draw)
        stage(lambda: nns.predict(idata, X[:10], model=model))
        stage(lambda: nns.log_likelihood(idata, model=model))
        return [b - a for a, b in pairwise(times)]
    if builder:
        nns.steps.set_auto_assign(False)
    nuts = quiet | {"model": model, "nuts_sampler": "pymc"}
    idata = stage(lambda: pm.sample(1, tune=1, chains=1, **nuts))
    if not builder:

        def predict() -> None:
            with model:
                pm.set_data({"inputs": X[:10]})
                pm.sample_posterior_predictive(idata, predictions=True, progressbar=False)

        stage(predict)
        model.set_data("inputs", X)
        stage(lambda: pm.compute_log_likelihood(idata, model=model, progressbar=False))
    return [b - a for a, b in pairwise(times)]


def modules_of_nuts() -> None:
    import pymc  # noqa: F401


def modules() -> None:
    import pymc_nnsteps  # noqa: F401


def plain(X: Any, y: Any) -> Any:
    """The network of the README without its noise."""
    import pymc as pm

    with pm.Model() as model:
        inputs = pm.Data("inputs", X)
        W1, b1 = pm.Normal("W1", 0, 0.5, shape=(10, 5)), pm.Normal("b1", 0, 1, shape=10)
        W2, b2 = pm.Normal("W2", 0, 0.5, shape=10), pm.Normal("b2", 0, 1)
        hidden = pm.math.maximum(inputs @ W1.T + b1, 0)
        pm.Normal("y", hidden @ W2 + b2, 0.1, observed=y, shape=inputs.shape[0])
    return model


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
