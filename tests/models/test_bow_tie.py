from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest
import xarray as xr
from pymc.initial_point import make_initial_point_fn
from pytensor.compile.mode import Mode
from scipy import special, stats

from pymc_nnsteps import bow_tie
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.models import Shrinkage
from tests.cases import quick
from tests.modes import AS_WRITTEN
from tests.statistics import assert_uniform

N_OBS, N_FEATURES = 6, 3
X = np.random.default_rng(1).normal(size=(N_OBS, N_FEATURES))
TARGETS = {1: np.sin(X[:, 0]) + X[:, 1], 3: X @ np.array([[1, 0, 2], [0, -1, 1], [1, 1, 0]])}
IN_PYTHON = {"mode": ONCE}
FAMILIES = {
    "student_t": {
        "nu_global": -1.7,
        "delta_global": 0.6,
        "nu_local": (-1.2, -2.1, -0.7),
        "delta_local": (0.5, 0.9, 1.3),
    },
    "laplace": {"lambda_global": 1.1, "lambda_local": (0.7, 1.9, 1.2)},
    "normal_gamma": {
        "nu_global": 0.8,
        "lambda_global": 1.3,
        "nu_local": (0.4, 1.5, 0.9),
        "lambda_local": (0.6, 1.1, 2.3),
    },
    "nig": {
        "delta_global": 0.6,
        "lambda_global": 1.7,
        "delta_local": (0.5, 0.9, 1.3),
        "lambda_local": (2.1, 0.8, 0.4),
    },
    "gaussian": {"weight_var": (0.3, 0.8, 1.7)},
}
NOISE = {"hidden_alpha": 2.5, "hidden_beta": 0.4, "noise_alpha": 3.5, "noise_beta": 0.7}
BIAS_VAR = (0.5, 2.0, 1.3)


def of_layers(settings, n_layers):
    """Settings with as many numbers as there are layers."""
    return {k: v[:n_layers] if isinstance(v, tuple) else v for k, v in settings.items()}


def random_point(model, seed=0):
    rng = np.random.default_rng(seed)
    n_obs = len(model["inputs"].get_value())
    shapes = {v.name: [n_obs if n is None else n for n in v.type.shape] for v in model.value_vars}
    return {
        name: rng.integers(2, size=shape) if name.startswith("gamma") else rng.normal(size=shape)
        for name, shape in shapes.items()
    }


def logp(model, point):
    """Log density in the variables themselves."""
    return float(model.compile_logp(jacobian=False, mode=AS_WRITTEN)(point))


def natural(point):
    return {
        name.removesuffix("_log__"): np.exp(value) if name.endswith("_log__") else value
        for name, value in point.items()
    }


def gig_logpdf(x, nu, delta, lam):
    if lam == 0:
        constant = -nu * np.log(delta**2 / 2) - special.gammaln(-nu)
    elif delta == 0:
        constant = nu * np.log(lam**2 / 2) - special.gammaln(nu)
    else:
        constant = nu * np.log(lam / delta) - np.log(2 * special.kv(nu, lam * delta))
    return constant + (nu - 1) * np.log(x) - (delta**2 / x + lam**2 * x) / 2


def normal(x, mean, variance):
    return np.sum(-0.5 * np.log(2 * np.pi * variance) - (x - mean) ** 2 / (2 * variance))


def inverse_gamma(x, alpha, beta):
    terms = alpha * np.log(beta) - special.gammaln(alpha) - (alpha + 1) * np.log(x) - beta / x
    return np.sum(terms)


def law(family, settings, level, layer):
    """``nu``, ``delta`` and ``lambda`` of a factor."""
    fixed = {"laplace": 1.0, "nig": -0.5}
    numbers = []
    for name, default in (("nu", fixed.get(family)), ("delta", 0.0), ("lambda", 0.0)):
        value = settings.get(f"{name}_{level}", default)
        numbers.append(value[layer - 1] if isinstance(value, tuple) else value)
    return numbers


