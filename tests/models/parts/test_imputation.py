"""Laws of columns with gaps."""

import numpy as np
import pandas as pd
import polars as pl
import pymc as pm
import pytensor
import pytest
import xarray as xr
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


def of_polars(X):
    """Of objects, which Polars takes by columns without Arrow."""
    return pl.DataFrame(X.astype(object).where(X.notna(), None).to_dict("list"))


TABLES = {
    "None": lambda X: X,
    "NaN": lambda X: X.fillna(np.nan),
    "NA": lambda X: X.convert_dtypes(),
    "categories": lambda X: X.astype({"depot": "category", "new": "boolean"}),
    "polars": of_polars,
    "polars categories": lambda X: of_polars(X).with_columns(pl.col("depot").cast(pl.Categorical)),
}


@pytest.mark.parametrize("name", TABLES)
def test_levels_are_drawn_by_their_shares(name):
    """Of text, categories and booleans, whatever stands for what is missing."""
    X = pd.DataFrame(
        {
            "depot": ["b", None, "a", "b", None, "c"],
            "new": [True, None, True, False, None, True],
            "b": [1.0, np.nan, 0.5, 3.0, 2.0, 1.0],
        }
    )
    with pm.Model() as model:
        x = nns.blocks.table(TABLES[name](X), missing="impute", standardize=True)
    assert [rv.name for rv in model.free_RVs] == [
        *(f"inputs::b_{each}" for each in ("weights", "sigma", "missing")),
        *(f"inputs::{each}" for each in ("depot_shares", "depot_missing")),
        *(f"inputs::{each}" for each in ("new_shares", "new_missing")),
    ]
    assert model["inputs::b_weights"].type.shape == (1,)  # no category with gaps enters
    indicators = model["inputs"].get_value()[:, :4]
    np.testing.assert_array_equal(indicators[[1, 4]], [[0, 1, 0, 1]] * 2)
    levels = {"depot": [2, 0], "new": [0, 1], "b": [0.0]}
    drawn = {model[f"inputs::{name}_missing"]: np.array(value) for name, value in levels.items()}
    [whole] = pytensor.graph.clone_replace([x[:, :4]], drawn, rebuild_strict=False)
    wanted = [[0, 1, 0, 1], [0, 0, 1, 0], [1, 0, 0, 1], [0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 1, 1]]
    np.testing.assert_array_equal(whole.eval(mode="FAST_COMPILE"), wanted)
    for name, known in (("depot", [1, 0, 1, 2]), ("new", [1, 1, 0, 1])):
        observed = model.rvs_to_values[model[f"inputs::{name}_observed"]]
        np.testing.assert_array_equal(observed.eval(mode="FAST_COMPILE"), known)
    p = np.array([0.2, 0.5, 0.3])
    density = model.logp(vars=[model["inputs::depot_missing"], model["inputs::depot_observed"]])
    names = {value.name: value for value in model.value_vars}
    at = {
        names["inputs::depot_shares_simplex__"]: (np.log(p) - np.log(p).mean())[:-1],
        names["inputs::depot_missing"]: np.array([2, 0]),
    }
    wanted = np.log(p[[1, 0, 1, 2, 2, 0]]).sum()
    assert density.eval(at, mode="FAST_COMPILE") == pytest.approx(wanted)


def test_indicators_without_names_are_those_of_one_category():
    """Would catch a row of two levels, or of none."""
    X = np.column_stack([RNG.random(8), np.arange(8) % 2, np.eye(3)[np.arange(8) % 3]])
    X[:2, 2:], X[3, 1] = np.nan, np.nan
    with pm.Model() as model:
        x = nns.blocks.table(X, missing="impute")
        f = pm.Deterministic("f", x @ [0.0, 0.0, 1.0, 10.0, 100.0])
        pm.Normal("y", f, 1, observed=np.zeros(8))
    drawn = {model["inputs::2:4_missing"]: np.array([2, 1])}
    [values] = pytensor.graph.clone_replace([f[:2]], drawn, rebuild_strict=False)
    assert values.eval(mode="FAST_COMPILE").tolist() == [100, 10]
    shares = {"inputs::1_shares": [0.4, 0.6], "inputs::2:4_shares": [0.2, 0.5, 0.3]}
    posterior = xr.Dataset(
        {name: (("chain", "draw", name), [[p] * 9]) for name, p in shares.items()}
    )
    posterior = posterior.assign_coords(chain=[0], draw=np.arange(9))
    assert set(np.unique(nns.predict(posterior, X, model=model))) == {1.0, 10.0, 100.0}
    with pytest.raises(ValueError, match=r"some but not all of the columns \[2, 3, 4\] in row 1"):
        nns.predict(posterior, np.where(np.eye(8, 5, 2) > 0, np.nan, X)[1:], model=model)


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
        (frame().assign(b=np.nan), {"missing": "impute"}, "only missing entries in the columns"),
        (frame().replace(np.nan, np.inf), {"missing": "impute"}, "NaN or infinite"),
        (frame(), {"missing": "mean"}, 'missing must be one of "impute"'),
        (frame().assign(d=["x", None, "y"] * 3), {}, r"\(2 in .*'a', 4 in .*'b', 3 in .*'d'\)"),
        (
            frame().assign(d=["x", None, "x"] * 3),
            {"missing": "impute"},
            "besides 'x' in the column 'd'; make a level of them",
        ),
        (frame().assign(d=[True, None, True] * 3), {"missing": "impute"}, "besides one value in"),
        (frame().assign(a=[np.nan] + [2.0] * 8), {"missing": "impute"}, "'a', which is constant"),
        (frame().assign(a=lambda X: 2 * X["b"] - X["c"]), {"missing": "impute"}, "linear function"),
        (frame().set_axis(["a/b", "a_b", "c"], axis=1), {"missing": "impute"}, "called 'a_b'"),
        (
            frame().assign(d=[1.0, 0, np.nan] * 3, e=[0, 1, 1] * 3),
            {"missing": "impute"},
            "NaN in some but not all of the columns 'd', 'e' in a row",
        ),
    ],
)
def test_unusable_gaps_are_refused(X, options, message):
    with pytest.raises(ValueError, match=message):
        nns.hierarchical_mlp(X, np.zeros(9), **options)
