"""Tables: the networks here beside linear models, forests, boosting, processes and other networks.

    python examples/tabular_benchmark.py                            # diabetes, what is installed
    python examples/tabular_benchmark.py yacht boston --data FOLDER # FOLDER/yacht.csv, ...
    python examples/tabular_benchmark.py wine digits --splits 0 1   # classes, two of ten splits
    python examples/tabular_benchmark.py --methods linear forest hierarchical
    python examples/tabular_benchmark.py --methods '{"builder": "hierarchical", "draws": 200,
        "options": {"hidden": [16, 16], "activation": "relu"}}'     # a network of your choice

One row of the table for each method and data set, the mean over splits: the same splits and the
same standardisation for all methods. ``tabular.predictions.scores`` states the scores of real
targets (error, negative log density, coverage and width of intervals), ``class_scores`` those of
classes (error, negative log probability, calibration error). ``cpu_seconds`` are of this process,
for fit and prediction, compilation included, on one thread.

What is not installed is named and left out: ``pip install -e ".[benchmarks]"`` has all but
``sklearn-contrib-bde``, which needs an environment with an older blackjax. Each result is kept
in ``tabular_benchmark`` beside this script (or ``--output``) as soon as it is there, and not
computed again (``nns.lab.experiments``): after a change of a method, give another ``--output``. The
tables, their pictures and ``results.json`` are written there too. ``--processes 4`` works on four
results at a time.
"""

import argparse
import importlib.util
import json
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

import pymc_nnsteps as nns
from tabular import baselines, others, pictures
from tabular.data import CLASSES, FILES, PERIODIC, SHIPPED, is_there
from tabular.data import split as split_of
from tabular.networks import CLASS_LIKELIHOODS, Network
from tabular.predictions import class_scores, scores


@dataclass(frozen=True)
class Method:
    """How a method is called, the module that it needs, and whether it knows classes."""

    call: Callable[..., Any]
    module: str = "sklearn"
    classes: bool = True


METHODS = {
    "linear": Method(baselines.linear),
    "forest": Method(baselines.forest),
    "hist_boosting": Method(baselines.hist_boosting),
    "gaussian_process": Method(baselines.gaussian_process),
    "xgboost": Method(baselines.xgboost, "xgboost"),
    "catboost": Method(baselines.catboost, "catboost"),
    "pymc_bart": Method(others.pymc_bart, "pymc_bart", classes=False),
    "stochtree": Method(others.stochtree, "stochtree", classes=False),
    "bde": Method(others.bde, "bde"),
    "laplace": Method(others.laplace, "laplace"),
    "nuts": Method(Network("hierarchical", sampler="nutpie"), "nutpie"),
    "hierarchical": Method(Network("hierarchical")),
    "varying_noise": Method(Network("hierarchical", {"sigma": "network"}), classes=False),
    "bow_tie": Method(Network("bow_tie"), classes=False),
    "intermediate_noise": Method(Network("intermediate_noise")),
}
"""``nuts`` is the network of ``hierarchical``, with all its variables drawn by nutpie;
``varying_noise`` that network with ``sigma="network"``."""

KEYS = ["data", "method"]
REAL_SCORES = ["rmse", "rmse_standardised", "nld", "nld_normal", "coverage_50", "coverage_90"]
REAL_SCORES += ["width_50", "width_90"]
CLASS_SCORES = ["error", "nld", "calibration_error"]


def main() -> None:
    """Do what is not in the results, and write the table and its pictures."""
    arguments = parse_arguments()
    methods = [name for name in arguments.methods if is_installed(name)]
    tables = [name for name in arguments.tables if is_there(name, arguments.data)]
    for name in sorted(set(arguments.methods) - set(methods)):
        print(f"left out: {name} ({METHODS[name].module} is not installed)")
    for name in sorted(set(arguments.tables) - set(tables)):
        print(f"left out: {name} ({name}.csv is not in --data {arguments.data})")
    settings = [
        {"data": table, "method": method, "split": number}
        for table in tables
        for method in methods
        for number in arguments.splits
        if table not in CLASSES or method_of(method).classes
    ]
    with cluster(arguments.processes) as client:
        results = nns.lab.experiments(
            partial(fit, folder=arguments.data),
            settings,
            store=arguments.output,
            client=client,
        )
    results["method"] = results["method"].map(label)
    results.to_json(arguments.output / "results.json", orient="records", double_precision=5)
    for kind, columns in (("real", REAL_SCORES), ("classes", CLASS_SCORES)):
        rows = results[results["data"].isin(CLASSES) == (kind == "classes")]
        if len(rows):
            table = summary(rows, columns)
            print(table.to_string())
            table.to_csv(arguments.output / f"{kind}.csv", float_format="%.4g")
            for name, figure in pictures.of(rows, kind).items():
                figure.savefig(arguments.output / f"{name}.png", dpi=100)


def fit(data: str, method: str, split: int, folder: Path) -> dict[str, Any]:
    """Fit one split of a table by a method, and score its held-out part."""
    warnings.filterwarnings("ignore")  # of fits that are compared as they are
    rows = split_of(data, split, folder)
    start = time.process_time()
    answer = method_of(method).call(rows, split)
    predicted, found = answer if isinstance(answer, tuple) else (answer, {})
    seconds = time.process_time() - start
    if rows.n_classes:
        scored = class_scores(predicted, rows.y_test)
    else:
        scored = scores(predicted, rows.y_test, rows.unit)
    return {**scored, **found, "cpu_seconds": seconds}


def method_of(name: str) -> Method:
    """The method of a name, or the network that JSON describes."""
    if name in METHODS:
        return METHODS[name]
    network = Network(**json.loads(name))
    return Method(network, classes=network.builder in CLASS_LIKELIHOODS)


def label(name: str) -> str:
    """The name of a method; of a network that JSON describes, its builder and what it is given."""
    if name in METHODS:
        return name
    given = json.loads(name)
    options = given.pop("options", {})
    words = [given.pop("builder"), "-".join(map(str, options.pop("hidden", ())))]
    return " ".join(filter(None, words + [f"{k}={v}" for k, v in (options | given).items()]))


def is_installed(name: str) -> bool:
    """Whether what a method needs is there."""
    return importlib.util.find_spec(method_of(name).module) is not None


def summary(rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Means over splits, one row for each method and data set."""
    groups = rows.groupby(KEYS, sort=False)
    table = groups[[*columns, "cpu_seconds"]].mean()
    table.insert(0, "splits", groups.size())
    table.insert(2, f"sd of {columns[0]}", groups[columns[0]].std())
    return table


def cluster(processes: int) -> AbstractContextManager[Any]:
    """A client of a local Dask cluster; of one process, None."""
    if processes == 1:
        return nullcontext()
    from distributed import Client

    return Client(n_workers=processes, threads_per_worker=1)


def parse_arguments() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description="Networks and other methods on tables.")
    known = [*FILES, *PERIODIC, *SHIPPED]
    parser.add_argument("tables", nargs="*", default=["diabetes"], metavar="TABLE", help=f"{known}")
    here = Path(__file__).resolve()
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the CSV files")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help=f"{list(METHODS)}")
    parser.add_argument("--splits", type=int, nargs="+", default=range(10), help="default 0 ... 9")
    parser.add_argument("--processes", type=int, default=1, help="results at a time")
    parser.add_argument("--output", type=Path, default=here.with_suffix(""))
    arguments = parser.parse_args()
    if unknown := set(arguments.tables) - set(known):
        parser.error(f"unknown tables {sorted(unknown)}; known are {known}.")
    return arguments


if __name__ == "__main__":
    main()
