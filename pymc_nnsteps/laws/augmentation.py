r"""Bernoulli and Binomial variables with a logit: Polya-Gamma augmentation.

Model, for a Bernoulli child :math:`y_i` with logit :math:`\psi_i`:

.. math::

    p(y_i \mid \psi_i) = \frac{e^{y_i \psi_i}}{1 + e^{\psi_i}}
    = \tfrac12 e^{(y_i - 1/2)\psi_i} \int e^{-\omega \psi_i^2/2} \, PG(\omega \mid 1, 0) \, d\omega

Draw :math:`\omega_i \sim PG(1, \psi_i)` at the present logit and forget it after the draw. Given
:math:`\omega_i`, the likelihood equals that of a Normal observation of :math:`\psi_i` at
:math:`(y_i - \tfrac12)/\omega_i` with precision :math:`\omega_i` (Polson, Scott and Windle, 2013).
So a Bernoulli child is one more Gaussian child of a block: Bayesian logistic regression, and
weights or activations behind binary gates (Sheinkman and Wade, *Variational Bayesian Bow tie Neural
Networks with Shrinkage*).
A Binomial child of :math:`n_i` trials is a product of :math:`n_i` Bernoulli likelihoods:
:math:`y_i - n_i/2` replaces :math:`y_i - \tfrac12`, and :math:`\omega_i \sim PG(n_i, \psi_i)`.
"""

from dataclasses import dataclass

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.observation import Child, Observation
from pymc_nnsteps.random import polya_gamma


@dataclass(frozen=True)
class BinaryObservation(Child):
    """Bernoulli or Binomial child: its logit and ``half = y - trials / 2``.

    ``trials`` is None for a Bernoulli child.
    """

    half: TensorVariable
    logit: TensorVariable
    trials: TensorVariable | None = None

    def draw_precision(self, rng: Variable) -> tuple[Variable, TensorVariable]:
        """Draw the Polya-Gamma variables at the present logit."""
        n = 1 if self.trials is None else self.trials
        return polya_gamma(rng, pt.broadcast_to(self.logit, self.half.shape), n)

    def given(self, omega: TensorVariable) -> Observation:
        """Equivalent Gaussian observation, given the Polya-Gamma variables."""
        offset = None if self.offset is None else self.offset.astype(omega.dtype)
        response = self.half / omega
        if self.trials is not None:
            response = pt.switch(pt.eq(self.trials, 0), pt.zeros_like(response), response)
        return Observation(self.child, offset, self.terms, response, omega)


def augmented(rng: Variable, seen: Child) -> tuple[Variable, Observation]:
    """Gaussian observation equivalent to a child; draws Polya-Gamma precisions if it needs any."""
    if isinstance(seen, BinaryObservation):
        rng, omega = seen.draw_precision(rng)
        return rng, seen.given(omega)
    assert isinstance(seen, Observation)
    return rng, seen


def with_any_precision(seen: Child) -> Observation:
    """Gaussian observation equivalent to a child, with arbitrary precisions."""
    if isinstance(seen, BinaryObservation):
        return seen.given(pt.ones_like(seen.half))
    assert isinstance(seen, Observation)
    return seen
