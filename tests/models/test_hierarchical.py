"""``hierarchical_mlp`` against the network and its priors in NumPy, written from the equations."""

import pickle
import re
import warnings

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest
from scipy import special, stats

import pymc_nnsteps as nns
from pymc_nnsteps import Prior, hierarchical_mlp
from pymc_nnsteps.activations import Normalize
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.models.parts.groups import groups
from tests.cases import quick
from tests.models.neal import (
    FUNCTIONS,
    INF,
    forward,
    levels,
    precision_and_logp,
    prior_logp,
    random_point,
    real_logpdf,
)
from tests.modes import AS_WRITTEN
from tests.statistics import assert_moments, assert_uniform

RNG = np.random.default_rng(1)
N_OBS, N_FEATURES = 9, 3
X = RNG.normal(size=(N_OBS, N_FEATURES))
Y = RNG.normal(size=(N_OBS, 3))
BINARY = np.array([[0, 1], [1, 1], [0, 0], [1, 0], [1, 1], [0, 1], [1, 0], [1, 1], [0, 0]])
CLASSES = np.array([0, 2, 1, 1, 0, 2, 2, 0, 1])
IN_PYTHON = {"mode": ONCE}
STABLE = pytensor.compile.Mode(linker="py", optimizer="fast_run")
FULL = {"ih1": "0.5:3", "bh1": "0.7:2", "h1o": "x0.6:3", "bo": "1.5"}


# --- the oracle ----------------------------------------------------------------------------


def likelihood_logp(point, f, y, likelihood, noise, log_variation=0.0):
    if likelihood == "bernoulli":
        return (y.reshape(f.shape) * f - np.log(1 + np.exp(f))).sum()
    if likelihood == "categorical":
        return np.log(special.softmax(f, axis=1))[np.arange(len(f)), y].sum()
    precision, _ = precision_and_logp(point, "noise", noise)
    precision = np.broadcast_to(precision * np.exp(-2 * log_variation), f.shape)
    return real_logpdf(y.reshape(f.shape) - f, precision, levels(noise)[3])


def logp_function(model, mode=AS_WRITTEN):
    """Log density of the variables themselves, without Jacobians."""
    values = model.value_vars
    function = model.compile_fn(model.logp(jacobian=False), inputs=values, mode=mode)

    def logp(point):
        given = {
            v.name: np.log(point[name]) if v.name.endswith("_log__") else point[name]
            for v in values
            for name in [v.name.removesuffix("_log__")]
        }
        return function({k: np.asarray(v, pytensor.config.floatX) for k, v in given.items()})

    return logp


def assert_density(model, priors, y, activations=("tanh",), likelihood="normal"):
    logp = logp_function(model)
    for seed in range(3):
        point = random_point(model, seed)
        f = forward(point, X, activations)
        g = forward(point, X, activations, last="s")
        expected = prior_logp(point, priors)
        expected += likelihood_logp(point, f, y, likelihood, priors.get("noise"), g)
        np.testing.assert_allclose(logp(point), expected, rtol=1e-10)


# --- the density ---------------------------------------------------------------------------


NETWORKS = {
    "one hidden layer": {
        "ih1": "0.5:1:4",
        "bh1": "0.7:2",
        "h1o": "x0.6:3",
        "bo": "1.5",
    },
    "no hidden layer": {"io": "x0.4:2:3", "bo": "0.7:3"},
    "no levels": {"ih1": "0.5", "bh1": "2", "h1o": "x0.7", "bo": "1"},
    "no biases": {"ih1": "0.5:1", "bh1": None, "h1o": "0.5", "bo": None},
    "two hidden layers": {
        "ih1": "x0.5:1:0.5",
        "bh1": "1:3",
        "h1h2": "x0.6:2:5",
        "bh2": "0.5",
        "h2o": "0.8::3",
        "bo": "1:4",
    },
    "skip connections": {
        "ih1": "0.5:1:4",
        "ih2": "x0.7:3:1",
        "io": "x0.3::5",
        "bh1": "1",
        "h1h2": "0.6:2",
        "h1o": "x1:4:6",
        "bh2": "0.5",
        "h2o": "x0.8:1",
        "bo": "1",
    },
    "nothing from layer to layer": {
        "ih1": "0.5",
        "ih2": "0.7:2",
        "bh1": "1",
        "h1h2": None,
        "h1o": "x1:3",
        "bh2": "0.5",
        "h2o": "x0.8:1",
        "bo": "1",
    },
    "three hidden layers": {
        "ih1": "0.5:1",
        "ih3": "x0.5:3:4",
        "h1h2": "x0.5",
        "h1h3": "x0.7:2:3",
        "h2h3": "x0.6::4",
        "h3o": "x0.8:2",
        "h2o": "x0.4:5",
        "bh1": "1:2",
        "bh2": "0.5:3",
        "bh3": "0.7:4",
        "bo": "1:5",
    },
    "offsets": {
        "ti": "0.4:2",
        "th1": "0.6:::4",
        "th2": "0.3:3",
        "ih1": "0.5:1",
        "io": "0.7:2",
        "h1h2": "x0.5:2",
        "h1o": "x0.3:4",
        "h2o": "x0.8:1",
        "bh1": "1",
        "bh2": "0.5",
        "bo": "1",
    },
    "adjustments": {
        "ah1": 3.0,
        "ah2": 5.0,
        "ao": 4.0,
        "ti": "0.4:2",
        "th1": "0.6",
        "ih1": "0.5:1:4",
        "ih2": "0.4",
        "io": "0.7:2::5",
        "h1h2": "x0.5:2",
        "h2o": "x0.8:1:3",
        "bh1": "1:3",
        "bh2": "0.5",
        "bo": "1:::6",
    },
    "Student-t": {
        "ti": "0.5:2::3",
        "th1": "0.5:::7",
        "ih1": "x0.5:1:4:3",
        "bh1": "0.7:2::5",
        "h1o": "x0.6:3::1.5",
        "io": "x0.6:::4",
        "bo": "1.5:3::6",
    },
}


