"""Bayesian neural networks as plain PyMC models. Nothing here knows of samplers.

``intermediate_noise``
    Networks with Gaussian noise on every pre- and post-activation.
``wide``
    Wide networks in NTK scaling, with the readout layer integrated out of the likelihood.
``hierarchical``
    Networks with precisions at up to three levels and connections that skip layers.
``bow_tie``
    Networks with stochastic gates whose weights are shrunk to zero.
``shrinkage``
    The priors of their weights.
``start``
    Points near the data at which their chains begin.
``groups``
    The groups of their parameters, by name.
``priors``
    The prior of one group.
``readout``
    That integral, and the readout weights given hidden layers and targets.
``layers``
    Layers with their priors, and settings that are given once or per layer.
``data``
    What a builder accepts as inputs and targets.
``context``
    Finding the model to add to, its names and its dimensions.
"""

from pymc_nnsteps.models.bow_tie import bow_tie
from pymc_nnsteps.models.data import one_hot
from pymc_nnsteps.models.hierarchical import hierarchical_mlp
from pymc_nnsteps.models.intermediate_noise import intermediate_noise_mlp
from pymc_nnsteps.models.priors import Prior
from pymc_nnsteps.models.wide import wide_mlp

__all__ = [
    "Prior",
    "bow_tie",
    "hierarchical_mlp",
    "intermediate_noise_mlp",
    "one_hot",
    "wide_mlp",
]
