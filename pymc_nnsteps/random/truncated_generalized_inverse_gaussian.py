r"""The generalised inverse Gaussian between two bounds, exact for all parameters.

.. math:: p(x) \propto x^{\nu - 1} \exp\left(-\tfrac12 (\delta^2/x + \lambda^2 x)\right),
          \quad l < x < u

is the full conditional of a variance or of a standard deviation's square with a uniform prior. Its
logarithm t has the log-concave density :math:`\exp(\nu t - \tfrac12 \delta^2 e^{-t} - \tfrac12
\lambda^2 e^t)`, which lies below its value at the mode and below its tangents (Devroye, 1986):
proposals are uniform about the mode and exponential beyond. Where the mode is a bound the tangent
begins there, so that a steep density costs no more than a flat one.

References
----------
Devroye, L. (1986). *Non-Uniform Random Variate Generation*, chapter VII.2.
"""

from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.random import kernels
from pymc_nnsteps.random.op import KernelRV, draw_elementwise


class TruncatedGeneralizedInverseGaussianRV(KernelRV):
    """Draws over raveled parameters; used through `truncated_generalized_inverse_gaussian`."""

    name = "truncated_generalized_inverse_gaussian"
    signature = "(n),(d),(l),(a),(b)->(n)"
    kernel = staticmethod(kernels.truncated_generalized_inverse_gaussian_kernel)


_truncated = TruncatedGeneralizedInverseGaussianRV()


def truncated_generalized_inverse_gaussian(
    rng: Variable,
    nu: TensorLike,
    delta2: TensorLike,
    lambda2: TensorLike,
    lower: TensorLike,
    upper: TensorLike,
) -> tuple[Variable, TensorVariable]:
    """Draw generalised inverse Gaussians between bounds, elementwise.

    Parameters
    ----------
    rng : RandomGeneratorVariable
        The generator to draw with.
    nu : tensor_like
        The order.
    delta2, lambda2 : tensor_like
        The coefficients of -1/(2 x) and of -x/2 in the log density, not negative.
    lower, upper : tensor_like
        Bounds, ``0 <= lower < upper``; ``upper`` may be infinite.

    Returns
    -------
    next_rng : RandomGeneratorVariable
        The generator after the draw.
    draw : TensorVariable
        Draws of the broadcast shape and common dtype of the parameters, within the bounds; NaN
        where the density has no finite integral.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> rng = pt.random.rng()
    >>> nu = np.full(10_000, 1.0)
    >>> next_rng, draw = truncated_generalized_inverse_gaussian(rng, nu, 0.0, 0.0, 2.0, 3.0)
    >>> round(float(pytensor.function([rng], draw)(np.random.default_rng(0)).mean()), 2)
    2.5
    """
    return draw_elementwise(_truncated, rng, (nu, delta2, lambda2, lower, upper))
