"""R-hat and effective sample size of what a network computes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, override

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.diagnostics.draws import of_draws, opened, require_finite
from pymc_nnsteps.diagnostics.table import Tabulated, tagged
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import depends_on, stated_in
from pymc_nnsteps.kernels.threads import one_thread
from pymc_nnsteps.prediction.latents import without_latents
from pymc_nnsteps.prediction.new_inputs import function_values
from pymc_nnsteps.prediction.posterior import SAMPLES


@dataclass(frozen=True, repr=False)
class Diagnosis(Tabulated):
    """R-hat and effective sample size of several quantities, printed as a table.

    Attributes
    ----------
    dataset : Dataset
        For each quantity, with its own dims, and the dim ``statistic``: "rhat", "ess_bulk" and
        "ess_tail".
    sampling_time : float or None
        Seconds that sampling took, tuning included, if the trace tells.
    ignored, believed : tuple of str
        Stored variables with an entry for each hidden unit, whose own R-hat means nothing, and
        those whose own R-hat means what it does in any model. Latents of rows are in the first if
        they have a named dimension of hidden units, and in none otherwise.
    """

    dataset: xr.Dataset
    sampling_time: float | None
    ignored: tuple[str, ...] = ()
    believed: tuple[str, ...] = ()

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
        """One row per quantity: medians over its points, the worst of them, shares of points.

        Points where all draws are equal have no R-hat, and are not counted.
        """
        rows = {name: self._row(values) for name, values in self.dataset.items()}
        columns = [name for name in self.formats if any(name in row for row in rows.values())]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns)

    @property
    def note(self) -> str:
        """Which R-hat of single variables, as PyMC and ArviZ report it, to believe."""
        if not self.ignored:
            return ""
        others = f", and believe that of {', '.join(self.believed)}" if self.believed else ""
        return (
            "Of the R-hat of single variables, ignore that of "
            f"{', '.join(self.ignored)} (hidden units can change places){others}."
        )

    @override
    def __str__(self) -> str:
        return "\n".join(filter(None, [super().__str__(), self.note]))

    __repr__ = __str__

    @override
    def _repr_html_(self) -> str:
        return super()._repr_html_() + (f"<p>{self.note}</p>" if self.note else "")

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


@one_thread
def diagnose(
    idata: Any,
    X: ArrayLike | pd.DataFrame | dict[Any, Any],
    *,
    model: pm.Model | None = None,
    inputs: str | None = None,
    output: str | None = None,
) -> Diagnosis:
    """Judge chains by the network's function values: R-hat and effective sample size.

    Hidden units can change places without changing the network. So ignore R-hat of variables with
    an entry for each hidden unit, as PyMC and ArviZ report it. Believe R-hat of function values, at
    inputs that matter, and that of every other variable (noise, scales, effects beside a network).
    Lines below the table name both kinds of variables.

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
        - ``log_likelihood``, of all data given the free variables, if the trace has a group of
          this name or all the variables that it depends on (then of the data that the model has
          now);
        - each stored variable that the noise of the data depends on: the parameters of their
          distribution that no inputs enter.

        Columns: number of points (those where draws differ), R-hat (rank-normalised), its worst,
        and the shares of points where it exceeds 1.01 and 1.05; bulk effective sample size, its
        worst, and per second of sampling time, tuning included, if the trace tells. ``.table`` is
        a DataFrame, ``.dataset`` has the values of all points and the tail effective sample
        size. ``.ignored`` and ``.believed`` are the names of stored variables with a dimension of
        hidden units (as builders and blocks call them), and of the others.

    Raises
    ------
    ValueError
        If there is one chain or fewer than four draws, if a quantity is not finite, or as for
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
    ...     idata = pm.sample(
    ...         50, tune=20, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
    ...         compute_convergence_checks=False,
    ...     )
    >>> diagnosis = nns.diagnose(idata, X[:5], model=model)
    >>> diagnosis.table["points"]
    f                 5
    log_likelihood    1
    Name: points, dtype: int64
    >>> "ess per s" in diagnosis.table
    True
    >>> diagnosis.dataset["f"].sel(statistic="rhat").sizes
    Frozen({'obs': 5, 'output': 1})
    """
    from arviz_stats import sampling_diagnostics as arviz

    model, posterior = opened(idata, model, n_chains=2)
    quantities = {output or "f": function_values("X", idata, X, model, inputs, output=output)}
    log_likelihood = _log_likelihood(idata, posterior, model)
    if log_likelihood is not None:
        quantities["log_likelihood"] = log_likelihood
    for rv in _noise(model):
        if rv.name in posterior:
            quantities[describe(rv)] = _with_own_dims(posterior[rv.name])
    values = xr.Dataset(quantities)
    require_finite(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistics = {
            "rhat": arviz.rhat(values),
            "ess_bulk": arviz.ess(values),
            "ess_tail": arviz.ess(values, method="tail"),
        }
    stored = [rv.name for rv in model.free_RVs if rv.name in posterior]
    hidden = {name for name in stored if _has_hidden_units(model, name)}
    of_all_rows = set(without_latents(model))
    return Diagnosis(
        tagged(statistics),
        posterior.attrs.get("sampling_time"),
        ignored=tuple(name for name in stored if name in hidden),
        believed=tuple(name for name in stored if name in of_all_rows - hidden),
    )


def _has_hidden_units(model: pm.Model, name: str) -> bool:
    """Whether a variable has a dimension that builders and blocks give to hidden units."""
    dims = model.named_vars_to_dims.get(name) or ()
    return any(str(dim).rpartition("::")[2].startswith("hidden") for dim in dims)


def _log_likelihood(idata: Any, posterior: xr.Dataset, model: pm.Model) -> xr.DataArray | None:
    """Log density of all data given the free variables, if it is stored or can be had."""
    if isinstance(idata, xr.DataTree) and "log_likelihood" in idata.children:
        terms = idata["log_likelihood"].to_dataset()
        of_some = [dim for dim in SAMPLES if not _have_same_labels(terms, posterior, dim)]
        terms = terms.sel({dim: posterior[dim] for dim in of_some})
        others = [dim for dim in terms.dims if dim not in SAMPLES]
        return terms.sum(others).to_dataarray("term").sum("term")
    seen = model.observed_RVs or model.potentials
    expression = of_draws(model, [model.logp(vars=seen)])
    if not all(rv.name in posterior for rv in expression.stored):
        return None
    [values] = expression.evaluate(model, posterior)
    return xr.DataArray(values, dims=SAMPLES, coords={dim: posterior[dim] for dim in SAMPLES})


def _have_same_labels(one: xr.Dataset, other: xr.Dataset, dim: str) -> bool:
    labels, others = one.indexes.get(dim), other.indexes.get(dim)
    return labels is None or others is None or labels.equals(others)


def _noise(model: pm.Model) -> list[TensorVariable]:
    """Free variables in those parameters of the data's distribution that no inputs enter."""
    data = set(model.data_vars)
    parameters = [
        parameter
        for rv in model.observed_RVs
        if depends_on(rv, data)
        for parameter in rv.owner.inputs
        if not depends_on(parameter, data)
    ]
    return [rv for rv in model.free_RVs if rv in stated_in(parameters, model.free_RVs)]


def _with_own_dims(values: xr.DataArray) -> xr.DataArray:
    """A variable whose dims are not those of the function values, which have other rows."""
    shared = [dim for dim in ("obs", "output") if dim in values.dims]
    return values.rename({dim: f"{values.name}_{dim}" for dim in shared})
