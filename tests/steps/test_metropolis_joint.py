"""Joint distribution tests of the Metropolis-Hastings steps, and NUTS as an oracle.

Between two transitions the data are exchanged, and in hierarchical models another step moves the
parameters of the priors: whatever is carried from one transition to the next must follow.
"""

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import CompoundStep

import pymc_nnsteps as nns
from pymc_nnsteps.steps import metropolis
from tests.cases import slow
from tests.statistics import Z_LIMIT, batch_means_z_scores
from tests.steps.joint import assert_joint, joint_z_scores

RNG = np.random.default_rng(20)
X = RNG.normal(size=(5, 2))
TRANSITIONS = 4_000


def network():
    """Weights of several shapes, scales and means; a wide output noise for quick mixing."""
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0.2, [[0.8], [1.5]], shape=(2, 3))
        b1 = pm.Normal("b1", 0, 0.5, shape=3)
        w2 = pm.Normal("w2", -0.3, 1.2, shape=3)
        b2 = pm.Normal("b2", 1.0, 0.7)
        mean = pm.math.tanh(X @ W1 + b1) @ w2 + b2
        pm.Normal("y", mean, 1.5, observed=pm.Data("targets", np.zeros(5)))
    return model


def hierarchy():
    """Means and scales of a Gaussian prior that have priors of their own."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 1.0, 0.8)
        log_sigma = pm.Normal("log_sigma", -0.2, 0.5)
        theta = pm.Normal("theta", mu, pm.math.exp(log_sigma), shape=4)
        mean = pm.math.tanh(theta) + 0.3 * theta
        pm.Normal("y", mean, 0.9, observed=pm.Data("targets", np.zeros(4)))
    return model


PCN, PCNL, MALA = (nns.PCN, "beta"), (nns.PCNL, "beta"), (nns.MALA, "step_size")


def make(kind, model, names, size, **options):
    step, argument = kind
    return step(names, model=model, **{argument: size}, **options)


@pytest.mark.parametrize(
    ("kind", "size"), [slow(PCN, 0.8), (PCNL, 0.9), slow(MALA, 0.5)], ids=["pcn", "pcnl", "mala"]
)
def test_network(kind, size):
    """The posterior of a nonlinear model, over all data sets at once."""
    model = network()
    step = make(kind, model, None, size, steps=3)
    assert_joint(step, model, "targets", transitions=TRANSITIONS, seed=TRANSITIONS)


def alternating(kind, size, model):
    """``theta`` by one step, and the parameters of its prior by another."""
    return CompoundStep(
        [
            make(kind, model, ["theta"], size, steps=2),
            nns.MALA(["mu", "log_sigma"], model=model, step_size=0.6, steps=3),
        ]
    )


HIERARCHIES = pytest.mark.parametrize(
    ("kind", "size"), [(PCN, 0.7), (PCNL, 0.8)], ids=["pcn", "pcnl"]
)


@pytest.mark.parametrize(("kind", "size"), [(PCN, 0.7), slow(PCNL, 0.8)], ids=["pcn", "pcnl"])
def test_hierarchy(kind, size):
    """A prior's mean or scale that is kept from before another step moved it."""
    model = hierarchy()
    step = alternating(kind, size, model)
    assert_joint(step, model, "targets", transitions=TRANSITIONS, seed=TRANSITIONS)


def test_means_by_gibbs():
    """PCN beside an exact update; the mean is the parent of what PCN moves."""
    model = hierarchy()
    step = CompoundStep(
        [
            nns.PCN(["theta"], beta=0.7, steps=2, model=model),
            nns.Gibbs(["mu"], model=model),
            nns.MALA(["log_sigma"], step_size=0.8, steps=2, model=model),
        ]
    )
    assert_joint(step, model, "targets", transitions=TRANSITIONS, seed=2)


# --- the tests see what they are for -------------------------------------------------------


def assert_seen(step, model):
    scores = joint_z_scores(step, model, "targets", transitions=2_000)
    assert max(map(abs, scores.values())) > 10


@HIERARCHIES
def test_a_stale_prior_or_likelihood_is_seen(kind, size, monkeypatch):
    """The place kept when another step has moved the parameters of the prior."""
    model = hierarchy()
    step = alternating(kind, size, model)
    monkeypatch.setattr(metropolis, "_agree", lambda known, point: True)
    assert_seen(step, model)


def test_a_step_that_always_accepts_is_seen(monkeypatch):
    """PCN then samples from the prior."""
    model = network()
    step = make(PCN, model, None, 0.8)
    monkeypatch.setattr(metropolis, "_acceptance_probability", lambda log_ratio: 1.0)
    assert_seen(step, model)


# --- against NUTS --------------------------------------------------------------------------

N_OBS, WIDTH = 8, 24


def wide_network():
    """Hidden weights only: the readout is integrated out of y ~ N(0, sigma^2 I + Psi Psi^T)."""
    rng = np.random.default_rng(3)
    x, noise = np.linspace(-2, 2, N_OBS)[:, None], 0.5
    y = np.sin(2 * x[:, 0]) + noise * rng.normal(size=N_OBS)
    with pm.Model() as model:
        W = pm.Normal("W", 0, 1, shape=(1, WIDTH))
        b = pm.Normal("b", 0, 1, shape=WIDTH)
        hidden = pm.math.tanh(np.sqrt(2) * x @ W + b)
        Psi = pm.math.concatenate([hidden / np.sqrt(WIDTH), 0.1 * np.ones((N_OBS, 1))], axis=1)
        K = Psi @ Psi.T
        f = K @ pm.math.matrix_inverse(K + noise**2 * np.eye(N_OBS)) @ y
        pm.Deterministic("f", f)
        covariance = K + noise**2 * np.eye(N_OBS)
        pm.MvNormal("y", np.zeros(N_OBS), cov=covariance, observed=y)
    return model


@pytest.fixture(scope="module")
def nuts_draws():
    quiet = {"progressbar": False, "random_seed": 1, "cores": 1, "chains": 1}
    with wide_network():
        idata = pm.sample(5_000, tune=1_000, compute_convergence_checks=False, **quiet)
    return idata["posterior"]["f"].values[0]


@pytest.mark.slow
def test_wide_network_against_nuts(nuts_draws):
    """A gradient of the marginal likelihood, or a likelihood, that is PyMC's in small models."""
    model = wide_network()
    step = make(PCNL, model, None, 0.7, steps=5)
    step.setup_chain(np.random.default_rng(0), 0, 1)
    functions = model.compile_fn(model.replace_rvs_by_values([model["f"]]), point_fn=True)
    point, history = model.initial_point(), []
    for i in range(12_200):
        point, _ = step.step(point)
        if i >= 200:
            history.append(functions(point)[0])
    moments = [np.column_stack([f, f**2]) for f in (nuts_draws, np.array(history))]
    errors = [(m.mean(0) - 99.0) / batch_means_z_scores(m - 99.0) for m in moments]
    z = (moments[0].mean(0) - moments[1].mean(0)) / np.hypot(*errors)
    assert np.all(np.abs(z) < Z_LIMIT), z
