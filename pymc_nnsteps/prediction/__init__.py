"""Predictions at new inputs from posterior draws, and log likelihoods of observed rows."""

from pymc_nnsteps.prediction.dependence import partial_dependence
from pymc_nnsteps.prediction.latents import without_latents
from pymc_nnsteps.prediction.log_likelihood import log_likelihood
from pymc_nnsteps.prediction.new_inputs import predict

__all__ = ["log_likelihood", "partial_dependence", "predict", "without_latents"]