def expected_logp(point, y, temperature, family, settings, n_layers):
    """The joint density with explicit gates, written with NumPy."""
    v, a, total = natural(point), X, 0.0
    for layer in range(1, n_layers + 1):
        W, b = v[f"W{layer}"], v[f"b{layer}"]
        if family == "gaussian":
            variance = settings["weight_var"][layer - 1]
        else:
            tau, psi = v[f"tau{layer}"], v[f"psi{layer}"]
            variance = tau * psi
            total += gig_logpdf(tau, *law(family, settings, "global", layer))
            total += gig_logpdf(psi, *law(family, settings, "local", layer)).sum()
        total += normal(W, 0, variance) + normal(b, 0, BIAS_VAR[layer - 1])
        z, eta_sq = np.einsum("ni,oi->no", a, W) + b, v[f"eta_sq{layer}"]
        if layer == n_layers:
            total += inverse_gamma(eta_sq, NOISE["noise_alpha"], NOISE["noise_beta"])
            return total + normal(y.reshape(z.shape), z, eta_sq)
        gamma, a = v[f"gamma{layer}"], v[f"a{layer}"]
        total += np.sum(gamma * z / temperature - np.log1p(np.exp(z / temperature)))
        total += inverse_gamma(eta_sq, NOISE["hidden_alpha"], NOISE["hidden_beta"])
        total += normal(a, gamma * z, eta_sq)
    raise AssertionError


@pytest.mark.parametrize(("hidden", "n_outputs"), [((), 1), ((4,), 3), ((4, 2), 1)])
@pytest.mark.parametrize("family", FAMILIES)
def test_logp_is_the_joint_density(family, hidden, n_outputs):
    n_layers, y = len(hidden) + 1, TARGETS[n_outputs]
    settings = of_layers(FAMILIES[family], n_layers)
    model = bow_tie(
        X,
        y,
        hidden=hidden,
        temperature=0.3,
        shrinkage=Shrinkage(family, **settings),
        bias_var=BIAS_VAR[:n_layers],
        **NOISE,
    )
    point = random_point(model)
    expected = expected_logp(point, y, 0.3, family, settings, n_layers)
    np.testing.assert_allclose(logp(model, point), expected, rtol=1e-10)


@pytest.mark.parametrize("hidden", [(2,), (1, 1)])
def test_mixtures_sum_over_all_gates(hidden):
    options = {"hidden": hidden, "temperature": 0.4, "noise_beta": 0.5, "hidden_beta": 0.3}
    gated = bow_tie(X[:2], X[:2, 0], **options)
    mixture = bow_tie(X[:2], X[:2, 0], marginalize_gates=True, **options)
    point = {k: v for k, v in random_point(gated).items() if not k.startswith("gamma")}
    assert list(point) == [value.name for value in mixture.value_vars]
    density = gated.compile_logp(jacobian=False, **IN_PYTHON)
    gates = {f"gamma{layer}": (2, width) for layer, width in enumerate(hidden, 1)}
    sizes = [int(np.prod(shape)) for shape in gates.values()]
    terms = []
    for bits in product((0, 1), repeat=sum(sizes)):
        parts = np.split(np.array(bits), np.cumsum(sizes)[:-1])
        pattern = {
            name: part.reshape(shape)
            for (name, shape), part in zip(gates.items(), parts, strict=True)
        }
        terms.append(density(point | pattern))
    np.testing.assert_allclose(logp(mixture, point), special.logsumexp(terms), rtol=1e-10)


def test_mixtures_are_smooth_where_gates_are_certain():
    model = bow_tie(X, TARGETS[1], hidden=(4,), temperature=1e-5, marginalize_gates=True)
    point = model.initial_point(1)
    mode = Mode(linker="py", optimizer="fast_run")
    assert np.isfinite(model.compile_logp(mode=mode)(point))
    assert np.isfinite(model.compile_dlogp(mode=mode)(point)).all()


def weights_of(model, seed, **fixed):
    """A posterior of one draw of the weights, random but for those that are fixed."""
    rng = np.random.default_rng(seed)
    values = {}
    for rv in model.free_RVs:
        kind = rv.name.rstrip("0123456789")
        if kind not in ("gamma", "a"):
            drawn = rng.normal(size=rv.type.shape)
            random = drawn if kind in "Wb" else np.exp(drawn)
            dims = "chain", "draw", *(f"{rv.name}_{axis}" for axis in range(rv.ndim))
            value = np.full(rv.type.shape, fixed.get(kind, random))
            values[rv.name] = dims, value[None, None]
    return xr.Dataset(values)


