"""The score: gradient of the log density, whose posterior mean is zero."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, override

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import positive_number
from pymc_nnsteps.diagnostics.draws import of_draws, opened, require_finite
from pymc_nnsteps.diagnostics.table import Tabulated, tagged
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.shapes import refuse_random_data
from pymc_nnsteps.kernels.threads import one_thread
from pymc_nnsteps.prediction.posterior import SAMPLES
from pymc_nnsteps.steps.target import dependent_factors, log_density
from pymc_nnsteps.steps.variables import Vars, as_tensor, chosen


@dataclass(frozen=True, repr=False)
class Score(Tabulated):
    """Scores of several variables, printed as a table.

    Attributes
    ----------
    draws : Dataset, dims (chain, draw)
        For each variable the mean of its score over its entries.
    dataset : Dataset, dims (statistic,)
        For each variable "mean" over all draws, its Monte Carlo error "mcse", and their ratio "z".
    """

    draws: xr.Dataset
    dataset: xr.Dataset

    formats: ClassVar[Mapping[str, str]] = {"mean": "{:.3g}", "mcse": "{:.2g}", "z": "{:.1f}"}

    @property
    @override
    def table(self) -> pd.DataFrame:
        """One row per variable."""
        columns = self.dataset["statistic"].values
        rows = {name: values.values for name, values in self.dataset.items()}
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


@one_thread
def score_statistic(
    idata: Any, vars: Vars = None, *, model: pm.Model | None = None, scale: float = 1.0
) -> Score:
    r"""Test whether draws are from the posterior: the mean of the score must be zero.

    For a variable with values :math:`v_1, \dots, v_k` the statistic of a draw is

    .. math:: U = \frac{1}{k} \sum_i \frac{\partial \log p(v, \text{others}, \text{data})}
        {\partial v_i},

    whose mean under the posterior is zero. A chain that has not converged, or a sampler of another
    distribution, usually has another mean. But the mean is also nearly zero for draws in only one
    of several modes, and for draws about the mean of a Gaussian that scatter too much or too
    little.

    Where the model transforms a variable, :math:`v` is the transformed, unbounded value that NUTS
    samples, and :math:`p` its density, Jacobian included. On the variable's own scale the mean
    would not be zero wherever the density does not vanish at a bound: for a half-normal it is
    :math:`-p(0)`. For the same reason a bounded variable whose transform was taken away, and
    one in which the density jumps (utilities under a threshold), need not have mean zero.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample``, or its posterior.
    vars : variable, name, or list of these, optional
        Free variables; all continuous ones if not given. Those that their score depends on must be
        stored as well: parents, children and what else these depend on.
    model : pm.Model, optional
        The model that was sampled; that of the context if not given.
    scale : float
        Factor of the score. The source multiplies it by the noise variance of an
        intermediate-noise network.

    Returns
    -------
    Score
        Prints as a table with one row per variable: the mean, its Monte Carlo error (ArviZ's) and
        their ratio ``z``, which is about standard normal for a chain in equilibrium with hundreds
        of effective draws. ``.draws`` has the statistic of each draw, ``.dataset`` the
        numbers of the table.

    Raises
    ------
    ValueError
        If a variable is not a free and continuous one, if the trace lacks one that is needed or
        has fewer than four draws, if a score is not finite, or if the log density is random.

    References
    ----------
    Piccioli, Troiani and Zdeborova, *Gibbs Sampling the Posterior of Neural Networks*
    (arXiv 2306.02729), Appendix A.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1) as model:
    ...     idata = pm.sample(
    ...         50, tune=20, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
    ...         compute_convergence_checks=False,
    ...     )
    >>> score = nns.lab.score_statistic(idata, "W1", model=model, scale=0.1)
    >>> score.draws["W1"].sizes
    Frozen({'chain': 2, 'draw': 50})
    >>> bool(abs(score.table.loc["W1", "z"]) < 4)
    True
    """
    from arviz_stats import sampling_diagnostics as arviz

    model, posterior = opened(idata, model, n_chains=1)
    means = score_means(model, vars, scale)
    statistics = of_draws(model, list(means.values())).evaluate(model, posterior)
    draws = xr.Dataset(
        {name: (SAMPLES, u) for name, u in zip(means, statistics, strict=True)},
        coords={dim: posterior[dim] for dim in SAMPLES},
    )
    require_finite(draws)
    mean, error = draws.mean(SAMPLES), arviz.mcse(draws)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = mean / error
    return Score(draws, tagged({"mean": mean, "mcse": error, "z": z}))


def score_means(model: pm.Model, vars: Vars, scale: float) -> dict[str, TensorVariable]:
    """Score of each variable, its mean over entries times ``scale``, given value variables."""
    scale = positive_number("scale", scale)
    discrete = model.discrete_value_vars
    if vars is None:
        rvs = [rv for rv in model.free_RVs if model.rvs_to_values[rv] not in discrete]
    else:
        rvs = chosen(model, vars)
    values = [model.rvs_to_values[rv] for rv in rvs]
    for rv, value in zip(rvs, values, strict=True):
        if value in discrete:
            raise ValueError(
                f"vars must be continuous; {describe(rv)} is discrete and has no score."
            )
    refuse_random_data(model)
    log_p = log_density(model, [*rvs, *dependent_factors(model, rvs)])
    gradients: Any = pt.grad(log_p, values, disconnected_inputs="ignore")
    return {
        rv.name: scale * pt.mean(as_tensor(gradient))
        for rv, gradient in zip(rvs, gradients, strict=True)
    }
