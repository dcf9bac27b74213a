"""Predictions at new inputs from posterior draws, and log likelihoods of observed rows.

What network a model holds is read in :mod:`~pymc_nnsteps.network`, and that rows stay apart is
established by :mod:`~pymc_nnsteps.graphs.rows`.

==================  ==========================================================================
module              its subject
==================  ==========================================================================
``new_inputs``      :func:`predict`, the room's door; :func:`encode` for ``pm.set_data``
``log_likelihood``  :func:`log_likelihood` of each row; :func:`stacking_weights` of chains
``dependence``      :func:`partial_dependence` on one input or two
``forward``         the output, or the law of the targets, as a function of the inputs
``integration``     the noise integrated out
``laws``            the law of what is observed: decisions on utilities, integrated readouts
``kinds``           probabilities and draws of responses
``row_data``        columns of the inputs, and data that go with their rows, such as groups
``new_groups``      entries that new inputs pick, such as the effect of a group, and new ones
``gaps``            targets with missing entries
``posterior``       stored draws in the model's order, and predictions with labels
``blocks``          an expression for all draws and inputs, in blocks of memory
==================  ==========================================================================
"""

from pymc_nnsteps.prediction.dependence import partial_dependence
from pymc_nnsteps.prediction.gaps import without_latents
from pymc_nnsteps.prediction.log_likelihood import log_likelihood, stacking_weights
from pymc_nnsteps.prediction.new_inputs import encode, predict

__all__ = [
    "encode",
    "log_likelihood",
    "partial_dependence",
    "predict",
    "stacking_weights",
    "without_latents",
]
