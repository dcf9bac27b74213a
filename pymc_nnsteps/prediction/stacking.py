r"""Weights of chains that disagree, by how each predicts rows that it has not seen.

With :math:`p_{ic}` the leave-one-out density of row i by chain c, the weights w maximise

.. math:: \frac{1}{n} \sum_i \log \sum_c w_c p_{ic}, \qquad w_c \ge 0, \quad \sum_c w_c = 1,

which is concave. Each step :math:`w_c \leftarrow w_c g_c`, with
:math:`g_c = \frac{1}{n} \sum_i p_{ic} / \sum_d w_d p_{id}`, is one of the EM algorithm, and
:math:`\max_c g_c - 1` is the most that any other weights could gain.
"""

import warnings
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

GAIN = 1e-8
"""What other weights may gain in the mean log density of a row."""

FEWEST = 25
"""Draws of a chain whose importance weights have a tail to be smoothed."""

LONGEST = 20_000
"""Steps after which the weights are taken as they are."""


def stacking_weights(idata: Any) -> xr.DataArray:
    """Weights of chains with which their mixture predicts rows that it has not seen best.

    Chains that stay in different modes do not visit these by their posterior mass. In the mixture
    of all chains each has the same weight. These weights leave out a chain that predicts worse than
    others.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`~pymc_nnsteps.log_likelihood`, with two chains or more.

    Returns
    -------
    DataArray, dims (chain,)
        Weights that sum to one. ``predicted.weighted(weights)`` of xarray has the weighted
        ``mean``, ``std`` and ``quantile`` over chains and draws. The attribute ``unreliable`` is
        the largest share of rows, over chains, whose Pareto k is too large for their leave-one-out
        density.

    Raises
    ------
    ValueError
        If ``idata`` has no log likelihood of one observed variable, one chain only, or few draws.

    References
    ----------
    Yao, Vehtari and Gelman, *Stacking for Non-mixing Bayesian Computations*, Journal of Machine
    Learning Research 23 (2022).

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> model = nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1)
    >>> with model:
    ...     idata = pm.sample(
    ...         50, tune=20, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
    ...         var_names=["W1", "b1", "W2", "b2"],
    ...     )
    >>> weights = nns.stacking_weights(nns.log_likelihood(idata, model))
    >>> responses = nns.predict(idata, X[:5], model=model, kind="response", random_seed=2)
    >>> mixture = responses.squeeze("output").weighted(weights)
    >>> mixture.quantile([0.05, 0.95], dim=("chain", "draw")).sizes
    Frozen({'quantile': 2, 'obs': 5})
    """
    rows = idata.children.get("log_likelihood") if isinstance(idata, xr.DataTree) else None
    if rows is None or len(rows.data_vars) != 1:
        raise ValueError(
            "idata must have the log likelihood of one observed variable; pass the result of "
            "nns.log_likelihood."
        )
    n_chains, n_draws = rows.sizes["chain"], rows.sizes["draw"]
    if n_chains < 2 or n_draws < FEWEST:
        raise ValueError(
            f"idata must have two chains or more, of at least {FEWEST} draws each, to be weighted; "
            f"it has {n_chains} of {n_draws}."
        )
    chains = [_left_out(rows.to_dataset().isel(chain=[chain])) for chain in range(n_chains)]
    weights = maximal_weights(np.stack([chain.elpd_i.values.ravel() for chain in chains], axis=1))
    unreliable = max(float((chain.pareto_k > chain.good_k).mean()) for chain in chains)
    coords = {"chain": rows["chain"].values}
    return xr.DataArray(weights, coords, ["chain"], "weights", {"unreliable": unreliable})


def maximal_weights(log_densities: NDArray[np.floating]) -> NDArray[np.floating]:
    """Weights of the columns that maximise the sum of log mixture densities (n_obs, n_chains)."""
    densities = np.exp(log_densities - log_densities.max(axis=1, keepdims=True))
    weights = np.full(densities.shape[1], 1 / densities.shape[1])
    for _ in range(LONGEST):
        ratios = densities / (densities @ weights)[:, None]
        growth = ratios.mean(axis=0)
        if growth.max() - 1 <= GAIN:
            break
        weights = weights * growth
    return weights / weights.sum()


def _left_out(chain: xr.Dataset) -> Any:
    """Leave-one-out densities of the rows by one chain."""
    from arviz_stats.loo import loo

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto")
        tree = xr.DataTree.from_dict({"log_likelihood": chain})
        return loo(tree, pointwise=True, reff=1.0)
