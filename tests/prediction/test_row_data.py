"""Effects of groups and other data that go with the rows: computed as by hand, or refused."""

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import multivariate_normal, nbinom, norm, poisson

import pymc_nnsteps as nns
from pymc_nnsteps.prediction import blocks
from tests.prediction.draws import made_up

RNG = np.random.default_rng(0)
N_OBS, N_GROUPS = 12, 4
X = RNG.normal(size=(N_OBS, 2))
GROUP, PLACE = RNG.integers(N_GROUPS, size=N_OBS), RNG.integers(3, size=N_OBS)
OFFSET, Y = RNG.normal(size=N_OBS), RNG.normal(size=N_OBS)
PARENT = np.array([0, 2, 1, 1])
DATA = {"inputs": X, "group": GROUP, "place": PLACE, "offset": OFFSET}
OTHERS = {name: np.concatenate([each[[7, 2, 2]], each[::-1]]) for name, each in DATA.items()}


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    monkeypatch.setattr(blocks, "c_by_default", lambda: {"mode": "FAST_COMPILE"})


def data_of(constants=()):
    """Data containers, but for those that the model states as numbers."""
    dims = {"inputs": ("obs", "feature")}
    return [
        pt.as_tensor(values) if name in constants else pm.Data(name, values, dims=dims.get(name))
        for name, values in DATA.items()
    ]


def model_of(f, constants=()):
    """A normal model of the mean ``f(x, group, place, offset, a, B)``."""
    with pm.Model() as model:
        a, B = pm.Normal("a", shape=N_GROUPS), pm.Normal("B", shape=(N_GROUPS, 2))
        mean = f(*data_of(constants), a, B)
        y = np.zeros((N_OBS, 2)[: mean.ndim])
        pm.Normal("y", mean, 1, observed=y)
    return model


def parent(group):
    return (PARENT if isinstance(group, np.ndarray) else pt.as_tensor(PARENT))[group]


ROW_BY_ROW = {
    "intercepts": lambda x, group, place, offset, a, B: x @ B[0] + a[group],
    "crossed": lambda x, group, place, offset, a, B: x @ B[0] + a[group] + B[place, 1],
    "nested": lambda x, group, place, offset, a, B: x @ B[0] + B[parent(group), 0] + a[group],
    "slopes": lambda x, group, place, offset, a, B: a[group] + B[group, 0] * x[:, 0],
    "slopes of all": lambda x, group, place, offset, a, B: (B[group] * x).sum(axis=1),
    "shifted": lambda x, group, place, offset, a, B: x @ B[0] + (2 + 3 * a)[group],
    "two outputs": lambda x, group, place, offset, a, B: x @ B[:2] + B[group],
    "offset": lambda x, group, place, offset, a, B: x @ B[0] + offset,
    "condition": lambda x, group, place, offset, a, B: x @ B[0] + (group > 1) * a[0],
    "cells": lambda x, group, place, offset, a, B: x @ B[0] + B[group, place % 2],
    "hidden layer": lambda x, group, place, offset, a, B: abs(x @ B.T + B[group][:, :1]) @ a,
}


@pytest.mark.parametrize("constants", [(), tuple(DATA)[1:]], ids=["data", "constants"])
@pytest.mark.parametrize("f", ROW_BY_ROW.values(), ids=ROW_BY_ROW)
def test_function_values_are_those_of_the_rows(f, constants):
    """Groups that stay behind, or go with another row, give other values."""
    model = model_of(f, constants)
    draws = made_up(model)
    weights = list(zip(draws["a"].values[0], draws["B"].values[0], strict=True))
    for given, rows in ((X, DATA), (OTHERS, OTHERS))[: 1 if constants else 2]:
        found = nns.predict(draws, given, model=model).values[0]
        expected = np.array([f(*rows.values(), *each) for each in weights])
        np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-12)


MIXED = {
    "other rows": (
        lambda x, group, offset, a: x[:, 0] + a[group][::-1],
        "selects or reorders rows",
    ),
    "rows in turn": (lambda x, group, offset, a: x[:, 0] + a[group[::-1]], "selects or reorders"),
    "centred": (
        lambda x, group, offset, a: x[:, 0] + a[group] - a[group].mean(),
        "across the rows",
    ),
    "summed": (lambda x, group, offset, a: x[:, 0] + pt.cumsum(offset), "acts across the rows"),
    "pairs": (
        lambda x, group, offset, a: x[:, 0] * offset + offset[group],
        "selects or reorders rows",
    ),
    "of each row": (
        lambda x, group, offset, a: x[:, 0] + pm.Normal("e", shape=N_OBS),
        "of e, which",
    ),
}


