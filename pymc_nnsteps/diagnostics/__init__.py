"""Whether a chain over a network has arrived at its posterior, and what it has learnt.

==================  =============================================================
module              its subject
==================  =============================================================
``convergence``     R-hat and effective sample size of what a network computes, over time too
``relevance``       how much each input matters, by the scales that were learnt
``plots``           plots of chains over networks, and of how these depend on inputs
``predictions``     predictive bands over one input
``picture``         a network as a graph, with what draws each variable
``calibration``     whether predictions have the spread that they claim
``draws``           functions of a model's variables at stored draws, and printed tables
==================  =============================================================

ArviZ is imported by the functions that use it: it would make up most of the package's import.
"""

from pymc_nnsteps.diagnostics.calibration import plot_calibration
from pymc_nnsteps.diagnostics.convergence import diagnose, rhat_over_time
from pymc_nnsteps.diagnostics.picture import plot_network
from pymc_nnsteps.diagnostics.plots import (
    plot_functions,
    plot_partial_dependence,
    plot_rhat_over_time,
)
from pymc_nnsteps.diagnostics.predictions import plot_predictions
from pymc_nnsteps.diagnostics.relevance import relevance

__all__ = [
    "diagnose",
    "plot_calibration",
    "plot_functions",
    "plot_network",
    "plot_partial_dependence",
    "plot_predictions",
    "plot_rhat_over_time",
    "relevance",
    "rhat_over_time",
]
