"""Layers with their priors, and settings that are given once or once per layer.

Scales enter the model as plain numbers, so that the graph states that all entries
of a variable share one variance. Weights of layer ``l`` have shape ``(fan_out, fan_in)``.
Variances of noise are known or learnt, and given once for all or by kind and layer. One that is
learnt has an inverse gamma prior: that of :class:`~pymc_nnsteps.models.priors.Prior`.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor import config
from pytensor.tensor import TensorVariable

from pymc_nnsteps.arguments import is_finite_number, is_integer, is_word, positive_number
from pymc_nnsteps.models.priors import Prior

MOST_NUMBERS = 10**9
"""Entries of the largest array: eight gigabytes."""


def layer_sizes(hidden: Sequence[int]) -> tuple[int, ...]:
    """Check the widths of the hidden layers; there may be none."""
    is_sequence = isinstance(hidden, Sequence | np.ndarray) and not isinstance(hidden, str)
    if (
        not is_sequence
        or getattr(hidden, "ndim", 1) == 0
        or not all(is_integer(width) and width > 0 for width in hidden)
    ):
        example = f"({hidden},)" if isinstance(hidden, int) and hidden > 1 else "(10,)"
        raise ValueError(
            "hidden must be a sequence of positive integers, one width per hidden layer, "
            f"such as {example}; got {hidden!r}."
        )
    return tuple(int(width) for width in hidden)


def require_size(units: Sequence[int], n_obs: int) -> None:
    """Check that a network of these widths is not larger than any computer's memory."""
    for fan_in, width in pairwise(units):
        numbers = width * max(fan_in, n_obs)
        if numbers > MOST_NUMBERS:
            raise ValueError(
                f"hidden asks for {numbers:.2g} numbers in one layer ({width} units on {fan_in} "
                f"inputs and {n_obs} rows); take layers of at most {MOST_NUMBERS:.0g} numbers."
            )


def require_resolved(variance: float, name: str, given: object) -> None:
    """Check that a noise variance is not lost in rounding beside squares of order 1."""
    limits = np.finfo(config.floatX)
    wrong = ""
    if variance < limits.eps:
        wrong = f"small: a variance below {limits.eps:.2g} is lost in the rounding of"
    elif variance > limits.max:
        wrong = f"large: a variance above {limits.max:.2g} is infinite in"
    if wrong:
        raise ValueError(f"{name} is too {wrong} {config.floatX}; got {given!r}.")


def per_layer(name: str, value: ArrayLike, count: int, kind: str | None) -> tuple[float, ...]:
    """Expand one number to all layers, or check that there is one per layer."""
    given = np.asarray(value, dtype=object)
    if not all(map(is_finite_number, given.ravel().tolist())):
        raise ValueError(f"{name} must be a finite number or a sequence of them; got {value!r}.")
    return tuple(map(float, one_per_layer(name, value, count, kind)))


def one_per_layer(name: str, value: object, count: int, kind: str | None) -> tuple[Any, ...]:
    """Expand one setting to all layers, or check that there is one per layer."""
    given = np.asarray(value, dtype=object)
    if given.ndim > 1 or (given.ndim == 1 and len(given) != count):
        several = "" if kind is None else f" or {count}, one per {kind}"
        raise ValueError(f"{name} must be one number{several}; got {value!r}.")
    return tuple(np.broadcast_to(given, (count,)).tolist())


def positive_per_layer(name: str, value: ArrayLike, count: int) -> tuple[float, ...]:
    """Expand one positive number to all layers, or check that there is one per layer."""
    given = per_layer(name, value, count, "layer")
    if min(given) <= 0:
        raise ValueError(f"{name} must be positive; got {value!r}.")
    return given


def floating(number: float) -> NDArray[np.floating]:
    """A number in ``floatX``; PyTensor would store some Python floats, as 0.5, in float32."""
    return np.asarray(number, dtype=config.floatX)


def standard_deviation(variance: float) -> NDArray[np.floating]:
    """Square root in ``floatX``."""
    return floating(variance**0.5)


OneNoise = float | Literal["learnt", "network"] | Prior
Noise = OneNoise | Mapping[str, OneNoise | Sequence[OneNoise]]
Variance = float | Prior
"""A known variance, or the prior of one that is not."""

Variances = dict[str, tuple[Variance, ...]]
"""From each kind of noise to the variances of its layers; ``"output"`` has one."""

DEFAULT_NOISE = 1e-2
"""Variance of all noise where none is given."""

LEARNT_HIDDEN = Prior(0.035, 20)
LEARNT_OUTPUT = Prior(0.1, 2)
"""Priors of noise that is learnt, in networks of standardised inputs and targets."""


