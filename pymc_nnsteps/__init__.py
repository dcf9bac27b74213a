"""Step methods and models for Bayesian neural networks in PyMC.

Importing the package adds its step methods to those from which ``pm.sample`` chooses.
"""

import warnings
from typing import Any

from pymc.step_methods import STEP_METHODS

from pymc_nnsteps import (
    activations,
    distributions,
    lab,
    laws,
    models,
    prediction,
    runs,
    sharded,
    steps,
)
from pymc_nnsteps.diagnostics import (
    diagnose,
    plot_calibration,
    plot_functions,
    plot_network,
    plot_partial_dependence,
    plot_predictions,
    relevance,
)
from pymc_nnsteps.models import (
    Model,
    Prior,
    blocks,
    bow_tie,
    hierarchical_mlp,
    intermediate_noise_cnn,
    intermediate_noise_mlp,
    wide_mlp,
)
from pymc_nnsteps.prediction import (
    log_likelihood,
    partial_dependence,
    predict,
    stacking_weights,
    without_latents,
)
from pymc_nnsteps.runs.saving import load, save
from pymc_nnsteps.steps import HMC, MALA, PCN, PCNL, Gibbs
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
    "Gibbs",
    "Model",
    "Prior",
    "blocks",
    "bow_tie",
    "diagnose",
    "explain",
    "fit",
    "hierarchical_mlp",
    "intermediate_noise_cnn",
    "intermediate_noise_mlp",
    "lab",
    "load",
    "log_likelihood",
    "partial_dependence",
    "plot_calibration",
    "plot_functions",
    "plot_network",
    "plot_partial_dependence",
    "plot_predictions",
    "predict",
    "relevance",
    "save",
    "stacking_weights",
    "trained_starts",
    "verify",
    "wide_mlp",
    "without_latents",
]


MOVED = {
    name: home
    for home, names in {
        activations: ["PiecewiseLinear"],
        distributions: distributions.__all__,
        lab: lab.__all__,
        laws: ["NotConjugate"],
        models: ["Conv2D", "Shrinkage", "one_hot", "plain_model"],
        prediction: ["encode"],
        runs: runs.__all__,
        sharded: sharded.__all__,
        steps: ["set_auto_assign"],
    }.items()
    for name in names
}
"""Names that were here, and the module that has each of them now."""


def __getattr__(name: str) -> Any:
    """A name that was here before it moved."""
    if name not in MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = MOVED[name]
    warnings.warn(
        f"nns.{name} is now nns.{home.__name__.partition('.')[2]}.{name}, and the old name will "
        "be removed.",
        FutureWarning,
        stacklevel=2,
    )
    return getattr(home, name)


for step in (HMC, PCNL, Gibbs, ImputedLevels):
    if step not in STEP_METHODS:
        # Of steps that are equally competent PyMC takes the first: for gates, there are others.
        STEP_METHODS.insert(1, step)
