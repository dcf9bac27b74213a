"""Predictive bands over one input, with the data."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import LaplaceRV, LogisticRV, NormalRV, StudentTRV
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import number_below, positive_number, require_choice
from pymc_nnsteps.diagnostics.plots import (
    AxisLabels,
    as_bars,
    draw_large,
    draw_legend,
    draw_rug,
    has_levels,
    require_numbers,
    ticks_of,
    write_axes,
)
from pymc_nnsteps.graphs.known import has_law
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.network.network import response_of
from pymc_nnsteps.prediction.forward import read_inputs
from pymc_nnsteps.prediction.gaps import some_rows
from pymc_nnsteps.prediction.laws import read_readout
from pymc_nnsteps.prediction.new_groups import labels_of_groups
from pymc_nnsteps.prediction.new_inputs import input_container, predict
from pymc_nnsteps.prediction.posterior import others_of, posterior_with_draws, with_columns_of
from pymc_nnsteps.prediction.row_data import (
    Column,
    categories_of,
    columns_in,
    find_column,
    sampled_row_data,
)

GRID = 101
"""Points of a line over one input."""

WINDOW = 21
"""Points of the grid that a local quadratic is fitted to, to smooth quantiles of draws."""

NAMED = 3
"""Inputs held at their medians that are named; more are counted."""

LOCATIONS = {NormalRV: 0, LaplaceRV: 0, LogisticRV: 0, StudentTRV: 1}
"""Laws of targets about a location, which is this one of their parameters."""

STYLES = {"mean": ("#1f77b4", 2), "of functions": ("#4f97c7", 8), "of new targets": ("#9cc4e2", 8)}
"""Colour of what is shown, and width of its line in the legend: tints, since legends of Plotly have
no opacity."""

SIZES = {"bokeh": 4}
"""Of data: Bokeh's are diameters, others are areas."""

Kind = Literal["response", "function"]


def plot_predictions(
    idata: Any,
    *,
    feature: int | str = 0,
    output: int | str = 0,
    kind: Kind = "response",
    prob: float = 0.9,
    units: Mapping[str, tuple[float, float]] | None = None,
    labels: Mapping[str, str] | None = None,
    model: pm.Model | None = None,
    inputs: str | None = None,
    random_seed: int | None = None,
    backend: str = "matplotlib",
    **options: Any,
) -> Any:
    """Plot predictions against one input, with the data; other inputs are held at their medians.

    So are other data of the rows. For whole numbers, such as the group of each row, the median is
    one of their values. Categories are held at their most common level. The data are those with
    which the model was sampled, stored in the result of ``pm.sample``; with the posterior alone,
    those that the model currently holds.

    The line is the posterior mean of the network's function. One band holds the function, the other
    new targets. If the function is not the location of the targets, as for counts, the line is the
    mean of new targets, and there is one band. Means and quantiles of draws of new targets are
    smoothed over the grid.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample``, or its posterior.
    feature : int or str
        Column of the inputs, or its name.
    output : int or str
        Column of the targets, or its label; or a name, as for :func:`~pymc_nnsteps.predict`: that
        of an observed variable, or with ``kind="function"`` that of a ``pm.Deterministic``. The
        latter is shown without the data, as is a function that is not the location of the targets.
    kind : {"response", "function"}
        Bands for new targets and for the noise-free function, or for the function alone.
    prob : float
        Probability of each band.
    units : mapping of str to (float, float), optional
        Means and standard deviations with which inputs and targets were standardised, by their
        names. Axes are in the original units, ``mean + sd * value``.
    labels : mapping of str to str, optional
        Labels in place of the names of inputs and targets.
    model, inputs
        As for :func:`~pymc_nnsteps.predict`.
    random_seed : int, optional
    backend : str
    **options
        Passed to ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        If there is no such column, if the targets to be shown are classes, or as for
        :func:`~pymc_nnsteps.predict`.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 1))
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1) as model:
    ...     idata = pm.sample(50, tune=0, chains=2, cores=1, random_seed=1, progressbar=False)
    >>> plot = nns.plot_predictions(idata, kind="function", model=model, backend="none")
    >>> plot.viz["band"]["inputs[0]"]["band"].values.tolist()
    ['90 % of functions']
    """
    require_choice("kind", kind, get_args(Kind))
    prob = positive_number("prob", prob, below=1)
    model, posterior = model_to_read(model), posterior_with_draws(idata)
    container = input_container("inputs", model, inputs, output)
    sampled = sampled_row_data(idata, model, container)
    column = find_column("feature", model, container, feature)
    axes = AxisLabels(units or {}, labels or {})
    typical = _typical(model, container, sampled)
    values, places = column.spread(sampled[container], GRID)
    points = axes.values(column.name, values)
    grid = {each: np.repeat(x[None], len(values), axis=0) for each, x in typical.items()}
    grid[container][:, column.places] = places
    named, number, outputs = _wanted(model, output)
    whole, *_ = read_inputs(model, container, gaps=False)
    response, alone = (named, False) if kind == "response" else (None, named is not None)
    y = response_of(whole, container, any_response=alone, named=response)
    if not alone:
        require_numbers("plot_predictions", whole, y)
    location = None if alone else _location(whole, y, container, named)
    alone |= kind == "function" and location is None
    settings = {"model": model, "inputs": container.name, "random_seed": random_seed}
    predicted = partial(predict, posterior, grid, progressbar=False, **settings)
    drawn = {kind: predicted(kind=kind, output=named)}
    if kind == "response" and location is not None:
        drawn["function"] = predicted(kind="function", **location)
    number = number_below("output", number, drawn[kind].sizes["output"])
    target = str(named or outputs.get(number) or (drawn[kind].name if alone else y.name))
    beside = _beside(model, container, typical)
    columns = columns_in(model, container)
    axes.require_known([*(c.name for c in columns), *beside, target, *outputs.values()])
    of_draws: dict[str, NDArray[Any]] = {each: f.values[..., number] for each, f in drawn.items()}
    curves = _curves(of_draws, prob, smooth=column.levels is None and len(values) == GRID)
    x, seen = column.of(sampled[container]), None
    if not alone:
        x, seen = _data(idata, whole, y, container, x, number)
    draw_large(options, backend, 1)
    curves = curves.map(lambda curve: axes.values(target, curve))
    if column.levels is not None:
        points, curves = as_bars(curves, "point")
    seen = None if seen is None else axes.values(target, seen)
    plot = _draw(column.name, points, curves, axes.values(column.name, x), seen, options)
    ticks = {column.name: ticks_of(axes.values(column.name, x), column.levels)}
    note = _note(axes, [each for each in columns if each != column], typical[container], beside)
    write_axes(plot, axes, ticks, axes.label(target), note)
    return plot


