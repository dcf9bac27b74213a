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

logistic ones by their Polya-Gamma variables: one pass over the rows. u is stepped in by
:mod:`pymc_nnsteps.random.lattice`. It is zero where all of a child that stays equals its mean, as
weights do that start at zero: there q may have no integral.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import override

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.observation import Child, Observation
from pymc_nnsteps.graphs.lengths import lengths
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.graphs.values import substitute_given, typed_like
from pymc_nnsteps.laws.augmentation import BinaryObservation, augmented
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes
from pymc_nnsteps.laws.scales import Scaled
from pymc_nnsteps.moves.residual_scales import order_and_rate, said_by
from pymc_nnsteps.random.lattice import lattice_step

WIDEST = 0.3
"""Largest spacing of the lattice, in units of the logarithm of a scale."""


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
    """

    draws: tuple[TensorVariable, ...]
    degrees: Mapping[TensorVariable, float]
    scales: tuple[TensorVariable, ...]
    about: Mapping[TensorVariable, TensorVariable]
    stay: tuple[tuple[Scaled, float], ...]
    linear: tuple[tuple[Child, float], ...]
    supplements: bool = True

    @property
    @override
    def name(self) -> str:
        return "step along a ray"

    @override
    def also(self, rv: TensorVariable) -> list[str]:
        return [f"along a ray with {', '.join(map(describe, self.partners(rv)))}"]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        observations = []
        for child, _ in self.linear:
            rng, observation = augmented(rng, child)
            observations.append(observation)
        rng, shift = lattice_step(rng, partial(self.log_density, observations), WIDEST)
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
        return total.astype("float64")

    def _moved(self, rv: TensorVariable, shift: TensorVariable) -> TensorVariable:
        factor, mean = pt.exp(self.degrees[rv] * shift), self.about.get(rv)
        return typed_like(rv, rv * factor if mean is None else mean + (rv - mean) * factor)

    def _prior(self, rv: TensorVariable, shifts: TensorVariable) -> TensorVariable:
        """Log density of the logarithm of a scale that is shifted."""
        degree = self.degrees[rv]
        factor = pt.exp(degree * shifts).dimshuffle(0, *["x"] * rv.ndim)
        prior = pm.logp(rv, rv * factor, warn_rvs=False)
        size = pt.cast(rv.size, "float64")
        total: TensorVariable = prior.sum(tuple(range(1, prior.ndim))) + size * degree * shifts
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