@pytest.mark.parametrize("marginalize", [False, True])
def test_cold_networks_without_noise_are_networks_of_relu(marginalize):
    model = bow_tie(X, TARGETS[3], hidden=(5, 4), temperature=1e-8, marginalize_gates=marginalize)
    posterior = weights_of(model, 2, eta_sq=1e-16)
    with model:
        drawn = pm.sample_posterior_predictive(
            posterior, random_seed=1, progressbar=False, compile_kwargs=IN_PYTHON
        )["posterior_predictive"]["y"].values[0, 0]
    a = X
    for layer in (1, 2, 3):
        z = a @ posterior[f"W{layer}"].values[0, 0].T + posterior[f"b{layer}"].values[0, 0]
        a = np.maximum(z, 0)
    np.testing.assert_allclose(drawn, z, atol=1e-6)


@pytest.mark.parametrize("marginalize", [False, True])
def test_gates_open_with_the_logistic_probability(marginalize):
    inputs = np.tile([[0.02], [-0.1]], (4000, 1))
    model = bow_tie(
        inputs, inputs[:, 0], hidden=(1,), temperature=0.05, marginalize_gates=marginalize
    )
    posterior = weights_of(model, 2, W=1.0, b=0.0, eta_sq=1e-10)
    with model:
        drawn = pm.sample_posterior_predictive(
            posterior, var_names=["a1"], random_seed=1, progressbar=False, compile_kwargs=IN_PYTHON
        )["posterior_predictive"]["a1"].values[0, 0, :, 0]
    is_open = np.abs(drawn) > 0.01
    np.testing.assert_allclose(drawn, is_open * inputs[:, 0], atol=1e-4)
    for z in (0.02, -0.1):
        share, p = is_open[inputs[:, 0] == z].mean(), special.expit(z / 0.05)
        assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / 4000)


CROSS = np.array([[-1.0], [1.0], [-1.0], [1.0]])
"""An input whose regression is easy: slope 3, intercept 5, and residuals of variance 4."""
LINE = 5 + 3 * CROSS[:, 0] + [2, 2, -2, -2]


def default_settings(family, variance, fan_in):
    """Those that give ``tau`` the mean ``variance`` and ``psi`` the mean ``1 / fan_in``."""
    means = {"global": variance, "local": 1 / np.asarray(fan_in)}
    if family == "gaussian":
        return {"weight_var": variance / np.asarray(fan_in)}
    settings = {}
    for level, mean in means.items():
        if family in ("student_t", "nig"):
            settings[f"delta_{level}"] = np.sqrt(mean)
        if family == "nig":
            settings[f"lambda_{level}"] = 1 / np.sqrt(mean)
        if family == "laplace":
            settings[f"lambda_{level}"] = np.sqrt(2 / mean)
        if family == "normal_gamma":
            settings |= {f"nu_{level}": 0.5, f"lambda_{level}": np.sqrt(1 / mean)}
        if family == "student_t":
            settings[f"nu_{level}"] = -1.5
    return settings


