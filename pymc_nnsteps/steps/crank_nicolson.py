"""Preconditioned Crank-Nicolson steps for variables with Gaussian priors: PCN and PCNL.

Write ``u`` for the deviation of the variables from their prior mean, ``C`` for their prior
covariance, and ``l(u)`` for the log of everything else in the model, so that the posterior is
``exp(l(u)) N(u; 0, C)``. Both steps propose with ``w ~ N(0, C)`` and leave the prior invariant
at any step size, so that only ``l`` enters the acceptance probability: they do not degrade as
the dimension grows.

In the coordinates ``xi = L^{-1} u``, ``C = L L^T``, the prior is ``N(0, I)``; the gradient of ``l``
with respect to them is ``L^T grad l(u)``, and ``<g, C g>`` is its squared length.
"""

import math
from typing import Any, ClassVar

import pymc as pm
import pytensor.tensor as pt
from pymc.initial_point import PointType
from pymc.model import modelcontext
from pymc.util import RandomGenerator
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import positive_number
from pymc_nnsteps.graphs.known import has_prior
from pymc_nnsteps.steps.metropolis import (
    MetropolisHastings,
    Proposal,
    SymbolicState,
    dot,
    statistics,
    whitened,
)
from pymc_nnsteps.steps.step import Vars, chosen
from pymc_nnsteps.steps.target import dependent_factors


def move(
    xi: TensorVariable,
    gradient: TensorVariable | None,
    noise: TensorVariable,
    beta: TensorVariable,
) -> TensorVariable:
    """``v = s u + (1 - s) C grad l(u) + beta w``, ``s = sqrt(1 - beta^2)``; PCN has no gradient.

    That is Cotter et al., eq. 1.1, and PCNL's with ``s = (2 - delta) / (2 + delta)``.
    """
    s = _contraction(beta)
    proposed = s * xi + beta * noise
    return proposed if gradient is None else proposed + pt.sqr(beta) / (1 + s) * gradient


def log_ratio(u: SymbolicState, v: SymbolicState, beta: TensorVariable) -> TensorVariable:
    """``rho(u, v) - rho(v, u)`` with ``rho`` of Pezzetti et al., eq. 9, its bracket put right.

    ``rho(u, v) = -l(u) - <v - u, g_u>/2 - delta/4 <u + v, g_u> + delta/4 <g_u, C g_u>``,
    ``g_u`` the gradient of ``l`` at ``u``, or zero for PCN.
    """
    delta = 2 * pt.sqr(beta) / pt.sqr(1 + _contraction(beta))

    def rho(a: SymbolicState, b: SymbolicState) -> TensorVariable:
        g = a.gradient
        if not g:
            return -a.log_density
        at_a, at_b, squared = dot(a.coordinates, g), dot(b.coordinates, g), dot(g, g)
        return -a.log_density - (at_b - at_a) / 2 - delta / 4 * (at_a + at_b - squared)

    return rho(u, v) - rho(v, u)


def _contraction(beta: TensorVariable) -> TensorVariable:
    """``sqrt(1 - beta^2)``."""
    return pt.sqrt((1 - beta) * (1 + beta))


def _beta_at(coordinate: float, /) -> float:
    """``beta`` in (0, 1) as the logistic function of the coordinate that is adapted."""
    return 1 / (1 + math.exp(-coordinate))


