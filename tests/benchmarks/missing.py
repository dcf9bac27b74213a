"""Missing inputs drawn with the network, beside means in their place, and boosting.

Diabetes, five splits, the same share of entries missing in every column of training and test rows;
0 for complete data. For each: root mean squared error and mean log density of test targets in
standard deviations of these, the share of 90 % intervals that hold the target, and seconds of CPU.
Boosting is scikit-learn's, which sends missing entries to one side of a split; its intervals are
between quantiles. Shares in percent on the command line; 0, 10 and 30 if left out.
"""

import sys
import time
from typing import Any

import numpy as np
import pymc as pm
from scipy import special, stats
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor

import pymc_nnsteps as nns

SPLITS, N_TEST = 5, 88
SHARES = (0, 10, 30)
LEVELS = (0.05, 0.95)
QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}

Scores = tuple[float, float, float, float]


def network(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> Scores:
    """Two chains of 250 draws after 250, in one process."""
    began = time.process_time()
    missing: Any = "impute" if np.isnan(X).any() else None
    with nns.hierarchical_mlp(X, y, hidden=(8,), standardize=True, missing=missing) as model:
        idata = pm.sample(250, tune=250, chains=2, cores=1, random_seed=1, **QUIET)
    f = nns.predict(idata, X_new, model=model, random_seed=1, progressbar=False).values[..., 0]
    seconds = time.process_time() - began
    sigma = idata["posterior"]["tau_noise"].values[..., None] ** -0.5
    log = special.logsumexp(stats.norm.logpdf(y_new, f, sigma), axis=(0, 1)) - np.log(sigma.size)
    drawn = f + sigma * np.random.default_rng(1).normal(size=f.shape)
    low, high = np.quantile(drawn, LEVELS, axis=(0, 1))
    return scores(f.mean(axis=(0, 1)), low, high, y_new, float(log.mean()), seconds)


def boosting(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> Scores:
    began = time.process_time()
    mean, low, high = (
        HistGradientBoostingRegressor(**options, random_state=1).fit(X, y).predict(X_new)
        for options in ({}, *({"loss": "quantile", "quantile": q} for q in LEVELS))
    )
    return scores(mean, low, high, y_new, np.nan, time.process_time() - began)


def scores(
    mean: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    y: np.ndarray,
    log_density: float,
    seconds: float,
) -> Scores:
    error = float(np.sqrt(np.mean((mean - y) ** 2)))
    return error, log_density, float(np.mean((low <= y) & (y <= high))), seconds


def compared(share: float, split: int) -> dict[str, Scores]:
    """Scores on one split."""
    X, y = load_diabetes(return_X_y=True, scaled=False)
    rng = np.random.default_rng(split)
    test, train = np.split(rng.permutation(len(y)), [N_TEST])
    y = (y - y[train].mean()) / y[train].std()
    holed = np.where(rng.random(X.shape) < share, np.nan, X)
    filled = np.where(np.isnan(holed), np.nanmean(holed[train], axis=0), holed)
    methods: dict[str, tuple[Any, np.ndarray]] = {
        "drawn": (network, holed),
        "boosting": (boosting, holed),
    }
    if share:
        methods["means"] = network, filled
    return {
        name: fit(table[train], y[train], table[test], y[test])
        for name, (fit, table) in methods.items()
    }


def main() -> None:
    for share in [int(each) for each in sys.argv[1:] if each.isdigit()] or SHARES:
        found: dict[str, list[Scores]] = {}
        for split in range(SPLITS):
            for name, each in compared(share / 100, split).items():
                found.setdefault(name, []).append(each)
                print(f"    split {split}, {name}: {np.round(each, 3)}", flush=True)
        print(f"  {share} % missing")
        for name, rows in found.items():
            error, log, inside, seconds = np.mean(rows, axis=0)
            print(
                f"    {name:9} error {error:.3f}, log density {log:.3f}, {inside:.0%} in 90 % "
                f"intervals, {seconds:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
