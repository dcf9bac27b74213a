"""Reading a model's graph: which variables depend directly on a variable, and their names.

Everything the Gibbs conditionals know about a model they read from the graph that the user
wrote: this module finds the direct children of a variable, :mod:`.affine` and :mod:`.power` read
the form in which it enters them. A reader never guesses: what it cannot establish it declines by
raising :class:`NotConjugate` with the reason.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.model import modelcontext
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar import basic as scalar
from pytensor.tensor.basic import Alloc, MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type_other import NoneTypeT
from pytensor.tensor.variable import TensorVariable


class NotConjugate(ValueError):  # noqa: N818 (a public name, and a finding more than an error)
    """A full conditional has no form that this package knows how to draw from.

    The message names the variable, the child that stands in the way, and the reason.
    """


def model_or_context(model: pm.Model | None) -> pm.Model:
    """The given model, or that of the context."""
    found = modelcontext(model)
    if not isinstance(found, pm.Model):
        raise ValueError(f"model must be a pm.Model; got {model!r}.")
    return found


def unwrapped(expression: TensorVariable) -> TensorVariable:
    """What an expression is another name of."""
    while expression.owner is not None and (
        isinstance(expression.owner.op, ViewOp)
        or (
            isinstance(expression.owner.op, Elemwise)
            and isinstance(expression.owner.op.scalar_op, scalar.Identity)
        )
    ):
        expression = expression.owner.inputs[0]
    return expression


def describe(variable: Variable) -> str:
    """Name a variable as its user knows it: by its name, else by the operation that made it."""
    if variable.name:
        return str(variable.name)
    if variable.owner is None:
        return str(variable)
    op = getattr(variable.owner.op, "core_op", variable.owner.op)
    return str(type(getattr(op, "scalar_op", op)).__name__)


def distribution(rv: TensorVariable) -> str:
    """Name of the distribution of ``rv``, as PyMC prints it."""
    op = rv.owner.op
    names = getattr(op, "_print_name", None)
    name = str(names[0]) if names else type(op).__name__.removesuffix("RV")
    return name if isinstance(rv, TensorVariable) else f"pymc.dims.{name}"


def parameters(rv: TensorVariable) -> tuple[TensorVariable, ...]:
    """Distribution parameters of ``rv``."""
    return tuple(rv.owner.op.dist_params(rv.owner))


def dependents(
    expression: Variable, rvs: Collection[Variable], barriers: Collection[Variable] = ()
) -> set[Variable]:
    """Variables in the graph of ``expression`` that the values of ``rvs`` enter.

    The search stops at ``barriers``. The shape of a variable is not its value.
    """
    blocked = set(barriers).difference(rvs)
    found: set[Variable] = set()
    seen: set[Variable] = set()
    pending: list[tuple[Variable, bool]] = [(expression, False)]
    while pending:
        variable, inputs_are_done = pending.pop()
        if inputs_are_done:
            if not found.isdisjoint(variable.owner.inputs):
                found.add(variable)
        elif variable in rvs:
            found.add(variable)
        elif variable not in seen and variable not in blocked and variable.owner is not None:
            seen.add(variable)
            if not isinstance(variable.owner.op, Shape | Shape_i):
                pending.append((variable, True))
                pending.extend((operand, False) for operand in variable.owner.inputs)
    return found


def depends_on(
    expression: Variable, rvs: Collection[Variable], barriers: Collection[Variable] = ()
) -> bool:
    """Whether the value of any of ``rvs`` enters ``expression``, not through ``barriers``."""
    return expression in dependents(expression, rvs, barriers)


def depends_on_random_data(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether ``rv`` or its data depend on draws that are no variables of the model.

    Each evaluation of the model draws them anew: minibatches, data augmentation, dropout. The
    components of a mixture, which are no such data, are not looked at.
    """
    if not isinstance(rv.owner.op, RandomVariable):
        return False
    random_variables = set(model.basic_RVs)
    expressions: list[Variable] = list(parameters(rv))
    if rv in model.observed_RVs:
        expressions.append(model.rvs_to_values[rv])
    return any(
        variable not in random_variables and draws_at_random(variable)
        for variable in ancestors(expressions, random_variables)
    )


def draws_at_random(variable: Variable) -> bool:
    """Whether the operation that makes a variable uses a random number generator."""
    inputs = [] if variable.owner is None else variable.owner.inputs
    return any(isinstance(operand.type, RandomGeneratorType) for operand in inputs)


def stated_in(expressions: Iterable[Variable], rvs: Collection[Variable]) -> set[TensorVariable]:
    """Those of ``rvs`` whose values enter expressions with no other of them between."""
    blocked = set(rvs)
    found: set[Any] = set()
    seen: set[Variable] = set()
    pending = list(expressions)
    while pending:
        variable = pending.pop()
        if variable in blocked:
            found.add(variable)
        elif variable not in seen and variable.owner is not None:
            seen.add(variable)
            if not isinstance(variable.owner.op, Shape | Shape_i):
                pending.extend(variable.owner.inputs)
    return found


