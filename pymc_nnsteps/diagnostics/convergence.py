"""R-hat and effective sample size of what a network computes: a verdict, and R-hat over time."""

import html
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, override

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pytensor.graph.traversal import graph_inputs

from pymc_nnsteps.arguments import positive_integer, require_choice
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.diagnostics.draws import (
    FEWEST_DRAWS,
    Tabulated,
    at_draws,
    opened,
    require_finite,
    tagged,
)
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.network.exchangeable import exchangeable_units
from pymc_nnsteps.prediction.gaps import without_latents
from pymc_nnsteps.prediction.new_inputs import function_values
from pymc_nnsteps.prediction.posterior import SAMPLES

WANTED = 100
"""Effective draws wanted of each chain."""

LARGEST_RHAT = 1.01
"""Largest R-hat of chains that have converged."""

APART = 2.0
"""Distance between chains in different modes, of means, in standard deviations of one chain."""

MANY = 50
"""Multiple of the draws beyond which no number is given."""

SHOWN = 3
"""Quantities that a verdict names."""


@dataclass(frozen=True, repr=False)
class Diagnosis(Tabulated):
    """R-hat and effective sample size of several quantities, printed as a table with a verdict.

    Attributes
    ----------
    dataset : Dataset
        For each quantity, with its own dims, and the dim ``statistic``: "rhat", "ess_bulk" and
        "ess_tail".
    sampling_time : float or None
        Seconds that sampling took, including tuning, if the trace records it.
    chains : int
    modes : tuple of (tuple of int, float)
        Groups of chains (numbered from 0) in different modes of the log likelihood, or else of a
        function value, with their mean log likelihood, the lowest first; empty if there is one
        group.
    """

    dataset: xr.Dataset
    sampling_time: float | None
    chains: int
    modes: tuple[tuple[tuple[int, ...], float], ...] = ()

    formats: ClassVar[Mapping[str, str]] = {
        "points": "{:.0f}",
        "rhat": "{:.3f}",
        "rhat worst": "{:.3f}",
        "> 1.01": "{:.0%}",
        "> 1.05": "{:.0%}",
        "ess": "{:.0f}",
        "ess worst": "{:.0f}",
        "ess per s": "{:.3g}",
    }

    @property
    @override
    def table(self) -> pd.DataFrame:
        """One row per quantity: medians over its points, worst values, shares of points.

        Points where all draws are equal have no R-hat and are not counted.
        """
        rows = {name: self._row(values) for name, values in self.dataset.items()}
        columns = [name for name in self.formats if any(name in row for row in rows.values())]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns)

    @property
    def converged(self) -> bool:
        """Whether R-hat and effective sample size are good at all points of all quantities."""
        return not self._short()

    @property
    def verdict(self) -> str:
        """Whether the chains have converged and, if not, what would help."""
        wanted, short = WANTED * self.chains, self._short()
        if not short:
            return (
                f"Converged: R-hat of each quantity is at most {LARGEST_RHAT}, and there are at "
                f"least {wanted} effective draws."
            )
        named = "; ".join(
            f"{name} has {_shortfall(rhat, ess, wanted)}" for name, rhat, ess in short[:SHOWN]
        )
        more = f"; {len(short) - SHOWN} others fall short too" if len(short) > SHOWN else ""
        return f"Not converged: {named}{more}. {self._advice(wanted, short[0][2])}"

    def _short(self) -> list[tuple[str, float, float]]:
        """Quantities that fall short, worst R-hat and effective sample size; the least first.

        Those of which all draws are equal have neither.
        """
        rows = ((str(name), self._row(values)) for name, values in self.dataset.items())
        worst = ((n, row["rhat worst"], row["ess worst"]) for n, row in rows if row["points"])
        wanted = WANTED * self.chains
        short = [row for row in worst if not (row[1] <= LARGEST_RHAT and row[2] >= wanted)]
        return sorted(short, key=lambda row: row[2])

    def _advice(self, wanted: int, least: float) -> str:
        if self.modes:
            groups = [", ".join(str(chain) for chain in chains) for chains, _ in self.modes]
            levels = [f"{level:.4g}" for _, level in self.modes]
            return (
                f"Chains {' and chains '.join(groups)} are in different modes (log likelihood "
                f"{' and '.join(levels)}): weigh chains by nns.stacking_weights, or tune longer."
            )
        factor = max(wanted / least, 1.0)
        if factor < MANY:
            return f"About {max(2, math.ceil(factor))} times as many draws would do."
        return "The chains have hardly moved: tune longer, and look at their traces."

    @override
    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.verdict}"

    __repr__ = __str__

    @override
    def _repr_html_(self) -> str:
        return f"{super()._repr_html_()}<p>{html.escape(self.verdict)}</p>"

    def _row(self, statistics: xr.DataArray) -> dict[str, float]:
        rhat, ess = (statistics.sel(statistic=name).values for name in ("rhat", "ess_bulk"))
        differ = ~np.isnan(rhat)
        rhat, ess = rhat[differ], ess[differ]
        if not rhat.size:
            return {"points": 0}
        row = {
            "points": rhat.size,
            "rhat": np.median(rhat),
            "rhat worst": rhat.max(),
            "> 1.01": np.mean(rhat > 1.01),
            "> 1.05": np.mean(rhat > 1.05),
            "ess": np.median(ess),
            "ess worst": ess.min(),
        }
        if self.sampling_time is not None:
            row["ess per s"] = row["ess"] / self.sampling_time
        return row


