"""Coordinates of a proposal: each variable is an affine function of its coordinates.

In the coordinates ``xi = L^{-1} (u - m)`` a prior ``N(m, L L^T)`` is the standard normal, so that
a proposal that is made for standard normals serves every Gaussian prior. ``m`` and ``L`` are
graphs in terms of the model's other variables: the map moves along with them.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import pymc as pm
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import describe, has_prior, law_as_stated
from pymc_nnsteps.graphs.search import parameters, stated_in
from pymc_nnsteps.laws.multivariate import inverted
from pymc_nnsteps.steps.target import moved_with, unbatched

Map = Callable[[TensorVariable], TensorVariable]


@dataclass(frozen=True)
class Coordinates:
    """An invertible affine map between a variable's value and its coordinates."""

    to_value: Map
    from_value: Map


def whitened(model: pm.Model, rv: TensorVariable, block: Collection[TensorVariable]) -> Coordinates:
    """Coordinates in which the Normal or MvNormal prior of a variable is standard normal.

    It is proposed together with its block.
    """
    if not has_prior(model, rv, NormalRV, MvNormalRV):
        raise ValueError(
            f"{describe(rv)} has the prior {law_as_stated(model, rv)}, but this step needs an "
            "unconstrained Normal or MvNormal one; leave the variable to another step."
        )
    stated = stated_in(rv.owner.inputs, model.basic_RVs)
    if others := stated.intersection(moved_with(model, list(block))):
        names = ", ".join(sorted(map(describe, others)))
        raise ValueError(
            f"{describe(rv)} has a prior that depends on {names}, a variable of the same block or "
            "one that moves with it; give the two to different steps."
        )
    mean, spread = parameters(rv)
    mean = mean.astype(rv.dtype)
    if has_prior(model, rv, MvNormalRV):
        return _multivariate(mean, unbatched(spread))
    sigma = spread.astype(rv.dtype)
    return Coordinates(lambda xi: mean + sigma * xi, lambda u: (u - mean) / sigma)


def scaled(scale: TensorVariable) -> Coordinates:
    """Coordinates in units of ``scale``."""
    return Coordinates(lambda xi: scale * xi, lambda u: u / scale)


def _multivariate(mean: TensorVariable, covariance: TensorVariable) -> Coordinates:
    precision = inverted(covariance)
    if precision is None:
        root = cholesky(covariance.astype(mean.dtype))
        return Coordinates(
            lambda xi: mean + _apply(root, xi), lambda u: _solve(root, u - mean, lower=True)
        )
    transposed = cholesky(precision.astype(mean.dtype)).mT
    return Coordinates(
        lambda xi: mean + _solve(transposed, xi, lower=False),
        lambda u: _apply(transposed, u - mean),
    )


def _apply(matrix: TensorVariable, vectors: TensorVariable) -> TensorVariable:
    """Product with each vector along the last axis."""
    if matrix.ndim == 2:
        return vectors @ matrix.mT
    return (matrix @ vectors[..., None])[..., 0]


def _solve(matrix: TensorVariable, vectors: TensorVariable, *, lower: bool) -> TensorVariable:
    """Solution of a triangular system for each vector along the last axis."""
    if matrix.ndim == 2:
        columns = vectors.reshape((-1, vectors.shape[-1])).mT
        solved = solve_triangular(matrix, columns, lower=lower).mT
        return solved.reshape(vectors.shape, ndim=vectors.ndim)
    return solve_triangular(matrix, vectors, lower=lower, b_ndim=1)
