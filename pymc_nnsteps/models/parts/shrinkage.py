r"""Priors that shrink the weights of a network: normal, with variances that are unknown.

A weight of layer l is normal with variance :math:`\tau_l \psi_{l,dd'}`, where both factors follow
generalised inverse Gaussian laws of one family, with density in proportion to
:math:`x^{\nu-1} \exp\{-(\delta^2/x + \lambda^2 x)/2\}`:

==================  ===========================================  ==================================
shrinkage           law of a factor                              law of a weight, one factor fixed
==================  ===========================================  ==================================
``"student_t"``     :math:`\mathrm{InvGamma}(-\nu, \delta^2/2)`  Student-t, :math:`-2\nu` d.o.f.
``"laplace"``       :math:`\mathrm{Exponential}(\lambda^2/2)`    Laplace
``"normal_gamma"``  :math:`\mathrm{Gamma}(\nu, \lambda^2/2)`     :math:`|w|^{\nu-1/2}
                                                                 K_{\nu-1/2}(\lambda|w|)`
``"nig"``           :math:`\mathrm{GIG}(-1/2, \delta, \lambda)`  normal-inverse-Gaussian
``"gaussian"``      none: the variance is known                  normal
==================  ===========================================  ==================================
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.tensor import TensorVariable

from pymc_nnsteps.distributions import GeneralizedInverseGaussian
from pymc_nnsteps.graphs.initial_values import InitialValue, begin_at
from pymc_nnsteps.models.parts.layers import (
    floating,
    per_layer,
    positive_per_layer,
    standard_deviation,
)

__all__ = ["Shrinkage", "WeightPrior", "weight_prior"]

Shrinkage = Literal["student_t", "laplace", "normal_gamma", "nig", "gaussian"]
Initvals = Callable[[str], InitialValue]
"""Initial value of each variable, by name."""


@dataclass(frozen=True)
class Law:
    """A generalised inverse Gaussian law; ``delta`` and ``lam`` enter its density squared."""

    nu: float
    delta: float
    lam: float


@dataclass(frozen=True)
class Family:
    """Laws of one kind.

    Attributes
    ----------
    free : tuple of str
        Those of ``nu``, ``delta`` and ``lambda`` that are to be chosen.
    nu : float
        Its default, or its value where it is not to be chosen.
    defaults : callable
        ``delta`` and ``lambda``, from ``nu`` and the mean that they are to give the law.
    variable : callable
        Adds a variable to the model, from its name, its law, and what PyMC wants to know.
    """

    free: tuple[str, ...]
    nu: float
    defaults: Callable[[float, float], tuple[float, float]]
    variable: Callable[..., TensorVariable]


def _inverse_gamma(name: str, law: Law, **options: Any) -> TensorVariable:
    return pm.InverseGamma(name, floating(-law.nu), floating(law.delta**2 / 2), **options)


def _exponential(name: str, law: Law, **options: Any) -> TensorVariable:
    return pm.Exponential(name, floating(law.lam**2 / 2), **options)


def _gamma(name: str, law: Law, **options: Any) -> TensorVariable:
    return pm.Gamma(name, floating(law.nu), floating(law.lam**2 / 2), **options)


def _gig(name: str, law: Law, **options: Any) -> TensorVariable:
    numbers = map(floating, (law.nu, law.delta, law.lam))
    return GeneralizedInverseGaussian(name, *numbers, **options)


def _only_delta(nu: float, mean: float) -> tuple[float, float]:
    return math.sqrt(mean), 0.0


def _only_lambda(nu: float, mean: float) -> tuple[float, float]:
    return 0.0, math.sqrt(2 * nu / mean)


def _both(nu: float, mean: float) -> tuple[float, float]:
    return math.sqrt(mean), 1 / math.sqrt(mean)


FAMILIES = {
    "student_t": Family(("nu", "delta"), -1.5, _only_delta, _inverse_gamma),
    "laplace": Family(("lambda",), 1.0, _only_lambda, _exponential),
    "normal_gamma": Family(("nu", "lambda"), 0.5, _only_lambda, _gamma),
    "nig": Family(("delta", "lambda"), -0.5, _both, _gig),
}


class WeightPrior(Protocol):
    """What a network asks of the prior of its weights."""

    def scale(
        self, layer: int, shape: tuple[int, int], dims: tuple[str, str], initvals: Initvals
    ) -> TensorVariable | NDArray:
        """Add the scales of a layer to the model and return its weights' standard deviation."""


