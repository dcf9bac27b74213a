"""Networks with hierarchical priors against Neal's Flexible Bayesian Modelling software.

Its data and figures are read from the folder that is shared beside the project. Cases t1 (real
targets) and t2 (binary; precisions per unit, Student-t weights) come with posterior means by
importance sampling, ``rdata`` (100 cases of a function of one input) with ten long chains.
"""

import json
import time
from functools import cache

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import special, stats

import pymc_nnsteps as nns
from tests.original_software import FOLDER, rdata, start

pytestmark = [
    pytest.mark.skipif(
        not FOLDER.exists(),
        reason="../shared/reference/fbm, the original software's figures, is absent",
    ),
    pytest.mark.filterwarnings("ignore:rejection_sample accepted"),
]


def t1():
    data = np.loadtxt(FOLDER / "t1.data")
    priors = {"ih": "1:4", "bh": "1:4", "ho": "x1.5:4", "bo": 1, "noise": "0.5:4"}
    return nns.hierarchical_mlp(data[:, :1], data[:, 1], hidden=(2,), priors=priors)


def t2():
    data = np.loadtxt(FOLDER / "t2.data")
    priors = {"ih": "x1:3:4", "bh": "1:3", "ho": "x2:3::4", "bo": 1}
    y = data[:, 2].astype(int)
    return nns.hierarchical_mlp(data[:, :2], y, hidden=(3,), priors=priors, likelihood="bernoulli")


NAMES = {
    "log_h1": "tau_ih1",
    "log_h1_1": "tau_ih1_unit",
    "log_h1_2": "tau_ih1_unit",
    "log_h2": "tau_bh1",
    "log_h3": "tau_h1o",
    "log_n": "tau_noise",
}
CASES = {"t1": t1, "t2": t2}


def listed_of(case):
    """Posterior means, sds and their Monte Carlo errors by importance sampling."""
    return json.loads((FOLDER / f"{case}.is.json").read_text())["stats"]


def quantities(case, model, idata):
    """The listed quantities, each of shape (chain, draw)."""
    inputs = np.loadtxt(FOLDER / f"{case}.test", ndmin=2).reshape(5, -1)
    f = nns.predict(idata, inputs, model=model).values[..., 0]
    found = {}
    for name in listed_of(case):
        kind, _, unit = name.partition("_")
        if kind == "log":
            tau = idata["posterior"][NAMES[name]].values
            entry = tau[..., int(unit[-1]) - 1] if unit.startswith("h1_") else tau
            found[name] = -0.5 * np.log(entry)
        else:
            value = f[..., int(kind[1:]) - 1]
            found[name] = special.expit(value) if kind.startswith("p") else value
    return found


@cache
def exact(case, draws=2_000):
    """Independent draws of the listed quantities, each of shape (1, draw)."""
    model = CASES[case]()
    drawn = nns.lab.rejection_sample(model, draws, random_seed=1, progressbar=False)
    return quantities(case, model, drawn)


def z_scores(case, found, listed):
    """Deviations of means and of squared deviations, in combined Monte Carlo errors.

    A chain that has met little of a tail tells too small a spread of its squares: the error takes
    the spread of exact draws, and the autocorrelation of the slower of values and squares. Outputs
    have four moments at most (their weights are Student-t with four degrees of freedom), so that
    the error of their squares is not to be had.
    """
    scores = {}
    for name, values in found.items():
        mean, sd, error = (listed[name][key] for key in ("mean", "sd", "mcse"))
        scores[name] = (values.mean() - mean) / np.hypot(monte_carlo_error(values), error)
        if not name.startswith("f"):
            squares, n_effective = (values - mean) ** 2, effective_draws(values)
            spread = np.std((exact(case)[name] - mean) ** 2)
            own_error = spread / np.sqrt(min(n_effective, effective_draws(squares)))
            combined = np.hypot(own_error, error * spread / sd)
            scores[f"{name} squared"] = (squares.mean() - sd**2) / combined
    return scores


def effective_draws(values):
    return float(az.ess(values, method="mean"))


def monte_carlo_error(values):
    return values.std() / np.sqrt(effective_draws(values))


def assert_within_4_errors(case, found, listed):
    scores = z_scores(case, found, listed)
    wrong = {name: round(float(z), 1) for name, z in scores.items() if not abs(z) < 4}
    assert not wrong, f"z-scores beyond 4: {wrong}"


@pytest.mark.parametrize("case", [pytest.param("t1", marks=pytest.mark.slow), "t2"])
def test_rejection_sampling(case):
    """A level, a connection, a scaling or a bound that is not the original's."""
    assert_within_4_errors(case, exact(case, 10_000), listed_of(case))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("case", CASES)
def test_plain_sampling(case):
    """Compiled trajectories in a metric of precisions that Gibbs moves."""
    model = CASES[case]()
    idata = pm.sample(
        4_000, tune=1_000, chains=2, cores=2, random_seed=1, model=model,
        progressbar=False, compute_convergence_checks=False,
    )  # fmt: skip
    assert int(idata["sample_stats"]["diverging"].sum()) < 80
    assert_within_4_errors(case, quantities(case, model, idata), listed_of(case))


