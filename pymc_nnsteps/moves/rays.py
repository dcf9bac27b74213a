r"""Scales moved along a ray with what they scale.

A scale and what it scales are locked together when each is drawn given the other. The move here
takes both along: coordinates :math:`x_i` of degrees :math:`e_i` go to
:math:`T_u x_i = e^{e_i u} x_i`, Gaussian ones about their means. If u has the density

.. math:: q(u) \propto p(T_u x \mid y) \, e^{u \sum_i e_i},

:math:`T_u x` leaves the posterior invariant (Liu and Sabatti, *Generalised Gibbs sampler and
multigrid Monte Carlo for Bayesian computation*, 2000). What goes along with its scale has a density
that cancels its own part of the Jacobian; what is left of :math:`\log q`, up to a constant, is

.. math::

    \sum_s [\log p(s e^{e_s u}) + n_s e_s u]
    - \sum_z [k_z q_z u + t_z e^{-m_z q_z u}]
    + \sum_c [a_c e^{e_c u} - \tfrac12 b_c e^{2 e_c u}]

with the priors of the :math:`n_s` entries of each scale s that no other takes along; children z
whose scale is moved by the degree :math:`q_z` and that stay (of :mod:`.scales` the order k and the
statistic t); and Gaussian children c of what is moved with :math:`y_c = o_c + H_c w + \epsilon_c`,
:math:`\epsilon_c \sim N(0, \Lambda_c^{-1})`,

.. math::

    a_c = (H_c (w - \mu))^T \Lambda_c (y_c - o_c - H_c \mu), \qquad
    b_c = (H_c (w - \mu))^T \Lambda_c \, H_c (w - \mu),

logistic ones by their Polya-Gamma variables: one pass over the rows. A Gaussian variable x that
is multiplied by :math:`e^{e u}` where its scale is by :math:`e^{q u}`, as a factor of products that
children see (:mod:`.product_rays`), keeps what is left of its :math:`n` entries' own density,

.. math::

    (e - q) n u - \tfrac12 \sum_i \lambda_i (x_i e^{e u} - \mu_i)^2 e^{-2 q u}.

u is stepped in by :mod:`pymc_nnsteps.random.lattice`. It is zero where all of such a variable is,
or where all of a child that stays equals its mean, as weights do that start at zero: there q may
have no integral.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import override

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.observation import Child, Observation
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.graphs.shapes import lengths
from pymc_nnsteps.graphs.values import substitute_given, typed_like
from pymc_nnsteps.laws.augmentation import BinaryObservation, augmented
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.laws.gaussian import is_zero_sum, zero_sum_axes
from pymc_nnsteps.laws.scales import Scaled
from pymc_nnsteps.moves.residual_scales import order_and_rate, said_by
from pymc_nnsteps.random.lattice import lattice_step

WIDEST = 0.3
"""Largest spacing of the lattice, in units of the logarithm of a scale."""


@dataclass(frozen=True)
class Apart:
    """Prior of a Gaussian variable that moves by another degree than its scale, or about zero.

    Attributes
    ----------
    degree : float
        That of its scale.
    """

    mean: TensorVariable
    precision: TensorVariable
    degree: float


@dataclass(frozen=True)
class Ray(Conditional):
    """Scales with what they scale, multiplied by the same number to the power of their degrees.

    Attributes
    ----------
    degrees : mapping from random variable to float
        Degrees of all that is moved.
    scales : tuple of TensorVariable
        Those that no other takes along.
    about : mapping from random variable to TensorVariable
        Means of the Gaussian ones.
    stay : tuple of (Scaled, float)
        Children that are not moved, and the degree by which their scale is.
    linear : tuple of (Child, float)
        Gaussian children of Gaussian variables, and the degree of these.
    against : tuple of TensorVariable
        Those by whose products with the others children see both.
    columns : mapping from random variable to int
        The axis of each variable along which each entry has a number of its own; none: there is
        one number.
    """

    name = "step along a ray"
    draws: tuple[TensorVariable, ...]
    degrees: Mapping[TensorVariable, float]
    scales: tuple[TensorVariable, ...]
    about: Mapping[TensorVariable, TensorVariable]
    stay: tuple[tuple[Scaled, float], ...]
    linear: tuple[tuple[Child, float], ...]
    apart: Mapping[TensorVariable, Apart] = field(default_factory=dict)
    against: tuple[TensorVariable, ...] = ()
    columns: Mapping[TensorVariable, int] = field(default_factory=dict)
    supplements: bool = True

    @override
    def also(self, rv: TensorVariable) -> list[str]:
        sides: tuple[list[str], list[str]] = [], []
        for other in self.partners(rv):
            sides[(other in self.against) != (rv in self.against)].append(describe(other))
        words = zip(("with", "against"), sides, strict=True)
        return [" ".join(["along a ray", *(f"{how} {', '.join(n)}" for how, n in words if n)])]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        observations = []
        for child, _ in self.linear:
            rng, observation = augmented(rng, child)
            observations.append(observation)
        widest = WIDEST if not self.apart else pt.minimum(WIDEST, 2 / pt.sqrt(1 + self._entries()))
        log_density = partial(self.log_density, observations)
        n_columns = None
        for rv, axis in self.columns.items():
            n_columns = rv.shape[axis]
        rng, shift = lattice_step(rng, log_density, widest, size=n_columns)
        for rv in self.apart:
            shift = pt.switch(pt.eq(self._sum(rv, abs(rv)), 0), 0.0, shift)
        for seen, _ in self.stay:
            _, rate = order_and_rate(seen)
            shift = pt.switch(pt.eq(rate, 0), 0.0, shift)
        return Draw(rng, {rv: self._moved(rv, shift) for rv in self.draws})

    def log_density(
        self, observations: Sequence[Observation], shifts: TensorVariable
    ) -> TensorVariable:
        """Log density of u, given what the Gaussian children say, up to a constant."""
        total = pt.zeros_like(shifts)
        for rv in self.scales:
            total += self._prior(rv, shifts)
        for seen, degree in self.stay:
            total += said_by(seen, degree * shifts)
        for (child, degree), observation in zip(self.linear, observations, strict=True):
            a, b = self._squares(child, observation)
            total += a * pt.exp(degree * shifts) - b * pt.exp(2 * degree * shifts) / 2
        for rv in self.apart:
            total += self._of_apart(rv, shifts)
        return total.astype("float64")

    def _moved(self, rv: TensorVariable, shift: TensorVariable) -> TensorVariable:
        along = self._along(rv, shift[None])[0]
        factor, mean = pt.exp(self.degrees[rv] * along), self.about.get(rv)
        return typed_like(rv, rv * factor if mean is None else mean + (rv - mean) * factor)

    def _prior(self, rv: TensorVariable, shifts: TensorVariable) -> TensorVariable:
        """Log density of the logarithm of a scale that is shifted."""
        degree = self.degrees[rv]
        along = self._along(rv, shifts)
        prior = pm.logp(rv, rv * pt.exp(degree * along), warn_rvs=False) + degree * along
        total: TensorVariable = self._sum(rv, prior + pt.zeros_like(rv))
        return total

    def _of_apart(self, rv: TensorVariable, shifts: TensorVariable) -> TensorVariable:
        """What is left of a Gaussian density and of the Jacobian."""
        prior, degree = self.apart[rv], self.degrees[rv]
        left = degree - prior.degree
        precision = prior.precision.astype("float64")
        squares, products, means = (
            self._sum(rv, precision * each + pt.zeros_like(rv))
            for each in (pt.sqr(rv), rv * prior.mean, pt.sqr(prior.mean))
        )
        total: TensorVariable = left * self._free_entries(rv) * shifts
        total -= squares * pt.exp(2 * left * shifts) / 2
        total += products * pt.exp((left - prior.degree) * shifts)
        total -= means * pt.exp(-2 * prior.degree * shifts) / 2
        return total

    def _entries(self) -> TensorVariable:
        """Number of entries by which the width of the density goes."""
        found = [
            (self.degrees[rv] - prior.degree) ** 2 * self._free_entries(rv)
            for rv, prior in self.apart.items()
        ]
        return sum(found, pt.zeros((), dtype="float64"))

    def _free_entries(self, rv: TensorVariable) -> TensorVariable:
        """Number of entries that have one number, less one along each axis whose sum is zero."""
        fixed = zero_sum_axes(rv) if is_zero_sum(rv) else ()
        own = self.columns.get(rv)
        sizes = [rv.shape[a] - int(a in fixed) for a in range(rv.ndim) if a != own]
        size: TensorVariable = pt.prod(pt.stack([pt.ones((), dtype="int64"), *sizes]))
        return size.astype("float64")

    def _along(self, rv: TensorVariable, shifts: TensorVariable) -> TensorVariable:
        """Shifts with the axes (points, those of a variable)."""
        own = self.columns.get(rv)
        return shifts.dimshuffle(0, *(1 if axis == own else "x" for axis in range(rv.ndim)))

    def _sum(self, rv: TensorVariable, array: TensorVariable) -> TensorVariable:
        """Sum over entries of a variable that have one number; points come first, if any."""
        own, first = self.columns.get(rv), array.ndim - rv.ndim
        axes = tuple(first + axis for axis in range(rv.ndim) if axis != own)
        total: TensorVariable = array.sum(axes) if axes else array
        return total

    def _squares(
        self, child: Child, observation: Observation
    ) -> tuple[TensorVariable, TensorVariable]:
        """``a`` and ``b`` of a Gaussian child."""
        at_means = {
            rv: typed_like(rv, pt.broadcast_to(mean, lengths(rv)))
            for rv, mean in self.about.items()
        }
        [mean, *_] = parameters(child.child)
        predictor = child.logit if isinstance(child, BinaryObservation) else mean
        [rest] = substitute_given([predictor], at_means)
        fit = predictor - rest + pt.zeros_like(observation.value)
        weighted = observation.precision * fit
        return (weighted * (observation.value - rest)).sum(), (weighted * fit).sum()
