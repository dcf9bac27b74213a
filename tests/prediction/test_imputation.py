"""Missing inputs: the law given the rest of a row, and likelihoods without them."""

import itertools

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import stats

import pymc_nnsteps as nns
from pymc_nnsteps.prediction.imputation import imputation_of
from tests.prediction.draws import made_up

RNG = np.random.default_rng(0)


def holed(n=12, gaps=(0, 2, 3), n_features=5):
    """Inputs with gaps in some columns, in some of them more than in others."""
    X = RNG.normal(size=(n, n_features))
    for k, column in enumerate(gaps):
        X[: 2 + k, column] = np.nan
    return X


@pytest.fixture(scope="module")
def linear_model():
    """A regression on five columns, three of them with gaps, the response of which is Gaussian."""
    X = holed()
    with pm.Model() as model:
        x = nns.blocks.table(X, missing="impute")
        w = pm.Normal("w", shape=5)
        pm.Normal("y", pm.Deterministic("f", x @ w), 0.5, observed=RNG.normal(size=len(X)))
    return model


@pytest.fixture(scope="module")
def posterior(linear_model):
    """Two draws of all parameters."""
    return made_up(linear_model)


def values(posterior, draw):
    """Values of the parameters at a draw."""
    return {str(name): each.values[0, draw] for name, each in posterior.items()}


def joint_law(point):
    """Mean and covariance of the columns with gaps, as functions of columns 1 and 4."""
    order, others = [0, 2, 3], [1, 4]
    slopes, intercepts, to_others = np.zeros((3, 3)), np.zeros(3), np.zeros((3, 2))
    scales = np.array([point[f"inputs::{j}_sigma"] for j in order])
    for k, j in enumerate(order):
        weights = point[f"inputs::{j}_weights"]
        intercepts[k] = weights[0]
        for column, slope in zip(sorted([*others, *order[:k]]), weights[1:], strict=True):
            if column in others:
                to_others[k, others.index(column)] = slope
            else:
                slopes[k, order.index(column)] = slope
    inverse = np.linalg.inv(np.eye(3) - slopes)
    covariance = inverse @ np.diag(scales**2) @ inverse.T
    return lambda known: (inverse @ (intercepts + to_others @ known), covariance)


def given_rest(point, row):
    """Mean and covariance of a row's missing entries, and their columns."""
    mean, covariance = joint_law(point)(row[[1, 4]])
    columns = np.array([0, 2, 3])
    gone = np.isnan(row[columns])
    gain = covariance[np.ix_(gone, ~gone)] @ np.linalg.inv(covariance[np.ix_(~gone, ~gone)])
    conditional = mean[gone] + gain @ (row[columns[~gone]] - mean[~gone])
    return (
        conditional,
        covariance[np.ix_(gone, gone)] - gain @ covariance[~gone][:, gone],
        columns[gone],
    )


def test_missing_entries_have_the_law_of_a_gaussian_given_the_rest(linear_model, posterior):
    """For each pattern of gaps; would catch a gain of the wrong column, or one not updated."""
    container, point = linear_model["inputs"], values(posterior, 0)
    found = imputation_of(linear_model, container)
    [completed] = {*found.made.values()}
    rows = container.type("rows")
    weights = {rv: rv.type() for rv in linear_model.free_RVs}
    [graph] = pytensor.graph.clone_replace([completed], {container: rows, **weights})
    function = pytensor.function(
        [rows, found.noise, *weights.values()],
        graph,
        mode="FAST_COMPILE",
        on_unused_input="ignore",
    )
    at = [point[rv.name] for rv in weights]
    for gaps in itertools.product([False, True], repeat=3):
        row = RNG.normal(size=5)
        row[[0, 2, 3]] = np.where(gaps, np.nan, row[[0, 2, 3]])
        mean, covariance, columns = given_rest(point, row)
        drawn = function(np.tile(row, (4, 1)), np.vstack([np.zeros(3), np.eye(3)]), *at)
        slopes = (drawn[1:] - drawn[0])[:, columns].T
        np.testing.assert_allclose(drawn[0, columns], mean, rtol=1e-10)
        np.testing.assert_allclose(slopes @ slopes.T, covariance, rtol=1e-9, atol=1e-12)
        known = ~np.isnan(row)
        assert (drawn[:, known] == row[known]).all()


def test_likelihood_of_a_row_has_its_missing_inputs_integrated_out(linear_model, posterior):
    """As of a Gaussian; would catch the law of inputs counted as a response, or drawn entries."""
    found = nns.log_likelihood(posterior, linear_model, noise_draws=2000, random_seed=0)
    assert list(found["log_likelihood"]) == ["y"]
    X = np.where(imputation_of(linear_model, linear_model["inputs"]).missing, np.nan, 0)
    X += linear_model["inputs"].get_value()
    y = linear_model.rvs_to_values[linear_model["y"]].eval()
    for draw in range(2):
        point = values(posterior, draw)
        for number, row in enumerate(X):
            mean, covariance, columns = given_rest(point, row)
            w = point["w"][columns]
            centre = np.nansum(row * point["w"]) + w @ mean
            wanted = stats.norm.logpdf(y[number], centre, np.sqrt(0.25 + w @ covariance @ w))
            got, error = (
                found[group]["y"].values[0, draw, number]
                for group in ("log_likelihood", "log_likelihood_error")
            )
            assert error < (0.03 if len(columns) else 1e-12)
            assert abs(got - wanted) <= 4 * error + 1e-9


