"""Plots of how a network depends on its inputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from pymc_nnsteps.arguments import number_below
from pymc_nnsteps.diagnostics.plots import (
    Axes,
    draw_large,
    draw_legend,
    draw_rug,
    has_levels,
    write_axes,
)
from pymc_nnsteps.prediction.dependence import PARTS

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
    """Plot the mean function over one input per panel, with bands, and marks at the data.

    A function of two inputs is shown over the first, as a line for each of three values of the
    second, or for each of its levels.

    Parameters
    ----------
    *dependences : Dataset
        Results of :func:`~pymc_nnsteps.partial_dependence`: several of one input each, or one of
        two.
    output : int or str
        Column of the outputs, or its label.
    units : mapping of str to (float, float), optional
        Means and standard deviations by which inputs and the output were standardised, by their
        names: they are shown in the units before, ``mean + sd * value``.
    labels : mapping of str to str, optional
        What to write for the names of inputs and of the output (``"f"``, unless it was named).
    backend : str
    **options
        Of ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        If something else is given, or if there is no such output.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1) as model:
    ...     idata = pm.sample(
    ...         50, tune=20, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
    ...         compute_convergence_checks=False,
    ...     )
    >>> each = [nns.partial_dependence(idata, j, points=5, model=model) for j in range(2)]
    >>> plot = nns.plot_partial_dependence(*each, backend="none")
    >>> list(plot.viz["lines"].data_vars)
    ['inputs[0]', 'inputs[1]']
    """
    from arviz_plots import visuals
    from arviz_plots.plot_collection import PlotCollection

    axes = Axes(units or {}, labels or {})
    panels = [_panel(each, output, axes) for each in dependences]
    names = [name for name, _ in panels]
    dims = {str(dim) for _, panel in panels for dim in panel["mean"].dims}
    second = dims - {_points(name) for name in names}
    if not panels or len(set(names)) < len(names) or (second and len(panels) > 1):
        raise ValueError(
            "dependences must be results of partial_dependence of one input each, all of them "
            f"different, or one of two inputs; got {len(panels)}, of {names}."
        )
    of = list(dict.fromkeys(str(each.attrs.get("of", "f")) for each in dependences))
    mean, lower, upper, x = (
        xr.Dataset({name: panel[part] for name, panel in panels}) for part in (*PARTS, "x")
    )
    options.setdefault("cols", ["__variable__"])
    if second:
        options.setdefault("aes", {"color": list(second)})
    draw_large(options, backend, len(panels))
    if backend == "matplotlib":
        options["figure_kwargs"] = {"sharey": True} | options["figure_kwargs"]
    plot = PlotCollection.wrap(mean, **options)
    band = {"x": x, "y_bottom": lower, "y_top": upper, "alpha": 0.25}
    plot.map(visuals.fill_between_y, "band", **band)
    plot.map(visuals.line_xy, "lines", x=x)
    rug = xr.Dataset({name: each["data"].rename(data_row=f"{name} data") for name, each in panels})
    draw_rug(plot, rug, min(float(each.min()) for each in lower.values()))
    prob = dependences[0].attrs.get("prob")
    title = "mean over the data" + (f", with {100 * prob:g} % band" if prob else "")
    levels = {
        name: each[name].values.tolist() if has_levels(each[name]) else None
        for name, each in zip(names, dependences, strict=True)
    }
    write_axes(plot, axes, levels, ", ".join(map(axes.label, of)), title)
    for dim in second:
        draw_legend(plot, dim, axes.label(dim))
    return plot


def _points(name: str) -> str:
    """Dimension of the values of an input."""
    return f"{name} values"


def _panel(dependence: object, output: int | str, axes: Axes) -> tuple[str, xr.Dataset]:
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
    x = np.arange(chosen.sizes[name]) if has_levels(chosen[name]) else chosen[name].values
    return name, curves.assign(x=(_points(name), x))
