r"""The generalised inverse Gaussian, exact for all its parameters.

.. math:: p(x) \propto x^{\nu - 1} \exp\left(-\tfrac12 (\delta^2/x + \lambda^2 x)\right),
          \quad x > 0

is the full conditional of a variance whose prior and likelihood pull at both ends: of the
scales of shrinkage priors, and of a precision that controls other Gamma precisions. With
:math:`\delta = 0` it is a Gamma, with :math:`\lambda = 0` an inverse Gamma, with
:math:`\nu = -1/2` an inverse Gaussian. The draw costs tens of nanoseconds, the parameters'
setup included, and at least 0.65 of the proposals are accepted whatever the parameters are.

Since :math:`1/X` has parameters :math:`-\nu, \lambda^2, \delta^2`, let :math:`p = \nu \ge 0`;
:math:`\omega = \delta\lambda`. For any :math:`a, b > 0` with :math:`ab = \omega^2/4` let
:math:`X = (2a/\lambda^2) e^t`; then t has density

.. math:: \exp\left(-a \varphi(t) - b \varphi(-t) + (p - a + b) t\right), \qquad
          \varphi(t) = e^t - 1 - t.

**A bent normal** serves almost everywhere. Let :math:`\rho = a + b`, :math:`q = (a - b)/\rho`,
:math:`k = 3/q` and :math:`z = \sqrt\rho\, k (e^{t/k} - 1)`, a power of X whose density is
close to a normal one. The Jacobian takes :math:`t/k` from the exponent, which leaves
:math:`\varepsilon = p - (a - b) - q/3` for the last term. Then

1. :math:`a \varphi(t) + b \varphi(-t) \ge z^2/2`. The difference and its slope vanish at 0; its
   second derivative over :math:`\rho` is :math:`\cosh t + q \sinh t - 2u^2 + u` with
   :math:`u = e^{qt/3}`, and since :math:`\cosh t + q \sinh t \ge e^{qt}` (Jensen) that is at
   least :math:`u (u - 1)^2 \ge 0`;
2. :math:`\varepsilon t \le \varepsilon z/\sqrt\rho` if :math:`\varepsilon \ge 0`.

Hence a proposal :math:`z \sim N(\varepsilon/\sqrt\rho, 1)` is accepted with the exponential of
the two differences. With :math:`\omega = 0` and :math:`\varepsilon = 0` this is Marsaglia and
Tsang's (2000) Gamma draw. Any :math:`a - b` that leaves :math:`\varepsilon \ge 0` is exact;
:math:`a - b = \max(p - p/(3\sqrt{p^2 + \omega^2}), 0)` leaves almost nothing of it.

**A plateau.** With :math:`p < 0.4` and :math:`\omega < 0.2` the density of
:math:`y = \log(X \lambda/\delta)`, :math:`\exp(py - \omega \cosh y)`, is close to
:math:`e^{py}` over the length :math:`2 \log(2/\omega)` and falls steeply beyond: a truncated
exponential is proposed between, exponentials of :math:`(\omega/2) e^{|y|}` outside.

**Special cases.** At :math:`|\nu| = 1/2`, :math:`2\sqrt\omega \sinh(y/2)` is normal up to the
choice of a sign (Michael, Schucany and Haas, 1976). With :math:`\omega = 0` the draw is
NumPy's Gamma. With p or :math:`\omega` above :math:`10^{32}` the standard deviation is below
the spacing of floating-point numbers and the draw is the mode.

References
----------
Marsaglia, G. and Tsang, W. W. (2000). A simple method for generating gamma variables. ACM
Transactions on Mathematical Software 26.

Michael, J. R., Schucany, W. R. and Haas, R. W. (1976). Generating random variates using
transformations with multiple roots. The American Statistician 30.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.kernels.jit import version
from pymc_nnsteps.kernels.when_numba import when_numba
from pymc_nnsteps.random import kernels
from pymc_nnsteps.random.op import float_dtype


class GeneralizedInverseGaussianRV(RandomVariable):
    """Elementwise draws with parameters nu, delta^2 and lambda^2."""

    name = "generalized_inverse_gaussian"
    signature = "(),(),()->()"
    dtype = "floatX"
    _print_name = ("GIG", "\\operatorname{GIG}")

    def rng_fn(self, rng: np.random.Generator, *params_and_size: Any) -> np.ndarray:
        """Draw by the kernel, which sees each parameter whole or, if constant, as one element."""
        *params, size = params_and_size
        shape = np.broadcast_shapes(*(p.shape for p in params)) if size is None else tuple(size)
        params = [np.asarray(param, np.float64) for param in params]
        flat = [p.reshape(1) if p.size == 1 else np.broadcast_to(p, shape).ravel() for p in params]
        out = np.empty(shape, self.dtype)
        kernels.generalized_inverse_gaussian_kernel(rng, *flat, out.reshape(-1))
        return out


gig = GeneralizedInverseGaussianRV()


@when_numba
def _register() -> None:
    from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

    @numba_core_rv_funcify.register(GeneralizedInverseGaussianRV)
    def entry(op: GeneralizedInverseGaussianRV, node: Apply) -> tuple[Any, int]:
        """One entry, over which Numba mode loops, and the key of PyTensor's disk cache."""
        return kernels.generalized_inverse_gaussian.numba, version()


def generalized_inverse_gaussian(
    rng: Variable, nu: TensorLike, delta2: TensorLike, lambda2: TensorLike
) -> tuple[Variable, TensorVariable]:
    """Draw generalised inverse Gaussians, elementwise.

    Parameters
    ----------
    rng : RandomGeneratorVariable
        The generator to draw with.
    nu : tensor_like
        The order.
    delta2, lambda2 : tensor_like
        The coefficients of -1/(2 x) and of -x/2 in the log density, not negative. ``delta2``
        may be 0 where ``nu > 0``, ``lambda2`` where ``nu < 0``.

    Returns
    -------
    next_rng : RandomGeneratorVariable
        The generator after the draw.
    draw : TensorVariable
        Draws of the broadcast shape and common dtype of the parameters; NaN where a parameter
        is not finite or the density has no finite integral.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> rng = pt.random.rng()
    >>> next_rng, draw = generalized_inverse_gaussian(rng, [-2.0, 0.0, 3.0], 1.0, [[0.5], [2.0]])
    >>> pytensor.function([rng], draw)(np.random.default_rng(0)).shape
    (2, 3)
    """
    nu, delta2, lambda2 = map(pt.as_tensor, (nu, delta2, lambda2))
    dtype = float_dtype(nu, delta2, lambda2)
    return gig(nu, delta2, lambda2, rng=rng, dtype=dtype, return_next_rng=True)
