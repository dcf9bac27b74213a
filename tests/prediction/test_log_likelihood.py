"""Latent variables integrated out, against quadrature, enumeration and closed forms."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy.special import expit, log_ndtr, logsumexp
from scipy.stats import multivariate_normal, norm

import pymc_nnsteps as nns
from pymc_nnsteps.prediction import blocks, integration
from tests.cases import slow
from tests.prediction.draws import made_up

RNG = np.random.default_rng(0)
N_OBS = 3
X = RNG.normal(size=(N_OBS, 2))
NODES = np.linspace(-9, 9, 601)
LOG_WEIGHTS = norm.logpdf(NODES) + np.log(NODES[1] - NODES[0])
FAR = np.array([0.3, -1.5, 5.0])
"""Targets in standard deviations from the mean."""


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    monkeypatch.setattr(blocks, "c_by_default", lambda: {"mode": "FAST_COMPILE"})


def weights_of(draws, *names):
    return [draws[name].values[0, 0] for name in names]


def first(tree, group="log_likelihood"):
    return tree[group]["y"].values[0, 0]


def activations(draws, noise, function=lambda z: np.maximum(z, 0)):
    """All values of two hidden units at the nodes of their pre-activations' noise."""
    W1, b1, W2, b2 = weights_of(draws, "W1", "b1", "W2", "b2")
    z = (X @ W1.T + b1)[:, :, None] + noise**0.5 * NODES
    x = function(z)
    one, other = W2.T[:, :, None, None, None]
    mean = one * x[:, 0, :, None] + other * x[:, 1, None]
    return mean + b2[:, None, None, None], W2


def network(noise, y, **options):
    return nns.intermediate_noise_mlp(X, y, hidden=(2,), noise=noise, **options)


def by_quadrature(log_density):
    return logsumexp(log_density + LOG_WEIGHTS[:, None] + LOG_WEIGHTS, axis=(-2, -1))


@pytest.mark.filterwarnings("ignore:y has a scale")
@pytest.mark.parametrize(
    ("noise", "activation"), [(1e-4, "relu"), (1e-2, "relu"), (1.0, "relu"), (1.0, "hard_tanh")]
)
def test_one_hidden_layer_is_estimated_within_its_error(noise, activation):
    """Against quadrature over two units: a lost piece, a variance without that of a layer."""
    draws = made_up(network(noise, X[:, 0]))
    functions = {"relu": lambda z: np.maximum(z, 0), "hard_tanh": lambda z: np.clip(z, -1, 1)}
    means, W2 = activations(draws, noise, functions[activation])
    sd = (noise * (1 + (W2**2).sum())) ** 0.5
    y = np.average(means[0], axis=(1, 2), weights=norm.pdf(NODES)[:, None] * norm.pdf(NODES))
    y = y + FAR * sd
    expected = by_quadrature(norm.logpdf(y[:, None, None], means[0], sd))
    model = network(noise, y, activation=activation)
    found = nns.log_likelihood(draws, model, noise_draws=4000, random_seed=1)
    error = first(found, "log_likelihood_error")
    assert np.all(np.abs(first(found) - expected) < 4 * np.minimum(error, 0.05) + 3e-4)
    assert error[:2].max() < 0.05
    assert found["log_likelihood"].attrs["noise_draws"] == 4000


@pytest.mark.parametrize("noise", [1e-2, 1.0])
def test_a_probit_network_is_estimated_within_its_error(noise):
    """Both labels: their likelihoods sum to one."""
    label = np.array([1, 0, 1])
    draws = made_up(network(noise, label, likelihood="probit"))
    means, W2 = activations(draws, noise)
    distance = means[0] / (noise * (1 + (W2**2).sum())) ** 0.5
    total, variance = 0.0, 0.0
    for y in (label, 1 - label):
        model = network(noise, y, likelihood="probit")
        found = nns.log_likelihood(draws, model, noise_draws=4000, random_seed=1)
        expected = by_quadrature(log_ndtr(np.where(y, 1, -1)[:, None, None] * distance))
        error = np.minimum(first(found, "log_likelihood_error"), 0.05)
        assert np.all(np.abs(first(found) - expected) < 4 * error + 1e-4)
        total, variance = total + np.exp(first(found)), variance + (np.exp(expected) * error) ** 2
    assert np.all(np.abs(total - 1) < 4 * variance**0.5 + 1e-4)
    assert variance.max() < 1e-3


