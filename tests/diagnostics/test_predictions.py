"""Predictive bands, with the data, in the units of both."""

from functools import partial

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_nnsteps as nns
from tests.diagnostics.networks import NETWORKS, X, Y, prior


@pytest.fixture(autouse=True)
def closed():
    mpl.use("Agg")
    yield
    plt.close("all")


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
    units, labels = {"a": (10.0, 2.0), "y": (5.0, 3.0)}, {"y": "yield"}
    plot = nns.plot_predictions(
        draws, feature="a", kind=kind, model=model, random_seed=1, units=units, labels=labels
    )
    assert len(plot.viz["band"]["a"]) == (2 if kind == "response" else 1)
    line = plot.viz["line"]["a"].item()
    x = np.linspace(X[:, 0].min(), X[:, 0].max(), 101)
    np.testing.assert_allclose(line.get_xdata(), 10 + 2 * x)
    middle = 2 * x + np.median(X[:, 1])
    np.testing.assert_allclose(line.get_ydata(), 5 + 3 * middle, atol=1e-4)
    for noise, band in zip((0.0, 0.5), plot.viz["band"]["a"].values, strict=False):
        [path] = band.get_paths()
        y = [path.vertices[np.isclose(path.vertices[:, 0], at), 1] for at in 10 + 2 * x]
        edges = np.array([(each.min(), each.max()) for each in y]).T
        expected = 5 + 3 * (middle + np.array([[-1], [1]]) * 1.645 * noise)
        # A quantile of 800 draws has an error of 7 % of the sd, one of 21 points a third of it.
        np.testing.assert_allclose(edges, expected, atol=3 * 4 * 0.07 * noise / 2 + 1e-4)
        steps = np.abs(np.diff(edges - expected))
        assert steps.max() < 3 * 0.03 * noise + 1e-4, "ragged"
    points = plot.viz["data"]["a"].item().get_offsets()
    np.testing.assert_allclose(points, np.column_stack([10 + 2 * X[:, 0], 5 + 3 * Y]))
    axes = line.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("a", "yield")
    assert axes.get_title() == f"at b = {np.median(X[:, 1]):.3g}"
    np.testing.assert_array_equal(model["inputs"].get_value(), X)
    assert list(model.coords["obs"]) == list(range(12))


@pytest.mark.parametrize(
    "name", ["intermediate_noise_mlp", "hierarchical_mlp", "bow_tie", "wide_mlp"]
)
def test_predictive_bands_of_networks(name):
    model = NETWORKS[name]()
    plot = nns.plot_predictions(prior(model, 2, 10), model=model, backend="none")
    assert "band" in plot.viz.children
    np.testing.assert_array_equal(model["inputs"].get_value(), X)


GAPS = np.where(np.arange(12) % 3 == 1, np.nan, Y)
HOLED = np.where(np.arange(24).reshape(12, 2) % 4 == 1, np.nan, X)


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize(
    ("build", "shown"),
    [
        (partial(nns.hierarchical_mlp, X, GAPS, hidden=(2,)), GAPS),
        (partial(nns.hierarchical_mlp, X, np.column_stack([X[:, 0], GAPS]), hidden=(2,)), GAPS),
        (partial(nns.wide_mlp, X, np.column_stack([X[:, 0], Y]), hidden=(2,)), Y),
        (partial(nns.hierarchical_mlp, HOLED, GAPS, hidden=(2,), missing="impute"), GAPS),
    ],
    ids=["missing", "missing of two", "rows along the second axis", "missing inputs"],
)
def test_targets_beside_predictive_bands(build, shown):
    """Each beside its own input, whichever way the model holds them."""
    model, known = build(), ~np.isnan(shown)
    output = model["f"].ndim - 1
    plot = nns.plot_predictions(prior(model, 2, 10), model=model, output=output)
    points = plot.viz["data"]["inputs[0]"].item().get_offsets()
    np.testing.assert_allclose(points, np.column_stack([X[known, 0], shown[known]]))