def n_hidden_layers(priors):
    return max((int(n) for n in re.findall(r"\d", "".join(priors))), default=0)


@pytest.mark.parametrize("network", NETWORKS)
def test_density_of_architectures(network):
    """A term, a level or a connection that is missing, or on the wrong axis or layer."""
    priors = NETWORKS[network] | {"noise": "0.4:3"}
    sizes = (4, 5, 2)[: n_hidden_layers(priors)]
    model = hierarchical_mlp(X, Y[:, :2], hidden=sizes, priors=priors)
    present = {key: prior for key, prior in priors.items() if prior is not None}
    assert_density(model, present, Y[:, :2], ("tanh",) * len(sizes))


@pytest.mark.parametrize(
    ("likelihood", "y", "noise", "read_as"),
    [
        ("normal", Y[:, 0], "0.4:3", "0.4:3"),
        ("normal", Y[:, 0], "0.4:3:2", "0.4:3:2"),
        ("normal", Y, "0.4:3", "0.4:3"),
        ("normal", Y, "0.4:3:2", "0.4:3:2"),
        ("normal", Y, "0.4::2", "0.4::2"),
        ("normal", Y, 0.4, "0.4"),
        ("student_t", Y[:, 0], "0.4:3::6", "0.4:3::6"),
        ("student_t", Y[:, 0], 0.4, "0.4:::4"),
        ("student_t", Y, "0.4:3:2", "0.4:3:2:4"),
        ("bernoulli", BINARY[:, 0], None, None),
        ("bernoulli", BINARY, None, None),
        ("categorical", CLASSES, None, None),
    ],
)
def test_density_of_likelihoods(likelihood, y, noise, read_as):
    """A noise level that is missing or shared by the outputs, a link or a shape that is wrong."""
    given = FULL if noise is None else FULL | {"noise": noise}
    model = hierarchical_mlp(X, y, hidden=(4,), priors=given, likelihood=likelihood)
    assert_density(
        model, FULL | ({} if noise is None else {"noise": read_as}), y, ("tanh",), likelihood
    )


@pytest.mark.parametrize(
    ("likelihood", "y", "priors"),
    [
        ("normal", Y[:, 0], FULL | {"noise": "0.4:3", "h1s": "x0.3:2"}),
        ("normal", Y, FULL | {"noise": "0.4:3:2", "h1s": "x0.3:2:3", "is": "0.2:1:4"}),
        ("student_t", Y[:, :2], FULL | {"noise": "0.4:3::6", "h1s": None, "is": "0.5", "ao": 3.0}),
        ("normal", Y, {"io": "0.5", "bo": "1", "noise": "0.4"}),
    ],
)
def test_density_of_noise_that_varies(likelihood, y, priors):
    """The noise of another output, a variance for a deviation, its weights with others' priors."""
    hidden = (4,) if "ih1" in priors else ()
    model = hierarchical_mlp(
        X, y, hidden=hidden, priors=priors, likelihood=likelihood, sigma="network"
    )
    if not hidden:
        priors = priors | {"is": "0.1:1:4"}
    present = {key: prior for key, prior in priors.items() if prior is not None}
    assert_density(model, present, y, ("tanh",) * len(hidden), likelihood)
    assert model["sigma"].type.ndim == y.ndim
    assert model.named_vars_to_dims["sigma"] == model.named_vars_to_dims["y"]


SEVERAL = ("softplus0", Normalize(2), "tanh")


