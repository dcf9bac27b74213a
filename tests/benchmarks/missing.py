"""Missing inputs drawn with the network, beside complete data, means in their place, and boosting.

Entries are missing at random: all columns but one (diabetes: blood pressure; 200 rows of concrete:
age) have gaps, with a probability that grows from zero to twice the share with the rank of the
row's entry in that column. So have rows that are predicted. Means over five splits, a fifth of the
rows held out, and their standard deviations: root mean squared error and mean log density in
standard deviations of the targets, the share of 90 % intervals that hold the target, seconds of
CPU. Boosting is scikit-learn's, which sends missing entries to one side of a split; its density is
Gaussian, with the variance of residuals out of fold. Of chains: the largest R-hat of function
values at complete held-out rows, and effective draws of these (median), of the noise's precision,
and of the slowest precision. Tables, and shares in percent, on the command line; both tables, 10
and 30 if left out.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
from scipy import special, stats
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import cross_val_predict

import pymc_nnsteps as nns
from tests.benchmarks.convergence import QUIET, table

SHARES, SPLITS, DRAWS = (10, 30), 5, 500

COMPLETE = {"diabetes": 3, "concrete": 7}
"""The column without gaps of each table."""

COLUMNS = ("error", "density", "inside", "seconds", "R-hat f", "ess f", "ess noise", "ess slowest")


def with_gaps(X: np.ndarray, complete: int, share: float, rng: np.random.Generator) -> np.ndarray:
    rank = X[:, complete].argsort(kind="stable").argsort()
    gaps = rng.random(X.shape) < (2 * share * rank / len(X))[:, None]
    gaps[:, complete] = False
    return np.where(gaps, np.nan, X)


def network(
    X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray, complete: np.ndarray
) -> list[float]:
    """Scores of two chains; ``complete`` is ``X_new`` without gaps."""
    began = time.process_time()
    missing: Any = "impute" if np.isnan(X).any() else None
    with nns.hierarchical_mlp(X, y, hidden=(8,), standardize=True, missing=missing) as model:
        idata = pm.sample(DRAWS, tune=DRAWS, chains=2, cores=1, random_seed=1, **QUIET)
    f, of_complete = (
        nns.predict(idata, rows, model=model, random_seed=1, progressbar=False)[..., 0]
        for rows in (X_new, complete)
    )
    seconds = time.process_time() - began
    posterior = idata["posterior"].to_dataset()
    sigma = posterior["tau_noise"].values[..., None] ** -0.5
    log = special.logsumexp(stats.norm.logpdf(y_new, f, sigma), axis=(0, 1)) - np.log(sigma.size)
    drawn = f + sigma * np.random.default_rng(1).normal(size=f.shape)
    low, high = np.quantile(drawn, (0.05, 0.95), axis=(0, 1))
    ess = az.ess(posterior[[name for name in posterior if str(name).startswith("tau")]])
    return [
        *scores(f.values.mean(axis=(0, 1)), low, high, log, y_new),
        seconds,
        float(az.rhat(of_complete).max()),
        float(az.ess(of_complete).median()),
        float(ess["tau_noise"]),
        min(float(each.min()) for each in ess.values()),
    ]


def boosting(
    X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray, complete: np.ndarray
) -> list[float]:
    began = time.process_time()
    trees = HistGradientBoostingRegressor(random_state=1)
    sigma = np.sqrt(np.mean((y - cross_val_predict(trees, X, y)) ** 2))
    law = stats.norm(trees.fit(X, y).predict(X_new), sigma)
    found = scores(law.mean(), *law.interval(0.9), law.logpdf(y_new), y_new)
    return [*found, time.process_time() - began, *[np.nan] * 4]


def scores(
    mean: np.ndarray, low: np.ndarray, high: np.ndarray, log: np.ndarray, y: np.ndarray
) -> list[float]:
    error = np.sqrt(np.mean((mean - y) ** 2))
    return [float(error), float(log.mean()), float(np.mean((low <= y) & (y <= high)))]


def run(name: str, shares: list[int], split: int) -> dict[str, list[float]]:
    """Scores of all methods on one split of a table."""
    X, y = table(name)
    rng = np.random.default_rng(split)
    test, train = np.split(rng.permutation(len(y)), [len(y) // 5])
    y = (y - y[train].mean()) / y[train].std()
    found = {}

    def fitted(label: str, method: Callable[..., list[float]], inputs: np.ndarray) -> None:
        found[label] = method(inputs[train], y[train], inputs[test], y[test], X[test])
        print(f"    split {split}, {label}: {np.round(found[label], 3)}", flush=True)

    fitted("complete", network, X)
    fitted("complete, boosting", boosting, X)
    for share in shares:
        gaps = with_gaps(X, COMPLETE[name], share / 100, rng)
        means = np.nanmean(gaps[train], axis=0)
        fitted(f"{share} %, drawn", network, gaps)
        fitted(f"{share} %, means", network, np.where(np.isnan(gaps), means, gaps))
        fitted(f"{share} %, boosting", boosting, gaps)
    return found


def main() -> None:
    shares = [int(argument) for argument in sys.argv[1:] if argument.isdigit()] or [*SHARES]
    for name in [argument for argument in sys.argv[1:] if argument in COMPLETE] or COMPLETE:
        found = [run(name, shares, split) for split in range(SPLITS)]
        print(f"{name:20}" + "".join(f"{column:>16}" for column in COLUMNS))
        for label in found[0]:
            rows = np.array([each[label] for each in found])
            cells = zip(rows.mean(axis=0), rows.std(axis=0, ddof=1), strict=True)
            print(f"  {label:18}" + "".join(f"{m:8.3f} ({s:.3f})" for m, s in cells), flush=True)


if __name__ == "__main__":
    main()
