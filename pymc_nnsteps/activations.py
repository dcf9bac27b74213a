"""Activation functions: the named ones, and piecewise-linear ones with any knots.

A network's activation enters a PyMC model as ordinary PyTensor operations. The functions in
:data:`ACTIVATIONS` are the expressions one would write by hand; :class:`PiecewiseLinear`
builds the same kind of graph from a list of knots and slopes. All of them are piecewise
linear, which is what makes the pre-activation's full conditional a mixture of truncated
normals (Piccioli, Troiani and Zdeborova, arXiv 2306.02729, Appendix E). Networks whose
pre-activations are not variables of their own may also use those of
:data:`SMOOTH_ACTIVATIONS` and :data:`LAYER_ACTIVATIONS`, or any function of a tensor.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytensor.tensor as pt
from pytensor import config
from pytensor.tensor import TensorLike, TensorVariable

__all__ = ["Normalize", "PiecewiseLinear"]


@dataclass(frozen=True, init=False)
class PiecewiseLinear:
    """A function that is linear between its knots, and may jump at them.

    With knots ``t_1 < ... < t_K`` it equals ``slopes[k] * z + intercepts[k]`` on piece ``k``,
    that is for ``t_k <= z < t_{k+1}`` with ``t_0 = -inf`` and ``t_{K+1} = inf``: a knot belongs
    to the piece on its right.

    Parameters
    ----------
    knots : sequence of float, length K
        Where the pieces meet, strictly increasing. May be empty: one line.
    slopes : sequence of float, length K + 1
        Slope of each piece, from left to right.
    values : sequence of float, length K + 1 or K
        Length K + 1: the intercept of each piece, which allows jumps.
        Length K: the function's value at each knot; the function is then continuous and the
        slopes of the inner pieces must agree with the values.

    Attributes
    ----------
    knots : tuple of float, length K
    slopes : tuple of float, length K + 1
    intercepts : tuple of float, length K + 1

    Raises
    ------
    ValueError
        If an argument has the wrong length or is not finite, if the knots do not increase, or if
        the values at the knots contradict the slopes.

    References
    ----------
    Piccioli, Troiani and Zdeborova, *Gibbs Sampling the Posterior of Neural Networks*,
    arXiv 2306.02729, Appendix E.

    Examples
    --------
    A ReLU that is capped at 6, by its values at the knots, and a unit step, by intercepts:

    >>> from pymc_nnsteps.activations import PiecewiseLinear
    >>> relu6 = PiecewiseLinear(knots=(0, 6), slopes=(0, 1, 0), values=(0, 6))
    >>> relu6.intercepts
    (0.0, 0.0, 6.0)
    >>> relu6([-1.0, 2.5, 7.0]).eval()
    array([0. , 2.5, 6. ])
    >>> step = PiecewiseLinear(knots=[0], slopes=[0, 0], values=[0, 1])
    >>> step([-1.0, 0.0, 2.0]).eval()
    array([0., 1., 1.])
    """

    knots: tuple[float, ...]
    slopes: tuple[float, ...]
    intercepts: tuple[float, ...]

    def __init__(
        self, knots: Sequence[float], slopes: Sequence[float], values: Sequence[float]
    ) -> None:
        t, s, v = _floats("knots", knots), _floats("slopes", slopes), _floats("values", values)
        if any(right <= left for left, right in pairwise(t)):
            raise ValueError(f"knots must be strictly increasing; got {t}.")
        if len(s) != len(t) + 1:
            raise ValueError(
                f"slopes must have one entry per piece, {len(t) + 1} for {len(t)} knots; "
                f"got {len(s)}."
            )
        if len(v) == len(s):
            intercepts = v
        elif t and len(v) == len(t):
            intercepts = _continuous_intercepts(t, s, v)
        else:
            raise ValueError(
                f"values must have {len(s)} entries (the intercept of each piece) or {len(t)} "
                f"(the value at each knot of a continuous function); got {len(v)}."
            )
        object.__setattr__(self, "knots", t)
        object.__setattr__(self, "slopes", s)
        object.__setattr__(self, "intercepts", intercepts)

    def __call__(self, z: TensorLike) -> TensorVariable:
        """Apply the function to each entry of ``z``; a floating dtype stays as it is."""
        x = pt.as_tensor_variable(z)
        if x.dtype not in ("float32", "float64"):
            x = x.astype(config.floatX)
        knots, slopes, intercepts = (
            [pt.constant(number, dtype=x.dtype) for number in numbers]
            for numbers in (self.knots, self.slopes, self.intercepts)
        )
        result = slopes[-1] * x + intercepts[-1]
        for k in reversed(range(len(knots))):
            result = pt.switch(x < knots[k], slopes[k] * x + intercepts[k], result)
        return result


Activation = str | PiecewiseLinear
AnyActivation = Activation | Callable[[TensorVariable], TensorVariable]


ACTIVATIONS: dict[str, Callable[[TensorVariable], TensorVariable]] = {
    "relu": lambda z: pt.maximum(z, 0),
    "leaky_relu": lambda z: pt.switch(z > 0, z, 0.01 * z),
    "abs": lambda z: pt.abs(z),
    "sign": lambda z: pt.sign(z),
    "hard_tanh": lambda z: pt.clip(z, -1, 1),
    "identity": lambda z: z,
}
"""The activations that have a name, as plain PyTensor expressions, applied entry by entry."""


SMOOTH_ACTIVATIONS: dict[str, Callable[[TensorVariable], TensorVariable]] = {
    "gelu": lambda z: 0.5 * z * pt.erfc(-(0.5**0.5) * z),
    "tanh": lambda z: pt.tanh(z),
    "erf": lambda z: pt.erf(z),
    "softplus": lambda z: pt.softplus(z),
    "softplus0": lambda z: pt.softplus(z) - pt.log(pt.constant(2.0, dtype=z.dtype)),
}
"""Smooth activations, applied entry by entry. GELU is the exact ``z Phi(z)``; softplus is
``log(1 + e^z)``, softplus0 is that less ``log 2``, so that it passes through zero."""


@dataclass(frozen=True)
class Normalize:
    """Divide the units of a layer by their root mean square.

    ``v = u / sqrt(0.01 + mean(u^2))``, with the mean over groups of neighbouring units.

    Parameters
    ----------
    groups : int
        Number of groups, all of the same size.

    Raises
    ------
    ValueError
        If ``groups`` is not a positive integer.

    References
    ----------
    Neal, *Neural Network Models Implemented in the Flexible Bayesian Modelling Software* (2022).

    Examples
    --------
    >>> from pymc_nnsteps.activations import Normalize
    >>> Normalize(groups=2)([[3.0, 4.0, 0.0, 0.1]]).eval().round(3)
    array([[0.848, 1.131, 0.   , 0.816]])
    """

    groups: int = 1

    def __post_init__(self) -> None:
        """Check the number of groups."""
        if isinstance(self.groups, bool) or not isinstance(self.groups, int) or self.groups < 1:
            raise ValueError(f"groups must be a positive integer; got {self.groups!r}.")

    def __call__(self, u: TensorLike) -> TensorVariable:
        """Normalise the last axis of ``u``, whose length must be a multiple of ``groups``."""
        u = pt.as_tensor_variable(u)
        grouped = u.reshape((*u.shape[:-1], self.groups, -1))
        mean_square = pt.sqr(grouped).mean(axis=-1, keepdims=True)
        floor = pt.constant(0.01, dtype=u.dtype)
        return (grouped / pt.sqrt(floor + mean_square)).reshape(u.shape)


LAYER_ACTIVATIONS: dict[str, Callable[[TensorVariable], TensorVariable]] = {
    "softmax": lambda z: pt.special.softmax(z, axis=-1),
    "normalize": Normalize(),
}
"""Activations in which the units of a layer, its last axis, depend on each other."""


def activation_function(
    activation: AnyActivation,
    named: Mapping[str, Callable[[TensorVariable], TensorVariable]] = ACTIVATIONS,
    *,
    functions: bool = False,
) -> Callable[[TensorVariable], TensorVariable]:
    """The function of an argument: a key of ``named``, piecewise linear, or of any kind."""
    if isinstance(activation, PiecewiseLinear):
        return activation
    if isinstance(activation, str) and activation in named:
        return named[activation]
    if functions and callable(activation):
        _require_same_form(activation)
        return activation
    known = ", ".join(f'"{name}"' for name in named)
    other = "a PiecewiseLinear or a function of a tensor" if functions else "a PiecewiseLinear"
    raise ValueError(
        f"activation must be one of {known}{',' if functions else ' or'} {other}; "
        f"got {activation!r}."
    )


def _require_same_form(function: Callable[[TensorVariable], TensorVariable]) -> None:
    """Try the function on a matrix."""
    z = pt.matrix("z", dtype=config.floatX)
    result: object = function(z)
    if not isinstance(result, TensorVariable):
        raise ValueError(
            "activation must return a PyTensor tensor; "
            f"{function!r} returned a {type(result).__name__}."
        )
    if result.ndim != z.ndim or result.dtype != z.dtype:
        raise ValueError(
            f"activation must return a tensor with as many axes and of the same dtype as its "
            f"argument; for {z.ndim} axes of {z.dtype} {function!r} returned {result.ndim} of "
            f"{result.dtype}."
        )


def _floats(name: str, values: Sequence[float]) -> tuple[float, ...]:
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a sequence of numbers; got {values!r}.") from None
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(f"{name} must be a flat sequence of finite numbers; got {values!r}.")
    return tuple(array.tolist())


def _continuous_intercepts(
    knots: tuple[float, ...], slopes: tuple[float, ...], values: tuple[float, ...]
) -> tuple[float, ...]:
    """Intercepts of the pieces of the continuous function with these values at its knots."""
    t, s, v = np.array(knots), np.array(slopes), np.array(values)
    implied = np.diff(v) / np.diff(t)
    if not np.allclose(s[1:-1], implied):
        raise ValueError(
            f"values at the knots imply the inner slopes {implied.tolist()}, but slopes says "
            f"{s[1:-1].tolist()}; for a function with jumps give the {len(s)} intercepts instead."
        )
    intercepts = v[[0, *range(len(t))]] - s * t[[0, *range(len(t))]]
    return tuple(intercepts.tolist())