@pytest.mark.parametrize(
    "activations",
    [*((activation,) for activation in FUNCTIONS if activation != "tanh"), SEVERAL],
    ids=str,
)
def test_density_of_activations(activations):
    """A constant that is left out, layers in each other's place, units that are normalised wrongly.

    Offsets are added after the activation.
    """
    sizes = (4, 6, 3)[: len(activations)]
    priors = FULL | {"th1": "0.5", "noise": "0.4:3"}
    if len(sizes) == 3:
        del priors["h1o"]
        priors |= {"h1h2": "1", "h2h3": "1", "h3o": "1", "bh2": "0.5", "bh3": "0.5", "ih3": "1"}
    given = list(activations) if len(activations) > 1 else activations[0]
    model = hierarchical_mlp(X, Y[:, 0], hidden=sizes, priors=priors, activation=given)
    assert_density(model, priors, Y[:, 0], activations)


def test_density_with_any_function():
    priors = FULL | {"noise": "0.4:3"}
    model = hierarchical_mlp(X, Y, hidden=(4,), priors=priors, activation=lambda u: u / (1 + u**2))
    point = random_point(model)
    u = X @ point["W_ih1"].T + point["bh1"]
    f = u / (1 + u**2) @ point["W_h1o"].T + point["bo"]
    expected = prior_logp(point, priors) + likelihood_logp(point, f, Y, "normal", "0.4:3")
    np.testing.assert_allclose(logp_function(model)(point), expected, rtol=1e-10)


DEFAULTS = {
    0: {"io": "0.2:4:4", "bo": "1", "noise": "0.2:0.5"},
    1: {"ih1": "0.2:4:4", "bh1": "0.5:4", "h1o": "x0.5:4", "bo": "1", "noise": "0.2:0.5"},
    2: {
        "ih1": "0.2:4:4",
        "bh1": "0.5:4",
        "h1h2": "x0.5:4",
        "bh2": "0.5:4",
        "h2o": "x0.5:4",
        "bo": "1",
        "noise": "0.2:0.5",
    },
}


@pytest.mark.parametrize("depth", DEFAULTS)
def test_default_priors(depth):
    """A default that is not the documented one, or a connection that is not asked for."""
    model = hierarchical_mlp(X, Y[:, 0], hidden=(4, 5)[:depth])
    assert_density(model, DEFAULTS[depth], Y[:, 0], ("tanh",) * depth)


@pytest.mark.parametrize(("likelihood", "y"), [("bernoulli", BINARY), ("categorical", CLASSES)])
def test_density_of_large_outputs(likelihood, y):
    """A probability that rounds to 0 or 1, as logarithms of it would: it must stay a logit."""
    priors = {"io": "0.5", "bo": "1"}
    model = hierarchical_mlp(X, y, hidden=(), priors=priors, likelihood=likelihood)
    point = {name: 300 * value for name, value in random_point(model).items()}
    f = forward(point, X, ())
    if likelihood == "bernoulli":
        expected = (y * f - np.logaddexp(0, f)).sum()
    else:
        expected = special.log_softmax(f, axis=1)[np.arange(N_OBS), y].sum()
    assert expected < -1000
    expected += prior_logp(point, priors)
    np.testing.assert_allclose(logp_function(model, mode=STABLE)(point), expected, rtol=1e-10)


def test_three_layers_of_sixteen_by_default():
    model = hierarchical_mlp(X, Y)
    shapes = {"W_ih1": [16, 3], "W_h1h2": [16, 16], "W_h2h3": [16, 16], "W_h3o": [3, 16]}
    assert {name: model[name].shape.eval(**IN_PYTHON).tolist() for name in shapes} == shapes


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ({"bh": "2:3"}, {"bh1": "2:3", "bh2": "2:3"}),
        ({"bh2": None, "bh": "2:3"}, {"bh1": "2:3", "bh2": None}),
        ({"bh": None, "bh2": 2}, {"bh1": None, "bh2": Prior(2)}),
        ({"hh": "x2::5"}, {"h1h2": Prior(2, alpha_unit=5, scale=True)}),
        ({"ih": 0.5, "ho": "1:2:3:4"}, {"ih1": "0.5", "h2o": Prior(1, 2, 3, 4)}),
        ({"th": 1, "ah": 3}, {"th1": 1, "th2": 1, "ah1": 3, "ah2": 3.0}),
        ({"ah": 3, "ah1": None}, {"ah2": 3}),
        ({"io": "1"}, {"io": Prior(1.0)}),
        ({"io": None, "ti": None, "noise": "1"}, {"noise": np.float32(1)}),
        ({"hs": "2:3"}, {"h2s": Prior(2, 3)}),
        ({"hs": None, "is": "0.1"}, {"h2s": None, "is": 0.1}),
    ],
)
def test_keys_and_values_of_priors(short, full):
    """A shorthand that reaches the wrong layers or overrides the key of one layer."""
    varying = "h2s" in full
    found, expected = (groups(p, (3, 4, 5, 1), "normal", None, varying) for p in (short, full))
    assert found == expected


