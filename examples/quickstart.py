"""A Bayesian neural network on real data that bend, beside a forest, boosting and a ridge.

The cells of 569 tumours were measured under a microscope (scikit-learn's breast cancer data). The
target is how jagged the outlines of their nuclei are, as a fractal dimension. It is predicted from
the nine other means: radius, perimeter, area, texture, smoothness and so on. The script fits a
network whose scales are learnt, checks convergence on function values, predicts a held-out fifth of
the data, and writes three figures beside itself:
quickstart_chains.png, quickstart_predictions.png and quickstart_function.png.
"""

from pathlib import Path

import arviz_plots as azp
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.preprocessing import StandardScaler

import pymc_nnsteps as nns

SEED = 0
HERE = Path(__file__).parent
COLORS = {"neural network": "C0", "random forest": "C1", "boosting": "C2", "ridge regression": "C7"}
TARGET = "mean fractal dimension"
OTHERS = {
    "random forest": RandomForestRegressor(random_state=SEED),
    "boosting": HistGradientBoostingRegressor(random_state=SEED),
    "ridge regression": RidgeCV(np.logspace(-3, 3, 13)),
}


def main() -> None:
    """Fit, check, predict and draw."""
    table = load_breast_cancer(as_frame=True).data.filter(like="mean ")
    X_train, X_test, y_train, y_test = train_test_split(
        table.drop(columns=TARGET), table[TARGET], test_size=0.2, random_state=SEED
    )
    scaler = StandardScaler().set_output(transform="pandas").fit(X_train)
    mean, sd = y_train.mean(), y_train.std()
    Z_train, Z_test = scaler.transform(X_train), scaler.transform(X_test)
    z_train = (y_train - mean) / sd

    # The model is a plain PyMC model. pm.sample chooses its step methods: Gibbs for the scales,
    # Hamiltonian trajectories for the weights. One layer of eight units is a first look.
    model = nns.hierarchical_mlp(Z_train, z_train, hidden=(8,))
    with model:
        idata = pm.sample(
            draws=2000,
            chains=4,
            cores=2,
            random_seed=SEED,
            var_names=nns.without_latents(),
        )

    # Convergence: chains have found the same function where R-hat is near 1, and enough of it where
    # the effective sample size (ess) is some hundreds. The last line is a verdict.
    f = mean + sd * nns.predict(idata, Z_test, model=model).isel(output=0)
    print(f"\nfunction values at {len(y_test)} test inputs")
    print(nns.diagnose(idata, Z_test, model=model))

    # What the network has learnt: the mean function over one input, the others as in the data.
    shown = ["mean compactness", "mean smoothness", "mean concavity"]
    dependences = [nns.partial_dependence(idata, name, model=model) for name in shown]

    # Prediction: the mean function, and intervals of new targets, noise included.
    draws = nns.predict(idata, Z_test, model=model, kind="response", random_seed=SEED)
    interval = (mean + sd * draws).isel(output=0).quantile([0.05, 0.95], ("chain", "draw")).values
    results = {"neural network": (f.mean(("chain", "draw")).values, interval)}
    for name, other in OTHERS.items():
        errors = y_train - cross_val_predict(other, Z_train, y_train, cv=5)
        predicted = other.fit(Z_train, y_train).predict(Z_test)
        results[name] = predicted, predicted + 1.645 * np.std(errors) * np.array([[-1], [1]])

    truth = y_test.to_numpy()
    print(f"\n{'':18}{'test RMSE':>10}{'90 % interval covers':>24}{'its width':>12}")
    for name, (point, bounds) in results.items():
        rmse, width = np.sqrt(np.mean((point - truth) ** 2)), np.mean(bounds[1] - bounds[0])
        covers = np.mean(is_inside(bounds, truth))
        print(f"{name:18}{rmse:10.4f}{covers:24.0%}{width:12.4f}")

    print(f"\npictures in {HERE}:")
    function = plot_function(dependences, mean, sd, scaler, X_train)
    for name, figure, seen in (
        ("chains", plot_chains(f), "what each chain says at three test inputs"),
        ("predictions", plot_predictions(results, truth), "the network errs least, and says where"),
        ("function", function, "the network bends, where trees make steps and stop"),
    ):
        figure.savefig(HERE / f"quickstart_{name}.png", dpi=100)
        print(f"  quickstart_{name}.png: {seen}")


