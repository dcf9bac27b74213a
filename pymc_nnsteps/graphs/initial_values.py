"""Initial values that a variable takes along wherever its graph goes.

PyMC keeps initial values in its model, beside the graph, and transformations of the graph
(``pm.do``, ``pm.observe``, ``pm.compute_log_likelihood``) refuse a model that has any. Here an
initial value belongs to the variable's own operation, which all transformations keep, and takes
the place of its support point, where PyMC begins by itself: in ``pm.sample``, for each chain with
its own seed, in ``model.initial_point()``, everywhere. What a user passes as ``initval`` or
``initvals`` comes first.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Literal, cast, override

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

from pymc_nnsteps.graphs.callers import locals_of

InitialValue = TensorVariable | str | None
"""An expression that depends on no other variable of the model, ``"prior"``, or PyMC's choice."""


def begin_at(rv: TensorVariable, value: InitialValue) -> TensorVariable:
    """Give a variable another initial value than its support point, and return it.

    Parameters
    ----------
    rv : TensorVariable
        A random variable of a model.
    value : TensorVariable, "prior" or None
        An expression of data containers and of random variables of its own, drawn anew for each
        chain; ``"prior"``, a draw given the initial values of the variables it depends on; None,
        the support point.

    Returns
    -------
    TensorVariable
        ``rv``.

    Examples
    --------
    >>> import pymc as pm, pytensor.tensor as pt
    >>> from pymc_nnsteps.graphs.initial_values import begin_at
    >>> with pm.Model() as model:
    ...     sigma = begin_at(pm.HalfNormal("sigma"), pt.constant(1.0))
    >>> model.initial_point()
    {'sigma_log__': array(0.)}
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
    """Have these variables begin at their support points, as long as the context is open."""
    values = {rv: initial_value(rv) for rv in rvs}
    for rv in rvs:
        begin_at(rv, None)
    try:
        yield
    finally:
        for rv, value in values.items():
            begin_at(rv, value)


def start_of(start: str) -> Literal["prior"] | None:
    """What :func:`begin_at` takes for the ``start`` of a builder: a draw, or the support point.

    Parameters
    ----------
    start : str
        ``"prior"`` or the name of another start.
    """
    return "prior" if start == "prior" else None


@contextmanager
def beginning(value: str) -> Iterator[None]:
    """Have the variables that are added to the model in this context begin at this value.

    Parameters
    ----------
    value : {"support_point", "prior"}
        "support_point" leaves them the values that they are given by :func:`begin_at`.
    """
    model = pm.modelcontext(None)
    known = set(model.free_RVs)
    yield
    for rv in model.free_RVs:
        if rv not in known and start_of(value) is not None:
            begin_at(rv, start_of(value))


class Beginning(Op):
    """A random variable, with the value that takes the place of its support point."""

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
    """Put each variable's own initial value into the graph that PyMC makes of a model's."""

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
    """The same expression of the model's own data: those of a copy are other containers."""
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
