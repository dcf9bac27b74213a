"""What has an entry for each row is not stored, and nothing that is needed is left out."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns

RNG = np.random.default_rng(0)
N_OBS = 12
X, GROUP, Y = RNG.normal(size=(N_OBS, 3)), np.arange(N_OBS) % 4, RNG.normal(size=N_OBS)
MISSING = np.where(GROUP == 1, np.nan, Y)


def by_hand(data=pm.Data, width=5):
    """A model with other groups, groups as many as rows, and levels that are explained."""
    with pm.Model() as model:
        x, group = data("x", X), data("group", GROUP)
        W, v = pm.Normal("W", shape=(3, width)), pm.Normal("v", shape=width)
        a = pm.Normal("a", data("level", np.arange(4.0)), 1)
        e = pm.Normal("e", 0, pm.HalfNormal("scale"), shape=N_OBS)
        z = pm.Normal("z", x @ W + a[group][:, None], 0.1)
        pm.Deterministic("f", abs(z) @ v)
        pm.Normal("y", abs(z) @ v + e[group], 1, observed=Y)
    return model


def as_long_by_chance(data=pm.Data):
    """Groups, inputs and units are as many as rows, and priors state a number for each."""
    with pm.Model() as model:
        x, group = data("x", np.resize(X, (N_OBS, N_OBS))), data("group", GROUP)
        a = pm.Normal("a", data("level", np.arange(float(N_OBS))), 1)
        W = pm.Normal("W", 0, 1 / abs(x).max(axis=0)[:, None], shape=(N_OBS, N_OBS))
        v = pm.Normal("v", 0, data("scale", np.ones(N_OBS)))
        e = pm.Normal("e", shape=N_OBS)
        z = pm.Normal("z", x @ W + a[group][:, None], 0.1, shape=(N_OBS, N_OBS))
        u = pm.StudentT("u", 4, pm.math.tanh(z) @ v + e, sigma=1, shape=N_OBS)
        pm.Deterministic("level of a", a - a.mean())
        pm.Deterministic("f", 2 * u)
        pm.Normal("y", u + e, 1, observed=Y)
    return model


CASES = {
    "network": (lambda: nns.intermediate_noise_mlp(X, Y, hidden=(2, 2)), "Z2 X2 Z3 X3"),
    "as wide as rows": (lambda: nns.intermediate_noise_mlp(X, Y, hidden=(N_OBS,)), "Z2 X2"),
    "without noise": (
        lambda: nns.intermediate_noise_mlp(
            X, Y, hidden=(2,), noise={"pre": 0, "post": 0, "output": 1}
        ),
        "Z2 X2",
    ),
    "classes": (
        lambda: nns.intermediate_noise_mlp(X, Y > 0, hidden=(2,), likelihood="probit"),
        "Z2 X2 Z3",
    ),
    "images": (
        lambda: nns.intermediate_noise_cnn(
            X.repeat(3, axis=1).reshape((-1, 3, 3)), Y, convolutions=[nns.models.Conv2D(2, 2)]
        ),
        "Z2 X2",
    ),
    "missing targets": (
        lambda: nns.intermediate_noise_mlp(X, MISSING, hidden=(2,)),
        "Z2 X2 y",
    ),
    "gates": (lambda: nns.bow_tie(X, Y, hidden=(2,)), "gamma1 a1"),
    "hierarchical": (lambda: nns.hierarchical_mlp(X, Y, hidden=(2,)), "f"),
    "wide": (lambda: nns.wide_mlp(X, Y, hidden=(20,)), "f"),
    "by hand": (by_hand, "z f"),
    "constants": (lambda: by_hand(lambda name, values: values), "z f"),
    "as long by chance": (as_long_by_chance, "z u f"),
    "constants as long": (lambda: as_long_by_chance(lambda name, values: values), "z u f"),
}


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize(("build", "latent"), CASES.values(), ids=CASES)
def test_names(build, latent):
    model = build()
    names = [variable.name for variable in model.unobserved_RVs]
    left_out = [name for name in names if name not in nns.without_latents(model)]
    assert sorted(left_out) == sorted(latent.split())


@pytest.mark.slow
def test_new_rows_without_latents():
    """predict, log_likelihood and PyMC agree on the law of the responses."""
    with pm.Model() as model:
        x, group = pm.Data("inputs", X), pm.Data("group", GROUP)
        a = pm.Normal("a", 0, 1, shape=4)
        f = nns.blocks.intermediate_noise(x, hidden=(3,), noise=0.3)
        pm.Normal("y", a[group] + f, 0.2, observed=Y, shape=f.shape)
        idata = pm.sample(
            draws=500,
            tune=20,
            chains=1,
            random_seed=1,
            progressbar=False,
            quiet=True,
            var_names=nns.without_latents(),
        )
        assert set(idata["posterior"].data_vars) == {"a", "f::W1", "f::b1", "f::W2", "f::b2"}
        new = {"inputs": 2 * X[:5], "group": np.array([3, 3, 0, 1, 2])}
        rows = nns.log_likelihood(idata, progressbar=False, num_samples=20)
        assert rows["log_likelihood"]["y"].shape == (1, 20, N_OBS)
        pm.set_data(new)
        theirs = pm.sample_posterior_predictive(
            idata, predictions=True, random_seed=2, progressbar=False
        )["predictions"]["y"]
    ours = nns.predict(idata, new, model=model, kind="response", random_seed=3)[..., 0]
    assert theirs.shape == ours.shape == (1, 500, 5)
    differences = theirs.values - ours.values
    error = differences.std(axis=(0, 1)) / 500**0.5
    assert np.abs(differences.mean(axis=(0, 1)) / error).max() < 4
    ratio = theirs.values.std(axis=(0, 1)) / ours.values.std(axis=(0, 1))
    assert np.abs(np.log(ratio)).max() < 0.2
