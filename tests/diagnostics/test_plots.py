"""Plots show what the numbers say, with ArviZ's backends."""

import sys
from functools import partial

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_nnsteps as nns
from pymc_nnsteps.diagnostics import plots
from pymc_nnsteps.diagnostics.plots import draw_large
from tests.diagnostics.networks import NETWORKS, X_NEW, X, Y, by_hand, prior


@pytest.fixture(autouse=True)
def closed():
    mpl.use("Agg")
    yield
    plt.close("all")


@pytest.mark.parametrize("backend", ["none", "matplotlib"])
def test_traces_of_function_values(backend):
    model = NETWORKS["intermediate_noise_mlp"]()
    draws = prior(model, 2, 10)
    plot = nns.plot_functions(draws, X_NEW, model=model, backend=backend)
    artists = plot.viz["trace"]["f"]
    assert artists.sizes == {"obs": 4, "output": 1, "chain": 2}
    if backend == "matplotlib":
        f = nns.predict(draws, X_NEW, model=model)
        shown = artists.sel(obs=2, output=0, chain=1).item()
        np.testing.assert_array_equal(shown.get_ydata(), f[1, :, 2, 0])


@pytest.mark.parametrize("backend", ["none", "matplotlib"])
def test_rhat_over_time(backend):
    model = by_hand()
    over_time = nns.lab.rhat_over_time(prior(model, 2, 20), X_NEW, block=5, model=model)
    plot = nns.lab.plot_rhat_over_time(over_time, backend=backend)
    if backend == "matplotlib":
        line = plot.viz["lines"]["rhat"].sel(quantile=0.95).item()
        np.testing.assert_array_equal(line.get_xdata(), over_time["block"])
        np.testing.assert_array_equal(line.get_ydata(), over_time["quantiles"].sel(quantile=0.95))
        low, high = (over_time["quantiles"].sel(quantile=q).values for q in (0.25, 0.75))
        [path] = plot.viz["band"]["rhat"].item().get_paths()
        assert set(path.vertices[:, 1]) == {*low, *high}
    with pytest.raises(ValueError, match="over_time must be the result of rhat_over_time"):
        nns.lab.plot_rhat_over_time(over_time.drop_vars("quantiles"))


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="matplotlib is not installed; run pip install"):
        draw_large({}, "matplotlib", 1)
    draw_large({}, "none", 1)


def test_sizes_of_other_backends(monkeypatch):
    """A picture by Plotly or Bokeh of 400 x 200 dots, and a backend that does not exist."""
    monkeypatch.setattr(plots, "find_spec", lambda package: package)
    options = {}
    draw_large(options, "plotly", 2)
    assert options["figure_kwargs"] == {"figsize": (900, 400), "figsize_units": "dots"}
    with pytest.raises(ValueError, match='backend must be one of "matplotlib", "bokeh"'):
        draw_large({}, "plotley", 1)


def exact(n_draws=400):
    """A line with known noise, and draws of its slope close to 2."""
    with pm.Model(coords={"obs": range(12), "feature": ["a", "b"]}) as model:
        x = pm.Data("inputs", X, dims=("obs", "feature"))
        w = pm.Normal("w", shape=2)
        pm.Normal("y", x @ w, 0.5, observed=Y, dims="obs")
    w = np.array([2.0, 1.0]) + 1e-6 * np.random.default_rng(0).normal(size=(2, n_draws, 2))
    return model, xr.Dataset({"w": (("chain", "draw", "w_dim_0"), w)})


@pytest.mark.parametrize("kind", ["response", "function"])
def test_predictive_bands(kind):
    """Their width is that of the noise, or of the function; other inputs at their medians."""
    model, draws = exact()
    plot = nns.plot_predictions(
        draws, feature="a", kind=kind, model=model, random_seed=1, ci_prob=0.9, ci_kind="eti"
    )
    [path] = plot.viz["ci_band"]["a"].item().get_paths()
    x = np.unique(path.vertices[:, 0])
    np.testing.assert_allclose(x, np.linspace(X[:, 0].min(), X[:, 0].max(), 101))
    y = [path.vertices[np.isclose(path.vertices[:, 0], at), 1] for at in x]
    low, high = np.array([(each.min(), each.max()) for each in y]).T
    expected = 2 * 1.645 * 0.5 if kind == "response" else 0.0
    assert abs(np.mean(high - low) - expected) < 0.05
    middle = 2 * x.mean() + np.median(X[:, 1])
    np.testing.assert_allclose(np.mean(low + high) / 2, middle, atol=0.05)
    points = plot.viz["observed_scatter"]["a"].item().get_offsets()
    np.testing.assert_allclose(points, np.column_stack([X[:, 0], Y]))
    np.testing.assert_array_equal(model["inputs"].get_value(), X)
    assert list(model.coords["obs"]) == list(range(12))