def given_any(expressions: Sequence[Variable], rvs: Iterable[Variable]) -> bool:
    """Whether the values of any of ``rvs`` enter, not through other random variables."""
    random = {
        variable
        for variable in ancestors(expressions)
        if variable.owner is not None
        and isinstance(variable.owner.op, RandomVariable | SymbolicRandomVariable)
    }
    return not stated_in(expressions, random).isdisjoint(rvs)


def children(model: pm.Model, rv: TensorVariable) -> tuple[TensorVariable, ...]:
    """Random variables of ``model`` in whose parameters ``rv`` appears directly.

    Parameters
    ----------
    model : pm.Model
    rv : TensorVariable
        A free random variable of ``model``.

    Returns
    -------
    tuple of TensorVariable
        In the model's order. Symbolic distributions (mixtures, truncated variables, ...) are
        looked into through all of their inputs.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     a = pm.Normal("a")
    ...     b = pm.Normal("b", a)
    ...     c = pm.Normal("c", b)
    >>> children(model, a)
    (b,)
    """
    random_variables = model.basic_RVs
    return tuple(
        child for child in random_variables if rv in stated_in(child.owner.inputs, random_variables)
    )


def observed_values(model: pm.Model) -> dict[Any, Any]:
    """The data of the observed variables, from these."""
    return {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}


def known_shape(model: pm.Model, rv: TensorVariable) -> tuple[int | None, ...]:
    """Lengths of the axes of a random variable, as far as its type or the model's dims tell."""
    size = rv.owner.op.size_param(rv.owner)
    lengths = list(rv.type.shape)
    if size.owner is not None and isinstance(size.owner.op, MakeVector):
        dim_lengths = [n for n in model.dim_lengths.values() if isinstance(n, SharedVariable)]
        for axis, length in enumerate(size.owner.inputs):
            if lengths[axis] is None and length in dim_lengths:
                lengths[axis] = int(length.get_value())
    return tuple(lengths)


def stated_lengths(rv: TensorVariable) -> list[TensorVariable | int | None]:
    """Lengths of the axes of a random variable, where its type or its size states them."""
    size = rv.owner.op.size_param(rv.owner)
    sizes = [None] * rv.ndim if isinstance(size.type, NoneTypeT) else list(size)
    return [
        length if static is None else static
        for length, static in zip(sizes, rv.type.shape, strict=True)
    ]


def lengths(rv: TensorVariable) -> list[TensorVariable | int]:
    """Lengths of the axes of a random variable, stated without its value where possible."""
    stated = stated_lengths(rv)
    return [rv.shape[axis] if n is None else n for axis, n in enumerate(stated)]


def typed_like(rv: TensorVariable, value: TensorVariable) -> TensorVariable:
    """A new value of a random variable, with its dtype and static shape."""
    return pt.specify_shape(value.astype(rv.dtype), rv.type.shape)


def substitute(expressions: Iterable[Variable], replacements: Mapping[Any, Variable]) -> list[Any]:
    """Expressions with variables replaced, where they occur, by others of perhaps another type.

    Nothing is replaced inside the replacements.
    """
    wanted = list(expressions)
    new: dict[Any, Any] = dict(replacements)
    for node in io_toposort(list(replacements), wanted):
        if not new.keys().isdisjoint(node.inputs):
            inputs = [new.get(variable, variable) for variable in node.inputs]
            same = [_dtype(old) == _dtype(i) for old, i in zip(node.inputs, inputs, strict=True)]
            rebuilt = node.clone_with_new_inputs(inputs, strict=all(same))
            new.update(zip(node.outputs, rebuilt.outputs, strict=True))
    return [new.get(expression, expression) for expression in wanted]


def _dtype(variable: Variable) -> str | None:
    return getattr(variable.type, "dtype", None)


def scalar_constant(variable: Variable) -> float | None:
    """Value of a constant whose entries are all equal, seen through broadcasts and casts."""
    dtypes = []
    while variable.owner is not None and not isinstance(variable, Constant):
        op = variable.owner.op
        dtypes.append(variable.type.dtype)
        transparent = isinstance(op, DimShuffle | Alloc | ViewOp) or (
            isinstance(op, Elemwise) and isinstance(op.scalar_op, scalar.Cast | scalar.Identity)
        )
        if not transparent:
            return None
        variable = variable.owner.inputs[0]
    if not isinstance(variable, Constant) or np.size(variable.data) == 0:
        return None
    values = np.asarray(variable.data)
    for dtype in reversed(dtypes):
        values = values.astype(dtype)
    first = values.flat[0]
    return float(first) if (values == first).all() else None
