"""Diagnostics of a network beside effects of groups: of the mean, and of the network."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_nnsteps as nns

RNG = np.random.default_rng(0)
X, GROUP = RNG.normal(size=(9, 2)), np.array([0, 2, 1, 1, 2, 0, 1, 1, 2])
Y = RNG.normal(size=9)
DRAWS = {"a": RNG.normal(size=(2, 20, 3)), "w": RNG.normal(size=(2, 20, 2))}


@pytest.fixture(params=["data", "constant"])
def fitted(request):
    with pm.Model(coords={"group": range(3)}) as model:
        x = pm.Data("inputs", X, dims=("obs", "feature"))
        group = pm.Data("index", GROUP) if request.param == "data" else GROUP
        a, w = pm.Normal("a", dims="group"), pm.Normal("w", shape=2)
        f = pm.Deterministic("f", x @ w)
        pm.Normal("y", a[group] + f, 0.5, observed=Y)
    dims = {"a": "group", "w": "w_dim_0"}
    draws = {name: (("chain", "draw", dims[name]), values) for name, values in DRAWS.items()}
    return model, xr.Dataset(draws, {"group": range(3)})


def values(with_effects=True):
    return X @ DRAWS["w"][..., None] + with_effects * DRAWS["a"][..., GROUP, None]


@pytest.mark.parametrize("output", [None, "f"])
def test_function_values(fitted, output):
    """Those of the model's rows are compared, traced and judged, with effects or without."""
    model, draws = fitted
    expected = values(output is None)
    plot = nns.plot_functions(draws, X, model=model, output=output)
    shown = plot.viz["trace"]["f"].sel(obs=2, chain=1).item()
    np.testing.assert_allclose(shown.get_ydata(), expected[1, :, 2, 0])
    halves = expected.reshape((2, 2, 10, 9))
    over_time = nns.lab.rhat_over_time(draws, X, block=10, model=model, output=output)
    means, variances = halves.mean(axis=2), halves.var(axis=2, ddof=1)
    rhat = np.sqrt(0.9 + means.var(axis=0, ddof=1) / variances.mean(axis=0))
    np.testing.assert_allclose(over_time["rhat"].values[..., 0], rhat, rtol=1e-9)
    table = nns.diagnose(draws, X, model=model, output=output).table
    assert table.loc["f", "points"] == 9


@pytest.mark.parametrize("output", [None, "f"])
def test_partial_dependence_keeps_the_groups_of_rows(fitted, output):
    """Groups that change rows, or are those of the first rows, where their effects differ."""
    model, draws = fitted
    found = nns.partial_dependence(draws, 0, points=3, rows=5, model=model, output=output)
    chosen = [0, 2, 4, 6, 8]
    slope, other = DRAWS["w"][..., :1], DRAWS["w"][..., 1:]
    rest = other @ X[None, chosen, 1].mean(axis=1, keepdims=True)
    if output is None:
        rest = rest + DRAWS["a"][..., GROUP[chosen]].mean(axis=-1, keepdims=True)
    grid = np.linspace(X[:, 0].min(), X[:, 0].max(), 3)
    np.testing.assert_allclose(found["mean"][:, 0], (slope * grid + rest).mean(axis=(0, 1)))


@pytest.mark.parametrize("kind", ["function", "response"])
def test_bands_are_those_of_one_group(fitted, kind):
    """The median group, which is no average of others."""
    model, draws = fitted
    plot = nns.plot_predictions(draws, kind=kind, model=model, random_seed=1, prob=0.5)
    [line] = plot.viz["line"]["inputs[0]"].values.ravel()
    grid = np.linspace(X[:, 0].min(), X[:, 0].max(), 101)
    w, a = DRAWS["w"].mean(axis=(0, 1)), DRAWS["a"].mean(axis=(0, 1))
    middle = w[0] * grid + w[1] * np.median(X[:, 1]) + a[1]
    np.testing.assert_allclose(line.get_ydata(), middle)  # of the function, without its noise
    assert plot.viz["data"]["inputs[0]"].item() is not None


def test_bands_of_the_network_alone(fitted):
    """Without the data, which have the effects of their groups."""
    model, draws = fitted
    plot = nns.plot_predictions(draws, kind="function", output="f", model=model)
    assert "data" not in plot.viz.children
    with pytest.raises(ValueError, match="output must name an observed variable"):
        nns.plot_predictions(draws, output="f", model=model)


def test_bands_of_the_rates_of_counts():
    """What is named is shown without the counts, which are shown with bands of new counts."""
    with pm.Model() as model:
        w = pm.Normal("w", shape=2)
        rate = pm.Deterministic("rate", pm.math.exp(pm.Data("inputs", X) @ w))
        pm.Poisson("y", rate, observed=np.arange(9))
    draws = xr.Dataset({"w": (("chain", "draw", "w_dim_0"), DRAWS["w"])})
    plot = nns.plot_predictions(draws, kind="function", output="rate", model=model)
    [line] = plot.viz["line"]["inputs[0]"].values.ravel()
    grid = np.linspace(X[:, 0].min(), X[:, 0].max(), 101)
    at = np.stack([grid, np.full(101, np.median(X[:, 1]))])
    np.testing.assert_allclose(line.get_ydata(), np.exp(DRAWS["w"] @ at).mean((0, 1)))
    plot = nns.plot_predictions(draws, model=model, random_seed=1)
    seen = plot.viz["data"]["inputs[0]"].item().get_offsets()
    np.testing.assert_array_equal(seen, np.stack([X[:, 0], np.arange(9)], axis=1))


def test_relevance_of_one_network():
    with pm.Model(coords={"feature": ["a", "b"], "unit": range(3)}) as model:
        x = pm.Data("inputs", X, dims=("obs", "feature"))
        outputs = []
        for name in "fg":
            scale = pm.HalfNormal(f"scale_{name}", dims="feature")
            W = pm.Normal(f"W_{name}", 0, scale, dims=("unit", "feature"))
            outputs.append(pm.Deterministic(name, pm.math.tanh(x @ W.T).sum(axis=1)))
        pm.Normal("y", outputs[0] * outputs[1], 1, observed=Y)
    scales = np.abs(RNG.normal(size=(2, 10, 2)))
    draws = {f"scale_{name}": (("chain", "draw", "feature"), scales) for name in "fg"}
    draws = xr.Dataset(draws, {"feature": ["a", "b"]})
    assert set(nns.relevance(draws, model=model).draws) == {"W_f", "W_g"}
    assert set(nns.relevance(draws, model=model, output="g").draws) == {"W_g"}
    with pytest.raises(ValueError, match=r"output must name a pm.Deterministic .* got 'h'"):
        nns.relevance(draws, model=model, output="h")
