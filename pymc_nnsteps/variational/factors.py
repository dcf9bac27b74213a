r"""A bow-tie network as its fit sees it: its prior, and the factors that approximate the posterior.

With widths ``D_0`` (inputs), ..., ``D_{L+1}`` (outputs), ``L`` hidden layers and
:math:`\tilde a = (1, a)`, :math:`\tilde W = (b, W)`, so that column 0 is the bias:

.. math::

    z_l = \tilde W_l \tilde a_{l-1}, \quad \gamma_l \sim \text{Bernoulli}(\sigma(z_l/T)), \quad
    a_l \sim N(\gamma_l z_l, \eta_l^2), \quad y \sim N(z_{L+1}, \eta_{L+1}^2)

    W_{l,dd'} \sim N(0, \tau_l \psi_{l,dd'}), \quad b_{l,d} \sim N(0, s_0^2), \quad
    \eta^2_{l,d} \sim \text{InvGamma}(\alpha, \beta),
    \quad \tau_l, \psi_{l,dd'} \sim \text{GIG}.

The approximation of the posterior is the optimum among products of a law of the activations of
each row, one of the gates, one of the Polya-Gamma variables behind them, and one each of weights
with biases, noise variances, global and local scales: rows of weights are Gaussian, noise
variances inverse gamma, scales generalised inverse Gaussian.

References
----------
Sheinkman and Wade, *Variational Bayesian Bow tie Neural Networks with Shrinkage*,
arXiv 2411.11132, Section 3. Equation numbers in this package are theirs; what differs from the
printed equations is said where it stands.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_nnsteps.variational.laws import GIG

Numbers = NDArray[np.float64]

SMALL = 8
"""Size of triangular matrices that are not halved further to be inverted."""


@dataclass(frozen=True)
class LayerPrior:
    """Prior of one layer of ``units`` units on ``fan_in`` inputs."""

    bias_var: Numbers  # shape (units,)
    # shape (units,): of the noise variances.
    alpha: Numbers
    beta: Numbers
    # shape (units, fan_in): variances of the weights without the scales' factors: of ones, where
    # scales are unknown.
    weight_var: Numbers
    # Laws of the global scale and, of shape (units, fan_in), of the local ones; None where the
    # variance is known.
    tau: GIG | None
    psi: GIG | None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of units, and of inputs."""
        units, fan_in = self.weight_var.shape
        return units, fan_in


@dataclass(frozen=True)
class NetworkPrior:
    """The prior of a network."""

    temperature: float  # ``T``
    layers: tuple[LayerPrior, ...]  # hidden layers and the output layer

    @property
    def depth(self) -> int:
        """Number of hidden layers, ``L``."""
        return len(self.layers) - 1


@dataclass(frozen=True)
class LayerFactors:
    """The approximation of one layer."""

    # shape (units, 1 + fan_in, 1 + fan_in): inverse covariances of the rows of weights, their
    # biases first.
    precision: Numbers
    # shape (units, 1 + fan_in): precision times mean. These two are what natural gradients average.
    shift: Numbers
    mean: Numbers  # shape (units, 1 + fan_in)
    cov: Numbers  # shape (units, 1 + fan_in, 1 + fan_in)
    log_det: Numbers  # shape (units,): log determinants of the covariances
    # shape (units,): of the noise variances.
    alpha: Numbers
    beta: Numbers
    tau: GIG | None
    psi: GIG | None

    @cached_property
    def second(self) -> Numbers:
        """Second moments of the rows, shape (units, 1 + fan_in, 1 + fan_in)."""
        return self.cov + self.mean[:, :, None] * self.mean[:, None, :]

    @cached_property
    def squares(self) -> Numbers:
        """Their diagonals, shape (units, 1 + fan_in)."""
        return np.einsum("dii->di", self.cov) + self.mean**2

    @property
    def noise_precision(self) -> Numbers:
        """Expected inverse noise variances, shape (units,)."""
        return self.alpha / self.beta


def gaussian_rows(precision: Numbers, shift: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Means (n, k), covariances (n, k, k) and their log determinants, from natural parameters."""
    cov, log_det = inverse(precision)
    return (cov @ shift[:, :, None])[:, :, 0], cov, log_det


def inverse(precision: Numbers) -> tuple[Numbers, Numbers]:
    """Inverses of positive definite matrices, which are so too, and their log determinants.

    Rows and columns are scaled to a diagonal of ones first: precisions of shrunken weights reach
    1e8 beside others of order 1.
    """
    scale = 1 / np.sqrt(np.einsum("nii->ni", precision))
    root = np.linalg.cholesky(precision * scale[:, :, None] * scale[:, None, :])
    log_det = 2 * (np.log(scale).sum(axis=1) - np.log(np.einsum("nii->ni", root)).sum(axis=1))
    inverse_root = inverse_of_triangular(root) * scale[:, None, :]
    return inverse_root.transpose(0, 2, 1) @ inverse_root, log_det


def inverse_of_triangular(lower: Numbers) -> Numbers:
    """Inverses of lower triangular matrices, by halves; large ones in half of NumPy's time."""
    size = lower.shape[-1]
    if size <= SMALL:
        return np.linalg.inv(lower)
    half = size // 2
    inverse = np.zeros_like(lower)
    inverse[:, :half, :half] = first = inverse_of_triangular(lower[:, :half, :half])
    inverse[:, half:, half:] = last = inverse_of_triangular(lower[:, half:, half:])
    inverse[:, half:, :half] = -last @ (lower[:, half:, :half] @ first)
    return inverse
