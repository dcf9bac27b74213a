"""R-hat and effective sample size of what networks compute, against what they must be."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import pymc_nnsteps as nns
from tests.diagnostics.networks import NETWORKS, X_NEW, X, Y, by_hand, independent, line, prior

BESIDE = {
    "intermediate_noise_mlp": ["b2"],
    "hierarchical_mlp": ["tau_ih1", "tau_ih1_unit", "tau_bh1", "tau_h1o", "bo", "tau_noise"],
    "bow_tie": ["tau1", "tau2", "b2", "eta_sq2"],
    "by hand": ["s"],
    "wide_mlp": ["phi"],
}
"""Free variables without entries for hidden units or rows."""


def diagnosed(slopes, points=((1.0,), (2.0,)), **attrs):
    model, draws = line(slopes)
    return nns.diagnose(draws.assign_attrs(attrs), points, model=model)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name):
    """Every family and a network by hand: the rows of the table, and ArviZ's numbers."""
    model = NETWORKS[name]()
    draws = prior(model, 2, 10)
    diagnosis = nns.diagnose(draws, X_NEW, model=model)
    assert list(diagnosis.table.index) == ["f", "log_likelihood", *BESIDE.get(name, [])]
    assert list(diagnosis.table["points"])[:2] == [len(X_NEW), 1]
    quantities = {"f": nns.predict(draws, X_NEW, model=model)}
    quantities |= {other: draws[other] for other in BESIDE.get(name, [])}
    for quantity, array in quantities.items():
        values, found = array.to_dataset(name=quantity), diagnosis.dataset[quantity]
        with np.errstate(invalid="ignore"):
            rhat = az.rhat(values)[quantity]
        np.testing.assert_array_equal(found.sel(statistic="rhat"), rhat)
        for kind in ("bulk", "tail"):
            ess = az.ess(values, method=kind)[quantity]
            np.testing.assert_array_equal(found.sel(statistic=f"ess_{kind}"), ess)


def test_log_likelihood():
    """Only the data count, with a standard deviation on its own scale; stored or computed."""
    model = by_hand()
    draws = prior(model, 2, 10)
    hidden = np.tanh(X @ draws["W"].values)
    mean = np.einsum("cdnu,cdu->cdn", hidden, draws["v"].values)
    terms = stats.norm.logpdf(Y, mean, draws["s"].values[..., None])
    expected = az.rhat(xr.Dataset({"l": (("chain", "draw"), terms.sum(-1))}))["l"]
    computed = nns.diagnose(draws, X_NEW, model=model).dataset["log_likelihood"]
    assert computed.sel(statistic="rhat").item() == pytest.approx(expected.item(), rel=1e-6)
    group = xr.Dataset({"y": (("chain", "draw", "obs"), terms)})
    without_s = xr.DataTree.from_dict({"posterior": draws.drop_vars("s"), "log_likelihood": group})
    stored = nns.diagnose(without_s, X_NEW, model=model).dataset
    assert list(stored) == ["f", "log_likelihood"]
    np.testing.assert_allclose(stored["log_likelihood"], computed, rtol=1e-6)
    assert list(nns.diagnose(draws.drop_vars("s"), X_NEW, model=model).dataset) == ["f"]
    groups = without_s.children.items()
    twice = {key: each.to_dataset().assign_coords(chain=[0, 0]) for key, each in groups}
    merged = nns.diagnose(xr.DataTree.from_dict(twice), X_NEW, model=model).dataset
    np.testing.assert_array_equal(merged["log_likelihood"], stored["log_likelihood"])


def test_noise_of_each_row():
    """Dimensions called like those of the function values, and longer."""
    with pm.Model(coords={"obs": list(range(12)), "output": list("ab")}) as model:
        w = pm.Normal("w", shape=2)
        rows, outputs = pm.HalfNormal("rows", dims="obs"), pm.HalfNormal("outputs", dims="output")
        pm.Normal("y", pm.Data("inputs", X) @ w, rows * outputs.sum(), observed=Y)
    statistics = nns.diagnose(prior(model, 2, 10), X_NEW, model=model).dataset
    assert statistics["f"].sizes == {"statistic": 3, "obs": 5, "output": 1}
    assert statistics["rows"].sizes == {"statistic": 3, "rows_obs": 12}
    assert statistics["outputs"].sizes == {"statistic": 3, "outputs_output": 2}


def test_chains_that_agree_and_chains_in_two_modes():
    """Modes that each chain mixes in well, and never leaves."""
    agree = diagnosed(independent()).table
    assert (agree["rhat worst"] < 1.02).all()
    assert (agree[["> 1.05"]] == 0).all(axis=None)
    assert (agree["ess"] > 1000).all()
    apart = diagnosed(independent() + 10 * np.array([1, 1, -1, -1])[:, None]).table
    assert apart.loc["f", "rhat"] > 1.5
    assert (apart.loc["f", ["> 1.01", "> 1.05"]] == 1).all()
    assert apart.loc["f", "ess"] < 20


