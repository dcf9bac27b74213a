"""Pictures of the table: calibration, reliability, and cost against score."""

from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tabular.predictions import LEVELS


def of(rows: pd.DataFrame, kind: str) -> dict[str, Figure]:
    """Pictures of results by the names of their files.

    Parameters
    ----------
    rows : DataFrame
        Results of ``tabular_benchmark.fit``, one row each.
    kind : {"real", "classes"}
    """
    if kind == "classes":
        return {
            "reliability": each_table(rows, reliability),
            "cost_classes": each_table(rows, cost),
        }
    return {"calibration": each_table(rows, calibration), "cost_real": each_table(rows, cost)}


def each_table(rows: pd.DataFrame, draw: Callable[..., None]) -> Figure:
    """One panel for each table, one colour for each method."""
    tables = list(dict.fromkeys(rows["data"]))
    n_rows = -(-len(tables) // 2)
    figure = plt.figure(figsize=(7.5, 1.2 + 2.9 * n_rows), layout="constrained")
    axes = [figure.add_subplot(n_rows, 2, k + 1) for k in range(len(tables))]
    methods = list(dict.fromkeys(rows["method"]))
    for ax, table in zip(axes, tables, strict=True):
        for number, method in enumerate(methods):
            found = rows[(rows["data"] == table) & (rows["method"] == method)]
            if len(found):
                marker = "osD^"[number // 10 % 4]
                draw(ax, found, label=method, color=f"C{number % 10}", marker=marker)
        ax.set_title(table)
    handles = {
        label: handle
        for ax in axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    return figure


def calibration(ax: Axes, rows: pd.DataFrame, **style: object) -> None:
    """Coverage of central intervals, less their probability."""
    excess = np.mean(rows["coverage"].tolist(), axis=0) - LEVELS
    ax.axhline(0, color="black", lw=0.5)
    ax.plot(LEVELS, excess, lw=1, ms=4, **style)
    ax.set(xlabel="probability of the interval", ylabel="coverage minus probability")


def reliability(ax: Axes, rows: pd.DataFrame, **style: object) -> None:
    """How often the most probable class is right, against its probability."""
    count, confidence, right = np.moveaxis(np.array(rows["reliability"].tolist()), 2, 0)
    total = count.sum(axis=0)
    seen = total > 0
    x, y = ((count * values).sum(axis=0)[seen] / total[seen] for values in (confidence, right))
    ax.axline((1, 1), slope=1, color="black", lw=0.5)
    ax.plot(x, y, lw=1, ms=4, **style)
    ax.set(xlabel="probability of the most probable class", ylabel="how often it is right")


def cost(ax: Axes, rows: pd.DataFrame, **style: object) -> None:
    """Negative log density against CPU seconds."""
    ax.plot(rows["cpu_seconds"].mean(), rows["nld"].mean(), ls="", ms=7, **style)
    ax.set(xlabel="CPU seconds", ylabel="negative log density", xscale="log")
