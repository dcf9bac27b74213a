r"""Curvature of a network's likelihood in its weights, computed from their scales alone.

The second derivative of minus the log likelihood with respect to a weight is about the square of
what the weight multiplies, times the squares of all that lies between it and the outputs, times the
curvature in the outputs. With each weight's square replaced by its variance a priori, and that of a
hidden unit by the largest it can have, nothing of it depends on where the weights are: a metric
made of it may follow the scales that other steps draw.

A prior precision is the largest second derivative of minus the log density: for N(m, s^2) it is
s^-2, for a Student-t with nu degrees of freedom and scale s it is (nu + 1) / (nu s^2). A Laplace
prior of scale b has a kink in place of a second derivative; the mean square of its slope is b^-2.

Squares add and multiply as the numbers do whose squares they are; an activation bounds them. The
network of squares,

.. math:: u^2_j = \sum_i v^2_i \sigma^2_{ij}, \qquad v^2_j = \min(1, u^2_j) \quad (\tanh),

is thus the network's own graph with the weights' variances in place of weights, and the gradient of
:math:`\sum_n c_n f^2_n` with respect to these, c the curvatures in the outputs f, is what is asked
for: for any number of layers, connections that skip layers, and shared weights.

An output is an expression that is linear at its top, with an entry or several for each row, and
everything that lies between the outputs and the parameters of a response keeps the rows apart.

References
----------
Neal, *Neural Network Models Implemented in the Flexible Bayesian Modelling Software* (2022),
equations 58-68.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.compile.ops import ViewOp
from pytensor.gradient import DisconnectedInputError, disconnected_grad
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as scalar
from pytensor.scalar.math import Erf, Erfc, Sigmoid, Softplus
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.random.basic import LaplaceRV, NormalRV, StudentTRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe, prior_kind
from pymc_nnsteps.graphs.search import dependents, depends_on, once_per_model, parameters, stated_in
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.conditional import value_of
from pymc_nnsteps.steps.compiled import PointFunction
from pymc_nnsteps.steps.information import Unaligned, information
from pymc_nnsteps.steps.target import dependent_factors, gradient_of, log_density, moved_with

Choice = Literal["auto", "network", "learnt", "prior"]
"""Where the curvature of the metric is to come from."""

PRECISIONS: dict[type, Callable[..., TensorVariable]] = {
    NormalRV: lambda mu, sigma: pt.sqr(1 / sigma),
    StudentTRV: lambda nu, mu, sigma: (1 + 1 / nu) * pt.sqr(1 / sigma),
    LaplaceRV: lambda mu, b: pt.sqr(1 / b),
}


def prior_precision(
    model: pm.Model, rv: TensorVariable, moved: Collection[TensorVariable]
) -> TensorVariable | None:
    """Precisions of the entries of a free variable, in terms of parents that are not moved."""
    rule = PRECISIONS.get(prior_kind(model, rv))
    if rule is None:
        return None
    given = parameters(rv)
    others = [variable for variable in moved if variable is not rv]
    barriers = model.basic_RVs
    if any(depends_on(parameter, others, barriers) for parameter in given):
        return None
    return pt.as_tensor(rule(*given))


@dataclass(frozen=True)
class NetworkCurvature:
    """Curvature of minus a log density in weights."""

    # priors, likelihoods: curvatures of the prior of each weight, and of all else, expressions of
    # the model's other variables and of ``references``.
    priors: dict[TensorVariable, TensorVariable]
    likelihoods: dict[TensorVariable, TensorVariable]
    # What stands for typical values of expressions of what is moved (information in outputs, and
    # what priors depend on); and these expressions.
    references: dict[TensorVariable, TensorVariable]
    # Random variables whose curvature in the network's outputs has been read.
    factors: tuple[TensorVariable, ...]


def network_curvature(model: pm.Model, rvs: Sequence[TensorVariable]) -> NetworkCurvature:
    """Curvature of minus the log density that weights and other variables are moved in."""
    return _read(model, tuple(rvs))


@once_per_model
def _read(model: pm.Model, rvs: tuple[TensorVariable, ...]) -> NetworkCurvature:
    if beside := moved_with(model, rvs)[len(rvs) :]:
        names = ", ".join(map(describe, beside))
        raise NotConjugate(f"the transform of {names} depends on the moved variables")
    weights = [rv for rv in rvs if prior_kind(model, rv) in PRECISIONS]
    while weights:
        try:
            return _of_weights(model, weights, rvs)
        except Unaligned as shared:
            shared_weights = stated_in([shared.place], model.basic_RVs)
            weights = [rv for rv in weights if rv not in shared_weights]
    raise NotConjugate(f"none of {', '.join(map(describe, rvs))} is a weight of a network")


def _of_weights(
    model: pm.Model, weights: Sequence[TensorVariable], rvs: Sequence[TensorVariable]
) -> NetworkCurvature:
    barriers = model.basic_RVs
    priors = [pt.as_tensor(PRECISIONS[prior_kind(model, rv)](*parameters(rv))) for rv in weights]
    variances = [_variance(rv, p) for rv, p in zip(weights, priors, strict=True)]
    network = _NetworkReader(dict(zip(weights, variances, strict=True)), barriers)
    total = pt.constant(0.0)
    references: dict[Any, Any] = {}
    factors = _factors(model, weights)
    for factor in factors:
        outputs = network.outputs(parameters(factor))
        places = {_like(u): u for u in outputs}
        for u, curvature in zip(outputs, _curvatures(model, factor, places), strict=True):
            typical = curvature
            if not places.keys().isdisjoint(ancestors([curvature])):
                typical = curvature.type(name=f"information of {factor.name}")
                [references[typical]] = substitute([curvature], places)
            total += (typical * network.square(u)).sum()
    likelihoods: Any = pt.grad(total, variances, disconnected_inputs="ignore")
    read = [*priors, *likelihoods]
    seen = [rv for rv in rvs if any(depends_on(each, [rv], barriers) for each in read)]
    typical_of = {rv: _like(rv) for rv in seen}
    read = substitute(read, typical_of)
    references |= {place: rv for rv, place in typical_of.items()}
    n = len(weights)
    return NetworkCurvature(
        dict(zip(weights, read[:n], strict=True)),
        dict(zip(weights, read[n:], strict=True)),
        references,
        tuple(factors),
    )


def _variance(rv: TensorVariable, precision: TensorVariable) -> TensorVariable:
    """Prior variance of each entry; what is known to have length one says so in its type."""
    first = rv.ndim - precision.ndim
    ones = [axis for axis in range(precision.ndim) if rv.type.shape[first + axis] == 1]
    return pt.broadcast_to(1 / pt.specify_broadcastable(precision, *ones), rv.shape)


def _curvatures(
    model: pm.Model, factor: TensorVariable, outputs: Mapping[TensorVariable, Any]
) -> list[TensorVariable]:
    """Curvatures in the outputs behind a factor, at places; only what matters of these is left."""
    if factor in model.potentials:
        raise NotConjugate(f"the curvature of {describe(factor)} is not known")
    node = factor.owner
    value = value_of(model, factor)
    given = {rv: _like(rv) for rv in stated_in([*node.inputs, value], model.basic_RVs)}
    places = {u: place for place, u in outputs.items()}
    inputs = substitute(node.inputs, {**given, **places})
    response = node.clone_with_new_inputs(inputs).outputs[node.outputs.index(factor)]
    try:
        found = information(response, given.get(value, value), list(places.values()))
    except Unaligned as shared:
        [shared.place] = [u for u, place in places.items() if place is shared.place]
        raise
    except NotConjugate as reason:
        raise NotConjugate(f"the curvature of {describe(factor)} is not known: {reason}") from None
    back: dict[Any, Any] = {place: rv for rv, place in given.items()}
    unused = [
        (place, pt.zeros(u.shape, dtype=u.dtype))
        for u, place in places.items()
        if not any(_is_used(place, curvature) for curvature in found)
    ]
    return substitute(found, back | dict(unused))


def _is_used(place: TensorVariable, curvature: TensorVariable) -> bool:
    """Whether a curvature depends on more than the shape of a place."""
    try:
        pt.grad(curvature.sum(), place, null_gradients="return")
    except DisconnectedInputError:
        return False
    return True


def _like(expression: TensorVariable) -> TensorVariable:
    return expression.type(name=f"place of {expression.name}")


def _factors(model: pm.Model, weights: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Random variables whose parameters depend on weights, and potentials that do."""
    barriers = model.basic_RVs
    own = [rv for rv in weights if any(depends_on(i, weights, barriers) for i in rv.owner.inputs)]
    return [*own, *dependent_factors(model, weights)]


