"""Many rows, 50-10-1: a plain sweep on one machine, and with rows in shards on workers of Dask.

On one machine: ``nns.Gibbs`` of the whole model, and shards of 250 000 rows in one process. Memory
is what the data leave of the peak while it sweeps, old and new values of the latent variables
included. Times on workers are the least of several, since others may use the machine; the share of
messages is what they leave beside the slowest shard's own time.

To the times on workers a model is fitted (:func:`fitted`), which says what more workers would do.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor

import pymc_nnsteps as nns
from pymc_nnsteps.sharded.rounds import rounds_of
from pymc_nnsteps.sharded.sampling import ShardPool, group_size, sweep
from pymc_nnsteps.sharded.shards import Load, SharedDraws, instructions
from tests.benchmarks.memory import peak_memory
from tests.benchmarks.timing import run_program

UNITS = 10
LOCAL = (100_000, 300_000, 1_000_000)
SHARDED = (10_000, 100_000, 1_000_000, 2_000_000)
WORKERS = (1, 2, 4)
SWEEPS = 5
REPEATS = 6


def rows(n_obs: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_obs, 50), dtype=pytensor.config.floatX)
    return {"inputs": X, "targets": np.abs(X[:, 0]) + X[:, 1]}


def network(n_obs: int) -> pm.Model:
    data = rows(n_obs, 0)
    return nns.intermediate_noise_mlp(data["inputs"], data["targets"], hidden=(UNITS,), noise=1e-2)


def main() -> None:
    for floats in ("float64", "float32"):
        for where in ("plain", "local"):
            for n_obs in LOCAL:
                milliseconds, megabytes, latent = run_program(
                    "shards", where, str(n_obs), PYTENSOR_FLAGS=f"floatX={floats}"
                )
                print(
                    f"  {where}, {floats}, n = {n_obs:8}: {milliseconds:7.0f} ms per sweep, "
                    f"{1e6 * milliseconds / n_obs / UNITS:4.0f} ns per row and unit; "
                    f"{megabytes:5.0f} MB, {megabytes / latent:.2f} x latent arrays"
                )
    measured = []
    for n_obs in SHARDED:
        for n_workers in WORKERS:
            seconds, busy, memory = run_program("shards", "dask", str(n_workers), str(n_obs))
            measured.append((n_workers, n_obs, seconds))
            print(
                f"  {n_workers} workers, n = {n_obs:8}: {1e3 * seconds:7.1f} ms a sweep, messages "
                f"{100 * (1 - busy / seconds):2.0f} %; {memory:5.0f} MB in a worker"
            )
    report(np.array(measured))


def report(measured: np.ndarray) -> None:
    """Print the fitted model, and what it predicts."""
    found, covariance = fitted(measured, os.cpu_count() or 1)
    units = {"c": "us a row", "l": "ms a round", "b": "ms a shard and round"}
    for (name, unit), value, error in zip(
        units.items(), found, np.sqrt(np.diag(covariance)), strict=True
    ):
        scale = 1e6 if name == "c" else 1e3
        print(f"  {name} = {scale * value:.3g} +- {scale * error:.2g} {unit}")
    for n_workers in (16, 256):
        for how, terms in asked(int(1e8), n_workers).items():
            error = np.sqrt(terms @ covariance @ terms)
            print(
                f"  predicted for n = 1e8, {n_workers} workers {how}: {terms @ found:.2f} +- "
                f"{error:.2f} s a sweep, of which rows {terms[0] * found[0]:.2f} s"
            )


def fitted(measured: np.ndarray, cores: int) -> tuple[np.ndarray, np.ndarray]:
    """Least squares on relative errors for ``t = n / min(S, cores) c + l + S b``, of one round.

    Parameters
    ----------
    measured : array, shape (m, 3)
        Workers S, each with one shard; rows n; seconds of a sweep t.
    cores : int
        More workers than cores take turns.

    Returns
    -------
    array, shape (3,)
        c, l and b in seconds.
    array, shape (3, 3)
        Their covariance, from what the fit leaves.
    """
    n_workers, n_obs, seconds = measured.T
    terms = np.column_stack(
        [n_obs / np.minimum(n_workers, cores), np.ones(len(seconds)), n_workers]
    )
    relative = terms / seconds[:, None]
    found, *_ = np.linalg.lstsq(relative, np.ones(len(seconds)))
    left = 1 - relative @ found
    degrees = len(left) - len(found)
    return found, np.linalg.inv(relative.T @ relative) * (left @ left) / degrees


def asked(n_obs: int, n_workers: int) -> dict[str, np.ndarray]:
    """What c, l and b are multiplied by, for as many cores as workers, one shard on each."""
    size = group_size(n_workers)
    return {
        "told one by one": np.array([n_obs / n_workers, 1, n_workers]),
        "told in groups": np.array([n_obs / n_workers, 2, size + -(-n_workers // size)]),
    }


def plain(n_obs: int) -> tuple[float, float, float]:
    """CPU time of a sweep of ``nns.Gibbs`` in ms, memory beside the data, that of latent arrays."""
    gibbs(network(1000))  # what compilation takes
    before = _memory("VmRSS")
    step, point = gibbs(network(n_obs))
    _forget_peak()
    times = []
    for _ in range(SWEEPS):
        start = time.process_time()
        point, _ = step.step(point)
        times.append(time.process_time() - start)
    return _result(n_obs, times, before)


def gibbs(model: pm.Model) -> tuple[nns.Gibbs, dict[str, np.ndarray]]:
    """A plain step, and where a chain begins."""
    return nns.Gibbs(model=model, interweave=False), model.initial_point()


def local(n_obs: int) -> tuple[float, float, float]:
    """CPU time of a sweep in ms, memory beside the data, and that of the latent arrays."""
    begun([partial(rows, 1000, 0)], None)  # what compilation takes
    before = _memory("VmRSS")
    n_shards = max(n_obs // 250_000, 1)
    shared, pool = begun([partial(rows, n_obs // n_shards, i) for i in range(n_shards)], None)
    _forget_peak()
    changed, times = {}, []
    for _ in range(SWEEPS):
        start = time.process_time()
        changed = sweep(pool, shared, changed)
        times.append(time.process_time() - start)
    return _result(n_obs, times, before)


def _result(n_obs: int, times: list[float], before: float) -> tuple[float, float, float]:
    """Milliseconds; memory beside the data, and that of the latent arrays, in MB."""
    item = np.dtype(pytensor.config.floatX).itemsize / 2**20
    peak = _memory("VmHWM") - before - 51 * n_obs * item
    return 1e3 * float(np.median(times)), peak, 2 * UNITS * n_obs * item


def _forget_peak() -> None:
    """Let Linux's account of the largest memory begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