@dataclass(frozen=True)
class _Fixed:
    """Known variances, one per layer."""

    variances: tuple[float, ...]

    def scale(
        self, layer: int, shape: tuple[int, int], dims: tuple[str, str], initvals: Initvals
    ) -> NDArray:
        return standard_deviation(self.variances[layer - 1])


@dataclass(frozen=True)
class _Unknown:
    """A global variance factor of each layer, and a local one of each weight."""

    variable: Callable[..., TensorVariable]
    tau: Law
    psi: tuple[Law, ...]

    def scale(
        self, layer: int, shape: tuple[int, int], dims: tuple[str, str], initvals: Initvals
    ) -> TensorVariable:
        tau_name, psi_name = f"tau{layer}", f"psi{layer}"
        tau = begin_at(self.variable(tau_name, self.tau), initvals(tau_name))
        psi = self.variable(psi_name, self.psi[layer - 1], shape=shape, dims=dims)
        return pt.sqrt(tau * begin_at(psi, initvals(psi_name)))


def weight_prior(
    shrinkage: Shrinkage,
    given: Mapping[str, ArrayLike | None],
    global_mean: float,
    fan_in: Sequence[int],
) -> WeightPrior:
    """Read the prior of a network's weights.

    Parameters
    ----------
    shrinkage : str
        The family.
    given : mapping of str to float, sequence of float or None
        ``nu_global``, ``delta_global``, ``lambda_global``, ``nu_local``, ``delta_local``,
        ``lambda_local`` and ``weight_var``. None takes a default, which gives the global factors
        the mean ``global_mean`` and the local ones the mean ``1 / fan_in``.
    global_mean : float
    fan_in : sequence of int
        Inputs of each layer.

    Returns
    -------
    WeightPrior

    Raises
    ------
    ValueError
        If an argument is one that the family does not have, is out of its range, or is not one
        number or one per layer.
    """
    _require_of_family(shrinkage, given)
    local_means = [1 / width for width in fan_in]
    if shrinkage == "gaussian":
        variances = given["weight_var"]
        if variances is None:
            variances = [global_mean * mean for mean in local_means]
        return _Fixed(positive_per_layer("weight_var", variances, len(fan_in)))
    family = FAMILIES[shrinkage]
    (tau,) = _laws(family, "global", given, [global_mean])
    return _Unknown(family.variable, tau, _laws(family, "local", given, local_means))


def _require_of_family(shrinkage: Shrinkage, given: Mapping[str, ArrayLike | None]) -> None:
    free = FAMILIES[shrinkage].free if shrinkage in FAMILIES else ()
    known = [f"{name}_{level}" for level in ("global", "local") for name in free] or ["weight_var"]
    for name, value in given.items():
        if value is not None and name not in known:
            raise ValueError(
                f'{name} has no meaning with shrinkage="{shrinkage}", which is set by '
                f"{', '.join(known)}; leave it out."
            )


def _laws(
    family: Family, level: str, given: Mapping[str, ArrayLike | None], means: Sequence[float]
) -> tuple[Law, ...]:
    """One law for each of the means that they have by default."""

    def numbers(parameter: str, default: Sequence[float], sign: float = 1.0) -> Sequence[float]:
        name = f"{parameter}_{level}"
        value = given[name]
        if value is None:
            return default
        read = per_layer(name, value, len(means), "layer" if level == "local" else None)
        if min(sign * number for number in read) <= 0:
            raise ValueError(
                f"{name} must be {'positive' if sign > 0 else 'negative'}; got {value!r}."
            )
        return read

    nu = numbers("nu", [family.nu] * len(means), sign=family.nu)
    delta, lam = zip(*map(family.defaults, nu, means), strict=True)
    return tuple(map(Law, nu, numbers("delta", delta), numbers("lambda", lam)))