@pytest.mark.parametrize(
    "name", ["intermediate_noise_mlp", "hierarchical_mlp", "bow_tie", "wide_mlp"]
)
def test_predictive_bands_of_networks(name):
    model = NETWORKS[name]()
    plot = nns.plot_predictions(prior(model, 2, 10), model=model, backend="none")
    assert "ci_band" in plot.viz.children
    np.testing.assert_array_equal(model["inputs"].get_value(), X)


GAPS = np.where(np.arange(12) % 3 == 1, np.nan, Y)


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize(
    ("build", "shown"),
    [
        (partial(nns.hierarchical_mlp, X, GAPS, hidden=(2,)), GAPS),
        (partial(nns.hierarchical_mlp, X, np.column_stack([X[:, 0], GAPS]), hidden=(2,)), GAPS),
        (partial(nns.wide_mlp, X, np.column_stack([X[:, 0], Y]), hidden=(2,)), Y),
    ],
    ids=["missing", "missing of two", "rows along the second axis"],
)
def test_targets_beside_predictive_bands(build, shown):
    """Each beside its own input, whichever way the model holds them."""
    model, known = build(), ~np.isnan(shown)
    output = model["f"].ndim - 1
    plot = nns.plot_predictions(prior(model, 2, 10), model=model, output=output)
    points = plot.viz["observed_scatter"]["inputs[0]"].item().get_offsets()
    np.testing.assert_allclose(points, np.column_stack([X[known, 0], shown[known]]))


def test_predictive_bands_of_a_named_target():
    model = nns.hierarchical_mlp(X, pd.DataFrame({"u": X[:, 0], "v": Y}), hidden=(2,))
    draws = prior(model, 2, 10)
    data = xr.Dataset({"y": (("obs", "output"), np.column_stack([Y, X[:, 0]]))})
    sorted_otherwise = {"posterior": draws, "observed_data": data.assign_coords(output=["v", "u"])}
    for stored in (draws, xr.DataTree.from_dict(sorted_otherwise)):
        plot = nns.plot_predictions(stored, model=model, output="v")
        points = plot.viz["observed_scatter"]["inputs[0]"].item().get_offsets()
        np.testing.assert_allclose(points, np.column_stack([X[:, 0], Y]))


def test_predictive_bands_of_two_observed_variables():
    """The one that is named, or a function without either."""
    model, draws = exact(10)
    with model:
        f = pm.Deterministic("f", model["inputs"] @ model["w"])
        pm.Normal("second", 10 + f, 0.5, observed=10 + Y)
    plot = nns.plot_predictions(draws, model=model, output="second", random_seed=1)
    points = plot.viz["observed_scatter"]["a"].item().get_offsets()
    np.testing.assert_allclose(points, np.column_stack([X[:, 0], 10 + Y]))
    plot = nns.plot_predictions(draws, model=model, output="f", kind="function", backend="none")
    assert "observed_scatter" not in plot.viz.children
    with pytest.raises(ValueError, match="the model has y, second: give predict as output= the na"):
        nns.plot_predictions(draws, model=model)


def test_predictive_bands_need_weights_and_noise_alone():
    """Scales of weights that the bands are conditional on anyway, asked for or drawn afresh."""
    model = NETWORKS["bow_tie"]()
    draws = prior(model, 2, 10)
    needed = ["W1", "b1", "eta_sq1", "W2", "b2", "eta_sq2"]
    bands = [
        nns.plot_predictions(stored, model=model, random_seed=1).viz["ci_band"]["inputs[0]"]
        for stored in (draws, draws[needed])
    ]
    [[all_stored], [few]] = [band.item().get_paths() for band in bands]
    np.testing.assert_array_equal(all_stored.vertices, few.vertices)
    with pytest.raises(ValueError, match=r"idata lacks .*eta_sq2"):
        nns.plot_predictions(draws[needed[:-1]], model=model)


def test_predictions_that_cannot_be_shown():
    model, draws = exact(10)
    for options, message in {
        "feature": ({"feature": "c"}, r"feature must be one of the columns \['a', 'b'\]; got 'c'"),
        "output": ({"output": 1}, "output must be a name or a number from 0 to 0; got 1"),
        "no output": ({"output": None}, "output must be a name or a number from 0 to 0; got None"),
        "kind": ({"kind": "mean"}, 'kind must be one of "response", "function"'),
    }.values():
        with pytest.raises(ValueError, match=message):
            nns.plot_predictions(draws, model=model, **options)
    probit = nns.intermediate_noise_mlp(X, Y > 0.5, hidden=(2,), noise=0.1, likelihood="probit")
    with pytest.raises(ValueError, match="shows numbers; y is Bernoulli, of classes"):
        nns.plot_predictions(prior(probit, 2, 4), model=probit)
