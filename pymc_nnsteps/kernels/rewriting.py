"""Rewritten graphs, kept beside machine code: to rewrite a graph again takes PyTensor a second.

A rewritten graph has as its key a digest of the graph that was given, of the rewrites and the
configuration, and of the versions of all that takes part. The digest covers operations with all
that they hold, types, constants, and which inputs may be overwritten. Graphs with operations of
other packages are rewritten each time, as one cannot know when these change.
"""

import functools
import hashlib
import io
import os
import pickle
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple, override

import numpy as np
import pymc as pm
import pytensor
from pymc.pytensorf import compile as pymc_compile
from pytensor.compile.aliasing import Supervisor
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.destroyhandler import DestroyHandler
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph, Output
from pytensor.graph.rewriting.basic import (
    EquilibriumGraphRewriter,
    GraphRewriter,
    Rewriter,
)

from pymc_nnsteps.kernels import jit, native

KNOWN_PACKAGES = {"builtins", "copyreg", "functools", "numpy", "operator", "pymc", "pymc_nnsteps"}
KNOWN_PACKAGES |= {"pytensor", "scipy"}
"""Packages whose versions are part of a key."""

SETTINGS = ("cast_policy", "cxx", "cycle_detection", "floatX", "lib__amdlibm", "openmp")
SETTINGS += ("openmp_elemwise_minsize", "optdb__max_use_ratio", "optdb__position_cutoff")
SETTINGS += ("scan__allow_output_prealloc", "tensor__cmp_sloppy")
SETTINGS += ("tensor__insert_inplace_optimizer_validate_nb",)
"""PyTensor's settings that its rewrites look at; to read all of them starts compilers."""

LARGEST, MOST = 2**22, 400
"""Bytes of the largest graph that is kept, and how many are kept."""


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


class _Description(pickle.Pickler):
    """Pickles that are equal only for equal operations, of :data:`KNOWN_PACKAGES`."""

    @override
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type | FunctionType | BuiltinFunctionType):
            package = (value.__module__ or "builtins").partition(".")[0]
            if package not in KNOWN_PACKAGES:
                raise pickle.PicklingError(f"{value} is of another package")
        if isinstance(value, AbstractFunctionGraph):
            return tuple, ((type(value), *flat(value)),)
        if type(value) is OpFromGraph:  # gradients, which it also holds, have been taken
            return tuple, ((OpFromGraph, value.fgraph, value.is_inline, value.destroy_map),)
        if isinstance(value, Variable) and not isinstance(value, Constant):
            raise pickle.PicklingError(f"{value} is of no graph")
        return NotImplemented


def _pickled(value: Any, pickler: type[pickle.Pickler]) -> bytes | None:
    """A pickle, or None for what has none."""
    stream = io.BytesIO()
    try:
        pickler(stream, pickle.HIGHEST_PROTOCOL).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return stream.getvalue()


def _described(graph: FunctionGraph) -> list[bytes] | None:
    """All that a rewritten graph depends on, or None if that is not known."""
    inputs, constants, nodes, outputs = flat(graph)
    protected = [
        [k for k, v in enumerate(graph.inputs) if v in feature.protected]
        for feature in graph._features
        if isinstance(feature, Supervisor)
    ]
    arguments = [given for _, given, _ in nodes]
    parts: list[Any] = [inputs, (arguments, outputs, protected, graph.update_mapping)]
    parts += constants
    for op, _, types in nodes:
        parts += [op, types]
    pickles: dict[int, bytes | None] = {}
    for part in parts:
        if id(part) not in pickles:
            pickles[id(part)] = _pickled(part, _Description)
    found = [pickles[id(part)] for part in parts]
    return None if None in found else [each for each in found if each is not None]


@functools.cache
def _versions() -> str:
    packages = (np, pytensor, pm)
    return repr((sys.version, *(package.__version__ for package in packages), jit.digest()))


def _names(rewriter: Rewriter) -> Iterator[str]:
    """Names of the rewrites that a rewriter consists of, without those of objects."""
    yield f"{type(rewriter).__qualname__} {re.sub(r'_[0-9]{6,}$', '', str(rewriter.name))}"
    parts = rewriter.data if hasattr(rewriter, "data") else ()
    if isinstance(rewriter, EquilibriumGraphRewriter):
        parts = rewriter.get_node_rewriters()
    for part in parts:
        yield from _names(part)


class KeptGraphs(GraphRewriter):
    """A rewriter that takes rewritten graphs from files, and keeps them there."""

    def __init__(self, rewriter: GraphRewriter, linker: type) -> None:
        super().__init__()
        self._rewriter = rewriter
        settings = (f"{name} {getattr(pytensor.config, name)}" for name in SETTINGS)
        self._key = [_versions(), linker.__qualname__, *settings, *_names(rewriter)]

    @override
    def add_requirements(self, fgraph: FunctionGraph) -> None:
        self._rewriter.add_requirements(fgraph)

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        described = _described(fgraph)
        if described is None:
            self._rewriter.apply(fgraph)
            return
        key = hashlib.sha256("\n".join(self._key).encode())
        for part in described:
            key.update(hashlib.sha256(part).digest())
        path = folder() / key.hexdigest()
        kept = _read(path)
        if kept is None:
            self._rewriter.apply(fgraph)
            _write(path, fgraph)
            return
        graph, has_destroyers = kept
        _replace_outputs(fgraph, outputs_of(graph, fgraph.inputs))
        if has_destroyers:
            fgraph.attach_feature(DestroyHandler())


def _replace_outputs(fgraph: FunctionGraph, outputs: Sequence[Variable]) -> None:
    for node, position in [client for clients in fgraph.clients.values() for client in clients]:
        if isinstance(node.op, Output):
            fgraph.change_node_input(node, position, outputs[node.op.idx])


def folder() -> Path:
    """Where graphs are kept."""
    return native.directory() / "graphs"


def _read(path: Path) -> tuple[FlatGraph, bool] | None:
    """A kept graph and whether its operations overwrite arrays; None if there is no whole file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    digest, text = data[:32], data[32:]
    if hashlib.sha256(text).digest() != digest:
        return None
    kept: tuple[FlatGraph, bool] = pickle.loads(text)
    return kept


def _write(path: Path, fgraph: FunctionGraph) -> None:
    """Keep a graph, and take the oldest away where there are many."""
    text = _pickled((flat(fgraph), hasattr(fgraph, "has_destroyers")), pickle.Pickler)
    if text is None or len(text) > LARGEST:
        return
    path.parent.mkdir(exist_ok=True)
    own = path.with_suffix(f".{os.getpid()}")
    own.write_bytes(hashlib.sha256(text).digest() + text)
    own.replace(path)
    others = sorted(path.parent.iterdir(), key=lambda each: each.stat().st_mtime)
    for each in others[:-MOST]:
        each.unlink(missing_ok=True)


class KeptMode(Mode):
    """A mode whose rewritten graphs are kept."""

    @property
    @override
    def optimizer(self) -> GraphRewriter:
        return KeptGraphs(super().optimizer, type(self.linker))


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