@pytest.mark.parametrize(
    ("y", "delta_sq", "bias_var", "noise_beta"),
    [
        (LINE, 3.0, 5.0, 1.0),
        (-LINE, 3.0, 5.0, 1.0),
        (100 * LINE, 100.0, 500.0, 130.0),
        (7 * LINE, 21.0, 35.0, 30.0),
        (LINE / 10, 0.3, 1.0, 0.01),
        (np.full(4, -4.0), 1e-6, 4.0, 1e-6),
        (5 + 3 * CROSS[:, 0], 3.0, 5.0, 0.009),
        (np.stack([LINE, -2 * LINE], axis=1), 6.0, 10.0, 2.5),
    ],
    ids=["line", "sign", "caps", "noise cap", "floor", "constant", "no residuals", "outputs"],
)
@pytest.mark.filterwarnings("ignore:y is constant:UserWarning")
def test_defaults_come_from_least_squares(y, delta_sq, bias_var, noise_beta):
    explicit = bow_tie(
        CROSS,
        y,
        hidden=(3,),
        bias_var=bias_var,
        noise_beta=noise_beta,
        hidden_alpha=2,
        hidden_beta=0.01,
        noise_alpha=2,
        shrinkage=Shrinkage(**default_settings("student_t", delta_sq, (1, 3))),
    )
    point = random_point(explicit)
    model = bow_tie(CROSS, y, hidden=(3,))
    np.testing.assert_allclose(logp(model, point), logp(explicit, point), rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_default_scales_of_all_families(family):
    hidden = (2, 3)
    settings = default_settings(family, 1.5, (1, *hidden))
    explicit = bow_tie(CROSS, LINE, hidden=hidden, shrinkage=Shrinkage(family, **settings))
    point = random_point(explicit)
    model = bow_tie(CROSS, LINE, hidden=hidden, shrinkage=family)
    np.testing.assert_allclose(logp(model, point), logp(explicit, point), rtol=1e-12)


@pytest.mark.parametrize("family", ["student_t", "laplace", "normal_gamma", "nig"])
def test_default_scales_have_the_same_prior_means(family):
    model = bow_tie(CROSS, LINE, hidden=(4,), shrinkage=family)
    start = model.initial_point()
    logs = np.linspace(-80, 80, 801)
    for name, mean in (("tau2", 3.0), ("psi2", 0.25)):
        shape = start[f"{name}_log__"].shape
        density = model.compile_logp(vars=[model[name]], **IN_PYTHON)
        values = [density(start | {f"{name}_log__": np.full(shape, log)}) for log in logs]
        weights = np.exp(np.array(values) / np.prod(shape)) * (logs[1] - logs[0])
        np.testing.assert_allclose(weights.sum(), 1, rtol=1e-8)
        np.testing.assert_allclose(weights @ np.exp(logs), mean, rtol=1e-8)


def test_lambda_follows_nu():
    given = Shrinkage("normal_gamma", nu_global=2.0, nu_local=[1.0, 3.0])
    model = bow_tie(CROSS, LINE, shrinkage=given)
    derived = {"lambda_global": np.sqrt(4 / 3), "lambda_local": [np.sqrt(2), np.sqrt(120)]}
    explicit = bow_tie(CROSS, LINE, shrinkage=replace(given, **derived))
    point = random_point(model)
    np.testing.assert_allclose(logp(model, point), logp(explicit, point), rtol=1e-12)


def weight_density(family, w, nu, delta, lam):
    """Density of a weight whose variance follows the law."""
    if family == "student_t":
        return stats.t.pdf(w, -2 * nu, scale=delta / np.sqrt(-2 * nu))
    if family == "laplace":
        return stats.laplace.pdf(w, scale=1 / lam)
    if family == "normal_gamma":
        constant = lam ** (nu + 0.5) / (np.sqrt(np.pi) * 2 ** (nu - 0.5) * special.gamma(nu))
        return constant * np.abs(w) ** (nu - 0.5) * special.kv(nu - 0.5, lam * np.abs(w))
    root = np.sqrt(delta**2 + w**2)
    return delta * lam / np.pi * np.exp(lam * delta) * special.kv(1, lam * root) / root


@pytest.mark.parametrize("family", ["student_t", "laplace", "normal_gamma", "nig"])
def test_marginal_prior_of_a_weight(family):
    settings = of_layers(FAMILIES[family], 1)
    model = bow_tie(X[:, :1], TARGETS[1], hidden=(), shrinkage=Shrinkage(family, **settings))
    density = model.compile_logp(vars=[model["psi1"], model["W1"]], **IN_PYTHON)
    point = model.initial_point() | {"tau1_log__": np.array(0.0)}
    logs = np.linspace(-60, 60, 601)
    for w in (0.03, -0.6, 2.5):
        point["W1"] = np.full((1, 1), w)
        joint = [density(point | {"psi1_log__": np.full((1, 1), log)}) for log in logs]
        marginal = np.exp(joint).sum() * (logs[1] - logs[0])
        expected = weight_density(family, w, *law(family, settings, "local", 1))
        np.testing.assert_allclose(marginal, expected, rtol=1e-8)


def forward(start, inputs, layer):
    return inputs @ start[f"W{layer}"].T + start[f"b{layer}"]


def test_start_bends_units_within_the_data():
    wide = np.array([[1.0, 2.5, -3.0, 7.0]]).T
    start = bow_tie(wide, wide[:, 0], hidden=(2000,)).initial_point(1)
    bends = -start["b1"] / start["W1"][:, 0]
    assert_uniform((bends + 3.5) / 11)
    assert_uniform(stats.laplace.cdf(start["W1"][:, 0], scale=np.sqrt(2)))
    deep = bow_tie(X, TARGETS[1], hidden=(8, 2000)).initial_point(1)
    assert_uniform(stats.laplace.cdf(deep["W2"], scale=0.5).ravel())
    low, high = deep["a1"].min(0), deep["a1"].max(0)
    ends = np.stack([low - 0.05 * (high - low), high + 0.05 * (high - low)])
    extremes = deep["W2"] * ends[:, None]
    assert (deep["b2"] + extremes.min(0).sum(1) < 1e-12).all()
    assert (deep["b2"] + extremes.max(0).sum(1) > -1e-12).all()


def test_start_is_consistent():
    model = bow_tie(X, TARGETS[1], hidden=(5, 4))
    start = model.initial_point(3)
    a = X
    for layer in (1, 2):
        z = forward(start, a, layer)
        np.testing.assert_array_equal(start[f"gamma{layer}"], z > 0)
        a = start[f"a{layer}"]
        np.testing.assert_allclose(a, np.maximum(z, 0), atol=1e-13)
        assert 0 < start[f"gamma{layer}"].mean() < 1
    np.testing.assert_allclose(np.exp(start["tau1_log__"]), 1 / 2 * delta_sq(X, TARGETS[1]))
    np.testing.assert_allclose(np.exp(start["psi2_log__"]), 1 / 5)
    np.testing.assert_allclose(np.exp(start["eta_sq1_log__"]), 0.01)


def delta_sq(inputs, y):
    columns = np.column_stack([np.ones(len(inputs)), inputs])
    return np.abs(np.linalg.solve(columns.T @ columns, columns.T @ y)[1:]).max()


@pytest.mark.parametrize("n_outputs", TARGETS)
@pytest.mark.parametrize("hidden", [(), (4,), (30,), (5, 5)])
def test_start_fits_the_targets(hidden, n_outputs):
    y = TARGETS[n_outputs].reshape(N_OBS, n_outputs)
    start = bow_tie(X, y, hidden=hidden).initial_point(4)
    a = start[f"a{len(hidden)}"] if hidden else X
    residuals = y - forward(start, a, len(hidden) + 1)
    np.testing.assert_allclose(residuals.mean(0), 0, atol=1e-9)
    assert np.sum(residuals**2) < 0.9 * np.sum((y - y.mean(0)) ** 2)
    W = start[f"W{len(hidden) + 1}"]
    penalty = 1e-3 * np.mean(np.sum(a**2, axis=0))
    np.testing.assert_allclose((a - a.mean(0)).T @ residuals, penalty * W.T, atol=1e-9)


def test_start_of_units_that_no_row_opens():
    """Output weights of zero, all of them, from which no scale of them could be drawn."""
    model = bow_tie(X[:2], [-1.0, 1.0], hidden=(1,))
    starts = map(make_initial_point_fn(model=model), range(100))
    closed = [start for start in starts if not start["gamma1"].any()]
    assert closed
    assert all(start["W2"].all() for start in closed)


def test_start_has_a_seed():
    model = bow_tie(X, TARGETS[1], hidden=(5, 4))
    first, again, other = (model.initial_point(seed) for seed in (1, 1, 2))
    for name, value in first.items():
        np.testing.assert_array_equal(value, again[name])
    for name in ("W1", "b1", "a1", "W2", "b2", "W3", "b3"):
        assert not np.array_equal(first[name], other[name])


@pytest.mark.parametrize("start", ["data", "prior"])
@pytest.mark.parametrize("family", quick(FAMILIES, {"student_t", "normal_gamma", "gaussian"}))
def test_starts_are_usable_also_after_set_data(family, start):
    model = bow_tie(X, TARGETS[1], hidden=(4,), shrinkage=family, start=start)
    density = model.compile_logp(mode=AS_WRITTEN)
    start_at = make_initial_point_fn(model=model)
    assert np.isfinite([density(start_at(seed)) for seed in (1, 2)]).all()
    with model:
        pm.set_data({"inputs": 1 - 5 * X[:4], "targets": TARGETS[1][1:5]})
    moved = start_at(1)
    assert np.isfinite(density(moved))
    assert moved["a1"].shape == (4, 4)
    if start == "data":
        residuals = TARGETS[1][1:5] - forward(moved, moved["a1"], 2)[:, 0]
        np.testing.assert_allclose(residuals.mean(), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("inputs", "y"),
    [
        (X[:1], TARGETS[1][:1]),
        (np.full((5, 2), 0.1), X[:5, 0]),
        (np.column_stack([X, np.full(N_OBS, 0.7)]), TARGETS[1]),
        (np.zeros((3, 1)), np.zeros(3)),
        (1e4 + X, 1e3 + TARGETS[3]),
    ],
    ids=["one row", "constant inputs", "constant column", "zeros", "far from zero"],
)
@pytest.mark.parametrize(
    ("hidden", "floatx"),
    [((9,), "float64"), ((4, 3), "float32")],
)
@pytest.mark.filterwarnings("ignore:(X|y) (is constant|has a scale):UserWarning")
def test_starts_of_difficult_data(inputs, y, hidden, floatx):
    with pytensor.config.change_flags(floatX=floatx):
        model = bow_tie(inputs, y, hidden=hidden)
        start = model.initial_point(1)
        assert np.isfinite(model.compile_logp(mode=AS_WRITTEN)(start))
        last = start[f"W{len(hidden) + 1}"]
        assert np.abs(last).max() < 1e3


def test_prior_start_is_a_consistent_draw():
    model = bow_tie(X, TARGETS[1], hidden=(50,), start="prior", temperature=1e-6)
    first, second = natural(model.initial_point(1)), natural(model.initial_point(2))
    assert not any(np.array_equal(first[name], second[name]) for name in first)
    z = forward(first, X, 1)
    np.testing.assert_array_equal(first["gamma1"], z > 0)
    residuals = (first["a1"] - np.maximum(z, 0)) / np.sqrt(first["eta_sq1"])
    assert_uniform(stats.norm.cdf(residuals).ravel())
    scaled = first["W1"] / np.sqrt(first["tau1"] * first["psi1"])
    assert_uniform(stats.norm.cdf(scaled).ravel())


def test_names_shapes_and_dims():
    model = bow_tie(X, TARGETS[3], hidden=(4, 2))
    expected = {}
    layers = ("feature", 3), ("hidden1", 4), ("hidden2", 2), ("output", 3)
    for layer in (1, 2, 3):
        (source, fan_in), (name, fan_out) = layers[layer - 1 : layer + 1]
        expected |= {
            f"tau{layer}": ((), ()),
            f"psi{layer}": ((fan_out, fan_in), (name, source)),
            f"W{layer}": ((fan_out, fan_in), (name, source)),
            f"b{layer}": ((fan_out,), (name,)),
        }
        rows = ((N_OBS, fan_out), ("obs", name))
        expected |= {f"gamma{layer}": rows} if layer < 3 else {}
        expected[f"eta_sq{layer}"] = ((fan_out,), (name,))
        expected |= {f"a{layer}": rows} if layer < 3 else {}
    start = natural(model.initial_point())
    assert [rv.name for rv in model.free_RVs] == list(expected)
    assert {
        name: (value.shape, model.named_vars_to_dims.get(name, ())) for name, value in start.items()
    } == expected
    for name, (shape, _) in expected.items():
        static = (None, shape[1]) if name[:-1] in ("gamma", "a") else shape
        assert model[name].type.shape == static
    assert model.named_vars_to_dims["inputs"] == ("obs", "feature")
    assert model.named_vars_to_dims["targets"] == ("obs", "output")
    assert model.named_vars_to_dims["y"] == ("obs", "output")
    assert model.deterministics == []


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"hidden": ()}, ["tau1", "psi1", "W1", "b1", "eta_sq1"]),
        ({"hidden": (), "shrinkage": "gaussian"}, ["W1", "b1", "eta_sq1"]),
        (
            {"shrinkage": "gaussian"},
            ["W1", "b1", "gamma1", "eta_sq1", "a1", "W2", "b2", "eta_sq2"],
        ),
        (
            {"shrinkage": "gaussian", "marginalize_gates": True},
            ["W1", "b1", "eta_sq1", "a1", "W2", "b2", "eta_sq2"],
        ),
    ],
)
def test_variables(options, names):
    model = bow_tie(X, TARGETS[1], **options)
    assert [rv.name for rv in model.free_RVs] == names
    assert model.named_vars_to_dims["y"] == ("obs",)
    assert model["y"].ndim == 1
    assert model[f"W{1 + ('a1' in names)}"].type.shape[0] == 1


