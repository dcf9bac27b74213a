"""A run on disk: draws and statistics of its chains in Zarr, with a checkpoint of each.

The layout is that of PyMC's own Zarr traces, in version 2 of the format, so that xarray opens a run
while it goes on: ``posterior`` and ``sample_stats`` have arrays (chain, draw, ...), the draws of
tuning first, with one chunk for the draws between two checkpoints; objects are pickled. PyMC's
``ZarrTrace`` itself would not do: it needs Zarr 2; it keeps neither seeds nor points, which cannot
be had back from draws to the last bit; it writes a state and the number of draws that belong to it
one after the other, a kill between the two leaving a state that is ahead; and it cuts off the draws
of tuning in place at the end.

A chunk of draws is written first and then the checkpoint after it, a single object that its
predecessor is replaced by. Whatever a run is killed in, the checkpoint is followed by nothing that
counts: what was written beyond it is written again, with the same bits. A checkpoint has digests of
all that was written before it, since an array in Zarr reads as zeros where a file is not there.
"""

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pymc.backends.ndarray import NDArray as Trace
from pymc.step_methods.compound import flat_statname

from pymc_nnsteps.kernels.files import digest
from pymc_nnsteps.runs.fingerprint import Fingerprint, damaged, sealed, unsealed
from pymc_nnsteps.runs.run import Checkpoint, Run
from pymc_nnsteps.runs.tasks import needed

CHECKPOINTS, RUN = "checkpoints", "run"

UNREADABLE = AttributeError, KeyError, MemoryError, RuntimeError, TypeError, ValueError
"""Exceptions of Zarr for missing or invalid metadata and truncated or damaged chunks."""


