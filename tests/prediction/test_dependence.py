"""Partial dependence against averages in NumPy."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy.special import expit

import pymc_nnsteps as nns
from pymc_nnsteps.prediction import blocks, dependence

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=(9, 2)), np.arange(9) % 3])
W = RNG.normal(size=(2, 50, 3, 2))


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    monkeypatch.setattr(blocks, "c_by_default", lambda: {"mode": "FAST_COMPILE"})


def f(x, w):
    """An interaction: the average over the data is no value at their average."""
    return np.tanh(x[:, :1] * x[:, 1:2] * w[0] + x[:, 1:2] * w[1]) + x[:, 2:] * w[2]


def model_and_draws(features=("a", "b", "output")):
    with pm.Model(coords={"feature": features, "side": ["left", "right"]}) as model:
        x = pm.Data("inputs", X, dims=("obs", "feature"))
        w = pm.Normal("w", dims=("feature", "side"))
        mean = pm.math.tanh(x[:, :1] * x[:, 1:2] * w[0] + x[:, 1:2] * w[1]) + x[:, 2:] * w[2]
        pm.Normal("y", mean, 1, observed=np.zeros((9, 2)))
    return model, xr.Dataset({"w": (("chain", "draw", "feature", "side"), W)})


def averages(positions, places, data=X, w=W):
    """Means over the data, shape (n_draws, n_places, n_outputs)."""
    changed = np.tile(data, (len(places), 1, 1))
    changed[:, :, positions] = places[:, None]
    return np.array([[f(x, each).mean(axis=0) for x in changed] for each in w.reshape((-1, 3, 2))])


@pytest.mark.parametrize("numbers", [2**25, 2000])
@pytest.mark.parametrize("features", ["b", ("b", "output"), [2, 0]])
def test_means_and_bands(features, numbers, monkeypatch):
    """Inputs of many values and of few; one and two; at once and in parts."""
    monkeypatch.setattr(dependence, "NUMBERS", numbers)
    model, draws = model_and_draws()
    found = nns.partial_dependence(draws, features, points=5, prob=0.8, model=model)
    wanted = [features] if isinstance(features, str) else features
    positions = [
        each if isinstance(each, int) else ["a", "b", "output"].index(each) for each in wanted
    ]
    names = [["a", "b", "inputs[output]"][position] for position in positions]
    grids = [
        [0, 1, 2] if position == 2 else np.linspace(X[:, position].min(), X[:, position].max(), 5)
        for position in positions
    ]
    assert found["mean"].dims == (*names, "output")
    places = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1).reshape((-1, len(grids)))
    expected = averages(positions, places)
    shape = (*map(len, grids), 2)
    for name, grid in zip(names, grids, strict=True):
        np.testing.assert_allclose(found[name], grid)
    parts = {
        "mean": expected.mean(axis=0),
        "lower": np.quantile(expected, 0.1, axis=0),
        "upper": np.quantile(expected, 0.9, axis=0),
    }
    for part, values in parts.items():
        np.testing.assert_allclose(found[part], values.reshape(shape), err_msg=part)


def test_some_rows_and_draws():
    """Both evenly spread."""
    model, draws = model_and_draws()
    found = nns.partial_dependence(draws, "a", points=3, rows=3, draws=25, model=model)
    places = np.linspace(X[:, 0].min(), X[:, 0].max(), 3)[:, None]
    spread = np.linspace(0, 49, 12).round().astype(int)
    expected = averages([0], places, X[[0, 4, 8]], W[:, spread]).mean(axis=0)
    np.testing.assert_allclose(found["mean"], expected)


def test_the_data_are_those_that_were_sampled():
    """Also integers, of which the grid is one of integers."""
    given = np.column_stack([np.arange(40), np.arange(40) % 3])
    with pm.Model() as model:
        x, w = pm.Data("inputs", given), pm.Normal("w", shape=2)
        pm.Normal("y", w[0] * x[:, 0] * x[:, 1], 1, observed=np.zeros(40), shape=x.shape[0])
        pm.set_data({"inputs": 7 * given[:5]})
    draws = xr.Dataset({"w": (("chain", "draw", "w_dim_0"), W[:, :4, 0])})
    data = xr.Dataset({"inputs": (("rows", "columns"), given)})
    tree = xr.DataTree.from_dict({"posterior": draws, "constant_data": data})
    found = nns.partial_dependence(tree, 0, points=4, model=model)["mean"]
    np.testing.assert_array_equal(found["inputs[0]"], [0, 13, 26, 39])
    slope = W[:, :4, 0, 0].mean() * given[:, 1].mean()
    np.testing.assert_allclose(found[:, 0], slope * found["inputs[0]"], rtol=1e-12)
    alone = nns.partial_dependence(draws, 0, model=model)["mean"]
    np.testing.assert_array_equal(alone["inputs[0]"], 7 * np.arange(5))
    other = xr.DataTree.from_dict({"posterior": draws, "constant_data": data.isel(columns=[0])})
    with pytest.raises(ValueError, match=r"idata has inputs of shape \(40, 1\), but the model"):
        nns.partial_dependence(other, 0, model=model)


def test_data_are_found_by_their_labels():
    """Columns sorted by name, or axes in another order, as those of the draws may be."""
    model, draws = model_and_draws()
    labels = {"feature": ["a", "b", "output"]}
    data = xr.Dataset({"inputs": (("obs", "feature"), X)}, labels)
    tree = xr.DataTree.from_dict({"posterior": draws, "constant_data": data})
    moved = data.isel(feature=[2, 0, 1]).transpose("feature", "obs")
    other = xr.DataTree.from_dict({"posterior": draws, "constant_data": moved})
    for column in labels["feature"]:
        found = nns.partial_dependence(other, column, points=4, model=model)
        xr.testing.assert_allclose(
            found, nns.partial_dependence(tree, column, points=4, model=model)
        )


def test_probabilities():
    """Each class has the mean of its probability over the rows."""
    with pm.Model() as model:
        x, w = pm.Data("inputs", X), pm.Normal("w", shape=3)
        f = pm.Deterministic("f", x @ w)
        pm.Bernoulli("y", logit_p=f, observed=np.arange(9) % 2)
    draws = xr.Dataset({"w": (("chain", "draw", "w_dim_0"), W[:1, :4, :, 0])})
    found = nns.partial_dependence(draws, 2, kind="probability", model=model)["mean"]
    changed = np.tile(X, (3, 1, 1))
    changed[:, :, 2] = np.arange(3)[:, None]
    expected = expit(changed @ W[0, :4, :, 0].T).mean(axis=(1, 2))
    np.testing.assert_allclose(found[:, 0], expected)


def test_levels_of_categories():
    """All rows have one level after another, beside another input or alone."""
    depots = np.array(["north", "south", "east"])[np.arange(9) % 3]
    table = pd.DataFrame({"depot": depots, "km": X[:, 0]})
    model = nns.intermediate_noise_mlp(table, X[:, 1], hidden=(), noise=0.1)
    axes = {"W1": ("output", "feature"), "b1": ("output",)}
    lengths = {"output": 1, "feature": 4}
    draws = xr.Dataset(
        {
            name: (("chain", "draw", *dims), RNG.normal(size=(1, 3, *map(lengths.get, dims))))
            for name, dims in axes.items()
        }
    )
    for features in ("depot", 1, ("km", "depot")):
        found = nns.partial_dependence(draws, features, points=3, model=model)["mean"]
        assert found["depot"].values.tolist() == ["east", "north", "south"]
        for level in found["depot"].values:
            changed = table.assign(depot=level)
            if "km" in found.dims:
                changed["km"] = float(found["km"][1])
                seen = found.isel(km=1).sel(depot=level)
            else:
                seen = found.sel(depot=level)
            f = nns.predict(draws, changed, model=model).mean(("chain", "draw", "obs"))
            np.testing.assert_allclose(seen, f)
    with pytest.raises(ValueError, match=r"features must be one of the columns \['depot', 'km'\]"):
        nns.partial_dependence(draws, "city", model=model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": "c"}, r"features must be one of the columns \['a', 'b', 'output'\]; got 'c'"),
        ({"features": ("a", 0)}, "features must be a column, or a pair of two"),
        ({"features": ["a", "b", 2]}, "features must be a column, or a pair of two"),
        ({"features": []}, "features must be a column, or a pair of two"),
        ({"features": "a", "points": 0}, "points must be a positive integer; got 0"),
        ({"features": "a", "draws": 1}, "draws must be at least the number of chains, 2; got 1"),
        ({"features": "a", "kind": "class"}, 'kind must be one of "function", .* got .class'),
        ({"features": "a", "prob": 1.0}, "prob must be a positive number below 1; got 1.0"),
        ({"features": "a", "inputs": "X"}, "inputs must name the pm.Data container"),
    ],
)
def test_bad_input(arguments, message):
    model, draws = model_and_draws()
    with pytest.raises(ValueError, match=message):
        nns.partial_dependence(draws, **arguments, model=model)