# --- draws from the prior ------------------------------------------------------------------


N_DRAWS = 10_000
COMBINATIONS = [(a, b, c) for a in (INF, 3.0) for b in (INF, 1.5) for c in (INF, 4.0)]
HALF = [(INF, INF, INF), (INF, 1.5, 4.0), (3.0, INF, 4.0), (3.0, 1.5, INF)]
"""Each pair of settings once."""


def draw(model, names, n_draws=N_DRAWS):
    values = pm.draw([model[name] for name in names], n_draws, random_seed=1, **IN_PYTHON)
    return dict(zip(names, values, strict=True))


def gamma_cdf(tau, alpha, mean):
    return stats.gamma.cdf(tau * alpha / (2 * mean), alpha / 2)


@pytest.mark.parametrize("alphas", quick(COMBINATIONS, HALF), ids=str)
def test_weights_from_the_prior(alphas):
    """Shape and rate of a Gamma in each other's place, or without their factor 1/2.

    The levels have their laws given the levels above, by their distribution functions. Where
    one alpha is finite, ``w / width`` is Student-t with that many degrees of freedom: a Gamma
    with shape ``alpha / 2`` and rate ``alpha / 2`` mixes unit normals to that law.
    """
    common, unit, weight = alphas
    width = 0.7
    prior = Prior(width, common, unit, weight)
    model = hierarchical_mlp(X[:, :2], Y[:, 0], hidden=(2,), priors={"ih": prior})
    taus = [f"tau_ih1{level}" for level, a in (("", common), ("_unit", unit)) if a < INF]
    drawn = draw(model, ["W_ih1", *taus])
    w, precision = drawn["W_ih1"], np.full((N_DRAWS, 1, 1), width**-2)
    if common < INF:
        tau = drawn["tau_ih1"][:, None, None]
        assert_uniform(gamma_cdf(tau, common, precision).ravel())
        precision = tau
    if unit < INF:
        tau = drawn["tau_ih1_unit"][:, None, :]
        assert_uniform(gamma_cdf(tau, unit, precision).ravel())
        precision = tau
    law = stats.norm if weight == INF else stats.t(weight)
    assert_uniform(law.cdf(w * np.sqrt(precision)).ravel())
    finite = [alpha for alpha in alphas if alpha < INF]
    if len(finite) < 2:
        marginal = stats.t(finite[0]) if finite else stats.norm
        assert_uniform(marginal.cdf(w[:, 0, 1] / width))


@pytest.mark.slow
def test_vectors_from_the_prior():
    """Biases and offsets without their level, or offsets that take the adjustment."""
    priors = {"bh": "0.7:3::4", "th": "0.4:1.5", "ah": 5, "bo": "0.5:3", "noise": "0.3:3:2"}
    model = hierarchical_mlp(X, Y, hidden=(2,), priors=priors)
    names = ["tau_bh1", "bh1", "tau_th1", "th1", "tau_ah1", "tau_bo", "bo"]
    drawn = draw(model, [*names, "tau_noise", "tau_noise_unit", "sigma", "f", "y"], 5000)
    for name, alpha, width in (
        ("bh1", 3, 0.7),
        ("th1", 1.5, 0.4),
        ("bo", 3, 0.5),
        ("noise", 3, 0.3),
    ):
        assert_uniform(gamma_cdf(drawn[f"tau_{name}"], alpha, width**-2))
    assert_uniform(gamma_cdf(drawn["tau_ah1"], 5, 1).ravel())
    assert_uniform(gamma_cdf(drawn["tau_noise_unit"], 2, drawn["tau_noise"][:, None]).ravel())
    root = {name: np.sqrt(drawn[f"tau_{name}"])[:, None] for name in ("bh1", "th1", "bo")}
    adjusted = drawn["bh1"] * root["bh1"] * np.sqrt(drawn["tau_ah1"])
    assert_uniform(stats.t.cdf(adjusted, 4).ravel())
    assert_uniform(stats.norm.cdf(drawn["th1"] * root["th1"]).ravel())
    assert_uniform(stats.norm.cdf(drawn["bo"] * root["bo"]).ravel())
    np.testing.assert_allclose(drawn["sigma"], drawn["tau_noise_unit"] ** -0.5)
    residuals = (drawn["y"] - drawn["f"]) / drawn["sigma"][:, None, :]
    assert_uniform(stats.norm.cdf(residuals).ravel())


