r"""A bow-tie network for a variational fit: its prior, and the factors of the approximation.

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
import scipy
from numpy.typing import NDArray

from pymc_nnsteps.distributions.generalized_inverse_gaussian import log_integral

Numbers = NDArray[np.float64]

SMALLEST = 1e-300
"""Least ``delta^2`` of a law whose ``delta`` is 0 in the prior."""


@dataclass(frozen=True)
class GIG:
    r"""Generalised inverse Gaussian laws of any order.

    .. math:: p(x) \propto x^{\nu-1} \exp\{-\tfrac12(\delta^2/x + \lambda^2 x)\}, \qquad
              Z = 2 K_\nu(\delta\lambda) (\delta/\lambda)^\nu

    Orders near -1276 overflow Bessel functions: only their ratios enter the moments.
    """

    nu: float  # the order, one for all
    # Coefficients of ``-1/(2 x)`` and of ``-x/2`` in the log density. One of the two may be 0, for
    # all entries.
    delta2: Numbers
    lambda2: Numbers

    @property
    def centre(self) -> Numbers:
        """Mode of the density of log x, which is finite also where the mean is not."""
        if self.nu > 0:
            return (self.nu + np.sqrt(self.nu**2 + self.delta2 * self.lambda2)) / self.lambda2
        return self.delta2 / (np.sqrt(self.nu**2 + self.delta2 * self.lambda2) - self.nu)

    @property
    def mean(self) -> Numbers:
        r"""Compute :math:`E[x]`, infinite where there is none."""
        return GIG(-self.nu, self.lambda2, self.delta2).mean_inverse

    @property
    def mean_inverse(self) -> Numbers:
        r"""Compute :math:`E[1/x]`, infinite where there is none."""
        if np.all(self.lambda2 == 0):
            return -2 * self.nu / self.delta2
        if np.all(self.delta2 == 0):
            return self.lambda2 / (2 * (self.nu - 1)) if self.nu > 1 else self.lambda2 * np.inf
        argument = np.sqrt(self.delta2 * self.lambda2)
        if self.nu > 0.5:
            # K_{nu-1}/K_nu, of orders that are not negative or -1/2 and above.
            ratio = 1 / _bessel_ratio(self.nu - 1, argument)
        else:
            ratio = _bessel_ratio(-self.nu, argument)
        return np.sqrt(self.lambda2 / self.delta2) * ratio

    @property
    def standard_deviation(self) -> Numbers:
        """Square root of the variance, infinite where there is none."""
        mean, above = self.mean, GIG(self.nu + 1, self.delta2, self.lambda2).mean
        finite = np.isfinite(above) & np.isfinite(mean)
        return np.sqrt(np.where(finite, mean * (np.where(finite, above, 0) - mean), np.inf))

    @property
    def log_constant(self) -> Numbers:
        """Compute log Z."""
        if np.all(self.lambda2 == 0):
            return self.nu * np.log(self.delta2 / 2) + scipy.special.gammaln(-self.nu)
        if np.all(self.delta2 == 0):
            return -self.nu * np.log(self.lambda2 / 2) + scipy.special.gammaln(self.nu)
        argument = np.sqrt(self.delta2 * self.lambda2)
        log_scale = 0.5 * (np.log(self.delta2) - np.log(self.lambda2))
        return np.log(2) + log_bessel(self.nu, argument) + self.nu * log_scale


def relative_entropy(q: GIG, p: GIG) -> float:
    r"""Sum of :math:`E_q[\log(q/p)]` less its part :math:`(\hat\nu - \nu) E_q[\log x]`.

    In the evidence that part cancels against the expected log densities of the weights.
    """
    value = p.log_constant - q.log_constant
    if not np.array_equal(q.delta2, np.broadcast_to(p.delta2, np.shape(q.delta2))):
        value = value - 0.5 * (q.delta2 - p.delta2) * q.mean_inverse
    if not np.array_equal(q.lambda2, np.broadcast_to(p.lambda2, np.shape(q.lambda2))):
        value = value - 0.5 * (q.lambda2 - p.lambda2) * q.mean
    return float(np.sum(np.broadcast_to(value, np.shape(q.delta2))))


def log_bessel(order: float, x: Numbers) -> Numbers:
    r"""Compute :math:`\log K_\nu(x)`, of orders and arguments of any size."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        value = np.log(scipy.special.kve(order, x)) - x
    beyond = ~np.isfinite(value)
    if np.any(beyond):
        value = np.array(value)
        far, order = np.asarray(x)[beyond], abs(order)
        size = np.hypot(order, far)
        pairs = zip(0.5 * (size + order), 0.5 * far * (far / (size + order)), strict=True)
        integrals = np.array([log_integral(a, b) for a, b in pairs])
        value[beyond] = integrals - size + order * np.arcsinh(order / far) - np.log(2)
    return value


def _bessel_ratio(order: float, x: Numbers) -> Numbers:
    """:math:`K_{v+1}(x)/K_v(x) = 2v/x + K_{v-1}/K_v`, upwards from a fractional order v."""
    steps = max(int(np.floor(order)), 0)
    lowest = order - steps
    ratio = scipy.special.kve(lowest + 1, x) / scipy.special.kve(lowest, x)
    for k in range(1, steps + 1):
        ratio = 2 * (lowest + k) / x + 1 / ratio
    return ratio


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
    """Inverses of positive definite matrices of any scales, and their log determinants."""
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
