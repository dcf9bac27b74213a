r"""Whether trajectories follow the model's own log density.

Between two points that differ in :math:`\theta` only, what moves, the log density of
:class:`~pymc_nnsteps.HMC` has to differ by what the model's does. Where a Gaussian block :math:`v`
is integrated out, the model's is, for any v,

.. math::

    \log p(\theta) = \log p(\theta, v) + \tfrac12 g^T P^{-1} g - \tfrac12 \log |P|
    + \text{constant}, \quad g = \nabla_v \log p(\theta, v),

since the log density is quadratic in v. The columns of P are differences of such gradients.
"""

from collections.abc import Sequence

import numpy as np
import scipy

from pymc_nnsteps.laws.verification import RTOL, RTOL_SINGLE
from pymc_nnsteps.steps.hamiltonian import HMC
from pymc_nnsteps.steps.slopes import Array, Point, Target


def require_density(target: Target, step: HMC, one: Point, other: Point) -> None:
    """Refuse a step whose log density is not the model's.

    Parameters
    ----------
    one, other : mapping from name to array
        Two points. What the step moves is taken from both, all else from the first.
    """
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
    sizes = [point[name].size for name in names]

    def gradient(shift: Array) -> Array:
        pieces = zip(names, np.split(shift, np.cumsum(sizes)[:-1]), strict=True)
        moved = {name: point[name] + piece.reshape(point[name].shape) for name, piece in pieces}
        _, slopes = target.slopes({**point, **moved})
        return np.concatenate([slopes[name].ravel() for name in names])

    at_point = gradient(np.zeros(sum(sizes)))
    precision = np.array([at_point - gradient(unit) for unit in np.eye(sum(sizes))])
    root = scipy.linalg.cho_factor(precision, lower=True)
    log_roots = np.log(np.diagonal(root[0])).sum()
    return float(
        target.log_density(point)
        + at_point @ scipy.linalg.cho_solve(root, at_point) / 2
        - log_roots
    )
