"""A Bayesian neural network on simulated data that bend, beside ridge regression.

The target is Friedman's first function of five inputs, beside which there are three that it does
not depend on, and noise of standard deviation 1. Fits a network with one hidden layer of ReLU units
by Gibbs sampling, checks convergence on function values, predicts a held-out fifth of the data, and
writes three figures beside this script: quickstart_chains.png, quickstart_predictions.png and
quickstart_function.png.
"""

from pathlib import Path

import arviz_plots as azp
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from matplotlib.figure import Figure
from sklearn.datasets import make_friedman1
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import pymc_nnsteps as nns

SEED = 0
HERE = Path(__file__).parent
COLORS = {"neural network": "C0", "ridge regression": "C7"}


def main() -> None:
    X, y = make_friedman1(400, n_features=8, noise=1.0, random_state=SEED)
    X = pd.DataFrame(X, columns=[f"x{number}" for number in range(1, 9)])
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=SEED)
    scaler, mean, sd = (
        StandardScaler().set_output(transform="pandas"),
        y_train.mean(),
        y_train.std(),
    )
    Z_train, z_train = scaler.fit_transform(X_train), (y_train - mean) / sd
    Z_test = scaler.transform(X_test)

    # The model is a plain PyMC model. Its step method, Gibbs, is chosen by pm.sample; the latent
    # layers are drawn but not stored. Chains start at different draws from the prior.
    model = nns.intermediate_noise_mlp(
        Z_train,
        z_train,
        hidden=(10,),
        noise={"pre": 0.04, "post": 0.04, "output": 0.03},
        start="prior",
    )
    print(nns.explain(model), "\n")
    with model:
        idata = pm.sample(
            4000,
            tune=1000,
            chains=4,
            cores=2,
            random_seed=SEED,
            var_names=nns.without_latents(),
            compute_convergence_checks=False,  # of weights; function values are checked below
        )

    # Convergence: hidden units can change places, so look at what the network computes. All chains
    # have found the same function where R-hat is near 1 at every input, and enough of it where the
    # smallest effective sample size (ess) is some hundreds.
    f = mean + sd * nns.predict(idata, Z_test, model=model).isel(output=0)
    print(f"\nfunction values at {len(y_test)} test inputs")
    print(nns.diagnose(idata, Z_test, model=model))

    # What the network has learnt: the mean function over one input, the others as in the data.
    shown = ["x3", "x4", "x8"]
    dependences = [nns.partial_dependence(idata, name, model=model) for name in shown]

    # Prediction: new inputs, and every noise of the network drawn afresh.
    weights = idata["posterior"].to_dataset().isel(draw=slice(None, None, 5))
    with model:
        pm.set_data({"inputs": Z_test}, coords={"obs": Z_test.index})
        predictive = pm.sample_posterior_predictive(
            weights,
            predictions=True,
            random_seed=SEED,
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},  # these few draws do not repay compiling
        )
    draws = mean + sd * predictive["predictions"]["y"]
    interval = draws.quantile([0.05, 0.95], dim=("chain", "draw")).values
    predicted = f.mean(("chain", "draw")).values

    ridge = RidgeCV(np.logspace(-2, 4, 25)).fit(Z_train, y_train)
    ridge_predicted = ridge.predict(Z_test)
    residual_sd = np.std(y_train - ridge.predict(Z_train))
    ridge_interval = ridge_predicted + 1.645 * residual_sd * np.array([[-1], [1]])

    results = {
        "neural network": (predicted, interval),
        "ridge regression": (ridge_predicted, ridge_interval),
    }
    print(f"\n{'':18}{'test RMSE':>10}{'90 % interval covers':>24}")
    for name, (point, bounds) in results.items():
        rmse = np.sqrt(np.mean((point - y_test) ** 2))
        print(f"{name:18}{rmse:10.2f}{np.mean(is_inside(bounds, y_test)):24.0%}")

    print(f"\npictures in {HERE}:")
    for name, figure, seen in (
        (
            "chains",
            plot_chains(f),
            "four chains agree at three test inputs: each p > 0.01",
        ),
        ("predictions", plot_predictions(results, y_test), "the network errs less than the ridge"),
        (
            "function",
            plot_function(dependences, mean, sd, ridge, scaler, X_train),
            "it bends where the truth bends, and is flat where nothing is to be found (x8)",
        ),
    ):
        figure.savefig(HERE / f"quickstart_{name}.png", dpi=100)
        print(f"  quickstart_{name}.png: {seen}")