HYPERPARAMETERS = {"n": "tau_noise", "h1": "tau_ih1", "h3": "tau_h1o", "h2": "tau_bh1"}


def batch_error(values):
    """Monte Carlo error of the mean, by means over 300 successive draws, a tenth of a chain.

    The autocorrelation of function values does not show that their law follows slow scales.
    """
    means = values[: 300 * (len(values) // 300)].reshape(-1, 300).mean(axis=1)
    return means.std(ddof=1) / np.sqrt(len(means))


def compared(name, draws, listed):
    """A line of the table, and whether mean and sd agree: 4 errors, and 5 % or 4 errors."""
    error = np.hypot(batch_error(draws), listed["mcse_batch"])
    z, ratio = (draws.mean() - listed["mean"]) / error, draws.std() / listed["sd"]
    ratio_error = batch_error((draws - draws.mean()) ** 2) / (2 * draws.var())
    line = f"{name:9}{draws.mean():9.4f}{listed['mean']:9.4f}{z:6.1f}{ratio:8.3f}"
    return line, abs(z) < 4 and abs(ratio - 1) < max(0.05, 4 * ratio_error)


def in_main_mode(posterior):
    """Which draws are in the main mode, as the listed figures define it, shape (chain, draw).

    A chain is in the other one from where the ratio of the scales of hidden biases and output
    weights exceeds exp(-0.5) to where it is below exp(-4).
    """
    tau_h2, tau_h3 = (posterior[HYPERPARAMETERS[name]].values for name in ("h2", "h3"))
    inside = np.empty(tau_h2.shape, bool)
    for chain, log_ratio in enumerate(-0.5 * np.log(tau_h2 / tau_h3)):
        main = True
        for draw, value in enumerate(log_ratio):
            main = value <= -0.5 if main else value < -4
            inside[chain, draw] = main
    return inside


@pytest.mark.slow
def test_regression_of_rdata(capsys):
    """Function values, noise and scales in the main mode, and the log density of fresh cases.

    Chains that begin there may visit the other mode, of mass 0.036, for thousands of draws: all
    draws in the main mode count, those of a chain after those of the one before it.
    """
    listed = json.loads((FOLDER / "rdata_reference.json").read_text())
    model = rdata()
    began = time.process_time()
    idata = pm.sample(
        3_000, tune=1_000, chains=5, cores=1, random_seed=1, model=model,
        initvals=[start(model, seed) for seed in range(5)],
        progressbar=False, compute_convergence_checks=False,
    )  # fmt: skip
    cpu_seconds = time.process_time() - began
    inside = in_main_mode(idata["posterior"])
    assert inside.sum() > 7_000
    kept = {name: values.values[inside][None] for name, values in idata["posterior"].items()}
    posterior = az.from_dict({"posterior": kept})["posterior"].to_dataset()
    inner = [case for case in listed["f"] if abs(case["x"]) <= 2]
    inputs = np.array([[case["x"]] for case in inner])
    f = nns.predict(posterior, inputs, model=model).values[..., 0]
    rows = [(f"f({case['x']:g})", f[0, :, i], case, "modeB") for i, case in enumerate(inner)]
    for name, tau in HYPERPARAMETERS.items():
        log_scale = -0.5 * np.log(posterior[tau].values[0])
        rows.append((f"log {name}", log_scale, listed["hyper"][name], "log_modeB"))
    table, wrong = [f"{'':9}{'mean':>9}{'listed':>9}{'z':>6}{'sd':>8}  ESS/CPU s   listed"], []
    for name, draws, case, mode in rows:
        line, agrees = compared(name, draws, case[mode])
        speed = float(az.ess(draws[None])) / cpu_seconds
        table.append(f"{line}{speed:10.2f}{case.get('log', case)['ess_per_cpu_s']:10.2f}")
        wrong += [] if agrees else [name]
    score, squared_error = on_fresh_cases(model, posterior)
    table.append(f"1000 fresh cases: log density {score:.3f}, squared error {squared_error:.4f}")
    with capsys.disabled():
        print("", *table, sep="\n")
    assert not wrong
    assert score == pytest.approx(0.811, abs=0.05)  # twice its standard error over the cases
    assert squared_error == pytest.approx(0.0199, abs=0.003)


def on_fresh_cases(model, posterior):
    """Log density per case, and squared error of the mean."""
    x, y = np.loadtxt(FOLDER / "rdata_test.csv", delimiter=",", skiprows=1, unpack=True)
    some = posterior.isel(draw=slice(None, None, 4))
    f = nns.predict(some, x[:, None], model=model).values[..., 0]
    sigma = some["sigma"].values[..., None]
    log_density = special.logsumexp(stats.norm.logpdf(y, f, sigma), axis=(0, 1)) - np.log(
        sigma.size
    )
    return log_density.mean(), np.mean((y - f.mean(axis=(0, 1))) ** 2)