@pytest.mark.parametrize(("n_sources", "prior"), [(2, "x0.7:::10"), (20, "x0.7::3:10")])
def test_effect_of_all_units_together(n_sources, prior):
    """A scale that counts the wrong units, or ignores heavy tails.

    With eq. 26 the variance of the sum over units is ``width^2`` for ``alpha > 2``. With both
    alphas it corrects for that of the weights; what the units' precisions do is divided out.
    """
    model = hierarchical_mlp(X, Y[:, 0], hidden=(n_sources,), priors={"ho": prior})
    both = prior == "x0.7::3:10"
    drawn = draw(model, ["W_h1o", *["tau_h1o_unit"] * both], 20_000)
    w = drawn["W_h1o"][:, 0, :]
    if both:
        w = w * np.sqrt(drawn["tau_h1o_unit"] * 0.7**2 / (n_sources * 10 / 8))
    assert_moments(w.sum(axis=1), 0.0, 0.7**2)


def test_adjustments_from_the_prior():
    """Adjustments along the sources' axis: rows of a layer's weights share one."""
    model = hierarchical_mlp(
        X[:, :2], Y[:, 0], hidden=(2,), priors={"ih": "0.7", "bh": "2", "ah": 3, "ao": 5}
    )
    drawn = draw(model, ["W_ih1", "bh1", "W_h1o", "bo", "tau_h1o", "tau_ah1", "tau_ao"])
    root = np.sqrt(drawn["tau_ah1"])
    assert_uniform(stats.norm.cdf(drawn["W_ih1"] / 0.7 * root[:, :, None]).ravel())
    assert_uniform(stats.norm.cdf(drawn["bh1"] / 2 * root).ravel())
    assert_uniform(stats.t.cdf(drawn["W_ih1"][:, 1, 0] / 0.7, 3))
    root = np.sqrt(drawn["tau_ao"] * drawn["tau_h1o"][:, None])
    assert_uniform(stats.norm.cdf(drawn["W_h1o"][:, 0] * root).ravel())
    assert_uniform(stats.t.cdf(drawn["bo"][:, 0], 5))


# --- the model -----------------------------------------------------------------------------


LIKELIHOODS = {
    "normal": Y[:, 0],
    "student_t": Y,
    "bernoulli": BINARY,
    "categorical": CLASSES,
}
EVERYTHING = {
    "ih": "0.5:1:4",
    "ih2": "x0.5:2:3",
    "io": "0.3::5",
    "h1o": "x1:4",
    "ti": "0.4:2",
    "th": "0.3:3",
    "ah": 5,
    "ao": 3,
    "noise": "0.3:2:4",
}


def test_names_shapes_and_dims():
    model = hierarchical_mlp(X, Y[:, :2], hidden=(4, 5), priors=EVERYTHING)
    weights = {
        "W_ih1": ("hidden1", "feature"),
        "W_ih2": ("hidden2", "feature"),
        "W_h1h2": ("hidden2", "hidden1"),
        "W_io": ("output", "feature"),
        "W_h1o": ("output", "hidden1"),
        "W_h2o": ("output", "hidden2"),
    }
    vectors = {
        "bh1": ("hidden1",),
        "bh2": ("hidden2",),
        "bo": ("output",),
        "ti": ("feature",),
        "th1": ("hidden1",),
        "th2": ("hidden2",),
        "tau_ah1": ("hidden1",),
        "tau_ah2": ("hidden2",),
        "tau_ao": ("output",),
        "tau_ih1_unit": ("feature",),
        "tau_ih2_unit": ("feature",),
        "tau_io_unit": ("feature",),
        "tau_noise_unit": ("output",),
    }
    groups_with_level = ["ih1", "ih2", "h1h2", "h1o", "h2o", "bh1", "bh2", "ti", "th1", "th2"]
    scalars = {f"tau_{name}": () for name in [*groups_with_level, "noise"]}
    free = weights | vectors | scalars
    assert {rv.name for rv in model.free_RVs} == set(free)
    table = ("obs", "output")
    others = {"f": table, "y": table, "targets": table, "inputs": ("obs", "feature")}
    dims = free | others | {"sigma": ("output",)}
    assert set(model.named_vars) == set(dims)
    lengths = {"obs": N_OBS, "feature": 3, "hidden1": 4, "hidden2": 5, "output": 2}
    assert {
        name: int(length.eval(**IN_PYTHON)) for name, length in model.dim_lengths.items()
    } == lengths
    for name, expected in dims.items():
        assert tuple(model.named_vars_to_dims.get(name, ())) == expected, name
        shape = tuple(int(n) for n in model[name].shape.eval(**IN_PYTHON))
        assert shape == tuple(lengths[dim] for dim in expected), name
    assert [v.name for v in model.deterministics] == ["f", "sigma"]
    assert [rv.name for rv in model.observed_RVs] == ["y"]


