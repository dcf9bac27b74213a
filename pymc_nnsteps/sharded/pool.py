"""Shards in this process, or as actors on the workers of a Dask cluster.

A shard is a function of its rows and of the messages that it has been sent, random numbers
included. So one that is lost with its worker is made again elsewhere: from its last checkpoint, and
the messages since. The others wait, and nothing changes in any draw.

Many shards are told what to do in groups, by a worker for each, which adds what they say: of S
shards nobody speaks to more than about the root of S. The order in which sums are added depends on
the number of shards alone, and so do the bits of the draws.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from math import isqrt
from pathlib import Path
from typing import Any, Protocol, override

from pymc_nnsteps.sharded.shards import Instructions, Load, OutOfStepError, Shard, Sums, added

PATIENCE = 10.0
"""Waiting time in seconds before an unresponsive worker is checked."""

ATTEMPTS = 5
"""Maximal number of times that a shard is rebuilt for one message."""

GROUPED_FROM = 16
"""Number of shards from which a second layer of messages saves time."""


def group_size(n_shards: int) -> int:
    """Number of shards that share one relay and one sum."""
    return isqrt(n_shards) if n_shards >= GROUPED_FROM else 1


class Member(Protocol):
    """A shard, wherever it is."""

    def send(self, method: str, *arguments: Any) -> None:
        """Call a method, without waiting for it."""

    def receive(self) -> Any:
        """Return the result of the call."""

    def checkpoint(self, file: Path) -> None:
        """Write where the shard stands."""

    def restore(self, file: Path) -> None:
        """Go on from there."""


class LocalShard:
    """A shard in this process."""

    def __init__(self, instructions: Instructions, load: Load) -> None:
        self.shard = Shard(instructions, load)
        self._answer: Any = None

    def send(self, method: str, *arguments: Any) -> None:
        """Call a method."""
        self._answer = getattr(self.shard, method)(*arguments)

    def receive(self) -> Any:
        """Return the result of the call."""
        return self._answer

    def checkpoint(self, file: Path) -> None:
        """Write where the shard stands."""
        self.shard.save(file)

    def restore(self, file: Path) -> None:
        """Go on from there."""
        self.shard.restore(file)


class RemoteShard:
    """A shard on a worker of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
    instructions : Instructions
    load : mapping from name to array, or callable
    index : int
        Index of the shard: neighbours are on different workers.
    recoverable : bool
        Whether messages are kept, to make the shard again if its worker dies.

    Attributes
    ----------
    worker : str
        Address of the shard's worker.
    made : distributed.Future
        The actor.
    """

    def __init__(
        self, client: Any, instructions: Instructions, load: Load, index: int, recoverable: bool
    ) -> None:
        self._client, self._index = client, index
        self._arguments = (instructions, load)
        self._recoverable = recoverable
        self._file: Path | None = None
        self._messages: list[tuple[str, tuple[Any, ...]]] = []
        self._start()

    def _start(self) -> None:
        self._client.wait_for_workers(1)
        workers = sorted(_workers(self._client))
        self.worker = workers[self._index % len(workers)]
        self.made = self._client.submit(
            Shard, *self._arguments, actor=True, pure=False, workers=[self.worker]
        )
        self._actor: Any = None
        self._future: Any = None

    def _call(self, method: str, *arguments: Any) -> Any:
        if self._actor is None:
            self._actor = self.made.result()
        return getattr(self._actor, method)(*arguments)

    def _result(self, future: Any) -> Any:
        return _result(future, self._client, {self.worker})

    def send(self, method: str, *arguments: Any) -> None:
        """Call a method, without waiting for it."""
        self.remember(method, *arguments)
        self.tell(method, *arguments)

    def remember(self, method: str, *arguments: Any) -> None:
        """Keep a message, to make the shard again."""
        if self._recoverable:
            self._messages.append((method, arguments))

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method whose message has been kept."""
        try:
            self._future = self._call(method, *arguments)
        except (OSError, RuntimeError) as lost:
            self._refuse_loss(lost)
            self._future = None

    def receive(self) -> Any:
        """Return the result of the call; a lost shard is made again."""
        if self._future is not None:
            try:
                return self._result(self._future)
            except (OSError, OutOfStepError) as lost:
                self._refuse_loss(lost)
        return self._again("time")[0]

    def checkpoint(self, file: Path) -> None:
        """Write where the shard stands."""
        try:
            self._result(self._call("save", file))
        except (OSError, RuntimeError):
            self._again("save", file)
        self._file = file
        self._messages.clear()

    def restore(self, file: Path) -> None:
        """Go on from there."""
        self._file = file
        self._result(self._call("restore", file))

    def _again(self, method: str, *arguments: Any) -> tuple[Any, Any]:
        """Make the shard again; answers to the last message, and to a further call."""
        for attempt in range(ATTEMPTS):
            self._start()
            try:
                if self._file is not None:
                    self._result(self._call("restore", self._file))
                answer = None
                for message, given in self._messages:
                    answer = self._result(self._call(message, *given))
                return answer, self._result(self._call(method, *arguments))
            except (OSError, RuntimeError):
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _refuse_loss(self, lost: Exception) -> None:
        if not self._recoverable:
            raise RuntimeError(
                f"the worker of shard {self._index} was lost; with store= a shard is made again "
                "from its checkpoint."
            ) from lost


