"""Step methods for ``pm.sample``."""

from pymc_nnsteps.steps.gibbs import Gibbs

__all__ = ["Gibbs"]
