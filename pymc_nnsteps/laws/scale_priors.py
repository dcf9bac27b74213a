"""Priors of scales under which their full conditional has a known law (:mod:`.scales`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from pymc.distributions.continuous import HalfCauchyRV, HalfStudentTRV
from pytensor.tensor.random.basic import ExponentialRV, GammaRV, HalfNormalRV, InvGammaRV, UniformRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.random.generalized_inverse_gaussian import GeneralizedInverseGaussianRV


@dataclass(frozen=True)
class Exponents:
    """``nu``, ``delta^2`` and ``lambda^2`` of a generalised inverse Gaussian."""

    nu: TensorVariable
    delta2: TensorVariable
    lambda2: TensorVariable

    def __add__(self, other: "Exponents") -> "Exponents":
        """Exponents of the product of two densities."""
        return Exponents(
            self.nu + other.nu, self.delta2 + other.delta2, self.lambda2 + other.lambda2
        )


def exponents(nu: Any = 0.0, delta2: Any = 0.0, lambda2: Any = 0.0) -> Exponents:
    """Exponents, zero where they are not given."""
    return Exponents(*(pt.as_tensor(part) for part in (nu, delta2, lambda2)))


PRIORS: dict[type, Callable[..., Exponents]] = {
    GammaRV: lambda shape, scale: exponents(shape, lambda2=2 / scale),
    ExponentialRV: lambda scale: exponents(pt.ones_like(scale), lambda2=2 / scale),
    InvGammaRV: lambda shape, scale: exponents(-shape, delta2=2 * scale),
    GeneralizedInverseGaussianRV: exponents,
}
"""Exponents of the recognised priors, as functions of the parameters of their Ops."""

SQUARES: dict[type, Callable[..., Exponents]] = {
    HalfNormalRV: lambda loc, sigma: exponents(0.5, lambda2=pt.reciprocal(pt.sqr(sigma)))
}
"""Exponents of the squares of variables, where only the square is generalised inverse Gaussian."""


@dataclass(frozen=True)
class Mixture:
    """A prior whose square is generalised inverse Gaussian given an auxiliary variable.

    ``auxiliary`` has the exponents of the latter given the variable and the prior's parameters,
    ``square`` those of the variable's square given the auxiliary variable and the parameters.
    """

    auxiliary: Callable[..., Exponents]
    square: Callable[..., Exponents]


def _inverse_gamma_mixture(nu: Any, v: TensorVariable, sigma: TensorVariable) -> Exponents:
    return exponents(-(nu + 1) / 2, delta2=2 * (nu / pt.sqr(v) + pt.reciprocal(pt.sqr(sigma))))


MIXTURES: dict[type, Mixture] = {
    HalfStudentTRV: Mixture(
        lambda v, nu, sigma: _inverse_gamma_mixture(nu, v, sigma),
        lambda a, nu, sigma: exponents(-nu / 2, delta2=2 * nu / a),
    ),
    HalfCauchyRV: Mixture(
        lambda v, sigma: _inverse_gamma_mixture(1.0, v, sigma),
        lambda a, sigma: exponents(-0.5, delta2=2 / a),
    ),
    ExponentialRV: Mixture(
        lambda v, scale: exponents(0.5, pt.sqr(v), pt.reciprocal(pt.sqr(scale))),
        lambda a, scale: exponents(0.5, lambda2=pt.reciprocal(a)),
    ),
}
"""Priors of standard deviations that are mixtures."""

BOUNDED = {UniformRV}
"""Priors that are constant between their two parameters."""

STANDARD_DEVIATIONS = (*SQUARES, *MIXTURES, *BOUNDED)