def _shortfall(rhat: float, ess: float, wanted: int) -> str:
    """What of R-hat and effective sample size is not good."""
    bad = [f"R-hat {rhat:.3f}"] * (not rhat <= LARGEST_RHAT)
    bad += [f"{ess:.0f} effective draws of {wanted} wanted"] * (not ess >= wanted)
    return " and ".join(bad)


@one_thread
def diagnose(
    idata: Any,
    X: ArrayLike | pd.DataFrame | dict[Any, Any],
    *,
    model: pm.Model | None = None,
    inputs: str | None = None,
    output: str | None = None,
) -> Diagnosis:
    """Assess convergence by R-hat and effective sample size of the network's function values.

    The last line is a verdict: whether the chains have converged, by the worst of function values,
    log likelihood and all other variables (noise, scales, effects beside a network), and if not,
    what would help. Hidden units are interchangeable, so they are judged by function values.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample`` with several chains, or its posterior.
    X : array_like or table, shape (n_obs, n_features), or dict
        Inputs at which function values are compared; as for :func:`~pymc_nnsteps.predict`.
    model, inputs, output
        As for :func:`~pymc_nnsteps.predict`.

    Returns
    -------
    Diagnosis
        Prints as a table with one row per quantity:

        - ``f``, or the name of the output, the function values at ``X``
          (:func:`~pymc_nnsteps.predict`);
        - ``log_likelihood``, of all data given the free variables, if the trace has a group of this
          name or all variables on which it depends (then of the data that the model currently
          holds);
        - each stored free variable whose entries belong neither to interchangeable hidden units nor
          to rows of the data.

        Columns: number of points (those where draws differ); rank-normalised R-hat, its median and
        worst, and the shares of points where it exceeds 1.01 and 1.05; bulk effective sample size,
        its median and worst, and per second of sampling time, including tuning, if the trace
        records it. ``.table`` is a DataFrame, ``.dataset`` has the values of all points and the
        tail effective sample size. ``.verdict`` is the last line, ``.converged`` a bool: whether
        each R-hat is at most 1.01 and each bulk effective sample size at least 100 for each chain.

    Raises
    ------
    ValueError
        If there is only one chain or fewer than four draws, if a quantity is not finite, or as for
        :func:`~pymc_nnsteps.predict`.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Buerkner, *Rank-normalization, folding, and
    localization: An improved R-hat*, Bayesian Analysis 16 (2021).

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1) as model:
    ...     idata = pm.sample(50, tune=20, chains=2, cores=1, random_seed=1, progressbar=False)
    >>> diagnosis = nns.diagnose(idata, X[:5], model=model)
    >>> diagnosis.table["points"]
    f                 5
    log_likelihood    1
    b2                1
    Name: points, dtype: int64
    >>> diagnosis.converged
    False
    >>> "ess per s" in diagnosis.table
    True
    >>> diagnosis.dataset["f"].sel(statistic="rhat").sizes
    Frozen({'obs': 5, 'output': 1})
    """
    from arviz_stats import sampling_diagnostics as arviz

    model, posterior = opened(idata, model, n_chains=2)
    f = function_values(idata, X, model, inputs, output)
    quantities = {output or "f": f}
    log_likelihood = _log_likelihood(idata, posterior, model)
    if log_likelihood is not None:
        quantities["log_likelihood"] = log_likelihood
    of_units = {rv for units in exchangeable_units(model) for rv in units.axes}
    judged = set(without_latents(model)).difference(rv.name for rv in of_units)
    for rv in model.free_RVs:
        dims = model.named_vars_to_dims.get(rv.name) or ()
        # Builders and blocks name the dimensions of hidden units so.
        is_of_units = any(str(dim).rpartition("::")[2].startswith("hidden") for dim in dims)
        if rv.name in judged and rv.name in posterior and not is_of_units:
            values = posterior[rv.name]
            # Function values have other rows.
            shared = [dim for dim in ("obs", "output") if dim in values.dims]
            quantities[describe(rv)] = values.rename({dim: f"{rv.name}_{dim}" for dim in shared})
    judged_values = xr.Dataset(quantities)
    require_finite(judged_values)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistics = {
            "rhat": arviz.rhat(judged_values),
            "ess_bulk": arviz.ess(judged_values),
            "ess_tail": arviz.ess(judged_values, method="tail"),
        }
    return Diagnosis(
        tagged(statistics),
        posterior.attrs.get("sampling_time"),
        posterior.sizes["chain"],
        ()
        if log_likelihood is None
        else _modes(*(x.transpose(*SAMPLES, ...).values for x in (log_likelihood, f))),
    )


