r"""Precision matrices, with a Wishart prior.

Model, for a precision matrix :math:`W` and vectors :math:`y_i`:

.. math::

    W \sim \text{Wishart}(\nu, V), \qquad y_i \sim N(\mu_i, W^{-1})

Posterior:

.. math::

    \text{Wishart}\left(\nu + n, \left(V^{-1} + \sum_i (y_i - \mu_i)(y_i - \mu_i)^T\right)^{-1}
    \right).
"""

from dataclasses import dataclass
from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import WishartRV
from pymc.distributions.transforms import CholeskyCovTransform
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.random.basic import MvNormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import is_a
from pymc_nnsteps.graphs.names import describe, distribution
from pymc_nnsteps.graphs.search import children, parameters, unwrapped
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.laws.conditional import (
    Conditional,
    Draw,
    Shapes,
    require_free,
    require_given,
    require_support,
    value_of,
)
from pymc_nnsteps.laws.densities import DENSITIES, Array, Density, Random
from pymc_nnsteps.laws.multivariate import inverted, location
from pymc_nnsteps.laws.table import recognises


@dataclass(frozen=True)
class PrecisionMatrix(Conditional):
    """Full conditional of a precision matrix; the observations are vectors minus their means."""

    draws: tuple[TensorVariable, ...]
    residuals: tuple[TensorVariable, ...]

    @property
    @override
    def name(self) -> str:
        return "Wishart"

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [rv] = self.draws
        nu, scale = parameters(rv)
        root = _inverse(scale.astype(rv.dtype))
        inverse_scale = root.T @ root
        for residual in self.residuals:
            rows = residual.reshape((-1, rv.shape[-1]))
            nu = nu + rows.shape[0]
            inverse_scale += rows.T @ rows
        half = _inverse(cholesky(inverse_scale, lower=True))
        factor = cholesky(half.T @ half, lower=True)
        drawn: Any = WishartRV.rv_op(nu, factor, rng=rng)
        return Draw(drawn.owner.outputs[0], {rv: typed_like(rv, drawn)})


def _inverse(factor: TensorVariable) -> TensorVariable:
    """Inverse of a lower triangular matrix."""
    inverse: Any = solve_triangular(factor, pt.eye(factor.shape[0]), lower=True)
    return inverse


@recognises(1100, "Wishart", {WishartRV}, {MvNormalRV})
def match_wishart(model: pm.Model, rv: TensorVariable) -> PrecisionMatrix:
    """Recognise a Wishart variable that is the precision matrix of its children."""
    require_free(model, rv)
    require_support(model, rv, CholeskyCovTransform)
    if rv.ndim != 2:
        raise NotConjugate("it is several matrices; draw each as a variable of its own")
    residuals = tuple(_residual(model, child, rv) for child in children(model, rv))
    return PrecisionMatrix((rv,), residuals)


def _residual(model: pm.Model, child: TensorVariable, rv: TensorVariable) -> TensorVariable:
    if not is_a(child, MvNormalRV):
        raise NotConjugate(
            f"child {describe(child)} is {distribution(child)}, of which it is no precision matrix"
        )
    mean, covariance = location(child), parameters(child)[1]
    require_given(model, child, "the mean", [mean], {rv})
    precision = inverted(covariance)
    while precision is not None and precision.owner and isinstance(precision.owner.op, DimShuffle):
        precision = precision.owner.inputs[0]
    if precision is None or unwrapped(precision) is not rv:
        raise NotConjugate(f"it is not the precision matrix of child {describe(child)}, tau=")
    value = value_of(model, child)
    return (value - mean).astype(rv.dtype)


def _wishart(shape: tuple[int, ...], nu: Array, factor: Array) -> Density:
    """With a lower triangular factor of the scale matrix."""
    n = shape[-1]
    inverse = np.linalg.inv(factor @ factor.T)

    def log_density(x: Array) -> float:
        log_determinant = np.linalg.slogdet(x)[1]
        return float((nu - n - 1) * log_determinant / 2 - np.trace(inverse @ x) / 2)

    def sample(rng: Random, scale: float) -> Array:
        root = np.tril(rng.normal(size=shape), -1) + np.diag(rng.gamma(3.0, size=n))
        matrix: Array = min(scale, 10.0) * root @ root.T
        return matrix

    return Density(log_density, sample)


DENSITIES[WishartRV] = _wishart
