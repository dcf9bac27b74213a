"""Distributions that a prior may need and PyMC lacks.

- `GeneralizedInverseGaussian`, a prior for variances and precisions.
"""

from pymc_nnsteps.distributions.generalized_inverse_gaussian import GeneralizedInverseGaussian

__all__ = ["GeneralizedInverseGaussian"]
