"""Functions of numbers, applied entry by entry: all those of a graph in one run of the compiler.

PyTensor starts the C++ compiler for each operation that a machine meets for the first time, and
most of what it reads then is the same. Here the C code of an operation's numbers, which is
PyTensor's, stands in a loop of a few lines; ``loops.cpp`` says how the loop is called.
"""

import re
from collections.abc import Sequence
from typing import Any, override

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.utils import MethodNotDefined
from pytensor.scalar.basic import get_scalar_type
from pytensor.tensor.elemwise import Elemwise

from pymc_nnsteps.compile import jit, native
from pymc_nnsteps.compile.rewriting import UNFINISHED, Replace
from pymc_nnsteps.compile.thunks import Substitute, in_c, loops, prepared, repeated_axes

TYPES = {
    "bool": "unsigned char",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}
"""C++ types of the entries of arrays."""

PREAMBLE = "#include <cmath>\n#include <algorithm>\n" + "".join(
    f"typedef {c} npy_{name};\n" for name, c in TYPES.items()
)
"""What loops are preceded by: PyTensor's names of types."""

MOST = 32
"""Most arrays of a loop that ``loops.cpp`` runs."""

FAILS = "FAILS"


def code_of(node: Apply, *, in_graph: bool = False) -> str | None:
    """C++ code of an ``Elemwise``'s loop, without its name; None if it is not one of pure numbers.

    ``in_graph`` allows any number of arrays, division of integers, and support code.
    """
    variables = [*node.inputs, *node.outputs]
    if any(v.type.dtype not in TYPES for v in variables):
        return None
    if len(variables) > MOST and not in_graph:
        return None
    op = node.op.scalar_op
    scalars = [
        [get_scalar_type(dtype=v.type.dtype).make_variable() for v in each]
        for each in (node.inputs, node.outputs)
    ]
    apply = Apply(op, *scalars)
    names = [
        [f"{kind}{i}" for i in range(len(each))] for kind, each in zip("xy", scalars, strict=True)
    ]
    try:
        ahead = op.c_support_code().strip()
        if (not in_graph and ahead) or "<numpy/" in ahead:
            return None
        if op.c_support_code_apply(apply, "own").strip():
            return None
        body = op.c_code(apply, "own", *names, {"fail": FAILS})
    except (MethodNotDefined, NotImplementedError):
        return None
    checked = body.replace("PyErr_SetString(PyExc_ZeroDivisionError", "") if in_graph else body
    if re.search(r"\bPy", checked) or (FAILS in body and not in_graph):
        return None
    return _loops(node, body)


def _loops(node: Apply, body: str) -> str:
    """A loop over neighbours, one over the last axis, and one over entries at any distance."""
    variables = [*node.inputs, *node.outputs]
    types = [TYPES[v.type.dtype] for v in variables]
    n_inputs = len(node.inputs)
    whole = [all(v.type.broadcastable) for v in variables]
    last = [v.type.ndim == 0 or v.type.broadcastable[-1] for v in variables]
    close = ""
    for repeated in [whole] if whole == last else [whole, last]:
        fits = " && ".join(
            f"s[{k}] == {0 if r else f'sizeof({t})'}"
            for k, (r, t) in enumerate(zip(repeated, types, strict=True))
        )
        loop = _loop(types, n_inputs, body, repeated)
        close += f"if ({fits}) {{\n#pragma GCC ivdep\n{loop} return; }}\n"
    return (
        "(long long n, char **p, const long long *s) {\n"
        + "".join(f"{t} *p{k} = ({t} *)p[{k}];\n" for k, t in enumerate(types))
        + (close if node.outputs[0].type.ndim else "")
        + _loop(types, n_inputs, body, None)
        + "}\n"
    )


def _loop(types: Sequence[str], n_inputs: int, body: str, repeated: Sequence[bool] | None) -> str:
    """A loop over arrays, of which some are one number, or over entries at given distances."""
    entries = [
        f"*({t} *)((char *)p{k} + i * s[{k}])"
        if repeated is None
        else f"p{k}[{0 if repeated[k] else 'i'}]"
        for k, t in enumerate(types)
    ]
    load = "".join(f"const {types[k]} x{k} = {entries[k]};\n" for k in range(n_inputs))
    outputs = range(n_inputs, len(types))
    declare = "".join(f"{types[k]} y{k - n_inputs};\n" for k in outputs)
    store = "".join(f"{entries[k]} = y{k - n_inputs};\n" for k in outputs)
    return f"for (long long i = 0; i < n; i++) {{\n{load}{declare}{body}\n{store}}}\n"


class Loop(Substitute):
    """An :class:`~pytensor.tensor.elemwise.Elemwise` whose loop is the code of :func:`code_of`."""

    __props__ = ("op", "code")

    def __init__(self, op: Elemwise, code: str) -> None:
        super().__init__(op)
        self.code = code
        self.name = native.digest(code)

    @override
    def __str__(self) -> str:
        return f"Loop{{{self.op}}}"

    def unit(self) -> native.TranslationUnit:
        """The unit of source code."""
        own = f"{native.VISIBLE} void unit_{self.name}{self.code}"
        return native.TranslationUnit(
            (PREAMBLE,), f"namespace loops {{\nusing namespace std;\n{own}}}".__str__
        )

    def prepared(self, node: Apply) -> Any:
        """What ``loops.cpp`` is told of a node."""
        native.build({self.name: self.unit()})
        return prepared(node, native.function(self.name), repeated_axes(node))

    @override
    def thunk(self, node: Apply, *maps: Any) -> Any:
        return in_c(node, loops().loop, self.prepared(node), *maps)

    @override
    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """As of other Ops."""
        cells = tuple([x] for x in inputs), tuple(output_storage)
        loops().run(loops().loop(self.prepared(node), *cells))


class UseLoops(GraphRewriter):
    """Replace all ``Elemwise`` that can be; loops are built together with all kernels."""

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        nodes = fgraph.toposort()
        codes = {node: code_of(node) for node in nodes if type(node.op) is Elemwise}
        loops = {node: Loop(node.op, code) for node, code in codes.items() if code is not None}
        units = {op.name: op.unit() for op in loops.values()}
        for node in nodes:
            units |= jit.units_of(node)
        try:
            native.build(units)
        except native.CompilerError as error:
            native.log_compilation(f"PyTensor compiles functions of numbers one by one: {error}")
            UNFINISHED.add(fgraph)
            return
        by_loops = {node: op.in_place_of(node).outputs for node, op in loops.items()}
        Replace(by_loops.get).apply(fgraph)
