"""A chain goes on from its checkpoint, in whichever process it is asked to."""

import threading
import time

from pymc.stats.convergence import log_warning_stats

from pymc_nnsteps.kernels.threads import one_thread
from pymc_nnsteps.runs.run import Checkpoint, Run, restore, state_of
from pymc_nnsteps.runs.store import Store
from pymc_nnsteps.runs.tasks import COMPILING


class _Loaded(threading.local):
    """The run that a thread moved last. A step is compiled when it is loaded, and moves alone."""

    run: Run | None = None


_loaded = _Loaded()


def remember(run: Run) -> None:
    """Spare this thread from loading a run."""
    _loaded.run = run


def run_of(store: Store) -> Run:
    """The run of a store, compiled once in each thread."""
    if _loaded.run is None or _loaded.run.identity != store.identity:
        with COMPILING:
            _loaded.run = store.run()
    return _loaded.run


@one_thread
def advance(location: str, chain: int, until: int) -> int:
    """Bring a chain to ``until`` draws, with a checkpoint at the end of each chunk.

    Done twice it does nothing; broken off it goes on from the last checkpoint; done by two at the
    same time it writes the same twice. The result is the number of draws that were made.
    """
    store = Store(location)
    now = first = store.checkpoint(chain)
    if now.done >= until:
        return 0
    run = run_of(store)
    restore(run.step, now.state)
    while now.done < until:
        length = run.draws_per_chunk - now.done % run.draws_per_chunk
        now = _chunk(store, run, chain, now, min(length, until - now.done))
    return until - first.done


def _chunk(store: Store, run: Run, chain: int, before: Checkpoint, draws: int) -> Checkpoint:
    """Some draws, which are then in the store."""
    step, point = run.step, before.point
    trace = run.trace(chain, draws)
    start = time.perf_counter()
    for draw in range(before.done, before.done + draws):
        if draw == run.tune:
            step.stop_tuning()
        point, stats = step.step(point)
        trace.record(point, stats, in_warmup=draw < run.tune)
        log_warning_stats(stats)
    seconds = before.seconds + time.perf_counter() - start
    after = Checkpoint(before.done + draws, point, state_of(step), seconds, before.written)
    return store.write(trace, after)
