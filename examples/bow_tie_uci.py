"""Bow-tie networks on regression data, beside ridge regression and the published figures.

    python examples/bow_tie_uci.py                            # diabetes, ten splits
    python examples/bow_tie_uci.py boston.csv data/yacht.csv  # tables with a header, target last
    python examples/bow_tie_uci.py boston.csv --splits 0 3    # two of the splits
    python examples/bow_tie_uci.py --method gibbs cavi        # beside variational fits

Each of ten random 90/10 splits (``random_state`` 42, 43, ...) is fitted by ``nns.bow_tie`` with
its defaults (20 hidden units for diabetes, 50 for others, as published) and, as ``--method`` says,
``nns.Gibbs`` or ``nns.fit``: the best of four starts by coordinate ascent (``cavi``) or by batches
(``svi``), or the mixture of these four (``ensemble``). Inputs are standardised by the training
part, the target is left as it is.

Each split is kept in ``bow_tie_uci`` beside this script (or ``--output``) as soon as it is done.
What is there is not computed again, so that a run that was interrupted goes on
(``nns.lab.experiments``). ``--processes 4`` works on four splits at a time, on a local Dask
cluster.

``rmse`` of the posterior mean; ``nll``, the negative log density of the targets under a normal
with the predictive mean and variance, averaged; ``coverage`` of the mean +- 1.96 standard
deviations. With Gibbs, of function values at the test inputs: ``rhat``, the median over inputs,
``rhat_worst``, ``ess``, the median, and ``ess_per_s``, per second of CPU time, tuning included and
compilation left out. The published figures (Sheinkman and Wade, *Variational Bayesian Bow tie
Neural Networks with Shrinkage*, Tables 3 and 4) are of ten other splits, and on diabetes splits
differ by 5 in RMSE: compare with ridge on the same splits. "paper, VI" is the variational fit of
this model, "paper, HMC" a network without gates.
"""

import argparse
import logging
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from distributed import Client
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LassoCV, RidgeCV
from sklearn.model_selection import train_test_split

import pymc_nnsteps as nns

PUBLISHED = {
    "diabetes": {"VI": (54.5, 5.4, 0.96), "HMC": (54.5, 5.4, 0.96)},
    "boston": {"VI": (3.47, 2.69, 0.95), "HMC": (2.42, 2.28, 0.95)},
    "yacht": {"VI": (2.47, 2.25, 0.96), "HMC": (0.56, 0.87, 0.98)},
    "concrete": {"VI": (7.67, 3.5, 0.94), "HMC": (4.01, 2.74, 0.94)},
    "energy": {"VI": (1.37, 1.75, 0.98), "HMC": (0.3, 0.23, 0.95)},
    "slump": {"VI": (7.37, 3.46, 0.92), "HMC": (7.0, 3.41, 0.9)},
}
SCORES = ["rmse", "nll", "coverage"]
MIXING = ["rhat", "rhat_worst", "ess", "ess_per_s"]
FIRST_SEED = 42


def main() -> None:
    """Run all splits that are not in the results, and print the averages."""
    arguments = parse_arguments()
    with cluster(arguments.processes) as client:
        for path in arguments.tables:
            name = Path(path).stem
            common = {
                "table": path if path == "diabetes" else str(Path(path).resolve()),
                "units": arguments.units or (20 if name == "diabetes" else 50),
                "layers": arguments.layers,
                "shrinkage": arguments.shrinkage,
            }
            results = {}
            for method in arguments.method:
                how = {"method": method}
                if method == "gibbs":
                    how |= {"chains": arguments.chains, "draws": arguments.draws}
                settings = [common | how | {"split": split} for split in arguments.splits]
                results[method] = nns.lab.experiments(
                    fit, settings, store=arguments.output, client=client
                )
            print(summary(name, results).to_string())


def cluster(processes: int) -> AbstractContextManager[Any]:
    """A client of a local Dask cluster; of one process, None."""
    if processes == 1:
        return nullcontext()
    return Client(n_workers=processes, threads_per_worker=1)


def fit(table: str, split: int, **settings: Any) -> dict[str, float]:
    """Fit one split and score its test part, beside linear models."""
    quiet()
    X, y = load(table)
    seed = FIRST_SEED + split
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.1, random_state=seed)
    mean, sd = X_train.mean(axis=0), X_train.std(axis=0)
    sd[sd == 0] = 1
    X_train, X_test = (X_train - mean) / sd, (X_test - mean) / sd
    hidden = (settings["units"],) * settings["layers"]
    model = nns.bow_tie(X_train, y_train, hidden=hidden, shrinkage=settings["shrinkage"])
    method = by_gibbs if settings["method"] == "gibbs" else by_variational_fit
    found = method(model, X_test, y_test, settings, seed)
    linear_models = {"ridge": RidgeCV(np.logspace(-3, 3, 13)), "lasso": LassoCV()}
    for name, linear in linear_models.items():
        linear.fit(X_train, y_train)
        scale = np.std(y_train - linear.predict(X_train))
        beside = score(y_test, linear.predict(X_test), np.full(len(y_test), scale))
        found |= {f"{name}_{column}": value for column, value in beside.items()}
    return found