@pytest.mark.filterwarnings("ignore:y has a scale")
@pytest.mark.parametrize("noise", [1e-4, 1e-2, 1.0])
def test_two_outputs_are_estimated_within_their_errors(noise):
    """Importance sampling with a weight or a proposal that is wrong is biased."""
    y = X[:, :2]
    draws = made_up(network(noise, y))
    means, W2 = activations(draws, noise)
    covariance = noise * (np.eye(2) + W2 @ W2.T)
    root = np.linalg.cholesky(covariance)
    y = means[:, :, 300, 300].T + (FAR[:, None] * [0.2, 0.6]) @ root.T
    residual = np.moveaxis(y.T[:, :, None, None] - means, 0, -1)
    expected = by_quadrature(multivariate_normal([0, 0], covariance).logpdf(residual))
    found = nns.log_likelihood(draws, network(noise, y), noise_draws=4000, random_seed=1)
    error = first(found, "log_likelihood_error")
    assert np.all(np.abs(first(found) - expected) < 4 * error + 3e-4)
    assert error.max() < 0.05


def test_targets_from_both_sides_of_a_kink():
    """Linearised where the noise is zero alone, the mean leads to one side of it."""
    rows = np.random.default_rng(0).normal(size=(40, 2))
    noise = {"pre": 1.0, "post": 0, "output": 0.05}
    model = nns.intermediate_noise_mlp(rows, rows[:, 0], hidden=(1,), activation="abs", noise=noise)
    draws = made_up(model, 3)
    found = nns.log_likelihood(draws, model, random_seed=1)
    W1, b1, W2, b2 = (draws[name].values[0] for name in ("W1", "b1", "W2", "b2"))
    z = rows @ W1.transpose(0, 2, 1) + b1[:, None] + NODES
    log_density = norm.logpdf(rows[:, :1], W2 * np.abs(z) + b2[:, None], 0.05**0.5)
    off = found["log_likelihood"]["y"].values[0] - logsumexp(log_density + LOG_WEIGHTS, axis=-1)
    error = found["log_likelihood_error"]["y"].values[0]
    assert np.isfinite(error).mean() > 0.7
    assert np.all(np.abs(off) < 4 * error)


@pytest.mark.filterwarnings("ignore:y has a scale")
def test_targets_that_few_draws_reach():
    """Weights of which one counts would tell an error that is a tenth of what they are off by."""
    model = network({"pre": 1.0, "post": 0.01, "output": 0.03}, X[:, 0] - 8)
    draws = made_up(model)
    draws["W1"][:], draws["W2"][:], draws["b2"][:] = 0, 1, 0
    draws["b1"][:] = np.array([-5.0, 3.0])
    means, _ = activations(draws, 1.0)
    y = (X[:, 0] - 8)[:, None, None]
    exact = by_quadrature(norm.logpdf(y, means[0], (0.03 + 2 * 0.01) ** 0.5))
    found = nns.log_likelihood(draws, model, random_seed=1)
    error = first(found, "log_likelihood_error")
    off = np.abs(first(found) - exact)
    assert off.min() > 4
    assert np.all(off < 4 * error)


def test_signs_that_no_draw_has_met():
    """Draws that all count alike tell no error, not that it is zero."""
    v, level, s = np.array([1.5, 1.0]), np.array([4.5, -4.0]), 0.2
    signs = np.array([[1, -1], [-1, -1], [1, 1], [-1, 1]])
    y = signs @ v
    with pm.Model() as model:
        inputs = pm.Data("inputs", np.tile(level, (4, 1)))
        W = pm.Normal("W", shape=2)
        Z = pm.Normal("Z", inputs * W, 1, shape=(4, 2))
        pm.Normal("y", pt.sign(Z) @ v, s, observed=y)
    draws = az.from_dict({"posterior": {"W": np.ones((1, 1, 2))}})["posterior"].to_dataset()
    exact = logsumexp(
        log_ndtr(signs * level).sum(1) + norm.logpdf(y[:, None], signs @ v, s), axis=1
    )
    found = nns.log_likelihood(draws, model=model, noise_draws=100, random_seed=0)
    error = first(found, "log_likelihood_error")
    assert np.all(np.abs(first(found) - exact) < error + 1e-9)
    assert 0 < error[0] < 0.05
    assert np.all(np.isinf(error[1:]))


