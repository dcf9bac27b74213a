"""Acceptance and effective sample size of PCN, PCNL and MALA as a network grows wider.

The experiment of Pezzetti, Favaro and Peluchetti, *Function-Space MCMC for Bayesian Wide Neural
Networks* (2025), at the scale of a laptop: one hidden layer, the first 256 of scikit-learn's
digits, the whitened posterior of ``nns.wide_mlp`` in its default setting. Each chain moves the
hidden weights and ``phi`` together, from a start that a tuned PCNL chain has reached, one for
each width.

    python examples/wide_acceptance.py
    python examples/wide_acceptance.py --widths 512 1024 --steps 500
    python examples/wide_acceptance.py --full

The first takes 10 to 12 minutes on two cores; ``--full`` adds width 8192 and step size 0.01 to
chains 60 times as long, which takes about a day. PCN makes three times as many steps as the
others, whose steps cost three times as much. Chains run beside each other on a local Dask cluster.
What is finished is kept in the output folder (``nns.lab.experiments``): a run that was interrupted
goes on from there when it is started again.

Written to the output folder (``wide_acceptance`` beside this script):

- ``results.csv``, one row per configuration. ``acceptance`` with its Monte Carlo error; ESS *per
  step* of function values (the median over ten outputs at five images), of the hidden weights
  along three principal axes (the smallest of the three) and of the log-likelihood; CPU seconds
  per step. Autocorrelations are summed up to the first negative one. Where ESS is below 10, or
  fewer than 10 / step_size^2 proposals were accepted (a chain that hardly moves looks as if it
  mixed), the cell is empty and ``unreliable`` names the quantity.
- ``figure.png``: acceptance and ESS per step of function values against width. Hollow markers
  stand at an ESS of 10 where the chain is too short to tell.
- ``warm_start_WIDTH.npz``: where the chains of a width start, and its principal axes.

How to read it, and where digits differ from the paper's CIFAR-10:

- With 64 inputs for 3072 there are 75 parameters per unit and not 3083. MALA, which pays for the
  dimension, therefore declines clearly at step size 0.2 only, and from width 1024 on: up to there
  it gains, as all do, from a posterior that comes closer to the prior.
- Chains are hundreds of times shorter than the paper's million steps. Acceptance needs few of
  them, but varies with the log-likelihood, which is slow at width 512: errors are too small there.
  ESS is a rough figure, and often not one at all.
- Per step is not per second: a step with a gradient costs about three times one without. The
  last table compares at equal time, and there PCNL stays ahead of PCN up to some thousands of
  units.
- The ESS of function values with a readout layer drawn afresh for each draw
  (``nns.Gibbs([phi])``, see ``nns.wide_mlp``) would be close to the number of draws even where
  the hidden layer is stuck. That is why ``phi`` moves with the chain here, and why the hidden
  weights and the log-likelihood, which depends on them alone, have columns of their own.
- Principal axes are those of the tuned chain, the same for all methods. A chain's scores on its
  own principal axes say nothing where there are more weights than draws: the axes are then the
  directions in which that chain happened to drift, and its ESS is a handful however well it
  mixes.
"""

import argparse
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from arviz_stats.base import array_stats
from distributed import Client
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import pymc_nnsteps as nns

SEED = 0
N_IMAGES = 256
SHOWN = slice(None, None, 60)
"""Images whose outputs are the function values: five of 256."""

SIZE_ARGUMENT = {"PCN": "beta", "PCNL": "beta", "MALA": "step_size"}
PAPER = {"PCN": "rises", "PCNL": "rises", "MALA": "falls"}
"""What the paper finds about acceptance as the width grows."""
COLORS = {"PCN": "tab:blue", "PCNL": "tab:green", "MALA": "tab:red"}
LINES = ("-", "--", ":", "-.")

BLOCK = 500
"""Steps of a warm start between looks at whether the log-likelihood still rises."""
SNAPSHOTS, SNAPSHOT_EVERY, N_AXES = 100, 5, 3

MIN_ESS = 10
ESS_COLUMNS = ("ess_per_step_f", "ess_per_step_axes", "ess_per_step_log_likelihood")