def begun(loads: Sequence[Load], client: Any) -> tuple[SharedDraws, ShardPool]:
    """A chain that has begun."""
    model = network(1000)
    names = ("inputs", "targets")
    planned = rounds_of(model, names)
    pool = ShardPool(instructions(model, planned, names, "sequential"), loads, client)
    shared = SharedDraws(model, planned)
    shared.begin(0)
    pool.begin(list(range(len(loads))), shared.natural())
    return shared, pool


def _memory(name: str) -> float:
    """A line of Linux's account of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(name)]
    return int(line.split()[1]) / 2**10


def dask(n_workers: int, n_obs: int) -> tuple[float, float, float]:
    """Seconds of a sweep over shards, those of its slowest shard, and a worker's memory in MB."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        loads = [partial(rows, n_obs // n_workers, i) for i in range(n_workers)]
        shared, pool = begun(loads, client)
        changed, found = sweep(pool, shared, {}), []
        before = _busy(pool)
        for _ in range(REPEATS):
            start = time.perf_counter()
            for _ in range(SWEEPS):
                changed = sweep(pool, shared, changed)
            seconds = time.perf_counter() - start
            after = _busy(pool)
            busy = max(b - a for a, b in zip(before, after, strict=True))
            found.append((seconds / SWEEPS, busy / SWEEPS))
            before = after
        memory = max(client.run(peak_memory).values())
    seconds, busy = min(found)
    return seconds, busy, memory


def _busy(pool: ShardPool) -> list[float]:
    return [member.time().result() for member in pool.members]


if __name__ == "__main__":
    which, *numbers = sys.argv[1:]
    measure = {"plain": plain, "local": local, "dask": dask}[which]
    print(json.dumps(measure(*map(int, numbers))))
