r"""Effects whose prior fixes their sum at zero: ``pm.ZeroSumNormal``.

.. math:: a \sim N\!\left(0, s^2 (I - \tfrac1n 1 1^T)\right),

the law of n independent :math:`N(0, s^2)` given that their sum is zero. In a matrix, all sums along
its last axis are zero, or those along several last axes.
"""

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.transforms import ZeroSumTransform
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import is_a
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.laws.conditional import precision_of, require_free, require_support


def is_zero_sum(rv: TensorVariable) -> bool:
    """Whether a variable is ``pm.ZeroSumNormal``."""
    return is_a(rv, ZeroSumNormalRV)


def zero_sum_axes(rv: TensorVariable) -> tuple[int, ...]:
    """Axes of a ``pm.ZeroSumNormal`` along each of which its entries sum to zero."""
    return tuple(range(rv.ndim - rv.owner.op.ndim_supp, rv.ndim))


def zero_sum_prior(model: pm.Model, rv: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Mean and precision of the entries of ``pm.ZeroSumNormal`` before their sums are given."""
    require_free(model, rv)
    require_support(model, rv, ZeroSumTransform)
    sigma, _ = parameters(rv)
    return pt.zeros((), dtype=rv.dtype), precision_of(rv, sigma)
