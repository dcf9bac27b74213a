"""The simulated example of the bow-tie paper, by variational fits: depth, and what is needed.

    python examples/bow_tie_simulated.py            # depths 1, 2 and 4, ten splits
    python examples/bow_tie_simulated.py --quick    # depths 1 and 2, one split

Two inputs, uniform between -2 and 2, of which the target ``0.1 x1^2 + 10 sin(x1)`` plus noise of
standard deviation 0.5 needs the first only; 300 rows, of which each split holds out a tenth, and
20 units in each hidden layer (Sheinkman and Wade, *Variational Bayesian Bow tie Neural Networks
with Shrinkage*, Section 4.1). Each split has the best of ``--starts`` fits. Deep ones do not begin
with sparse weights: such fits may end with all units switched off, of which the evidence is higher
than that of four layers which fit the data.

``bow_tie_simulated.csv`` has a row for each depth and split: ``rmse``, ``nll`` and ``coverage`` of
the held out targets by the whole and by the sparse network (selection at level 0.01), the
``units`` and ``weights`` that the sparse one keeps, and how many of these are of the input
``x2``. ``bow_tie_simulated.png`` shows, for the last split, the prediction by both networks along
``x1`` and the numbers of units and weights that are kept at other levels. The paper keeps 11 of 20
units and 33 of 60 weights at depth 1, with predictions almost as before.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

import pymc_nnsteps as nns
from pymc_nnsteps.variational.approximation import Approximation

LEVEL = 0.01
UNITS = 20
DEEP = 3
"""Layers from which on sparse starts are left out."""

FIRST_SEED = 42


def main() -> None:
    """Fit all depths and splits, and write the table and the figure."""
    arguments = parse_arguments()
    X, y = simulate()
    rows, last = [], {}
    for depth in arguments.depths:
        for split in range(arguments.splits):
            row, last[depth] = fit(X, y, depth, FIRST_SEED + split, arguments.starts)
            rows.append({"depth": depth, "split": split, **row})
            print(", ".join(f"{key} {value:.3g}" for key, value in rows[-1].items()), flush=True)
    table = pd.DataFrame(rows)
    arguments.output.mkdir(parents=True, exist_ok=True)
    table.to_csv(arguments.output / "bow_tie_simulated.csv", index=False)
    draw(last, arguments.output / "bow_tie_simulated.png")
    print(table.groupby("depth").mean().drop(columns="split").T.to_string(float_format="%.3g"))


def simulate() -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets."""
    rng = np.random.default_rng(36)
    X = rng.uniform(-2, 2, size=(300, 2))
    return X, function(X) + 0.5 * rng.standard_normal(300)


def function(X: np.ndarray) -> np.ndarray:
    """Targets without noise."""
    return 0.1 * X[:, 0] ** 2 + 10 * np.sin(X[:, 0])


def fit(
    X: np.ndarray, y: np.ndarray, depth: int, seed: int, starts: int
) -> tuple[dict[str, float], Approximation]:
    """Scores of one split by the whole and by the sparse network."""
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.1, random_state=seed)
    model = nns.bow_tie(X_train, y_train, hidden=(UNITS,) * depth)
    found = nns.fit(
        model,
        starts=starts,
        start=["laplace", "spike_slab"] if depth < DEEP else "laplace",
        em=True,
        random_seed=seed,
        progressbar=False,
    )
    sparse = found.select(LEVEL)
    row = {**score(found, X_test, y_test)}
    row |= {f"sparse_{key}": value for key, value in score(sparse, X_test, y_test).items()}
    chosen = sparse.selection
    row["units"] = sum(int(units.sum()) for units in chosen.units)
    row["weights"] = sum(int(weights.sum()) for weights in chosen.weights)
    row["of_x2"] = int(chosen.weights[0][:, 1].sum())
    return row, found


def score(found: Approximation, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Error, negative log density and coverage of normal predictions."""
    predicted = found.predict(X, random_seed=0)
    mean, sd = (predicted[name].values[:, 0] for name in ("mean", "sd"))
    z = (y - mean) / sd
    return {
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
        "nll": float(np.mean(0.5 * np.log(2 * np.pi * sd**2) + 0.5 * z**2)),
        "coverage": float(np.mean(abs(z) < 1.96)),
    }


def draw(fits: dict[int, Approximation], path: Path) -> None:
    """Predictions along the first input above, what is kept at each level below."""
    figure, axes = plt.subplots(
        2, len(fits), figsize=(4 * len(fits), 6), squeeze=False, layout="constrained"
    )
    along = np.column_stack([np.linspace(-2, 2, 101), np.zeros(101)])
    for (depth, found), (above, below) in zip(fits.items(), axes.T, strict=True):
        above.plot(along[:, 0], function(along), "k:", label="truth")
        networks = {"all": found, f"level {LEVEL:g}": found.select(LEVEL)}
        styles = (("C0", "-"), ("C1", "--"))
        for (label, network), (color, style) in zip(networks.items(), styles, strict=True):
            predicted = network.predict(along, random_seed=0)
            lower, mean, upper = (
                predicted[name].values[:, 0] for name in ("lower", "mean", "upper")
            )
            above.plot(along[:, 0], mean, color + style, label=label)
            above.fill_between(along[:, 0], lower, upper, color=color, alpha=0.2)
        above.set(title=f"{depth} hidden layer{'s' * (depth > 1)}", xlabel="x1", ylabel="y")
        above.legend()
        found.selection_path().plot(ax=below, logx=True, logy="sym", drawstyle="steps-post")
        below.set(xlabel="level", ylabel="kept", ylim=(0, None))
    figure.savefig(path, dpi=150)


def parse_arguments() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description="The simulated example of the bow-tie paper.")
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="depths 1 and 2, one split")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().with_suffix(""))
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.depths, arguments.splits = [1, 2], 1
    return arguments


if __name__ == "__main__":
    main()
