"""Functions of numbers as PyTensor's Python computes them, for graphs in C++.

PyTensor's C code of some functions is missing, takes no integers, or computes something else than
its Python: the digamma function at its poles, the trigamma function below zero, float32 + int64 in
single precision. Here these are calls of SciPy's functions, or have code of their own.
"""

from typing import Any, override

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.scalar.basic import IntDiv, ScalarOp
from pytensor.scalar.math import PolyGamma, TriGamma
from pytensor.tensor.basic import cast
from pytensor.tensor.elemwise import Elemwise

from pymc_nnsteps.kernels import elementwise
from pymc_nnsteps.kernels.native import SPECIAL

PSI = f"of_scipy<{SPECIAL.index('psi')}>"

TABLE = f"""
#ifndef SPECIAL
#define SPECIAL {len(SPECIAL)}
extern "C" __attribute__((visibility("default"))) void *special[SPECIAL];
void *special[SPECIAL];
template <int K, class... X> double of_scipy(X... x) {{
    return ((double (*)(decltype(double(x))..., int))special[K])(double(x)..., 0);
}}
#endif
"""
"""C++ of addresses of SciPy's functions, and of their calls."""

OWN: dict[type[ScalarOp], str] = {
    TriGamma: "graphs::polygamma(1, {0})",
    PolyGamma: f"({{0}} ? graphs::polygamma({{0}}, {{1}}) : {PSI}({{1}}))",
    IntDiv: "graphs::floor_of_quotient({0}, {1})",
}
"""Expressions of functions that SciPy has no address of."""


class InCpp(ScalarOp):
    """A function of numbers whose C++ code is an expression with places for the arguments."""

    __props__ = ("op", "code")

    def __init__(self, op: ScalarOp, code: str) -> None:
        super().__init__(op.output_types_preference, str(op))
        self.op, self.code = op, code

    @override
    def c_support_code(self, **options: Any) -> str:
        return TABLE

    @override
    def c_code(self, node: Apply, name: str, x: Any, y: Any, sub: Any) -> str:
        return f"{y[0]} = {self.code.format(*x)};"


def _restated(node: Apply) -> Variable | None:
    """The same by other code or of other types; None where PyTensor's code does what is said."""
    op, dtype = node.op.scalar_op, node.outputs[0].type.dtype
    if not dtype.startswith("float") or len(node.outputs) > 1:
        return None
    name = (getattr(op, "nfunc_spec", None) or [""])[0].removeprefix("scipy.special.")
    code = OWN.get(type(op))
    if name in SPECIAL:
        places = ", ".join(f"{{{k}}}" for k in range(len(node.inputs)))
        code = f"of_scipy<{SPECIAL.index(name)}>({places})"
    if code is not None:
        return Elemwise(InCpp(op, code)).make_node(*node.inputs).outputs[0]
    is_refused = elementwise.code_of(node, in_graph=True) is None
    narrow = {v.type.dtype for v in node.inputs if is_refused or v.type.dtype == "float32"}
    if narrow <= {dtype} or (len(node.inputs) == 1 and not is_refused):
        return None
    inputs = [cast(v, dtype) if v.type.dtype in narrow else v for v in node.inputs]
    return node.op.make_node(*inputs).outputs[0]


class UseSpecialFunctions(GraphRewriter):
    """Replace functions of numbers whose C code in PyTensor is not what its Python does."""

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        for node in fgraph.toposort():
            if isinstance(node.op, Elemwise) and (found := _restated(node)) is not None:
                fgraph.replace_validate(node.outputs[0], found)
