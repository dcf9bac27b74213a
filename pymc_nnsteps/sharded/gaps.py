"""Missing inputs of a shard: the model of its rows, whose gaps are in other places.

Which entries are missing is a part of a model: constants pick the rows of its law for them and for
the observed entries. The model of a shard has other constants, and is otherwise the same.
"""

from collections.abc import Mapping
from functools import partial
from operator import is_

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Apply, Variable

from pymc_nnsteps.graphs.initial_values import begin_at
from pymc_nnsteps.graphs.plain import added, restated
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.prediction.imputation import imputations_of


def with_gaps(model: pm.Model, missing: Mapping[str, NDArray[np.bool_]]) -> pm.Model:
    """The model of the rows that its containers hold, given where entries of each are missing."""
    made: dict[Variable, Variable] = {}
    stated: dict[Apply, tuple[int, NDArray[np.intp]]] = {}  # an input of a node, and its value
    tables = [each for each in imputations_of(model) if each.container.name in missing]
    for table in tables:
        inputs = table.inputs.eval(mode="FAST_COMPILE")
        for column, rv in zip(table.columns, table.observed, strict=True):
            is_gap = missing[str(table.container.name)][:, column.number]
            [gaps], [seen] = np.nonzero(is_gap), np.nonzero(~is_gap)
            stated[parameters(column.entries)[0].owner] = 1, gaps
            stated[column.after.owner] = 2, gaps
            stated[parameters(rv)[0].owner] = 1, seen
            stated[rv.owner] = 1, np.array([len(seen)])
            made[model.rvs_to_values[rv]] = pt.constant(inputs[seen, column.number])

    def outputs(node: Apply, given: list[Variable]) -> list[Variable]:
        if node in stated:
            place, value = stated[node]
            given[place] = pt.constant(value)
        if all(map(is_, given, node.inputs)):
            return node.outputs
        return node.clone_with_new_inputs(given, strict=False).outputs

    found = pm.Model(model=None)
    found._coords, found._dim_lengths = model._coords, model._dim_lengths
    entries = {entry for table in tables for entry in table.entries}
    for variable in model.named_vars.values():
        new = made[variable] = added(
            found, model, variable, made, partial(restated, outputs=outputs)
        )
        if variable in entries:
            begin_at(new, None)
    return found
