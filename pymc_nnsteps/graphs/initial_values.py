"""Initial values that stay with a variable in every transformation of its graph.

PyMC keeps initial values in its model, beside the graph, and transformations of the graph
(``pm.do``, ``pm.observe``, ``pm.compute_log_likelihood``) refuse a model that has any. Here an
initial value belongs to the variable's own operation, which all transformations keep. It replaces
the support point as PyMC's default start in ``pm.sample``, with a seed for each chain, in
``model.initial_point()`` and elsewhere. A user's ``initval`` or ``initvals`` takes precedence.
"""

import inspect
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any, cast, override

import pymc as pm
from pymc.distributions.distribution import _support_point
from pymc.initial_point import InitialPoint, initial_point_op, initial_point_rewrites_db
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor import as_tensor
from pytensor.tensor.variable import TensorVariable

InitialValue = TensorVariable | str | None
"""Expression without other variables of the model, ``"prior"``, or None for PyMC's choice."""


def begin_at(rv: TensorVariable, value: InitialValue) -> TensorVariable:
    """Give a variable another initial value than its support point, and return it.

    It is an expression of data and of its own random variables, ``"prior"``, or None.
    """
    op = copy(rv.owner.op)
    op.initial_value = value
    rv.owner.op = op
    return rv


def initial_value(rv: TensorVariable) -> InitialValue:
    """The initial value that a variable was given by :func:`begin_at`."""
    return getattr(rv.owner.op, "initial_value", None)


@contextmanager
def at_support_points(rvs: Collection[TensorVariable]) -> Iterator[None]:
    """Start these variables at their support points while the context is open."""
    values = {rv: initial_value(rv) for rv in rvs}
    for rv in rvs:
        begin_at(rv, None)
    try:
        yield
    finally:
        for rv, value in values.items():
            begin_at(rv, value)


@contextmanager
def beginning(start: str) -> Iterator[None]:
    """If ``start`` is "prior", start variables added in this context at draws."""
    model = pm.modelcontext(None)
    known = set(model.free_RVs)
    yield
    for rv in model.free_RVs:
        if start == "prior" and rv not in known and initial_value(rv) is None:
            begin_at(rv, "prior")


class Beginning(Op):
    """Random variable with the value that replaces its support point."""

    __props__ = ()
    view_map = {0: [0]}  # noqa: RUF012

    def make_node(self, rv: Variable, value: Variable) -> Apply:  # type: ignore[override]
        """``rv`` itself."""
        return Apply(self, [rv, value], [rv.type()])

    @override
    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """``rv`` itself."""
        output_storage[0][0] = inputs[0]


@_support_point.register(Beginning)  # type: ignore[untyped-decorator]
def _(op: Beginning, rv: Variable, drawn: Variable, value: Variable) -> Variable:
    return value


class Begin(GraphRewriter):
    """Put each variable's own initial value into PyMC's graph of initial values."""

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        model = locals_of("make_initial_point_fn", "pymc.initial_point").get("model")
        for output in [out for out in fgraph.outputs if isinstance(out.owner.op, InitialPoint)]:
            [rv] = output.owner.inputs
            value = initial_value(rv)
            if value is not None:
                stated = rv if isinstance(value, str) else _of_model(value, model)
                begun = initial_point_op(Beginning()(rv, stated))
                fgraph.replace(output, begun, import_missing=True)


def _of_model(value: TensorVariable, model: Any) -> TensorVariable:
    """The expression with the data containers of this model, which may be a copy."""
    named = {} if model is None else model.named_vars
    copies: dict[Variable, Variable] = {
        leaf: as_tensor(named[leaf.name])
        for leaf in graph_inputs([value])
        if leaf.name in named and named[leaf.name] is not leaf
    }
    if not copies:
        return value
    [other] = clone_replace([value], replace=copies, rebuild_strict=False)
    return cast("TensorVariable", other)


initial_point_rewrites_db.register("pymc_nnsteps_begin", Begin(), "basic", position=1)


def locals_of(function: str, module: str) -> Mapping[str, Any]:
    """Local variables of the innermost active call of a function; empty without such a call."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == function and frame.f_globals.get("__name__") == module:
            return frame.f_locals
        frame = frame.f_back
    return {}