REARRANGING = (
    AdvancedSubtensor,
    Alloc,
    DimShuffle,
    Reshape,
    SpecifyShape,
    Subtensor,
    Sum,
    ViewOp,
)
"""Operations that act on squares as on the numbers of their first argument."""

SIGNS = (scalar.Abs, scalar.Cast, scalar.Identity, scalar.Neg)

BENT: dict[type[scalar.ScalarOp], Callable[[TensorVariable], TensorVariable]] = {
    scalar.Tanh: lambda u: pt.minimum(u, 1.0),
    Erf: lambda u: pt.minimum(4 / np.pi * u, 1.0),
    Erfc: lambda u: pt.full_like(u, 4.0),
    Sigmoid: pt.ones_like,
    Softplus: lambda u: pt.maximum(u, np.log(2) ** 2),
}
"""Largest squares of activations; their slopes are bounded by one."""


LINEAR = (scalar.Add, scalar.Mul, scalar.Sub, scalar.TrueDiv)


class _NetworkReader:
    """Outputs of a network, and typical squares of expressions given those of weights that move."""

    def __init__(
        self, given: Mapping[TensorVariable, TensorVariable], barriers: Collection[TensorVariable]
    ) -> None:
        self._squares: dict[Any, Any] = dict(given)
        self._found_outputs: dict[Any, list[Any]] = {}
        self._given, self._barriers = given, barriers

    def square(self, expression: Any) -> Any:
        """Square of an expression; its value if nothing in it moves."""
        moving = dependents(expression, self._given, self._barriers)
        return self._square(expression, moving)

    def _square(self, expression: Any, moving: Collection[Variable]) -> Any:
        if expression not in self._squares:
            if expression in moving:
                self._squares[expression] = self._of_node(expression, moving)
            else:
                self._squares[expression] = pt.sqr(expression.astype("float64"))
        return self._squares[expression]

    def _of_node(self, expression: Any, moving: Collection[Variable]) -> Any:
        op, inputs = expression.owner.op, expression.owner.inputs
        if isinstance(op, REARRANGING):
            if not moving.isdisjoint(inputs[1:]):  # type: ignore[attr-defined]
                raise NotConjugate("a moved variable enters an index or a length")
            return op(self._square(inputs[0], moving), *inputs[1:])
        if isinstance(op, AdvancedIncSubtensor | IncSubtensor):
            return op(*(self._square(array, moving) for array in inputs[:2]), *inputs[2:])
        if isinstance(op, Elemwise) and isinstance(op.scalar_op, scalar.Switch):
            pieces = [self._square(piece, moving) for piece in inputs[1:]]
            return _bent(pt.add(*pieces), pt.maximum(*pieces))
        squares = [self._square(operand, moving) for operand in inputs]
        if isinstance(getattr(op, "core_op", op), Dot | Join):
            return op(*squares)
        if isinstance(op, Elemwise):
            return _of_numbers(op.scalar_op, squares, [i in moving for i in inputs])
        raise NotConjugate(f"{op} is not supported")

    def outputs(self, expressions: Sequence[Variable]) -> list[TensorVariable]:
        """Outputs of the network through which weights enter the parameters of a response."""
        moving = [(e, dependents(e, self._given, self._barriers)) for e in expressions]
        return list(dict.fromkeys(u for each in moving for u in self._outputs(*each)))

    def _outputs(self, expression: Any, moving: Collection[Variable]) -> list[Any]:
        if expression not in moving:
            return []
        if expression not in self._found_outputs:
            self._found_outputs[expression] = (
                [expression]
                if expression in self._given
                else self._below(expression, expression.owner, moving)
            )
        return self._found_outputs[expression]

    def _below(self, expression: Any, node: Apply, moving: Collection[Variable]) -> list[Any]:
        """Outputs of what an expression is computed from, or the expression itself."""
        if not _keeps_rows(node):
            self.square(expression)
            return [expression]
        below = list(dict.fromkeys(u for i in node.inputs for u in self._outputs(i, moving)))
        if len(below) == 1 and not self._is_output_of(node, below[0]):
            return below
        with suppress(NotConjugate):
            self.square(expression)
            return [expression]
        if isinstance(node.op, Subtensor):
            self.square(expression)
        return below

    def _is_output_of(self, node: Apply, below: TensorVariable) -> bool:
        """Whether a part of an output, or what is linear in a weight, is an output itself."""
        operand: Any = node.inputs[0]
        result: Any = node.outputs[0]
        is_part = below is operand and result.ndim < below.ndim
        match node.op:
            case Subtensor(idx_list=[_, *columns]) if any(
                isinstance(each, slice) and each != slice(None) for each in columns
            ):  # some columns, not a single one
                return is_part or below.ndim == operand.ndim
            case Subtensor() | DimShuffle():
                return is_part
        linear = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, LINEAR)
        return below in self._given and linear


