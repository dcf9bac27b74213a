r"""Hierarchical priors: how widely the parameters of one group of a network scatter.

A parameter :math:`w_{ij}` that leads from unit i to unit j is normal with a precision that is
itself unknown, at up to three levels ("Gamma with shape :math:`\alpha` and mean m" has shape
:math:`\alpha/2` and rate :math:`\alpha/(2m)`)::

    tau     ~ Gamma with shape alpha_common and mean omega = width^-2      of the group
    tau_i   ~ Gamma with shape alpha_unit and mean tau                     of the source unit i
    w_ij    ~ Normal(0, tau_i^-1/2), or Student-t with alpha_weight degrees of freedom

An infinite alpha removes its level: the precision equals its mean, the weight is normal.
"""

import math
from dataclasses import dataclass
from typing import Any, Self, override

NOTATION = '"[x]width[:alpha_common[:alpha_unit[:alpha_weight]]]"'


@dataclass(frozen=True)
class Prior:
    """Prior of one group of a hierarchical network's parameters.

    Parameters
    ----------
    width : float
        Typical standard deviation of the parameters, in their own units: the mean of the common
        precision is ``width**-2``.
    alpha_common : float
        Shape of the group's precision: a small value makes the prior of the group's scale vague, an
        infinite one (the default) fixes the scale.
    alpha_unit : float
        Shape of the precisions of source units, about the common one. For inputs this is automatic
        relevance determination. For noise the units are the outputs.
    alpha_weight : float
        Degrees of freedom of single weights (for noise, of single cases); infinite (the default)
        means normal.
    scale : bool
        Whether to divide the variance among the source units, so that the spread of their joint
        effect does not depend on their number.

    Raises
    ------
    ValueError
        If ``width`` or an alpha is not a positive number, or ``scale`` is not True or False.

    References
    ----------
    Neal, *Neural Network Models Implemented in the Flexible Bayesian Modelling Software* (2022),
    eqs 13-26; *Bayesian Learning for Neural Networks* (1996), chapter 3.

    Examples
    --------
    >>> from pymc_nnsteps import Prior
    >>> Prior.parse("x0.05:0.5") == Prior(0.05, alpha_common=0.5, scale=True)
    True
    >>> print(Prior(2, alpha_common=3, alpha_weight=4))
    2:3::4
    """

    width: float
    alpha_common: float = math.inf
    alpha_unit: float = math.inf
    alpha_weight: float = math.inf
    scale: bool = False

    def __post_init__(self) -> None:
        """Check the numbers and make them floats."""
        if not isinstance(self.scale, bool):
            raise ValueError(f"scale must be True or False; got {self.scale!r}.")
        object.__setattr__(self, "width", _positive("width", self.width))
        if math.isinf(self.width):
            raise ValueError("width must be finite.")
        for name in ("alpha_common", "alpha_unit", "alpha_weight"):
            object.__setattr__(self, name, _positive(name, getattr(self, name)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the notation of the Flexible Bayesian Modelling software.

        Parameters
        ----------
        text : str
            ``"[x]width[:alpha_common[:alpha_unit[:alpha_weight]]]"``: omitted or empty alphas are
            infinite, and ``x`` divides the variance among the source units.

        Raises
        ------
        ValueError
            If ``text`` is not of this form.

        Examples
        --------
        >>> from pymc_nnsteps import Prior
        >>> Prior.parse("x2:3::4")
        Prior(width=2.0, alpha_common=3.0, alpha_unit=inf, alpha_weight=4.0, scale=True)
        """
        numbers = text.removeprefix("x").split(":") if isinstance(text, str) else []
        try:
            width, *alphas = [float(n) if n or not i else math.inf for i, n in enumerate(numbers)]
            common, unit, weight = (*alphas, *[math.inf] * (3 - len(alphas)))
        except ValueError:
            raise ValueError(f"A prior is written {NOTATION}; got {text!r}.") from None
        try:
            return cls(width, common, unit, weight, scale=text.startswith("x"))
        except ValueError as reason:
            raise ValueError(f"A prior is written {NOTATION}; got {text!r}: {reason}") from None

    @classmethod
    def of(cls, prior: Any) -> Self:
        """Convert a ``pymc_extras.prior.Prior``.

        Parameters
        ----------
        prior : pymc_extras.prior.Prior
            ``Prior("Normal", mu=0, sigma=0.5)``; or ``tau=Prior("Gamma", alpha=..., beta=...)`` in
            place of ``sigma``, for a learnt precision; or ``"StudentT"`` with ``sigma`` and ``nu``.

        Raises
        ------
        ValueError
            If ``prior`` has another form, or has dimensions or a transform of its own.

        Examples
        --------
        >>> from types import SimpleNamespace as Theirs  # as pymc_extras.prior.Prior has them
        >>> from pymc_nnsteps import Prior
        >>> Prior.of(Theirs(distribution="Normal", parameters={"mu": 0, "sigma": 0.5}))
        Prior(width=0.5, alpha_common=inf, alpha_unit=inf, alpha_weight=inf, scale=False)
        """
        own: dict[str, Any] = {"mu": 0, **prior.parameters}
        found: Self | None = None
        more = getattr(prior, "dims", None), getattr(prior, "transform", None)
        match prior.distribution, own:
            case "Normal", {"mu": 0, "sigma": int() | float() as sigma, **rest} if not rest:
                found = cls(sigma)
            case "StudentT", {"mu": 0, "sigma": int() | float() as sigma, "nu": nu, **rest} if (
                not rest
            ):
                found = cls(sigma, alpha_weight=nu)
            case "Normal", {"mu": 0, "tau": tau, **rest} if (
                not rest and getattr(tau, "distribution", None) == "Gamma"
            ):
                alpha, beta = (_positive(name, tau.parameters[name]) for name in ("alpha", "beta"))
                found = cls(math.sqrt(beta / alpha), alpha_common=2 * alpha)
        if found is None or any(more):
            raise ValueError(
                'a prior of pymc_extras must be Prior("Normal", mu=0, sigma=...) with a number or '
                'tau=Prior("Gamma", alpha=..., beta=...), or Prior("StudentT", mu=0, sigma=..., '
                f"nu=...), without dims or transform; got {prior!r}."
            )
        return found

    @override
    def __str__(self) -> str:
        numbers = [self.width, self.alpha_common, self.alpha_unit, self.alpha_weight]
        text = ":".join(
            "" if math.isinf(number) else repr(number).removesuffix(".0") for number in numbers
        )
        return "x" * self.scale + text.rstrip(":")

    def mean_precision(self, n_sources: int) -> float:
        """Mean ``omega`` of the common precision of weights from so many units (eq. 26)."""
        omega = self.width**-2
        if not self.scale:
            return omega
        alpha = self.alpha_unit if math.isinf(self.alpha_weight) else self.alpha_weight
        if math.isinf(alpha):
            return omega * n_sources
        if alpha > 2:
            return omega * n_sources * alpha / (alpha - 2)
        if alpha < 2:
            return omega * n_sources ** (2 / alpha)
        return omega * n_sources * (math.log(n_sources) if n_sources >= 3 else 1)


def _positive(name: str, value: float) -> float:
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not number > 0:
        raise ValueError(f"{name} must be a positive number; got {value!r}.")
    return number
