"""Which variables `pm.sample` gives to Gibbs by itself: scales of networks, and of nothing else."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.steps.networks import needs_gibbs
from tests.cases import slow

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 2))
Y = RNG.normal(size=6)
GROUPS = np.array([0, 1, 2, 0, 1, 2])


def taken(model):
    return [rv.name for rv in model.free_RVs if needs_gibbs(model, rv)]


def by_hand():
    """Two hidden layers, written with other operations, and three levels of precisions."""
    tau = pm.Gamma("tau", 1, 1, shape=2)
    tau_input = pm.Gamma("tau_input", 2, 2 / tau[0], shape=2)
    W1 = pm.Normal("W1", 0, 1 / pt.sqrt(tau_input)[:, None], shape=(2, 3))
    b1 = pm.Normal("b1", 0, pm.InverseGamma("variance", 2, 1) ** 0.5, shape=3)
    W2 = pm.StudentT("W2", nu=4, mu=0, lam=tau[1], shape=(3, 3))
    w3 = pm.Laplace("w3", 0, 1, shape=3)
    hidden = pm.math.tanh(pm.math.dot(X, W1) + b1)
    f = pm.math.sigmoid(hidden @ W2) @ w3
    pm.Normal("y", f, tau=pm.Gamma("noise", 1, 1), observed=Y)
    return ["tau", "tau_input", "variance", "noise"]


def of_a_part_of_the_data():
    tau = pm.Gamma("tau", 1, 1)
    W1, w2 = pm.Normal("W1", 0, tau=tau, shape=(2, 3)), pm.Normal("w2", shape=3)
    pm.Normal("y", pm.math.tanh(X @ W1) @ w2, 0.5, observed=Y, total_size=60)
    return ["tau"]


def a_classifier():
    tau = pm.Gamma("tau", 1, 1)
    W1 = pm.Normal("W1", 0, tau=tau, shape=(3, 2))
    W2 = pm.Normal("W2", 0, pm.HalfNormal("sigma"), shape=(1, 3))
    pm.Bernoulli("y", logit_p=(pt.softplus(X @ W1.T) @ W2.T)[:, 0], observed=Y > 0)
    return ["tau"]


def targets_that_are_missing(tau=1.0):
    W1 = pm.Normal("W1", 0, tau=tau, shape=(2, 3))
    f = pm.math.tanh(X @ W1) @ pm.Normal("w2", shape=3)
    with warnings.catch_warnings(category=pm.exceptions.ImputationWarning, action="ignore"):
        pm.Normal("y", f, 0.5, observed=np.where(GROUPS == 1, np.nan, Y))


def targets_that_are_missing_behind_a_learnt_scale():
    targets_that_are_missing(pm.Gamma("tau", 1, 1))
    return ["tau", "y_unobserved"]


def an_output_that_is_a_variable_of_its_own():
    """A model with one more level: the network is the mean of group effects."""
    W1 = pm.Normal("W1", 0, tau=pm.Gamma("tau", 1, 1), shape=(2, 3))
    f = pt.tanh(X @ W1) @ pm.Normal("w2", shape=3)
    effect = pm.Normal("effect", f, tau=pm.Gamma("spread", 1, 1))
    pm.Poisson("y", pt.exp(effect), observed=np.arange(6))
    return ["tau", "spread"]


def latent_layers():
    W1 = pm.Normal("W1", 0, tau=pm.Gamma("tau", 1, 1), shape=(2, 3))
    z = pm.Normal("Z", X @ W1, 0.1)
    x = pm.Normal("X", pt.maximum(z, 0), 0.1)
    tau2 = pm.Gamma("tau2", 1, pm.Gamma("rate", 1, 1), shape=3)
    w2 = pm.Normal("w2", 0, tau=tau2)
    pm.Normal("y", x @ w2, tau=pm.Gamma("noise", 1, 1), observed=Y)
    return ["tau", "W1", "Z", "X", "rate", "tau2", "w2", "noise"]


def latent_layers_behind_a_logit():
    W1 = pm.Normal("W1", 0, tau=pm.Gamma("tau", 1, 1), shape=(2, 3))
    x = pm.Normal("X", pt.maximum(pm.Normal("Z", X @ W1, 0.1), 0), 0.1)
    pm.Bernoulli("y", logit_p=x @ pm.Normal("w2", shape=3), observed=Y > 0)
    return ["tau", "W1", "Z", "X", "w2"]


def beside_an_ordinary_regression():
    """All laws are known, so that no gradients need be compiled."""
    found = by_hand()
    beta = pm.Normal("beta", 0, tau=pm.Gamma("tau_beta", 1, 1), shape=2)
    pm.Normal("other", X @ beta, tau=pm.Gamma("tau_other", 1, 1), observed=Y)
    return [*found, "beta", "tau_beta", "tau_other"]


def beside_what_gradients_move():
    """Coefficients are left with the parameter of no known law that their response shares."""
    found = latent_layers()
    beta, bend = pm.Normal("beta", shape=2), pm.Normal("bend")
    pm.Normal("other", X @ beta + pt.exp(bend * X[:, 0]), 0.5, observed=Y)
    pm.Normal("apart", pm.Normal("gamma", pm.Normal("mean"), shape=3)[GROUPS], observed=Y)
    return [*found, "gamma", "mean"]


def means_of_effects():
    """Beside a latent network."""
    a = pm.Normal("a", pm.Normal("mean", pm.Normal("level")), 0.5, shape=3)
    z = pm.Normal("Z", X @ pm.Normal("W1", shape=(2, 3)), 0.1)
    x = pm.Normal("X", pt.maximum(z, 0), 0.1)
    pm.Normal("y", x @ pm.Normal("w2", shape=3) + a[GROUPS], 0.3, observed=Y)
    return ["a", "mean", "level", "Z", "W1", "X", "w2"]


def means_of_effects_that_gradients_move():
    """They join the trajectory of a network whose layers are functions."""
    w2 = pm.Normal("w2", 0, tau=pm.Gamma("tau", 1, 1), shape=3)
    a = pm.Normal("a", pm.Normal("mean"), 0.5, shape=3)
    f = pt.tanh(X @ pm.Normal("W1", shape=(2, 3))) @ w2
    pm.Normal("y", f + a[GROUPS], 0.3, observed=Y)
    return ["tau"]


NETWORKS = [by_hand, a_classifier, of_a_part_of_the_data,
            targets_that_are_missing_behind_a_learnt_scale,
            an_output_that_is_a_variable_of_its_own, latent_layers,
            latent_layers_behind_a_logit, beside_an_ordinary_regression, means_of_effects,
            beside_what_gradients_move, means_of_effects_that_gradients_move]  # fmt: skip


@pytest.mark.parametrize("build", NETWORKS)
def test_scales_of_a_network(build):
    with pm.Model() as model:
        expected = build()
    assert sorted(taken(model)) == sorted(expected)


def regression():
    beta = pm.Normal("beta", 0, tau=pm.Gamma("tau_beta", 1, 1), shape=2)
    pm.Normal("y", X @ beta, tau=pm.Gamma("tau", 1, 1), observed=Y)


def hierarchical_normal():
    theta = pm.Normal("theta", 0, pm.InverseGamma("variance", 2, 1) ** 0.5, shape=3)
    pm.Normal("y", theta[GROUPS], tau=pm.Gamma("tau", 1, 1), observed=Y)


def regression_on_basis_functions():
    """A nonlinear parameter, and no layer."""
    rate = pm.Normal("rate")
    beta = pm.Normal("beta", 0, tau=pm.Gamma("tau", 1, 1), shape=2)
    pm.Normal("y", pt.exp(rate * X) @ beta, tau=pm.Gamma("noise", 1, 1), observed=Y)


def correlated_effects():
    """A product with a Cholesky factor, before one with the data."""
    chol, _, _ = pm.LKJCholeskyCov("chol", eta=2, n=2, sd_dist=pm.Exponential.dist(1))
    z = pm.Normal("z", 0, tau=pm.Gamma("tau", 1, 1), shape=2)
    pm.Normal("y", X @ (chol @ z), tau=pm.Gamma("noise", 1, 1), observed=Y)


def whitened_process():
    length = pm.Gamma("length", 2, 1)
    scaled = X / length
    kernel = pt.exp(scaled @ scaled.T) + pt.eye(6)
    f = pt.linalg.cholesky(kernel) @ pm.Normal("z", shape=6)
    pm.Normal("y", f, tau=pm.Gamma("noise", 1, 1), observed=Y)


def factorisation():
    U = pm.Normal("U", 0, tau=pm.Gamma("tau", 1, 1), shape=(6, 2))
    V = pm.Normal("V", shape=(2, 1))
    pm.Normal("y", (U @ V)[:, 0], tau=pm.Gamma("noise", 1, 1), observed=Y)


def low_rank_covariance():
    """The same weights on both sides."""
    W = pm.Normal("W", 0, tau=pm.Gamma("tau", 1, 1), shape=(6, 2))
    pm.MvNormal("y", np.zeros(6), cov=(W @ np.eye(2)) @ W.T + pt.eye(6), observed=Y)


def logistic_regression():
    beta = pm.Normal("beta", 0, tau=pm.Gamma("tau", 1, 1), shape=2)
    pm.Bernoulli("y", logit_p=X @ beta, observed=Y > 0)


ORDINARY = [regression, logistic_regression, hierarchical_normal, regression_on_basis_functions,
            correlated_effects, whitened_process, factorisation, low_rank_covariance,
            targets_that_are_missing]  # fmt: skip


@pytest.mark.parametrize("build", ORDINARY)
def test_an_ordinary_model_keeps_nuts(build):
    with pm.Model() as model:
        build()
    assert taken(model) == []


@pytest.mark.parametrize(
    "likelihood", ["normal", "bernoulli", slow("student_t"), slow("categorical")]
)
def test_all_precisions_of_a_hierarchical_network(likelihood):
    """And its parameters are moved by HMC."""
    y = {"bernoulli": GROUPS > 0, "categorical": GROUPS}.get(likelihood, np.stack([Y, Y], 1))
    priors = {"ah": 3, "ih": "x1:2:3:4", "io": "1:2", "ti": "1:2", "th": "1:2::3"}
    if likelihood in ("normal", "student_t"):
        priors["noise"] = "1:2:3"
    model = nns.hierarchical_mlp(X, y, hidden=(3, 2), priors=priors, likelihood=likelihood)
    precisions = [rv.name for rv in model.free_RVs if rv.name.startswith("tau_")]
    assert len(precisions) > 8
    assert sorted(taken(model)) == sorted(precisions)
    with model:
        assigned = pm.sampling.mcmc.assign_step_methods(model)[1]
    assert {step.__name__ for step in assigned} == {"Gibbs", "HMC"}
    assert [v.name for v in assigned[nns.Gibbs]] == [f"{name}_log__" for name in precisions]


def test_level_of_noise_that_a_network_scales():
    """A level given to Gibbs, which trades off against the network's outputs."""
    model = nns.hierarchical_mlp(
        X, np.stack([Y, Y], 1), hidden=(2,), sigma="network", priors={"noise": "1:2:3"}
    )
    assert "tau_noise_unit" not in taken(model)
    assert {"tau_noise", "tau_h1s"} <= set(taken(model))


def test_scales_are_held_where_a_chain_begins():
    """Those of weights that another step moves, for the first sweeps of tuning."""
    with pm.Model() as model:
        moved = by_hand()
        step = nns.Gibbs(moved, compile_kwargs={"mode": "FAST_COMPILE"})
    step.setup_chain(np.random.default_rng(0), 80, 10)
    point = model.initial_point()
    for sweep in range(12):
        new, _ = step.step(point)
        changed = {name for name in new if np.any(new[name] != point[name])}
        assert changed == {f"{name}_log__" for name in (["noise"] if sweep < 10 else moved)}
        point = new
    step.setup_chain(np.random.default_rng(0), 0, 10)
    new, _ = step.step(point)
    assert all(np.any(new[f"{name}_log__"] != point[f"{name}_log__"]) for name in moved)