def _of_numbers(operation: Any, squares: Sequence[Any], moves: Sequence[bool]) -> Any:
    """Square of an elementwise operation, given the squares of its operands."""
    match operation:
        case scalar.Add() | scalar.Sub():
            return pt.add(*squares)
        case scalar.Mul():
            return pt.mul(*squares)
        case scalar.TrueDiv() if not moves[1]:
            return squares[0] / squares[1]
        case scalar.Maximum() if sum(moves) == 1:
            return pt.maximum(*squares)
        case scalar.Clip() if not any(moves[1:]):
            return _bent(squares[0], pt.minimum(squares[0], pt.maximum(*squares[1:])))
    [square, *others] = squares
    if not others and isinstance(operation, SIGNS):
        return square
    if not others and type(operation) in BENT:
        return _bent(square, BENT[type(operation)](square))
    raise NotConjugate(f"{operation} is not supported")


def _bent(square: Any, largest: Any) -> Any:
    """A largest square that has the slope of another one."""
    return square + disconnected_grad(largest - square)


def _keeps_rows(node: Apply) -> bool:
    """Whether each row of a result depends on the same row of its operands alone."""
    match node.op:
        case Elemwise() | ViewOp() | SpecifyShape() | RandomVariable() | SymbolicRandomVariable():
            return True
        case DimShuffle(shuffle=kept):
            return list(kept) == sorted(kept)
        case Softmax() | LogSoftmax():
            return node.op.axis is not None and 0 not in node.op.axis
        case Sum(axis=axes):
            return axes is not None and 0 not in axes
        case Join(axis=axis):
            return axis != 0
        case Subtensor(idx_list=[rows, *_]):
            return rows == slice(None)
    return False


