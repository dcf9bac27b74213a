"""Plots of chains over networks, with ArviZ's plotting stack.

Each returns what ArviZ's own plots do, a ``PlotCollection``: ``.savefig(...)`` writes it,
``.viz`` holds its parts, and ``backend`` is any that ``arviz_plots`` has.
"""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import number_below, require_choice
from pymc_nnsteps.graphs.known import has_law
from pymc_nnsteps.graphs.names import distribution
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.network.network import response_of
from pymc_nnsteps.prediction.closed_forms import read_readout
from pymc_nnsteps.prediction.columns import Column, categories_of, find_column
from pymc_nnsteps.prediction.gaps import some_rows, with_gaps
from pymc_nnsteps.prediction.new_inputs import function_values, input_container, predict
from pymc_nnsteps.prediction.posterior import (
    others_of,
    posterior_with_draws,
    with_columns_of,
)
from pymc_nnsteps.prediction.row_data import sampled_row_data

SHOWN = 4
"""Panels of function values that are shown of many."""

GRID = 101
"""Points of a line over one input."""

PACKAGES = {
    "matplotlib": ("matplotlib",),
    "bokeh": ("bokeh",),
    "plotly": ("plotly", "webcolors"),
}
"""Backends of ``arviz_plots``, with the packages that each needs."""

Kind = Literal["response", "function"]


