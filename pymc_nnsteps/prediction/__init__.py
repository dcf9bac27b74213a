"""Predictions of a posterior: what each of its networks computes from new inputs."""

from pymc_nnsteps.prediction.dependence import partial_dependence
from pymc_nnsteps.prediction.new_inputs import predict

__all__ = ["partial_dependence", "predict"]