class Store:
    """A run on disk, in a folder or at a URL; ``draws`` of a chain include those of tuning."""

    def __init__(self, location: str) -> None:
        self.location = location
        if Path(location).is_file():
            raise ValueError(
                f"{location} is a file, but a run is a folder: nns.load reads files of nns.save, "
                "and only runs of nns.runs.sample_distributed can be continued."
            )
        zarr = needed("zarr")
        attributes = {}
        with self._intact(".zgroup, or .zattrs,"), suppress(FileNotFoundError, FileExistsError):
            self._group = zarr.open_group(location, mode="r+", zarr_format=2)
            attributes = dict(self._group.attrs)
        if "fingerprint" not in attributes:
            raise ValueError(
                f"{location} holds no run, one that was interrupted at its start, or one that has "
                "lost its .zgroup or .zattrs: restore these from a copy, or move the folder away "
                "and start with nns.runs.sample_distributed."
            )
        self.identity: str = attributes["identity"]
        self.chains: int = attributes["chains"]
        self.draws: int = attributes["draws"]
        self.draws_per_chunk: int = attributes["draws_per_chunk"]
        self.fingerprint = Fingerprint.loads(attributes["fingerprint"])

    @staticmethod
    def require_new(location: str) -> None:
        """Refuse a place where something is, on a disk."""
        place = Path(location)
        if place.is_file() or (place.is_dir() and any(place.iterdir())):
            raise _is_there(location)

    @classmethod
    def create(cls, location: str, run: Run, draws: int, starts: Sequence[Checkpoint]) -> Self:
        """Make room for a run, whose chains are before their first draws."""
        zarr = needed("zarr")
        chains = len(starts)
        try:
            group = zarr.open_group(location, mode="w-", zarr_format=2)
        except FileExistsError:
            raise _is_there(location) from None
        room = {"chunks": (1,), "dtype": _as_bytes(zarr), "fill_value": b"", "compressors": None}
        for name, n in ((RUN, 1), (CHECKPOINTS, chains)):  # pickles, one object each
            group.create_array(name, shape=(n,), **room)
        _write(group[RUN], 0, run)
        for chain, start in enumerate(starts):
            _write(group[CHECKPOINTS], chain, start)
        for path, values in _arrays(run.trace(0, 1)):
            name = path.partition("/")[2]
            dims = run.model.named_vars_to_dims.get(name)
            own = dims or [f"{name}_dim_{axis}" for axis in range(values.ndim - 1)]
            group.create_array(
                path,
                shape=(chains, draws, *values.shape[1:]),
                chunks=(1, run.draws_per_chunk, *(max(n, 1) for n in values.shape[1:])),
                dtype=_as_bytes(zarr) if values.dtype == object else values.dtype,
                fill_value=b"" if values.dtype == object else None,
                attributes={"_ARRAY_DIMENSIONS": ["chain", "draw", *own]},
            )
        group.attrs.update(
            {
                "chains": chains,
                "draws": draws,
                "draws_per_chunk": run.draws_per_chunk,
                "identity": run.identity,
                "fingerprint": run.fingerprint.dumps(),
            }
        )
        return cls(location)

    def extend(self, draws: int) -> None:
        """Make room for more draws of each chain."""
        self.draws += draws
        for name in ("posterior", "sample_stats"):
            with self._intact(f"{name}/.zgroup, or {name}/.zattrs,"):
                arrays = [array for _, array in self._group[name].arrays()]
            for array in arrays:
                array.resize((self.chains, self.draws, *array.shape[2:]))
        self._group.attrs.update({"draws": self.draws})

    def run(self) -> Run:
        """Model and step of the run."""
        self.fingerprint.require_versions(self.location)
        return self._unpickled(RUN, 0)

    def checkpoint(self, chain: int) -> Checkpoint:
        """State of a chain."""
        return self._unpickled(CHECKPOINTS, chain)

    def standing(self) -> list[int]:
        """Numbers of draws of the chains."""
        return [self.checkpoint(chain).done for chain in range(self.chains)]

    def write(self, trace: Trace, checkpoint: Checkpoint) -> Checkpoint:
        """Add draws of a chain, and where it stands after them, which is returned."""
        chain, first = trace.chain, checkpoint.done - len(trace)
        digests = []
        for path, values in _arrays(trace):
            stored = values
            if values.dtype == object:
                stored = _column([pickle.dumps(value) for value in values])
            self._group[path][chain, first : checkpoint.done] = stored
            digests.append(_digest(stored))
        piece = checkpoint.done, tuple(digests)
        checkpoint = replace(checkpoint, written=(*checkpoint.written, piece))
        _write(self._group[CHECKPOINTS], chain, checkpoint)
        return checkpoint

    def read(self, run: Run, chain: int) -> Trace:
        """All draws of a chain."""
        checkpoint = self.checkpoint(chain)
        trace = run.trace(chain, checkpoint.done)
        for number, (path, values) in enumerate(_arrays(trace)):
            pieces = [(end, digests[number]) for end, digests in checkpoint.written]
            found = self._draws(path, chain, pieces)
            if values.dtype == object:
                found = _column([pickle.loads(value) for value in found])
            values[...] = found
        trace.draw_idx = checkpoint.done
        return trace

    def _draws(self, path: str, chain: int, pieces: list[tuple[int, bytes]]) -> NDArray[Any]:
        """An array of draws as it is stored, each piece of it compared with its digest."""
        with self._intact(f"{path}/.zarray"):
            array = self._group[path]
            zeros = [0] * len(array.shape[2:])
        rows: NDArray[Any] | None = None
        with suppress(*UNREADABLE):
            rows = array[chain, : max((end for end, _ in pieces), default=0)]
        first = 0
        for end, expected in pieces:
            chunk = chain, first // self.draws_per_chunk, *zeros
            file = f"{path}/{'.'.join(map(str, chunk))}"
            with self._intact(file):
                piece = array[chain, first:end] if rows is None else rows[first:end]
            if _digest(piece) != expected:
                raise damaged(f"{file} of the run in {self.location}")
            first = end
        if rows is None:
            raise damaged(f"{path} of the run in {self.location}")
        return rows

    def _unpickled(self, path: str, row: int) -> Any:
        with self._intact(f"{path}/{row}, or {path}/.zarray,"):
            _require_one_object(Path(self.location, path, str(row)))
            [found] = self._group[path][row : row + 1]
        return unsealed(found, f"{path}/{row} of the run in {self.location}")

    @contextmanager
    def _intact(self, what: str) -> Iterator[None]:
        """Name what cannot be read."""
        try:
            yield
        except UNREADABLE as error:
            raise damaged(f"{what} of the run in {self.location}") from error


def _is_there(location: str) -> ValueError:
    return ValueError(
        f"{location} exists already: nns.runs.resume continues a run; remove the folder, or give "
        "another store, for a new one."
    )


def _require_one_object(chunk: Path) -> None:
    """Refuse a chunk that says it has more than one object: Zarr makes room for all of them."""
    if chunk.is_file():
        with chunk.open("rb") as file:
            if int.from_bytes(file.read(4), "little") != 1:
                raise ValueError


def _arrays(trace: Trace) -> Iterator[tuple[str, NDArray[Any]]]:
    """Arrays that a trace keeps, each with its path in the store."""
    for name, values in trace.samples.items():
        yield f"posterior/{name}", values
    for number, stats in enumerate(trace._stats):
        for name, values in stats.items():
            yield f"sample_stats/{flat_statname(number, name)}", values


def _as_bytes(zarr: Any) -> Any:
    return zarr.dtype.VariableLengthBytes()


def _write(array: Any, row: int, value: Any) -> None:
    array[row : row + 1] = _column([sealed(value)])


def _digest(stored: NDArray[Any]) -> bytes:
    """Digest of an array as it is stored: of numbers, or of bytes."""
    return digest(*stored) if stored.dtype == object else digest(stored.tobytes())


def _column(values: list[Any]) -> NDArray[Any]:
    """An array of objects, whatever these are."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
