"""Shards in this process, or as actors on the workers of a Dask cluster.

Many shards are told what to do in groups, by a worker for each, which adds what they say: of S
shards nobody speaks to more than about the root of S. The order in which sums are added depends on
the number of shards alone, and so do the bits of the draws.
"""

import asyncio
from collections.abc import Sequence
from math import isqrt
from pathlib import Path
from typing import Any

from pymc_nnsteps.sharded.shards import Instructions, Load, Shard, Sums, added

PATIENCE = 10.0
"""Waiting time in seconds before it is checked whether workers are there."""

GROUPED_FROM = 16
"""Number of shards from which a second layer of messages saves time."""


def group_size(n_shards: int) -> int:
    """Number of shards that share one relay and one sum."""
    return isqrt(n_shards) if n_shards >= GROUPED_FROM else 1


class Relay:
    """An actor that lets shards draw, and adds what they say."""

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

    def __init__(self, instructions: Instructions, shards: Sequence[Load], client: Any) -> None:
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
        said = [list(self._result(call)) for call in calls]
        self.number += 1
        if len(said) < len(self.members):
            return said
        return [added(said[i : i + self._size]) for i in range(0, len(said), self._size)]

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
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return workers
