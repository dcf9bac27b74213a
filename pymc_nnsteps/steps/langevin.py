"""The Metropolis-adjusted Langevin algorithm: the baseline of both papers."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pymc.initial_point import PointType
from pymc.model import modelcontext
from pymc.util import RandomGenerator
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import positive_number
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.steps.metropolis import (
    MetropolisHastings,
    Proposal,
    SymbolicState,
    dot,
    scaled,
    statistics,
)
from pymc_nnsteps.steps.step import Vars, chosen, require_continuous
from pymc_nnsteps.steps.target import dependent_factors


def mala_move(
    xi: TensorVariable,
    gradient: TensorVariable | None,
    noise: TensorVariable,
    epsilon: TensorVariable,
) -> TensorVariable:
    """``v = u + epsilon^2/2 grad log p(u) + epsilon w``."""
    return xi + pt.sqr(epsilon) / 2 * gradient + epsilon * noise


def mala_log_ratio(u: SymbolicState, v: SymbolicState, epsilon: TensorVariable) -> TensorVariable:
    """``log p(v) q(u | v) - log p(u) q(v | u)``, ``q`` the density of the proposal."""
    g_u, g_v = u.gradient, v.gradient
    along = (
        dot(v.coordinates, g_u)
        - dot(u.coordinates, g_u)
        + dot(v.coordinates, g_v)
        - dot(u.coordinates, g_v)
    )
    squares = dot(g_v, g_v) - dot(g_u, g_u)
    return v.log_density - u.log_density - along / 2 - pt.sqr(epsilon) / 8 * squares


class MALA(MetropolisHastings):
    """Metropolis-adjusted Langevin algorithm, with an optional diagonal preconditioner.

    For the posterior ``p(u)`` of the unconstrained values, propose
    ``v = u + epsilon^2/2 M grad log p(u) + epsilon M^{1/2} w``, ``w ~ N(0, I)``, and accept with
    the Metropolis-Hastings ratio. A proposal costs one evaluation of ``log p`` and its gradient.

    Parameters
    ----------
    vars : variable or list of variables, optional
        Continuous random variables (or their names), including those of :mod:`pymc.dims`. None: all
        of the model.
    step_size : float, optional
        ``epsilon``. By default it is adapted during tuning and then kept.
    target_accept : float
        Acceptance probability that the adaptation aims for.
    preconditioner : mapping from variable or name to array_like, optional
        Diagonal of ``M``, such as posterior variances of the unconstrained values; must broadcast
        to their shapes. Variables not mentioned have 1.
    steps : int
        Proposals per stored draw.
    model, rng, blocked, initial_point, compile_kwargs
        As for :class:`~pymc_nnsteps.PCN`.

    Raises
    ------
    ValueError
        If a variable is discrete, if the model's density has no gradient or is itself random
        (``pm.Minibatch``), or if an argument is out of range.

    Notes
    -----
    Statistics of a draw: ``acceptance_probability`` (the mean over ``steps`` proposals),
    ``proposal_size`` (``epsilon``), ``log_density`` (the sum of the model's log densities that
    depend on the variables, including their own and Jacobians).

    References
    ----------
    Roberts and Tweedie, *Exponential convergence of Langevin distributions and their discrete
    approximations*, Bernoulli 2 (1996). Roberts and Rosenthal, *Optimal scaling of discrete
    approximations to Langevin diffusions*, JRSS B 60 (1998): acceptance 0.574.

    Examples
    --------
    >>> import pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model:
    ...     tau = pm.Gamma("tau", 2, 1)
    ...     y = pm.Normal("y", 0, tau=tau, observed=[0.3, -1.2, 0.5])
    ...     step = nns.MALA([tau], step_size=0.5)
    >>> point, [stats] = step.step(model.initial_point())
    >>> list(point)
    ['tau_log__']
    """

    name = "mala"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = statistics("log_density")
    _density = "log_density"
    _size_at = staticmethod(math.exp)

    def __init__(
        self,
        vars: Vars = None,
        *,
        step_size: float | None = None,
        target_accept: float = 0.574,
        preconditioner: Mapping[TensorVariable | str, ArrayLike] | None = None,
        steps: int = 1,
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
        blocked: bool = True,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ) -> None:
        size = None if step_size is None else positive_number("step_size", step_size)
        model = modelcontext(model)
        rvs = list(model.free_RVs) if vars is None else chosen(model, vars)
        require_continuous(rvs, "MALA")
        point = model.initial_point() if initial_point is None else initial_point
        scales = _scales(model, rvs, preconditioner or {}, point)
        super().__init__(
            model,
            rvs,
            [scaled(scale) for scale in scales],
            [*rvs, *dependent_factors(model, rvs)],
            Proposal(mala_move, mala_log_ratio, uses_gradient=True),
            size=size,
            target_accept=target_accept,
            steps=steps,
            rng=rng,
            initial_point=point,
            compile_kwargs=compile_kwargs,
        )


def _scales(
    model: pm.Model,
    rvs: list[TensorVariable],
    preconditioner: Mapping[TensorVariable | str, ArrayLike],
    point: PointType,
) -> list[TensorVariable]:
    """``M^{1/2}`` of each variable."""
    given = {
        var if isinstance(var, str) else describe(var): diagonal
        for var, diagonal in preconditioner.items()
    }
    unknown = sorted(set(given) - {rv.name for rv in rvs})
    if unknown:
        raise ValueError(
            f"preconditioner has {', '.join(unknown)}, which this step does not sample."
        )
    scales: list[TensorVariable] = []
    for rv in rvs:
        value = model.rvs_to_values[rv]
        shape = np.shape(point[value.name])
        diagonal = np.asarray(given.get(describe(rv), 1.0), dtype=value.dtype)
        if not np.all((diagonal > 0) & np.isfinite(diagonal)):
            raise ValueError(f"preconditioner of {rv.name} must be positive and finite.")
        try:
            diagonal = np.broadcast_to(diagonal, shape) if diagonal.ndim else diagonal
        except ValueError:
            raise ValueError(
                f"preconditioner of {rv.name} has shape {diagonal.shape}, but the unconstrained "
                f"values have {shape}."
            ) from None
        scales.append(pt.constant(np.sqrt(diagonal)))
    return scales
