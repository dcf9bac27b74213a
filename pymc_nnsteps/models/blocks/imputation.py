r"""Inputs of which some are missing, as variables with a law.

Columns without gaps are given. Each other column j is Normal about a linear function of these and
of the columns with gaps before it, of which fewer entries are missing:

.. math:: x_j \mid x_{<j} \sim N(w_{j0} + x_{<j} w_j,\ \sigma_j^2),

which is a Gaussian law of all columns with gaps, with any covariance, in the parametrisation of
Pourahmadi (1999). Missing entries are variables of the model, so the targets tell of them too.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.search import model_or_context
from pymc_nnsteps.models.parts import data
from pymc_nnsteps.models.parts.block import BEGIN, require_name
from pymc_nnsteps.models.parts.context import Dim, add_dims, check_dims, check_names, rehearsed

__all__ = ["completed", "imputed"]


def imputed(X: ArrayLike | pd.DataFrame, *, name: str = "x") -> TensorVariable:
    r"""Add inputs with missing entries to the model of the context, as variables with a law.

    Parameters
    ----------
    X : array_like or DataFrame, shape (n_obs, n_features)
        Standardised inputs, NaN where they are missing.
    name : str
        Names of variables start with it.

    Returns
    -------
    TensorVariable, shape (n_obs, n_features)
        The inputs with their missing entries, which may enter any network. The model has a data
        container ``"x::inputs"`` (zero where entries are missing), and for each column with
        gaps, called by its name or number: ``"x::age_weights"`` (the intercept, then the columns
        without gaps and those with fewer gaps), ``"x::age_sigma"``, observed
        ``"x::age_observed"`` and free ``"x::age_missing"``. Weights and intercepts are N(0, 1),
        standard deviations half-normal.

    Raises
    ------
    ValueError
        If ``X`` is no table of numbers, a column is missing as a whole, or a name is taken.

    Notes
    -----
    Missing at random is assumed: whether an entry is missing depends on what is observed only.
    :func:`~pymc_nnsteps.predict` takes new rows with NaN in the same columns, and draws them from
    the same law given the rest of their row.

    References
    ----------
    Pourahmadi, *Joint Mean-Covariance Models with Applications to Longitudinal Data*, Biometrika
    86 (1999), eq. 2-3. Erler et al., *Dealing with Missing Covariates in Epidemiologic Studies*,
    Statistics in Medicine 35 (2016), on laws of covariates one after another.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> y = np.abs(X[:, 0])
    >>> X[:5, 0] = np.nan
    >>> with pm.Model() as model:
    ...     f = nns.blocks.intermediate_noise(nns.blocks.imputed(X), hidden=(3,), noise=0.1)
    ...     _ = pm.Normal("y", f, 0.1, observed=y)
    >>> [variable.name for variable in model.free_RVs[:3]]
    ['x::0_weights', 'x::0_sigma', 'x::0_missing']
    """
    model = model_or_context(None, BEGIN)
    require_name(name)
    inputs = data.inputs(X, gaps=True)
    dims = {f"{name}::feature": Dim(inputs.values.shape[1], inputs.features)}

    def build() -> TensorVariable:
        return completed(container(inputs, (None, f"{name}::feature")), inputs)

    names = [f"{name}::{each}" for each in rehearsed(build, dims).named_vars]
    check_names(model, [name, *names], dims, 'give it a name of its own, such as name="z"')
    check_dims(model, dims)
    add_dims(model, dims)
    with pm.Model(name=name):
        return build()


def container(inputs: data.Inputs, dims: Sequence[str | None]) -> TensorVariable:
    """Add the data container ``"inputs"`` to the model, zero where entries are missing."""
    return pm.Data("inputs", np.nan_to_num(inputs.values), dims=dims)


def completed(x: TensorVariable, inputs: data.Inputs) -> TensorVariable:
    """Add the laws of columns with gaps to the model, and put their missing entries into ``x``.

    Parameters
    ----------
    x : TensorVariable, shape (n_obs, n_features)
        The inputs, with any number where they are missing.
    """
    missing = np.isnan(inputs.values)
    columns = range(len(missing.T)) if inputs.features is None else inputs.features
    order = np.argsort(missing.sum(axis=0), kind="stable")
    for position, j in enumerate(order):
        if not missing[:, j].any():
            continue
        column, before = columns[j], np.sort(order[:position])
        weights = pm.Normal(f"{column}_weights", 0, 1, shape=1 + position)
        mean = weights[0] + x[:, before] @ weights[1:]
        sigma = pm.HalfNormal(f"{column}_sigma", 1)
        [gaps], [seen] = np.nonzero(missing[:, j]), np.nonzero(~missing[:, j])
        pm.Normal(f"{column}_observed", mean[seen], sigma, observed=inputs.values[seen, j])
        x = pt.set_subtensor(x[gaps, j], pm.Normal(f"{column}_missing", mean[gaps], sigma))
    return x
