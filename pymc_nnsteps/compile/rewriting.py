"""Rewritten graphs, kept beside machine code: PyTensor rewrites a sweep in a second, or longer.

The key of a rewritten graph is a digest of the graph that was given, of the rewrites and settings,
and of the versions of the packages. The digest covers operations with all that they hold, types,
constants, and which inputs may be overwritten. Graphs with operations of other packages are
rewritten each time, as their code may change under its name.
"""

import contextlib
import functools
import hashlib
import itertools
import pickle
import sys
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple, override
from weakref import WeakSet

import numpy as np
import pymc as pm
import pytensor
import scipy
from pymc.pytensorf import compile as pymc_compile
from pytensor.compile.aliasing import Supervisor
from pytensor.compile.mode import Mode, optdb
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph, Output
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.utils import MetaObject
from pytensor.misc.frozendict import frozendict

from pymc_nnsteps.compile import files, jit, native

KNOWN_PACKAGES = {"builtins", "functools", "numpy", "operator", "scipy"}
KNOWN_PACKAGES |= {"pymc", "pymc_nnsteps", "pytensor"}
"""Packages whose versions are part of a key."""

SETTINGS: tuple[str, ...] = ("cast_policy", "cxx", "cycle_detection", "floatX", "lib__amdlibm")
SETTINGS += ("openmp", "openmp_elemwise_minsize", "optdb__max_use_ratio", "optdb__position_cutoff")
SETTINGS += ("scan__allow_output_prealloc", "tensor__cmp_sloppy")
SETTINGS += ("tensor__insert_inplace_optimizer_validate_nb",)
"""PyTensor's settings that its rewrites look at; to read all of them starts compilers."""

OF_GRADIENTS = {"pullback_overrides", "_lop_op_cache", "_frozen_lop", "_connection_pattern"}
OF_GRADIENTS |= {"pushforward_overrides", "_rop_op_cache", "_frozen_rop"}
"""What a part of a graph holds to be differentiated."""

LARGEST, MOST = 2**22, 400
"""Bytes of the largest graph that is kept, and how many are kept."""

DEEPEST = 50
"""How far objects in objects are described; those that hold themselves are not."""


class Replace(GraphRewriter):
    """Replace nodes' outputs by what a function of a node gives, unless that is None."""

    def __init__(self, outputs: Callable[[Apply], list[Variable] | None]) -> None:
        super().__init__()
        self.outputs = outputs

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        pairs = [
            pair
            for node in reversed(fgraph.toposort())
            if (found := self.outputs(node)) is not None
            for pair in zip(node.outputs, found, strict=True)
        ]
        fgraph.replace_all_validate(pairs)


class FlatGraph(NamedTuple):
    """A graph as lists: inputs, constants, and results of nodes are numbered in this order."""

    inputs: list[Any]  # types
    constants: list[tuple[Any, Any]]  # types and values
    nodes: list[tuple[Any, list[int], list[Any]]]  # operation, inputs, types of results
    outputs: list[int]


def flat(graph: AbstractFunctionGraph) -> FlatGraph:
    """A graph as lists."""
    nodes = graph.toposort()
    used = [v for node in nodes for v in node.inputs] + list(graph.outputs)
    constants = list(dict.fromkeys(v for v in used if isinstance(v, Constant)))
    results = [v for node in nodes for v in node.outputs]
    number = {v: k for k, v in enumerate((*graph.inputs, *constants, *results))}
    return FlatGraph(
        [v.type for v in graph.inputs],
        [(v.type, v.data) for v in constants],
        [(n.op, [number[v] for v in n.inputs], [v.type for v in n.outputs]) for n in nodes],
        [number[v] for v in graph.outputs],
    )


def outputs_of(graph: FlatGraph, inputs: Sequence[Variable]) -> list[Variable]:
    """Outputs of a graph, as functions of given inputs."""
    variables = [*inputs, *(kind.make_constant(value) for kind, value in graph.constants)]
    for op, arguments, types in graph.nodes:
        node = Apply(op, [variables[k] for k in arguments], [kind() for kind in types])
        variables += node.outputs
    return [variables[k] for k in graph.outputs]


UNFINISHED: WeakSet[FunctionGraph] = WeakSet()
"""Graphs that are not kept, because a compiler has refused a part of them."""


class _UnknownError(Exception):
    """What cannot be described, or may change under its name."""


class _Description:
    """Nested tuples that are equal only for equal operations, types and numbers."""

    def __init__(self, left_out: Set[str]) -> None:
        self._left_out = left_out  # attributes of operations
        self._found: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any, depth: int = 0) -> Any:
        """The type of an object and what it consists of."""
        if id(value) not in self._found:
            if depth > DEEPEST:
                raise _UnknownError(value)
            parts = self._parts(value)
            if not isinstance(parts, str):
                parts = tuple(self.of(part, depth + 1) for part in parts)
            self._found[id(value)] = value, (type(value).__qualname__, parts)
        return self._found[id(value)][1]

    def _parts(self, value: Any) -> str | Iterable[Any]:
        """What an object consists of; text, if it has no parts."""
        if value is None or isinstance(value, bool | int | float | complex | str | np.dtype):
            return repr(value)
        is_array = type(value) is np.ndarray or isinstance(value, np.generic)
        if is_array and not value.dtype.hasobject:
            return repr((value.dtype, value.shape, hashlib.sha256(value.tobytes()).hexdigest()))
        if isinstance(value, type | FunctionType | BuiltinFunctionType):
            return _name(value)
        if isinstance(value, tuple | list):
            return value
        if isinstance(value, slice):
            return value.start, value.stop, value.step
        if isinstance(value, dict | frozendict):
            return value.items()
        if isinstance(value, AbstractFunctionGraph):
            return flat(value)
        if isinstance(value, Constant):
            return value.type, value.data
        names = getattr(value, "__props__", ()) if isinstance(value, MetaObject) else ()
        if not names or isinstance(value, HasInnerGraph):
            names = sorted(set(getattr(value, "__dict__", ())) - self._left_out)
        if not (names or isinstance(value, MetaObject)) or isinstance(value, Variable):
            raise _UnknownError(value)
        return type(value), *((name, getattr(value, name)) for name in names)


