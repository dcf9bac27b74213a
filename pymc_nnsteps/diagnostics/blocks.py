"""R-hat over time: how far chains agree within each stretch of their draws."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_nnsteps.arguments import positive_integer, require_choice
from pymc_nnsteps.diagnostics.draws import FEWEST_DRAWS, opened, require_finite
from pymc_nnsteps.prediction.new_inputs import function_values

METHODS = ("rank", "split", "folded", "z_scale", "identity")
QUANTILES = (0.25, 0.5, 0.75, 0.95)


def rhat_over_time(
    idata: Any,
    X: ArrayLike | pd.DataFrame | dict[Any, Any],
    *,
    block: int = 50,
    method: str = "identity",
    model: pm.Model | None = None,
    inputs: str | None = None,
    output: str | None = None,
) -> xr.Dataset:
    """R-hat of a network's function values in successive blocks of draws.

    Chains from different starts, one of them an exact draw from the posterior if there is one,
    have forgotten these once R-hat falls no further. It stays above one where a block is not
    much longer than the time over which draws are correlated.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample`` with several chains, or its posterior.
    X : array_like or table, shape (n_obs, n_features), or dict
        Inputs at which functions are compared, as for :func:`~pymc_nnsteps.predict`; best those
        that no chain has been fitted to.
    block : int
        Draws per block, four or more. Draws after the last full block are left out.
    method : str
        Kind of R-hat, as for ``arviz.rhat``: "identity" is the classical one of the source,
        "rank" that of :func:`~pymc_nnsteps.diagnose`.
    model, inputs, output
        As for :func:`~pymc_nnsteps.predict`.

    Returns
    -------
    Dataset
        ``rhat`` with dims (block, obs, output), its ``mean`` over points (block), and its
        ``quantiles`` over points (quantile, block) at 25, 50, 75 and 95 %, each of them R-hat of
        some point: the next higher, not an interpolation. The coordinate
        ``block`` is the label of the block's last draw. R-hat is NaN at points where no draw of a
        block differs from another, and these are left out of mean and quantiles.

    Raises
    ------
    ValueError
        If there is one chain, if there are fewer draws than a block has, or as for
        :func:`~pymc_nnsteps.predict`.

    References
    ----------
    Piccioli, Troiani and Zdeborova, *Gibbs Sampling the Posterior of Neural Networks*
    (arXiv 2306.02729), Appendix A, eqs. A1-A5.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1) as model:
    ...     idata = pm.sample(
    ...         100, tune=0, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
    ...         compute_convergence_checks=False, var_names=["W1", "b1", "W2", "b2"],
    ...     )
    >>> over_time = nns.lab.rhat_over_time(idata, X[:5], block=25, model=model)
    >>> over_time["quantiles"].sizes
    Frozen({'quantile': 4, 'block': 4})
    >>> over_time["block"].values
    array([24, 49, 74, 99])
    """
    from arviz_stats import sampling_diagnostics as arviz

    block = positive_integer("block", block)
    require_choice("method", method, METHODS)
    if block < FEWEST_DRAWS:
        raise ValueError(f"block must be at least {FEWEST_DRAWS} draws; got {block}.")
    model, posterior = opened(idata, model, n_chains=2)
    n_blocks = posterior.sizes["draw"] // block
    if n_blocks == 0:
        raise ValueError(
            f"idata must have at least block={block} draws in each chain; it has "
            f"{posterior.sizes['draw']}."
        )
    f = function_values("X", posterior, X, model, inputs, output=output)
    require_finite(f.to_dataset())
    f = f.isel(draw=slice(n_blocks * block))
    ends = f["draw"].values[block - 1 :: block]
    blocks = f.drop_vars("draw").coarsen(draw=block).construct(draw=("block", "draw"))
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = arviz.rhat(blocks.to_dataset(name="rhat"), method=method)["rhat"]
    points = ("obs", "output")
    return xr.Dataset(
        {
            "rhat": rhat,
            "mean": rhat.mean(points),
            "quantiles": _quantiles(rhat, points),
        },
        coords={"block": ends},
    )


def _quantiles(values: xr.DataArray, dims: tuple[str, ...]) -> xr.DataArray:
    """Quantiles of what may be infinite, and is left out where it is NaN."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        return values.quantile(QUANTILES, dims, method="higher")