Point = dict[str, np.ndarray]
Row = dict[str, Any]
Observed = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Function values, scores of the hidden weights on the axes, log-likelihood."""


@dataclass(frozen=True)
class Configuration:
    """One chain: the first columns of its row."""

    method: str
    step_size: float
    width: int
    steps: int

    @property
    def every(self) -> int:
        """Steps between records, fewer than a chain at this step size takes to forget."""
        return max(1, round(0.4 / self.step_size**2))

    @property
    def cost(self) -> float:
        """CPU time, up to a factor."""
        return (self.width + 512) * self.steps * (1 if self.method == "PCN" else 3)


def main() -> None:
    arguments = parse_arguments()
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    grid = [
        Configuration(method, size, width, arguments.steps * (3 if method == "PCN" else 1))
        for method in SIZE_ARGUMENT
        for size in dict.fromkeys(arguments.sizes)
        for width in sorted(set(arguments.widths))
    ]
    results = rows_of(grid, folder, arguments.processes)
    results.to_csv(folder / "results.csv", index=False, float_format="%.5g")
    plot(results).savefig(folder / "figure.png", dpi=150)
    report(results)
    print(f"\nresults.csv and figure.png are in {folder}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    output = Path(__file__).parent / "wide_acceptance"
    parser.add_argument(
        "--widths", type=int, nargs="+", default=[512, 1024, 2048, 4096], help="of the hidden layer"
    )
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.2, 0.1], help="step sizes")
    parser.add_argument("--steps", type=int, default=1600, help="PCN makes three times as many")
    parser.add_argument("--output", type=Path, default=output, help="folder, made if need be")
    parser.add_argument("--processes", type=int, default=2, help="chains at a time")
    parser.add_argument("--full", action="store_true", help="the long run, about a day")
    if parser.parse_known_args()[0].full:
        parser.set_defaults(
            widths=[512, 1024, 2048, 4096, 8192], sizes=[0.2, 0.1, 0.01], steps=100_000
        )
    return parser.parse_args()


# Work and where it is kept


def rows_of(grid: Sequence[Configuration], folder: Path, processes: int) -> pd.DataFrame:
    """Results of ``grid``, in its order; chains are run beside each other, the longest first."""
    widths = sorted({configuration.width for configuration in grid}, reverse=True)
    settings = [asdict(c) for c in sorted(grid, key=lambda c: c.cost, reverse=True)]
    with Client(n_workers=processes, threads_per_worker=1) as client:
        nns.lab.experiments(
            partial(make_warm_start, folder),
            [{"width": width} for width in widths],
            store=folder / "warm_starts",
            client=client,
        )
        chains = partial(run, folder)
        rows = nns.lab.experiments(chains, settings, store=folder / "chains", client=client)
    return pd.DataFrame(map(asdict, grid)).merge(rows)


def quiet() -> None:
    logging.getLogger("pytensor.tensor.blas").setLevel(logging.ERROR)


def warm_start_path(folder: Path, width: int) -> Path:
    return folder / f"warm_start_{width}.npz"


# Chains


def network(width: int) -> pm.Model:
    X, labels = load_digits(return_X_y=True)
    X = X[:N_IMAGES]
    Y = nns.models.one_hot(labels[:N_IMAGES], n_classes=10)
    return nns.wide_mlp((X - X.mean()) / X.std(), Y, hidden=(width,), start="prior")


def make_warm_start(folder: Path, width: int) -> Row:
    """Save where a tuned chain is after the log-likelihood has levelled off, and its axes."""
    quiet()
    model = network(width)
    step = nns.PCNL(model=model, rng=np.random.default_rng([SEED, width]))
    point = model.initial_point(SEED)
    before, rises = np.array(-np.inf), True
    while rises:
        point, values = moved(step, point, BLOCK)
        rises = bool(values.mean() > before.mean() + values.std())
        before = values
    step.stop_tuning()
    snapshots = np.empty((SNAPSHOTS, point["W1"].size), "float32")
    for snapshot in snapshots:
        point, _ = moved(step, point, SNAPSHOT_EVERY)
        snapshot[:] = point["W1"].ravel()
    np.savez(warm_start_path(folder, width), axes=principal_axes(snapshots), **point)
    return {"log_likelihood": float(before.mean())}


def moved(step: nns.PCNL, point: Point, n_steps: int) -> tuple[Point, np.ndarray]:
    """The point some steps later, and the log-likelihoods on the way."""
    values = np.empty(n_steps)
    for i in range(n_steps):
        point, [stats] = step.step(point)
        values[i] = stats["log_likelihood"]
    return point, values


def principal_axes(snapshots: np.ndarray) -> np.ndarray:
    """The first principal axes, by the Gram matrix of the snapshots."""
    centred = snapshots - snapshots.mean(axis=0)
    _, vectors = np.linalg.eigh(centred @ centred.T)
    axes = vectors[:, -N_AXES:].T @ centred
    return axes / np.linalg.norm(axes, axis=1, keepdims=True)


def run(folder: Path, **setting: Any) -> Row:
    """Run one chain and say what came of it."""
    quiet()
    configuration = Configuration(**setting)
    method, size, width = configuration.method, configuration.step_size, configuration.width
    model = network(width)
    seed = [SEED, width, list(SIZE_ARGUMENT).index(method), round(1e6 * size)]
    step = getattr(nns, method)(
        **{SIZE_ARGUMENT[method]: size},
        steps=configuration.every,
        model=model,
        rng=np.random.default_rng(seed),
    )
    with np.load(warm_start_path(folder, width)) as saved:
        point = dict(saved)
    observe = observables(model, point.pop("axes").astype("float64"))
    records, acceptance, seconds = [], [], 0.0
    for _ in range(-(-configuration.steps // configuration.every)):
        begin = process_time()
        point, [stats] = step.step(point)
        seconds += process_time() - begin
        acceptance.append(stats["acceptance_probability"])
        records.append(observe(point))
    n_steps = len(records) * configuration.every
    readable = n_steps * np.mean(acceptance) >= 10 / size**2
    return {
        **acceptance_and_error(np.array(acceptance)),
        **effective_sizes(records, n_steps, readable),
        "mean_log_likelihood": np.mean([log_likelihood for _, _, log_likelihood in records]),
        "cpu_seconds_per_step": seconds / n_steps,
    }


def observables(model: pm.Model, axes: np.ndarray) -> Callable[[Point], Observed]:
    """What is recorded of a point."""
    [f] = model.replace_rvs_by_values([model["f"][SHOWN]])
    function = model.compile_fn([f, model.datalogp], mode="CVM")

    def observe(point: Point) -> Observed:
        values, log_likelihood = function(point)
        return values.ravel(), axes @ point["W1"].ravel(), log_likelihood.ravel()

    return observe


# Numbers from a chain


def acceptance_and_error(acceptance: np.ndarray) -> Row:
    """Mean and Monte Carlo error."""
    [size] = effective_size(acceptance[None])
    return {
        "acceptance": acceptance.mean(),
        "acceptance_error": acceptance.std() / np.sqrt(size),
    }


def effective_sizes(records: Sequence[Observed], n_steps: int, readable: bool) -> Row:
    """ESS per step of what was recorded, and which of these numbers are left out."""
    f, axes, log_likelihood = (
        effective_size(np.array(values).T) for values in zip(*records, strict=True)
    )
    sizes = dict(zip(ESS_COLUMNS, (np.median(f), axes.min(), log_likelihood.min()), strict=True))
    reliable = {name: readable and size >= MIN_ESS for name, size in sizes.items()}
    row: Row = {name: size / n_steps if reliable[name] else np.nan for name, size in sizes.items()}
    missing = [name.removeprefix("ess_per_step_") for name in sizes if not reliable[name]]
    return row | {"unreliable": " ".join(missing)}


def effective_size(values: np.ndarray) -> np.ndarray:
    """ESS of each row: autocorrelations summed up to the first negative one, as in the paper."""
    correlations = array_stats.autocorr(values)
    before = np.cumsum(correlations < 0, axis=-1) == 0
    return values.shape[-1] / (2 * np.sum(correlations, axis=-1, where=before) - 1)


# What is shown


def plot(results: pd.DataFrame) -> Figure:
    """Acceptance, and ESS per step of function values, against width."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    lines = dict(zip(sorted(set(results["step_size"]))[::-1], LINES, strict=False))
    for (method, size), rows in results.groupby(["method", "step_size"], sort=False):
        style = {"color": COLORS[method], "linestyle": lines[size]}
        left.plot("width", "acceptance", marker="o", data=rows, **style, label=f"{method} {size:g}")
        right.plot("width", "ess_per_step_f", marker="o", data=rows, **style)
        unknown = rows[rows["ess_per_step_f"].isna()]
        right.plot(
            unknown["width"], MIN_ESS / unknown["steps"], "o", mfc="none", color=COLORS[method]
        )
    left.set(ylabel="acceptance", ylim=(0, 1.02))
    right.set(ylabel="ESS per step of function values (hollow: not known)", yscale="log")
    for ax in (left, right):
        mark_widths(ax, sorted(set(results["width"])))
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


