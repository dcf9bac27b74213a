r"""Latent utilities behind a class label: the multinomial probit.

Row by row, utilities :math:`Z_a \sim N(\mu_a, \sigma_a^2)` are given to have their largest
element at the label y (Piccioli, Troiani and Zdeborova, arXiv:2306.02729, eqs. E23-E26). One
Gibbs scan of a row draws

.. math:: Z_y \sim N(\mu_y, \sigma_y^2) \text{ given } Z_y > \max_{a \ne y} Z_a, \qquad
          Z_a \sim N(\mu_a, \sigma_a^2) \text{ given } Z_a < Z_y \text{ for all } a \ne y,

the others all at once, since they are independent given :math:`Z_y`.
"""

import math

import numpy as np
import pytensor.tensor as pt
from numpy.random import Generator
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.type import discrete_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.kernels.jit import jit
from pymc_nnsteps.random.op import Array, KernelRV, as_float, float_dtype, step
from pymc_nnsteps.random.truncated_normal import draw_truncated_normal


@jit
def argmax_utilities_kernel(
    rng: Generator, mu: Array, sigma: Array, labels: Array, current: Array, out: Array
) -> Array:
    """Rows of normals whose largest element stands at the row's label, never tied."""
    rows, classes = out.shape
    if labels.size != rows or current.shape != out.shape:
        raise ValueError("mu, labels and current do not have the same number of rows or classes")
    i_sigma, a_sigma = step(sigma.shape[0], rows), step(sigma.shape[1], classes)
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
            np.float64(sigma[i * i_sigma, y * a_sigma]),
            np.float64(np.nextafter(runner_up, infinity)),
            math.inf,
        )
        upper = np.float64(np.nextafter(out[i, y], -infinity))
        for a in range(classes):
            if a != y:
                out[i, a] = draw_truncated_normal(
                    rng,
                    np.float64(mu[i, a]),
                    np.float64(sigma[i * i_sigma, a * a_sigma]),
                    -math.inf,
                    upper,
                )
    return out


class ArgmaxUtilitiesRV(KernelRV):
    """One scan of all rows; used through `argmax_utilities`."""

    name = "argmax_utilities"
    signature = "(n,k),(s,t),(n),(n,k)->(n,k)"
    kernel = staticmethod(argmax_utilities_kernel)


_argmax_utilities = ArgmaxUtilitiesRV()


def argmax_utilities(
    rng: Variable, mu: TensorLike, sigma: TensorLike, labels: TensorLike, current: TensorLike
) -> tuple[Variable, TensorVariable]:
    """Draw utilities whose argmax is the label: one Gibbs scan of each row.

    Means and utilities before the scan (those of the labels are not read) are (n, K), standard
    deviations (), (K,) or (n, K), labels (n,) in ``0 .. K - 1``. Afterwards the utility of the
    label is greater than all others of its row, without ties.
    """
    mu, sigma, current = map(as_float, (mu, sigma, current))
    labels = pt.as_tensor(labels)
    if labels.type.dtype not in discrete_dtypes:
        raise TypeError(f"labels must be integers, not {labels.type.dtype}")
    return _argmax_utilities(
        mu,
        pt.atleast_2d(sigma),
        pt.cast(labels, "int64"),
        current,
        rng=rng,
        dtype=float_dtype(mu, sigma, current),
        return_next_rng=True,
    )
