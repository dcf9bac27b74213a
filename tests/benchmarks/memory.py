"""Peak memory of pm.sample, 200 draws of n = 2000 with 50 hidden units, one chain."""

import json
import resource
import sys

import pymc as pm

from tests.benchmarks.problems import teacher
from tests.benchmarks.timing import run_program

WEIGHTS = ["W1", "b1", "W2", "b2"]


def main() -> None:
    without, stored = (run_program("memory", which) for which in ("weights", "all"))
    before, peak = without
    print(f"  {before:6.0f} MB before sampling")
    print(f"  {peak:6.0f} MB with the latent layers left out of the trace")
    print(f"  {stored[1]:6.0f} MB with everything in the trace")


def peak_memory() -> float:
    """Largest resident set so far, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def measure(which: str) -> tuple[float, float]:
    model, _ = teacher(0, n_obs=2000, hidden=50)
    before = peak_memory()
    with model:
        pm.sample(
            200,
            tune=0,
            chains=1,
            random_seed=0,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
            var_names=WEIGHTS if which == "weights" else None,
        )
    return before, peak_memory()


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
