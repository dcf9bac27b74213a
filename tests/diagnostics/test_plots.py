"""Plots show what the numbers say, with ArviZ's backends."""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.diagnostics import plots
from pymc_nnsteps.diagnostics.plots import draw_large
from tests.diagnostics.networks import NETWORKS, X_NEW, by_hand, prior


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
    assert artists.sizes == {"obs": 4, "chain": 2}
    if backend == "matplotlib":
        f = nns.predict(draws, X_NEW, model=model)
        shown = artists.sel(obs=2, chain=1).item()
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