def test_predictive_bands_of_a_named_target():
    model = nns.hierarchical_mlp(X, pd.DataFrame({"u": X[:, 0], "v": Y}), hidden=(2,))
    draws = prior(model, 2, 10)
    data = xr.Dataset({"y": (("obs", "output"), np.column_stack([Y, X[:, 0]]))})
    sorted_otherwise = {"posterior": draws, "observed_data": data.assign_coords(output=["v", "u"])}
    for stored in (draws, xr.DataTree.from_dict(sorted_otherwise)):
        plot = nns.plot_predictions(stored, model=model, output="v")
        points = plot.viz["data"]["inputs[0]"].item().get_offsets()
        np.testing.assert_allclose(points, np.column_stack([X[:, 0], Y]))


def test_predictive_bands_of_two_observed_variables():
    """The one that is named, or a function without either."""
    model, draws = exact(10)
    with model:
        f = pm.Deterministic("f", model["inputs"] @ model["w"])
        pm.Normal("second", 10 + f, 0.5, observed=10 + Y)
    plot = nns.plot_predictions(draws, model=model, output="second", random_seed=1)
    points = plot.viz["data"]["a"].item().get_offsets()
    np.testing.assert_allclose(points, np.column_stack([X[:, 0], 10 + Y]))
    plot = nns.plot_predictions(draws, model=model, output="f", kind="function", backend="none")
    assert "data" not in plot.viz.children
    with pytest.raises(ValueError, match="the model has y, second: pass as output= the na"):
        nns.plot_predictions(draws, model=model)


def test_predictive_bands_need_weights_and_noise_alone():
    """Scales of weights that the bands are conditional on anyway, asked for or drawn afresh."""
    model = NETWORKS["bow_tie"]()
    draws = prior(model, 2, 10)
    needed = ["W1", "b1", "eta_sq1", "W2", "b2", "eta_sq2"]
    bands = [
        nns.plot_predictions(stored, model=model, random_seed=1).viz["band"]["inputs[0]"]
        for stored in (draws, draws[needed])
    ]
    for all_stored, few in zip(*(band.values for band in bands), strict=True):
        [one], [other] = all_stored.get_paths(), few.get_paths()
        np.testing.assert_array_equal(one.vertices, other.vertices)
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


def test_line_of_counts_is_their_mean():
    """The function behind counts is on another scale: no band of it, and alone without the data."""
    with pm.Model() as model:
        f = pm.Deterministic("f", pm.Data("inputs", X) @ pm.Normal("w", shape=2))
        pm.Poisson("y", pm.math.exp(f), observed=np.ones(12, dtype=int))
    draws = xr.Dataset({"w": (("chain", "draw", "w_dim_0"), np.full((2, 500, 2), 0.5))})
    plot = nns.plot_predictions(draws, model=model, random_seed=1)
    assert plot.viz["band"]["inputs[0]"]["band"].values.tolist() == ["90 % of new targets"]
    line = plot.viz["line"]["inputs[0]"].item()
    rate = np.exp(0.5 * (line.get_xdata() + np.median(X[:, 1])))
    # 1000 draws at each of 21 points; quadratics bend less than the rate.
    np.testing.assert_allclose(line.get_ydata(), rate, atol=0.15)
    plot = nns.plot_predictions(draws, kind="function", model=model, backend="none")
    assert "data" not in plot.viz.children


def test_whole_numbers_and_other_data_of_the_rows():
    """Ticks of years are years, and what else is held is named, as exposure."""
    with pm.Model(coords={"feature": ["year"]}) as model:
        year = pm.Data("inputs", 1990.0 + np.arange(12)[:, None] % 7, dims=("obs", "feature"))
        rate = pm.math.exp((year[:, 0] - 1993) * pm.Normal("w"))
        exposure = pm.Data("exposure", np.arange(1.0, 13.0))
        pm.Poisson("y", exposure * rate, observed=np.ones(12, dtype=int))
    draws = xr.Dataset({"w": (("chain", "draw"), np.zeros((2, 4)))})
    axes = nns.plot_predictions(draws, model=model).viz["line"]["year"].item().axes
    assert axes.get_title() == "at exposure = 6"
    dependence = nns.partial_dependence(draws, "year", model=model, kind="response")
    other = nns.plot_partial_dependence(dependence).viz["lines"]["year"].item().axes
    for shown in (axes, other):
        ticks = [tick.get_text() for tick in shown.get_xticklabels()]
        assert ticks == ["1990", "1992", "1994", "1996"]