def _wanted(model: pm.Model, output: Any) -> tuple[str | None, Any, dict[int, str]]:
    """Name of a variable, or None; number of a column of it; and the labels of columns."""
    labels = list(model.coords.get("output") or ())
    if isinstance(output, str) and output in labels and output not in model.named_vars:
        output = labels.index(output)
    named, number = (output, 0) if isinstance(output, str) else (None, output)
    return named, number, {i: label for i, label in enumerate(labels) if isinstance(label, str)}


def _location(
    model: pm.Model, y: TensorVariable, container: TensorSharedVariable, named: str | None
) -> dict[str, Any] | None:
    """Arguments of predict for the location of the targets, if this is known to be a function."""
    for law, place in LOCATIONS.items():
        if has_law(model, y, law):
            location = parameters(y)[place]
            if location in model.deterministics:
                return {"output": location.name}
            return {} if law is NormalRV and named is None else None
    return None if read_readout(model, y, container) is None else {}


def _curves(drawn: Mapping[str, NDArray[Any]], prob: float, smooth: bool) -> xr.Dataset:
    """A mean (point), and bands (end, point) by what they hold, of draws of values."""
    from scipy.signal import savgol_filter

    # Local quadratics along a fine grid.
    smoothed = partial(savgol_filter, window_length=WINDOW, polyorder=2) if smooth else np.asarray
    means = {kind: values.mean(axis=(0, 1)) for kind, values in drawn.items()}
    mean = means.get("function")
    if mean is None:
        mean = smoothed(means["response"])
    curves = {"mean": mean}
    for kind, what in (("function", "of functions"), ("response", "of new targets")):
        if kind in drawn:
            band = np.quantile(drawn[kind], [(1 - prob) / 2, (1 + prob) / 2], axis=(0, 1))
            curves[f"{100 * prob:g} % {what}"] = (
                band if kind == "function" else mean + smoothed(band - mean)
            )
    return xr.Dataset({each: (("end", "point")[-f.ndim :], f) for each, f in curves.items()})


