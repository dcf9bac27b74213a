"""Files of runs: one process writes at a time, and errors name the damaged part.

What is written once is a pickle behind its digest, so that half of one is never read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import cloudpickle
from filelock import FileLock, Timeout

DIGEST_SIZE = 16


def location_of(store: str | Path) -> str:
    """A place that means the same in all processes: an absolute path, or a URL as it is."""
    if not isinstance(store, str | Path):
        raise ValueError(f"store must be a folder or a URL; got {type(store).__name__}.")
    return str(store) if "://" in str(store) else str(Path(store).absolute())


@contextmanager
def writing(place: str | Path) -> Iterator[None]:
    """Be the one process that writes to a place, by a lock on a file beside it.

    The operating system takes the lock back from a process that ends, however it does. Nothing is
    locked at a URL.
    """
    location = location_of(place)
    if "://" in location:
        yield
        return
    Path(location).parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{Path(location).resolve()}.lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise RuntimeError(
            f"another process is writing to {place}; wait until it has ended, or end it first."
        ) from None
    try:
        yield
    finally:
        lock.release()


def damaged(what: str) -> ValueError:
    """The error for a part of a run that is not as it was written."""
    return ValueError(
        f"{what} is lost or damaged; bring it back from a copy, or begin the run again elsewhere: "
        "with the same random_seed it has the same draws."
    )


def digest(*parts: bytes) -> bytes:
    """Digest of bytes, which depends on their division into parts."""
    found = blake2b(digest_size=DIGEST_SIZE)
    for part in parts:
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.digest()


def sealed(value: Any) -> bytes:
    """A pickle behind its digest."""
    data = cloudpickle.dumps(value)
    return digest(data) + data


def unsealed(data: bytes, what: str) -> Any:
    """Value of a sealed pickle."""
    if digest(data[DIGEST_SIZE:]) != data[:DIGEST_SIZE]:
        raise damaged(what)
    return cloudpickle.loads(data[DIGEST_SIZE:])


def write(file: Path, value: Any) -> None:
    """Replace a file at once: an interrupt leaves the old one or the new one."""
    part = file.with_name(f"{file.name}.part")
    part.write_bytes(sealed(value))
    part.replace(file)


def read(file: Path) -> Any:
    """Value that was written."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise damaged(str(file)) from None
    return unsealed(data, str(file))
