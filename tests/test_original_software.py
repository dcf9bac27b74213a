"""Networks with hierarchical priors against Neal's Flexible Bayesian Modelling software.

Its data and figures are read from the folder that is shared beside the project. Cases t1 (real
targets) and t2 (binary; precisions per unit, Student-t weights) come with posterior means by
importance sampling, ``rdata`` (100 cases of a function of one input) with ten long chains.
"""

import json
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import special

import pymc_nnsteps as nns

FOLDER = Path(__file__).parents[2] / "shared" / "reference" / "fbm"

pytestmark = pytest.mark.skipif(
    not FOLDER.exists(),
    reason="../shared/reference/fbm, the original software's figures, is absent",
)


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


def quantities(case, model, idata):
    """The listed quantities, each of shape (chain, draw)."""
    listed = json.loads((FOLDER / f"{case}.is.json").read_text())["stats"]
    inputs = np.loadtxt(FOLDER / f"{case}.test", ndmin=2).reshape(5, -1)
    f = nns.predict(idata, inputs, model=model).values[..., 0]
    found = {}
    for name in listed:
        kind, _, unit = name.partition("_")
        if kind == "log":
            tau = idata["posterior"][NAMES[name]].values
            entry = tau[..., int(unit[-1]) - 1] if unit.startswith("h1_") else tau
            found[name] = -0.5 * np.log(entry)
        else:
            value = f[..., int(kind[1:]) - 1]
            found[name] = special.expit(value) if kind.startswith("p") else value
    return found, listed


def z_scores(found, listed):
    """Of the mean and of the squared deviation of each quantity, in combined Monte Carlo errors."""
    scores = {}
    for name, values in found.items():
        mean, sd, error = (listed[name][key] for key in ("mean", "sd", "mcse"))
        squares = (values - mean) ** 2
        square_error = error * squares.std() / sd
        scores[name] = (values.mean() - mean) / np.hypot(monte_carlo_error(values), error)
        scores[f"{name} squared"] = (squares.mean() - sd**2) / np.hypot(
            monte_carlo_error(squares), square_error
        )
    return scores


def monte_carlo_error(values):
    return values.std() / np.sqrt(float(az.ess(values, method="mean")))


def assert_within_4_errors(found, listed):
    scores = z_scores(found, listed)
    wrong = {name: round(float(z), 1) for name, z in scores.items() if not abs(z) < 4}
    assert not wrong, f"z-scores beyond 4: {wrong}"


@pytest.mark.parametrize("case", CASES)
def test_rejection_sampling(case):
    """A level, a connection, a scaling or a bound that is not the original's."""
    model = CASES[case]()
    exact = nns.rejection_sample(model, 10_000, random_seed=1, progressbar=False)
    assert_within_4_errors(*quantities(case, model, exact))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("case", CASES)
def test_gibbs_and_nuts(case):
    model = CASES[case]()
    idata = pm.sample(
        10_000, tune=1_000, chains=2, cores=2, random_seed=1, model=model, target_accept=0.95,
        progressbar=False, compute_convergence_checks=False,
    )  # fmt: skip
    assert_within_4_errors(*quantities(case, model, idata))