@pytest.mark.parametrize(("f", "reason"), MIXED.values(), ids=MIXED)
def test_what_mixes_rows_is_declined(f, reason):
    model = model_of(lambda x, group, place, offset, a, B: f(x, group, offset, a))
    for function in (nns.predict, lambda draws, X, model: nns.log_likelihood(draws, model)):
        with pytest.raises(ValueError, match=reason):
            function(made_up(model), X, model=model)


def test_all_data_that_are_lacking_are_named():
    """One after another, each in an error of its own."""
    model = model_of(ROW_BY_ROW["crossed"])
    draws = made_up(model)
    message = r'whose {} with them; pass X_new=\{{"inputs": ..., "group": ..., "place": ...\}}'
    for given, lacking in (({}, "group, place go"), ({"group": GROUP}, "place goes")):
        with pytest.raises(ValueError, match=message.format(lacking)):
            nns.predict(draws, {"inputs": X[::-1], **given}, model=model)


def test_statistics_of_the_data_stay():
    """What does not follow the rows is that of the data that the model holds."""
    model = model_of(
        lambda x, group, place, offset, a, B: (
            x @ B[0] + a[group].mean() * offset + pm.Normal("v", observed=Y).mean()
        )
    )
    draws = made_up(model)
    found = nns.predict(draws, {name: OTHERS[name] for name in ("inputs", "offset")}, model=model)
    means = draws["a"].values[..., GROUP].mean(axis=2)[0, :, None]
    expected = draws["B"].values[0, :, 0] @ OTHERS["inputs"].T + means * OTHERS["offset"] + Y.mean()
    np.testing.assert_allclose(found.values[0, :, :, 0], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    {
        "no groups": (OTHERS["inputs"], r'whose group goes with them; pass X_new=\{"inputs": ...'),
        "as many rows": (X[::-1], "X_new has other rows than the model, whose group"),
        "no inputs": ({"group": GROUP}, "X_new must have 'inputs', the network's inputs"),
        "an unknown name": ({"inputs": X, "grp": GROUP}, "X_new names 'grp', which the model does"),
        "fewer": ({"inputs": X, "group": GROUP[1:]}, "group goes with the rows of inputs and must"),
        "two axes": ({"inputs": X, "group": X}, r"X_new\['group'\] must have shape \(n_obs,\)"),
        "a new group": ({"inputs": X, "group": GROUP + 1}, "X_new picks entry 4 of a, which has"),
        "a fraction": (
            {"inputs": X, "group": GROUP + 0.5},
            r"X_new\['group'\] must be of whole numbers",
        ),
        "other labels": (
            {"inputs": pd.DataFrame(X), "group": pd.Series(GROUP, index=range(1, N_OBS + 1))},
            r"X_new\['group'\] has other row labels than X_new\['inputs'\]",
        ),
    }.values(),
)
def test_bad_rows(given, message):
    """Rows that are others than the model's, in silence with the groups of the model's."""
    model = model_of(ROW_BY_ROW["intercepts"])
    with pytest.raises(ValueError, match=message):
        nns.predict(made_up(model), given, model=model)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (PLACE[:5], "place goes with the rows of inputs and must have as many; it has 5"),
        (PLACE + 0.5, r"X_new\['place'\] must be of whole numbers"),
    ],
)
def test_bad_rows_of_what_is_not_needed(place, message):
    """They were passed over, and asked for where another output was."""
    model = model_of(ROW_BY_ROW["intercepts"])
    given = {"inputs": X, "group": GROUP}
    expected = nns.predict(made_up(model), given, model=model)
    found = nns.predict(made_up(model), {**given, "place": PLACE[::-1]}, model=model)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match=message):
        nns.predict(made_up(model), {**given, "place": place}, model=model)