def _workers(client: Any) -> dict[str, Any]:
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return workers


def _result(future: Any, client: Any, needed: Collection[str]) -> Any:
    """Result of a call that needs these workers."""
    while True:
        try:
            return future.result(timeout=PATIENCE)
        except TimeoutError:
            if gone := set(needed).difference(_workers(client)):
                raise OSError(f"worker {', '.join(sorted(gone))} is gone") from None


class Group:
    """Neighbouring shards that are all told to draw.

    Parameters
    ----------
    members : sequence of Member
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members

    def tell(self, *message: Any) -> None:
        """Let all draw, without waiting for them."""
        for member in self._members:
            member.send("draw", *message)

    def sums(self) -> Sums:
        """Total of their sums."""
        return added([member.receive() for member in self._members])


class Relay:
    """An actor that tells shards to draw, and adds what they say.

    Parameters
    ----------
    shards : sequence of distributed.Actor
    """

    def __init__(self, shards: Sequence[Any]) -> None:
        self._shards = shards

    async def draw(self, *message: Any) -> Sums:
        """Let all draw, beside what else the worker does."""
        return added(await asyncio.gather(*(shard.draw(*message) for shard in self._shards)))


class RelayedGroup(Group):
    """Neighbouring shards that the worker of the first one speaks to.

    If that fails, each is told directly, and made again if it is lost.
    """

    def __init__(self, client: Any, members: Sequence[RemoteShard]) -> None:
        super().__init__(members)
        self._client, self._distant = client, members
        self._of: list[str] = []

    @override
    def tell(self, *message: Any) -> None:
        for member in self._distant:
            member.remember("draw", *message)
        self._message = message
        try:
            self._future = self._relay().draw(*message)
        except (OSError, RuntimeError):
            self._future = None

    @override
    def sums(self) -> Sums:
        if self._future is not None:
            with suppress(OSError, RuntimeError):
                return list(self._result(self._future))
        self._of = []
        for member in self._distant:
            member.tell("draw", *self._message)
        return super().sums()

    def _relay(self) -> Any:
        """The actor, a new one if a shard has been made again."""
        made = [member.made for member in self._distant]
        keys = [future.key for future in made]
        if keys != self._of:
            worker = self._distant[0].worker
            self._made = self._client.submit(Relay, made, actor=True, pure=False, workers=[worker])
            self._actor = self._result(self._made)
            self._of = keys
        return self._actor

    def _result(self, future: Any) -> Any:
        return _result(future, self._client, {member.worker for member in self._distant})


class ShardPool:
    """Shards that are sent the same messages.

    Parameters
    ----------
    instructions : Instructions
    shards : sequence of mapping or callable
    client : distributed.Client, optional
        None: in this process.
    recoverable : bool
        Whether a shard whose worker dies is made again.

    Attributes
    ----------
    members : list of Member
    number : int
        Number of the next message.
    """

    def __init__(
        self, instructions: Instructions, shards: Sequence[Load], client: Any, *, recoverable: bool
    ) -> None:
        size = group_size(len(shards))
        starts = range(0, len(shards), size)
        self.members: Sequence[Member]
        if client is None:
            here = [LocalShard(instructions, load) for load in shards]
            self.members = here
            self._groups = [Group(here[start : start + size]) for start in starts]
        else:
            there = [
                RemoteShard(client, instructions, load, index, recoverable)
                for index, load in enumerate(shards)
            ]
            self.members = there
            self._groups = [
                Group(there[start : start + size])
                if size == 1
                else RelayedGroup(client, there[start : start + size])
                for start in starts
            ]
        self.number = 0

    def begin(self, seeds: Sequence[Any], shared: Any) -> None:
        """Begin a chain in each shard, with a seed of its own."""
        for member, seed in zip(self.members, seeds, strict=True):
            member.send("begin", self.number, seed, shared)
        for member in self.members:
            member.receive()
        self.number += 1

    def draw(self, which: int, shared: Any) -> list[Any]:
        """Draw the latent variables of a round; the sums of each group of shards."""
        for group in self._groups:
            group.tell(self.number, which, shared)
        said = [group.sums() for group in self._groups]
        self.number += 1
        return said

    def checkpoint(self, folder: Path) -> None:
        """Write where each shard stands."""
        for member, file in zip(self.members, self._files(folder), strict=True):
            member.checkpoint(file)

    def restore(self, folder: Path, number: int) -> None:
        """Go on from there."""
        self.number = number
        for member, file in zip(self.members, self._files(folder), strict=True):
            member.restore(file)

    def forget_others(self, folder: Path) -> None:
        """Remove older checkpoints."""
        kept = set(self._files(folder))
        for file in folder.glob("shard-*"):
            if file not in kept:
                file.unlink()

    def _files(self, folder: Path) -> list[Path]:
        return [folder / f"shard-{i}-{self.number}.pickle" for i in range(len(self.members))]
