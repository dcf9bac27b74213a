"""Timing that benchmarks share: contenders in turns, and programs in fresh processes."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.steps.compiled import Compiled


@one_thread
def milliseconds(
    contenders: Mapping[str, Callable[[], object]], *, calls: int, repeats: int
) -> dict[str, float]:
    """CPU time of a call of each contender: the median over repeats, taken in turns.

    Parameters
    ----------
    contenders : mapping from name to function
    calls : int
        Calls that are timed together.
    repeats : int
        Turns of each contender, after one that is not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats + 1):
        for name, contender in contenders.items():
            start = time.process_time()
            for _ in range(calls):
                contender()
            times[name].append(1e3 * (time.process_time() - start) / calls)
    return {name: median(values[1:]) for name, values in times.items()}


def run_program(module: str, *arguments: str, **environment: str | None) -> Any:
    """Run ``python -m tests.benchmarks.{module}`` afresh; the last line it prints is JSON.

    Variables of the environment that are None are left out.
    """
    command = [sys.executable, "-W", "ignore", "-m", f"tests.benchmarks.{module}", *arguments]
    env = {name: value for name, value in (os.environ | environment).items() if value is not None}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def parts(compiled: Compiled, advance: Callable[[], object], calls: int = 20) -> dict[str, float]:
    """Share of a profiled function's time by kind of operation, the largest first."""
    profile = compiled.function.profile
    advance()
    before = Counter(profile.apply_time)
    for _ in range(calls):
        advance()
    total: Counter[str] = Counter()
    for key, seconds in profile.apply_time.items():
        op = key[1].op
        inner = getattr(op, "op", op)
        name = getattr(inner, "name", None) or type(inner).__name__
        total[name] += seconds - before[key]
    shares = {name: seconds / total.total() for name, seconds in total.most_common()}
    return {name: share for name, share in shares.items() if share > 0.005}
