"""What users meet without variables that limit threads, against one thread by variables.

Each builder's network by ``pm.sample`` and ``nns.predict``, in fresh processes. Clock and CPU are
seconds with the variables, and the ratios without them. The processes take turns.
"""

import json
import sys
import time
from statistics import median
from typing import Any

from tests.benchmarks.start import seconds

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
NETWORKS = ("intermediate_noise_mlp", "bow_tie", "hierarchical_mlp", "wide_mlp")
DRAWS = {60: 200, 1000: 100, 14_000: 10}
TURNS = 3


def main() -> None:
    from tests.benchmarks.timing import run_program

    print(f"{'':24}{'rows':>8}{'cores':>6}{'chains':>7}{'clock':>8}{'CPU':>8}{'ratios':>12}")
    for network in NETWORKS:
        for rows in DRAWS:
            for cores, chains in ((1, 2), (2, 2), (2, 4)):
                arguments = network, str(rows), str(cores), str(chains)
                runs: dict[str | None, list[list[float]]] = {"1": [], None: []}
                for _ in range(TURNS):
                    for threads, of_one in runs.items():
                        limited = dict.fromkeys(VARIABLES, threads)
                        of_one.append(run_program("threads", *arguments, **limited))
                limited, free = ([median(x) for x in zip(*r, strict=True)] for r in runs.values())
                ratios = "".join(f"{b / a:6.2f}" for a, b in zip(limited, free, strict=True))
                shown = "".join(f"{x:8.1f}" for x in limited)
                print(f"{network:24}{rows:8}{cores:6}{chains:7}{shown}{ratios}", flush=True)


def measure(network: str, rows: int, cores: int, chains: int) -> list[float]:
    """Seconds by the clock and of CPU."""
    import numpy as np
    import pymc as pm

    import pymc_nnsteps as nns

    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 8))
    y = np.abs(X[:, 0]) + 0.1 * rng.normal(size=rows)
    model = getattr(nns, network)(X, y)
    options: dict[str, Any] = {"step": nns.PCNL(model=model)} if network == "wide_mlp" else {}
    began = time.perf_counter(), seconds()
    with model:
        idata = pm.sample(
            DRAWS[rows],
            tune=DRAWS[rows],
            chains=chains,
            cores=cores,
            var_names=nns.without_latents(),
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
            **options,
        )
    nns.predict(idata, X, model=model)
    return [time.perf_counter() - began[0], seconds() - began[1]]


if __name__ == "__main__":
    name, *figures = sys.argv[1:]
    print(json.dumps(measure(name, *map(int, figures))))