def test_bounds_of_censored_targets_may_be_infinite():
    """New rows without a bound have whole responses; what is missing is refused all the same."""
    with pm.Model() as model:
        f = pm.Data("inputs", X) @ pm.Normal("w", shape=2)
        bound = pm.Data("bound", np.where(Y > 0, 0, np.inf))
        pm.Censored("y", pm.Normal.dist(f, 1), None, bound, observed=np.minimum(Y, 0))
    draws = made_up(model, n_draws=20)
    for bound, beyond in ((np.inf, True), (0.0, False)):
        new = {"inputs": X[:3], "bound": np.full(3, bound)}
        drawn = nns.predict(draws, new, model=model, kind="response", random_seed=1)
        assert (drawn > 0).any() == beyond
    with pytest.raises(ValueError, match=r"X_new\['bound'\] has 3 NaN"):
        nns.predict(draws, new | {"bound": np.full(3, np.nan)}, model=model, kind="response")


def test_rows_of_constants():
    model = model_of(ROW_BY_ROW["intercepts"], ["group"])
    with pytest.raises(ValueError, match=r"int64 numbers of shape \(12,\) .* row in pm.Data\.$"):
        nns.predict(made_up(model), X[::-1], model=model)
    with model:
        pm.Deterministic("slope", model["inputs"] @ model["B"][0])
    with pytest.raises(ValueError, match=r'or compute .*, predict\(..., output="slope"\)\.$'):
        nns.predict(made_up(model), X[::-1], model=model)


def test_rows_that_were_set():
    model = model_of(ROW_BY_ROW["intercepts"])
    draws = made_up(model)
    expected = nns.predict(draws, OTHERS, model=model)
    pm.set_data(OTHERS, model=model)
    np.testing.assert_array_equal(nns.predict(draws, OTHERS["inputs"], model=model), expected)
    pm.set_data({"inputs": X}, model=model)
    with pytest.raises(
        ValueError, match="group goes with the rows of inputs and must have as many"
    ):
        nns.predict(draws, X, model=model)


# --- laws ----------------------------------------------------------------------------------


def mixed(law, noise=0.0, slopes=False):
    """A network of two units beside effects of groups."""
    with pm.Model() as model:
        x, group, *_ = data_of()
        a = pm.Normal("a", 0, 1, shape=N_GROUPS)
        hidden = {"pre": noise, "post": noise, "output": 0.0}
        f = nns.blocks.intermediate_noise(x, hidden=(2,), noise=hidden)
        b = pm.Normal("b", 0, 1, shape=N_GROUPS)[group] if slopes else 1.0
        law(a[group] + b * f)
    return model


def normal(mean):
    pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=Y)


COUNTS = RNG.poisson(3, size=N_OBS)


def counts(mean):
    pm.Poisson("y", pt.exp(mean), observed=COUNTS)


def overdispersed(mean):
    alpha = pm.Exponential("alpha", 1, shape=N_GROUPS)
    pm.NegativeBinomial("y", pt.exp(mean), alpha=alpha[pm.Data("class", GROUP)], observed=COUNTS)


NODES = np.linspace(-9, 9, 901)


@pytest.mark.parametrize("slopes", [False, True])
def test_activations_are_integrated_out_beside_effects(slopes):
    """Against quadrature over both units: the effect of another row, or none, or its slope lost."""
    model = mixed(normal, 0.3, slopes)
    draws = made_up(model)
    found = nns.log_likelihood(draws, model, noise_draws=4000, random_seed=1)
    one = {name: values[0, 0] for name, values in draws.items()}
    z = X @ one["f::W1"].values.T + one["f::b1"].values
    x = np.maximum(z[:, :, None] + 0.3**0.5 * NODES, 0)
    effect = one["a"].values[GROUP]
    b = one["b"].values[GROUP] if slopes else np.ones(N_OBS)
    first, second = one["f::W2"].values[0]
    f = one["f::b2"].values + first * x[:, 0, :, None] + second * x[:, 1, None]
    sd = np.sqrt(one["sigma"].values ** 2 + 0.3 * b**2 * (first**2 + second**2))
    log = norm.logpdf(
        Y[:, None, None], effect[:, None, None] + b[:, None, None] * f, sd[:, None, None]
    )
    weights = norm.logpdf(NODES) + np.log(NODES[1] - NODES[0])
    expected = logsumexp(log + weights[:, None] + weights, axis=(1, 2))
    error = np.minimum(found["log_likelihood_error"]["y"].values[0, 0], 0.05)
    assert np.all(np.abs(found["log_likelihood"]["y"].values[0, 0] - expected) < 4 * error + 1e-4)


