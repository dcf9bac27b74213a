"""Work in this process or on a Dask cluster, an optional dependency, with one progress bar."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import RLock
from typing import Any
from uuid import uuid4

from pymc.progress_bar import create_simple_progress
from pytensor.compile.mode import Mode

_log = logging.getLogger("pymc.nnsteps")

COMPILING = RLock()
"""PyTensor compiles in one thread of a process at a time: where several do, the settings that each
changes for a while may stay changed, and functions are compiled otherwise, or not to C, from then
on."""

QUICK = Mode(linker="py", optimizer="fast_compile")
"""Compilation mode of functions that are called a few times."""

type Calls = Sequence[Mapping[str, Any]]
"""Arguments of a function by their names, for calls one after another."""


def needed(module: str) -> Any:
    """Import an optional dependency."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise ImportError(
            f'{module} is not installed; install it with pip install "pymc_nnsteps[distributed]".'
        ) from None


def require_client(client: object) -> None:
    """Check that a client is one of Dask's, or None."""
    if client is not None and not isinstance(client, needed("distributed").Client):
        raise ValueError(
            "client must be a distributed.Client of a Dask cluster, such as Client(cluster), or "
            f"None to work in this process; got {client!r}."
        )


def carried_out(
    client: Any, function: Callable[..., Any], sequences: Sequence[Calls]
) -> Iterator[tuple[int, Any]]:
    """Make calls of each sequence one after another; yield the sequence's number and the result.

    A call may be repeated where a worker died. Without a client all are made here.
    """
    if client is None:
        for number, calls in enumerate(sequences):
            for arguments in calls:
                yield number, function(**arguments)
        return
    futures: dict[Any, int] = {}
    for number, calls in enumerate(sequences):
        before = None
        for arguments in calls:
            key = f"{getattr(function, '__name__', 'call')}-{uuid4().hex}"
            before = client.submit(_call, function, arguments, before, key=key)
            futures[before] = number
    for future in needed("distributed").as_completed(futures):
        yield futures[future], future.result()


def _call(function: Callable[..., Any], arguments: Mapping[str, Any], before: Any) -> Any:
    """Call a function, after what is ``before``."""
    return function(**arguments)


def alone(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call a function that may compile, in one thread of a process at a time."""
    with COMPILING:
        return function(**arguments)


@contextmanager
def saying(how: Callable[[], str]) -> Iterator[None]:
    """Say, where work is interrupted, how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        _log.info("Interrupted: %s", how())
        raise


@contextmanager
def bar(name: str, done: int, total: int, progressbar: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar, as a function that makes it grow."""
    progress = create_simple_progress(progressbar=progressbar)
    with progress:
        task = progress.add_task(name, completed=done, total=total)

        def grow(by: int) -> None:
            nonlocal done
            done += by
            progress.update(task, completed=done)

        yield grow