@pytest.mark.parametrize("likelihood", ["normal", "student_t", "bernoulli"])
def test_a_column_of_targets_stays_a_column(likelihood):
    """Targets of one axis that give outputs of two, which broadcast against each other."""
    y = LIKELIHOODS[likelihood].reshape(N_OBS, -1)
    flat = hierarchical_mlp(X, y[:, 0], likelihood=likelihood)
    column = hierarchical_mlp(X, y[:, :1], likelihood=likelihood)
    for name in ("y", "f", "targets"):
        assert flat.named_vars_to_dims[name] == ("obs",)
        assert column.named_vars_to_dims[name] == ("obs", "output")
    assert {rv.name for rv in flat.free_RVs} == {rv.name for rv in column.free_RVs}
    point = random_point(flat)
    np.testing.assert_allclose(logp_function(flat)(point), logp_function(column)(point), rtol=1e-13)


def test_classes_have_an_output_each():
    model = hierarchical_mlp(X, CLASSES, likelihood="categorical")
    assert model.named_vars_to_dims["y"] == ("obs",)
    assert model.named_vars_to_dims["f"] == ("obs", "output")
    assert model.coords["output"] == (0, 1, 2)


def test_data_frames_name_the_dimensions():
    frame = pd.DataFrame(X, columns=["age", "bmi", "bp"])
    outputs = pd.DataFrame(Y[:, :2], columns=["left", "right"])
    model = hierarchical_mlp(frame, outputs)
    assert model.coords["feature"] == ("age", "bmi", "bp")
    assert model.coords["output"] == ("left", "right")
    np.testing.assert_array_equal(model["inputs"].get_value(), X)
    np.testing.assert_array_equal(model["targets"].get_value(), Y[:, :2])
    series = hierarchical_mlp(frame, outputs["left"])
    assert series.named_vars_to_dims["y"] == ("obs",)
    binary = pd.DataFrame(BINARY, columns=["ill", "old"])
    model = hierarchical_mlp(frame, binary, likelihood="bernoulli")
    assert model.coords["output"] == ("ill", "old")
    labels = pd.Categorical.from_codes(CLASSES, ["low", "mid", "high", "none"])
    model = hierarchical_mlp(frame, labels, likelihood="categorical")
    assert model.coords["output"] == ("low", "mid", "high", "none")
    np.testing.assert_array_equal(model["targets"].get_value(), CLASSES)
    assert model["W_h3o"].shape.eval(**IN_PYTHON).tolist() == [4, 16]


def test_outer_model_and_its_coords():
    coords = {"obs": list("abcdefghi"), "hidden1": ["h", "k"], "feature": ["u", "v", "w"]}
    with pm.Model(coords=coords) as outer:
        scale = pm.HalfNormal("scale")
        inner = hierarchical_mlp(X, Y[:, 0], hidden=(2,))
    assert inner is outer
    assert scale in outer.free_RVs
    assert {name: outer.coords[name] for name in coords} == {
        name: tuple(values) for name, values in coords.items()
    }
    with outer:
        pm.set_data({"inputs": X[:2], "targets": Y[:2, 0]}, coords={"obs": ["x", "y"]})
    assert outer["f"].eval(**IN_PYTHON).shape == (2,)


def test_named_models():
    """Names that miss their prefix; the networks share dimensions of one length."""
    with pm.Model() as outer:
        for name in ("left", "right"):
            with pm.Model(name=name):
                hierarchical_mlp(X, Y[:, 0], hidden=(2,))
    alone = hierarchical_mlp(X, Y[:, 0], hidden=(2,))
    expected = {f"{side}::{name}" for side in ("left", "right") for name in alone.named_vars}
    assert set(outer.named_vars) == expected
    assert set(outer.coords) == {"obs", "feature", "hidden1", "output"}
    prior = prior_of(outer)
    predicted = nns.predict(prior, X, model=outer, inputs="right::inputs")
    np.testing.assert_allclose(predicted[..., 0], prior["right::f"])


def test_second_network_in_one_model():
    with pm.Model() as outer:
        hierarchical_mlp(X, Y[:, 0], hidden=(2,))
        before = list(outer.named_vars), dict(outer.coords)
        with pytest.raises(ValueError, match=r"already has the names .*'W_ih1'.*name="):
            hierarchical_mlp(X, Y[:, 0], hidden=(2,))
        wider = r'"hidden1" of the model has length 2, .* needs 3'
        with pm.Model(name="b"), pytest.raises(ValueError, match=wider):
            hierarchical_mlp(X, Y[:, 0], hidden=(3,))
    assert (list(outer.named_vars), dict(outer.coords)) == before


def test_every_name_of_the_network_is_checked():
    """A name that clashes only when half of the network has been added."""
    names = hierarchical_mlp(X, Y[:, :2], hidden=(4, 5), priors=EVERYTHING).named_vars
    for name in [*names, "hidden2", "output"]:
        with pm.Model() as outer:
            pm.Normal(name)
            with pytest.raises(ValueError, match=re.escape(f"already has the names ['{name}']")):
                hierarchical_mlp(X, Y[:, :2], hidden=(4, 5), priors=EVERYTHING)
        assert list(outer.named_vars) == [name]
        assert not outer.coords


