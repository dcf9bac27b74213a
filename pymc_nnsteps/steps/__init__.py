"""Step methods for ``pm.sample``."""

from pymc_nnsteps.steps.crank_nicolson import PCN, PCNL
from pymc_nnsteps.steps.gibbs import Gibbs
from pymc_nnsteps.steps.langevin import MALA

__all__ = ["MALA", "PCN", "PCNL", "Gibbs"]
