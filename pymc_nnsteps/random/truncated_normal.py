r"""The truncated normal, exact at any distance from its mean.

.. math:: z \sim N(\mu, \sigma^2) \quad\text{given}\quad l \le z \le u

Latent utilities of a probit model are such variables, millions of them per run, and in a
network with little noise the bounds lie thousands of standard deviations from the mean,
where inverting the distribution function breaks down. Here nothing is inverted: a draw is a
rejection from a normal restricted to an interval. In standard units the interval runs
from ``below`` :math:`= (l - \mu)/\sigma` to ``above`` :math:`= (u - \mu)/\sigma` and has a
``width`` :math:`= (u - l)/\sigma`, which is passed along because ``above - below`` would lose it
far from the mean. Relative to the density at the mode (the mean, or the bound nearest to it), the
lightest of three proposals is used:

=====  ==========================================  =======================
kind   proposal                                    mass
=====  ==========================================  =======================
BULK   the normal itself                           :math:`\sqrt{2\pi}`
FLAT   uniform on the interval                     ``width``
TAIL   exponential of mean ``r`` beyond the bound  :math:`r \exp(r^2/2)`
=====  ==========================================  =======================

TAIL is Robert's (1995) proposal for a bound at a distance :math:`a > 0` from the mean: the
rate that accepts most is :math:`1/r = (a + \sqrt{a^2 + 4})/2`, and since
:math:`1/r - a = r` a proposal :math:`r E`, E standard exponential, is accepted with
probability :math:`\exp(-r^2 (E - 1)^2/2)`.

The least acceptance is 0.49, at an interval from the mean to 2.5 sds beside it. There is no
distribution function and no special function, hence no distance from the mean at which
accuracy ends. An excess over a bound is generated as such, so that draws beside a distant
bound keep their relative precision. Because the masses are known, a *mixture* of restricted
normals is drawn with the same three proposals.

**Latent utilities behind a class label** (the multinomial probit) are, row by row,
:math:`Z_a \sim N(\mu_a, \sigma_a^2)`, given to have their largest element at the label y (Piccioli,
Troiani and Zdeborova, arXiv:2306.02729, eqs. E23-E26). One Gibbs scan of a row draws

.. math:: Z_y \sim N(\mu_y, \sigma_y^2) \text{ given } Z_y > \max_{a \ne y} Z_a, \qquad
          Z_a \sim N(\mu_a, \sigma_a^2) \text{ given } Z_a < Z_y \text{ for all } a \ne y,

the others all at once, since they are independent given :math:`Z_y`.

References
----------
Robert, C. P. (1995). Simulation of truncated normal variables. Statistics and Computing 5.
"""

import math

import numpy as np
import pytensor.tensor as pt
from numpy.random import Generator
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.type import discrete_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.random.op import (
    Array,
    KernelRV,
    as_float,
    draw_elementwise,
    entry,
    float_dtype,
)

BULK, FLAT, TAIL = 0, 1, 2
SQRT_2PI = math.sqrt(2 * math.pi)
WIDEST_TAIL = math.exp(0.5)


@inline
def lightest_proposal(below: float, above: float, width: float) -> tuple[int, float, float]:
    """The lightest proposal: its kind, and its mass as ``size * exp(gain)``."""
    if below <= 0.0 and above >= 0.0:
        if width < SQRT_2PI:
            return FLAT, width, 0.0
        return BULK, SQRT_2PI, 0.0
    distance = max(below, -above)
    r = 2.0 / (distance + math.sqrt(distance * distance + 4.0))
    gain = 0.5 * r * r
    if width < WIDEST_TAIL and width < r * math.exp(gain):
        return FLAT, width, 0.0
    return TAIL, r, gain


@inline
def propose(
    rng: Generator, kind: int, size: float, mean: float, sd: float, lower: float, upper: float
) -> tuple[bool, float]:
    """One point of a proposal: (accepted, z)."""
    if kind == BULK:
        z = mean + sd * rng.standard_normal()
        return not (z < lower or z > upper), z
    if upper < mean:
        bound, direction, distance = upper, -sd, (mean - upper) / sd
    else:
        bound, direction, distance = lower, sd, (lower - mean) / sd
    accepted = False
    if kind == TAIL:
        exponential = rng.standard_exponential()
        excess = size * exponential
        slack = size * (exponential - 1.0)
        accepted = not (slack * slack > 2.0 * rng.standard_exponential())
    else:
        excess = size * rng.random()
        beyond = distance > 0.0
        drop = excess * (2.0 * distance + excess) if beyond else (distance + excess) ** 2
        accepted = not (drop > 2.0 * rng.standard_exponential())
    z = bound + direction * excess
    return accepted and not (z < lower or z > upper), z