class Metric:
    """Prior precisions and curvatures at the present values of all variables.

    They depend neither on the variables that are moved nor on those that are integrated out.
    """

    def __init__(
        self,
        model: pm.Model,
        rvs: Sequence[TensorVariable],
        metric: Choice,
        compile_kwargs: Mapping[str, Any],
        integrated_out: Sequence[TensorVariable] = (),
    ) -> None:
        values = [model.rvs_to_values[rv] for rv in rvs]
        moved = [*rvs, *integrated_out]
        network = _network(model, moved, metric)
        weights = {} if network is None else network.likelihoods
        self.kind: Choice = "network" if weights else "learnt" if metric == "auto" else metric
        priors = {rv: prior_precision(model, rv, moved_with(model, moved)) for rv in rvs}
        precisions: dict[Any, Any] = {rv: 1.0 if p is None else p for rv, p in priors.items()}
        places: Mapping[Any, Any] = {}
        if network is not None:
            precisions |= {rv: network.priors[rv] + c for rv, c in weights.items()}
            places = network.references
        natural = natural_values(model)
        read = substitute([pt.as_tensor(precisions[rv]) for rv in rvs], natural)
        outputs = [_flat(read, values)]
        learnt = [] if self.kind == "prior" else [rv for rv in rvs if rv not in weights]
        if learnt:
            included = log_density(model, [rv for rv in learnt if priors[rv] is not None])
            outputs.append(_flat(gradient_of(included, values, values), values))
            outputs.append(_flat([pt.constant(float(rv in learnt)) for rv in rvs], values))
        typical = substitute(places.values(), natural)
        # What the precisions are evaluated at in the place of what is moved.
        self._references = PointFunction(model, (), typical, compile_kwargs)
        self._precisions = PointFunction(model, list(places), outputs, compile_kwargs)
        self.of_data = self._references, self._precisions
        self.references = self._references.at

    def __call__(
        self, point: Mapping[str, np.ndarray], references: Sequence[np.ndarray] = ()
    ) -> list[np.ndarray]:
        """Precisions (n,) and, where some are learnt, the gradient of their priors and a mask.

        The gradient is of the priors that are included in those to be learnt, whose mask is one.
        """
        return self._precisions.at(point, *references)


def _network(
    model: pm.Model, moved: Sequence[TensorVariable], metric: Choice
) -> NetworkCurvature | None:
    """Curvature read off the graph, if that is asked for, or possible and not excluded."""
    if metric not in ("auto", "network"):
        return None
    try:
        return network_curvature(model, moved)
    except NotConjugate as reason:
        if metric == "auto":
            return None
        raise ValueError(
            f'metric="network" needs a network that can be read: {reason}; use "learnt".'
        ) from reason


def _flat(parts: Sequence[Any], values: Sequence[Any]) -> TensorVariable:
    whole = (pt.broadcast_to(part, v.shape) for part, v in zip(parts, values, strict=True))
    return pt.concatenate([each.ravel().astype("float64") for each in whole])
