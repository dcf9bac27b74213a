"""Runs that outlive the session that began them: begun, gone on with, and extended."""

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import cloudpickle
import pymc as pm
from pymc.sampling.mcmc import _sample_return
from pymc.stats.convergence import log_warning_stats
from pymc.util import RandomGenerator, get_random_generator
from xarray import DataTree

from pymc_nnsteps.arguments import integer_from_zero, positive_integer
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.graphs.search import model_or_context
from pymc_nnsteps.runs import tasks
from pymc_nnsteps.runs.fingerprint import Fingerprint, location_of, writing
from pymc_nnsteps.runs.run import Checkpoint, Run, begun, restore, state_of
from pymc_nnsteps.runs.store import Store
from pymc_nnsteps.runs.tasks import COMPILING, require_client
from pymc_nnsteps.steps.assignment import Step, assign


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
    """Bring a chain to ``until`` draws, a checkpoint after each chunk; return how many were made.

    Done twice it does nothing; broken off it goes on from the last checkpoint.
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
    after = Checkpoint(before.done + draws, point, state_of(step), seconds)
    store.write(trace, after)
    return after


LEGS = 100
"""Tasks of a chain, at most: enough for a bar that moves, few for Dask's scheduler."""


def sample_distributed(
    model: pm.Model | None = None,
    client: Any = None,
    *,
    store: str | Path,
    draws: int = 1000,
    tune: int | None = None,
    chains: int = 4,
    random_seed: RandomGenerator = None,
    step: Step | Sequence[Step] | None = None,
    var_names: Sequence[str] | None = None,
    initvals: Any = None,
    init: str = "auto",
    compile_kwargs: Mapping[str, Any] | None = None,
    draws_per_chunk: int = 100,
    discard_tuned_samples: bool = True,
    compute_convergence_checks: bool = True,
    progressbar: bool = True,
    **kwargs: Any,
) -> DataTree:
    """Draw samples as ``pm.sample`` does, on a Dask cluster if there is one, with checkpoints.

    Chains are identical to those of ``pm.sample`` with the same seed, draw for draw. After an
    interrupt, :func:`~pymc_nnsteps.runs.resume` continues from their checkpoints, with the same
    draws. A run uses the model's current data: the store holds a copy of the model and the steps.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context if not given.
    client : distributed.Client, optional
        Client of a Dask cluster that runs chains in parallel. If a worker dies, another continues
        from the last checkpoint. By default chains run in this process, one after another.
    store : str or Path
        Location of the run: a new folder, on a disk that all workers can access, or a URL to which
        Zarr can write.
    draws, tune, chains, random_seed, step, var_names, initvals, init, compile_kwargs
        As for ``pm.sample``. Each chain runs on a single worker.
    draws_per_chunk : int
        Number of draws between two checkpoints.
    discard_tuned_samples, compute_convergence_checks
        As for ``pm.sample``. All draws stay in the store.
    progressbar : bool
        Whether to show one progress bar for all chains. Dask's dashboard shows each chain as up to
        100 tasks.
    **kwargs
        Options of steps, by the names of the steps, such as ``nuts={"target_accept": 0.9}``.

    Returns
    -------
    DataTree
        What ``pm.sample`` returns.

    Raises
    ------
    ValueError
        If an argument is invalid, or the store is not empty.
    RuntimeError
        If another process writes to the store. At a URL this is not checked: ensure that there is
        only one writer.
    ImportError
        If Zarr is not installed.

    Notes
    -----
    The steps are sent to the workers with the graphs of their functions, and are compiled once in
    each. The store contains pickles of the model and the steps: open only your own. Draws are
    identical, bit for bit, only with the same versions of all packages and the same kind of
    processor.

    Examples
    --------
    >>> import tempfile, numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model:
    ...     slope = pm.Normal("slope", 0, 10)
    ...     y = pm.Normal("y", slope * np.arange(4.0), 0.1, observed=[0.0, 1.1, 1.9, 3.0])
    ...     step = nns.Gibbs([slope])
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = folder.name + "/line.zarr"
    >>> options = {"progressbar": False, "compute_convergence_checks": False}
    >>> idata = nns.runs.sample_distributed(
    ...     model, store=store, draws=60, tune=10, chains=2, step=step, random_seed=1, **options
    ... )
    >>> dict(idata.posterior.sizes)
    {'chain': 2, 'draw': 60}
    >>> dict(nns.runs.extend(store, 40, model=model, **options).posterior.sizes)
    {'chain': 2, 'draw': 100}
    >>> folder.cleanup()
    """
    model = model_or_context(model)
    require_client(client)
    draws, chains = positive_integer("draws", draws), positive_integer("chains", chains)
    every = positive_integer("draws_per_chunk", draws_per_chunk)
    if tune is not None:
        tune = integer_from_zero("tune", tune)
    known = [rv.name for rv in model.unobserved_RVs]
    if strange := sorted(set(var_names or ()).difference(known)):
        raise ValueError(f"var_names has {strange}, which the model does not have; it has {known}.")
    with writing(store):  # said before steps are compiled
        Store.require_new(location_of(store))
        # Generators and points as pm.sample makes them, which it does not return.
        generators = get_random_generator(random_seed).spawn(chains)
        seeds = [generator.integers(2**30) for generator in generators]
        with COMPILING:
            copies = cloudpickle.dumps((model, step, initvals, kwargs))
            model, step, initvals, kwargs = cloudpickle.loads(copies)
        with model:
            steps, tune, points = assign(
                model, step, chains, seeds, tune, initvals, init, compile_kwargs, kwargs
            )
        names = tuple(known if var_names is None else var_names)
        run = Run(model, steps, names, tune, every, uuid4().hex, Fingerprint.of(model))
        starts = begun(steps, points, generators, tune, draws)
        stored = Store.create(location_of(store), run, tune + draws, starts)
        remember(run)
        _advance(stored, client, progressbar)
    return _result(stored, discard_tuned_samples, compute_convergence_checks)


