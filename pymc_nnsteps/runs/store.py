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
counts: what was written beyond it is written again, with the same bits. Each file has a checksum,
by Zstandard, and one that is missing is an error, not zeros.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import cloudpickle
import numpy as np
from numpy.typing import NDArray
from pymc.backends.ndarray import NDArray as Trace
from pymc.step_methods.compound import flat_statname

from pymc_nnsteps.runs.fingerprint import Fingerprint, damaged
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
        checked = {"compressors": needed("numcodecs").Zstd(checksum=True)}
        pickles = {"dtype": zarr.dtype.VariableLengthBytes(), "fill_value": b"", **checked}
        objects: dict[str, Sequence[Any]] = {RUN: [run], CHECKPOINTS: starts}
        for name, each in objects.items():
            group.create_array(name, shape=(len(each),), chunks=(1,), **pickles)[:] = _pickled(each)
        for path, values in _arrays(run.trace(0, 1)):
            name = path.partition("/")[2]
            dims = run.model.named_vars_to_dims.get(name)
            own = dims or [f"{name}_dim_{axis}" for axis in range(values.ndim - 1)]
            numbers = {"dtype": values.dtype, "fill_value": None, **checked}
            group.create_array(
                path,
                shape=(chains, draws, *values.shape[1:]),
                chunks=(1, run.draws_per_chunk, *(max(n, 1) for n in values.shape[1:])),
                attributes={"_ARRAY_DIMENSIONS": ["chain", "draw", *own]},
                **(pickles if values.dtype == object else numbers),
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
            with self._intact(name):
                arrays = [array for _, array in self._group[name].arrays()]
            for array in arrays:
                array.resize((self.chains, self.draws, *array.shape[2:]))
        self._group.attrs.update({"draws": self.draws})

    def run(self) -> Run:
        """Model and step of the run."""
        self.fingerprint.require_versions(self.location)
        return self._object(RUN, 0)

    def checkpoint(self, chain: int) -> Checkpoint:
        """State of a chain."""
        return self._object(CHECKPOINTS, chain)

    def standing(self) -> list[int]:
        """Numbers of draws of the chains."""
        return [self.checkpoint(chain).done for chain in range(self.chains)]

    def write(self, trace: Trace, checkpoint: Checkpoint) -> None:
        """Add draws of a chain, and where it stands after them."""
        chain, end = trace.chain, checkpoint.done
        for path, values in _arrays(trace):
            stored = _pickled(values) if values.dtype == object else values
            self._array(path)[chain, end - len(trace) : end] = stored
        self._array(CHECKPOINTS)[chain : chain + 1] = _pickled([checkpoint])

    def read(self, run: Run, chain: int) -> Trace:
        """All draws of a chain."""
        done = self.checkpoint(chain).done
        trace = run.trace(chain, done)
        for path, values in _arrays(trace):
            with self._intact(path):
                found = self._array(path)[chain, :done]
            values[...] = _unpickled(found) if values.dtype == object else found
        trace.draw_idx = done
        return trace

    def _object(self, path: str, row: int) -> Any:
        with self._intact(f"{path}/{row}"):
            [found] = self._array(path)[row : row + 1]
        return cloudpickle.loads(found)

    def _array(self, path: str) -> Any:
        """An array all of whose chunks that count are there, also where they are zeros."""
        config = {"write_empty_chunks": True, "read_missing_chunks": False}
        return self._group[path].with_config(config)

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


def _arrays(trace: Trace) -> Iterator[tuple[str, NDArray[Any]]]:
    """Arrays that a trace keeps, each with its path in the store."""
    for name, values in trace.samples.items():
        yield f"posterior/{name}", values
    for number, stats in enumerate(trace._stats):
        for name, values in stats.items():
            yield f"sample_stats/{flat_statname(number, name)}", values


def _pickled(values: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    return _column([cloudpickle.dumps(value) for value in values])


def _unpickled(values: NDArray[Any]) -> NDArray[Any]:
    return _column([cloudpickle.loads(value) for value in values])


def _column(values: list[Any]) -> NDArray[Any]:
    """An array of objects, whatever these are."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