def variances(
    noise: Noise | None,
    sigma: Noise | None,
    counts: Mapping[str, tuple[int, str]],
    *,
    observed: bool,
    needed: bool,
    default: OneNoise,
) -> Variances:
    """Variance of each noise of a network, by its kind; ``"output"`` has one.

    ``counts`` has the number of layers of other kinds, and their name in messages. With
    ``observed`` one number is that of the output too, which must have noise if ``needed``.
    """
    if noise is not None and sigma is not None:
        raise ValueError(
            "noise is a variance and sigma a standard deviation of the same; pass one of them."
        )
    if sigma is not None:
        name, meaning, given, power = "sigma", "a standard deviation", sigma, 2
    else:
        name, meaning, power = "noise", "a variance", 1
        given = default if noise is None else noise
    every = _by_kind(name, given, counts, observed=observed)
    numbers = [each for of_kind in every.values() for each in of_kind if isinstance(each, float)]
    if min(numbers, default=0) < 0:
        raise ValueError(f"{name} is {meaning} and must not be negative; got {given!r}.")
    if observed and needed and every["output"][0] == 0:
        zeros = ", ".join(f'"{kind}": 0' for kind in counts)
        raise ValueError(
            f"{name} of the output must be positive; for hidden layers without noise pass "
            f'{name}={{{zeros}, "output": 0.1}}.'
        )
    for number in numbers:
        if number > 0:
            require_resolved(math.prod([number] * power), name, given)
    return {
        kind: tuple(each if isinstance(each, Prior) else each**power for each in of_kind)
        for kind, of_kind in every.items()
    }


def without_network(given: Noise | None) -> tuple[Noise | None, bool]:
    """Noise of which that of the output is learnt where it varies, and whether it does."""
    if isinstance(given, Mapping):
        output, varies = without_network(given.get("output"))  # type: ignore[arg-type]
        return ({**given, "output": output}, True) if varies else (given, False)  # type: ignore[dict-item]
    return ("learnt", True) if isinstance(given, str) and given == "network" else (given, False)


def known_sigma(sigma: object) -> float | None:
    """Standard deviation of real targets; None if it is learnt, or varies (``"network"``)."""
    if sigma is None or is_word(sigma, "network"):
        return None
    if isinstance(sigma, str):
        raise ValueError(f'sigma must be a positive number or "network"; got {sigma!r}.')
    number = positive_number("sigma", sigma)
    require_resolved(number * number, "sigma", sigma)
    return number


def noise_scale(name: str, variance: Variance) -> TensorVariable | NDArray:
    """Standard deviation of the noise of a variable; ``noise_{name}`` is added if it is learnt."""
    if not isinstance(variance, Prior):
        return standard_deviation(variance)
    shape = variance.alpha_common / 2
    numbers = map(floating, (shape, shape * variance.width**2))
    return pt.sqrt(pm.InverseGamma(f"noise_{name}", *numbers))


def noisy(
    name: str,
    mean: TensorVariable,
    variance: Variance,
    dims: tuple[str, ...] | None,
    shape: Sequence[TensorVariable | int] | None = None,
) -> TensorVariable:
    """Add ``N(mean, variance)`` to the model, or return a ``mean`` of variance zero itself."""
    if variance == 0:
        return pm.Deterministic(name, mean, dims=dims)
    return pm.Normal(name, mean, noise_scale(name, variance), shape=shape, dims=dims)


def _by_kind(
    name: str, given: Noise, counts: Mapping[str, tuple[int, str]], *, observed: bool
) -> Variances:
    """Numbers, as they are given, and priors of each kind."""
    found = {}
    if isinstance(given, Mapping) and set(given) != {*counts, "output"}:
        kinds = ", ".join(f'"{kind}"' for kind in counts)
        raise ValueError(
            f'{name} must have exactly the keys {kinds} and "output"; got {list(given)}.'
        )
    for kind, (count, called) in {**counts, "output": (1, None)}.items():
        learnt = LEARNT_OUTPUT if kind == "output" else LEARNT_HIDDEN
        if isinstance(given, Mapping):
            label = f'{name}["{kind}"]'
            entries = one_per_layer(label, given[kind], count, called)
        else:
            label, entries = name, one_per_layer(name, given, 1, None) * count
        found[kind] = tuple(_number_or_prior(label, entry, learnt) for entry in entries)
    if not isinstance(given, Mapping) and not observed:
        found["output"] = (0.0,)
    return found


def _number_or_prior(name: str, given: object, learnt: Prior) -> Variance:
    if isinstance(given, str) and given == "learnt":
        return learnt
    if isinstance(given, Prior):
        if not math.isfinite(given.alpha_common) or given != Prior(given.width, given.alpha_common):
            raise ValueError(
                f"{name} is one variance for a layer, whose prior has a width and a finite "
                f"alpha_common and no more, such as Prior(0.1, 4); got {given!r}."
            )
        return given
    if not is_finite_number(given):
        raise ValueError(
            f'{name} must be a finite number or a sequence of them, "learnt" or a Prior; '
            f"got {given!r}."
        )
    return float(given)