def test_chains_that_do_not_move():
    """R-hat of different constants is infinite; one constant is no evidence at all."""
    different = diagnosed(np.repeat([[1.0], [2.0]], 20, axis=1), points=[[1.0], [0.0]]).table
    assert different.loc["f", "points"] == 1
    assert different.loc["f", "rhat worst"] == np.inf
    same = diagnosed(np.ones((2, 20)))
    assert same.table.loc["f", "points"] == 0
    assert (
        str(same).splitlines()[1].split() == ["f", "0", *"-------"][: len(same.table.columns) + 1]
    )


def test_summary_over_points():
    """Median, worst and shares are over points, not over draws."""
    model = by_hand()
    diagnosis = nns.diagnose(prior(model, 2, 10), X, model=model)
    rhat, ess = (diagnosis.dataset["f"].sel(statistic=s).values for s in ("rhat", "ess_bulk"))
    row = diagnosis.table.loc["f"]
    assert row["rhat"] == np.median(rhat)
    assert row["rhat worst"] == rhat.max()
    assert row["> 1.01"] == np.mean(rhat > 1.01)
    assert row["> 1.05"] == np.mean(rhat > 1.05)
    assert row["ess"] == np.median(ess)
    assert row["ess worst"] == ess.min()


def test_effective_samples_per_second():
    timed = diagnosed(independent(), sampling_time=4.0).table
    np.testing.assert_allclose(timed["ess per s"], timed["ess"] / 4)
    assert "ess per s" not in diagnosed(independent()).table


def test_prints_as_a_table():
    diagnosis = diagnosed(independent(), sampling_time=4.0)
    assert str(diagnosis) == repr(diagnosis)
    assert str(diagnosis).splitlines()[1].split()[:2] == ["f", "2"]
    assert "<table" in diagnosis._repr_html_()


def test_units_that_may_change_places_are_not_judged():
    """Nor latents of a block, whose axes have no names."""
    with pm.Model() as model:
        level = pm.Normal("level", 0, 1, shape=3)
        f = nns.blocks.intermediate_noise(pm.Data("inputs", X), hidden=(2,))
        pm.Normal("y", f + level[np.arange(len(X)) % 3], 1, observed=Y, shape=f.shape)
    diagnosis = nns.diagnose(prior(model, 2, 10), X, model=model)
    assert list(diagnosis.table.index)[2:] == ["level", "f::b2"]


def test_verdict():
    """Converged, too few draws, modes that chains do not leave, chains that hardly move."""
    good = diagnosed(independent())
    assert good.converged
    assert str(good).splitlines()[-1] == good.verdict
    assert good.verdict in good._repr_html_()
    assert good.verdict.startswith("Converged: R-hat of each quantity is at most 1.01, and there")
    few = diagnosed(independent()[:, :80])
    assert not few.converged
    assert "effective draws of 400 wanted" in few.verdict
    assert "R-hat" not in few.verdict
    enough = np.tile(independent(), 4) + 0.15 * np.arange(4)[:, None]
    assert diagnosed(enough).verdict.startswith("Not converged: f has R-hat 1.017; w has R-hat")
    assert few.verdict.endswith("About 2 times as many draws would do.")
    apart = diagnosed(independent() + 10 * np.array([1, 0, 1, 0])[:, None])
    [(low, lowest), (high, highest)] = apart.modes
    assert {low, high} == {(0, 2), (1, 3)}
    assert lowest < highest
    assert "are in different modes (log likelihood" in apart.verdict
    assert "nns.stacking_weights" in apart.verdict
    mirrored = np.array([1, -1, 1, -1])[:, None] * (5 + independent(shape=(1, 500)))
    assert {chains for chains, _ in diagnosed(mirrored).modes} == {(0, 2), (1, 3)}, "by f"
    walk = np.cumsum(independent(), axis=1) / 30
    assert diagnosed(walk).verdict.endswith(("draws would do.", "look at their traces."))


@pytest.mark.parametrize(
    ("slopes", "points", "message"),
    [
        (np.zeros((1, 20)), [[1.0]], "idata has one chain, but R-hat compares chains"),
        (np.zeros((2, 3)), [[1.0]], "idata must have at least 4 draws in each chain; it has 3"),
        (np.zeros((2, 20)), [[1.0, 2.0]], r"^X must have shape \(n_obs, 1\) .* got \(1, 2\)"),
        (np.zeros((2, 20)), [[np.nan]], r"^X has 1 NaN .* at X\[0, 0\]"),
        (np.full((2, 20), np.inf), [[1.0]], "f is infinite or NaN at 40 draws of idata"),
    ],
)
@pytest.mark.parametrize("function", [nns.diagnose, nns.lab.rhat_over_time])
def test_bad_input(slopes, points, message, function):
    model, draws = line(slopes)
    options = {} if function is nns.diagnose else {"block": 4}
    with pytest.raises(ValueError, match=message):
        function(draws, points, model=model, **options)


def test_draws_of_another_model():
    with pytest.raises(ValueError, match="idata lacks W, v; store what is needed"):
        nns.diagnose(line(independent())[1], X_NEW, model=by_hand())
