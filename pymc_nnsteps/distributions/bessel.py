r"""The Bessel function in a generalised inverse Gaussian's constant, without overflow.

.. math:: I(a, b) = \int_{-\infty}^{\infty} \exp(-a \varphi(t) - b \varphi(-t))\, dt,
          \qquad \varphi(t) = e^t - 1 - t

is a modified Bessel function of the second kind with its exponential growth taken out: with
:math:`p = a - b`, :math:`\omega = 2\sqrt{ab}` and :math:`r = a + b`

.. math:: \log I(a, b) = \log(2 K_p(\omega)) + r - p \operatorname{arsinh}(p/\omega),
          \qquad I(a, 0) = \Gamma(a)\, (e/a)^a.

The trapezoidal rule converges exponentially for such integrands: 30 points, or 300 where K is
as flat as at :math:`\omega = 10^{-12}`, give full precision at any order and argument, where
``scipy.special.kve`` overflows near order 1000. The same sum has the derivatives,
:math:`\partial \log I(a, b)/\partial a = -E[\varphi(t)]` and, as :math:`I(a, b) = I(b, a)`,
the other one.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pytensor.gradient import grad_not_implemented
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import BinaryScalarOp, upgrade_to_float
from pytensor.tensor.elemwise import Elemwise

from pymc_nnsteps.kernels.jit import jit, version, when_numba

_RECIPROCALS = 1.0 / np.arange(12.0, 2.0, -1.0)
_N_RECIPROCALS = len(_RECIPROCALS)


@jit
def phi(t: float) -> float:
    """Compute exp(t) - 1 - t to full relative precision."""
    if abs(t) > 0.2:
        return math.expm1(t) - t
    series = 1.0
    for k in range(_N_RECIPROCALS):
        series = 1.0 + _RECIPROCALS[k] * t * series
    return 0.5 * t * t * series


@jit
def half_sums(a: float, b: float, step: float) -> tuple[float, float, float]:
    """Sums over the points t > 0 of the integrand, and of it times phi(t) and phi(-t)."""
    total = up = down = 0.0
    t = step
    while t < 700.0:
        phi_up, phi_down = phi(t), phi(-t)
        weight = math.exp(-a * phi_up - b * phi_down)
        total += weight
        up += weight * phi_up
        down += weight * phi_down
        if not (weight > 1e-17 * total or (weight * phi_up > 1e-17 * up and a > 0.0)):
            break
        t += step
    return total, up, down


@jit
def log_integral_and_mean(a: float, b: float) -> tuple[float, float]:
    """Compute log I(a, b) and E[phi(t)].

    Where one of a and b is 0 and the other less than 1 the integrand decays slowly, and the
    recurrence of the Gamma function is used. Where a is 0, the mean, infinite if b < 1, is only
    needed times a; it is given as 0.
    """
    if not (a >= 0.0 and b >= 0.0 and 0.0 < a + b < math.inf):
        return math.nan, math.nan
    p = a + b
    is_small_gamma = p < 1.0 and min(a, b) == 0.0
    lift = 1.0 if is_small_gamma else 0.0
    lifted_a, lifted_b = a + lift * (a > 0.0), b + lift * (b > 0.0)
    step = 0.65 / math.sqrt(lifted_a + lifted_b + 6.5)
    right, up, _ = half_sums(lifted_a, lifted_b, step)
    left, _, also_up = half_sums(lifted_b, lifted_a, step)
    total = 1.0 + right + left
    log_integral, mean = math.log(step * total), (up + also_up) / total
    if is_small_gamma:
        log_ratio = math.log1p(1.0 / p)
        log_integral += (p + 1.0) * log_ratio - 1.0
        mean += 1.0 / p - log_ratio
    return log_integral, mean if a > 0.0 else 0.0


@jit
def log_integral(a: float, b: float) -> float:
    """Compute log I(a, b)."""
    return log_integral_and_mean(a, b)[0]


@jit
def mean_phi(a: float, b: float) -> float:
    """Compute E[phi(t)]."""
    return log_integral_and_mean(a, b)[1]


class CompiledOp(BinaryScalarOp):
    """A kernel of two numbers, called in every mode."""

    function: ClassVar[Any]

    def impl(self, a: float, b: float) -> float:
        """Call the function."""
        return self.function(a, b)

    def c_code(self, *args: Any, **kwargs: Any) -> str:
        """There is none: C mode calls `impl`."""
        raise NotImplementedError


@when_numba
def _register() -> None:
    from pytensor.link.numba.dispatch.basic import register_funcify_and_cache_key

    def function(op: CompiledOp, node: Apply, **kwargs: Any) -> tuple[Any, str]:
        """The function, and the key of PyTensor's disk cache."""
        return op.function.numba, f"{type(op).__name__} {version()}"

    register_funcify_and_cache_key(CompiledOp)(function)


class MeanPhi(CompiledOp):
    """`mean_phi` as an Op, without derivatives."""

    function = staticmethod(mean_phi)

    def pullback(self, inputs: Sequence[Variable], outputs: Any, grads: Any) -> list[Variable]:
        """Refuse."""
        return [grad_not_implemented(self, i, value) for i, value in enumerate(inputs)]


class LogIntegral(CompiledOp):
    """`log_integral` as an Op, differentiable once."""

    function = staticmethod(log_integral)

    def pullback(self, inputs: Sequence[Variable], outputs: Any, grads: Any) -> list[Variable]:
        """Derivatives by a and by b."""
        (a, b), (grad,) = inputs, grads
        return [-grad * _mean_phi(a, b), -grad * _mean_phi(b, a)]


_mean_phi = MeanPhi(upgrade_to_float, name="mean_phi")
log_bessel_integral = Elemwise(LogIntegral(upgrade_to_float, name="log_bessel_integral"))