def is_inside(interval: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Whether intervals hold the truth."""
    return (interval[0] < truth) & (truth < interval[1])


def plot_chains(f: xr.DataArray) -> Figure:
    """Densities of function values at three test inputs, and ranks of each chain's draws."""
    # The p-values compare ranks with those of independent draws, which every 8th nearly is.
    values = f.isel(obs=slice(3), draw=slice(None, None, 8)).drop_vars("obs")
    names = {f"f(test input {obs})": values.isel(obs=obs) for obs in range(3)}
    posterior = xr.DataTree.from_dict({"posterior": xr.Dataset(names)})
    plot = azp.plot_rank_dist(
        posterior,
        compact=False,
        backend="matplotlib",
        figure_kwargs={"figsize": (9, 7), "figsize_units": "inches", "layout": "constrained"},
    )
    plot.add_legend("chain")
    figure: Figure = plot.viz["figure"].item()
    for ax in figure.axes[::2]:
        ax.locator_params(axis="x", nbins=5)
    return figure


def plot_predictions(
    results: dict[str, tuple[np.ndarray, np.ndarray]], truth: np.ndarray
) -> Figure:
    """Predictions and intervals against the truth; intervals that miss it are red."""
    figure, axes = plt.subplots(
        1, len(results), figsize=(14, 4.5), sharex=True, sharey=True, layout="constrained"
    )
    for ax, (name, (point, interval)) in zip(axes, results.items(), strict=True):
        inside = is_inside(interval, truth)
        for which, color, label in (
            (inside, COLORS[name], f"in 90 % interval: {np.mean(inside):.0%}"),
            (~inside, "C3", "not in it"),
        ):
            error = np.abs(interval - point)[:, which]
            ax.errorbar(
                truth[which], point[which], error, fmt="o", ms=3, lw=1, color=color, label=label
            )
        ax.axline((truth.mean(), truth.mean()), slope=1, color="black", lw=1)
        rmse = np.sqrt(np.mean((point - truth) ** 2))
        ax.set(title=f"{name}, RMSE {rmse:.4f}", xlabel=f"{TARGET}, measured")
        ax.legend(loc="upper left")
    axes[0].set_ylabel(f"{TARGET}, predicted")
    return figure


def plot_function(
    dependences: list[xr.Dataset], mean: float, sd: float, scaler: StandardScaler, X: pd.DataFrame
) -> Figure:
    """Mean functions over one input each, beside those of the other methods."""
    figure, axes = plt.subplots(
        1, len(dependences), figsize=(10, 4), sharey=True, layout="constrained"
    )
    for ax, dependence in zip(axes, dependences, strict=True):
        [name] = (dim for dim in dependence["mean"].dims if dim != "output")
        column = X.columns.get_loc(name)
        x = scaler.mean_[column] + scaler.scale_[column] * dependence[name].values
        network = mean + sd * dependence.isel(output=0)
        color = COLORS["neural network"]
        ax.fill_between(x, network["lower"], network["upper"], color=color, alpha=0.25)
        ax.plot(x, network["mean"], color=color, label="neural network, 90 % band")
        changed = [scaler.transform(X.assign(**{str(name): value})) for value in x]
        for other, method in OTHERS.items():
            means = [method.predict(each).mean() for each in changed]
            ax.plot(x, means, "--", color=COLORS[other], label=other)
        ax.set_xlabel(str(name))
    axes[0].set_ylabel(f"{TARGET}, averaged")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


if __name__ == "__main__":
    main()
