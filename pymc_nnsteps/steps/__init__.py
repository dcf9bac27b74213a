"""Step methods for ``pm.sample``, and whether it chooses them."""

from pymc_nnsteps.steps.assignment import set_auto_assign
from pymc_nnsteps.steps.crank_nicolson import PCN, PCNL
from pymc_nnsteps.steps.gibbs import Gibbs
from pymc_nnsteps.steps.hamiltonian import HMC
from pymc_nnsteps.steps.langevin import MALA

__all__ = ["HMC", "MALA", "PCN", "PCNL", "Gibbs", "set_auto_assign"]