def plot_functions(
    idata: Any,
    X: ArrayLike | pd.DataFrame | dict[Any, Any],
    *,
    model: pm.Model | None = None,
    inputs: str | None = None,
    output: str | None = None,
    backend: str = "matplotlib",
    **options: Any,
) -> Any:
    """Plot traces of function values, one panel per input and output, one line per chain.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample``, or its posterior.
    X : array_like or table, shape (n_obs, n_features), or dict
        Inputs, as for :func:`~pymc_nnsteps.predict`; the first four panels are shown.
    model, inputs, output
        As for :func:`~pymc_nnsteps.predict`.
    backend : str
    **options
        Of ``arviz_plots.plot_trace``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        As for :func:`~pymc_nnsteps.predict`.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1) as model:
    ...     idata = pm.sample(
    ...         50, tune=0, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
    ...         compute_convergence_checks=False,
    ...     )
    >>> plot = nns.plot_functions(idata, X[:2], model=model, backend="none")
    >>> sorted(plot.viz["trace"]["f"].sizes.items())
    [('chain', 2), ('obs', 2), ('output', 1)]
    """
    import arviz_plots

    posterior = posterior_with_draws(idata)
    f = function_values("X", posterior, X, model_to_read(model), inputs, output=output)
    f = f.isel(obs=slice(max(1, SHOWN // f.sizes["output"])))
    f = f.assign_coords({dim: f[dim] for dim in ("obs", "output")})
    tree = xr.DataTree.from_dict({"posterior": f.to_dataset()})
    draw_large(options, backend, f.sizes["obs"] * f.sizes["output"])
    return arviz_plots.plot_trace(tree, **options)


def plot_rhat_over_time(
    over_time: xr.Dataset, *, backend: str = "matplotlib", **options: Any
) -> Any:
    """Plot R-hat of function values against time: quantiles over points, the middle half shaded.

    Parameters
    ----------
    over_time : Dataset
        Result of :func:`~pymc_nnsteps.lab.rhat_over_time`.
    backend : str
    **options
        Of ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        If ``over_time`` has no quantiles.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1) as model:
    ...     idata = pm.sample(
    ...         50, tune=0, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
    ...         compute_convergence_checks=False,
    ...     )
    >>> over_time = nns.lab.rhat_over_time(idata, X, block=10, model=model)
    >>> "band" in nns.lab.plot_rhat_over_time(over_time, backend="none").viz.children
    True
    """
    from arviz_plots import visuals
    from arviz_plots.plot_collection import PlotCollection

    if not isinstance(over_time, xr.Dataset) or "quantiles" not in over_time:
        raise ValueError("over_time must be the result of rhat_over_time; got none of its parts.")
    quantiles = over_time["quantiles"].rename("rhat")
    options.setdefault("aes", {"color": ["quantile"]})
    draw_large(options, backend, 1)
    plot = PlotCollection.wrap(quantiles.to_dataset(), **options)
    low, high = (quantiles.sel(quantile=q, drop=True) for q in (0.25, 0.75))
    plot.map(
        visuals.fill_between_y,
        "band",
        data=low.to_dataset(),
        ignore_aes="all",
        x=over_time["block"],
        y_bottom=low,
        y_top=high,
        color="C0",
        alpha=0.2,
    )
    plot.map(visuals.line, "lines", xname="block")
    plot.map(visuals.labelled_x, "xlabel", ignore_aes="all", text="draw")
    plot.map(visuals.labelled_y, "ylabel", ignore_aes="all", text="R-hat of function values")
    plot.add_legend("quantile")
    return plot


def plot_predictions(
    idata: Any,
    *,
    feature: int | str = 0,
    output: int | str = 0,
    kind: Kind = "response",
    model: pm.Model | None = None,
    inputs: str | None = None,
    random_seed: int | None = None,
    backend: str = "matplotlib",
    **options: Any,
) -> Any:
    """Plot predictive bands over one input, with the data; other inputs are at their medians.

    So are other data of the rows. For whole numbers, such as the group of each row, the median is
    one of their values; of categories the most common level is taken. The data are those that the
    model was sampled with, which the result of ``pm.sample`` has stored; with the posterior alone,
    those that the model holds at present.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample``, or its posterior.
    feature : int or str
        Column of the inputs, or its name.
    output : int or str
        Column of the targets, or its label; or a name, as for :func:`~pymc_nnsteps.predict`: that
        of an observed variable, or with ``kind="function"`` that of a ``pm.Deterministic``, which
        is shown without the data, as is the function behind counts.
    kind : {"response", "function"}
        Bands of new data, with all noise drawn afresh, or of the noise-free function.
    model, inputs
        As for :func:`~pymc_nnsteps.predict`.
    random_seed : int, optional
    backend : str
    **options
        Of ``arviz_plots.plot_lm``, such as ``ci_prob=(0.5, 0.9)``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        If there is no such column, if targets that are to be shown are classes, or as for
        :func:`~pymc_nnsteps.predict`.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 1))
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1) as model:
    ...     idata = pm.sample(
    ...         50, tune=0, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
    ...         compute_convergence_checks=False,
    ...     )
    >>> plot = nns.plot_predictions(idata, kind="function", model=model, backend="none")
    >>> "ci_band" in plot.viz.children
    True
    """
    import arviz_plots

    require_choice("kind", kind, get_args(Kind))
    model, posterior = model_to_read(model), posterior_with_draws(idata)
    container = input_container("inputs", model, inputs)
    sampled = sampled_row_data(idata, model, container)
    X = sampled[container]
    column = find_column("feature", model, container, feature)
    points, grid = _over(column, model, container, sampled)
    labels = list(model.coords.get("output") or ())
    if isinstance(output, str) and output in labels and output not in model.named_vars:
        output = labels.index(output)
    named, number = (output, 0) if isinstance(output, str) else (None, output)
    whole, alone = with_gaps(model), named is not None and kind == "function"
    y = response_of(
        whole, container, any_response=alone, named=named if kind == "response" else None
    )
    if not alone:
        require_numbers("plot_predictions", whole, y)
    alone |= kind == "function" and not y.dtype.startswith("float")
    settings = {"model": model, "inputs": container.name, "random_seed": random_seed}
    f = predict(posterior, grid, output=named, kind=kind, progressbar=False, **settings)
    number = number_below("output", number, f.sizes["output"])
    label, shown = column.name, str(named or (f.name if alone else y.name))
    numbers, _ = some_rows(whole, y)
    X = X if numbers is None else X[numbers]
    seen = np.zeros(len(X)) if alone else _targets(idata, whole, y, container)[:, number]
    known = ~np.isnan(seen)
    tree = xr.DataTree.from_dict(
        {
            "predictions": _dataset(shown, f.values[..., number]),
            "predictions_constant_data": _dataset(label, points),
            "constant_data": xr.Dataset({label: ("obs", column.of(X)[known])}),
            "observed_data": xr.Dataset({shown: ("obs", seen[known])}),
        }
    )
    if alone:
        options.setdefault("visuals", {}).setdefault("observed_scatter", False)
    options.setdefault("smooth", False)
    draw_large(options, backend, 1)
    options |= {"group": "predictions", "plot_dim": "point"}
    plot = arviz_plots.plot_lm(tree, x=label, y=shown, **options)
    if column.levels is not None:
        ticks = {"values": points.tolist(), "labels": column.levels, "store_artist": False}
        plot.map(arviz_plots.visuals.set_xticks, ignore_aes="all", **ticks)
    return plot


def draw_large(options: dict[str, Any], backend: str, n_panels: int) -> None:
    """Set the backend and a size, and for Matplotlib a layout with room for labels and legends."""
    require_choice("backend", backend, (*PACKAGES, "none"))
    for package in PACKAGES.get(backend, ()):
        if find_spec(package) is None:
            raise ImportError(
                f'{package} is not installed; run pip install "arviz-plots[{backend}]", or name '
                "another backend."
            )
    options["backend"] = backend
    if backend == "none":
        return
    width, height = 4 * n_panels + 1, 4
    figure: dict[str, Any] = {"figsize": (100 * width, 100 * height), "figsize_units": "dots"}
    if backend == "matplotlib":
        figure = {"figsize": (width, height), "figsize_units": "inches", "layout": "constrained"}
    options["figure_kwargs"] = figure | options.get("figure_kwargs", {})


def require_numbers(plot: str, model: pm.Model, y: TensorVariable) -> None:
    """Check that what is observed are numbers and no classes."""
    if has_law(model, y, BernoulliRV, CategoricalRV):
        raise ValueError(
            f"{plot} shows numbers; {y.name} is {distribution(y)}, of classes: see their "
            'probabilities, predict(..., kind="probability"), or arviz_plots.plot_ppc_pava.'
        )


def _targets(
    idata: Any, model: pm.Model, y: TensorVariable, container: TensorSharedVariable
) -> NDArray[Any]:
    """Targets that the model was sampled with, or has, a row for each of the inputs."""
    stored: Any = others_of(idata).get("observed_data", {})
    rows = 0 if read_readout(model, y, container) is None else -1
    data = model.rvs_to_values[y].eval()
    if y.name in stored:
        data = with_columns_of(model, stored[y.name], rows).values
    return np.moveaxis(data, rows, 0).reshape((data.shape[rows], -1))


def _over(
    column: Column,
    model: pm.Model,
    container: TensorSharedVariable,
    sampled: dict[Variable, NDArray[Any]],
) -> tuple[NDArray[Any], dict[Any, NDArray[Any]]]:
    """Values or numbers of levels of a column, and typical rows of all data with these."""
    values, held = column.spread(sampled[container], GRID)
    points = values if column.levels is None else np.arange(len(values))
    groups = categories_of(model, container).values()
    typical = {
        each: _typical(x, groups if each is container else ()) for each, x in sampled.items()
    }
    grid = {each: np.repeat(x[None], len(points), axis=0) for each, x in typical.items()}
    grid[container][:, column.places] = held
    return points, grid


def _typical(X: NDArray[Any], groups: Iterable[list[int]]) -> NDArray[Any]:
    """Median of each column, the lower one of integers; of groups of columns the most common."""
    whole = (np.rint(X) == X).all(axis=0)
    lower = np.sort(X, axis=0)[(len(X) - 1) // 2]
    typical: NDArray[Any] = np.where(whole, lower, np.median(X, axis=0)).astype(X.dtype)
    for places in groups:
        rows, counts = np.unique(X[:, places], axis=0, return_counts=True)
        typical[places] = rows[counts.argmax()]
    return typical


def _dataset(name: str, values: NDArray[Any]) -> xr.Dataset:
    dims = ("chain", "draw", "point")[-values.ndim :]
    return xr.Dataset({name: (dims, values)})
