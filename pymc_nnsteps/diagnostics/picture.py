"""A picture of a network: its layers, noise and scales, and what is drawn with what."""

from collections.abc import Collection
from itertools import pairwise
from typing import Any

import pymc as pm
from pymc.distributions.transforms import LogExpM1, LogTransform
from pymc.model_graph import NodeType
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import distribution
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.graphs.search import depends_on
from pymc_nnsteps.laws.conditional import Move
from pymc_nnsteps.moves.plan import Options, Plan
from pymc_nnsteps.steps.explanation import planned

LAYER, SCALE, OTHER = "#cfe2f3", "#d9ead3", "#fff2cc"
"""Fills of variables."""

JOINT, MOVE = "#1f77b4", "#d62728"
"""Lines between variables that are drawn jointly, and that are moved together."""


def plot_network(model: pm.Model | None = None) -> Any:
    """Show a network as a graph, with the conditional or step of each variable.

    The graph is that of ``pm.model_to_graphviz``. Blue nodes are layers: variables that depend on a
    data container. Green ones are noise and other scales: positive variables. Yellow ones are
    weights and all other variables. The last line of a node is its full conditional, or the step
    that draws it if this is not Gibbs. Dashed lines join variables that Gibbs draws together: blue
    lines in one draw, red lines in a joint move.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context if not given.

    Returns
    -------
    graphviz.Digraph
        Notebooks display it, and ``.render("network", format="svg")`` writes it to a file. Both
        require the program Graphviz as well as the Python package.

    Raises
    ------
    ImportError
        If the package ``graphviz`` is not installed.
    ValueError
        If data do not fit their distribution.

    Examples
    --------
    >>> import numpy as np, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> graph = nns.plot_network(nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), sigma=0.1))
    >>> [line.strip() for line in graph.body if "W1 ->" in line]
    ['W1 -> Z2', 'W1 -> b1 [color="#d62728" constraint=false dir=none style=dashed]']
    """
    model = model_to_read(model)
    plan, beside = planned(model, Options())
    steps = {rv: step for rv, step, _ in beside}
    drawn = {name: law or "" for name, law, _ in plan.explanation.rows}
    drawn |= {str(rv.name): step for rv, step in steps.items()}

    def node(rv: TensorVariable) -> dict[str, str]:
        label = f"{rv.name}\n{distribution(rv)}\n{drawn[str(rv.name)]}"
        return {
            "shape": "ellipse",
            "style": "filled",
            "fillcolor": _fill(model, rv),
            "label": label,
        }

    graph = pm.model_to_graphviz(model, node_formatters={NodeType.FREE_RV: node})
    for (one, other), color in _lines(plan, steps).items():
        graph.edge(one, other, color=color, style="dashed", dir="none", constraint="false")
    return graph


def _lines(plan: Plan, others: Collection[TensorVariable]) -> dict[tuple[str, str], str]:
    """Colours of lines between nodes: moves beside other draws, joint draws, joint moves."""
    lines: dict[tuple[str, str], str] = {}
    for draw in sorted(plan.sweep, key=lambda draw: (not draw.supplements, isinstance(draw, Move))):
        if not any(rv in others for rv in draw.draws):
            color = MOVE if draw.supplements or isinstance(draw, Move) else JOINT
            for pair in pairwise(draw.draws):
                one, other = sorted(str(rv.name).replace(":", "&") for rv in pair)
                lines[one, other] = color
    return lines


def _fill(model: pm.Model, rv: TensorVariable) -> str:
    if depends_on(rv, set(model.data_vars)):
        return LAYER
    is_positive = isinstance(model.rvs_to_transforms[rv], LogTransform | LogExpM1)
    return SCALE if is_positive else OTHER
