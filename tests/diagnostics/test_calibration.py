"""The picture of calibration tells honest spreads from others."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_nnsteps as nns
from tests.diagnostics.networks import X, Y, prior


@pytest.fixture(autouse=True)
def closed():
    mpl.use("Agg")
    yield
    plt.close("all")


def line(noise, n_rows=400):
    """A line with noise of sd 1 in the model and another in the data, and draws of its slope."""
    rng = np.random.default_rng(3)
    with pm.Model() as model:
        x = pm.Data("inputs", X)
        pm.Normal("y", x @ pm.Normal("w", shape=2), 1.0, observed=Y)
    draws = xr.Dataset({"w": (("chain", "draw", "w_dim_0"), np.full((2, 500, 2), 2.0))})
    rows = rng.normal(size=(n_rows, 2))
    return model, draws, rows, 2 * rows.sum(axis=1) + noise * rng.normal(size=n_rows)


def excess(noise, **options):
    """The line that is shown: places and differences."""
    model, draws, rows, y = line(noise)
    plot = nns.plot_calibration(draws, rows, y, model=model, random_seed=1, **options)
    shown = plot.viz["ecdf_lines"]["y"].item()
    return np.asarray(shown.get_xdata()), np.asarray(shown.get_ydata())


def marked(plot):
    """How many points are marked."""
    points = plot.viz["suspicious_points"]["y"].item().get_offsets()
    return np.isfinite(np.ma.filled(points, np.nan)).all(axis=1).sum()


def test_honest_predictions():
    """Responses without noise, whose places are all 0 or 1."""
    _, difference = excess(1.0)
    assert np.abs(difference).max() < 1.63 / np.sqrt(400) + 0.01  # Kolmogorov's 99 %


def test_counts_are_between_their_neighbours():
    """Randomised places are uniform, few as the values are, and those of another rate are not."""
    with pm.Model() as model:
        w = pm.Normal("w")
        mu = pm.math.exp(pm.Data("inputs", X)[:, 0] * w)
        pm.ZeroInflatedPoisson("y", 0.7, mu, observed=np.ones(len(X), dtype=int))
    draws = xr.Dataset({"w": (("chain", "draw"), np.full((2, 250), 0.25))})
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(400, 2))
    rate = np.exp(rows[:, 0] / 4)

    def largest(rate):
        counts = (rng.random(400) < 0.7) * rng.poisson(rate)
        plot = nns.plot_calibration(
            draws, rows, counts, model=model, random_seed=1, num_samples=100
        )
        return np.abs(plot.viz["ecdf_lines"]["y"].item().get_ydata()).max()

    assert largest(rate) < 1.63 / np.sqrt(400) + 0.01 < largest(2 * rate)


def test_classes_in_an_order():
    """By their labels; those of another law are not calibrated."""
    labels = ["low", "fair", "high"]
    with pm.Model(coords={"class": labels}) as model:
        f = pm.Data("inputs", X)[:, 0] * pm.Normal("w")
        observed = np.arange(len(X)) % 3
        pm.OrderedLogistic("y", eta=f, cutpoints=[-1, 1], observed=observed, compute_p=False)
    draws = xr.Dataset({"w": (("chain", "draw"), np.ones((2, 250)))})
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(400, 2))
    u = rng.logistic(size=400) + rows[:, 0]

    def largest(u, labels=labels):
        y = pd.Categorical.from_codes(np.digitize(u, [-1, 1]), labels, ordered=True)
        y = y.reorder_categories(labels[::-1])
        plot = nns.plot_calibration(draws, rows, y, model=model, random_seed=1)
        return np.abs(plot.viz["ecdf_lines"]["y"].item().get_ydata()).max()

    assert largest(u) < 1.63 / np.sqrt(400) + 0.01 < largest(u + 0.7)
    with pytest.raises(ValueError, match="y has the classes 'a', 'b', 'c', but the model knows"):
        largest(u, list("cba"))
    with pytest.raises(ValueError, match=r"shows numbers; .* y as an ordered pandas.Categorical"):
        nns.plot_calibration(draws, rows, observed, model=model)


def test_places_among_few_draws():
    """Targets beyond all draws, at 0 or 1, and those in the middle, of which ArviZ makes p = 0."""
    model, draws, rows, y = line(1.0)
    few = draws.isel(draw=slice(5))
    for kind in ("pit", "coverage"):
        plot = nns.plot_calibration(few, rows, y, kind=kind, model=model, random_seed=2)
        assert marked(plot) == 0
    model, draws, rows, y = line(2.0)
    few = draws.isel(draw=slice(5))
    assert marked(nns.plot_calibration(few, rows, y, model=model, random_seed=2)) > 0


def test_places_of_targets():
    """The sign of the difference: targets of twice the spread are at both ends."""
    at, difference = excess(2.0)
    low = difference[np.argmin(np.abs(at - 0.1))]
    expected = 0.2611 - 0.1  # P(2 z < -1.2816)
    assert abs(low - expected) < 4 * np.sqrt(0.26 * 0.74 / 400)


@pytest.mark.parametrize(("noise", "sign"), [(2.0, -1), (0.5, 1)])
def test_coverage_of_intervals(noise, sign):
    """Intervals that are too short hold less than they say, and the other way round."""
    at, difference = excess(noise, kind="coverage")
    half = difference[np.argmin(np.abs(at - 50 if at.max() > 1.5 else at - 0.5))]
    inside = {2.0: 0.2641, 0.5: 0.8226}[noise]  # P(|noise z| < 0.6745)
    assert np.sign(half) == sign
    assert abs(half - (inside - 0.5)) < 4 * np.sqrt(0.25 / 400)


def test_missing_entries_and_several_outputs():
    holed = np.where(X > 1, np.nan, X)
    model = nns.hierarchical_mlp(holed, np.column_stack([Y, Y]), hidden=(3,), missing="impute")
    y = np.column_stack([Y, np.where(Y > 0.5, np.nan, Y)])
    plot = nns.plot_calibration(prior(model, 2, 20), holed, y, model=model, backend="none")
    assert "ecdf_lines" in plot.viz.children


def test_labels_of_targets():
    """Rows or columns in another order, paired with predictions of others."""
    rows = pd.DataFrame(X, index=[f"r{i}" for i in range(len(X))])
    y = pd.DataFrame({"near": Y, "far": -Y}, index=rows.index)
    model = nns.hierarchical_mlp(rows, y, hidden=(3,))
    draws = prior(model, 2, 20)
    options = {"model": model, "random_seed": 1}

    def shown(targets):
        plot = nns.plot_calibration(draws, rows, targets, **options)
        return np.asarray(plot.viz["ecdf_lines"]["y"].item().get_ydata())

    np.testing.assert_array_equal(shown(y[["far", "near"]]), shown(y))
    with pytest.raises(ValueError, match="y has the row labels of X in another order"):
        nns.plot_calibration(draws, rows, y[::-1], **options)
    with pytest.raises(ValueError, match="y has the row labels of X in another order"):
        nns.plot_calibration(draws, {"inputs": rows}, y[::-1], **options)


def test_one_of_two_observed_variables():
    """The other one's, whose places are all at the ends."""
    model, draws, rows, y = line(1.0)
    with model:
        pm.Normal("far", 99 + model["inputs"] @ model["w"], 1.0, observed=Y)
    options = {"model": model, "random_seed": 1, "output": "y"}
    plot = nns.plot_calibration(draws, rows, y, **options)
    difference = plot.viz["ecdf_lines"]["y"].item().get_ydata()
    assert np.abs(difference).max() < 1.63 / np.sqrt(400) + 0.01


def test_what_cannot_be_shown():
    model, draws, rows, y = line(1.0, 5)
    with pytest.raises(ValueError, match='kind must be one of "pit", "coverage"'):
        nns.plot_calibration(draws, rows, y, kind="loo", model=model)
    for n in (0, 5):
        with pytest.raises(ValueError, match="y has no targets to compare with; pass rows"):
            nns.plot_calibration(draws, rows[:n], np.full(n, np.nan), model=model)
    with pytest.raises(ValueError, match=r"y must have shape \(5, 1\); got \(4,\)"):
        nns.plot_calibration(draws, rows, y[:4], model=model)
    counts = nns.hierarchical_mlp(X, np.arange(12), hidden=(), likelihood="poisson")
    with pytest.raises(ValueError, match="y must hold whole numbers, as y does"):
        nns.plot_calibration(prior(counts, 2, 4), X, np.arange(12) / 2, model=counts)
    probit = nns.intermediate_noise_mlp(X, Y > 0.5, hidden=(2,), noise=0.1, likelihood="probit")
    with pytest.raises(ValueError, match="shows numbers; y is Bernoulli, of classes"):
        nns.plot_calibration(prior(probit, 2, 4), X, Y > 0.5, model=probit)