def test_classes_are_estimated_within_their_errors():
    labels = np.array([0, 1, 2])
    model = network(0.5, labels, likelihood="multinomial_probit")
    draws = made_up(model)
    W1, b1, W2, b2 = weights_of(draws, "W1", "b1", "W2", "b2")
    e = 0.5**0.5 * RNG.normal(size=(300_000, N_OBS, 7))
    x = np.maximum(X @ W1.T + b1 + e[..., :2], 0) + e[..., 2:4]
    expected = (np.argmax(x @ W2.T + b2 + e[..., 4:], axis=-1) == labels).mean(axis=0)
    found = nns.log_likelihood(draws, model, noise_draws=4000, random_seed=1)
    error = first(found, "log_likelihood_error")
    np.testing.assert_array_less(
        np.abs(first(found) - np.log(expected)), 4 * (error + (expected * len(e)) ** -0.5)
    )


@pytest.mark.filterwarnings("ignore:y has a scale")
@pytest.mark.parametrize("eta", [0.01, slow(0.5)])
def test_gates_are_summed_out(eta):
    """Against all four patterns; far from their means and in the valleys between these, too."""
    build = {
        m: (
            lambda y, m=m: nns.bow_tie(
                X, y, hidden=(2,), marginalize_gates=m, temperature=1.0, shrinkage="gaussian"
            )
        )
        for m in (False, True)
    }
    draws = made_up(build[False](X[:, 0]))
    draws["eta_sq1"][:] = draws["eta_sq2"][:] = eta**2
    W1, b1, W2, b2 = weights_of(draws, "W1", "b1", "W2", "b2")
    z = X @ W1.T + b1
    sd = eta * (1 + (W2**2).sum()) ** 0.5
    patterns = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    means = (patterns[:, None] * z) @ W2[0] + b2
    logs = (log := -np.log1p(np.exp(np.where(patterns[:, None], -z, z)))).sum(-1)
    assert log.shape == (4, N_OBS, 2)
    for y in (means[1], means[3] + FAR * sd, (means[0] + means[3]) / 2):
        expected = logsumexp(logs + norm.logpdf(y, means, sd), axis=0)
        for make in build.values():
            found = nns.log_likelihood(draws, make(y), noise_draws=300, random_seed=2)
            off = np.abs(first(found) - expected)
            assert np.all(off < 4 * first(found, "log_likelihood_error") + 1e-6)
    likely = int(np.argmax(logs.sum(1)))
    expected = logsumexp(logs + norm.logpdf(means[likely], means, sd), axis=0)
    found = nns.log_likelihood(draws, build[False](means[likely]), noise_draws=3000, random_seed=2)
    error = first(found, "log_likelihood_error")
    assert np.all(np.abs(first(found) - expected) < 4 * error)
    assert 0 < error.max() < 0.1


FAMILIES = {
    "deep": lambda y: nns.intermediate_noise_mlp(X, y, hidden=(3, 2), noise=0.1),
    "without post": lambda y: nns.intermediate_noise_mlp(
        X, y, noise={"pre": 0.1, "post": 0, "output": 0.1}
    ),
    "two layers of gates": lambda y: nns.bow_tie(X, np.c_[y, y], hidden=(3, 2)),
    "deep probit": lambda y: nns.intermediate_noise_mlp(
        X, (y > 0).astype(int), hidden=(3, 2), likelihood="probit"
    ),
}


