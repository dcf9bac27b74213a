"""Rows whose levels of embedded columns the model does not know.

A level has a row of the embedding, ``E[code]``. The row of a new level is drawn from the law that
the known ones have at each draw. Rows of data with new levels are evaluated once more, with
matrices that hold the rows of new levels in the places of known ones.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.search import depends_on
from pymc_nnsteps.prediction.columns import categories_of
from pymc_nnsteps.prediction.forward import ForwardPass
from pymc_nnsteps.prediction.new_groups import new_entries
from pymc_nnsteps.tables import Table

Arrays = Sequence[NDArray]


def embeddings(model: pm.Model, container: TensorSharedVariable) -> dict[str, TensorVariable]:
    """Matrices, by the columns of a data container whose levels have rows of them."""
    found: dict[str, TensorVariable] = {}
    columns = {f"{column}::E": column for column in categories_of(model, container)}
    for part in ancestors([*model.basic_RVs, *model.deterministics, *model.potentials]):
        for matrix in () if part.owner is None else part.owner.inputs[1:]:
            own = [each for name, each in columns.items() if str(matrix.name).endswith(name)]
            if own and matrix in model.free_RVs and depends_on(part, {container}):
                found[max(own, key=len)] = matrix
    return found


def parts_with_new_levels(
    table: Table,
    network: ForwardPass,
    container: TensorSharedVariable,
    rows: Arrays,
    draws: Arrays,
    model: pm.Model,
    posterior: xr.Dataset,
    rng: np.random.Generator,
) -> Iterator[tuple[NDArray, list[NDArray], list[NDArray]]]:
    """Numbers of rows of a table that have new levels, these rows, and draws to evaluate them."""
    matrices, places = embeddings(model, container), categories_of(model, container)
    inputs, weights = list(network.rows).index(container), list(network.weights)
    new = {str(column): each for column, each in table.new_levels.items()}
    codes = np.stack([pd.factorize(each)[0] for each in new.values()])
    drawn = [
        new_entries(posterior, model, matrices[column], own.max() + 1, rng)
        for column, own in zip(new, codes, strict=True)
    ]
    # As many new levels of a column as it has known ones at a time; none of it where it is -1.
    parts = codes // np.array([len(places[column]) for column in new])[:, None]
    for part in np.unique(parts[:, (parts >= 0).any(axis=0)], axis=1).T:
        at = np.flatnonzero((parts == part[:, None]).all(axis=0))
        of_rows, of_draws = [each[at] for each in rows], list(draws)
        for column, number, own, entries in zip(new, part, codes, drawn, strict=True):
            if number >= 0:
                weight, length = weights.index(matrices[column]), len(places[column])
                of_part = entries[:, number * length :][:, :length]
                of_draws[weight] = of_draws[weight].copy()
                of_draws[weight][:, : of_part.shape[1]] = of_part
                of_rows[inputs][:, places[column]] = np.eye(length)[own[at] % length]
        yield at, of_rows, of_draws
