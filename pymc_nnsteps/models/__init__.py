"""Bayesian neural networks as plain PyMC models, and what their builders take.

Nothing here knows of samplers.

======================  ================================================================
module                  its subject
======================  ================================================================
``intermediate_noise``  networks with Gaussian noise on every pre- and post-activation
``convolutional``       the same with convolutions and average pooling of images
``wide``                wide networks in NTK scaling, their readout layer integrated out
``hierarchical``        networks with precisions at up to three levels, and skips
``bow_tie``             networks with stochastic gates whose weights are shrunk to zero
``priors``              the prior of a group of parameters
``blocks``              the networks of these models, as parts of any model
``parts``               what these are put together from
======================  ================================================================
"""

from pymc_nnsteps.graphs.plain import plain_model
from pymc_nnsteps.models import blocks
from pymc_nnsteps.models.bow_tie import bow_tie
from pymc_nnsteps.models.convolutional import intermediate_noise_cnn
from pymc_nnsteps.models.hierarchical import hierarchical_mlp
from pymc_nnsteps.models.intermediate_noise import intermediate_noise_mlp
from pymc_nnsteps.models.parts.context import Model
from pymc_nnsteps.models.parts.convolutions import Conv2D
from pymc_nnsteps.models.parts.data import one_hot
from pymc_nnsteps.models.parts.shrinkage import Shrinkage
from pymc_nnsteps.models.priors import Prior
from pymc_nnsteps.models.wide import wide_mlp

__all__ = [
    "Conv2D",
    "Model",
    "Prior",
    "Shrinkage",
    "blocks",
    "bow_tie",
    "hierarchical_mlp",
    "intermediate_noise_cnn",
    "intermediate_noise_mlp",
    "one_hot",
    "plain_model",
    "wide_mlp",
]
