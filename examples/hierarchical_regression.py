"""Regression on one input with a network that learns the scales of its own weights.

Data: y = 0.3 + 0.4 x + 0.5 sin(2.7 x) + 1.1 / (1 + x^2) + noise of standard deviation 0.1, with
x standard normal (Neal, *Bayesian Learning for Neural Networks*). Precisions are drawn by Gibbs
steps, weights by HMC in between. Prints R-hat and ESS of function values, the hyperparameters as
standard deviations, and the error on 1000 fresh cases; writes hierarchical_regression.png beside
this script.
"""

from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats
from scipy.special import logsumexp

import pymc_nnsteps as nns

SEED = 0
N_TRAIN, N_TEST = 100, 1000
NOISE = 0.1
HERE = Path(__file__).parent


def main() -> None:
    rng = np.random.default_rng(SEED)
    x, y = generate(rng, N_TRAIN)
    x_test, y_test = generate(rng, N_TEST)

    model = nns.hierarchical_mlp(x[:, None], y, hidden=(8,))
    with model:
        idata = pm.sample(
            500,
            tune=500,
            chains=4,
            cores=2,
            random_seed=SEED,
        )

    grid = np.linspace(-3.5, 3.5, 141)
    f = nns.predict(idata, grid[:, None], model=model).isel(output=0)
    inner = f.isel(obs=np.abs(grid) <= 2).to_dataset(name="f")
    print("\nfunction values at |x| <= 2")
    print(f"  R-hat  largest  {float(az.rhat(inner)['f'].max()):.3f}")
    print(f"  ESS    smallest {float(az.ess(inner)['f'].min()):.0f}")

    posterior = idata["posterior"]
    scales = xr.Dataset({name: posterior[name] ** -0.5 for name in precisions(model)})
    scales = scales.rename({name: name.replace("tau_", "sd ") for name in scales})
    print("\nhyperparameters, as standard deviations\n")
    print(az.summary(scales, kind="stats"))

    f_test = nns.predict(idata, x_test[:, None], model=model).isel(output=0)
    sigma = posterior["sigma"]
    log_density = xr.apply_ufunc(stats.norm.logpdf, y_test, f_test, sigma)
    score = logsumexp(log_density, axis=(0, 1)) - np.log(sigma.size)
    error = np.mean((f_test.mean(("chain", "draw")).values - y_test) ** 2)
    print(f"\n{N_TEST} fresh cases: squared error {error:.4f} (noise alone {NOISE**2:.4f}),")
    print(f"log density {score.mean():.3f} (of the truth {best_score():.3f})")

    plot(x, y, grid, f, sigma, rng).savefig(HERE / "hierarchical_regression.png", dpi=150)


def truth(x: np.ndarray) -> np.ndarray:
    return 0.3 + 0.4 * x + 0.5 * np.sin(2.7 * x) + 1.1 / (1 + x**2)


def generate(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.standard_normal(n)
    return x, truth(x) + NOISE * rng.standard_normal(n)


def precisions(model: pm.Model) -> list[str]:
    return [rv.name for rv in model.free_RVs if rv.name.startswith("tau_")]


def best_score() -> float:
    """Expected log density of a case under the law it was drawn from."""
    return float(-0.5 - np.log(NOISE * np.sqrt(2 * np.pi)))


def plot(
    x: np.ndarray,
    y: np.ndarray,
    grid: np.ndarray,
    f: xr.DataArray,
    sigma: xr.DataArray,
    rng: np.random.Generator,
) -> Figure:
    """The posterior of the function, and of new observations."""
    new = f + sigma * f.copy(data=rng.standard_normal(f.shape))
    figure, ax = plt.subplots(figsize=(8, 5), layout="constrained")
    for draws, label in ((new, "new observations, 90 %"), (f, "function, 90 %")):
        low, high = draws.quantile([0.05, 0.95], ("chain", "draw")).values
        ax.fill_between(grid, low, high, alpha=0.3, label=label)
    ax.plot(grid, f.median(("chain", "draw")), label="function, median")
    ax.plot(grid, truth(grid), "k--", lw=1, label="truth")
    ax.plot(x, y, "k.", ms=4, label="data")
    ax.set(xlabel="x", ylabel="y", ylim=(y.min() - 1, y.max() + 1))
    ax.legend()
    return figure


if __name__ == "__main__":
    main()