def prior_of(model, n_draws=3):
    with model:
        prior = pm.sample_prior_predictive(n_draws, random_seed=1, compile_kwargs=IN_PYTHON)
    return prior["prior"].to_dataset()


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_prediction_and_posterior_predictive_at_new_inputs(likelihood):
    """A forward pass without its offsets, with the training inputs, or of the wrong shape."""
    y = LIKELIHOODS[likelihood]
    priors = {key: EVERYTHING[key] for key in EVERYTHING if key != "noise"}
    model = hierarchical_mlp(X, y, hidden=(4, 5), priors=priors, likelihood=likelihood)
    draws = prior_of(model)
    new = np.random.default_rng(5).normal(size=(4, N_FEATURES))
    predicted = nns.predict(draws, new, model=model)
    n_outputs = 1 if likelihood == "normal" else len(model.coords["output"] or Y.T[: y.shape[1]])
    assert predicted.dims == ("chain", "draw", "obs", "output")
    assert predicted.shape == (1, 3, 4, n_outputs)
    for k in range(3):
        point = {name: draws[name].values[0, k] for name in draws.data_vars}
        expected = forward(point, new, ("tanh", "tanh"))
        np.testing.assert_allclose(predicted[0, k], expected, rtol=1e-10)
        f = forward(point, X, ("tanh", "tanh"))
        np.testing.assert_allclose(point["f"].reshape(f.shape), f, rtol=1e-10)
    with model:
        pm.set_data({"inputs": new, "targets": y[:4]})
        predictive = pm.sample_posterior_predictive(
            draws,
            var_names=["y", "f"],
            predictions=True,
            random_seed=1,
            progressbar=False,
            compile_kwargs=IN_PYTHON,
        )["predictions"]
    assert predictive["y"].shape == (1, 3, 4, *y.shape[1:])
    assert predictive["y"].dims == ("chain", "draw", "obs", "output")[: 2 + y.ndim]
    np.testing.assert_allclose(
        predictive["f"].values.reshape(predicted.shape), predicted, rtol=1e-10
    )
    if likelihood == "bernoulli":
        assert set(np.unique(predictive["y"])) <= {0, 1}
    if likelihood == "categorical":
        assert set(np.unique(predictive["y"])) <= {0, 1, 2}


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_other_data_later(likelihood):
    """A number of rows, or inputs or targets, that are stored in the graph."""
    y = LIKELIHOODS[likelihood]
    model = hierarchical_mlp(X, y, hidden=(4,), likelihood=likelihood)
    fresh = hierarchical_mlp(-X[:6], y[:6], hidden=(4,), likelihood=likelihood)
    with model:
        pm.set_data({"inputs": -X[:6], "targets": y[:6]})
    point = random_point(model)
    np.testing.assert_allclose(logp_function(model)(point), logp_function(fresh)(point), rtol=1e-12)


@pytest.mark.parametrize("likelihood", ["normal", "bernoulli"])
def test_float32(likelihood):
    """Numbers of priors that make variables float64."""
    y = LIKELIHOODS[likelihood]
    priors = {"ih": "x0.5:1:4", "ho": "x0.3:1:2.5:4", "th": "0.5:::4", "ah": 5, "noise": "0.3:2:4"}
    if likelihood in ("bernoulli", "categorical"):
        del priors["noise"]
    options = {"hidden": (4, 5), "priors": priors, "likelihood": likelihood}
    options["activation"] = ["softplus0", Normalize()]
    with pytensor.config.change_flags(floatX="float32"):
        model = hierarchical_mlp(X, y, **options)
        variables = [*model.free_RVs, *model.deterministics, *model.value_vars, model["inputs"]]
        assert {v.name: v.dtype for v in variables if v.dtype != "float32"} == {}
        logp = model.logp(jacobian=False)
        assert logp.dtype == "float32"
        point = random_point(model, 1)
        value = logp_function(model)(point)
    expected = logp_function(hierarchical_mlp(X, y, **options))(point)
    np.testing.assert_allclose(value, expected, rtol=1e-4)


@pytest.mark.parametrize(
    "copy",
    [
        lambda model: model.copy(),
        lambda model: pickle.loads(cloudpickle.dumps(model)),
    ],
    ids=["copy", "cloudpickle"],
)
def test_copies(copy):
    """Data that the copy shares with its original, a function that cannot be stored."""
    priors = {"ah": 5, "io": "1:2", "noise": "0.3:2:4"}
    model = hierarchical_mlp(X, Y, hidden=(4,), priors=priors, activation=Normalize())
    other = copy(model)
    assert set(other.named_vars) == set(model.named_vars)
    dims = [{k: d for k, d in m.named_vars_to_dims.items() if d} for m in (model, other)]
    assert dims[0] == dims[1]
    assert other.coords == model.coords
    point = random_point(model)
    logp, logp_of_copy = logp_function(model), logp_function(other)
    value = logp(point)
    np.testing.assert_allclose(logp_of_copy(point), value, rtol=1e-13)
    with other:
        pm.set_data({"inputs": X[:2], "targets": Y[:2]})
    assert logp(point) == value
    assert logp_of_copy(point) != value


