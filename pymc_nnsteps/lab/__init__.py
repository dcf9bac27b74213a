"""Experiments with samplers: data with a known posterior draw, and agreement of chains.

==================  =============================================================================
module              its subject
==================  =============================================================================
``teacher``         data from a model's own prior, with a known posterior draw; the score
``thermalization``  chains from several starts, run until they agree, and a plot of them
``merging``         the rule for agreement of chains
``rejection``       exact posterior draws of tiny problems, by rejection, with its bound
==================  =============================================================================

R-hat over time and tables of experiments, which other modules use too, are also available here.
"""

from pymc_nnsteps.diagnostics import plot_rhat_over_time, rhat_over_time
from pymc_nnsteps.lab.rejection import rejection_sample
from pymc_nnsteps.lab.teacher import score_statistic, teacher_student
from pymc_nnsteps.lab.thermalization import plot_thermalization, thermalize
from pymc_nnsteps.runs.experiments import experiments

__all__ = [
    "experiments",
    "plot_rhat_over_time",
    "plot_thermalization",
    "rejection_sample",
    "rhat_over_time",
    "score_statistic",
    "teacher_student",
    "thermalize",
]
