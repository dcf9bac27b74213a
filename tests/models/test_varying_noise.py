"""Noise that varies with the inputs: its density in NumPy, predictions, sweeps, recovery."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_nnsteps as nns
from tests.cases import slow
from tests.models.neal import forward, prior_logp, random_point
from tests.steps.joint import assert_joint
from tests.steps.priors import LIGHT

RNG = np.random.default_rng(1)
X = RNG.normal(size=(7, 2))
Y = RNG.normal(size=(7, 2))
NETWORK = {"hidden": (3,), "priors": {"ih": "0.5:1:4", "bh": "0.7:2", "ho": "x0.3:2"}}
PRIORS = {"ih1": "0.5:1:4", "bh1": "0.7:2", "h1o": "x0.3:2"}
LINEAR = {"hidden": (), "priors": {"io": 0.7}}


def bow_tie(y=Y, **options):
    return nns.bow_tie(X, y, hidden=(3,), sigma="network", **options)


def bow_tie_of_mixtures(y=Y, **options):
    return bow_tie(y, marginalize_gates=True, **options)


def intermediate_noise(y=Y, **options):
    noise = {"pre": 0.1, "post": 0.2, "output": "network"}
    return nns.intermediate_noise_mlp(X, y, hidden=(3,), noise=noise, **options)


BUILDERS = [bow_tie, bow_tie_of_mixtures, intermediate_noise]


def deviations(point):
    """Standard deviation of each target, and the log density of the network that it is of."""
    [variance] = [point[name] for name in ("eta_sq2", "noise_y") if name in point]
    own = {k.removeprefix("log_noise::"): v for k, v in point.items() if k.startswith("log_n")}
    return variance**0.5 * np.exp(forward(own, X)), prior_logp(own, PRIORS)


@pytest.mark.parametrize("y", [Y[:, 0], Y], ids=["one output", "two"])
@pytest.mark.parametrize("builder", BUILDERS)
def test_density(builder, y):
    """Noise of another output or row, a variance for a deviation, a prior that is another one."""
    model = builder(y, noise_network=NETWORK)
    of_noise = [v for v in model.free_RVs if v.name.startswith("log_noise::")]
    logp = model.compile_fn(
        model.logp([*of_noise, model["y"]], jacobian=False),
        inputs=model.value_vars,
        mode="FAST_COMPILE",
        on_unused_input="ignore",
    )
    names = {value.name: rv.name for rv, value in model.rvs_to_values.items()}
    for seed in range(2):
        point = random_point(model, seed) | {"gamma1": np.ones((7, 3), int)}
        given = {k: point[names[k]] for k in (v.name for v in model.value_vars)}
        given = {k: np.log(v) if k.endswith("_log__") else v for k, v in given.items()}
        hidden = next(point[name] for name in ("a1", "X2") if name in point)
        f = hidden @ point["W2"].T + point["b2"]
        sd, density = deviations(point)
        expected = density + stats.norm.logpdf(y.reshape(f.shape), f, sd).sum()
        np.testing.assert_allclose(logp(given), expected, rtol=1e-10)


def from_the_prior(model):
    drawn = pm.sample_prior_predictive(4, model=model, random_seed=1)
    drawn["posterior"] = drawn["prior"]
    return drawn


def hierarchical(y=Y[:, 0], **options):
    return nns.hierarchical_mlp(X, y, hidden=(3,), sigma="network", **options)


@pytest.mark.parametrize("likelihood", ["normal", "student_t"])
def test_predictions_and_log_likelihood(likelihood):
    """Deviations of other rows or draws, or the level alone."""
    model = hierarchical(likelihood=likelihood)
    idata = from_the_prior(model)
    of_draws = idata["posterior"]
    f, sigma = of_draws["f"].to_numpy(), of_draws["sigma"].to_numpy()
    assert "sigma" not in nns.without_latents(model)
    assert np.ptp(sigma[0, 0]) > 0
    found = nns.predict(idata, X[::-1], model=model, output="sigma", progressbar=False)
    np.testing.assert_allclose(found[..., ::-1, 0], sigma, rtol=1e-10)
    law = stats.norm(f, sigma) if likelihood == "normal" else stats.t(4, f, sigma)
    logs = nns.log_likelihood(idata, model, progressbar=False)["log_likelihood"]["y"]
    np.testing.assert_allclose(logs, law.logpdf(Y[:, 0]), rtol=1e-10)
    drawn = nns.predict(
        of_draws.isel(draw=[0] * 4000),
        X[:2],
        model=model,
        kind="response",
        random_seed=1,
        progressbar=False,
    )
    standard = (drawn[0, :, :, 0].to_numpy() - f[0, 0, :2]) / sigma[0, 0, :2]
    reference = stats.norm if likelihood == "normal" else stats.t(4)
    for column in standard.T:
        assert stats.kstest(column, reference.cdf).pvalue > 1e-6


def test_log_likelihood_with_hidden_noise_integrated_out():
    """Noise of another row beside that of the hidden units."""
    model = nns.intermediate_noise_mlp(
        X,
        Y[:, 0],
        hidden=(2,),
        activation="identity",
        noise={"pre": 0, "post": 0.3, "output": "network"},
        noise_network=NETWORK,
    )
    idata = from_the_prior(model)
    draws = idata["posterior"]
    logs = nns.log_likelihood(idata, model, progressbar=False)["log_likelihood"]["y"]
    for draw in range(4):
        point = {name: draws[name][0, draw].to_numpy() for name in draws.data_vars}
        sd, _ = deviations(point)
        W1, W2 = point["W1"], point["W2"]
        mean = (X @ W1.T + point["b1"]) @ W2.T + point["b2"]
        variance = sd**2 + 0.3 * np.sum(W2**2)
        expected = stats.norm.logpdf(Y[:, :1], mean, np.sqrt(variance))[:, 0]
        np.testing.assert_allclose(logs[0, draw], expected, rtol=1e-8)


@pytest.mark.parametrize("builder", [hierarchical, slow(bow_tie), slow(intermediate_noise)])
def test_laws_are_those_of_the_model(builder):
    """A law given noise of its own row, without that: the level's, those of the mean's weights."""
    rows = nns.verify(builder(), random_seed=1).rows
    assert rows
    assert max(difference for *_, difference in rows) < 1


class InTurn:
    """Steps one after the other."""

    def __init__(self, *steps):
        self.steps = steps

    def setup_chain(self, rng, tune, draws):
        for step, own in zip(self.steps, rng.spawn(len(self.steps)), strict=True):
            step.setup_chain(own, tune, draws)

    def step(self, point):
        for step in self.steps:
            point, _ = step.step(point)
        return point, []


def assert_sweeps_are_valid(model, transitions):
    weights = [model["log_noise::W_io"]]
    others = [rv for rv in model.free_RVs if rv not in weights]
    steps = InTurn(nns.Gibbs(others, model=model), nns.PCN(weights, beta=0.5, model=model))
    assert_joint(steps, model, "targets", transitions=transitions)


@pytest.mark.slow
def test_sweeps_with_gates_leave_the_joint_distribution():
    """Noise of one row for all in a move with activations integrated out, or in the level's law."""
    model = nns.bow_tie(
        X[:3],
        Y[:3, 0],
        hidden=(2, 2),
        temperature=0.3,
        shrinkage=LIGHT["gaussian"],
        bias_var=0.7,
        hidden_alpha=4,
        hidden_beta=0.4,
        noise_alpha=4,
        noise_beta=0.3,
        sigma="network",
        noise_network=LINEAR,
    )
    assert_sweeps_are_valid(model, 5_000)


