r"""Laws of inputs of which some are missing.

Columns without gaps are given. Each other column j is Normal about a linear function of these and
of the columns with gaps before it, of which fewer entries are missing:

.. math:: x_j \mid x_{<j} \sim N(w_{j0} + x_{<j} w_j,\ \sigma_j^2),

which is a Gaussian law of all columns with gaps, with any covariance, in the parametrisation of
Pourahmadi (1999, eq. 2-3). Missing entries are variables of the model: the targets inform them too.

References
----------
Pourahmadi, *Joint Mean-Covariance Models with Applications to Longitudinal Data*, Biometrika 86
(1999). Erler et al., *Dealing with Missing Covariates in Epidemiologic Studies*, Statistics in
Medicine 35 (2016), on laws of covariates one after another.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.initial_values import begin_at

__all__ = ["completed"]


def completed(
    x: TensorVariable, values: NDArray[np.floating], columns: Sequence[object]
) -> TensorVariable:
    """Add the laws of columns with gaps to the model, and put their missing entries into ``x``.

    Both ``x`` and ``values`` are (n_obs, n_features); ``values`` are NaN where entries are missing,
    which begin at what ``x`` holds there. Variables are called by the labels of the columns.
    """
    missing = np.isnan(values)
    own_rows = CheckAndRaise(
        ValueError,
        "pm.set_data has changed the number of rows, but which inputs are missing is a part of "
        "the model: build it anew.",
    )
    given: Any = own_rows(x, pt.eq(x.shape[0], len(values)))
    order = np.argsort(missing.sum(axis=0), kind="stable")
    for position, j in enumerate(order):
        if not missing[:, j].any():
            continue
        before, column = np.sort(order[:position]), str(columns[j]).replace("/", "_")
        weights = pm.Normal(f"{column}_weights", 0, 1, shape=1 + position)
        mean = weights[0] + x[:, before] @ weights[1:]
        sigma = pm.HalfNormal(f"{column}_sigma", 1)
        [gaps], [seen] = np.nonzero(missing[:, j]), np.nonzero(~missing[:, j])
        pm.Normal(f"{column}_observed", mean[seen], sigma, observed=values[seen, j])
        entries = pm.Normal(f"{column}_missing", mean[gaps], sigma)
        x = pt.set_subtensor(x[gaps, j], begin_at(entries, given[gaps, j]))
    return x
