"""The whitened posterior of a wide network, by the steps that are recommended for it."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.network import network
from tests.statistics import Z_LIMIT, assert_moments, batch_means_z_scores

RNG = np.random.default_rng(5)
X = RNG.normal(size=(10, 2))
NOISE = 0.4
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2 - 1]) + NOISE * RNG.normal(size=(10, 2))
SETTING = {"hidden": (6,), "activation": "tanh", "sigma": NOISE, "bias_var": 0.5}
HIDDEN = ["W1", "b1"]


def functions(model, draws, step=None):
    """Function values of a chain; by NUTS unless a step is given."""
    idata = pm.sample(
        draws,
        tune=1000,
        chains=1,
        step=step,
        model=model,
        var_names=["f"],
        random_seed=0,
        progressbar=False,
        quiet=True,
        compute_convergence_checks=False,
    )
    return idata["posterior"]["f"].values[0].reshape(draws, -1)


def moments_and_errors(draws):
    moments = np.column_stack([draws, draws**2])
    shifted = moments - 99.0
    return moments.mean(0), shifted.mean(0) / batch_means_z_scores(shifted)


@pytest.mark.release
def test_whitened_posterior_is_the_plain_one():
    """A determinant, a root of the wrong covariance, or a readout that is not drawn afresh."""
    plain = nns.wide_mlp(X, Y, **SETTING, reparametrize=False)
    expected, expected_error = moments_and_errors(functions(plain, 5_000))
    model = nns.wide_mlp(X, Y, **SETTING)
    step = [nns.PCNL(HIDDEN, steps=10, model=model), nns.Gibbs(["phi"], model=model)]
    mean, error = moments_and_errors(functions(model, 10_000, step))
    z = (mean - expected) / np.hypot(error, expected_error)
    assert np.all(np.abs(z) < Z_LIMIT), z


def test_phi_is_drawn_afresh():
    """A readout that stays from draw to draw, or that feels the likelihood."""
    with nns.wide_mlp(X, Y, **SETTING) as model:
        idata = pm.sample(
            2000,
            tune=100,
            chains=1,
            step=[nns.PCN(HIDDEN), nns.Gibbs([model["phi"]])],
            random_seed=0,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    phi = idata["posterior"]["phi"].values[0].reshape(2000, -1)
    assert_moments(phi, 0.0, 1.0)
    assert_moments(phi[1:] * phi[:-1], 0.0, 1.0)
    stats = idata["sample_stats"]
    assert {"acceptance_probability", "proposal_size", "log_likelihood"} <= set(stats.data_vars)
    f = nns.predict(idata, X, model=model)
    np.testing.assert_allclose(f.values, idata["posterior"]["f"].values, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_plain_sampling_of_a_wide_network_is_exact(monkeypatch):
    """A ratio of PCNL without one of its terms, or a readout that is not drawn from its prior."""
    monkeypatch.setattr(network, "WIDE", 4)
    model = nns.wide_mlp(X, Y, **SETTING)
    assert {step for _, step, _ in nns.explain(model).beside} == {"PCNL"}
    nns.verify(model, sweeps=4000, random_seed=1)


def test_the_step_size_of_plain_sampling_is_tuned():
    """A step of PCNL that begins and stays at one size."""
    with nns.wide_mlp(X, Y, **SETTING | {"hidden": (256,)}):
        idata = pm.sample(
            200,
            tune=300,
            chains=1,
            random_seed=0,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    stats = idata["sample_stats"]
    assert np.ptp(stats["proposal_size"].values) == 0
    assert stats["proposal_size"].values[0, 0] > 0.2
    assert abs(stats["acceptance_probability"].values.mean() - 0.574) < 0.2
