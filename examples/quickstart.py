"""A Bayesian neural network on the diabetes data, beside ridge regression.

Fits a network with one hidden layer of ReLU units by Gibbs sampling, checks convergence on
function values, predicts a held-out fifth of the data, and writes two figures beside this
script: quickstart_trace.png and quickstart_predictions.png.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import xarray as xr
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import pymc_nnsteps as nns

SEED = 0
HERE = Path(__file__).parent


def main() -> None:
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=SEED)
    scaler, mean, sd = StandardScaler().fit(X_train), y_train.mean(), y_train.std()
    X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    z_train = (y_train - mean) / sd

    # The model is a plain PyMC model. Its step method, Gibbs, is chosen by pm.sample; the latent
    # layers are drawn but not stored. Chains start at different draws from the prior.
    model = nns.intermediate_noise_mlp(
        X_train,
        z_train,
        hidden=(10,),
        noise={"pre": 0.5, "post": 0.5, "output": 0.3},
        start="prior",
    )
    print(nns.explain(model), "\n")
    with model:
        idata = pm.sample(
            5000,
            tune=1000,
            chains=4,
            cores=2,
            random_seed=SEED,
            var_names=["W1", "b1", "W2", "b2"],
            compute_convergence_checks=False,  # of weights; function values are checked below
        )

    # Convergence: hidden units can change places, so look at what the network computes.
    f = mean + sd * nns.predict(idata, X_test, model=model).isel(output=0)
    print(f"\nfunction values at {len(y_test)} test inputs")
    print(nns.diagnose(idata, X_test, model=model))

    # Prediction: new inputs, and every noise of the network drawn afresh.
    weights = idata["posterior"].to_dataset().isel(draw=slice(None, None, 5))
    with model:
        pm.set_data({"inputs": X_test})
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

    ridge = RidgeCV(np.logspace(-2, 4, 25)).fit(X_train, z_train)
    ridge_predicted = mean + sd * ridge.predict(X_test)
    residual_sd = np.std(y_train - mean - sd * ridge.predict(X_train))
    ridge_interval = ridge_predicted + 1.645 * residual_sd * np.array([[-1], [1]])

    print(f"\n{'':18}{'test RMSE':>10}{'90 % interval covers':>24}")
    for name, point, bounds in (
        ("neural network", predicted, interval),
        ("ridge regression", ridge_predicted, ridge_interval),
    ):
        rmse = np.sqrt(np.mean((point - y_test) ** 2))
        covered = np.mean((bounds[0] < y_test) & (y_test < bounds[1]))
        print(f"{name:18}{rmse:10.1f}{covered:24.0%}")

    plot_trace(f).savefig(HERE / "quickstart_trace.png", dpi=150)
    plot_predictions(predicted, interval, y_test).savefig(
        HERE / "quickstart_predictions.png", dpi=150
    )


def plot_trace(f: xr.DataArray) -> Figure:
    """Function values at three test inputs, over the draws of each chain."""
    figure, axes = plt.subplots(3, 1, figsize=(8, 6), sharex=True, layout="constrained")
    for obs, ax in enumerate(axes):
        for chain in f["chain"].values:
            ax.plot(f.sel(chain=chain).isel(obs=obs)[::5], lw=0.4, label=f"chain {chain}")
        ax.set_ylabel(f"f(x), test input {obs}")
    axes[0].legend(loc="upper right", ncols=4, fontsize="small")
    axes[-1].set_xlabel("every fifth draw")
    return figure


def plot_predictions(predicted: np.ndarray, interval: np.ndarray, truth: np.ndarray) -> Figure:
    """Predictions and their intervals against the truth."""
    figure, ax = plt.subplots(figsize=(6, 6), layout="constrained")
    error = np.abs(interval - predicted)
    ax.errorbar(truth, predicted, yerr=error, fmt="o", ms=4, lw=0.8, alpha=0.7)
    ax.axline((truth.mean(), truth.mean()), slope=1, color="black", lw=1)
    ax.set_xlabel("disease progression, measured")
    ax.set_ylabel("disease progression, predicted (90 % intervals)")
    return figure


if __name__ == "__main__":
    main()