def test_predictions_of_rows_with_gaps(linear_model, posterior):
    """Complete rows as ever; the spread of others is that of what is missing."""
    many = posterior.isel(draw=np.zeros(4000, dtype=int)).assign_coords(draw=np.arange(4000))
    point, X = values(posterior, 0), RNG.normal(size=(3, 5))
    X[1, 2] = X[2, 0] = X[2, 3] = np.nan
    for kind, own in (("function", 0), ("response", 0.25)):
        f = nns.predict(many, X, model=linear_model, kind=kind, random_seed=1, progressbar=False)
        for number, row in enumerate(X):
            mean, covariance, columns = given_rest(point, row)
            w = point["w"][columns]
            variance = own + w @ covariance @ w
            centre = np.nansum(row * point["w"]) + w @ mean
            drawn = f.values[0, :, number, 0]
            assert abs(drawn.mean() - centre) <= 4 * np.sqrt(variance / 4000) + 1e-12
            assert drawn.var() == pytest.approx(variance, rel=4 * np.sqrt(2 / 4000), abs=1e-12)


def test_entries_of_two_tables():
    """As of a Gaussian; would catch gaps of the second filled, or integrated out twice."""
    n, known, y = 12, RNG.normal(size=(4, 2)), RNG.normal(size=12)
    first, second = holed(n, (0,), 2), holed(n, (1,), 2)[::-1]
    v = np.array([0.5, -1.0, 0.7, 0.4])
    with pm.Model() as model:
        x = nns.blocks.table(first, missing="impute", name="first")
        z = nns.blocks.table(second, missing="impute", name="second", dims=("obs", "other"))
        pm.Normal("y", pm.Deterministic("f", x @ v[:2] + z @ v[2:]), 0.5, observed=y)
    posterior = made_up(model).isel(draw=np.zeros(4000, dtype=int))
    posterior = posterior.assign_coords(draw=np.arange(4000))
    point = values(posterior, 0)

    def moments(a, b):
        """Mean and variance of f; the column with gaps is the first of a, the second of b."""
        of_a, of_b = point["first::0_weights"], point["second::1_weights"]
        gone_a, gone_b = np.isnan(a[:, 0]), np.isnan(b[:, 1])
        mean = np.where(gone_a, of_a[0] + of_a[1] * a[:, 1], a[:, 0]) * v[0] + a[:, 1] * v[1]
        mean += np.where(gone_b, of_b[0] + of_b[1] * b[:, 0], b[:, 1]) * v[3] + b[:, 0] * v[2]
        scales = v[[0, 3]] * [point["first::0_sigma"], point["second::1_sigma"]]
        return mean, np.stack([gone_a, gone_b], axis=1) @ scales**2

    settings = {"model": model, "inputs": "first", "progressbar": False}
    found = nns.log_likelihood(
        posterior.isel(draw=[0]), noise_draws=2000, random_seed=0, **settings
    )
    got, errors = (found[g]["y"].values[0, 0] for g in ("log_likelihood", "log_likelihood_error"))
    mean, variance = moments(first, second)
    wanted = stats.norm.logpdf(y, mean, np.sqrt(0.25 + variance))
    assert (np.abs(got - wanted) < 4 * errors + 1e-9).all()
    assert ((errors > 0) == (variance > 0)).all()
    new = {"first": known.copy(), "second": known.copy()}
    new["first"][:2, 0] = new["second"][1:3, 1] = np.nan
    for rows in (new, {"first": first}):
        f = nns.predict(posterior, rows, random_seed=1, **settings).values[0, ..., 0]
        mean, variance = moments(rows["first"], rows.get("second", second))
        assert (np.abs(f.mean(axis=0) - mean) <= 4 * np.sqrt(variance / 4000) + 1e-12).all()
        np.testing.assert_allclose(f.var(axis=0), variance, rtol=4 * np.sqrt(2 / 4000), atol=1e-12)


@pytest.mark.parametrize("n", [12, 7])
def test_held_out_rows_have_gaps_of_their_own(n):
    """Would catch entries of other rows integrated out where the model's own rows have gaps."""
    X, y = RNG.normal(size=(n, 5)), RNG.poisson(2, size=n)
    own, exposure = holed(), RNG.uniform(1, 2, size=n)
    model = nns.hierarchical_mlp(
        own, np.arange(12) % 3, hidden=(2,), likelihood="poisson", exposure=np.ones(12),
        missing="impute", standardize=True,
    )  # fmt: skip
    posterior = made_up(model, scale=0.3)
    nns.predict(posterior, own, model=model, kind="response")  # rows of its own have an exposure
    X[1, 2] = np.nan
    rows = {"inputs": X, "exposure": exposure}
    with model:
        pm.set_data(nns.prediction.encode(rows) | {"targets": y})
    found = nns.log_likelihood(posterior, model, progressbar=False)
    f = nns.predict(posterior, rows, model=model, progressbar=False).values[..., 0]
    is_whole = np.arange(n) != 1
    wanted = stats.poisson.logpmf(y, exposure * np.exp(f))[..., is_whole]
    np.testing.assert_allclose(found["log_likelihood"]["y"].values[..., is_whole], wanted)
    errors = found["log_likelihood_error"]["y"].values
    assert (errors[..., ~is_whole] > 0).all()
    assert (errors[..., is_whole] == 0).all()