def _name(value: Any) -> str:
    """Name of a type or function of :data:`KNOWN_PACKAGES`."""
    module = value.__module__ or "builtins"
    if module.partition(".")[0] not in KNOWN_PACKAGES or "<" in value.__qualname__:
        raise _UnknownError(value)
    return f"{module}.{value.__qualname__}"


def _key_of(graph: FunctionGraph, of_all: Any, left_out: Set[str]) -> str | None:
    """A digest of all that a rewritten graph depends on, or None if that is not known."""
    protected = [
        [k for k, v in enumerate(graph.inputs) if v in feature.protected]
        for feature in graph._features
        if isinstance(feature, Supervisor)
    ]
    try:
        described = _Description(left_out).of((*flat(graph), protected, graph.update_mapping))
    except _UnknownError:
        return None
    return hashlib.sha256(repr((of_all, described)).encode()).hexdigest()


@functools.cache
def _versions() -> str:
    packages = (np, scipy, pytensor, pm)
    return repr((sys.version, *(package.__version__ for package in packages), jit.digest()))


def _of_all(query: RewriteDatabaseQuery, linker: type) -> Any:
    """The part of a key that is the same for all graphs."""
    tags = (sorted(query.include), sorted(query.exclude), sorted(query.require))
    own = [(_name(getattr(r, "outputs", type(r))), place) for r, place in query.extra_rewrites]
    settings = [(name, getattr(pytensor.config, name)) for name in SETTINGS]
    return _versions(), linker.__qualname__, tags, query.position_cutoff, own, settings


class KeptGraphs(GraphRewriter):
    """A rewriter that keeps rewritten graphs in files, by a query and a kind of linker."""

    def __init__(
        self,
        rewriter: GraphRewriter,
        query: RewriteDatabaseQuery,
        linker: type,
        left_out: Set[str],
    ) -> None:
        super().__init__()
        self._rewriter = rewriter
        self._of_all = _of_all(query, linker)
        self._left_out = left_out

    @override
    def add_requirements(self, fgraph: FunctionGraph) -> None:
        self._rewriter.add_requirements(fgraph)

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        key = _key_of(fgraph, self._of_all, self._left_out)
        kept = None if key is None else _read(folder() / key)
        if kept is not None:
            outputs = outputs_of(kept, fgraph.inputs)
            for node, position in list(itertools.chain(*fgraph.clients.values())):
                if isinstance(node.op, Output):
                    fgraph.change_node_input(node, position, outputs[node.op.idx])
            return
        self._rewriter.apply(fgraph)
        if key is not None and fgraph not in UNFINISHED:
            _write(folder() / key, fgraph)


def folder() -> Path:
    """Where graphs are kept."""
    return native.directory() / "graphs"


def _read(path: Path) -> FlatGraph | None:
    """A kept graph; None if there is no whole file."""
    try:
        text = files.unsealed(path.read_bytes())
    except FileNotFoundError:
        return None
    return None if text is None else pickle.loads(text)


def _write(path: Path, fgraph: FunctionGraph) -> None:
    """Keep a graph that has a pickle, and take the oldest away where there are many."""
    try:
        text = pickle.dumps(flat(fgraph))
    except (pickle.PicklingError, AttributeError, TypeError):  # by what cannot be pickled
        return
    if len(text) > LARGEST:
        return
    path.parent.mkdir(exist_ok=True)
    files.replace(path, files.sealed(text))
    with contextlib.suppress(FileNotFoundError):  # another process may do the same
        for each in sorted(path.parent.iterdir(), key=lambda each: each.stat().st_mtime)[:-MOST]:
            each.unlink()


class KeptMode(Mode):
    """A mode whose rewritten graphs are kept."""

    @property
    @override
    def optimizer(self) -> GraphRewriter:
        query, linker = self.provided_optimizer, type(self.linker)
        return KeptGraphs(super().optimizer, query, linker, OF_GRADIENTS)


def canonical(outputs: Sequence[Any]) -> list[Any]:
    """Graphs as PyTensor's canonicalisation rewrites them, functions of the same leaves."""
    fgraph = FunctionGraph(outputs=outputs, clone=True, copy_inputs=False)
    query = RewriteDatabaseQuery(include=["canonicalize"])
    KeptGraphs(optdb.query(query), query, FunctionGraph, set()).rewrite(fgraph)
    return list(fgraph.outputs)


def compiled(inputs: Any, outputs: Any, *, mode: Any = None, **options: Any) -> Any:
    """Compile a function as PyMC does, which would leave out that rewritten graphs are kept."""
    if not isinstance(mode, KeptMode):
        return pymc_compile(inputs, outputs, mode=mode, **options)
    model = pm.Model.get_context(error_if_none=False)
    checks = model is None or model.check_bounds
    parameters = (
        "local_check_parameter_to_ninf_switch" if checks else "local_remove_check_parameter"
    )
    query = mode.provided_optimizer.including("random_make_inplace", parameters)
    return pytensor.function(inputs, outputs, mode=KeptMode(mode.linker, query), **options)
