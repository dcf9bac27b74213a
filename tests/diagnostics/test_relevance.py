"""Relevance of inputs against scales by hand."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_nnsteps as nns
from tests.diagnostics.networks import X, Y, prior

SPREAD = X.std(axis=0)


def root_mean_square(scales, axis):
    return np.sqrt(np.mean(scales**2, axis=axis))


def test_hierarchical_precisions():
    """Weights and skip connections, of columns with names."""
    table = pd.DataFrame(X, columns=["a", "b"])
    model = nns.hierarchical_mlp(table, Y, hidden=(3,), priors={"io": "0.2:1:4"})
    draws = prior(model, 2, 20)
    found = nns.relevance(draws, model=model, prob=0.8)
    assert set(found.draws) == {"W_ih1", "W_io"}
    for group in ("ih1", "io"):
        expected = SPREAD / np.sqrt(draws[f"tau_{group}_unit"].values)
        np.testing.assert_allclose(found.draws[f"W_{group}"], expected)
        rows = found.table.loc[f"W_{group}"]
        assert list(rows["median"]) == sorted(rows["median"], reverse=True)
        quantiles = np.quantile(expected[..., 1], [0.5, 0.1, 0.9])
        np.testing.assert_allclose(rows.loc["b"], quantiles)
    assert "median" in str(found)


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize(
    ("x", "options"),
    [
        (X, {}),
        (X, {"priors": {"ti": "0.1:1"}}),
        (np.where(np.arange(2) * X > 0.5, np.nan, X), {"missing": "impute"}),
    ],
    ids=["", "offsets", "gaps"],
)
def test_inputs_count_as_they_are_seen(x, options):
    """Standardised in the model or before."""
    model = nns.hierarchical_mlp(3 + 7 * x, Y, hidden=(3,), standardize=True, **options)
    standardised = (x - np.nanmean(x, axis=0)) / np.nanstd(x, axis=0)
    before = nns.hierarchical_mlp(standardised, Y, hidden=(3,), **options)
    draws = prior(model, 1, 5)
    found, expected = (nns.relevance(draws, model=each).draws for each in (model, before))
    xr.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("shrinkage", ["student_t", "nig"])
def test_scales_of_bow_tie_networks(shrinkage):
    model = nns.bow_tie(X, Y, hidden=(3,), shrinkage=shrinkage)
    draws = prior(model, 2, 20)
    variances = draws["tau1"].values[..., None, None] * draws["psi1"].values
    expected = SPREAD * np.sqrt(variances.mean(axis=2))
    np.testing.assert_allclose(nns.relevance(draws, model=model).draws["W1"], expected)


def test_the_spread_is_that_of_the_data_that_were_sampled():
    model = nns.bow_tie(X, Y, hidden=(3,))
    draws = prior(model, 1, 2)
    data = xr.Dataset({"inputs": (("obs", "feature"), X)})
    tree = xr.DataTree.from_dict({"posterior": draws, "constant_data": data})
    before = nns.relevance(tree, model=model).draws["W1"]
    with model:
        pm.set_data({"inputs": 9 * X[:5]})
    xr.testing.assert_identical(nns.relevance(tree, model=model).draws["W1"], before)
    alone = nns.relevance(draws, model=model).draws["W1"]
    np.testing.assert_allclose(alone, before * (9 * X[:5]).std(axis=0) / SPREAD)


def test_scales_by_hand():
    """With the inputs along the first axis of the weights, which have factors beside."""
    with pm.Model(coords={"feature": ["a", "b"]}) as model:
        x = pm.Data("inputs", X, dims=("obs", "feature"))
        s, common = pm.HalfNormal("s", dims="feature"), pm.HalfNormal("common", shape=3)
        W = pm.Laplace("W", 0, common * s[:, None], shape=(2, 3), dims=("feature", "unit"))
        offset = pm.Normal("offset", 0, common[0], dims="feature")
        pm.Normal("y", pm.math.tanh((x + offset) @ W).sum(axis=-1), 1, observed=Y)
    draws = prior(model, 1, 20)
    found = nns.relevance(draws, model=model).draws
    expected = SPREAD * draws["s"].values * root_mean_square(draws["common"].values, -1)[..., None]
    assert set(found) == {"W"}
    np.testing.assert_allclose(found["W"], expected)


BLOCKS = {
    "hierarchical": {"priors": {"io": "0.2:1:4", "ti": "0.1:1"}},
    "bow_tie": {"shrinkage": "student_t"},
}


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("values", [X, np.round(2 * X).astype(int)], ids=["real", "whole"])
def test_blocks_are_read_as_their_builders(kind, values):
    """Of inputs without dimensions, beside another block of other inputs."""
    build = nns.hierarchical_mlp if kind == "hierarchical" else nns.bow_tie
    alone = build(values, Y, hidden=(3,), **BLOCKS[kind])
    draws = prior(alone, 2, 20)
    expected = nns.relevance(draws, model=alone, prob=0.8).draws
    assert set(expected) == ({"W_ih1", "W_io"} if kind == "hierarchical" else {"W1"})
    block = getattr(nns.blocks, kind)
    with pm.Model() as model:
        x = pm.Data("inputs", values)
        f = block(x, hidden=(3,), name="f", **BLOCKS[kind])
        g = block(x**2, hidden=(3,), name="g", **BLOCKS[kind])
        h = block(x, hidden=(3,), name="h", **BLOCKS[kind])
        pm.Normal("y", f + g * h, 1, observed=Y)
    named = [draws.rename({name: f"{each}::{name}" for name in draws}) for each in "fgh"]
    both = xr.merge(named)
    found = nns.relevance(both, model=model, output="f").draws
    xr.testing.assert_allclose(found, expected.rename({name: f"f::{name}" for name in expected}))
    assert set(nns.relevance(both, model=model).draws) == {
        f"{each}::{name}" for each in "fh" for name in expected
    }
    with pytest.raises(ValueError, match="the block of either applied to the inputs"):
        nns.relevance(both, model=model, output="g")


def test_what_has_no_relevance():
    model = nns.intermediate_noise_mlp(X, Y, hidden=(3,), noise=0.5)
    with pytest.raises(ValueError, match="relevance needs weights with the dimension"):
        nns.relevance(prior(model, 1, 2), model=model)
    bow_tie = nns.bow_tie(X, Y, hidden=(3,))
    with pytest.raises(ValueError, match="idata lacks"):
        nns.relevance(prior(bow_tie, 1, 2).drop_vars("psi1"), model=bow_tie)
