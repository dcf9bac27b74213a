"""Whether predictions have the spread that they claim: probability integral transforms of rows.

Where the predictive distribution of a row is right, its target is at a uniform place in it.

Czado, Gneiting and Held, *Predictive Model Assessment for Count Data*, Biometrics 65 (2009).
"""

from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from pymc_nnsteps.arguments import require_choice
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.diagnostics.plots import draw_large, require_numbers
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.network.network import response_of
from pymc_nnsteps.prediction.forward import read_inputs
from pymc_nnsteps.prediction.new_inputs import input_container, predict
from pymc_nnsteps.prediction.posterior import posterior_with_draws
from pymc_nnsteps.tables import listed, numbers, require_same_rows

Kind = Literal["pit", "coverage"]

LABELS = {
    "pit": {
        "xlabel": {"text": "place u of the target in its predictive distribution"},
        "ylabel": {"text": "observed less expected share below u"},
        "title": {"text": "near zero where predictions are calibrated", "size": 10},
    },
    "coverage": {
        "xlabel": {"text": "probability of the interval, %"},
        "ylabel": {"text": "observed less expected share inside"},
        "title": {"text": "above zero: too wide; below: too narrow", "size": 10},
    },
}
"""What the axes show."""


@one_thread
def plot_calibration(
    idata: Any,
    X: ArrayLike | pd.DataFrame,
    y: ArrayLike | pd.DataFrame | pd.Categorical,
    *,
    kind: Kind = "pit",
    model: pm.Model | None = None,
    inputs: str | None = None,
    output: str | None = None,
    num_samples: int | None = None,
    random_seed: Any = None,
    backend: str = "matplotlib",
    **options: Any,
) -> Any:
    r"""Plot the calibration of predictive distributions for held-out targets.

    The quantile :math:`u_i = P(y_i^* \le y_i \mid x_i)` of a target in its predictive distribution
    is uniform if this distribution is correct. For a count, or any other value of positive
    probability, it is drawn uniformly from :math:`P(y_i^* < y_i)` to :math:`P(y_i^* \le y_i)`. The
    line is the distribution function of :math:`u` minus that of uniform numbers or, for coverage,
    the share of targets in central intervals minus the intervals' probability, which is below zero
    if intervals are too short. If a test rejects uniformity, the targets that contribute most are
    marked.

    All noise is drawn afresh.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample``, or its posterior.
    X : array_like or table, shape (n_obs, n_features)
        Inputs to which the network was not fitted: training targets are closer to their
        predictions.
    y : array_like or table, shape (n_obs,) or (n_obs, n_outputs)
        Targets of these rows: real numbers, counts, or ordered classes as an ordered
        ``pandas.Categorical``. NaN are left out. Row labels must match those of ``X``. A censored
        duration is first replaced by a predicted one that is longer.
    kind : {"pit", "coverage"}
        Quantiles of targets, or coverage of central intervals.
    model, inputs, num_samples, random_seed
        As for :func:`~pymc_nnsteps.predict`.
    output : str, optional
        Name of the observed variable of ``y``, if several depend on the inputs.
    backend : str
    **options
        Passed to ``arviz_plots.plot_ecdf_pit``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        If ``kind`` is invalid, if targets are classes without an order, if their shape differs from
        that of the predictions or their labels from those of ``X``, or as for
        :func:`~pymc_nnsteps.predict`.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> with nns.intermediate_noise_mlp(X[:30], X[:30, 0], hidden=(3,)) as model:
    ...     idata = pm.sample(50, tune=50, chains=2, cores=1, random_seed=1, progressbar=False)
    >>> plot = nns.plot_calibration(
    ...     idata, X[30:], X[30:, 0], model=model, random_seed=1, backend="none"
    ... )
    >>> "ecdf_lines" in plot.viz.children
    True
    """
    import arviz_plots

    require_choice("kind", kind, get_args(Kind))
    model = model_to_read(model)
    container = input_container("X", model, inputs, output)
    whole, *_ = read_inputs(model, container, gaps=False)
    observed = response_of(whole, container, named=output)
    is_ordered = bool(getattr(getattr(y, "dtype", None), "ordered", False))
    if not is_ordered:
        require_numbers("plot_calibration", whole, observed)
    drawn = predict(
        posterior_with_draws(idata),
        X,
        model=model,
        inputs=inputs,
        output=output,
        kind="response",
        num_samples=num_samples,
        random_seed=(rng := np.random.default_rng(random_seed)),
    )
    require_same_rows(X.get(container.name) if isinstance(X, dict) else X, y)
    y = _places_of(y, model) if is_ordered else y
    labels = drawn.indexes.get("output")
    targets = numbers("y", y, ("obs", "output")).arranged("y", labels).astype(float)
    if targets.shape not in (drawn.shape[2:], drawn.shape[2:-1] if drawn.shape[-1] == 1 else ()):
        raise ValueError(f"y must have shape {drawn.shape[2:]}; got {targets.shape}.")
    if observed.dtype.startswith("int") and not np.array_equal(targets, np.rint(targets), True):
        raise ValueError(f"y must hold whole numbers, as {observed.name} does; got others.")
    seen = ~np.isnan(targets.ravel())
    if not seen.any():
        raise ValueError("y has no targets to compare with; pass rows that have some.")
    values = drawn.values.reshape((-1, targets.size))[:, seen]
    below = (values < targets.ravel()[seen]).sum(axis=0)
    equal = (values == targets.ravel()[seen]).sum(axis=0)
    # Uniform among draws of the same law, and never 0 or 1, which a test of uniformity refuses.
    places = (below + rng.random(below.shape) * (equal + 1)) / (len(values) + 1)
    tree = xr.DataTree.from_dict({"places": xr.Dataset({str(observed.name): ("target", places)})})
    options["visuals"] = LABELS[kind] | options.get("visuals", {})
    draw_large(options, backend, 1)
    return arviz_plots.plot_ecdf_pit(
        tree, group="places", sample_dims=["target"], coverage=kind == "coverage", **options
    )


def _places_of(y: Any, model: pm.Model) -> NDArray[np.float64]:
    """Numbers of ordered labels among the model's classes, or among their own; NaN of none."""
    given = pd.Categorical(y)
    classes = model.coords.get("class") or model.coords.get("output")
    known = list(given.categories if classes is None else classes)
    unknown = [label for label in given.categories if label not in known]
    if unknown:
        raise ValueError(
            f"y has the classes {listed(unknown)}, but the model knows {listed(known)}; pass these."
        )
    codes = given.set_categories(known).codes.astype(float)
    return np.where(codes < 0, np.nan, codes)
