"""Shards in this process, or as actors on the workers of a Dask cluster.

A shard is a function of its rows and of the messages that it has been sent, random numbers
included. So one that is lost with its worker is made again elsewhere: from its last checkpoint, and
the messages since. The others wait, and nothing changes in any draw.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from pymc_nnsteps.distributed.shards import Instructions, Load, OutOfStepError, Shard

PATIENCE = 10.0
"""Seconds after which it is looked whether a worker that does not answer is still there."""

ATTEMPTS = 5
"""How often a shard is made again for one message."""


class Member(Protocol):
    """A shard, wherever it is."""

    def send(self, method: str, *arguments: Any) -> None:
        """Call a method, without waiting for it."""

    def receive(self) -> Any:
        """What the call returned."""

    def checkpoint(self, file: Path) -> None:
        """Write where the shard stands."""

    def restore(self, file: Path) -> None:
        """Go on from there."""


class Here:
    """A shard in this process."""

    def __init__(self, instructions: Instructions, load: Load) -> None:
        self.shard = Shard(instructions, load)
        self._answer: Any = None

    def send(self, method: str, *arguments: Any) -> None:
        """Call a method."""
        self._answer = getattr(self.shard, method)(*arguments)

    def receive(self) -> Any:
        """What the call returned."""
        return self._answer

    def checkpoint(self, file: Path) -> None:
        """Write where the shard stands."""
        self.shard.save(file)

    def restore(self, file: Path) -> None:
        """Go on from there."""
        self.shard.restore(file)


class There:
    """A shard on a worker of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
    instructions : Instructions
    load : mapping from name to array, or callable
    index : int
        Of the shard: neighbours are on different workers.
    recoverable : bool
        Whether messages are kept, to make the shard again if its worker dies.
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
        workers = sorted(self._workers())
        self._worker = workers[self._index % len(workers)]
        self._made = self._client.submit(
            Shard, *self._arguments, actor=True, pure=False, workers=[self._worker]
        )
        self._actor: Any = None
        self._future: Any = None

    def _workers(self) -> dict[str, Any]:
        workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        return workers

    def _call(self, method: str, *arguments: Any) -> Any:
        if self._actor is None:
            self._actor = self._made.result()
        return getattr(self._actor, method)(*arguments)

    def _result(self, future: Any) -> Any:
        while True:
            try:
                return future.result(timeout=PATIENCE)
            except TimeoutError:
                if self._worker not in self._workers():
                    raise OSError(f"worker {self._worker} is gone") from None

    def send(self, method: str, *arguments: Any) -> None:
        """Call a method, without waiting for it."""
        if self._recoverable:
            self._messages.append((method, arguments))
        try:
            self._future = self._call(method, *arguments)
        except (OSError, RuntimeError) as lost:
            self._refuse_loss(lost)
            self._future = None

    def receive(self) -> Any:
        """What the call returned; a shard that is lost is made again."""
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


class Crew:
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
        Of the next message.
    """

    def __init__(
        self, instructions: Instructions, shards: Sequence[Load], client: Any, *, recoverable: bool
    ) -> None:
        self.members: list[Member] = (
            [Here(instructions, load) for load in shards]
            if client is None
            else [
                There(client, instructions, load, index, recoverable)
                for index, load in enumerate(shards)
            ]
        )
        self.number = 0

    def begin(self, seeds: Sequence[Any], shared: Any) -> None:
        """Begin a chain in each shard, with a seed of its own."""
        for member, seed in zip(self.members, seeds, strict=True):
            member.send("begin", self.number, seed, shared)
        self._collect()

    def draw(self, which: int, shared: Any) -> list[Any]:
        """Draw the latent variables of a round; the sums of each shard."""
        for member in self.members:
            member.send("draw", self.number, which, shared)
        return self._collect()

    def _collect(self) -> list[Any]:
        answers = [member.receive() for member in self.members]
        self.number += 1
        return answers

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
