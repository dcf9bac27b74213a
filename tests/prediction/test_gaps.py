"""Targets with missing entries: what is predicted, and the likelihood of what was observed."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_nnsteps as nns
from pymc_nnsteps.prediction import blocks
from tests.prediction.draws import made_up

RNG = np.random.default_rng(1)
X, WHOLE = RNG.normal(size=(6, 2)), RNG.normal(size=(6, 2))
GAPS = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [0, 0], [0, 1]], dtype=bool)
TARGETS = np.where(GAPS, np.nan, WHOLE)
pytestmark = pytest.mark.filterwarnings("ignore:Data in:pymc.exceptions.ImputationWarning")


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    monkeypatch.setattr(blocks, "c_by_default", lambda: {"mode": "FAST_COMPILE"})


def noisy(y, pre=0.0):
    noise = {"pre": pre, "post": 0.2, "output": 0.3}
    return nns.intermediate_noise_mlp(X, y, hidden=(3,), noise=noise)


def student(y):
    return nns.hierarchical_mlp(
        X, y, hidden=(2,), likelihood="student_t", priors={"noise": "1:2:3:4"}
    )


def log_likelihood(draws, model):
    return nns.log_likelihood(draws, model, random_seed=1, noise_draws=4000)["log_likelihood"]["y"]


@pytest.mark.parametrize("pre", [0.0, 0.5])
def test_likelihood_of_what_was_observed(pre):
    """Columns share the noise of their row: with a gap it is that of the other column alone."""
    model = noisy(TARGETS, pre)
    draws = made_up(noisy(WHOLE, pre), n_draws=1)
    found = log_likelihood(draws, model)
    complete = log_likelihood(draws, noisy(WHOLE, pre)).values[0, 0]
    each = [
        log_likelihood(draws.isel(output=[j]), noisy(WHOLE[:, [j]], pre)).values[0, 0]
        for j in (0, 1)
    ]
    expected = np.array([complete[0], each[0][1], each[1][2], complete[4], each[0][5]])
    np.testing.assert_allclose(found[0, 0], expected, atol=1e-10 if pre == 0 else 0.1)
    assert list(found["obs"]) == [0, 1, 2, 4, 5]
    np.testing.assert_array_equal(
        nns.predict(draws, X[:2], model=model), nns.predict(draws, X[:2], model=noisy(WHOLE, pre))
    )


def test_one_output_and_other_laws():
    """One output, and numbers that are independent given the weights, each with its scale."""
    one, gaps = noisy(TARGETS[:, 1], 0.5), GAPS[:, 1]
    draws = made_up(noisy(WHOLE[:, 1], 0.5))
    found, complete = log_likelihood(draws, one), log_likelihood(draws, noisy(WHOLE[:, 1], 0.5))
    np.testing.assert_allclose(found, complete[..., ~gaps], rtol=0.01)

    draws = made_up(student(WHOLE))
    found = log_likelihood(draws, student(TARGETS))
    f = nns.predict(draws, X, model=student(TARGETS)).values
    sigma = draws["tau_noise_unit"].values[:, :, None] ** -0.5
    each = pm.logp(pm.StudentT.dist(4, f, sigma=sigma), WHOLE).eval(mode="FAST_COMPILE")
    seen = ~GAPS.all(axis=1)
    np.testing.assert_allclose(found, np.where(GAPS, 0, each).sum(-1)[..., seen], rtol=1e-8)
    responses = nns.predict(draws, X, model=student(TARGETS), kind="response", random_seed=1)
    assert np.isfinite(responses).all()


def one_layer(x, W):
    return pm.Normal("h", pm.math.maximum(pm.Normal("z", x @ W, 0.5), 0), 0.2)


HIDDEN = {
    "exact": lambda x, W: x @ W,
    "linear": one_layer,
    "draws": lambda x, W: pm.math.tanh(one_layer(x, W)),
    "gates": lambda x, W: pm.math.tanh(
        pm.Normal("h", pm.Bernoulli("g", logit_p=x @ W) * (x @ W), 0.2)
    ),
}
LABELS, LEVELS = np.array([1.0, 0, 1, 1, 0, 1]), np.array([0.0, 1, 2, 0, 1, 2])


def largest(f, y):
    winner = pm.math.argmax(pm.Normal("u", f, 1.0), axis=-1)
    pm.Categorical("y", p=pm.math.eq(winner[:, None], np.arange(3)), observed=y)


LAWS = {
    "normal": (1, WHOLE[:, 0], lambda f, y: pm.Normal("y", f[:, 0], 0.3, observed=y)),
    "threshold": (
        1,
        LABELS,
        lambda f, y: pm.Bernoulli("y", pm.math.gt(pm.Normal("u", f[:, 0]), 0), observed=y),
    ),
    "largest": (3, LEVELS, largest),
    "bernoulli": (1, LABELS, lambda f, y: pm.Bernoulli("y", logit_p=f[:, 0], observed=y)),
    "categorical": (3, LEVELS, lambda f, y: pm.Categorical("y", logit_p=f, observed=y)),
    "counts": (1, LEVELS, lambda f, y: pm.Poisson("y", pm.math.exp(f[:, 0]), observed=y)),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("path", HIDDEN)
def test_missing_rows_of_every_law(law, path):
    """A missing row is left out, and all else is as if it were not there."""
    n_outputs, y, observe = LAWS[law]

    def build(targets):
        with pm.Model() as model:
            W, V = pm.Normal("W", shape=(2, 3)), pm.Normal("V", shape=(3, n_outputs))
            observe(HIDDEN[path](pm.Data("inputs", X), W) @ V, targets)
        return model

    def found(model):
        tree = nns.log_likelihood(draws, model, noise_draws=500, random_seed=1)
        return [tree[name]["y"].values[0] for name in ("log_likelihood", "log_likelihood_error")]

    as_they_are = y if law == "normal" else y.astype(int)
    draws = xr.Dataset(
        {
            "W": (("chain", "draw", "i", "j"), RNG.normal(size=(1, 2, 2, 3))),
            "V": (("chain", "draw", "k", "l"), RNG.normal(size=(1, 2, 3, n_outputs))),
        },
        {"chain": [0], "draw": [0, 1]},
    )
    missing = GAPS[:, 1]
    log, error = found(build(np.ma.masked_array(as_they_are, missing)))
    whole, whole_error = found(build(as_they_are))
    whole, whole_error = whole[:, ~missing], whole_error[:, ~missing]
    assert np.all(np.abs(log - whole) < 5 * (error + whole_error) + 1e-9)
    assert np.all(whole < 0) or law == "normal"


def test_missing_values_that_enter_something_else_are_no_targets():
    with pm.Model() as model:
        x, w = pm.Data("inputs", X), pm.Normal("w", shape=2)
        y = pm.Normal("y", x @ w, 1, observed=TARGETS[:, 0])
        pm.Normal("z", y.sum(), 1, observed=0.0)
    with pytest.raises(ValueError, match="there must be one observed variable"):
        nns.predict(made_up(model), X, model=model)
