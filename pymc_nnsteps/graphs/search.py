"""Search of a model's graph for the direct and indirect dependents of a variable.

The Gibbs conditionals read everything from the graph that the user wrote. This module finds the
direct children of a variable; :mod:`.affine`, :mod:`.monomial` and :mod:`.piecewise_linear` read
the form in which it enters them. A reader never guesses: where it cannot establish a form, it
raises :class:`.NotConjugate` with the reason.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import pymc as pm
from pymc.distributions.distribution import PartialObservedRV, SymbolicRandomVariable
from pytensor import config
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as scalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from pytensor.tensor.type_other import NoneTypeT
from pytensor.tensor.variable import TensorVariable

State = tuple[Any, ...]


def once_per_model[R](read: Callable[..., R]) -> Callable[..., R]:
    """Read a model once for as long as it stays as it is; further arguments are hashable.

    Other variables, potentials, transforms, containers and lengths change it; other data do not.
    """
    found: WeakKeyDictionary[pm.Model, tuple[State, dict[Any, R]]] = WeakKeyDictionary()

    @wraps(read)
    def remembered(model: pm.Model, *given: Any) -> R:
        state = _state_of(model)
        if model not in found or found[model][0] != state:
            found[model] = state, {}
        of_model = found[model][1]
        if given not in of_model:
            of_model[given] = read(model, *given)
        return of_model[given]

    return remembered


def _state_of(model: pm.Model) -> State:
    lengths = (n for n in model.dim_lengths.values() if isinstance(n, SharedVariable))
    return (
        config.floatX,
        *model.rvs_to_values.items(),
        *model.rvs_to_transforms.values(),
        *model.potentials,
        *model.named_vars.values(),
        *(int(n.get_value()) for n in lengths),
    )


def model_or_context(
    model: pm.Model | None, remedy: str = 'pass model=, or call it inside of "with model:"'
) -> pm.Model:
    """The given model, or that of the context."""
    found = pm.Model.get_context(error_if_none=False) if model is None else model
    if found is None:
        raise TypeError(f"No model is given and none is open; {remedy}.")
    if not isinstance(found, pm.Model):
        raise ValueError(f"model must be a pm.Model; got {type(found).__name__}.")
    return found


def unwrapped(expression: TensorVariable, *, casts: bool = False) -> TensorVariable:
    """The expression behind names and views, and behind casts if these are looked through."""
    seen_through = (scalar.Identity, scalar.Cast) if casts else scalar.Identity
    while expression.owner is not None and (
        isinstance(expression.owner.op, ViewOp)
        or isinstance(getattr(expression.owner.op, "scalar_op", None), seen_through)
    ):
        expression = expression.owner.inputs[0]
    return expression


def operands(expression: TensorVariable, op: type) -> list[TensorVariable] | None:
    """Operands of an elementwise operation of a kind, if the expression is one."""
    node = expression.owner
    if node is None or not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, op):
        return None
    return [unwrapped(operand) for operand in node.inputs]


SHIFT_OR_SCALE = (scalar.Cast, scalar.Add, scalar.Sub, scalar.Mul, scalar.TrueDiv)


def before_scaling(expression: TensorVariable) -> TensorVariable | None:
    """The matrix of which an expression sets entries, or shifts or scales columns alike in rows."""
    node = expression.owner
    if node is not None and isinstance(node.op, AdvancedIncSubtensor):
        return unwrapped(node.inputs[0]) if node.op.set_instead_of_inc else None
    parts = next(filter(None, (operands(expression, op) for op in SHIFT_OR_SCALE)), [])
    moved = [each for each in parts if not each.type.broadcastable[0]]
    is_divisor = len(parts) == 2 and moved == parts[1:] and operands(expression, scalar.TrueDiv)
    return None if len(moved) != 1 or is_divisor else moved[0]


def columns_of[Named: Variable](expression: Any, tables: Collection[Named]) -> Named | None:
    """The table whose columns are those of a matrix, shifted and scaled by the same in all rows."""
    expression = unwrapped(expression)
    while expression is not None and expression not in tables:
        expression = before_scaling(expression)
    return expression


def parameters(rv: TensorVariable) -> tuple[TensorVariable, ...]:
    """Distribution parameters of ``rv``; the inputs of an operation that does not name them."""
    node = rv.owner
    return tuple(node.op.dist_params(node) if _names_its_inputs(node.op) else node.inputs)


def size_of(rv: TensorVariable) -> TensorVariable | None:
    """Batch shape of ``rv``, if its operation has one."""
    node = rv.owner
    size: TensorVariable | None = node.op.size_param(node) if _names_its_inputs(node.op) else None
    return None if size is None or isinstance(size.type, NoneTypeT) else size


def _names_its_inputs(op: Op) -> bool:
    """Whether an operation names those of its inputs that are parameters."""
    if isinstance(op, SymbolicRandomVariable):
        return op.extended_signature is not None
    return hasattr(op, "dist_params")


def dependents(
    expression: Variable, rvs: Collection[Variable], barriers: Collection[Variable] = ()
) -> set[Variable]:
    """Variables before ``barriers`` that the values of ``rvs``, not their shapes, enter."""
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
    """Whether ``rv`` or its data depend on draws outside the model, made anew at each call."""
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


def entering(
    expressions: Iterable[Variable], barriers: Collection[Variable] = ()
) -> Iterator[Variable]:
    """Variables whose values, not shapes, enter expressions, with barriers but none behind them."""
    blocked = set(barriers)
    seen: set[Variable] = set()
    pending = list(expressions)
    while pending:
        variable = pending.pop()
        if variable not in seen:
            seen.add(variable)
            yield variable
            node = None if variable in blocked else variable.owner
            if node is not None and not isinstance(node.op, Shape | Shape_i):
                pending.extend(node.inputs)


def stated_in(expressions: Iterable[Variable], rvs: Collection[Variable]) -> set[TensorVariable]:
    """Those of ``rvs`` whose values enter expressions with none of the others between."""
    known: set[Any] = set(rvs)
    return known.intersection(entering(expressions, known))


def partly_observed(rv: TensorVariable) -> TensorVariable | None:
    """The variable whose observed entries ``rv`` are, if PyMC makes these of a whole one."""
    is_part = isinstance(rv.owner.op, PartialObservedRV)
    return rv.owner.inputs[0] if is_part else None


def given_any(expressions: Sequence[Variable], rvs: Iterable[Variable]) -> bool:
    """Whether values of any of ``rvs`` enter expressions other than through random variables."""
    return not stated_in(expressions, random_in(expressions)).isdisjoint(rvs)


def random_in(
    expressions: Iterable[Variable], barriers: Collection[Variable] = ()
) -> set[Variable]:
    """Random variables that expressions are made of, but for ``barriers`` and what is behind."""
    return {
        variable
        for variable in set(ancestors(expressions, barriers)).difference(barriers)
        if variable.owner is not None
        and isinstance(variable.owner.op, RandomVariable | SymbolicRandomVariable)
    }


def children(model: pm.Model, rv: TensorVariable) -> tuple[TensorVariable, ...]:
    """Random variables of ``model`` in whose parameters ``rv`` appears directly."""
    return tuple(child for child, parents in _parents(model).items() if rv in parents)


@once_per_model
def _parents(model: pm.Model) -> dict[TensorVariable, set[TensorVariable]]:
    """Random variables that appear directly in the parameters of each of them."""
    rvs = model.basic_RVs
    return {child: stated_in(child.owner.inputs, rvs) for child in rvs}
