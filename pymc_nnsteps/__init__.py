"""Step methods and models for Bayesian neural networks in PyMC.

Importing the package adds its step methods to those from which ``pm.sample`` chooses.
"""

import warnings
from typing import Any

from pymc.step_methods import STEP_METHODS

from pymc_nnsteps import lab
from pymc_nnsteps.activations import PiecewiseLinear
from pymc_nnsteps.diagnostics import (
    diagnose,
    plot_calibration,
    plot_functions,
    plot_network,
    plot_partial_dependence,
    plot_predictions,
    relevance,
)
from pymc_nnsteps.distributions import GeneralizedInverseGaussian
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.plain import plain_model
from pymc_nnsteps.models import (
    Conv2D,
    Model,
    Prior,
    Shrinkage,
    blocks,
    bow_tie,
    hierarchical_mlp,
    intermediate_noise_cnn,
    intermediate_noise_mlp,
    one_hot,
    wide_mlp,
)
from pymc_nnsteps.prediction import (
    encode,
    log_likelihood,
    partial_dependence,
    predict,
    stacking_weights,
    without_latents,
)
from pymc_nnsteps.runs.sampling import extend, resume, sample_distributed
from pymc_nnsteps.runs.saving import load, save
from pymc_nnsteps.sharded.sampling import sample_sharded
from pymc_nnsteps.steps import HMC, MALA, PCN, PCNL, Gibbs
from pymc_nnsteps.steps.assignment import set_auto_assign
from pymc_nnsteps.steps.explanation import explain
from pymc_nnsteps.steps.imputed_levels import ImputedLevels
from pymc_nnsteps.steps.trained_starts import trained_starts
from pymc_nnsteps.steps.verification import verify
from pymc_nnsteps.variational import fit

__version__ = "0.1.0"

__all__ = [
    "HMC",
    "MALA",
    "PCN",
    "PCNL",
    "Conv2D",
    "GeneralizedInverseGaussian",
    "Gibbs",
    "Model",
    "NotConjugate",
    "PiecewiseLinear",
    "Prior",
    "Shrinkage",
    "blocks",
    "bow_tie",
    "diagnose",
    "encode",
    "explain",
    "extend",
    "fit",
    "hierarchical_mlp",
    "intermediate_noise_cnn",
    "intermediate_noise_mlp",
    "lab",
    "load",
    "log_likelihood",
    "one_hot",
    "partial_dependence",
    "plain_model",
    "plot_calibration",
    "plot_functions",
    "plot_network",
    "plot_partial_dependence",
    "plot_predictions",
    "predict",
    "relevance",
    "resume",
    "sample_distributed",
    "sample_sharded",
    "save",
    "set_auto_assign",
    "stacking_weights",
    "trained_starts",
    "verify",
    "wide_mlp",
    "without_latents",
]


def __getattr__(name: str) -> Any:
    """A name that was here before it moved to :mod:`pymc_nnsteps.lab`."""
    if name in lab.__all__:
        warnings.warn(
            f"nns.{name} is now nns.lab.{name}, and the old name will be removed.",
            FutureWarning,
            stacklevel=2,
        )
        return getattr(lab, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


for step in (HMC, PCNL, Gibbs, ImputedLevels):
    if step not in STEP_METHODS:
        # Of steps that are equally competent PyMC takes the first: for gates, there are others.
        STEP_METHODS.insert(1, step)