def _draw(
    name: str,
    x: NDArray[Any],
    curves: xr.Dataset,
    at: NDArray[Any],
    seen: NDArray[Any] | None,
    options: dict[str, Any],
) -> Any:
    """Bands below a line, data and their places along the input, and a legend."""
    from arviz_plots import visuals
    from arviz_plots.plot_collection import PlotCollection

    colors, widths = zip(
        *(STYLES[each.partition("% ")[2] or each] for each in map(str, curves)), strict=True
    )
    styled = {"aes": {"color": ["band"], "width": ["band"]}, "color": colors, "width": widths}
    lines = xr.Dataset({name: ("band", np.zeros(len(curves)))}, {"band": list(curves)})
    plot = PlotCollection.wrap(lines, **{"cols": ["__variable__"], **styled} | options)
    mean, *edges = (curve.values for curve in curves.values())
    low, high = (
        xr.Dataset({name: (("band", "point"), np.stack(each))}, {"band": list(curves)[1:]})
        for each in zip(*edges, strict=True)
    )
    band = {"x": x, "y_bottom": low, "y_top": high, "alpha": 0.6}
    plot.map(visuals.fill_between_y, "band", data=low, ignore_aes={"width"}, **band)
    line = xr.Dataset({name: ("point", mean)})
    style = {"color": colors[0], "width": widths[0]}
    plot.map(visuals.line_xy, "line", data=line, x=x, ignore_aes="all", **style)
    bottom = float(low[name].min())
    if seen is not None:
        points = xr.Dataset({name: ("obs", seen)})
        style = {"color": "gray", "alpha": 0.5, "size": SIZES.get(plot.backend, 12), "width": 0}
        plot.map(visuals.scatter_xy, "data", data=points, x=at, ignore_aes="all", **style)
        bottom = min(bottom, seen.min(initial=bottom))
    draw_rug(plot, xr.Dataset({name: ("obs", at)}), bottom)
    draw_legend(plot, "band", "")
    return plot


def _beside(
    model: pm.Model, container: TensorSharedVariable, typical: Mapping[Any, NDArray[Any]]
) -> dict[str, Any]:
    """Values of other data of the rows by their names, and of groups their labels."""
    found: dict[str, Any] = {}
    for data, value in typical.items():
        if data is not container and data.name and value.ndim == 0:
            labels = labels_of_groups(model, data)
            found[str(data.name)] = labels[int(value)] if len(labels) else value
    found.pop("censored", None)  # what is predicted is whole
    return found


def _note(
    axes: AxisLabels, others: Sequence[Column], typical: NDArray[Any], beside: Mapping[str, Any]
) -> str:
    """At which values the other inputs, and other data of the rows, are held."""
    if len(others) + len(beside) > NAMED:
        levels = any(column.levels for column in others)
        at = "medians and most common levels" if levels else "medians"
        return f"{' and '.join([f'{len(others)} other inputs', *beside])} at their {at}"
    held: dict[str, Any] = {}
    for column in others:
        [at] = column.of(typical[None])
        held[column.name] = at if column.levels is None else column.levels[at]
    held |= beside
    each = [f"{axes.label(name)} = {_shown(axes.values(name, at))}" for name, at in held.items()]
    return f"at {', '.join(each)}" if each else ""


def _shown(value: Any) -> str:
    if has_levels(value):
        return str(value)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _data(
    idata: Any,
    model: pm.Model,
    y: TensorVariable,
    container: TensorSharedVariable,
    x: NDArray[Any],
    number: int,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows of an input whose targets are known, and these, as the model was sampled with."""
    numbers, _ = some_rows(model, y, container)
    stored: Any = others_of(idata).get("observed_data", {})
    rows = 0 if read_readout(model, y, container) is None else -1
    data = model.rvs_to_values[y].eval()
    if y.name in stored:
        data = with_columns_of(model, stored[y.name], rows).values
    seen = np.moveaxis(data, rows, 0).reshape((data.shape[rows], -1))[:, number]
    known = ~np.isnan(seen)
    return (x if numbers is None else x[numbers])[known], seen[known]


def _typical(
    model: pm.Model, container: TensorSharedVariable, sampled: Mapping[Variable, NDArray[Any]]
) -> dict[Any, NDArray[Any]]:
    """Medians of each column of all data of the rows, and the most common levels of the inputs."""
    typical = {each: _medians(X) for each, X in sampled.items()}
    for places in categories_of(model, container).values():
        levels, counts = np.unique(sampled[container][:, places], axis=0, return_counts=True)
        typical[container][places] = levels[counts.argmax()]
    return typical


def _medians(X: NDArray[Any]) -> NDArray[Any]:
    """Median of each column; the lower one of integers, so that it is a value of the column."""
    whole = (np.rint(X) == X).all(axis=0)
    lower = np.sort(X, axis=0)[(len(X) - 1) // 2]
    return np.where(whole, lower, np.median(X, axis=0)).astype(X.dtype)
