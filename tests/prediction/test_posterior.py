"""Draws are found by the names of dimensions and labels, not by positions."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_nnsteps as nns
from pymc_nnsteps.prediction import blocks
from tests.diagnostics.networks import NETWORKS, Y, prior
from tests.diagnostics.networks import X as X_SEEN

RNG = np.random.default_rng(0)
X, X_NEW = RNG.normal(size=(6, 3)), RNG.normal(size=(4, 3))
UNITS = ["u", "v", "w"]


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    monkeypatch.setattr(blocks, "c_by_default", lambda: {"mode": "FAST_COMPILE"})


def with_dims(coords):
    with pm.Model(coords=coords) as model:
        x = pm.Data("inputs", X, dims=("obs", "feature"))
        W = pm.Normal("W", dims=("feature", "unit"))
        v = pm.Normal("v", dims="unit")
        pm.Normal("y", pm.math.tanh(x @ W) @ v, 1, observed=X[:, 0], dims="obs")
    return model


def without_dims():
    with pm.Model() as model:
        x = pm.Data("inputs", X)
        W, v = pm.Normal("W", shape=(3, 3)), pm.Normal("v", shape=3)
        pm.Normal("y", pm.math.tanh(x @ W) @ v, 1, observed=X[:, 0])
    return model


MODELS = {
    "labels": lambda: with_dims({"feature": list("abc"), "unit": UNITS}),
    "numbers": lambda: with_dims({"feature": list("abc"), "unit": [30, 10, 20]}),
    "no labels of units": lambda: with_dims({"feature": list("abc"), "unit": range(3)}),
    "no labels of inputs": lambda: with_dims({"unit": UNITS}),
    "no dims": without_dims,
}


def sampled(model):
    """As stored by ``pm.sample``: a square matrix, a vector, their dimensions and labels."""
    with model:
        prior = pm.sample_prior_predictive(5, var_names=["W", "v"], random_seed=1)
    return prior["prior"].to_dataset()


def expected(draws):
    hidden = np.tanh(X_NEW @ draws["W"].values)
    return np.einsum("cdnu,cdu->cdn", hidden, draws["v"].values)


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_axes_and_entries_in_any_order(build):
    """Transposed or permuted, a square matrix has the same shape and other entries."""
    model = build()
    draws = sampled(model)
    first, second = draws["W"].dims[2:]
    turned = draws["W"].transpose(second, "draw", first, "chain")
    changed = {
        "as stored": draws,
        "turned": draws.assign(W=turned),
        "permuted": draws.isel({first: [2, 0, 1]}).isel({second: [1, 2, 0]}),
        "both": draws.assign(W=turned).isel({first: [1, 0, 2], second: [2, 1, 0]}),
    }
    for how, given in changed.items():
        f = nns.predict(given, X_NEW, model=model)
        np.testing.assert_allclose(f[..., 0], expected(draws), rtol=1e-10, err_msg=how)


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("axis", [0, 1])
def test_entries_that_are_not_those_of_the_model(build, axis):
    model = build()
    draws = sampled(model)
    dim = draws["W"].dims[2 + axis]
    others = {
        "missing": draws.isel({dim: [0, 2]}),
        "renamed": draws.assign_coords({dim: ["p", "q", "r"]}),
        "one renamed": draws.assign_coords({dim: [*draws[dim].values[:2], 99]}),
        "twice": draws.isel({dim: [0, 1, 1]}),
    }
    for how, given in others.items():
        with pytest.raises(ValueError, match=rf"idata has [Wv] (with other labels of {dim}|of sh)"):
            print(how, nns.predict(given, X_NEW, model=model))


def test_chains_of_different_lengths():
    """xarray fills the shorter with NaN, of which comparisons and argmax make classes."""
    model = MODELS["labels"]()
    draws = sampled(model)
    shorter = draws.isel(draw=slice(2)).assign_coords(chain=draws["chain"] + 9)
    merged = xr.concat([draws, shorter], "chain", join="outer")
    n_wrong = shorter.sizes["chain"] * (draws.sizes["draw"] - 2)
    with pytest.raises(ValueError, match=rf"idata has NaN in [Wv] at {n_wrong} draws; leave"):
        nns.predict(merged, X_NEW, model=model, kind="response")


def test_dimensions_of_another_model():
    model = MODELS["labels"]()
    draws = sampled(model)
    other = draws.assign(W=draws["W"].rename(unit="hidden2"))
    with pytest.raises(
        ValueError,
        match=r"idata has W with the dimensions \['feature', 'hidden2'\], .* \['feature', 'unit'\]",
    ):
        nns.predict(other, X_NEW, model=model)


def test_a_network_of_other_features():
    table = xr.DataArray(X, dims=("obs", "feature"), coords={"feature": list("abc")})
    model = nns.intermediate_noise_mlp(table, X[:, 0], hidden=(3,))
    other = nns.intermediate_noise_mlp(
        table.assign_coords(feature=list("abd")), X[:, 0], hidden=(3,)
    )
    with other:
        names = ["W1", "b1", "W2", "b2"]
        draws = pm.sample_prior_predictive(2, var_names=names, random_seed=1)["prior"].to_dataset()
    nns.predict(draws, X_NEW, model=other)
    with pytest.raises(ValueError, match=r"idata has W1 with other labels of feature than the mod"):
        nns.predict(draws, X_NEW, model=model)


READERS = {
    "diagnose": lambda draws: nns.diagnose(draws, X_SEEN),
    "log_likelihood": nns.log_likelihood,
    "partial_dependence": lambda draws: nns.partial_dependence(draws, 0),
    "plot_calibration": lambda draws: nns.plot_calibration(draws, X_SEEN, Y, backend="none"),
    "plot_functions": lambda draws: nns.plot_functions(draws, X_SEEN, backend="none"),
    "plot_predictions": lambda draws: nns.plot_predictions(draws, backend="none"),
    "relevance": nns.relevance,
    "rhat_over_time": lambda draws: nns.lab.rhat_over_time(draws, X_SEEN),
    "score_statistic": nns.lab.score_statistic,
}


def test_readers_of_a_posterior_without_draws():
    with NETWORKS["bow_tie"]() as model:
        some = prior(model, 2, 3)
        for read in READERS.values():
            for none, counts in (({"draw": []}, "2 chains of 0"), ({"chain": []}, "0 chains of 3")):
                with pytest.raises(ValueError, match=f"idata has no draws: .* has {counts}; pass"):
                    read(some.isel(none))
