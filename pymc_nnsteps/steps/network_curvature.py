r"""Curvature of a network's likelihood in its weights, computed from their scales alone.

The second derivative of minus the log likelihood with respect to a weight is about the square of
what the weight multiplies, times the squares of all that lies between it and the outputs, times the
curvature in the outputs. With each weight's square replaced by its variance a priori, and that of a
hidden unit by the largest it can have, nothing of it depends on where the weights are: a metric
made of it may follow the scales that other steps draw.

Squares add and multiply as the numbers do whose squares they are. The network of squares,

.. math:: u^2_j = \sum_i v^2_i \sigma^2_{ij}, \qquad v^2_j = \min(1, u^2_j) \quad (\tanh),

is thus the network's own graph with the weights' variances in place of weights, and the gradient of
:math:`\sum_n c_n f^2_n` with respect to these, c the curvatures in the outputs f, is what is asked
for: for any number of layers, connections that skip layers, and shared weights.

References
----------
Neal, *Neural Network Models Implemented in the Flexible Bayesian Modelling Software* (2022),
equations 58-68.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.scalar import basic as scalar
from pytensor.scalar.math import Erf, Sigmoid, Softplus
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, NormalRV, StudentTRV
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import has_prior
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import dependents, depends_on, parameters, unwrapped
from pymc_nnsteps.steps.prior_precision import prior_precision
from pymc_nnsteps.steps.target import dependent_factors, moved_with

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
    Softplus: lambda u: pt.maximum(u, np.log(2) ** 2),
}
"""Largest squares of activations; their slopes are bounded by one."""


def network_curvature(model: pm.Model, rvs: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Curvature of minus the log density that weights are moved in, their priors left out.

    Parameters
    ----------
    model : pm.Model
    rvs : sequence of TensorVariable
        Weights: free variables with Normal, Student-t or Laplace priors.

    Returns
    -------
    list of TensorVariable
        Curvature of each weight, with its shape, as an expression of the model's other variables.

    Raises
    ------
    NotConjugate
        If it cannot be read off the graph; the message says why.

    Examples
    --------
    >>> import numpy as np
    >>> with pm.Model() as model:
    ...     w, v = pm.Normal("w", 0, 3), pm.Normal("v", 0, 2)
    ...     y = pm.Normal("y", v * pm.math.tanh(w * np.array([1.0, 0.1])), 0.5, observed=[0.7, 0.2])
    >>> [float(curvature.eval()) for curvature in network_curvature(model, [w, v])]
    [16.16, 4.36]
    """
    if beside := moved_with(model, rvs)[len(rvs) :]:
        names = ", ".join(map(describe, beside))
        raise NotConjugate(f"the transform of {names} depends on what is moved")
    variances = {}
    for rv in rvs:
        precision = prior_precision(model, rv, rvs)
        if precision is None:
            raise NotConjugate(f"the prior of {describe(rv)} is none whose precision is known")
        variances[rv] = pt.broadcast_to(1 / precision, rv.shape)
    total = pt.constant(0.0)
    for factor in dependent_factors(model, rvs):
        outputs, curvature = _output(model, factor)
        if depends_on(curvature, rvs, model.basic_RVs):
            raise NotConjugate(f"the scale of {describe(factor)} depends on what is moved")
        total += (curvature * _Squares(variances, model.basic_RVs).of(outputs)).sum()
    found: Any = pt.grad(total, list(variances.values()), disconnected_inputs="ignore")
    return list(found)


def _output(model: pm.Model, factor: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Network output in a likelihood factor and the largest curvature of its log density in it."""
    given = () if factor in model.potentials else parameters(factor)
    if has_prior(model, factor, NormalRV):
        mean, sigma = given
        return mean, pt.sqr(1 / sigma)
    if has_prior(model, factor, StudentTRV):
        nu, mean, sigma = given
        return mean, (1 + 1 / nu) * pt.sqr(1 / sigma)
    if has_prior(model, factor, BernoulliRV, CategoricalRV):
        link = unwrapped(given[0]).owner
        if link is not None and (
            isinstance(link.op, Softmax) or isinstance(getattr(link.op, "scalar_op", None), Sigmoid)
        ):
            return link.inputs[0], pt.constant(0.25)
    raise NotConjugate(f"the curvature of {describe(factor)} is not known")


class _Squares:
    """Typical squares of expressions, given the squares of the weights that move."""

    def __init__(
        self, given: Mapping[TensorVariable, TensorVariable], barriers: Collection[TensorVariable]
    ) -> None:
        self._found: dict[Any, TensorVariable] = dict(given)
        self._given = given
        self._barriers = barriers

    def of(self, expression: Any) -> Any:
        """Square of an expression; its value if nothing in it moves."""
        moving = dependents(expression, self._given, self._barriers)
        return self._square(expression, moving)

    def _square(self, expression: Any, moving: Collection[Variable]) -> Any:
        if expression not in self._found:
            if expression in moving:
                self._found[expression] = self._of_node(expression, moving)
            else:
                self._found[expression] = pt.sqr(expression.astype("float64"))
        return self._found[expression]

    def _of_node(self, expression: Any, moving: Collection[Variable]) -> Any:
        op, inputs = expression.owner.op, expression.owner.inputs
        if isinstance(op, REARRANGING):
            if not moving.isdisjoint(inputs[1:]):  # type: ignore[attr-defined]
                raise NotConjugate("what is moved enters an index or a length")
            return op(self._square(inputs[0], moving), *inputs[1:])
        squares = [self._square(operand, moving) for operand in inputs]
        if isinstance(getattr(op, "core_op", op), Dot | Join):
            return op(*squares)
        if isinstance(op, Elemwise):
            return _of_numbers(op.scalar_op, squares, [i in moving for i in inputs])
        raise NotConjugate(f"{op} has no rule for squares")


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
    [square, *others] = squares
    if not others and isinstance(operation, SIGNS):
        return square
    if not others and type(operation) in BENT:
        return square + disconnected_grad(BENT[type(operation)](square) - square)
    raise NotConjugate(f"{operation} has no rule for squares")
