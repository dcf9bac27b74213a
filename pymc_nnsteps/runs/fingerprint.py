"""Fingerprint of a stored run (data, model, steps and versions), and files that one process writes.

Data and constants are known by digests, and what is done with them by the graph of the log density
of each factor and of each expression, as PyTensor prints it. What a function in Python does that
PyTensor does not see into is known by its name only.
"""

import inspect
import json
import platform
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from numbers import Number
from pathlib import Path
from typing import Any, Self

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
from filelock import FileLock, Timeout
from pymc.step_methods.compound import flatten_steps
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.traversal import graph_inputs
from pytensor.printing import debugprint
from pytensor.tensor.random.type import RandomType

from pymc_nnsteps.compile import files
from pymc_nnsteps.runs.tasks import COMPILING
from pymc_nnsteps.steps.assignment import Step


def location_of(store: str | Path) -> str:
    """A place that means the same in all processes: an absolute path, or a URL as it is."""
    if not isinstance(store, str | Path):
        raise ValueError(f"store must be a folder or a URL; got {type(store).__name__}.")
    return str(store) if "://" in str(store) else str(Path(store).absolute())


@contextmanager
def writing(place: str | Path) -> Iterator[None]:
    """Be the one process that writes to a place, by a lock on a file; URLs have none."""
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
        f"{what} is lost or damaged; restore it from a copy, or start the run again elsewhere: the "
        "same random_seed gives the same draws."
    )


def write(file: Path, value: Any) -> None:
    """Replace a file by a pickle behind its digest."""
    files.replace(file, files.sealed(cloudpickle.dumps(value)))


def read(file: Path) -> Any:
    """Value that was written."""
    content = files.unsealed(file.read_bytes()) if file.exists() else None
    if content is None:
        raise damaged(str(file))
    return cloudpickle.loads(content)


DECISIVE = ("python", "pymc_nnsteps", "pymc", "pytensor", "floatX")
"""Versions that decide what is drawn, and whether pickles can be read."""

ROUNDING = ("numpy", "numba", "scipy")
"""Versions that decide the last digits of the draws, and how random numbers are made of bits."""


def versions() -> dict[str, str]:
    """Versions, and the precision, that this process draws with."""
    names = (name for name in (*DECISIVE, *ROUNDING) if name not in ("python", "floatX"))
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "floatX": pytensor.config.floatX,
        **{name: import_module(name).__version__ for name in names},
    }


@dataclass(frozen=True)
class Fingerprint:
    """Identity of a run."""

    versions: Mapping[str, str]
    # Variables, data, constants, labels, steps and arguments, in words and digests.
    words: Mapping[str, str]
    # Digests of the graphs of log densities, of deterministic variables and of test functions.
    graphs: Mapping[str, str]

    @classmethod
    def of(
        cls,
        model: pm.Model,
        settings: Mapping[str, Any] | None = None,
        functions: Mapping[str, Variable] | None = None,
    ) -> Self:
        """Take the fingerprint of a model with the data that it has now."""
        functions = functions or {}
        factors = [*model.basic_RVs, *model.potentials]
        with COMPILING:
            densities = model.logp(factors, sum=False)
        parts = {rv.name: [rv, model.rvs_to_values[rv]] for rv in model.basic_RVs}
        parts |= {each.name: [each] for each in [*model.potentials, *model.deterministics]}
        parts |= {name: [each] for name, each in functions.items()}
        graphs = {f"log density of {f.name}": p for f, p in zip(factors, densities, strict=True)}
        graphs |= {f"values of {each.name}": each for each in model.deterministics}
        graphs |= functions
        constants = {f"constants of {name}": _constants(model, of) for name, of in parts.items()}
        arguments = {name: in_words(each) for name, each in (settings or {}).items()}
        return cls(
            versions(),
            _words(model) | constants | arguments,
            {name: _graph(each) for name, each in graphs.items()},
        )

    def dumps(self) -> str:
        """Serialise as text."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Self:
        """Read from text."""
        return cls(**json.loads(text))

    def other_versions(self) -> dict[str, str]:
        """Versions that are others here, in words."""
        here = versions()
        return {
            name: f"{name} {then} (here {here[name]})"
            for name, then in self.versions.items()
            if then != here[name]
        }

    def require_versions(self, place: str) -> None:
        """Refuse to go on with other laws than those of the beginning; warn of other rounding."""
        other = self.other_versions()
        if decisive := [other[name] for name in DECISIVE if name in other]:
            raise ValueError(
                f"{place} was started with {', '.join(decisive)}: a run must continue with the "
                "same versions, because others may draw differently; install those."
            )
        if other:
            warnings.warn(
                f"{place} was started with {', '.join(other.values())}: it has the same "
                "distribution, but draws from here on may differ from those of one uninterrupted "
                "run.",
                stacklevel=2,
            )

    def differences(self, other: "Fingerprint") -> list[str]:
        """What differs beside versions, with words that can be read; graphs if nothing else."""
        return _differences(self.words, other.words) or _differences(self.graphs, other.graphs)

    def require_same(self, place: str, other: "Fingerprint") -> None:
        """Refuse to go on with another run than this one, which is kept in a place."""
        self.require_versions(place)
        if found := self.differences(other):
            raise ValueError(
                f"{place} holds a run that differs in {', '.join(found)}; continue with what it "
                "was started with, or store this run elsewhere."
            )


@dataclass(frozen=True)
class RunFile:
    """File with the state and the fingerprint of a run."""

    file: Path
    fingerprint: Fingerprint

    def write(self, state: Any) -> None:
        """Replace what was kept before."""
        write(self.file, (self.fingerprint.dumps(), cloudpickle.dumps(state)))

    def read(self) -> Any:
        """State that is stored; None before the first write."""
        if not self.file.exists():
            return None
        fingerprint, state = read(self.file)
        Fingerprint.loads(fingerprint).require_same(str(self.file), self.fingerprint)
        return cloudpickle.loads(state)


def _differences(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of what differs, with the words where they can be read."""
    found = []
    for name in dict.fromkeys([*then, *now]):
        if (before := then.get(name, "none")) != (after := now.get(name, "none")):
            readable = "digest" not in before + after
            found.append(f"{name} ({before}, now {after})" if readable else name)
    return found


