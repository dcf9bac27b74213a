"""Plots of partial dependence show its numbers."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import pymc_nnsteps as nns
from tests.diagnostics.networks import NETWORKS, prior


@pytest.fixture(autouse=True)
def closed():
    mpl.use("Agg")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def found():
    """Dependence on each input, and on both."""
    model = NETWORKS["intermediate_noise_mlp"]()
    draws = prior(model, 2, 10)
    return [nns.partial_dependence(draws, each, points=5, model=model) for each in (0, 1, (0, 1))]


@pytest.mark.parametrize("backend", ["none", "matplotlib"])
def test_one_input_per_panel(found, backend):
    plot = nns.plot_partial_dependence(*found[:2], backend=backend)
    assert list(plot.viz["lines"].data_vars) == ["inputs[0]", "inputs[1]"]
    if backend == "matplotlib":
        line = plot.viz["lines"]["inputs[1]"].item()
        np.testing.assert_array_equal(line.get_xdata(), found[1]["inputs[1]"])
        np.testing.assert_array_equal(line.get_ydata(), found[1]["mean"][:, 0])
        [path] = plot.viz["band"]["inputs[1]"].item().get_paths()
        ends = {*found[1]["lower"].values.ravel(), *found[1]["upper"].values.ravel()}
        assert set(path.vertices[:, 1]) == ends
        assert line.axes.get_xlabel() == "inputs[1]"


def test_three_lines_of_two_inputs(found):
    plot = nns.plot_partial_dependence(found[2])
    lines = plot.viz["lines"]["inputs[0]"]
    assert lines.sizes == {"inputs[1]": 3}
    values = found[2]["inputs[1]"].values
    assert lines["inputs[1]"].values.tolist() == [f"{v:.5g}" for v in values[[0, 2, 4]]]
    for i, line in enumerate(lines.values):
        np.testing.assert_array_equal(line.get_ydata(), found[2]["mean"][:, 2 * i, 0])


def test_what_cannot_be_shown(found):
    one, _, two = found
    for wrong, message in [
        ((), "one of two inputs; got 0"),
        ((one, one), "all of them different"),
        ((one, two), "one of two inputs"),
        ((one["mean"],), "dependences must be results of partial_dependence"),
    ]:
        with pytest.raises(ValueError, match=message):
            nns.plot_partial_dependence(*wrong)
    with pytest.raises(ValueError, match="output must be a name or a number from 0 to 0; got 1"):
        nns.plot_partial_dependence(one, output=1)
    with pytest.raises(ValueError, match=r"output must be a number or one of \['u'\]; got 'v'"):
        nns.plot_partial_dependence(one.assign_coords(output=["u"]), output="v")


def test_a_named_output(found):
    one, *_ = found
    pair = xr.concat([one + 1, one], "output").assign_coords(output=["u", "v"])
    plot = nns.plot_partial_dependence(pair, output="v")
    line = plot.viz["lines"]["inputs[0]"].item()
    np.testing.assert_array_equal(line.get_ydata(), one["mean"][:, 0])
    assert line.axes.get_ylabel() == "f[v]"


def test_names_units_and_data_are_shown(found):
    """What is averaged has its name; inputs have the units that they were standardised from."""
    named = found[0].assign_attrs(of="rate")
    units = {"inputs[0]": (10.0, 2.0), "rate": (3.0, 4.0), "inputs[1]": (0.0, 1.0)}
    plot = nns.plot_partial_dependence(named, units=units, labels={"rate": "events"})
    line = plot.viz["lines"]["inputs[0]"].item()
    assert line.axes.get_ylabel() == "events"
    np.testing.assert_allclose(line.get_xdata(), 10 + 2 * named["inputs[0]"])
    np.testing.assert_allclose(line.get_ydata(), 3 + 4 * named["mean"][:, 0])
    marks = plot.viz["rug"]["inputs[0]"].item().get_offsets()
    np.testing.assert_allclose(marks[:, 0], 10 + 2 * named["data"][:, 0])
    for pair in (3, (10.0, 0.0), (np.nan, 2.0), ("10", "2")):
        with pytest.raises(
            ValueError, match=r"units must have the mean and .* of inputs\[1\]; got"
        ):
            nns.plot_partial_dependence(found[2], units={"inputs[1]": pair})
    for argument in ("units", "labels"):
        with pytest.raises(ValueError, match=rf"{argument} must be .* 'f'; got those of 'speed'\."):
            nns.plot_partial_dependence(found[0], **{argument: {"speed": (0.0, 1.0)}})
    two = nns.plot_partial_dependence(found[2], units={"inputs[1]": (10.0, 2.0)})
    values = 10 + 2 * found[2]["inputs[1]"].values
    lines = two.viz["lines"]["inputs[0]"]
    assert lines["inputs[1]"].values.tolist() == [f"{v:.5g}" for v in values[[0, 2, 4]]]
