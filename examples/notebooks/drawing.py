"""What the notebooks draw of models: their graphs, without the binaries that Graphviz needs."""

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Annotation
from pymc.model_graph import ModelGraph

COLORS = {"free": "white", "observed": "0.82", "deterministic": "white", "data": "#F0E442"}


def draw_graph(model: pm.Model, *, width: float = 7.0) -> None:
    """Draw a model's graph from left to right: an arrow leads to what a variable is stated by.

    Observed variables are grey, data are yellow, deterministic ones have dashed frames. The data
    that are observed are left out.
    """
    graph = ModelGraph(model)
    observed = {variable.name for variable in model.observed_RVs}
    # Graphviz has a meaning of its own for ":", for which PyMC writes "&" in edges.
    edges = ((a.replace("&", ":"), b.replace("&", ":")) for b, a in graph.edges())
    arrows = sorted(edge for edge in edges if edge[0] not in observed)
    names = [name for name in graph.vars_to_plot() if any(name in arrow for arrow in arrows)]
    columns = _columns(names, arrows)
    tallest = max(len(column) for column in columns)
    figure = plt.figure(figsize=(width, 0.8 * tallest + 0.2), layout="none")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-0.5, len(columns) - 0.5), ylim=(0, tallest))
    axes.set_axis_off()
    boxes = {}
    for x, column in enumerate(columns):
        for row, name in enumerate(column):
            y = (tallest + len(column)) / 2 - row - 0.5
            boxes[name] = _box(axes, model, name, x, y)
    for start, end in arrows:
        axes.add_patch(
            FancyArrowPatch(
                boxes[start].xyann,
                boxes[end].xyann,
                patchA=boxes[start].get_bbox_patch(),
                patchB=boxes[end].get_bbox_patch(),
                arrowstyle="-|>",
                mutation_scale=12,
                shrinkA=1,
                shrinkB=1,
                color="0.4",
                zorder=3,  # after the boxes, which learn their places when they are drawn
            )
        )
    plt.show()


def _columns(names: list[str], arrows: list[tuple[str, str]]) -> list[list[str]]:
    """Names by the number of arrows to the end, parents in the order of their children."""
    height = dict.fromkeys(names, 0)
    for _ in names:
        for start, end in arrows:
            height[start] = max(height[start], height[end] + 1)
    columns = [[n for n in names if height[n] == h] for h in range(max(height.values()), -1, -1)]
    place = {name: (len(c) - 1) / 2 - i for c in columns for i, name in enumerate(c)}
    for column in reversed(columns):
        below = {n: [place[end] for start, end in arrows if start == n] for n in column}
        column.sort(key=lambda n: -np.mean(below[n]) if below[n] else -place[n])
        place |= {name: (len(column) - 1) / 2 - i for i, name in enumerate(column)}
    return columns


def _box(axes: Axes, model: pm.Model, name: str, x: float, y: float) -> Annotation:
    variable = model[name]
    if variable in model.free_RVs or variable in model.observed_RVs:
        kind = "free" if variable in model.free_RVs else "observed"
        law = str(variable.owner.op.name or variable.owner.op).capitalize()
    else:
        kind = "data" if variable in model.data_vars else "deterministic"
        law = "data" if kind == "data" else "computed"
    shape = variable.shape.eval()
    dims = model.named_vars_to_dims.get(name, [None] * len(shape))
    sizes = ", ".join(f"{dim or ''} {size}".strip() for dim, size in zip(dims, shape, strict=True))
    bold = name.replace("_", r"\_").replace(":", "{:}")
    return axes.annotate(
        f"$\\bf{{{bold}}}$\n{law}\n{sizes}".rstrip(),
        (x, y),
        xytext=(x, y),
        ha="center",
        va="center",
        fontsize=9,
        bbox={
            "boxstyle": "round,pad=0.35" if kind in ("free", "observed") else "square,pad=0.35",
            "facecolor": COLORS[kind],
            "edgecolor": "0.3",
            "linestyle": "--" if kind == "deterministic" else "-",
        },
    )
