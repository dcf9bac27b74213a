"""Whether a chain over a network has arrived at its posterior, and what it has learnt.

==================  =============================================================
module              its subject
==================  =============================================================
``convergence``     R-hat and effective sample size of what a network computes
``blocks``          R-hat over time
``relevance``       how much each input matters, by the scales that were learnt
``plots``           plots of chains over networks
``predictions``     predictive bands over one input
``picture``         a network as a graph, with what draws each variable
``calibration``     whether predictions have the spread that they claim
``dependence``      plots of how a network depends on its inputs
``draws``           functions of a model's variables, at stored draws
``table``           how results are printed
==================  =============================================================

ArviZ is imported by the functions that use it: it would make up most of the package's import.
"""

from pymc_nnsteps.diagnostics.blocks import rhat_over_time
from pymc_nnsteps.diagnostics.calibration import plot_calibration
from pymc_nnsteps.diagnostics.convergence import diagnose
from pymc_nnsteps.diagnostics.dependence import plot_partial_dependence
from pymc_nnsteps.diagnostics.picture import plot_network
from pymc_nnsteps.diagnostics.plots import (
    plot_functions,
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
