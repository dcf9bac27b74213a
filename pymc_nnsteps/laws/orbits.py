r"""Log densities along orbits, on which variables are multiplied by powers of one number.

Coordinates :math:`x_i` of degrees :math:`e_i` go to :math:`T_u x_i = e^{e_i u} x_i`, Gaussian ones
about their means. If u has the density

.. math:: q(u) \propto p(T_u x \mid y) \, e^{u \sum_i e_i},

:math:`T_u x` leaves the posterior invariant (Liu and Sabatti, *Generalised Gibbs sampler and
multigrid Monte Carlo for Bayesian computation*, 2000). What goes along with its scale has a density
that cancels its own part of the Jacobian. Of what is left, priors of scales are evaluated as they
are, and all else is a sum of powers of :math:`e^u` whose coefficients are computed once:

.. math:: \log q(u) = \sum_s [\log p(s e^{e_s u}) + n_s e_s u] + \kappa u + \sum_r c_r e^{r u} .

A child that stays, and whose scale is multiplied by :math:`e^{q u}` (of :mod:`.scales` the order k
and the statistic t), adds :math:`-k q u - t e^{-m q u}`. A Normal child whose mean changes by
:math:`h (e^{e u} - 1)`, of weight w and residual r where that part is left out, adds
:math:`a e^{e u} - \tfrac12 b e^{2 e u}` with :math:`a = h \cdot w r` and :math:`b = h \cdot w h`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add

import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.laws.scales import Scaled


@dataclass(frozen=True)
class Powers:
    """``order u + sum of coefficient e^(power u)``, of pairs (power, coefficient)."""

    order: TensorVariable | float
    terms: tuple[tuple[float, TensorVariable], ...] = ()

    def __add__(self, other: "Powers") -> "Powers":
        """The sum of both."""
        return Powers(self.order + other.order, self.terms + other.terms)

    def __call__(self, shifts: TensorVariable) -> TensorVariable:
        """The sum at shifts u."""
        each = (coefficient * pt.exp(power * shifts) for power, coefficient in self.terms)
        return reduce(add, each, self.order * shifts)


def total(parts: Iterable[Powers]) -> Powers:
    """The sum of several."""
    return reduce(add, parts, Powers(0.0))


def of_scaled(seen: Scaled, degree: float) -> Powers:
    """What a child says that stays, of a shift by which its scale moves to the power ``degree``."""
    order, rate = order_and_rate(seen)
    return Powers(-degree * order, ((-seen.role.power * degree, -rate),))


def of_linear(a: TensorVariable, b: TensorVariable, degree: float) -> Powers:
    """What Normal children say of a part of their means that moves to the power ``degree``."""
    return Powers(0.0, ((degree, a), (2 * degree, -b / 2)))


def order_and_rate(seen: Scaled) -> tuple[TensorVariable, TensorVariable]:
    """Sums of the order k, and of the statistic at the present scale, over a child's entries."""
    role, given, zero = seen.role, parameters(seen.child), pt.zeros_like(seen.value)
    order = (role.order(seen.value, *given) + zero).sum()
    rate = (role.statistic(seen.value, *given) * given[role.scale] ** -role.power + zero).sum()
    return order, rate


def log_prior(rv: TensorVariable, shifts: TensorVariable) -> TensorVariable:
    """Log density of the logarithm of a number at shifts from the present one."""
    there = rv * pt.exp(shifts.dimshuffle(0, *["x"] * rv.ndim))
    prior: TensorVariable = pm.logp(rv, there, warn_rvs=False).flatten() + shifts
    return prior