@inline
def draw_truncated_normal(
    rng: Generator, mu: float, sigma: float, lower: float, upper: float
) -> float:
    """One draw; NaN where the bounds are in the wrong order or sigma is not positive."""
    if not (lower <= upper and sigma > 0.0):
        return math.nan
    kind, size, _ = lightest_proposal(
        (lower - mu) / sigma, (upper - mu) / sigma, (upper - lower) / sigma
    )
    while True:
        accepted, z = propose(rng, kind, size, mu, sigma, lower, upper)
        if accepted:
            return z


@jit
def truncated_normal_kernel(
    rng: Generator, mu: Array, sigma: Array, lower: Array, upper: Array, out: Array
) -> Array:
    """Independent truncated normals."""
    for i in range(out.size):
        out[i] = draw_truncated_normal(
            rng, entry(mu, i), entry(sigma, i), entry(lower, i), entry(upper, i)
        )
    return out


class TruncatedNormalRV(KernelRV):
    """Draws over raveled parameters; used through `truncated_normal`."""

    name = "truncated_normal"
    signature = "(n),(s),(l),(u)->(n)"
    kernel = truncated_normal_kernel


def truncated_normal(
    rng: Variable, mu: TensorLike, sigma: TensorLike, lower: TensorLike, upper: TensorLike
) -> tuple[Variable, TensorVariable]:
    """Draw normals restricted to intervals, elementwise, whose bounds may be infinite or equal.

    A draw is NaN where ``lower > upper``, ``sigma <= 0`` or a parameter is NaN.
    """
    return draw_elementwise(TruncatedNormalRV(), rng, (mu, sigma, lower, upper))


@jit
def argmax_utilities_kernel(
    rng: Generator, mu: Array, sigma: Array, labels: Array, current: Array, out: Array
) -> Array:
    """Rows of normals whose largest element stands at the row's label, never tied."""
    rows, classes = out.shape
    if labels.size != rows or current.shape != out.shape:
        raise ValueError("mu, labels and current do not have the same number of rows or classes")
    last_row, last_class = sigma.shape[0] - 1, sigma.shape[1] - 1
    infinity = out.dtype.type(math.inf)
    for i in range(rows):
        y = labels[i]
        if y < 0 or y >= classes:
            raise ValueError("a label is not the index of a class")
        runner_up = -infinity
        for a in range(classes):
            if a != y:
                runner_up = max(runner_up, out.dtype.type(current[i, a]))
        out[i, y] = draw_truncated_normal(
            rng,
            np.float64(mu[i, y]),
            np.float64(sigma[min(i, last_row), min(y, last_class)]),
            np.float64(np.nextafter(runner_up, infinity)),
            math.inf,
        )
        upper = np.float64(np.nextafter(out[i, y], -infinity))
        for a in range(classes):
            if a != y:
                out[i, a] = draw_truncated_normal(
                    rng,
                    np.float64(mu[i, a]),
                    np.float64(sigma[min(i, last_row), min(a, last_class)]),
                    -math.inf,
                    upper,
                )
    return out


class ArgmaxUtilitiesRV(KernelRV):
    """One scan of all rows; used through `argmax_utilities`."""

    name = "argmax_utilities"
    signature = "(n,k),(s,t),(n),(n,k)->(n,k)"
    kernel = argmax_utilities_kernel


def argmax_utilities(
    rng: Variable, mu: TensorLike, sigma: TensorLike, labels: TensorLike, current: TensorLike
) -> tuple[Variable, TensorVariable]:
    """Draw utilities (n, K) whose argmax is the label (n,): one Gibbs scan of each row.

    Standard deviations are (), (K,) or (n, K). The label's utility is the greatest, without ties.
    """
    mu, sigma, current = map(as_float, (mu, sigma, current))
    labels = pt.as_tensor(labels)
    if labels.type.dtype not in discrete_dtypes:
        raise TypeError(f"labels must be integers, not {labels.type.dtype}")
    return ArgmaxUtilitiesRV()(
        mu,
        pt.atleast_2d(sigma),
        pt.cast(labels, "int64"),
        current,
        rng=rng,
        dtype=float_dtype(mu, sigma, current),
        return_next_rng=True,
    )