def test_a_mixture_has_the_dims_of_activations():
    model = bow_tie(X, TARGETS[1], hidden=(4,), marginalize_gates=True)
    assert model.named_vars_to_dims["a1"] == ("obs", "hidden1")
    assert model.initial_point()["a1"].shape == (N_OBS, 4)


def test_linear_maps_are_shared_by_gates_and_activations():
    model = bow_tie(X, TARGETS[1], hidden=(4,))
    logit = model["gamma1"].owner.inputs[-1].owner.inputs[0]
    mean = model["a1"].owner.op.dist_params(model["a1"].owner)[0]
    assert logit.owner.inputs[0] is mean.owner.inputs[1]
    assert mean.owner.inputs[0] is model["gamma1"]


def test_a_column_of_targets_stays_a_column():
    model = bow_tie(X, TARGETS[1][:, None], hidden=(4,))
    assert model["targets"].get_value().shape == (N_OBS, 1)
    assert model["y"].ndim == 2


def test_data_frames_name_the_dimensions():
    frame = pd.DataFrame(X, columns=["age", "bmi", "bp"])
    targets = pd.DataFrame({"left": X[:, 0], "right": X[:, 1]})
    model = bow_tie(frame, targets)
    assert model.coords["feature"] == ("age", "bmi", "bp")
    assert model.coords["output"] == ("left", "right")
    assert bow_tie(frame, targets["left"]).named_vars_to_dims["y"] == ("obs",)