@pytest.mark.parametrize("law", [counts, overdispersed])
def test_likelihood_of_counts(law):
    """Dispersions of groups go with the rows as their effects do."""
    model = mixed(law)
    draws = made_up(model)
    found = nns.log_likelihood(draws, model)["log_likelihood"]["y"].values[0, 0]
    one = {name: values[0, 0].values for name, values in draws.items()}
    x = np.maximum(X @ one["f::W1"].T + one["f::b1"], 0)
    rate = np.exp(one["a"][GROUP] + x @ one["f::W2"][0] + one["f::b2"])
    expected = poisson.logpmf(COUNTS, rate)
    if law is overdispersed:
        alpha = one["alpha"][GROUP]
        expected = nbinom.logpmf(COUNTS, alpha, alpha / (alpha + rate))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_models_of_counts_are_compared():
    trees = {law.__name__: mixed(law) for law in (counts, overdispersed)}
    trees = {
        name: nns.log_likelihood(made_up(model, 100, 0.02), model) for name, model in trees.items()
    }
    assert set(az.compare(trees).index) == {"counts", "overdispersed"}


def test_responses_of_groups():
    """Means by hand, and the noise of the hidden layer beside that of the data."""
    model = mixed(normal, 0.0)
    draws = made_up(model, 1).isel(draw=[0] * 4000).assign_coords(draw=np.arange(4000))
    found = nns.predict(draws, OTHERS, model=model, kind="response", random_seed=1)
    one = {name: values[0, 0].values for name, values in draws.items()}
    x = np.maximum(OTHERS["inputs"] @ one["f::W1"].T + one["f::b1"], 0)
    mean = one["a"][OTHERS["group"]] + x @ one["f::W2"][0] + one["f::b2"]
    z = (found.values[0, :, :, 0].mean(axis=0) - mean) / (one["sigma"] / 4000**0.5)
    assert np.abs(z).max() < 4
    assert abs(found.std("draw").mean() / one["sigma"] - 1) < 0.02


def test_several_outputs_of_a_layer_with_effects():
    """Each row's targets are normal together, about effects of its group in both layers."""
    targets = RNG.normal(size=(N_OBS, 2))
    with pm.Model(coords={"obs": range(N_OBS), "unit": range(3)}) as model:
        x, group, *_ = data_of()
        W, E = pm.Normal("W", shape=(2, 3)), pm.Normal("E", shape=(N_GROUPS, 3))
        V, A = pm.Normal("V", shape=(3, 2)), pm.Normal("A", shape=(N_GROUPS, 2))
        layer = pm.Normal("layer", x @ W + E[group], 0.5, dims=("obs", "unit"))
        pm.Normal("y", layer @ V + A[group], 0.7, observed=targets)
    draws = made_up(model)
    found = nns.log_likelihood(draws, model)["log_likelihood"]["y"].values[0, 0]
    W, E, V, A = (draws[name].values[0, 0] for name in "WEVA")
    mean = (X @ W + E[GROUP]) @ V + A[GROUP]
    law = multivariate_normal(np.zeros(2), 0.49 * np.eye(2) + 0.25 * V.T @ V)
    np.testing.assert_allclose(found, law.logpdf(targets - mean), rtol=1e-9)
    f = nns.predict(draws, X, model=model).values[0, 0]
    np.testing.assert_allclose(f, mean, rtol=1e-9)


@pytest.mark.parametrize("law", ["logit", "probit"])
def test_probabilities_of_groups(law):
    with pm.Model(coords={"obs": range(N_OBS)}) as model:
        x, group, *_ = data_of()
        utility = x @ pm.Normal("w", shape=2) + pm.Normal("a", shape=N_GROUPS)[group]
        if law == "logit":
            pm.Bernoulli("y", logit_p=utility, observed=GROUP > 1)
        else:
            z = pm.Normal("z", utility, 1, dims="obs")
            pm.Bernoulli("y", p=pt.gt(z, 0).astype("float64"), observed=GROUP > 1)
    draws = made_up(model)
    found = nns.predict(draws, OTHERS, model=model, kind="probability")[..., 0]
    w, a = draws["w"].values[0], draws["a"].values[0]
    mean = w @ OTHERS["inputs"].T + a[:, OTHERS["group"]]
    expected = expit(mean) if law == "logit" else norm.cdf(mean)
    np.testing.assert_allclose(found.values[0], expected, rtol=1e-7)