def test_groups_are_held_by_their_labels():
    """Other names than those of inputs and targets have neither units nor labels."""
    with pm.Model(coords={"feature": ["year"], "states": ["Ohio", "Utah"]}) as model:
        year = pm.Data("inputs", np.arange(12.0)[:, None], dims=("obs", "feature"))
        state = pm.Data("state", np.arange(12) % 4 // 3)
        pm.Normal("y", year[:, 0] + pm.Normal("a", dims="states")[state], 1, observed=np.ones(12))
    draws = xr.Dataset({"a": (("chain", "draw", "states"), np.zeros((2, 4, 2)))})
    plotted = partial(nns.plot_predictions, draws, model=model)
    axes = plotted(labels={"state": "home"}).viz["line"]["year"].item().axes
    assert axes.get_title() == "at home = Ohio"
    for argument in ("units", "labels"):
        message = (
            rf"{argument} must be of inputs and outputs, 'year', 'state', 'y'; .* of 'speed'\."
        )
        with pytest.raises(ValueError, match=message):
            plotted(**{argument: {"speed": (0.0, 1.0)}})


def test_levels_of_categories():
    """They are ticks, in their order, without smoothing; others are held at the commonest."""
    names = [f"place[{i}]" for i in range(101)] + ["kind[a]", "kind[b]", 1]
    place, kind = np.arange(303) % 101, np.where(np.arange(303) < 200, 1, 0)
    x = np.column_stack([np.eye(101)[place], np.eye(2)[kind], np.full(303, 7.0)])
    w = np.random.default_rng(0).normal(size=104) / 7
    y = np.exp(x @ w)
    with pm.Model(coords={"obs": range(303), "feature": names}) as model:
        inputs = pm.Data("inputs", x, dims=("obs", "feature"))
        mean = pm.Deterministic("f", pm.math.exp(inputs @ pm.Normal("w", shape=104)))
        pm.Gamma("y", mu=mean, sigma=1e-6, observed=y, dims="obs")
    draws = xr.Dataset({"w": (("chain", "draw", "w_dim_0"), np.tile(w, (2, 4, 1)))})
    plot = nns.plot_predictions(draws, feature="place", model=model, random_seed=1)
    line = plot.viz["line"]["place"].item()
    assert [tick.get_text() for tick in line.axes.get_xticklabels()] == list(map(str, range(101)))
    assert line.axes.get_title() == "at kind = b, inputs[1] = 7"
    bars = line.get_ydata().reshape(101, 4)  # no line joins levels
    assert np.isnan(bars[:, [0, 3]]).all()
    level = np.exp(w[:101] + w[102] + 7 * w[103])[:, None]
    np.testing.assert_allclose(bars[:, 1:3] - level, 0, atol=1e-5)
    points = plot.viz["data"]["place"].item().get_offsets()
    np.testing.assert_allclose(points, np.column_stack([place, y]))
    dependence = nns.partial_dependence(draws, "kind", output="f", model=model)
    line = nns.plot_partial_dependence(dependence).viz["lines"]["kind"].item()
    assert [tick.get_text() for tick in line.axes.get_xticklabels()] == ["a", "b"]
    assert np.isnan(line.get_ydata()).tolist() == [True, False, False, True] * 2
    for plotted in (
        lambda units: nns.plot_predictions(draws, feature="kind", model=model, units=units),
        lambda units: nns.plot_partial_dependence(dependence, units=units),
    ):
        with pytest.raises(ValueError, match="units are for numbers, but kind has levels"):
            plotted({"kind": (0.0, 1.0)})
