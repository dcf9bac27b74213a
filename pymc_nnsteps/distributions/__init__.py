"""Distributions that a prior may need and PyMC lacks.

- `GeneralizedInverseGaussian`, a prior for variances and precisions.

``bessel`` computes the Bessel function in its normalising constant.
"""

from pymc_nnsteps.distributions.generalized_inverse_gaussian import GeneralizedInverseGaussian

__all__ = ["GeneralizedInverseGaussian"]
