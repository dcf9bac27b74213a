"""Chains over rows in shards, which are in this process or actors on the workers of a Dask cluster.

Many shards receive messages in groups, by a worker for each group, which adds their sums: of S
shards no process speaks to more than about the root of S. The order in which sums are added depends
on the number of shards alone, and so do the bits of the draws.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import isqrt
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pymc as pm
import xarray as xr
from pymc.progress_bar import create_simple_progress

from pymc_nnsteps.arguments import integer_from_zero, positive_integer, require_choice
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.moves.plan import Scan
from pymc_nnsteps.prediction.posterior import as_tree
from pymc_nnsteps.runs.fingerprint import Fingerprint, RunFile, writing
from pymc_nnsteps.runs.tasks import require_client, saying
from pymc_nnsteps.sharded.rounds import rounds_of
from pymc_nnsteps.sharded.shards import Load, Point, Shard, SharedDraws, Sums, added, instructions

PATIENCE = 10.0
"""Waiting time in seconds before it is checked whether workers are there."""

GROUPED_FROM = 16
"""Number of shards from which a second layer of messages saves time."""


def group_size(n_shards: int) -> int:
    """Number of shards that share one relay and one sum."""
    return isqrt(n_shards) if n_shards >= GROUPED_FROM else 1


class Relay:
    """An actor that lets shards draw, and adds their sums."""

    def __init__(self, shards: Sequence[Any]) -> None:
        self._shards = shards

    async def draw(self, *message: Any) -> Sums:
        """Let all draw, beside what else the worker does."""
        return added(await asyncio.gather(*(shard.draw(*message) for shard in self._shards)))


class ShardPool:
    """Shards that are sent the same messages.

    Without a client they are in this process. Neighbours are on different ``workers``, and
    ``number`` is that of the next message.
    """

    def __init__(self, instructions: bytes, shards: Sequence[Load], client: Any) -> None:
        self._client, self.number, self.workers = client, 0, list[str]()
        self._size = group_size(len(shards))
        self.members: list[Any]
        if client is None:
            self.members = [Shard(instructions, load) for load in shards]
        else:
            client.wait_for_workers(1)
            there = sorted(_workers(client))
            self.workers = [there[index % len(there)] for index in range(len(shards))]
            self._futures = [
                self._submit(Shard, index, instructions, load) for index, load in enumerate(shards)
            ]
            self.members = list(map(self._result, self._futures))
        self._tellers = self.members
        if client is not None and self._size > 1:
            starts = range(0, len(shards), self._size)
            self._relays = [
                self._submit(Relay, start, self._futures[start : start + self._size])
                for start in starts
            ]
            self._tellers = list(map(self._result, self._relays))

    def _submit(self, actor: type, index: int, *arguments: Any) -> Any:
        """An actor on the worker of a shard."""
        worker = self.workers[index]
        return self._client.submit(actor, *arguments, actor=True, pure=False, workers=[worker])

    def _result(self, call: Any) -> Any:
        """What a call of an actor returns; in this process it has been called already."""
        if self._client is None:
            return call
        while True:
            try:
                return call.result(timeout=PATIENCE)
            except TimeoutError:
                if gone := set(self.workers).difference(_workers(self._client)):
                    raise OSError(f"worker {', '.join(sorted(gone))} is gone") from None

    def begin(self, seeds: Sequence[Any], shared: Any) -> None:
        """Begin a chain in each shard, with a seed of its own."""
        self._all("begin", [(self.number, seed, shared) for seed in seeds])
        self.number += 1

    def draw(self, which: int, shared: Any) -> list[Sums]:
        """Draw the latent variables of a round; the sums of each group of shards."""
        calls = [each.draw(self.number, which, shared) for each in self._tellers]
        sums = [list(self._result(call)) for call in calls]
        self.number += 1
        if len(sums) < len(self.members):
            return sums
        return [added(sums[i : i + self._size]) for i in range(0, len(sums), self._size)]

    def checkpoint(self, folder: Path) -> None:
        """Write where each shard stands."""
        self._all("save", [(file,) for file in self._files(folder)])

    def restore(self, folder: Path, number: int) -> None:
        """Go on from there."""
        self.number = number
        self._all("restore", [(file,) for file in self._files(folder)])

    def _all(self, method: str, given: Sequence[tuple[Any, ...]]) -> None:
        """Call a method of each shard with arguments of its own."""
        calls = [
            getattr(member, method)(*arguments)
            for member, arguments in zip(self.members, given, strict=True)
        ]
        for call in calls:
            self._result(call)

    def forget_others(self, folder: Path) -> None:
        """Remove older checkpoints."""
        kept = set(self._files(folder))
        for file in folder.glob("shard-*"):
            if file not in kept:
                file.unlink()

    def _files(self, folder: Path) -> list[Path]:
        return [folder / f"shard-{i}-{self.number}.pickle" for i in range(len(self.members))]


def _workers(client: Any) -> dict[str, Any]:
    return client.scheduler_info(n_workers=-1)["workers"]


RUN = "run.pickle"

ATTEMPTS = 5
"""Maximal number of times that workers are lost between two checkpoints."""

KEPT = "the same call continues from its last checkpoint."
NOT_KEPT = "with store= a run can continue."
LOST = "the worker of a shard was lost; with store= a run continues from its last checkpoint."


@dataclass
class ShardedRun:
    """State of a run."""

    entropy: Any  # the seed, or what takes its place
    # Chains that are complete, and sweeps of the next one; -1: it has not begun.
    chain: int = 0
    sweep: int = -1
    # Natural values of the shared variables, for each chain and draw.
    kept: list[list[Point]] = field(default_factory=list)
    number: int = 0  # number of the next message to the shards
    point: Point = field(default_factory=dict)  # the shared variables
    # Shared variables whose new values have not been sent to the shards.
    changed: Point = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=np.random.default_rng)


def sample_sharded(
    model: pm.Model | None = None,
    shards: Sequence[Load] = (),
    client: Any = None,
    *,
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    rows: Sequence[str] | None = None,
    scan: Scan = "sequential",
    random_seed: int | None = None,
    store: str | Path | None = None,
    checkpoint_every: int = 100,
    progressbar: bool = True,
) -> xr.DataTree:
    """Sample exactly by Gibbs from data whose rows are in shards, on one machine or many.

    Latent variables of rows are drawn in the shard of these rows and stay there. The weights, and
    other variables that all rows share, are drawn once, from sums over rows: for a layer of d
    inputs and k units a shard sends d (d + k) numbers. The distribution of the draws does not
    depend on the shards; only the random numbers do.

    Parameters
    ----------
    model : pm.Model, optional
        The network with a few rows, at least two, in ``pm.Data``; taken from the context if not
        given.
    shards : sequence of mapping or callable
        For each shard the arrays that replace those in the data containers, such as
        ``{"inputs": X, "targets": y}``; or a function without arguments that returns them, for
        example from a part of a memory-mapped file, of a Zarr array or of a Parquet file. The
        function is called in the process that holds the shard. Columns with missing inputs in the
        model may have NaN.
    client : distributed.Client, optional
        Client of a Dask cluster whose workers hold the shards as actors. None: all shards are in
        this process.
    draws, tune, chains : int
        Number of stored draws, of sweeps before these, and of chains, which run one after another.
    rows : sequence of str, optional
        Names of the data containers that shards replace; by default all of the model's.
    scan : {"sequential", "parallel"}
        Order of a sweep, as for :class:`~pymc_nnsteps.Gibbs`. "sequential" has one round of
        messages for each hidden layer, "parallel" one in total.
    random_seed : int, optional
    store : path, optional
        A folder for checkpoints that all workers can access. A run found there is continued, with
        the draws that it would have had. If a worker dies, its shards continue from the last
        checkpoint, and no draw changes.
    checkpoint_every : int
        Number of sweeps between checkpoints.
    progressbar : bool

    Returns
    -------
    DataTree
        Group ``posterior`` with the variables that are shared by all rows.

    Raises
    ------
    NotConjugate
        If a variable has no full conditional of a known form, if rows are not independent given the
        shared variables, or if a shared variable depends on the rows other than through sums.
    ValueError
        If an argument is invalid, if a shard does not fit the model, or if the run in ``store`` is
        another one, was started with other versions, or is damaged.
    RuntimeError
        If a worker is lost without ``store``, or another process writes to it.

    Notes
    -----
    Rows of weights are neither moved together with their pre-activations (``interweave=False``) nor
    drawn with these integrated out. With one shard the draws are those of the local sweep in the
    order that starts with rows. A precision matrix that is lost to rounding raises an error, where
    a local sweep would draw from a factorisation of the rows themselves.

    References
    ----------
    Piccioli, Troiani and Zdeborova, *Gibbs Sampling the Posterior of Neural Networks*,
    arXiv 2306.02729, Algorithms 1 and 2.

    Examples
    --------
    >>> import numpy as np, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = X @ [1.0, -0.5]
    >>> model = nns.intermediate_noise_mlp(X[:10], y[:10], hidden=(), noise=0.1)
    >>> shards = [{"inputs": X[i::2], "targets": y[i::2]} for i in range(2)]
    >>> idata = nns.sharded.sample_sharded(
    ...     model, shards, draws=200, tune=20, chains=1, random_seed=1, progressbar=False
    ... )
    >>> idata.posterior["W1"].mean(("chain", "draw")).values.round(1)
    array([[ 1. , -0.5]])
    """
    model = model_to_read(model)
    require_client(client)
    draws, chains = positive_integer("draws", draws), positive_integer("chains", chains)
    tune = integer_from_zero("tune", tune)
    every = positive_integer("checkpoint_every", checkpoint_every)
    require_choice("scan", scan, get_args(Scan))
    if isinstance(shards, Mapping) or not len(shards):
        raise ValueError("shards must have at least one shard; for a single one pass [shards].")
    names = tuple(str(v.name) for v in model.data_vars) if rows is None else tuple(rows)
    planned = rounds_of(model, names, scan)
    shared = SharedDraws(model, planned)
    settings = {
        "draws": draws, "tune": tune, "chains": chains, "scan": scan, "random_seed": random_seed,
        "rows": names, "number of shards": len(shards),
    }  # fmt: skip
    instructed = instructions(model, planned, names, scan)
    with nullcontext() if store is None else writing(store):
        record = None
        if store is not None:
            Path(store).mkdir(parents=True, exist_ok=True)
            record = RunFile(Path(store) / RUN, Fingerprint.of(model, settings))
        run = (record and record.read()) or ShardedRun(np.random.SeedSequence(random_seed).entropy)
        progress = create_simple_progress(progressbar=progressbar)
        total = chains * (tune + draws)
        with progress, saying(lambda: KEPT if record else NOT_KEPT):
            task = progress.add_task("Sweeps over shards", completed=0, total=total)
            begins = []
            while run.chain < chains:
                begins.append((run.chain, run.sweep))
                try:
                    pool = ShardPool(instructed, shards, client)
                    for done in _sweeps(run, pool, shared, (tune, draws, chains), record, every):
                        progress.update(task, completed=done)
                except (OSError, RuntimeError) as lost:
                    if client is None or begins.count(begins[-1]) == ATTEMPTS:
                        raise
                    if record is None:
                        raise RuntimeError(LOST) from lost
                    run = record.read() or ShardedRun(run.entropy)
    of_all = {
        name: np.stack([[point[name] for point in chain] for chain in run.kept])
        for name in shared.names
    }
    return as_tree(model, {"posterior": of_all})


def _sweeps(
    run: ShardedRun,
    pool: ShardPool,
    shared: SharedDraws,
    length: tuple[int, int, int],
    record: RunFile | None,
    every: int,
) -> Iterator[int]:
    """Bring a run of (tune, draws, chains) to its end; yields the number of sweeps done."""
    tune, draws, chains = length
    if record is not None and run.sweep >= 0:
        pool.restore(record.file.parent, run.number)
        shared.point, shared.rng = run.point, run.rng
    seeds = np.random.SeedSequence(run.entropy).spawn(chains)
    while run.chain < chains:
        if run.sweep < 0:
            own, *others = seeds[run.chain].spawn(1 + len(pool.members))
            shared.begin(own)
            pool.begin(others, shared.natural())
            run.kept.append([])
            run.sweep = 0
        while run.sweep < tune + draws:
            run.changed = sweep(pool, shared, run.changed)
            if run.sweep >= tune:
                run.kept[-1].append(shared.natural())
            run.sweep += 1
            if record and (run.sweep % every == 0 or run.sweep == tune + draws):
                _checkpoint(record, run, pool, shared)
            yield run.chain * (tune + draws) + run.sweep
        run.chain, run.sweep, run.changed = run.chain + 1, -1, {}


def sweep(pool: ShardPool, shared: SharedDraws, changed: Point) -> Point:
    """Draw every variable once; return the shared ones that shards have not received yet."""
    for which in range(len(shared.rounds)):
        changed = shared.draw(which, pool.draw(which, changed))
    return changed


def _checkpoint(record: RunFile, run: ShardedRun, pool: ShardPool, shared: SharedDraws) -> None:
    """Write where the shards stand, then where the run does, then remove what is older."""
    folder = record.file.parent
    run.number, run.point, run.rng = pool.number, shared.point, shared.rng
    pool.checkpoint(folder)
    record.write(run)
    pool.forget_others(folder)