def _modes(log_likelihood: np.ndarray, f: np.ndarray) -> tuple[tuple[tuple[int, ...], float], ...]:
    """Groups of chains between whose log likelihoods, or else function values, there is a gap.

    The log likelihoods have shape (chains, draws), the function values (chains, draws, ...).
    """
    for values in (log_likelihood[..., None], f.reshape(*log_likelihood.shape, -1)):
        means, within = values.mean(axis=1), np.sqrt(values.var(axis=1).mean(axis=0))
        order = np.argsort(means, axis=0)
        gaps = np.diff(np.take_along_axis(means, order, axis=0), axis=0)
        clearest = np.argmax((gaps - APART * within).max(axis=0) / (within + (within == 0)))
        ends = np.flatnonzero(gaps[:, clearest] > APART * within[clearest]) + 1
        if len(ends):
            groups = np.split(order[:, clearest], ends)
            levels = [float(log_likelihood[group].mean()) for group in groups]
            named = [tuple(sorted(map(int, group))) for group in groups]
            return tuple(sorted(zip(named, levels, strict=True), key=lambda mode: mode[1]))
    return ()


def _log_likelihood(idata: Any, posterior: xr.Dataset, model: pm.Model) -> xr.DataArray | None:
    """Log density of all data given the free variables, if it is stored or can be had."""
    if isinstance(idata, xr.DataTree) and "log_likelihood" in idata.children:
        terms = idata["log_likelihood"].to_dataset()
        of_some = [dim for dim in SAMPLES if not _have_same_labels(terms, posterior, dim)]
        terms = terms.sel({dim: posterior[dim] for dim in of_some})
        others = [dim for dim in terms.dims if dim not in SAMPLES]
        return terms.sum(others).to_dataarray("term").sum("term")
    seen = model.observed_RVs or model.potentials
    log_density = model.logp(vars=seen)
    entered = set(graph_inputs([log_density]))
    needed = [rv.name for rv in model.free_RVs if model.rvs_to_values[rv] in entered]
    if not set(needed).issubset(posterior):
        return None
    [values] = at_draws(model, posterior, [log_density])
    return xr.DataArray(values, dims=SAMPLES, coords={dim: posterior[dim] for dim in SAMPLES})


def _have_same_labels(one: xr.Dataset, other: xr.Dataset, dim: str) -> bool:
    labels, others = one.indexes.get(dim), other.indexes.get(dim)
    return labels is None or others is None or labels.equals(others)


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

    Chains from different starts, preferably including an exact draw from the posterior, have
    forgotten their starts once R-hat falls no further. It stays above one if a block is not much
    longer than the autocorrelation time.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample`` with several chains, or its posterior.
    X : array_like or table, shape (n_obs, n_features), or dict
        Inputs at which functions are compared, as for :func:`~pymc_nnsteps.predict`; preferably
        inputs to which no chain was fitted.
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
        ``quantiles`` over points (quantile, block) at 25, 50, 75 and 95 %, each the R-hat of some
        point: the next higher value, not an interpolation. The coordinate ``block`` is the label of
        the block's last draw. R-hat is NaN at points where all draws of a block are equal, and
        these are excluded from mean and quantiles.

    Raises
    ------
    ValueError
        If there is only one chain, if there are fewer draws than in a block, or as for
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
    f = function_values(posterior, X, model, inputs, output)
    require_finite(f.to_dataset())
    f = f.isel(draw=slice(n_blocks * block))
    ends = f["draw"].values[block - 1 :: block]
    blocks = f.drop_vars("draw").coarsen(draw=block).construct(draw=("block", "draw"))
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = arviz.rhat(blocks.to_dataset(name="rhat"), method=method)["rhat"]
    points = ("obs", "output")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        # Some may be infinite: no interpolation.
        quantiles = rhat.quantile(QUANTILES, points, method="higher")
    parts = {"rhat": rhat, "mean": rhat.mean(points), "quantiles": quantiles}
    return xr.Dataset(parts, coords={"block": ends})