def by_gibbs(
    model: pm.Model, X_test: np.ndarray, y_test: np.ndarray, settings: dict, seed: int
) -> dict[str, float]:
    """Scores and mixing of chains."""
    with model:
        step = nns.Gibbs()
        start = time.process_time()
        idata = pm.sample(
            settings["draws"],
            tune=settings["draws"],
            chains=settings["chains"],
            cores=1,
            step=step,
            var_names=nns.without_latents(),
            random_seed=seed,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
        seconds = time.process_time() - start
        pm.set_data({"inputs": X_test})
        predictive = pm.sample_posterior_predictive(
            idata, predictions=True, random_seed=seed, progressbar=False
        )
    functions = nns.predict(idata, X_test, model=model)
    outcomes = predictive["predictions"]["y"].stack(sample=("chain", "draw"))
    scores = score(y_test, outcomes.mean("sample").values, outcomes.std("sample").values)
    mixing = nns.diagnose(idata, X_test, model=model).table.loc["f"]
    return {
        **scores,
        "rmse": float(np.sqrt(np.mean((functions.mean(("chain", "draw"))[:, 0] - y_test) ** 2))),
        "rhat": mixing["rhat"],
        "rhat_worst": mixing["rhat worst"],
        "ess": mixing["ess"],
        "ess_per_s": mixing["ess"] / seconds,
        "seconds": seconds,
    }


def by_variational_fit(
    model: pm.Model, X_test: np.ndarray, y_test: np.ndarray, settings: dict, seed: int
) -> dict[str, float]:
    """Scores of the best of four starts, or of their mixture."""
    method = settings["method"]
    start = time.process_time()
    found = nns.fit(
        model,
        "svi" if method == "svi" else "cavi",
        starts=4,
        start=["laplace", "spike_slab"],
        ensemble=method == "ensemble",
        em=settings["shrinkage"] != "gaussian",
        random_seed=seed,
        progressbar=False,
    )
    seconds = time.process_time() - start
    predicted = found.predict(X_test, random_seed=seed)
    mean, sd = (predicted[name].values[:, 0] for name in ("mean", "sd"))
    return {**score(y_test, mean, sd), "seconds": seconds}


def score(y: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> dict[str, float]:
    """Error, negative log density and coverage of normal predictions."""
    z = (y - mean) / sd
    return {
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
        "nll": float(np.mean(0.5 * np.log(2 * np.pi * sd**2) + 0.5 * z**2)),
        "coverage": float(np.mean(abs(z) < 1.96)),
    }


def summary(name: str, results: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Averages over the splits, with standard deviations, and what is published."""

    def averages(rows: pd.DataFrame, prefix: str, columns: list[str]) -> dict[str, str]:
        found = {column: rows[prefix + column] for column in columns if prefix + column in rows}
        return {column: f"{f.mean():.4g} +- {f.std():.2g}" for column, f in found.items()}

    columns = [*SCORES, *MIXING, "seconds"]
    table = {f"{name}, {how}": averages(rows, "", columns) for how, rows in results.items()}
    any_rows = next(iter(results.values()))
    for linear in ("ridge", "lasso"):
        table[linear] = averages(any_rows, f"{linear}_", SCORES)
    for method, figures in PUBLISHED.get(name, {}).items():
        table[f"paper, {method}"] = {s: f"{f:.3g}" for s, f in zip(SCORES, figures, strict=True)}
    return pd.DataFrame.from_dict(table, orient="index").fillna("")


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and target of a table, or of scikit-learn's diabetes data."""
    if name == "diabetes":
        return load_diabetes(return_X_y=True, scaled=False)  # type: ignore[no-any-return]
    table = pd.read_csv(name).to_numpy(dtype=float)
    return table[:, :-1], table[:, -1]


def quiet() -> None:
    """Leave out what PyMC says of each fit."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="arviz")


def parse_arguments() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description="Bow-tie networks on regression data.")
    parser.add_argument("tables", nargs="*", default=["diabetes"], help="CSV files, target last")
    methods = ["gibbs", "cavi", "svi", "ensemble"]
    parser.add_argument("--method", nargs="+", choices=methods, default=["gibbs"])
    parser.add_argument("--splits", type=int, nargs="+", default=range(10), help="default 0 ... 9")
    parser.add_argument("--draws", type=int, default=1000, help="after as many for tuning")
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--units", type=int, help="per hidden layer; default 50, diabetes 20")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1, help="splits at a time")
    parser.add_argument("--shrinkage", default="student_t")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().with_suffix(""))
    return parser.parse_args()


if __name__ == "__main__":
    main()