def resume(
    store: str | Path,
    *,
    model: pm.Model | None = None,
    client: Any = None,
    discard_tuned_samples: bool = True,
    compute_convergence_checks: bool = True,
    progressbar: bool = True,
) -> DataTree:
    """Continue a run that was interrupted or killed, from the last checkpoints of its chains.

    The draws are identical, bit for bit, to those of an uninterrupted run. If the run is finished,
    its result is returned.

    Parameters
    ----------
    store : str or Path
        The ``store`` of :func:`~pymc_nnsteps.runs.sample_distributed`. It contains pickles: open
        only your own.
    model : pm.Model, optional
        The model of the run, as a check: variables, log densities, data, constants and labels must
        be the same. The run continues from the model in the store.
    client, discard_tuned_samples, compute_convergence_checks, progressbar
        As for :func:`~pymc_nnsteps.runs.sample_distributed`; they may differ from those with which
        the run was started.

    Returns
    -------
    DataTree
        What ``pm.sample`` returns.

    Raises
    ------
    ValueError
        If there is no run, if it is of another model, if a part of it is lost or damaged, or if it
        was started with another version of Python, PyMC, PyTensor or this package, or another
        ``floatX``.
    RuntimeError
        If the run is not finished and another process is continuing it.

    Warns
    -----
    UserWarning
        If it was started with another version of NumPy, SciPy or Numba. The distribution of its
        draws is the same, but their last digits may differ.

    Examples
    --------
    >>> import tempfile, pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model, tempfile.TemporaryDirectory() as folder:
    ...     x = pm.Normal("x")
    ...     options = {"progressbar": False, "compute_convergence_checks": False}
    ...     run = {"draws": 20, "tune": 10, "chains": 1, "step": nns.PCN([x])}
    ...     idata = nns.runs.sample_distributed(store=folder + "/x.zarr", **run, **options)
    ...     again = nns.runs.resume(folder + "/x.zarr", **options)
    >>> bool((again.posterior["x"] == idata.posterior["x"]).all())
    True
    """
    require_client(client)
    stored = _opened(store, model)
    if any(done < stored.draws for done in stored.standing()):
        with writing(store):
            _require_whole(stored)
            _advance(stored, client, progressbar)
    return _result(stored, discard_tuned_samples, compute_convergence_checks)


