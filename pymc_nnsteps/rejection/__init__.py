"""Exact posterior draws by rejection: ``rejection_sample``."""

from pymc_nnsteps.rejection.sampling import rejection_sample

__all__ = ["rejection_sample"]