# --- a model -------------------------------------------------------------------------------


def _words(model: pm.Model) -> dict[str, str]:
    """Variables, data and labels."""
    found = {}
    for rv in model.free_RVs:
        value, transform = model.rvs_to_values[rv], type(model.rvs_to_transforms[rv]).__name__
        found[f"variable {rv.name}"] = f"{value.dtype} of {value.type.ndim} axes, {transform}"
    for data in model.data_vars:
        found[f"data container {data.name}"] = in_words(np.asarray(data.get_value(borrow=True)))
    for dim, labels in model.coords.items():
        if labels is not None:
            found[f"coordinate {dim}"] = _digest(map(str, labels))
    return found


def _constants(model: pm.Model, parts: list[Variable]) -> str:
    """Digest of the constants in expressions, those behind other named variables left out."""
    named = set(model.named_vars.values())
    leaves = graph_inputs(parts, blockers=named.difference(parts))
    texts = {
        in_words(leaf.data if isinstance(leaf, Constant) else leaf.get_value(borrow=True))
        for leaf in leaves
        if leaf not in named
        and isinstance(leaf, Constant | SharedVariable)
        and not isinstance(leaf.type, RandomType)
    }
    return _digest(sorted(texts))


def _graph(expression: Variable) -> str:
    """Digest of a graph as it is printed, without addresses, equal parts being one."""
    merged = FunctionGraph(outputs=[expression], clone=True)
    MergeOptimizer().rewrite(merged)
    text = str(debugprint(merged.outputs, file="str", print_type=True))
    return _digest([re.sub("0x[0-9a-f]+", "", text)])


# --- steps, and anything in words ----------------------------------------------------------


def steps_in_words(step: Step) -> dict[str, str]:
    """Class and options of each step, as they are now, by the variables that it moves."""
    return {
        f"step of {', '.join(str(variable.name) for variable in each.vars)}": _step(each)
        for each in flatten_steps(step)
    }


def _step(step: Any) -> str:
    positional, named = step.__getnewargs_ex__()
    given = inspect.signature(type(step).__init__).bind(step, *positional, **named)
    given.apply_defaults()
    _, _, *options = given.arguments.items()
    words = (f"{name}={in_words(vars(step).get(name, value))}" for name, value in options)
    return f"{type(step).__qualname__}({', '.join(words)})"


def in_words(value: Any) -> str:
    """Anything, in words that are the same in each process: arrays of many by their digests."""
    if isinstance(value, np.ndarray) and value.ndim:
        entries = value.ravel().tolist() if value.dtype == object else [value.tobytes()]
        shown = value.item() if value.size == 1 else _digest(entries)
        return f"{value.dtype}{list(value.shape)} {shown}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {in_words(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(in_words, value))}]"
    if isinstance(value, str | Number | np.ndarray | np.generic | slice | None):
        return str(value)
    if isinstance(value, Variable):
        return str(value.name)
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _digest(parts: Iterable[Any]) -> str:
    """Digest of bytes and of values written by :func:`in_words`."""
    data = (part if isinstance(part, bytes) else str(part).encode() for part in parts)
    return f"digest {files.digest(*data).hex()}"
