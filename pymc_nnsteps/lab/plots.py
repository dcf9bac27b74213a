"""A plot of chains from several starts."""

from typing import Any, Literal, get_args

from pymc_nnsteps.arguments import require_choice
from pymc_nnsteps.diagnostics.plots import draw_large
from pymc_nnsteps.lab.thermalization import Thermalization

Axis = Literal["sweep", "seconds"]


def plot_thermalization(
    run: Thermalization,
    *,
    against: Axis = "sweep",
    backend: str = "matplotlib",
    **options: Any,
) -> Any:
    """Plot test functions of informed beside uninformed chains, one panel per function.

    Parameters
    ----------
    run : Thermalization
        Result of :func:`~pymc_nnsteps.lab.thermalize`.
    against : {"sweep", "seconds"}
        Horizontal axis: sweeps, or CPU time.
    backend : str
    **options
        Of ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        If ``against`` is not one of these.

    Examples
    --------
    >>> import numpy as np, pymc_nnsteps as nns
    >>> def build(X, y):
    ...     return nns.intermediate_noise_mlp(X, y, hidden=(), noise=0.1)
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> lab = nns.lab.teacher_student(build, X, random_seed=1)
    >>> functions, step = {"error": lab.test_error(X)}, nns.Gibbs(model=lab.model)
    >>> run = nns.lab.thermalize(
    ...     lab.starts, functions, sweeps=50, step=step, model=lab.model, progressbar=False
    ... )
    >>> nns.lab.plot_thermalization(run, backend="none").viz["lines"]["error"].sizes
    Frozen({'chain': 3})
    """
    from arviz_plots import visuals
    from arviz_plots.plot_collection import PlotCollection

    require_choice("against", against, get_args(Axis))
    functions = run.records[run.functions]
    options.setdefault("aes", {"color": ["chain"]})
    options.setdefault("cols", ["__variable__"])
    draw_large(options, backend, len(functions))
    plot = PlotCollection.wrap(functions, **options)
    x = run.records["seconds"] if against == "seconds" else run.records["sweep"]
    text = "CPU seconds" if against == "seconds" else "sweep"
    plot.map(visuals.line_xy, "lines", x=x, alpha=0.8)
    for name, values in functions.items():
        panel: dict[str, Any] = {"data": functions[[name]], "ignore_aes": "all"}
        panel["store_artist"] = False
        plot.map(visuals.set_xscale, scale="log", **panel)
        if (values > 0).all():
            plot.map(visuals.set_yscale, scale="log", **panel)
        plot.map(visuals.labelled_x, text=text, **panel)
        plot.map(visuals.labelled_y, text=name, **panel)
    plot.add_legend("chain")
    return plot
