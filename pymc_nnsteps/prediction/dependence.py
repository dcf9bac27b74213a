"""How a network depends on one input or two, averaged over the others as they are in the data."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.tensor.sharedvar import TensorSharedVariable

from pymc_nnsteps.arguments import positive_integer, positive_number
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.prediction.imputation import with_missing
from pymc_nnsteps.prediction.new_inputs import Kind, input_container, predict
from pymc_nnsteps.prediction.posterior import SAMPLES, posterior_with_draws, thinned
from pymc_nnsteps.prediction.row_data import Column, columns_in, find_column, sampled_row_data

Features = int | str | Sequence[int | str]

PARTS = ("mean", "lower", "upper")
"""Variables of a result."""

POINTS = {1: 31, 2: 15}
"""Default number of grid values of each input, by the number of inputs."""

NUMBERS = 2**25
"""Upper limit of the number of function values held in memory."""


@one_thread
def partial_dependence(
    idata: Any,
    features: Features,
    *,
    points: int | None = None,
    rows: int = 500,
    draws: int = 200,
    prob: float = 0.9,
    kind: Kind = "function",
    output: str | None = None,
    random_seed: Any = None,
    model: pm.Model | None = None,
    inputs: str | None = None,
) -> xr.Dataset:
    r"""Average predictions over the data, with one or two inputs set to each value of a grid.

    .. math:: \bar f(v) = \frac{1}{n} \sum_{i=1}^n f(x_i \text{ with } x_{ij} = v)

    is one function for each draw of the weights. If inputs depend on each other, the average
    includes rows that are unlike any data. The data are those with which the model was sampled,
    stored in the result of ``pm.sample``; with the posterior alone, those that the model currently
    holds.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample``, or its posterior.
    features : int or str, or a pair of these
        Columns of the inputs, or their names.
    points : int, optional
        Number of values of each input, evenly spaced over the range of the data, and rounded if
        these are of an integer type; all values of the data, if there are no more. The default is
        31 for one input and 15 for each of two. For categories all levels are shown.
    rows : int
        Number of rows of the data to average over, evenly spaced; all if there are fewer.
    draws : int
        Maximal number of posterior draws to use, evenly spaced along the chains.
    prob : float
        Posterior probability of the bands, with equal tails.
    kind : {"function", "probability", "response"}
        Quantity that is averaged, as for :func:`~pymc_nnsteps.predict`. For classes, the average of
        ``"probability"`` is the expected share of each class.
    random_seed : int, Generator or None
        Seed of noise, if there is any.
    model, inputs, output
        As for :func:`~pymc_nnsteps.predict`. Other data of the rows, such as their groups, are left
        unchanged; ``output="f"`` selects the network alone.

    Returns
    -------
    Dataset, dims (first feature, second feature if there is one, output)
        ``mean``, and ``lower`` and ``upper`` ends of bands, of the values that
        :func:`~pymc_nnsteps.predict` returns. Coordinates are the values of the inputs and, as
        ``data``, their values in the rows averaged over (for levels, their numbers). The attribute
        ``of`` is the name of the averaged quantity, and ``inputs`` has those of all inputs.

    Raises
    ------
    ValueError
        If there are no such columns, if a number is invalid, or as for
        :func:`~pymc_nnsteps.predict`.

    References
    ----------
    Friedman, *Greedy Function Approximation: A Gradient Boosting Machine*, Annals of Statistics
    29 (2001), Section 8.2.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1) as model:
    ...     idata = pm.sample(50, tune=20, chains=2, cores=1, random_seed=1, progressbar=False)
    >>> dependence = nns.partial_dependence(idata, 0, points=5, model=model)
    >>> dependence["mean"].sizes
    Frozen({'inputs[0]': 5, 'output': 1})
    """
    rows = positive_integer("rows", rows)
    prob = positive_number("prob", prob, below=1)
    model = model_to_read(model)
    container = input_container("features", model, inputs, output)
    wanted = list(features) if isinstance(features, list | tuple | np.ndarray) else [features]
    columns = [find_column("features", model, container, each) for each in wanted]
    if len(columns) not in (1, 2) or columns[0] in columns[1:]:
        raise ValueError(f"features must be a column, or a pair of two; got {features!r}.")
    points = POINTS[len(columns)] if points is None else positive_integer("points", points)
    sampled = sampled_row_data(idata, model, container)
    X = sampled[container]
    grids = [_grid(column, X, points) for column in columns]
    chosen = np.linspace(0, len(X) - 1, min(rows, len(X))).round().astype(int)
    data = {each: values[chosen] for each, values in with_missing(model, sampled).items()}
    posterior = thinned(posterior_with_draws(idata), draws, "draws")
    settings = {"model": model, "inputs": container.name, "kind": kind, "random_seed": random_seed}
    predicted = partial(predict, posterior, output=output, **settings)
    f = _averages(predicted, posterior, data, container, columns, grids)
    tails = [(1 - prob) / 2, (1 + prob) / 2]
    lower, upper = f.quantile(tails, SAMPLES).drop_vars("quantile")
    found = xr.Dataset(dict(zip(PARTS, (f.mean(SAMPLES), lower, upper), strict=True)))
    values = np.stack([column.of(data[container]) for column in columns], axis=1)
    marks = (("data_row", "data_column"), values)
    names = [column.name for column in columns_in(model, container)]
    return found.assign_coords(data=marks).assign_attrs(of=f.name, inputs=names, prob=prob)


def _grid(column: Column, X: NDArray[Any], points: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Values to set an input to, and what its places hold there."""
    known = np.unique(column.of(X))
    if column.levels is None and len(known) <= points:
        return known, known[:, None]
    return column.spread(X, points)


def _averages(
    predicted: Callable[[dict[Variable, NDArray[Any]]], xr.DataArray],
    posterior: xr.Dataset,
    data: dict[Variable, NDArray[Any]],
    container: TensorSharedVariable,
    columns: Sequence[Column],
    grids: Sequence[tuple[NDArray[Any], NDArray[Any]]],
) -> xr.DataArray:
    """Means over the rows of the data, dims (chain, draw, first, second if any, output)."""
    numbers = np.indices([len(values) for values, _ in grids]).reshape((len(grids), -1))
    held = [held[each] for (_, held), each in zip(grids, numbers, strict=True)]
    places = np.concatenate(held, axis=1)
    positions = [place for column in columns for place in column.places]
    n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    n_rows = len(data[container])
    at_once = max(1, NUMBERS // (n_rows * n_draws))
    parts = []
    for first in range(0, len(places), at_once):
        some = places[first : first + at_once]
        rows = np.tile(np.arange(n_rows), len(some))
        there = {each: values[rows] for each, values in data.items()}
        there[container][:, positions] = np.repeat(some, n_rows, axis=0)
        parts.append(predicted(there).coarsen(obs=n_rows).mean())
    coords = {column.name: values for column, (values, _) in zip(columns, grids, strict=True)}
    f = xr.concat(parts, dim="obs")
    split = f.values.reshape((*f.shape[:2], *map(len, coords.values()), f.sizes["output"]))
    kept = {dim: f[dim] for dim in (*SAMPLES, "output") if dim in f.coords}
    dims = (*SAMPLES, *coords, "output")
    return xr.DataArray(split, dims=dims, coords={**coords, **kept}, name=f.name)