# --- scales --------------------------------------------------------------------------------


STANDARD = (X - X.mean(0)) / X.std(0)
DUMMY = np.arange(60)[:, None] % 20 == 0
TALL = np.random.default_rng(2).normal(size=(60, 2))


@pytest.mark.parametrize(
    ("x", "y", "likelihood", "message"),
    [
        (STANDARD * [1, 1, 50], Y, "normal", "X has .* 1 of 3 .*column 2: .* deviation 50,"),
        (STANDARD * [1, 0.01, 0.02], Y, "normal", "X has .* 2 of 3 .*column 1: .* deviation 0.01,"),
        (STANDARD - [20, 0, 0], Y, "normal", "X has .* 1 of 3 .*column 0: .* mean -20\\)"),
        (STANDARD, STANDARD[:, 0] * 100, "normal", "y has .* 1 of 1 .*column 0"),
        (STANDARD, STANDARD * [1, 0.01, 1], "student_t", "y has .* 1 of 3 .*column 1"),
        (STANDARD, STANDARD - [0, 0, 50], "normal", "y has .* 1 of 3 .*column 2: .* mean -50\\)"),
        (STANDARD * 50, CLASSES, "categorical", "X has .* 3 of 3 columns"),
    ],
)
def test_warning_of_scales(x, y, likelihood, message):
    """Also: a warning that points at this package, not at the caller."""
    with pytest.warns(UserWarning, match=message) as caught:
        model = hierarchical_mlp(x, y, likelihood=likelihood)
    assert [warning.filename for warning in caught] == [__file__]
    np.testing.assert_array_equal(model["inputs"].get_value(), x)


@pytest.mark.parametrize(
    ("x", "y", "likelihood"),
    [
        (STANDARD, STANDARD, "normal"),
        (STANDARD * 0.2 + 3, STANDARD * 5, "student_t"),
        (np.column_stack([X, np.ones(N_OBS), np.zeros(N_OBS)]), Y, "normal"),
        (np.column_stack([X, np.full(N_OBS, 128.0), np.full(N_OBS, 0.1)]), Y, "normal"),
        (np.column_stack([TALL, DUMMY, ~DUMMY]), TALL[:, 0], "normal"),
        (np.column_stack([TALL, DUMMY]), DUMMY[:, 0], "bernoulli"),
        (TALL, np.arange(60) % 30, "categorical"),
    ],
    ids=[
        "standardised",
        "moderate",
        "constant columns",
        "other constant columns",
        "dummies",
        "decision",
        "classes",
    ],
)
def test_no_warning_of_usual_scales(x, y, likelihood):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hierarchical_mlp(x, y, likelihood=likelihood)


def test_a_warning_that_is_an_error_leaves_the_model_untouched():
    with pm.Model() as outer, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="has a scale far from 1"):
            hierarchical_mlp(X * 100, Y)
    assert not outer.named_vars
    assert not outer.coords


def test_start_at_the_prior():
    """A variable that starts elsewhere, or where another chain does."""
    model = hierarchical_mlp(X, Y, hidden=(4,), priors={"ah": 3}, start="prior")
    first, second, again = (model.initial_point(random_seed=seed) for seed in (1, 2, 1))
    for name, value in first.items():
        assert np.all(value != second[name])
        np.testing.assert_array_equal(value, again[name])
    precision = np.exp(first["tau_h1o_log__"])
    assert precision != pytest.approx(4 * 0.5**-2)
    zero = hierarchical_mlp(X, Y, hidden=(4,)).initial_point()
    assert not zero["W_ih1"].any()


def test_scales_begin_moderate():
    """Units nearly linear, outputs free; a precision that its prior knows begins at its mean."""
    priors = {"ih": "0.05:0.5:2", "ho": "0.05:0.5", "bh": "0.05:0.5", "noise": "0.2:100"}
    point = hierarchical_mlp(X, Y, hidden=(4,), priors=priors).initial_point()
    deviations = {name[4:-5]: np.exp(-v / 2) for name, v in point.items() if "tau" in name}
    expected = {"ih1": 0.5, "ih1_unit": 0.5, "bh1": 0.05, "h1o": 5.0, "noise": 0.2}
    for name, deviation in expected.items():
        np.testing.assert_allclose(deviations[f"{name}_"], deviation, err_msg=name)
    assert point["tau_ih1_unit_log__"].shape == X.shape[1:]