def extend(
    store: str | Path,
    draws: int,
    *,
    model: pm.Model | None = None,
    client: Any = None,
    discard_tuned_samples: bool = True,
    compute_convergence_checks: bool = True,
    progressbar: bool = True,
) -> DataTree:
    """Add draws to each chain of a run, as if it had been started with more draws.

    If this is interrupted, continue it with :func:`~pymc_nnsteps.runs.resume`; a second call would
    add the same number of draws again.

    Parameters
    ----------
    store : str or Path
    draws : int
        Number of draws to add.
    model, client, discard_tuned_samples, compute_convergence_checks, progressbar
        As for :func:`~pymc_nnsteps.runs.resume`.

    Returns
    -------
    DataTree
        All draws, as ``pm.sample`` returns them.

    Raises
    ------
    ValueError
        As for :func:`~pymc_nnsteps.runs.resume`, and if ``draws`` is not positive.
    RuntimeError
        If another process writes to the store.

    Examples
    --------
    See :func:`~pymc_nnsteps.runs.sample_distributed`.
    """
    require_client(client)
    draws = positive_integer("draws", draws)
    with writing(store):
        stored = _opened(store, model)
        _require_whole(stored)
        stored.extend(draws)
        _advance(stored, client, progressbar)
    return _result(stored, discard_tuned_samples, compute_convergence_checks)


def _opened(store: str | Path, model: pm.Model | None) -> Store:
    """A run, that of the model if one is given."""
    stored = Store(location_of(store))
    if model is not None:
        found = Fingerprint.of(model_or_context(model))
        stored.fingerprint.require_same(stored.location, found)
    return stored


def _require_whole(store: Store) -> None:
    """Look whether all draws are as they were written, before any is added."""
    run = run_of(store)
    for chain in range(store.chains):
        store.read(run, chain)


def _advance(store: Store, client: Any, progressbar: bool) -> None:
    """Bring all chains to their ends."""
    standing = store.standing()
    chunks = -(-store.draws // store.draws_per_chunk)
    length = store.draws_per_chunk * -(-chunks // LEGS)
    legs = [
        [
            {"location": store.location, "chain": chain, "until": until}
            for until in (*range(done + length, store.draws, length), store.draws)
        ]
        for chain, done in enumerate(standing)
    ]
    found = tasks.carried_out(client, advance, legs)
    total = store.chains * store.draws
    with (
        tasks.saying(
            lambda: (
                f"{sum(store.standing())} of {total} draws are in the store, and "
                f"nns.runs.resume({store.location!r}) continues."
            )
        ),
        tasks.bar("Sampling", sum(standing), total, progressbar) as grow,
    ):
        for _, made in found:
            grow(made)


def _result(
    store: Store, discard_tuned_samples: bool, compute_convergence_checks: bool
) -> DataTree:
    """Result in the form that ``pm.sample`` returns."""
    run = run_of(store)
    return _sample_return(
        run=None,
        traces=[store.read(run, chain) for chain in range(store.chains)],
        tune=run.tune,
        t_sampling=max(store.checkpoint(chain).seconds for chain in range(store.chains)),
        discard_tuned_samples=discard_tuned_samples,
        compute_convergence_checks=compute_convergence_checks,
        return_inferencedata=True,
        keep_warning_stat=False,
        idata_kwargs={},
        model=run.model,
    )
