r"""The truncated normal, exact at any distance from its mean.

.. math:: z \sim N(\mu, \sigma^2) \quad\text{given}\quad l \le z \le u

Latent utilities of a probit model are such variables, millions of them per run, and in a
network with little noise the bounds lie thousands of standard deviations from the mean,
where inverting the distribution function breaks down. Here nothing is inverted: see
`pymc_nnsteps.random.kernels`.
"""

from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.random import kernels
from pymc_nnsteps.random.op import KernelRV, draw_elementwise


class TruncatedNormalRV(KernelRV):
    """Draws over raveled parameters; used through `truncated_normal`."""

    name = "truncated_normal"
    signature = "(n),(s),(l),(u)->(n)"
    kernel = staticmethod(kernels.truncated_normal_kernel)


_truncated_normal = TruncatedNormalRV()


def truncated_normal(
    rng: Variable, mu: TensorLike, sigma: TensorLike, lower: TensorLike, upper: TensorLike
) -> tuple[Variable, TensorVariable]:
    """Draw normals restricted to intervals, elementwise.

    Parameters
    ----------
    rng : RandomGeneratorVariable
        The generator to draw with.
    mu, sigma : tensor_like
        Mean and standard deviation of the normal before truncation.
    lower, upper : tensor_like
        Bounds; either may be infinite. Where they are equal the draw is the bound.

    Returns
    -------
    next_rng : RandomGeneratorVariable
        The generator after the draw.
    draw : TensorVariable
        Draws of the broadcast shape and common dtype of the parameters, never outside
        ``[lower, upper]``; NaN where ``lower > upper``, ``sigma <= 0`` or a parameter is NaN.
    """
    return draw_elementwise(_truncated_normal, rng, (mu, sigma, lower, upper))
