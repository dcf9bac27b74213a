r"""A model's log density at the points of a chain, and whether trajectories follow it.

Between two points that differ in :math:`\theta` only, what moves, the log density of
:class:`~pymc_nnsteps.HMC` has to differ by what the model's does. Where a Gaussian block :math:`v`
is integrated out, the model's is, for any v,

.. math::

    \log p(\theta) = \log p(\theta, v) + \tfrac12 g^T P^{-1} g - \tfrac12 \log |P|
    + \text{constant}, \quad g = \nabla_v \log p(\theta, v),

since the log density is quadratic in v. The columns of P are differences of such gradients.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import scipy
from numpy.linalg import LinAlgError
from numpy.typing import NDArray
from pymc.logprob.utils import ParameterValueError
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable

from pymc_nnsteps.compile.compiling import c_by_default, without_blas_notice, without_bookkeeping
from pymc_nnsteps.compile.rewriting import compiled
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.laws.verification import RTOL, RTOL_SINGLE
from pymc_nnsteps.steps.flat import unflattened
from pymc_nnsteps.steps.hamiltonian import HMC
from pymc_nnsteps.steps.target import log_density

OUTSIDE = (ParameterValueError, IndexError, LinAlgError)
"""Exceptions from evaluating a log density at a point where it is undefined."""

Array = NDArray[Any]
Point = Mapping[str, Array]


class Target:
    """The model's log density at points, with slopes."""

    @without_bookkeeping()
    def __init__(self, model: pm.Model) -> None:
        self.model = model
        values: list[Any] = model.value_vars
        self._names = [value.name for value in values]
        self._inputs = values
        factors = [*model.basic_RVs, *model.potentials]
        self._graph = log_density(model, factors)
        smooth = [value for value in values if value.dtype.startswith("float")]
        slopes = {value.name: self._slope(value) for value in smooth}
        self._sloped = [name for name, slope in slopes.items() if slope is not None]
        given = [slopes[name] for name in self._sloped]
        self._density = self._compiled([self._graph])
        self._slopes = self._compiled([self._graph, *given])

    def _slope(self, value: Variable) -> Any:
        try:
            return pt.grad(self._graph, value, disconnected_inputs="ignore")
        except (NullTypeGradError, NotImplementedError):
            return None

    @without_blas_notice()
    def _compiled(self, outputs: list[Any]) -> Any:
        return compiled(self._inputs, outputs, on_unused_input="ignore", **c_by_default(None))

    def log_density(self, point: Point) -> float:
        """Log density; minus infinity where it is undefined."""
        return self._evaluated(self._density, point)

    def _evaluated(self, density: Any, point: Point) -> float:
        try:
            [value] = density(*(point[name] for name in self._names))
        except OUTSIDE:
            return -np.inf
        return -np.inf if np.isnan(value) else float(value)

    def slopes(self, point: Point) -> tuple[float, dict[str, Array]]:
        """Log density and its gradients with respect to the differentiable variables."""
        try:
            value, *slopes = self._slopes(*(point[name] for name in self._names))
        except OUTSIDE:
            return -np.inf, {name: np.full(point[name].shape, np.nan) for name in self._sloped}
        return float(value), dict(zip(self._sloped, slopes, strict=True))

    def without_density(self, point: Point) -> list[str]:
        """Variables whose value is no number, or factors that have no density at a point."""
        strange = [
            describe(rv)
            for rv in self.model.free_RVs
            if not np.isfinite(point[self.model.rvs_to_values[rv].name]).all()
        ]
        factors = [] if strange else [*self.model.basic_RVs, *self.model.potentials]
        for factor in factors:
            density = self._compiled([log_density(self.model, [factor])])
            if not np.isfinite(self._evaluated(density, point)):
                strange.append(describe(factor))
        return strange


def require_density(target: Target, step: HMC, one: Point, other: Point) -> None:
    """Refuse a step whose log density is not the model's at two points of what it moves."""
    moved = step.moved
    there = {**one, **{name: other[name] for name in moved}}
    own = [step.log_density(point) for point in (one, there)]
    models = [_integrated(target, point, step.integrated_out) for point in (one, there)]
    difference, expected = np.diff(own)[0], np.diff(models)[0]
    is_double = all(one[name].dtype == "float64" for name in moved)
    rounding = (RTOL if is_double else RTOL_SINGLE) * (1.0 + np.abs([*own, *models]).max())
    if not abs(difference - expected) < rounding:
        raise AssertionError(
            f"{', '.join(moved)}: the log density of HMC differs between two points by "
            f"{difference:.6g}, the model's by {expected:.6g}."
        )


def _integrated(target: Target, point: Point, names: Sequence[str]) -> float:
    """Log density at a point, with a Gaussian block integrated out, up to a constant."""
    if not names:
        return target.log_density(point)
    block = [point[name] for name in names]

    def gradient(shift: Array) -> Array:
        pieces = zip(names, block, unflattened(shift, block), strict=True)
        moved = {name: value + piece for name, value, piece in pieces}
        _, slopes = target.slopes({**point, **moved})
        return np.concatenate([slopes[name].ravel() for name in names])

    size = sum(value.size for value in block)
    at_point = gradient(np.zeros(size))
    precision = np.array([at_point - gradient(unit) for unit in np.eye(size)])
    root = scipy.linalg.cho_factor(precision, lower=True)
    log_roots = np.log(np.diagonal(root[0])).sum()
    return float(
        target.log_density(point)
        + at_point @ scipy.linalg.cho_solve(root, at_point) / 2
        - log_roots
    )
