r"""Expected information of a response in the parameters of its law.

As a sum over directions: functions :math:`t_a` of the parameters, with weights :math:`w_a`, so that

.. math:: I(\theta) = \sum_a w_a \, \nabla t_a \nabla t_a^T.

In anything u that the parameters are computed from it is then
:math:`\sum_a w_a (\partial t_a / \partial u)^2`, whatever the link between.

References
----------
Johnson, Kotz and Balakrishnan, *Continuous Univariate Distributions* (1994, 1995). Lawless,
*Negative Binomial and Mixed Poisson Regression*, Canadian Journal of Statistics 15 (1987).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import WeibullBetaRV
from pytensor.gradient import NullTypeGradError
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import (
    BernoulliRV,
    BetaRV,
    BinomialRV,
    CategoricalRV,
    CauchyRV,
    ExponentialRV,
    GammaRV,
    GeometricRV,
    GumbelRV,
    InvGammaRV,
    LaplaceRV,
    LogisticRV,
    LogNormalRV,
    NegBinomialRV,
    NormalRV,
    PoissonRV,
    StudentTRV,
)
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import kind_of
from pymc_nnsteps.graphs.search import parameters

Direction = tuple[Any, Any]
"""Weight and function of the parameters."""

SMALLEST = 1e-12
"""Lower limit of probabilities and means that weights are divided by."""


def _over(x: Any) -> Any:
    """Reciprocal of what is not negative, bounded."""
    return 1 / pt.maximum(x, SMALLEST)


def _gamma(shape: Any, scale: Any) -> list[Direction]:
    """Mean and shape are orthogonal."""
    return [(shape, pt.log(shape * scale)), (pt.polygamma(1, shape) - 1 / shape, shape)]


def _categorical(p: Any) -> list[Direction]:
    n_classes = p.type.shape[-1]
    if n_classes is None:
        raise NotConjugate("the number of its classes is not known")
    return [(_over(p[..., k]), p[..., k]) for k in range(n_classes)]


def _normal(mu: Any, sigma: Any) -> list[Direction]:
    return [(sigma**-2, mu), (2 * sigma**-2, sigma)]


DIRECTIONS: dict[type, Callable[..., list[Direction]]] = {
    BernoulliRV: lambda p: [(_over(p * (1 - p)), p)],
    BetaRV: lambda alpha, beta: [
        (pt.polygamma(1, alpha), alpha),
        (pt.polygamma(1, beta), beta),
        (-pt.polygamma(1, alpha + beta), alpha + beta),
    ],
    BinomialRV: lambda n, p: [(n * _over(p * (1 - p)), p)],
    CategoricalRV: _categorical,
    CauchyRV: lambda alpha, beta: [(beta**-2 / 2, alpha), (beta**-2 / 2, beta)],
    ExponentialRV: lambda scale: [(scale**-2, scale)],
    GammaRV: _gamma,
    GeometricRV: lambda p: [(_over(p**2 * (1 - p)), p)],
    GumbelRV: lambda mu, beta: [
        (beta**-2, mu - (1 - np.euler_gamma) * beta),
        (np.pi**2 / 6 * beta**-2, beta),
    ],
    InvGammaRV: lambda shape, scale: _gamma(shape, 1 / scale),
    LaplaceRV: lambda mu, b: [(b**-2, mu), (b**-2, b)],
    LogNormalRV: _normal,
    LogisticRV: lambda mu, s: [(s**-2 / 3, mu), ((3 + np.pi**2) / 9 * s**-2, s)],
    # Without what it says of the dispersion ``n`` given the mean, which has no closed form.
    NegBinomialRV: lambda n, p: [(_over((1 - p) / p * n / p), n * (1 - p) / p)],
    NormalRV: _normal,
    PoissonRV: lambda mu: [(_over(mu), mu)],
    # Without what it says of the degrees of freedom.
    StudentTRV: lambda nu, mu, sigma: [
        ((nu + 1) / (nu + 3) * sigma**-2, mu),
        (2 * nu / (nu + 3) * sigma**-2, sigma),
    ],
    # The logarithm is minus a Gumbel variable.
    WeibullBetaRV: lambda alpha, beta: [
        (alpha**2, pt.log(beta) + (1 - np.euler_gamma) / alpha),
        (np.pi**2 / 6 * alpha**2, 1 / alpha),
    ],
}


class Unaligned(NotConjugate):
    """Rows of a response share entries of what their parameters are computed from."""

    def __init__(self, place: TensorVariable) -> None:
        super().__init__("rows share what it depends on")
        self.place = place


def information(
    response: TensorVariable, value: TensorVariable, inputs: list[TensorVariable]
) -> list[TensorVariable]:
    """Information of a response in variables (``inputs``) that its parameters are computed from.

    Rows do not share entries of these. Where the expected information has no closed form, it is the
    squared slope of the log density at the observed value, averaged over rows.
    """
    if not is_expected(response):
        return _observed(response, value, inputs)
    totals: list[Any] = [pt.zeros_like(each, dtype="float64") for each in inputs]
    numbers = (pt.cast(each, "float64") for each in parameters(response))  # 2**-2 is no integer
    for weight, function in DIRECTIONS[kind_of(response)](*numbers):
        weights = _over_copies(weight, function, value)
        for i, place in enumerate(inputs):
            if place in ancestors([function]):
                slope: Any = pt.grad(function.sum(), place, null_gradients="return")
                totals[i] += _aligned(weights, place) * pt.sqr(slope)
    return [_usable(total) for total in totals]


def is_expected(response: TensorVariable) -> bool:
    """Whether the information of a response is the expected one, and not that of what is seen."""
    return kind_of(response) in DIRECTIONS


def _over_copies(weight: Any, function: TensorVariable, value: TensorVariable) -> TensorVariable:
    """Sum of weights over the entries of a response that have the same entry of a function."""
    weights = pt.as_tensor(weight) + pt.zeros(value.shape)
    summed = weights.sum(axis=tuple(range(value.ndim - function.ndim)))
    copied = tuple(axis for axis, is_one in enumerate(function.type.broadcastable) if is_one)
    return summed.sum(axis=copied, keepdims=True)


def _aligned(weights: TensorVariable, place: TensorVariable) -> TensorVariable:
    """Weights of rows, to be multiplied with what each row has one or several of."""
    while weights.ndim > place.ndim and weights.type.shape[0] == 1:
        weights = weights[0]
    missing = place.ndim - weights.ndim
    padded = pt.shape_padright(weights, missing) if missing > 0 else weights
    if missing not in (0, 1) or not all(
        given == wanted or given == 1 or None in (given, wanted)
        for given, wanted in zip(padded.type.shape, place.type.shape, strict=True)
    ):
        raise Unaligned(place)
    return padded


def _observed(
    response: TensorVariable, value: TensorVariable, inputs: list[TensorVariable]
) -> list[TensorVariable]:
    try:
        density = pm.logp(response, value).sum()
        slopes: Any = pt.grad(density, inputs, disconnected_inputs="ignore")
    except (NullTypeGradError, NotImplementedError) as error:
        raise NotConjugate("its density has no gradient") from error
    squares = [pt.sqr(slope) for slope in slopes]
    means = [each.mean(axis=0, keepdims=True) if each.ndim else each for each in squares]
    return [
        pt.zeros_like(each, dtype="float64") + _usable(mean)
        for each, mean in zip(inputs, means, strict=True)
    ]


def _usable(information: TensorVariable) -> TensorVariable:
    return pt.switch(pt.isinf(information) | pt.isnan(information), 0, pt.maximum(information, 0))
