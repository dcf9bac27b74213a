"""Plots of chains over networks, with ArviZ's plotting stack.

Each returns what ArviZ's own plots do, a ``PlotCollection``: ``.savefig(...)`` writes it,
``.viz`` holds its parts, and ``backend`` is any that ``arviz_plots`` has.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import number_below, require_choice
from pymc_nnsteps.graphs.known import distribution, has_law
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.prediction.dependence import PARTS
from pymc_nnsteps.prediction.new_inputs import function_values
from pymc_nnsteps.prediction.posterior import posterior_with_draws
from pymc_nnsteps.tables import as_array, listed

SHOWN = 4
"""Panels of function values that are shown of many."""

PACKAGES = {
    "matplotlib": ("matplotlib",),
    "bokeh": ("bokeh",),
    "plotly": ("plotly", "webcolors"),
}
"""Backends of ``arviz_plots``, with the packages that each needs."""


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
        Inputs, as for :func:`~pymc_nnsteps.predict`; only the first four panels are shown.
    model, inputs, output
        As for :func:`~pymc_nnsteps.predict`.
    backend : str
    **options
        Passed to ``arviz_plots.plot_trace``.

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
    ...     idata = pm.sample(50, tune=0, chains=2, cores=1, random_seed=1, progressbar=False)
    >>> plot = nns.plot_functions(idata, X[:2], model=model, backend="none")
    >>> sorted(plot.viz["trace"]["f"].sizes.items())
    [('chain', 2), ('obs', 2)]
    """
    import arviz_plots
    from arviz_base.labels import DimCoordLabeller

    posterior = posterior_with_draws(idata)
    f = function_values(posterior, X, model_to_read(model), inputs, output)
    f = f.isel(obs=slice(max(1, SHOWN // f.sizes["output"])))
    f = f.squeeze("output", drop=True) if f.sizes["output"] == 1 else f
    f = f.assign_coords({dim: f[dim] for dim in f.dims[2:]})
    tree = xr.DataTree.from_dict({"posterior": f.to_dataset()})
    draw_large(options, backend, f[0, 0].size)
    options.setdefault("labeller", DimCoordLabeller())
    plot = arviz_plots.plot_trace(tree, **options)
    draw_legend(plot, "chain", "chain")
    return plot


def plot_rhat_over_time(
    over_time: xr.Dataset, *, backend: str = "matplotlib", **options: Any
) -> Any:
    """Plot R-hat of function values against time: quantiles over points, middle half shaded.

    Parameters
    ----------
    over_time : Dataset
        Result of :func:`~pymc_nnsteps.lab.rhat_over_time`.
    backend : str
    **options
        Passed to ``arviz_plots.PlotCollection.wrap``.

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
    ...     idata = pm.sample(50, tune=0, chains=2, cores=1, random_seed=1, progressbar=False)
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


@dataclass(frozen=True)
class AxisLabels:
    """Names and units in which inputs and outputs are shown."""

    # Mean and standard deviation by which each was standardised.
    units: Mapping[str, tuple[float, float]]
    labels: Mapping[str, str]  # what to write for each

    def require_known(self, names: Iterable[str]) -> None:
        """Check that units and labels are those of inputs and outputs, which have these names."""
        known = list(dict.fromkeys(names))
        for argument, given in (("units", self.units), ("labels", self.labels)):
            if unknown := [name for name in given if name not in known]:
                raise ValueError(
                    f"{argument} must be of inputs and outputs, {', '.join(map(repr, known))}; got "
                    f"those of {listed(unknown)}."
                )

    def __post_init__(self) -> None:
        """Check that these are mappings, units to a mean and a standard deviation."""
        for argument, mapping in (("units", self.units), ("labels", self.labels)):
            if not isinstance(mapping, Mapping):
                raise ValueError(f"{argument} must be a dict from names; got {mapping!r}.")
        for name, given in self.units.items():
            pair = as_array(f"units[{name!r}]", given)
            is_pair = pair.shape == (2,) and pair.dtype.kind in "iuf"
            if not is_pair or not np.isfinite(pair).all() or pair[1] <= 0:
                raise ValueError(
                    f"units must have the mean and the standard deviation, which is positive, of "
                    f"{name}; got {given!r}."
                )

    def label(self, name: str) -> str:
        """What to write for a name."""
        return self.labels.get(name, name)

    def values(self, name: str, standardised: Any) -> Any:
        """Values in the units before they were standardised."""
        if name not in self.units:
            return standardised
        if has_levels(standardised):
            raise ValueError(f"units are for numbers, but {name} has levels; leave it out.")
        mean, sd = self.units[name]
        return mean + sd * standardised


def has_levels(values: Any) -> bool:
    """Whether values of an input are levels of a category."""
    return np.asarray(values).dtype.kind in "OU"


def ticks_of(data: Any, levels: list[str] | None = None) -> dict[float, str]:
    """Places and labels of the levels of an input, or of round numbers if its data are whole."""
    if levels is not None:
        return dict(enumerate(levels))
    low, high = np.min(data), np.max(data)
    if not (np.abs([low, high]) < LARGEST_WHOLE).all() or not np.allclose(data, np.rint(data)):
        return {}
    steps = (m * 10**k for k in range(len(str(LARGEST_WHOLE)) + 1) for m in (1, 2, 5))
    step = next(step for step in steps if high - low <= MOST_STEPS * step)
    marks = range(step * math.ceil(low / step), math.floor(high) + 1, step)
    return {mark: str(mark) for mark in marks}


def as_bars(curves: xr.Dataset, dim: str) -> tuple[np.ndarray, xr.Dataset]:
    """Places of corners of bars, and means and bands at levels there: no line joins levels."""
    n_levels = curves.sizes[dim]
    bars = curves.isel({dim: np.repeat(np.arange(n_levels), 4)})
    inner = xr.DataArray(np.tile([False, True, True, False], n_levels), dims=dim)
    ends = bars.where(inner, bars["mean"])
    x = np.add.outer(np.arange(n_levels), HALF_WIDTH * np.array([-1, -1, 1, 1])).ravel()
    return x, ends.assign(mean=bars["mean"].where(inner))


def write_axes(
    plot: Any,
    axes: AxisLabels,
    inputs: Mapping[str, Mapping[float, str]],
    output: str,
    title: str = "",
) -> None:
    """Label the input of each panel, with its ticks if any, and output and title of the first."""
    from arviz_plots import visuals

    panel = {"ignore_aes": "all", "store_artist": False}
    for name, ticks in inputs.items():
        panel["data"] = plot.data[[name]]
        plot.map(visuals.labelled_x, text=axes.label(name), **panel)
        if ticks:
            plot.map(visuals.set_xticks, values=[*ticks], labels=[*ticks.values()], **panel)
    panel["data"] = plot.data[[next(iter(inputs))]]
    plot.map(visuals.labelled_y, text=output, **panel)
    plot.map(visuals.labelled_title, text=title, size=10, **panel)


def draw_rug(plot: Any, data: xr.Dataset, bottom: float) -> None:
    """Mark where data are along the inputs of panels."""
    from arviz_plots import visuals

    style = {"y": bottom, "alpha": 0.5, "color": "gray", "marker": "|"}
    plot.map(visuals.scatter_x, "rug", data=data, ignore_aes="all", **style)


def draw_legend(plot: Any, dim: str, title: str) -> None:
    """Add a legend: Matplotlib's below the panels, where it takes no width."""
    places: dict[str, dict[str, Any]] = {
        "matplotlib": {"loc": "outside lower center", "ncols": 4, "frameon": False},
        "bokeh": {"margin": 0},
    }
    plot.add_legend(dim, title=title, **places.get(plot.backend, {}))


def require_numbers(plot: str, model: pm.Model, y: TensorVariable) -> None:
    """Check that what is observed are numbers and no classes."""
    if has_law(model, y, BernoulliRV, CategoricalRV):
        raise ValueError(
            f"{plot} shows numbers; {y.name} is {distribution(y)}, of classes: see their "
            'probabilities, predict(..., kind="probability"), or arviz_plots.plot_ppc_pava; of '
            "classes in an order plot_calibration takes y as an ordered pandas.Categorical."
        )


LARGEST_WHOLE, MOST_STEPS = 10**6, 5
"""Whole numbers below this have ticks at whole numbers, with so many steps between these."""

HALF_WIDTH = 0.3
"""Of a bar about a level; levels are at 0, 1, ..."""

LINES = 3
"""Values of a second input that are shown, from its lowest to its highest."""


def plot_partial_dependence(
    *dependences: xr.Dataset,
    output: int | str = 0,
    units: Mapping[str, tuple[float, float]] | None = None,
    labels: Mapping[str, str] | None = None,
    backend: str = "matplotlib",
    **options: Any,
) -> Any:
    """Plot the mean function against one input per panel, with bands and marks at the data.

    Levels of a category have a bar each. A function of two inputs is plotted against the first,
    with one line for each of three values of the second, or for each of its levels.

    Parameters
    ----------
    *dependences : Dataset
        Results of :func:`~pymc_nnsteps.partial_dependence`: several with one input each, or one
        with two inputs.
    output : int or str
        Column of the outputs, or its label.
    units : mapping of str to (float, float), optional
        Means and standard deviations with which inputs and the output were standardised, by their
        names (of the output ``"f"``, unless it was named). Axes are in the original units,
        ``mean + sd * value``.
    labels : mapping of str to str, optional
        Labels in place of these names.
    backend : str
    **options
        Passed to ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        If ``dependences`` are anything else, or if there is no such output.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1) as model:
    ...     idata = pm.sample(50, tune=20, chains=2, cores=1, random_seed=1, progressbar=False)
    >>> each = [nns.partial_dependence(idata, j, points=5, model=model) for j in range(2)]
    >>> plot = nns.plot_partial_dependence(*each, backend="none")
    >>> list(plot.viz["lines"].data_vars)
    ['inputs[0]', 'inputs[1]']
    """
    from arviz_plots import visuals
    from arviz_plots.plot_collection import PlotCollection

    axes = AxisLabels(units or {}, labels or {})
    panels = [_panel(each, output, axes) for each in dependences]
    names = [name for name, _ in panels]
    dims = {str(dim) for _, panel in panels for dim in panel["mean"].dims}
    second = dims - {_points(name) for name in names}
    if not panels or len(set(names)) < len(names) or (second and len(panels) > 1):
        raise ValueError(
            "dependences must be results of partial_dependence of one input each, all of them "
            f"different, or one of two inputs; got {len(panels)}, of {names}."
        )
    axes.require_known(
        name
        for each in dependences
        for name in (*np.ravel(each.attrs["inputs"]).tolist(), each.attrs["of"])
    )
    of = dict.fromkeys(_shown(each, output, axes) for each in dependences)
    mean, lower, upper, x = (
        xr.Dataset({name: panel[part] for name, panel in panels}) for part in (*PARTS, "x")
    )
    options.setdefault("cols", ["__variable__"])
    if second:
        options.setdefault("aes", {"color": list(second)})
    draw_large(options, backend, len(panels))
    options["figure_kwargs"] = {"sharey": True} | options.get("figure_kwargs", {})
    plot = PlotCollection.wrap(mean, **options)
    style = {"x": x} if "aes" in options else {"x": x, "color": "C0"}
    plot.map(visuals.fill_between_y, "band", y_bottom=lower, y_top=upper, alpha=0.25, **style)
    plot.map(visuals.line_xy, "lines", **style)
    rug = xr.Dataset({name: each["data"].rename(data_row=f"{name} data") for name, each in panels})
    draw_rug(plot, rug, min(float(each.min()) for each in lower.values()))
    prob = dependences[0].attrs.get("prob")
    title = "mean over the data" + (f", with {100 * prob:g} % band" if prob else "")
    ticks = {}
    for (name, panel), each in zip(panels, dependences, strict=True):
        levels = each[name].values.tolist() if has_levels(each[name]) else None
        ticks[name] = ticks_of(panel["data"], levels)
    write_axes(plot, axes, ticks, ", ".join(of), title)
    for dim in second:
        draw_legend(plot, dim, axes.label(dim))
    return plot


def _points(name: str) -> str:
    """Dimension of the values of an input."""
    return f"{name} values"


def _shown(dependence: xr.Dataset, output: int | str, axes: AxisLabels) -> str:
    """What to write for the averaged quantity: of several outputs, which one it is too."""
    label = axes.label(str(dependence.attrs.get("of", "f")))
    labels = dependence.indexes.get("output", range(dependence.sizes["output"]))
    one = output if isinstance(output, str) else labels[output]
    return f"{label}[{one}]" if len(labels) > 1 else label


def _panel(dependence: object, output: int | str, axes: AxisLabels) -> tuple[str, xr.Dataset]:
    """Name of the first input, and curves over it, at a few values of the second."""
    if not isinstance(dependence, xr.Dataset) or not set(PARTS) <= set(dependence.data_vars):
        raise ValueError(
            "dependences must be results of partial_dependence, as in "
            "plot_partial_dependence(partial_dependence(idata, 0, model=model))."
        )
    labels = list(dependence.indexes.get("output", ()))
    if isinstance(output, str):
        if output not in labels:
            raise ValueError(f"output must be a number or one of {labels}; got {output!r}.")
        output = labels.index(output)
    output = number_below("output", output, dependence.sizes["output"])
    chosen = dependence.isel(output=output, drop=True)
    name, *others = (str(dim) for dim in chosen["mean"].dims)
    chosen = chosen.isel(data_column=0, drop=True).reset_coords("data")
    for dim in (name, *others):
        chosen = chosen.assign_coords({dim: axes.values(dim, chosen[dim])})
    chosen["data"] = axes.values(name, chosen["data"])
    of = dependence.attrs.get("of", "f")
    chosen = chosen.assign({part: axes.values(of, chosen[part]) for part in PARTS})
    for dim in others:
        if has_levels(chosen[dim]):
            continue
        last = chosen.sizes[dim] - 1
        chosen = chosen.isel({dim: sorted({last * i // (LINES - 1) for i in range(LINES)})})
        labels = [f"{value:.5g}" for value in chosen[dim].values]
        chosen = chosen.assign_coords({dim: labels})
    curves = chosen.drop_vars(name).rename_dims({name: _points(name)})
    if has_levels(chosen[name]):
        x, bars = as_bars(curves[[*PARTS]], _points(name))
        return name, bars.assign(x=(_points(name), x), data=curves["data"])
    return name, curves.assign(x=(_points(name), chosen[name].values))
