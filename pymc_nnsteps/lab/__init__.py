"""Experiments with samplers: data with a known posterior draw, and agreement of chains.

==================  ======================================================================
module              its subject
==================  ======================================================================
``teacher`` data from a model's own prior, with a known posterior draw ``thermalization`` chains
from several starts, watched until they agree ``merging`` the rule by which chains agree ``score``
the gradient of the log density, whose posterior mean is zero ``plots`` a plot of chains from
several starts ==================
======================================================================
"""

from pymc_nnsteps.lab.plots import plot_thermalization
from pymc_nnsteps.lab.score import score_statistic
from pymc_nnsteps.lab.teacher import teacher_student
from pymc_nnsteps.lab.thermalization import thermalize

__all__ = ["plot_thermalization", "score_statistic", "teacher_student", "thermalize"]
