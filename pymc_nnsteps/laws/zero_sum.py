r"""Effects whose prior fixes their sum at zero: ``pm.ZeroSumNormal``.

.. math:: a \sim N\!\left(0, s^2 (I - \tfrac1n 1 1^T)\right),

the law of n independent :math:`N(0, s^2)` given that their sum is zero.
"""

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.transforms import ZeroSumTransform
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import is_a
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.laws.conditional import precision_of, require_free, require_support


def is_zero_sum(rv: TensorVariable) -> bool:
    """Whether a variable is ``pm.ZeroSumNormal``."""
    return is_a(rv, ZeroSumNormalRV)


def zero_sum_prior(model: pm.Model, rv: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Mean and precision of the entries of a ``pm.ZeroSumNormal`` vector before their sum is given.

    Raises
    ------
    NotConjugate
        If the variable is no vector, has another transform, or a potential depends on it.
    """
    if rv.ndim != 1:
        raise NotConjugate(f"{describe(rv)} is ZeroSumNormal and no vector")
    require_free(model, rv)
    require_support(model, rv, ZeroSumTransform)
    sigma, _ = parameters(rv)
    return pt.zeros((), dtype=rv.dtype), precision_of(rv, sigma)
