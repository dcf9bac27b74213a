"""Whether a model's observations have the shape that its other data give them.

``pm.set_data`` exchanges inputs and targets one by one, as prediction demands; to sample, they
have to agree again.
"""

from collections.abc import Sequence

import pymc as pm
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.structure import parameters


def require_matching_data(model: pm.Model) -> None:
    """Check that observations have the shape that the data behind them give.

    Parameters
    ----------
    model : pm.Model

    Raises
    ------
    ValueError
        If the dimensions or the parameters of an observed variable have another shape than its
        observations, as far as shapes follow from the model's data alone.
    """
    for rv in model.observed_RVs:
        if not isinstance(rv, TensorVariable):
            continue
        value = model.rvs_to_values[rv]
        observed, *implied = _evaluated([value.shape, *_implied_shapes(rv)])
        for shape in implied:
            if not _fits(shape, observed):
                used = set(ancestors([rv, value]))
                names = " and ".join(data.name for data in model.data_vars if data in used)
                raise ValueError(
                    f"{rv.name} is observed with shape {tuple(observed)}, but the model's other "
                    f"data give it {tuple(shape)}; exchange {names} together, by one pm.set_data."
                )


def _implied_shapes(rv: TensorVariable) -> list[TensorVariable]:
    """Shape of ``rv`` by its dimensions and by each parameter."""
    op = rv.owner.op
    if not isinstance(op, RandomVariable) or op.ndim_supp > 0:
        return [rv.shape]
    pairs = zip(parameters(rv), op.ndims_params, strict=True)
    return [rv.shape, *(p.shape[: p.ndim - n_core] for p, n_core in pairs)]


def _evaluated(shapes: Sequence[TensorVariable]) -> list[list[int]]:
    """Values of shapes; nothing where one does not follow from data and constants."""
    graph = FunctionGraph(outputs=list(shapes), clone=True)
    rewrite_graph(graph, include=("ShapeOpt", "canonicalize"))
    known = [shape for shape in graph.outputs if _follows_from_data(shape)]
    values = iter(pytensor.function([], known, mode="FAST_COMPILE")())
    return [next(values).tolist() if shape in known else [] for shape in graph.outputs]


def _follows_from_data(shape: Variable) -> bool:
    return all(
        isinstance(variable, Constant | SharedVariable)
        if variable.owner is None
        else not isinstance(variable.owner.op, RandomVariable)
        for variable in ancestors([shape])
    )


def _fits(shape: Sequence[int], observed: Sequence[int]) -> bool:
    """Whether observations can be broadcast from ``shape``."""
    pairs = zip(reversed(shape), reversed(observed), strict=False)
    return all(length in (1, other) for length, other in pairs)
