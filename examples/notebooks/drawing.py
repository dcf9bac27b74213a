"""What the notebooks draw of models: their graphs, without the binaries that Graphviz needs."""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path
from matplotlib.text import Annotation
from pymc.model_graph import ModelGraph

COLORS = {"free": "white", "observed": "0.82", "deterministic": "white", "data": "#F0E442"}
LANE_HEIGHT = 0.35
"""Of a lane through a column, where a box has 1."""
HEAD = 0.1
"""Room for the heads of arrows before a column, where the distance of columns is 1."""

Node = tuple[str, int]
"""A name and a column: its box, or the lane of its arrows to later columns."""


@dataclass
class Layout:
    """Nodes by column, the links between neighbouring columns, and the height of each node."""

    columns: list[list[Node]]
    links: list[tuple[Node, Node]]
    heights: dict[Node, float]

    @property
    def tallest(self) -> float:
        """The largest height of a column."""
        return max(sum(self.heights[node] for node in column) for column in self.columns)

    def places(self) -> dict[Node, float]:
        """The height of each node's centre, with columns centred about zero."""
        found = {}
        for column in self.columns:
            top = sum(self.heights[node] for node in column) / 2
            for node in column:
                found[node] = top - self.heights[node] / 2
                top -= self.heights[node]
        return found


def draw_graph(model: pm.Model, *, width: float = 7.0) -> None:
    """Draw a model's graph from left to right: an arrow leads to what a variable is stated by.

    Observed variables are grey, data are yellow, deterministic ones have dashed frames. The data
    that are observed are left out. Arrows that pass a column have a lane between its boxes.
    """
    graph = ModelGraph(model)
    observed = {variable.name for variable in model.observed_RVs}
    # Graphviz has a meaning of its own for ":", for which PyMC writes "&" in edges.
    edges = ((a.replace("&", ":"), b.replace("&", ":")) for b, a in graph.edges())
    arrows = sorted(edge for edge in edges if edge[0] not in observed)
    names = [name for name in graph.vars_to_plot() if any(name in arrow for arrow in arrows)]
    layout = _layout(names, arrows)
    tallest = layout.tallest
    figure = plt.figure(figsize=(width, 0.8 * tallest + 0.2), layout="none")
    limits = {"xlim": (-0.5, len(layout.columns) - 0.5), "ylim": (-tallest / 2, tallest / 2)}
    axes = figure.add_axes((0, 0, 1, 1), **limits)
    axes.set_axis_off()
    places = layout.places()
    boxes = {n: _box(axes, model, n[0], n[1], places[n]) for n in places if layout.heights[n] == 1}
    _draw_links(axes, layout, places, boxes)
    plt.show()


def _layout(names: list[str], arrows: list[tuple[str, str]]) -> Layout:
    """Columns by the number of arrows to the end, with lanes, in an order with few crossings."""
    to_end = dict.fromkeys(names, 0)
    for _ in names:
        for start, end in arrows:
            to_end[start] = max(to_end[start], to_end[end] + 1)
    last = max(to_end.values())
    column = {name: last - steps for name, steps in to_end.items()}
    heights: dict[Node, float] = {(name, column[name]): 1.0 for name in names}
    links = set()
    for start, end in arrows:
        for at in range(column[start], column[end]):
            heights.setdefault((start, at), LANE_HEIGHT)
            to = end if at + 1 == column[end] else start
            links.add(((start, at), (to, at + 1)))
    columns = [[node for node in heights if node[1] == at] for at in range(last + 1)]
    layout = Layout(columns, sorted(links), heights)
    for _ in range(4):
        for at in reversed(range(last)):
            _sort(layout, at, {a: [d for c, d in links if c == a] for a in columns[at]})
        for at in range(1, last + 1):
            _sort(layout, at, {b: [c for c, d in links if d == b] for b in columns[at]})
    return layout


def _sort(layout: Layout, at: int, neighbours: dict[Node, list[Node]]) -> None:
    """Sort a column by the mean places of its neighbours in another column."""
    places = layout.places()
    layout.columns[at].sort(
        key=lambda node: -np.mean([places[other] for other in neighbours[node] or [node]])
    )


def _draw_links(
    axes: Axes, layout: Layout, places: dict[Node, float], boxes: dict[Node, Annotation]
) -> None:
    """Draw arrows in the gaps between columns, and lanes through the columns."""
    axes.figure.canvas.draw()  # boxes learn their places when they are drawn
    inverse = axes.transData.inverted()
    sides = {}
    for node, box in boxes.items():
        x, _ = inverse.transform(box.get_bbox_patch().get_window_extent()).T
        sides[node] = (x[0], x[1])
    edges = []
    for column in layout.columns:
        left, right = zip(*(sides[node] for node in column if node in sides), strict=True)
        edges.append((min(left) - HEAD, max(right)))
    line = {"color": "0.4", "linewidth": 1.0, "joinstyle": "round"}
    for node in places.keys() - boxes.keys():
        axes.plot(edges[node[1]], [places[node]] * 2, color="0.4", lw=1.0)
    for start, end in layout.links:
        leaves = sides[start][1] if start in boxes else edges[start[1]][1]
        arrives = sides[end][0] if end in boxes else edges[end[1]][0]
        corners = [
            (leaves, places[start]),
            (edges[start[1]][1], places[start]),
            (edges[end[1]][0], places[end]),
            (arrives, places[end]),
        ]
        style = "-|>" if end in boxes else "-"
        axes.add_patch(
            FancyArrowPatch(path=Path(corners), arrowstyle=style, mutation_scale=10, **line)
        )


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