def mark_widths(ax: Axes, widths: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(widths, map(str, widths))
    ax.set_xlabel("width")
    ax.grid(alpha=0.3)


def report(results: pd.DataFrame) -> None:
    """Print tables of what was seen, and what the paper expects."""
    of_curve = results.groupby(["method", "step_size"])
    acceptance = by_width(results, results["acceptance"]).map("{:.3f}".format)
    acceptance["here"] = of_curve[["acceptance", "acceptance_error"]].apply(direction)
    acceptance["paper"] = [PAPER[method] for method, _ in acceptance.index]
    per_step = results["ess_per_step_f"]
    tables = {
        "acceptance": acceptance,
        "ESS of function values per 1000 steps": by_width(results, 1000 * per_step),
        "ESS of function values per CPU second": by_width(
            results, per_step / results["cpu_seconds_per_step"]
        ),
    }
    for title, table in tables.items():
        print(f"\n{title}\n{table.to_string(float_format='{:.2g}'.format, na_rep='-')}")


def by_width(results: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """A row for each method and step size, a column for each width."""
    table = results.assign(values=values).pivot(
        index=["method", "step_size"], columns="width", values="values"
    )
    return table.reindex(list(SIZE_ARGUMENT), level="method").rename_axis(columns="width")


def direction(rows: pd.DataFrame) -> str:
    """Where acceptance goes from width to width, by more than two errors."""
    acceptance, error = rows.to_numpy().T
    changes = np.diff(acceptance)
    clear = np.abs(changes) > 2 * np.hypot(error[:-1], error[1:])
    words = ["rises" if change > 0 else "falls" for change in changes[clear]]
    return ", then ".join(word for word, _ in groupby(words)) or "level"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted; start it again to go on") from None
