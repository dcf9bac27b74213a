"""Layers with their priors, and settings that are given once or once per layer.

Scales enter the model as plain numbers, so that the graph states that all entries
of a variable share one variance. Weights of layer ``l`` have shape ``(fan_out, fan_in)``.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from pytensor import config
from pytensor.tensor import TensorVariable

from pymc_nnsteps.arguments import is_finite_number, is_integer, require_bool

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
    epsilon = np.finfo(config.floatX).eps
    if variance < epsilon:
        raise ValueError(
            f"{name} is too small: a variance below {epsilon:.2g} is lost in the rounding of "
            f"{config.floatX}; got {given!r}."
        )
    largest = np.finfo(config.floatX).max
    if variance > largest:
        raise ValueError(
            f"{name} is too large: a variance above {largest:.2g} is infinite in {config.floatX}; "
            f"got {given!r}."
        )


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


def precisions(name: str, value: ArrayLike | None, fan_in: Sequence[int]) -> tuple[float, ...]:
    """Prior precision of each layer; None is its number of inputs, ``lambda^(l) = d_l``."""
    if value is None:
        return tuple(float(width) for width in fan_in)
    return positive_per_layer(name, value, len(fan_in))


def bias_precisions(
    bias: bool, bias_precision: ArrayLike | None, fan_in: Sequence[int]
) -> tuple[float | None, ...]:
    """Prior precision of each layer's biases, None where a layer has none."""
    require_bool("bias", bias)
    if bias:
        return precisions("bias_precision", bias_precision, fan_in)
    if bias_precision is not None:
        raise ValueError("bias_precision has no meaning with bias=False; leave one of them out.")
    return (None,) * len(fan_in)


def floating(number: float) -> NDArray[np.floating]:
    """A number in ``floatX``; PyTensor would store some Python floats, as 0.5, in float32."""
    return np.asarray(number, dtype=config.floatX)


def standard_deviation(variance: float) -> NDArray[np.floating]:
    """Square root in ``floatX``."""
    return floating(variance**0.5)


def dense(
    layer: int,
    inputs: TensorVariable,
    *,
    shape: tuple[int, int],
    dims: tuple[str, str],
    weight_precision: float,
    bias_precision: float | None,
) -> TensorVariable:
    """Add a layer's weights (fan_out, fan_in) and biases; return ``F = X W^T + b``.

    ``W_ai ~ N(0, 1/lambda_W)``, ``b_a ~ N(0, 1/lambda_b)``.
    """
    weights = pm.Normal(
        f"W{layer}", 0.0, standard_deviation(1 / weight_precision), shape=shape, dims=dims
    )
    mean = inputs @ weights.T
    if bias_precision is None:
        return mean
    return mean + pm.Normal(
        f"b{layer}", 0.0, standard_deviation(1 / bias_precision), shape=shape[:1], dims=dims[0]
    )
