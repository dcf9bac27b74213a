"""A plot of chains from several starts shows what the numbers say."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import pymc_nnsteps as nns
from pymc_nnsteps.lab.thermalization import Thermalization


@pytest.fixture(autouse=True)
def closed():
    mpl.use("Agg")
    yield
    plt.close("all")


def a_run():
    sweeps = np.arange(1, 101)
    values = {"error": np.exp(-sweeps / 50), "score": np.sin(sweeps), "seconds": sweeps / 7}
    data = {name: (("chain", "sweep"), np.stack([v, 2 * v])) for name, v in values.items()}
    data["w"] = (("chain", "sweep", "w_dim_0"), np.zeros((2, 100, 3)))
    coords = {"chain": ["informed", "zero"], "sweep": sweeps}
    return Thermalization(xr.Dataset(data, coords=coords), "informed")


@pytest.mark.parametrize("against", ["sweep", "seconds"])
def test_informed_beside_uninformed_chains(against):
    run = a_run()
    plot = nns.lab.plot_thermalization(run, against=against)
    assert set(plot.viz["lines"].data_vars) == {"error", "score"}
    line = plot.viz["lines"]["error"].sel(chain="zero").item()
    x = run.records["sweep"] if against == "sweep" else run.records["seconds"].sel(chain="zero")
    np.testing.assert_array_equal(line.get_xdata(), x)
    np.testing.assert_array_equal(line.get_ydata(), run.records["error"].sel(chain="zero"))
    scales = {name: plot.get_target(name, {}).get_yscale() for name in ("error", "score")}
    assert scales == {"error": "log", "score": "linear"}
    assert nns.lab.plot_thermalization(run, backend="none").viz["lines"]["score"].sizes == {
        "chain": 2
    }
    with pytest.raises(ValueError, match='against must be one of "sweep", "seconds"'):
        nns.lab.plot_thermalization(run, against="time")
