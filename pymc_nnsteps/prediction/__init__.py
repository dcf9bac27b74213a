"""Predictions at new inputs from posterior draws, and log likelihoods of observed rows.

What network a model holds is read in :mod:`~pymc_nnsteps.network`, and that rows stay apart is
established by :mod:`~pymc_nnsteps.graphs.rows`.

==================  ==========================================================================
module              its subject
==================  ==========================================================================
``new_inputs``      :func:`predict`, the room's door; :func:`encode` for ``pm.set_data``
``log_likelihood``  :func:`log_likelihood` of each observed row
``dependence``      :func:`partial_dependence` on one input or two
``stacking``        :func:`stacking_weights` of chains that disagree
``latents``         :func:`without_latents`: what a chain must store for predictions
``forward``         the network's output as a function of its inputs, layers at their means
``noisy``           the law of the targets as a function of inputs and of the layers' noise
``readout``         networks whose readout has been integrated out of that law
``units``           one noisy hidden layer as a sum of independent units
``sums``            the law of such a sum
``integration``     the noise integrated out
``laws``            log probabilities of decisions on normal utilities
``kinds``           probabilities and responses
``responses``       draws of responses
``row_data``        data that go with the rows of the inputs, such as groups
``entries``         entries that new inputs pick, such as the effect of a group
``new_groups``      effects of groups that the model has not seen
``gaps``            targets with missing entries
``posterior``       stored draws in the model's order
``columns``         columns of the inputs, by position or name
``blocks``          an expression for all draws and inputs, in blocks of memory
``progress``        a progress bar
==================  ==========================================================================
"""

from pymc_nnsteps.prediction.dependence import partial_dependence
from pymc_nnsteps.prediction.latents import without_latents
from pymc_nnsteps.prediction.log_likelihood import log_likelihood
from pymc_nnsteps.prediction.new_inputs import encode, predict
from pymc_nnsteps.prediction.stacking import stacking_weights

__all__ = [
    "encode",
    "log_likelihood",
    "partial_dependence",
    "predict",
    "stacking_weights",
    "without_latents",
]
