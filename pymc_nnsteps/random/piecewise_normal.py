r"""A normal seen through a noisy piecewise-linear activation.

.. math:: p(z) \propto N(z \mid \mu, \sigma^2)\, N(x \mid a(z), \tau^2), \qquad
          a(z) = s_k z + c_k \text{ on piece } k = (t_k, t_{k+1}),\ t_0 = -\infty

is the full conditional of a pre-activation (Piccioli, Troiani and Zdeborova,
arXiv:2306.02729, eq. 10, with :math:`\mu = F`, :math:`\sigma^2 = \Delta_Z`,
:math:`\tau^2 = \Delta_X`) for ReLU, leaky ReLU, absolute value, sign, hard tanh and any
other piecewise-linear :math:`a`, jumps included. On piece k it is a truncated
:math:`N(m_k, v_k)` with

.. math:: m_k = \frac{\tau^2 \mu + s_k \sigma^2 (x - c_k)}{\tau^2 + s_k^2 \sigma^2}, \qquad
          v_k = \frac{\sigma^2 \tau^2}{\tau^2 + s_k^2 \sigma^2}.

The draw rejects from a mixture with one component per piece, the proposal of its truncated
normal (`pymc_nnsteps.random.kernels`): choose a piece by the mass of its proposal, propose
there, and accept or begin again with the choice of a piece. At least 0.49 of the proposals
are accepted wherever :math:`\mu` and x are.

What the masses need is the log density at each piece's mode. It is built up from knot to
knot: within a piece it changes by a difference of squared distances from :math:`m_k`, at a
knot by the jump of :math:`a`. Large numbers that all pieces share never enter, so that the
odds between neighbours are as accurate when x is a million noise scales from :math:`a(z)` as
when it is one. Pieces whose density at the mode is :math:`e^{-100}` of the largest are left
out.
"""

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.random import kernels
from pymc_nnsteps.random.op import KernelRV, draw_elementwise


class PiecewiseNormalRV(KernelRV):
    """Draws over raveled parameters; used through `piecewise_normal`."""

    name = "piecewise_normal"
    signature = "(n),(s),(x),(t),(k),(p),(p)->(n)"
    kernel = staticmethod(kernels.piecewise_normal_kernel)


_piecewise_normal = PiecewiseNormalRV()


def piecewise_normal(
    rng: Variable,
    mu: TensorLike,
    sigma: TensorLike,
    x: TensorLike,
    tau: TensorLike,
    knots: TensorLike,
    slopes: TensorLike,
    intercepts: TensorLike,
    *,
    size: Sequence[Any] | None = None,
) -> tuple[Variable, TensorVariable]:
    """Draw z given ``z ~ N(mu, sigma^2)`` and ``x ~ N(a(z), tau^2)``, elementwise.

    Parameters
    ----------
    rng : RandomGeneratorVariable
        The generator to draw with.
    mu, sigma : tensor_like
        Mean and standard deviation of z before x is seen.
    x, tau : tensor_like
        What is seen of ``a(z)``, and the standard deviation of its noise: infinite where nothing
        is seen.
    knots : tensor_like, shape (K,)
        Where the pieces of the activation meet, increasing; K may be zero.
    slopes, intercepts : tensor_like, shape (K + 1,)
        The activation is ``slopes[k] * z + intercepts[k]`` between ``knots[k - 1]`` and
        ``knots[k]``. The same activation serves all elements.
    size : sequence of int or scalar variables, optional
        The broadcast shape of mu, sigma, x and tau, where the caller knows it.

    Returns
    -------
    next_rng : RandomGeneratorVariable
        The generator after the draw.
    draw : TensorVariable
        Draws of the broadcast shape and common dtype of mu, sigma, x and tau; NaN where one
        of these is NaN.
    """
    shared = (pt.cast(pt.as_tensor(vector), "float64") for vector in (knots, slopes, intercepts))
    return draw_elementwise(_piecewise_normal, rng, (mu, sigma, x, tau), *shared, size=size)
