r"""Bernoulli variables with a logit: Polya-Gamma augmentation.

Model, for a Bernoulli child :math:`y_i` with logit :math:`\psi_i`:

.. math::

    p(y_i \mid \psi_i) = \frac{e^{y_i \psi_i}}{1 + e^{\psi_i}}
    = \tfrac12 e^{(y_i - 1/2)\psi_i} \int e^{-\omega \psi_i^2/2} \, PG(\omega \mid 1, 0) \, d\omega

Given :math:`\omega_i \sim PG(1, \psi_i)`, drawn at the present logit and forgotten after the draw,
this is what a Normal observation of :math:`\psi_i` at :math:`(y_i - \tfrac12)/\omega_i` with
precision :math:`\omega_i` would say (Polson, Scott and Windle, 2013). So a Bernoulli child is one
more Gaussian child of a block: Bayesian logistic regression, and weights or activations behind
binary gates (Sheinkman and Wade, *Variational Bayesian Bow tie Neural Networks with Shrinkage*).
"""

from dataclasses import replace

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.basic import BernoulliRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.blocks import Observation
from pymc_nnsteps.conditionals.structure import parameters
from pymc_nnsteps.random import polya_gamma


def logit_of(rv: TensorVariable) -> TensorVariable | None:
    """Logit of a Bernoulli variable whose probability is stated as the sigmoid of one."""
    if not isinstance(rv.owner.op, BernoulliRV):
        return None
    [probability] = parameters(rv)
    node = probability.owner
    if node is None or not isinstance(node.op, Elemwise):
        return None
    logit: TensorVariable | None = (
        node.inputs[0] if isinstance(node.op.scalar_op, Sigmoid) else None
    )
    return logit


def augmented(rng: Variable, seen: Observation) -> tuple[Variable, Observation]:
    """The Normal observation that a Bernoulli one is, given Polya-Gamma precisions.

    A Normal observation is returned as it is.
    """
    if seen.logit is None:
        return rng, seen
    rng, omega = polya_gamma(rng, pt.broadcast_to(seen.logit, seen.residual.shape))
    offset = pt.zeros(()) if seen.offset is None else seen.offset
    residual = seen.residual / omega - offset.astype(omega.dtype)
    return rng, replace(seen, residual=residual, precision=omega)