@pytest.mark.slow
def test_sweeps_of_noisy_layers_leave_the_joint_distribution():
    noise = {"pre": 0.3, "post": nns.Prior(0.5, 8), "output": "network"}
    model = nns.intermediate_noise_mlp(
        X[:3], Y[:3, 0], hidden=(2,), noise=noise, noise_network=LINEAR
    )
    assert_sweeps_are_valid(model, 5_000)


@pytest.mark.slow
def test_recovery_of_the_noise():
    """Noise that varies is found."""
    rate = 1.0
    rng = np.random.default_rng(2)
    x = rng.uniform(-1.7, 1.7, size=(400, 1))
    y = np.sin(2 * x[:, 0]) + 0.3 * np.exp(rate * x[:, 0]) * rng.normal(size=400)
    model = nns.hierarchical_mlp(x, y, hidden=(5,), sigma="network")
    with model:
        idata = pm.sample(
            200,
            tune=200,
            chains=1,
            cores=1,
            random_seed=1,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    at = np.linspace(-1.5, 1.5, 7)[:, None]
    found = nns.predict(idata, at, model=model, output="sigma", progressbar=False)[..., 0]
    log_ratio = np.log(found / (0.3 * np.exp(rate * at[:, 0])))
    assert np.all(abs(log_ratio.mean(("chain", "draw"))) < 0.25)
    assert float(log_ratio.std(("chain", "draw")).max()) < 0.25