@pytest.mark.parametrize("build", FAMILIES.values(), ids=FAMILIES)
def test_estimates_agree_with_plain_simulation(build, monkeypatch):
    """The same mean with proposals from the prior alone."""
    model = build(X[:, 0])
    draws = made_up(model, scale=0.7)
    guided = nns.log_likelihood(draws, model, noise_draws=1000, random_seed=1)
    monkeypatch.setattr(integration, "SHARE_OF_PRIOR", 1.0)
    with np.errstate(divide="ignore"):
        plain = nns.log_likelihood(draws, model, noise_draws=20_000, random_seed=2)
    error = sum(first(tree, "log_likelihood_error") ** 2 for tree in (guided, plain)) ** 0.5
    assert np.all(np.abs(first(guided) - first(plain)) < 4 * error)
    assert np.all(error < 0.3)


def test_without_noise_it_is_the_log_density_of_pymc():
    y = np.array([[0, 1], [1, 1], [0, 0]])
    model = nns.hierarchical_mlp(X, y, hidden=(2,), likelihood="bernoulli")
    draws = made_up(model)
    found = nns.log_likelihood(draws, model)["log_likelihood"]["y"]
    f = nns.predict(draws, X, model=model).values
    expected = np.log(np.where(y, expit(f), expit(-f))).sum(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    student = nns.hierarchical_mlp(X, X[:, 0], hidden=(2,), likelihood="student_t")
    tree = xr.DataTree.from_dict({"posterior": made_up(student)})
    fast = {"mode": "FAST_COMPILE"}
    pm.compute_log_likelihood(tree, model=student, progressbar=False, compile_kwargs=fast)
    found = nns.log_likelihood(tree, student)["log_likelihood"]["y"]
    np.testing.assert_allclose(found, tree["log_likelihood"]["y"], rtol=1e-9)
    assert found.dims == ("chain", "draw", "obs")


@pytest.mark.parametrize("hidden", [1, 9])
def test_wide_networks_given_their_readout(hidden):
    """Targets are observed jointly, with the readout by rows or by columns."""
    model = nns.wide_mlp(X, X[:, :2], hidden=(hidden,), sigma=0.3)
    rng = np.random.default_rng(2)
    draws = made_up(model).assign(
        W2=(("chain", "draw", "output", "hidden1"), rng.normal(size=(1, 2, 2, hidden))),
        b2=(("chain", "draw", "output"), rng.normal(size=(1, 2, 2))),
    )
    found = nns.log_likelihood(draws, model)["log_likelihood"]["y"]
    f = nns.predict(draws, X, model=model).values
    np.testing.assert_allclose(found, norm.logpdf(X[:, :2], f, 0.3).sum(-1), rtol=1e-9)


def test_models_are_compared():
    """The log likelihood decides; rows held out are those that the data hold."""
    y = np.abs(X[:, 0])
    models = {
        "linear": nns.intermediate_noise_mlp(X, y, hidden=(), noise=1e-2),
        "net": network(0.1, y),
    }
    trees = {
        name: nns.log_likelihood(made_up(model, 200, 0.5), model, num_samples=100)
        for name, model in models.items()
    }
    assert trees["net"]["posterior"].sizes["draw"] == 100
    with pytest.warns(UserWarning, match="Pareto"):
        table = az.compare(trees)
    assert set(table.index) == set(models)
    model = models["net"]
    draws = trees["net"]["posterior"].to_dataset()
    before = nns.log_likelihood(draws, model, random_seed=1)
    with model:
        pm.set_data({"inputs": X[::-1], "targets": y[::-1]})
    after = nns.log_likelihood(draws, model, random_seed=2)
    there, here = first(before)[::-1], first(after)
    errors = first(before, "log_likelihood_error")[::-1], first(after, "log_likelihood_error")
    assert np.all(np.abs(here - there) < 4 * np.hypot(*errors))


TARGETS = {"y": X[:, 0], "u": np.ma.masked_array(X[:, 1], np.arange(N_OBS) == 2)}


def networks_of(names, shared=False):
    """A network with noise for each response, beside a coefficient of both."""
    with pm.Model() as model:
        inputs, slope = pm.Data("inputs", X), pm.Normal("slope")
        for name in names:
            z = pm.Normal(f"Z_{name}", inputs @ pm.Normal(f"W_{name}", shape=(2, 3)), 0.4)
            hidden = pm.Normal(f"X_{name}", pm.math.maximum(z, 0), 0.2)
            hidden = model[f"X_{names[0]}"] if shared else hidden
            mean = hidden @ pm.Normal(f"v_{name}", shape=3) + slope * inputs[:, 0]
            pm.Normal(name, mean, 0.3, observed=TARGETS[name])
    return model


@pytest.mark.filterwarnings("ignore:Data in u contains missing values")
def test_each_response_has_the_likelihood_that_it_has_alone():
    """Without the noise of the other's layers, and in rows of its own where targets are missing."""
    model = networks_of(["y", "u"])
    draws = made_up(model)
    options = {"noise_draws": 2000, "random_seed": 1}
    both = nns.log_likelihood(draws, model, **options)
    for name, n_rows in (("y", 3), ("u", 2)):
        alone = nns.log_likelihood(draws, networks_of([name]), **options)
        found, errors = (
            [tree[group][name].values for tree in (both, alone)]
            for group in ("log_likelihood", "log_likelihood_error")
        )
        assert both["log_likelihood"][name].sizes[f"{name}_dim_0"] == n_rows
        assert np.all(np.abs(found[0] - found[1]) <= 4 * np.hypot(*errors))
        assert np.max(errors) < 0.1


def with_potential():
    model = network(0.1, X[:, 0])
    with model:
        pm.Potential("p", model["Z2"].sum())
    return model


def with_counts():
    with pm.Model() as model:
        rate = pm.Exponential("rate", pm.math.exp(pm.Data("inputs", X) @ pm.Normal("w", shape=2)))
        pm.Normal("y", rate, 1, observed=X[:, 0])
    return model


def with_rows_that_are_correlated():
    with pm.Model() as model:
        mean = pm.Data("inputs", X) @ pm.Normal("w", shape=2)
        pm.MvNormal("y", mean, np.eye(N_OBS), observed=X[:, 0])
    return model


def with_one_density_of_all_rows():
    with pm.Model() as model:
        mean = pm.Data("inputs", X) @ pm.Normal("w", shape=2)
        pm.CustomDist("y", mean, logp=lambda y, m: -((y - m) ** 2).sum(), observed=X[:, 0])
    return model


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (with_one_density_of_all_rows, {}, "Sum of Pow acts across the rows; draw responses by"),
        (with_potential, {}, "p is a potential that depends on the inputs"),
        (lambda: networks_of(["y", "u"], shared=True), {}, "y and u share the latent variable Z_y"),
        (with_counts, {}, "rate depends on the inputs and is Exponential"),
        (with_rows_that_are_correlated, {}, "draw responses by pm.sample_posterior_predictive"),
        (lambda: network(0.1, X[:, 0]), {"noise_draws": 0}, "noise_draws must be a positive int"),
        (lambda: network(0.1, X[:, 0]), {"num_samples": "all"}, "num_samples must be a positive"),
    ],
)
@pytest.mark.filterwarnings("ignore:Data in u contains missing values")
def test_bad_input(build, options, message):
    model = build()
    with pytest.raises(ValueError, match=message):
        nns.log_likelihood(made_up(model), model, **options)


@pytest.mark.parametrize("level", [-400.0, 400.0])
def test_noise_beyond_the_range_of_numbers_is_named(level):
    """Of a network of the noise at inputs far away: its variance is zero, or infinite."""
    model = nns.wide_mlp(X, X[:, 0], hidden=(2,), sigma="network", reparametrize=False)
    draws = made_up(model)
    draws["b_noise"] = draws["b_noise"] * 0 + level
    with pytest.raises(ValueError, match="the noise of y is zero, infinite or lost in rounding"):
        nns.log_likelihood(draws, model)


def test_a_potential_is_named_where_the_law_is_not_known():
    """It is not for being Normal that a layer is declined."""
    model = with_potential()
    with pytest.raises(ValueError, match=r"Z2 .* is Normal with the potential p; a layer"):
        nns.predict(made_up(model), X, model=model)
