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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable

from pymc_nnsteps.arguments import require_choice
from pymc_nnsteps.distributions import GeneralizedInverseGaussian
from pymc_nnsteps.models.parts.layers import (
    floating,
    per_layer,
    positive_per_layer,
    standard_deviation,
)

PerLayer = float | Sequence[float]
ShrinkageFamily = Literal["student_t", "laplace", "normal_gamma", "nig", "gaussian"]
WeightPrior = Callable[[int, tuple[int, int], tuple[str, str]], TensorVariable | NDArray]
"""Adds the scales of a layer to the model, from its number and the shape and dimensions of its
weights, and returns their standard deviation."""


ScaleLaw = tuple[float, float, float]
"""``nu``, ``delta`` and ``lambda`` of a generalised inverse Gaussian law."""


@dataclass(frozen=True)
class Family:
    """Laws of one kind."""

    free: tuple[str, ...]  # those of ``nu``, ``delta`` and ``lambda`` that are to be chosen
    nu: float  # its default, or its value where it is not to be chosen
    distribution: Callable[..., TensorVariable]
    parameters: Callable[[float, float, float], tuple[float, ...]]  # of the distribution

    def defaults(self, nu: float, mean: float) -> tuple[float, float]:
        """``delta`` and ``lambda`` that give a law this mean, or about it."""
        delta = math.sqrt(mean) if "delta" in self.free else 0.0
        if "lambda" not in self.free:
            return delta, 0.0
        return delta, 1 / delta if delta else math.sqrt(2 * nu / mean)

    def variable(self, name: str, law: ScaleLaw, **options: Any) -> TensorVariable:
        """Add a variable with a law to the model."""
        return self.distribution(name, *map(floating, self.parameters(*law)), **options)


FAMILIES = {
    "student_t": Family(
        ("nu", "delta"), -1.5, pm.InverseGamma, lambda nu, delta, lam: (-nu, delta**2 / 2)
    ),
    "laplace": Family(("lambda",), 1.0, pm.Exponential, lambda nu, delta, lam: (lam**2 / 2,)),
    "normal_gamma": Family(
        ("nu", "lambda"), 0.5, pm.Gamma, lambda nu, delta, lam: (nu, lam**2 / 2)
    ),
    "nig": Family(("delta", "lambda"), -0.5, GeneralizedInverseGaussian, lambda *law: law),
}


@dataclass(frozen=True)
class Shrinkage:
    r"""Prior of the weights of a bow-tie network: normal, with variances ``tau psi``.

    Parameters
    ----------
    family : {"student_t", "laplace", "normal_gamma", "nig", "gaussian"}
        Family of the distributions of ``tau`` and ``psi``, named after the distribution of a weight
        if one of the two is known. ``"gaussian"`` has neither: the variance of the weights is
        known.
    nu_global, delta_global, lambda_global : float, optional
        Hyperparameters of ``tau`` (global, one for each layer), with density proportional to
        :math:`x^{\nu-1} \exp\{-(\delta^2/x + \lambda^2 x)/2\}`. ``"student_t"`` has ``nu < 0``
        (-1.5 by default) and ``delta``, ``"laplace"`` has ``lambda``, ``"normal_gamma"`` has
        ``nu > 0`` (0.5 by default) and ``lambda``, ``"nig"`` has ``delta`` and ``lambda``. Other
        defaults depend on the data (:func:`~pymc_nnsteps.bow_tie`).
    nu_local, delta_local, lambda_local : float or sequence of float (one per layer), optional
        The same for ``psi`` (local, one for each weight).
    weight_var : float or sequence of float (one per layer), optional
        Variance of the weights, with the family ``"gaussian"`` only.

    Raises
    ------
    ValueError
        If there is no such family, or if it lacks a parameter that is given. Ranges and numbers of
        parameters are checked when a network is built.

    Examples
    --------
    >>> import numpy as np, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> lasso = nns.models.Shrinkage("laplace", lambda_global=2.0)
    >>> nns.bow_tie(X, X[:, 0], hidden=(4,), shrinkage=lasso)["tau1"].owner.op.name
    'exponential'
    """

    family: ShrinkageFamily = "student_t"
    nu_global: float | None = None
    delta_global: float | None = None
    lambda_global: float | None = None
    nu_local: PerLayer | None = None
    delta_local: PerLayer | None = None
    lambda_local: PerLayer | None = None
    weight_var: PerLayer | None = None

    def __post_init__(self) -> None:
        """Check that the family has what is given."""
        require_choice("shrinkage", self.family, get_args(ShrinkageFamily))
        free = FAMILIES[self.family].free if self.family in FAMILIES else ()
        known = [f"{name}_{level}" for level in ("global", "local") for name in free]
        known = known or ["weight_var"]
        for field in fields(self)[1:]:
            if getattr(self, field.name) is not None and field.name not in known:
                raise ValueError(
                    f'{field.name} has no meaning with shrinkage="{self.family}", which is set by '
                    f"{', '.join(known)}; leave it out."
                )


AnyShrinkage = ShrinkageFamily | Shrinkage


def weight_prior(shrinkage: AnyShrinkage, global_mean: float, fan_in: Sequence[int]) -> WeightPrior:
    """Read the prior of weights; by default global factors have the mean ``global_mean``.

    The local ones have the mean ``1 / fan_in`` of the layer.
    """
    given = shrinkage if isinstance(shrinkage, Shrinkage) else Shrinkage(shrinkage)
    local_means = [1 / width for width in fan_in]
    if given.family == "gaussian":
        variances = given.weight_var
        if variances is None:
            variances = [global_mean * mean for mean in local_means]
        known = positive_per_layer("weight_var", variances, len(fan_in))
        return lambda layer, shape, dims: standard_deviation(known[layer - 1])
    family = FAMILIES[given.family]
    (common,) = _laws(family, "global", given, [global_mean])
    of_weights = _laws(family, "local", given, local_means)

    def scale(layer: int, shape: tuple[int, int], dims: tuple[str, str]) -> TensorVariable:
        tau = family.variable(f"tau{layer}", common)
        return pt.sqrt(
            tau * family.variable(f"psi{layer}", of_weights[layer - 1], shape=shape, dims=dims)
        )

    return scale


def _laws(
    family: Family, level: str, given: Shrinkage, means: Sequence[float]
) -> tuple[ScaleLaw, ...]:
    """One law for each of the means that they have by default."""

    def numbers(parameter: str, default: Sequence[float], sign: float = 1.0) -> Sequence[float]:
        name = f"{parameter}_{level}"
        value = getattr(given, name)
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
    return tuple(zip(nu, numbers("delta", delta), numbers("lambda", lam), strict=True))
