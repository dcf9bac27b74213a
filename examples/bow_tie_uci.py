"""Bow-tie networks on regression data, beside ridge regression and the published figures.

    python examples/bow_tie_uci.py                      # diabetes, ten splits: five minutes
    python examples/bow_tie_uci.py boston.csv yacht.csv # tables with a header, the target last

Each of ten random 90/10 splits (``random_state`` 42, 43, ...) is fitted by ``nns.bow_tie`` with
its defaults (20 hidden units for diabetes, 50 for others, as published) and ``nns.Gibbs``. Inputs
are standardised by the training part, the target is left as it is. Written to ``bow_tie_uci.csv``
beside this script (or ``--output``), one row per split as soon as it is done; what is there is
not computed again, so that a run that was interrupted goes on.

``rmse`` of the posterior mean; ``nll``, the negative log density of the targets under a normal
with the predictive mean and variance, averaged; ``coverage`` of the mean +- 1.96 standard
deviations; ``rhat``, the largest of function values at the test inputs. The published figures
(Sheinkman and Wade, *Variational Bayesian Bow tie Neural Networks with Shrinkage*, Tables 3 and 4)
are of ten other splits, and on diabetes splits differ by 5 in RMSE: compare with ridge on the same
splits. "paper, VI" is the variational fit of this model, "paper, HMC" a network without gates.
"""

import argparse
import logging
import time
import warnings
from pathlib import Path

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
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
METRICS = ["rmse", "nll", "coverage"]


def main() -> None:
    """Run all splits that are not in the results, and print the averages."""
    arguments = parse_arguments()
    quiet()
    done = pd.read_csv(arguments.output) if arguments.output.exists() else pd.DataFrame()
    for name in arguments.tables:
        X, y = load(name)
        stem = Path(name).stem
        settings = {
            "data": stem,
            "units": arguments.units or (20 if stem == "diabetes" else 50),
            "layers": arguments.layers,
            "draws": arguments.draws,
            "shrinkage": arguments.shrinkage,
        }
        for split in range(42, 42 + arguments.splits):
            key = {**settings, "split": split}
            if len(done) and (done[list(key)] == pd.Series(key)).all(axis=1).any():
                continue
            row = key | fit(X, y, key)
            done = pd.concat([done, pd.DataFrame([row])], ignore_index=True)
            done.to_csv(arguments.output, index=False)
            print(
                f"{stem}, split {split - 41} of {arguments.splits}: RMSE {row['rmse']:.3g} "
                f"(ridge {row['ridge_rmse']:.3g}), NLL {row['nll']:.3g}, coverage "
                f"{row['coverage']:.2f}, R-hat {row['rhat']:.2f}, {row['seconds']:.0f} s",
                flush=True,
            )
        print(summary(stem, done[(done[list(settings)] == pd.Series(settings)).all(axis=1)]))


def fit(X: np.ndarray, y: np.ndarray, settings: dict) -> dict[str, float]:
    """Sample one split and score its test part."""
    split = settings["split"]
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.1, random_state=split)
    mean, sd = X_train.mean(axis=0), X_train.std(axis=0)
    sd[sd == 0] = 1
    X_train, X_test = (X_train - mean) / sd, (X_test - mean) / sd
    start = time.perf_counter()
    hidden = (settings["units"],) * settings["layers"]
    with nns.bow_tie(X_train, y_train, hidden=hidden, shrinkage=settings["shrinkage"]) as model:
        kept = [v.name for v in model.free_RVs if not v.name.startswith(("gamma", "a"))]
        idata = pm.sample(
            settings["draws"],
            tune=settings["draws"],
            chains=2,
            cores=1,
            var_names=kept,
            random_seed=split,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
        seconds = time.perf_counter() - start
        pm.set_data({"inputs": X_test})
        predictive = pm.sample_posterior_predictive(
            idata, predictions=True, random_seed=split, progressbar=False
        )
    functions = nns.predict(idata, X_test, model=model)
    outcomes = predictive["predictions"]["y"].stack(sample=("chain", "draw"))
    scores = score(y_test, outcomes.mean("sample").values, outcomes.std("sample").values)
    ridge = RidgeCV(np.logspace(-3, 3, 13)).fit(X_train, y_train)
    scale = np.std(y_train - ridge.predict(X_train))
    beside = score(y_test, ridge.predict(X_test), np.full(len(y_test), scale))
    return {
        **scores,
        "rmse": float(np.sqrt(np.mean((functions.mean(("chain", "draw"))[:, 0] - y_test) ** 2))),
        **{f"ridge_{name}": value for name, value in beside.items()},
        "rhat": float(az.rhat(functions.to_dataset())["f"].max()),
        "seconds": seconds,
    }


def score(y: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> dict[str, float]:
    """Error, negative log density and coverage of normal predictions."""
    z = (y - mean) / sd
    return {
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
        "nll": float(np.mean(0.5 * np.log(2 * np.pi * sd**2) + 0.5 * z**2)),
        "coverage": float(np.mean(abs(z) < 1.96)),
    }


def summary(name: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Averages over the splits, with standard deviations, and what is published."""
    table = {
        label: [f"{rows[prefix + m].mean():.3g} +- {rows[prefix + m].std():.2g}" for m in METRICS]
        for label, prefix in [(f"{name}, Gibbs", ""), ("ridge", "ridge_")]
    }
    for method, figures in PUBLISHED.get(name, {}).items():
        table[f"paper, {method}"] = [f"{figure:.3g}" for figure in figures]
    return pd.DataFrame.from_dict(table, orient="index", columns=METRICS)


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
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--draws", type=int, default=2000, help="after as many for tuning")
    parser.add_argument("--units", type=int, help="per hidden layer; default 50, diabetes 20")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--shrinkage", default="student_t")
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).resolve().with_name("bow_tie_uci.csv")
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