class PCN(MetropolisHastings):
    """Preconditioned Crank-Nicolson: a random walk that leaves the Gaussian prior invariant.

    For the posterior ``exp(l(u)) N(u; m, C)``, propose
    ``v - m = sqrt(1 - beta^2) (u - m) + beta w``, ``w ~ N(0, C)``, and accept with probability
    ``min(1, exp(l(v) - l(u)))``. The step needs no gradient. A proposal costs one evaluation of
    ``l`` and one normal per coordinate.

    Parameters
    ----------
    vars : variable or list of variables, optional
        Random variables (or their names) with Normal or MvNormal priors, of any mean and
        covariance. These may depend on variables that other steps sample, but not on each
        other. None: all variables of the model with such a prior.
    beta : float, optional
        Step size in (0, 1]. By default it is adapted during tuning and then kept.
    target_accept : float, optional
        Acceptance probability that the adaptation aims for; 0.234 by default.
    steps : int
        Proposals per stored draw.
    model : pm.Model, optional
        Taken from the context if not given.
    rng : RandomGenerator, optional
    blocked : bool
        An argument of PyMC's steps. False creates a separate step for each variable.
    initial_point : dict, optional
        A point with the shapes of the variables, which PyMC passes.
    compile_kwargs : dict, optional
        Options of :func:`pymc.pytensorf.compile`, such as ``{"mode": "NUMBA"}``. By default the
        step is compiled to C, and with numba where PyTensor finds no C++ compiler.

    Raises
    ------
    ValueError
        If a variable has no Gaussian prior, if its prior depends on another variable of the block,
        if the model's density is itself random (``pm.Minibatch``), or if an argument is out of
        range.

    Notes
    -----
    ``l`` is the sum of the model's log densities that depend on the variables, without their prior.
    Statistics of a draw: ``acceptance_probability`` (the mean over ``steps`` proposals),
    ``proposal_size`` (``beta``), ``log_likelihood`` (``l``).

    References
    ----------
    Cotter, Roberts, Stuart and White, *MCMC Methods for Functions*, Statistical Science 28
    (2013). Pezzetti, Favaro and Peluchetti, *Function-Space MCMC for Bayesian Wide Neural
    Networks* (2025).

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model:
    ...     f = pm.MvNormal("f", np.zeros(3), cov=0.5 + np.eye(3))
    ...     y = pm.Poisson("y", pm.math.exp(f), observed=[0, 2, 1])
    ...     step = nns.PCN([f], beta=0.3)
    >>> point, [stats] = step.step(model.initial_point())
    >>> sorted(stats)
    ['acceptance_probability', 'log_likelihood', 'proposal_size']
    """

    name = "pcn"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = statistics("log_likelihood")
    _density = "log_likelihood"
    _default_target: ClassVar[float] = 0.234
    _size_at = staticmethod(_beta_at)

    def __init__(
        self,
        vars: Vars = None,
        *,
        beta: float | None = None,
        target_accept: float | None = None,
        steps: int = 1,
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
        blocked: bool = True,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ) -> None:
        size = None if beta is None else positive_number("beta", beta, at_most=1)
        model = modelcontext(model)
        given = [rv for rv in model.free_RVs if has_prior(model, rv, NormalRV, MvNormalRV)]
        rvs = given if vars is None else chosen(model, vars)
        if not rvs:
            raise ValueError("No free variable of the model has a Normal or MvNormal prior.")
        super().__init__(
            model,
            rvs,
            [whitened(model, rv, rvs) for rv in rvs],
            dependent_factors(model, rvs),
            Proposal(move, log_ratio, self._uses_gradient),
            size=size,
            target_accept=self._default_target if target_accept is None else target_accept,
            steps=steps,
            rng=rng,
            initial_point=initial_point,
            compile_kwargs=compile_kwargs,
        )


class PCNL(PCN):
    """Preconditioned Crank-Nicolson Langevin: PCN with the gradient of the likelihood.

    For the posterior ``exp(l(u)) N(u; m, C)``, with ``u`` and ``v`` measured from ``m``, propose
    ``v = [(2 - delta) u + 2 delta C grad l(u) + sqrt(8 delta) w] / (2 + delta)``, ``w ~ N(0,
    C)``, and accept with probability ``min(1, exp(rho(u, v) - rho(v, u)))``, where ``rho(u, v) =
    -l(u) - <v - u, g>/2 - delta/4 <u + v, g> + delta/4 <g, C
    g>`` and ``g`` is the gradient of ``l`` at ``u``. A proposal costs one evaluation of ``l`` and
    its gradient.

    Parameters
    ----------
    vars : variable or list of variables, optional
        Random variables (or their names) with Normal or MvNormal priors, as for :class:`PCN`.
    delta : float, optional
        Step size in (0, 2].
    beta : float, optional
        The step size as the size of the noise, in (0, 1]: ``beta^2 = 8 delta / (2 + delta)^2``. If
        neither is given, the step size is adapted during tuning and then kept.
    target_accept : float, optional
        Acceptance probability that the adaptation aims for; 0.574 by default.
    **options
        ``steps``, ``model``, ``rng``, ``blocked``, ``initial_point`` and ``compile_kwargs``, as for
        :class:`PCN`.

    Raises
    ------
    ValueError
        As for :class:`PCN`; if both ``delta`` and ``beta`` are given; if the likelihood has no
        gradient.

    Notes
    -----
    Statistics of a draw are those of :class:`PCN`; ``proposal_size`` is ``beta``.

    References
    ----------
    Pezzetti, Favaro and Peluchetti, *Function-Space MCMC for Bayesian Wide Neural Networks*
    (2025), eqs. 8 and 9.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model:
    ...     theta = pm.Normal("theta", 0, 1, shape=100)
    ...     y = pm.Normal("y", theta.sum(), 1, observed=3.0)
    ...     step = nns.PCNL([theta], delta=0.1)
    >>> point, [stats] = step.step(model.initial_point())
    >>> round(float(stats["proposal_size"]), 3)
    0.426
    """

    name = "pcnl"
    _default_target = 0.574
    _uses_gradient = True

    def __init__(
        self,
        vars: Vars = None,
        *,
        delta: float | None = None,
        beta: float | None = None,
        **options: Any,
    ) -> None:
        if delta is not None:
            if beta is not None:
                raise ValueError(
                    "delta and beta are two names for one step size; give one of them, not both."
                )
            delta = positive_number("delta", delta, at_most=2)
            beta = math.sqrt(8 * delta) / (2 + delta)
        super().__init__(vars, beta=beta, **options)
