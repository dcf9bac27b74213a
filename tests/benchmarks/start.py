"""Start of a chain in the paper's setting: seconds to the first draw, cold and warm.

Cold: PyTensor's and Numba's caches of compiled code are empty.
"""

import json
import resource
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from tests.benchmarks.timing import run_program

STAGES = ("import", "build", "compile", "first draw")


def main() -> None:
    print("        " + "".join(f"{name:>12}" for name in (*STAGES, "total", "CPU")))
    with tempfile.TemporaryDirectory() as directory:
        caches = {
            "PYTENSOR_FLAGS": f"base_compiledir={Path(directory) / 'pytensor'}",
            "NUMBA_CACHE_DIR": str(Path(directory) / "numba"),
        }
        for name in ("cold", "warm"):
            *stages, cpu = run_program("start", **caches)
            print(f"  {name:6}" + "".join(f"{s:11.1f}s" for s in (*stages, sum(stages), cpu)))


def measure() -> list[float]:
    """Seconds of each stage, and of CPU in all (compilers included)."""
    times = [time.perf_counter()]
    import pymc_nnsteps as nns
    from tests.benchmarks.problems import chain, teacher

    times.append(time.perf_counter())
    model, state = teacher(0)
    times.append(time.perf_counter())
    with model:
        step = nns.Gibbs()
    times.append(time.perf_counter())
    chain(step, state)()
    times.append(time.perf_counter())
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(u.ru_utime + u.ru_stime for u in usage)
    return [*(b - a for a, b in pairwise(times)), cpu]


if __name__ == "__main__":
    print(json.dumps(measure()))
