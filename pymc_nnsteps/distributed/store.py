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
counts: what was written beyond it is written again, with the same bits.
"""

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import cloudpickle
import numpy as np
from numpy.typing import NDArray
from pymc.backends.ndarray import NDArray as Trace
from pymc.step_methods.compound import flat_statname

from pymc_nnsteps.distributed.extras import needed
from pymc_nnsteps.distributed.runs import Checkpoint, Run

CHECKPOINTS, RUN = "checkpoints", "run"


class Store:
    """A run on disk.

    Parameters
    ----------
    location : str
        A folder or a URL.

    Raises
    ------
    ValueError
        If there is no run.

    Attributes
    ----------
    location : str
    identity : str
        Of the run.
    chains : int
    draws : int
        What each chain is to have in the end, the draws of tuning included.
    draws_per_chunk : int
    """

    def __init__(self, location: str) -> None:
        self.location = location
        try:
            self._group = needed("zarr").open_group(location, mode="r+", zarr_format=2)
            attributes = dict(self._group.attrs)
        except (FileNotFoundError, FileExistsError):
            attributes = {}
        if "identity" not in attributes:
            raise ValueError(
                f"{location} holds no run, or one whose beginning was cut short: remove it, and "
                "begin with nns.sample_distributed."
            )
        self.identity: str = attributes["identity"]
        self.chains: int = attributes["chains"]
        self.draws: int = attributes["draws"]
        self.draws_per_chunk: int = attributes["draws_per_chunk"]

    @classmethod
    def create(cls, location: str, run: Run, draws: int, starts: Sequence[Checkpoint]) -> Self:
        """Make room for a run, whose chains are before their first draws.

        Raises
        ------
        ValueError
            If something is there already.
        """
        zarr = needed("zarr")
        chains = len(starts)
        try:
            group = zarr.open_group(location, mode="w-", zarr_format=2)
        except FileExistsError:
            raise ValueError(
                f"{location} is there already: nns.resume goes on with a run; remove it, or give "
                "another store, for a new one."
            ) from None
        _add(group, RUN, 1)
        _add(group, CHECKPOINTS, chains)
        _write(group[RUN], slice(0, 1), [cloudpickle.dumps(run)])
        for chain, start in enumerate(starts):
            _write(group[CHECKPOINTS], slice(chain, chain + 1), [cloudpickle.dumps(start)])
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
            }
        )
        return cls(location)

    def extend(self, draws: int) -> None:
        """Make room for more draws of each chain."""
        self.draws += draws
        for name in ("posterior", "sample_stats"):
            for _, array in self._group[name].arrays():
                array.resize((self.chains, self.draws, *array.shape[2:]))
        self._group.attrs.update({"draws": self.draws})

    def run(self) -> Run:
        """What is sampled."""
        return _unpickled(self._group[RUN], 0)

    def checkpoint(self, chain: int) -> Checkpoint:
        """Where a chain stands."""
        return _unpickled(self._group[CHECKPOINTS], chain)

    def write(self, trace: Trace, checkpoint: Checkpoint) -> None:
        """Add draws of a chain, and where it stands after them."""
        chain = trace.chain
        rows = slice(checkpoint.done - len(trace), checkpoint.done)
        for path, values in _arrays(trace):
            if values.dtype == object:
                values = _column([pickle.dumps(value) for value in values])
            self._group[path][chain, rows] = values
        _write(self._group[CHECKPOINTS], slice(chain, chain + 1), [pickle.dumps(checkpoint)])

    def read(self, run: Run, chain: int) -> Trace:
        """All draws of a chain."""
        done = self.checkpoint(chain).done
        trace = run.trace(chain, done)
        for path, values in _arrays(trace):
            found = self._group[path][chain, :done]
            if values.dtype == object:
                found = _column([pickle.loads(value) for value in found])
            values[...] = found
        trace.draw_idx = done
        return trace


def location_of(store: str | Path) -> str:
    """A place that means the same in all processes: an absolute path, or a URL as it is."""
    return str(store) if "://" in str(store) else str(Path(store).absolute())


def _arrays(trace: Trace) -> Iterator[tuple[str, NDArray[Any]]]:
    """Arrays that a trace keeps, each with its path in the store."""
    for name, values in trace.samples.items():
        yield f"posterior/{name}", values
    for number, stats in enumerate(trace._stats):
        for name, values in stats.items():
            yield f"sample_stats/{flat_statname(number, name)}", values


def _as_bytes(zarr: Any) -> Any:
    return zarr.dtype.VariableLengthBytes()


def _add(group: Any, name: str, n: int) -> None:
    """Room for pickles, one object each."""
    group.create_array(
        name,
        shape=(n,),
        chunks=(1,),
        dtype=_as_bytes(needed("zarr")),
        fill_value=b"",
        compressors=None,
    )


def _write(array: Any, rows: slice, pickles: list[bytes]) -> None:
    array[rows] = _column(pickles)


def _unpickled(array: Any, row: int) -> Any:
    [found] = array[row : row + 1]
    return pickle.loads(found)


def _column(values: list[Any]) -> NDArray[Any]:
    """An array of objects, whatever these are."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