def is_inside(interval: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Whether intervals hold the truth."""
    return (interval[0] < truth) & (truth < interval[1])


def plot_chains(f: xr.DataArray) -> Figure:
    """Densities of function values at three test inputs, and ranks of each chain's draws."""
    # The p-values compare ranks with those of independent draws, which every 32nd nearly is.
    values = f.isel(obs=slice(3), draw=slice(None, None, 32)).drop_vars("obs")
    names = {f"f(test input {obs})": values.isel(obs=obs) for obs in range(3)}
    posterior = xr.DataTree.from_dict({"posterior": xr.Dataset(names)})
    plot = azp.plot_rank_dist(
        posterior,
        compact=False,
        backend="matplotlib",
        figure_kwargs={"figsize": (9, 7), "figsize_units": "inches", "layout": "constrained"},
    )
    plot.add_legend("chain")
    return plot.viz["figure"].item()


def plot_predictions(
    results: dict[str, tuple[np.ndarray, np.ndarray]], truth: np.ndarray
) -> Figure:
    """Predictions and intervals against the truth; intervals that miss it are red."""
    figure, axes = plt.subplots(
        1, len(results), figsize=(10, 5), sharex=True, sharey=True, layout="constrained"
    )
    for ax, (name, (point, interval)) in zip(axes, results.items(), strict=True):
        inside = is_inside(interval, truth)
        for which, color, label in (
            (inside, COLORS[name], f"{np.mean(inside):.0%} of 90 % intervals hold the truth"),
            (~inside, "C3", "misses"),
        ):
            error = np.abs(interval - point)[:, which]
            ax.errorbar(
                truth[which], point[which], error, fmt="o", ms=4, lw=1, color=color, label=label
            )
        ax.axline((truth.mean(), truth.mean()), slope=1, color="black", lw=1)
        rmse = np.sqrt(np.mean((point - truth) ** 2))
        ax.set(title=f"{name}, RMSE {rmse:.2f}", xlabel="y, measured")
        ax.legend(loc="upper left")
    axes[0].set_ylabel("y, predicted")
    return figure


def friedman(X: np.ndarray) -> np.ndarray:
    """The function that the data were made with."""
    return 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + X[:, 3:5] @ [10, 5]


def plot_function(
    dependences: list[xr.Dataset],
    mean: float,
    sd: float,
    ridge: RidgeCV,
    scaler: StandardScaler,
    X: pd.DataFrame,
) -> Figure:
    """Mean functions over one input each, beside those of ridge regression and of the truth."""
    figure, axes = plt.subplots(
        1, len(dependences), figsize=(10, 4), sharey=True, layout="constrained"
    )
    for ax, dependence in zip(axes, dependences, strict=True):
        [name] = (dim for dim in dependence.dims if dim != "output")
        column = X.columns.get_loc(name)
        x = scaler.mean_[column] + scaler.scale_[column] * dependence[name].values
        network = mean + sd * dependence.isel(output=0)
        changed = [X.assign(**{str(name): value}) for value in x]
        truth = [friedman(each.to_numpy()).mean() for each in changed]
        linear = [ridge.predict(scaler.transform(each)).mean() for each in changed]
        color = COLORS["neural network"]
        ax.fill_between(x, network["lower"], network["upper"], color=color, alpha=0.25)
        ax.plot(x, network["mean"], color=color, label="neural network, 90 % band")
        ax.plot(x, linear, "--", color=COLORS["ridge regression"], label="ridge regression")
        ax.plot(x, truth, "k:", label="truth")
        ax.set_xlabel(str(name))
    axes[0].set_ylabel("y, averaged over the other inputs")
    axes[0].legend()
    return figure


if __name__ == "__main__":
    main()
