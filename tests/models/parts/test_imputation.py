"""Laws of columns with gaps."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy import stats

import pymc_nnsteps as nns

RNG = np.random.default_rng(0)


def frame():
    """Columns of which b has most gaps and c none."""
    X = pd.DataFrame(RNG.normal(2, 3, size=(9, 3)), columns=["a", "b", "c"])
    X.loc[:1, "a"], X.loc[1:4, "b"] = np.nan, np.nan
    return X


def test_columns_are_jointly_gaussian_given_those_without_gaps():
    """The density of all entries, those that are missing too; would catch a wrong order or row."""
    X = frame()
    with pm.Model() as model:
        nns.blocks.table(X, missing="impute")
    rvs = [*model.free_RVs, *model.observed_RVs]
    names = ["a_weights", "a_sigma", "a_missing", "b_weights", "b_sigma", "b_missing"]
    assert [rv.name for rv in model.free_RVs] == [f"inputs::{name}" for name in names]
    point = {rv.name: np.abs(RNG.normal(size=rv.type.shape)) for rv in model.free_RVs}
    whole = X.copy()
    whole.loc[:1, "a"], whole.loc[1:4, "b"] = point["inputs::a_missing"], point["inputs::b_missing"]
    to_a, to_b = point["inputs::a_weights"], point["inputs::b_weights"]
    slopes = np.array([[0, 0], [to_b[1], 0]])
    inverse = np.linalg.inv(np.eye(2) - slopes)
    means = np.stack([to_a[0] + to_a[1] * whole["c"], to_b[0] + to_b[2] * whole["c"]], axis=1)
    scales = np.array([point["inputs::a_sigma"], point["inputs::b_sigma"]])
    law = stats.multivariate_normal(cov=inverse @ np.diag(scales**2) @ inverse.T)
    wanted = law.logpdf(whole[["a", "b"]] - means @ inverse.T).sum()
    entries = [rv for rv in rvs if rv.name.endswith(("missing", "observed"))]
    values = {model.rvs_to_values[rv].name: point[rv.name] for rv in model.free_RVs}
    with model:
        densities = model.logp(vars=entries, jacobian=False, sum=True)
    at = {v.name: v for v in model.value_vars}
    got = densities.eval(
        {
            at[name]: np.log(value) if name.endswith("log__") else value
            for name, value in values.items()
        },
        mode="FAST_COMPILE",
    )
    assert got == pytest.approx(wanted, rel=1e-12)


def test_builders_and_blocks_have_the_same_inputs():
    X, y = frame().rename(columns={"b": "km/h"}), RNG.normal(size=9)
    model = nns.wide_mlp(X, y, hidden=(3,), standardize=True, missing="impute")
    with pm.Model() as by_hand:
        x = nns.blocks.table(X, standardize=True, missing="impute")
    assert x.type.ndim == 2
    for rv in by_hand.free_RVs:
        assert model[rv.name].type == rv.type
    np.testing.assert_allclose(model["inputs"].get_value(), X.fillna(X.mean()))
    wanted = (X["a"] - X["a"].mean()) / X["a"].std(ddof=0)
    observed = model.rvs_to_values[model["inputs::a_observed"]].eval()
    np.testing.assert_allclose(observed, wanted.dropna())


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (frame(), {}, r'pass missing="impute" to have them drawn'),
        (frame().assign(b=np.nan), {"missing": "impute"}, "nothing but NaN in the columns"),
        (frame().replace(np.nan, np.inf), {"missing": "impute"}, "NaN or infinite"),
        (frame(), {"missing": "mean"}, 'missing must be one of "impute"'),
    ],
)
def test_unusable_gaps_are_refused(X, options, message):
    with pytest.raises(ValueError, match=message):
        nns.hierarchical_mlp(X, np.zeros(9), **options)
