"""The score of exact draws has mean zero, and that of others has not."""

import arviz as az
import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest
import xarray as xr

import pymc_nnsteps as nns
from tests.diagnostics.networks import NETWORKS, prior
from tests.statistics import Z_LIMIT

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 3)), RNG.normal(size=20)
PRECISION = X.T @ X / 0.25 + np.eye(3)
MEAN = np.linalg.solve(PRECISION, X.T @ Y / 0.25)


def regression():
    with pm.Model() as model:
        w = pm.Normal("w", shape=3)
        pm.Normal("y", X @ w, 0.5, observed=Y)
    return model


def exact_draws(shift=0.0, shape=(2, 500)):
    """Draws of the posterior, moved by ``shift`` standard deviations."""
    root = np.linalg.cholesky(np.linalg.inv(PRECISION))
    w = MEAN + (np.random.default_rng(1).normal(size=(*shape, 3)) + shift) @ root.T
    return xr.Dataset({"w": (("chain", "draw", "w_dim_0"), w)})


def test_is_the_gradient_averaged_over_entries():
    draws = exact_draws(shape=(2, 20))
    score = nns.lab.score_statistic(draws, "w", model=regression(), scale=0.25)
    expected = -0.25 * ((draws["w"].values - MEAN) @ PRECISION).mean(-1)
    np.testing.assert_allclose(score.draws["w"], expected, rtol=1e-8, atol=1e-8)
    mean, error = expected.mean(), az.mcse(score.draws)["w"].item()
    np.testing.assert_allclose(score.table.loc["w"], [mean, error, mean / error], rtol=1e-6)


def test_tells_exact_draws_from_biased_ones():
    """A shift by a third of a standard deviation, in a thousand draws."""
    model = regression()
    assert abs(nns.lab.score_statistic(exact_draws(), model=model).table["z"].item()) < Z_LIMIT
    biased = nns.lab.score_statistic(exact_draws(shift=0.3), model=model)
    assert abs(biased.table["z"].item()) > 2 * Z_LIMIT


def bounded():
    """Variables whose density does not vanish at a bound, or whose bounds vary."""
    with pm.Model() as model:
        pm.Exponential("exponential", 1)
        pm.HalfNormal("half", shape=2)
        b = pm.Gamma("b", 2, 1)
        pm.Uniform("uniform", -b, 3 * b)
        pm.Dirichlet("dirichlet", np.array([1.0, 2.0, 0.7]))
        pm.Normal("ordered", [0, 1], 1, transform=pm.distributions.transforms.ordered)
    return model


def test_transformed_variables():
    """With respect to values on the variables' own scale the means are not zero."""
    model = bounded()
    draws = prior(model, 2, 150).drop_vars("ordered")
    names = [name for name in draws if name in model.named_vars]
    score = nns.lab.score_statistic(draws, names, model=model)
    assert (score.table["z"].abs() < Z_LIMIT).all()
    # p(v) = exp(v - exp(v)) for the logarithm v of an exponential variable
    np.testing.assert_allclose(score.draws["exponential"], 1 - draws["exponential"], atol=1e-10)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name):
    """All continuous variables, latent layers and scales included; gates have no score."""
    model = NETWORKS[name]()
    draws = prior(model, 1, 5)
    table = nns.lab.score_statistic(draws, model=model).table
    discrete = {model.values_to_rvs[value] for value in model.discrete_value_vars}
    assert list(table.index) == [rv.name for rv in model.free_RVs if rv not in discrete]
    assert np.isfinite(table).all(axis=None)
    assert list(table.columns) == ["mean", "mcse", "z"]


def test_latent_layer_of_exact_draws():
    """Pre-activations under ReLU, whose density has kinks and no jumps."""
    with pm.Model() as model:
        W = pm.Normal("W", shape=(2, 3))
        Z = pm.Normal("Z", RNG.normal(size=(4, 2)) @ W, 0.3)
        v = pm.Normal("v", shape=3)
        pm.Normal("y", pm.math.maximum(Z, 0) @ v, 0.3)
    score = nns.lab.score_statistic(prior(model, 2, 500), model=model)
    assert (score.table["z"].abs() < Z_LIMIT).all()
    assert list(score.table.index) == ["W", "Z", "v", "y"]


def test_named_dimensions():
    with pm.Model(coords={"unit": range(3)}) as model:
        s = pmd.HalfNormal("s")
        pmd.Normal("w", 0, s, dims="unit")
    score = nns.lab.score_statistic(prior(model, 2, 100), model=model)
    assert (score.table["z"].abs() < Z_LIMIT).all()


def test_variables_in_any_form_and_context():
    model = regression()
    draws = exact_draws(shape=(2, 20))
    with model:
        by_variable = nns.lab.score_statistic(draws, model["w"])
        by_list = nns.lab.score_statistic(xr.DataTree.from_dict({"posterior": draws}), ["w"])
    assert str(by_variable) == str(by_list) == repr(by_list)
    assert "<table" in by_list._repr_html_()


def test_bad_input():
    with pm.Model() as model:
        m = pm.Normal("m")
        k = pm.Poisson("k", 3)
        s = pm.HalfNormal("s")
        pm.Normal("y", m + k, s, observed=1.0)
    draws = prior(model, 2, 10)
    for vars, message in {
        "w": r"vars must be free variables of the model \(m, k, s\); got 'w'",
        "y": "vars must be free variables .* y is observed",
        "k": "vars must be continuous; k is discrete and has no score",
    }.items():
        with pytest.raises(ValueError, match=message):
            nns.lab.score_statistic(draws, vars, model=model)
    for given, message in {
        "idata lacks k; store what is needed": draws.drop_vars("k"),
        "idata must have at least 4 draws in each chain; it has 3": draws.isel(draw=slice(3)),
        "m is infinite or NaN at 1 draws of idata": draws.assign(
            s=draws["s"].where((draws["draw"] > 0) | (draws["chain"] > 0), 0.0)
        ),
        "idata has no posterior": xr.Dataset(),
    }.items():
        with pytest.raises(ValueError, match=given):
            nns.lab.score_statistic(message, "m", model=model)
    with pytest.raises(ValueError, match="scale must be a positive number"):
        nns.lab.score_statistic(draws, "m", model=model, scale=0)