def test_rows_where_every_column_has_gaps():
    """Would catch an empty matrix of columns without any."""
    X = holed(gaps=range(5))
    model = nns.hierarchical_mlp(X, np.arange(12.0) % 2, hidden=(2,), missing="impute")
    assert np.isfinite(nns.predict(made_up(model), X, model=model, progressbar=False)).all()


def test_columns_without_a_law_take_no_gaps(linear_model, posterior):
    X = RNG.normal(size=(2, 5))
    X[1, 4] = np.nan
    with pytest.raises(ValueError, match=r"X_new\[1, 4\]; only columns with missing entries"):
        nns.predict(posterior, X, model=linear_model)


def test_laws_that_are_not_gaussian_are_declined():
    X = holed(gaps=(0,), n_features=2)
    rows = [0, 1]
    with pm.Model() as model:
        inputs = pm.Data("inputs", np.nan_to_num(X))
        missing = pm.StudentT("missing", 4, mu=inputs[:, 1][rows], sigma=1)
        x = pt.set_subtensor(inputs[rows, 0], missing)
        pm.Normal("y", pm.Deterministic("f", x.sum(axis=1)), 1, observed=np.zeros(12))
    with pytest.raises(ValueError, match="missing entries of inputs: missing is not Normal"):
        nns.predict(made_up(model), X[:3], model=model)


def test_missing_levels_have_their_shares():
    """Mixtures over levels, by hand; would catch levels of other rows, or those cumulated wrongly.

    Likelihoods by importance weights of a law with jumps, and predictions by their moments.
    """
    X = pd.DataFrame({"depot": [*"abcabc", None, None], "new": [True, False] * 4, "km": range(8)})
    X["new"] = X["new"].where(X.index != 7).astype(object)
    w, y = np.array([1.0, -0.5, 0.36, 0.8, 0.1]), RNG.normal(size=8)
    with pm.Model() as model:
        x = nns.blocks.table(X, missing="impute")
        pm.Normal("y", pm.Deterministic("f", x @ w), 0.5, observed=y)
    shares, new = np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.4])
    draws = np.arange(20000)
    coords = {"chain": [0], "draw": draws}

    def repeated(p, dim="level"):
        return ("chain", "draw", dim), np.tile(p, (1, len(draws), 1))

    posterior = xr.Dataset({"inputs::depot_shares": repeated(shares)}, coords)
    posterior["inputs::new_shares"] = repeated(new, "two")
    at_6, at_7 = w[:3] + 1.4, w[:3, None] + [0.7, 1.5]
    found = nns.predict(posterior, X[6:], model=model, random_seed=1, progressbar=False)
    for row, (f, p) in enumerate([(at_6, shares), (at_7, shares[:, None] * new)]):
        drawn = found.values[0, :, row, 0]
        for value, probability in zip(f.ravel(), p.ravel(), strict=True):
            error = np.sqrt(probability * (1 - probability) / len(draws))
            assert abs(np.isclose(drawn, value).mean() - probability) < 4 * error
    log = nns.log_likelihood(
        posterior.isel(draw=[0]), model, noise_draws=20000, random_seed=0, progressbar=False
    )
    got, errors = (log[name]["y"].values[0, 0] for name in log.children if name != "posterior")
    known = nns.prediction.encode(X[:6], model=model)["inputs"] @ w
    np.testing.assert_allclose(got[:6], stats.norm.logpdf(y[:6], known, 0.5))
    wanted = [
        np.log((shares * stats.norm.pdf(y[6], at_6, 0.5)).sum()),
        np.log((shares[:, None] * new * stats.norm.pdf(y[7], at_7, 0.5)).sum()),
    ]
    assert (errors[6:] < 0.03).all()
    assert (np.abs(got[6:] - wanted) < 4 * errors[6:]).all()


def test_levels_under_a_potential_are_declined():
    """Shares that are not the levels' probabilities, as other factors bear on them."""
    X = pd.DataFrame({"depot": [*"abcabc", None]})
    with pm.Model() as model:
        x = nns.blocks.table(X, missing="impute")
        pm.Normal("y", pm.Deterministic("f", x.sum(axis=1)), 1, observed=np.zeros(7))
        pm.Potential("likely", model["inputs::depot_missing"].sum() * 1.0)
    with pytest.raises(ValueError, match="depot_missing is not Categorical, or a potential"):
        nns.predict(made_up(model), X, model=model)