def test_outer_model_and_its_coords():
    coords = {"obs": list("abcdef"), "feature": ["u", "v", "w"], "hidden1": ["h", "k"]}
    with pm.Model(coords=coords) as outer:
        scale = pm.HalfNormal("scale")
        inner = bow_tie(X, TARGETS[1], hidden=(2,))
    assert inner is outer
    assert scale in outer.free_RVs
    assert {name: outer.coords[name] for name in coords} == {
        name: tuple(values) for name, values in coords.items()
    }
    with outer:
        pm.set_data({"inputs": X[:2], "targets": [0.0, 1.0]}, coords={"obs": ["x", "y"]})
    assert outer.initial_point()["a1"].shape == (2, 2)


def test_two_networks_in_one_model():
    with pm.Model() as outer:
        for name in ("left", "right"):
            with pm.Model(name=name):
                bow_tie(X, TARGETS[1], hidden=(2,))
    assert {"left::psi1", "right::psi1"} < set(outer.named_vars)
    start = outer.initial_point(1)
    assert not np.array_equal(start["left::W1"], start["right::W1"])


@pytest.mark.parametrize("marginalize", [False, True])
def test_float32(marginalize):
    with pytensor.config.change_flags(floatX="float32"):
        model = bow_tie(X, TARGETS[1], hidden=(4,), marginalize_gates=marginalize)
        start = model.initial_point(1)
        dtypes = {name: value.dtype for name, value in start.items()}
        assert dtypes == {n: "int64" if n.startswith("gamma") else "float32" for n in start}
        assert model["inputs"].dtype == "float32"
        assert np.isfinite(model.compile_logp(mode=AS_WRITTEN)(start))


@pytest.mark.parametrize("marginalize", [False, True])
def test_predictive_sampling_also_at_new_inputs(marginalize):
    model = bow_tie(X, TARGETS[3], hidden=(4,), marginalize_gates=marginalize)
    with model:
        prior = pm.sample_prior_predictive(5, random_seed=1, compile_kwargs=IN_PYTHON)
        assert prior["prior_predictive"]["y"].shape == (1, 5, N_OBS, 3)
        weights = prior["prior"].to_dataset().drop_vars(["a1", "gamma1"], errors="ignore")
        pm.set_data({"inputs": X[:2]})
        predictions = pm.sample_posterior_predictive(
            weights, predictions=True, random_seed=1, progressbar=False, compile_kwargs=IN_PYTHON
        )["predictions"]["y"]
    assert predictions.dims == ("chain", "draw", "obs", "output")
    assert predictions.shape == (1, 5, 2, 3)
