r"""The Polya-Gamma distribution PG(n, z) for whole numbers n, exact for all z.

PG(n, z) is the sum of n independent variables of PG(1, z), and drawn as that.

It turns a logistic likelihood into a Gaussian one (Polson, Scott and Windle, 2013): if
:math:`\omega \sim PG(1, z)` then, as a function of :math:`\psi` with :math:`z = \psi` at the time
of the draw, :math:`e^{y\psi}/(1 + e^\psi)` may be replaced by
:math:`\exp((y - \tfrac12)\psi - \tfrac12 \omega\psi^2)`.

:math:`X = 4\omega` is a tilted Jacobi variable with density proportional, with
:math:`c = |z|/2`, to :math:`e^{-c^2 x/2} \sum_n (-1)^n a_n(x)`, for which there are two series,
one for each side of t = 0.64:

.. math:: a_n = \pi (n + \tfrac12) \left(\frac{2}{\pi x}\right)^{3/2} e^{-2(n + 1/2)^2/x}
          \;(x \le t), \qquad a_n = \pi (n + \tfrac12) e^{-(n + 1/2)^2 \pi^2 x/2} \;(x > t).

The first terms are the proposal: below t an inverse Gaussian of mean 1/c and shape 1, above t an
exponential of rate :math:`K = \pi^2/8 + c^2/2`, of masses

.. math:: q = e^{-c} \left(\operatorname{erfc}\frac{1 - tc}{\sqrt{2t}}
              + e^{2c} \operatorname{erfc}\frac{1 + tc}{\sqrt{2t}}\right), \qquad
          p = \frac{\pi}{2K} e^{-Kt}.

A proposal is accepted if a uniform number is below the alternating series over its first term,
whose partial sums bound it in turn (Devroye, 1986). As

.. math:: a_n/a_0 = (2n + 1) e^{-2n(n + 1)/x} \;(x \le t), \qquad
          (2n + 1) e^{-n(n + 1)\pi^2 x/2} \;(x > t)

the second term is at most 0.0058: hardly a proposal is rejected, and no power or exponential
of a small x ever underflows. Masses are compared times :math:`e^c`, so that nothing does for
large c either.

References
----------
Devroye, L. (1986). *Non-Uniform Random Variate Generation*, chapter IV.5.

Polson, N. G., Scott, J. G. and Windle, J. (2013). Bayesian inference for logistic models using
Polya-Gamma latent variables. Journal of the American Statistical Association 108.
"""

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.random import kernels
from pymc_nnsteps.random.op import KernelRV, draw_elementwise, float_dtype


class PolyaGammaRV(KernelRV):
    """Draws over a flat array; used through `polya_gamma`."""

    name = "polya_gamma"
    signature = "(n)->(n)"
    kernel = staticmethod(kernels.polya_gamma_kernel)


class PolyaGammaSumRV(KernelRV):
    """Draws of PG(n, z) over a flat array; used through `polya_gamma`."""

    name = "polya_gamma_sum"
    signature = "(n),(m)->(n)"
    kernel = staticmethod(kernels.polya_gamma_sum_kernel)


_polya_gamma = PolyaGammaRV()
_polya_gamma_sum = PolyaGammaSumRV()


def polya_gamma(
    rng: Variable, z: TensorLike, n: TensorLike | None = None
) -> tuple[Variable, TensorVariable]:
    """Draw Polya-Gamma variables PG(n, z), elementwise.

    Parameters
    ----------
    rng : RandomGeneratorVariable
        The generator to draw with.
    z : tensor_like
        The tilt; its sign is of no matter.
    n : tensor_like of int, optional
        Whole numbers, zero included; one if not given. The time of a draw grows with n.

    Returns
    -------
    next_rng : RandomGeneratorVariable
        The generator after the draw.
    draw : TensorVariable
        Draws of the shape and floating-point type of z, with mean ``n tanh(z/2) / (2 z)``;
        NaN where z is not finite or n is no whole number.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> rng = pt.random.rng()
    >>> next_rng, draw = polya_gamma(rng, np.full(10_000, 3.0))
    >>> omega = pytensor.function([rng], draw)(np.random.default_rng(0))
    >>> bool(abs(omega.mean() - np.tanh(1.5) / 6) < 0.005)
    True
    """
    if n is None:
        return draw_elementwise(_polya_gamma, rng, (z,))
    z = pt.as_tensor(z)
    return draw_elementwise(_polya_gamma_sum, rng, (z, pt.as_tensor(n).astype(float_dtype(z))))
