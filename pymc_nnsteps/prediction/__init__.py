"""What networks of a posterior compute from new inputs, and how likely observed rows are."""

from pymc_nnsteps.prediction.dependence import partial_dependence
from pymc_nnsteps.prediction.latents import without_latents
from pymc_nnsteps.prediction.log_likelihood import log_likelihood
from pymc_nnsteps.prediction.new_inputs import predict

__all__ = ["log_likelihood", "partial_dependence", "predict", "without_latents"]
