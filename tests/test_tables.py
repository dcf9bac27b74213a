"""Names of columns and labels of rows, whatever kind of table holds them."""

import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import sparse

import pymc_nnsteps as nns
from pymc_nnsteps.tables import encoded, numbers, require_same_rows
from tests.modes import AS_WRITTEN

RNG = np.random.default_rng(0)
N_OBS = 6
X, Y = RNG.normal(size=(N_OBS, 3)), RNG.normal(size=N_OBS)
COLUMNS, ROWS = ["a", "b", "c"], list("uvwxyz")
DIMS = ("obs", "feature")


def polars(values, columns):
    return pytest.importorskip("polars").DataFrame(values, schema=list(columns), orient="row")


def data_array(values, columns, dims=DIMS):
    return xr.DataArray(values, dims=dims, coords={dims[1]: list(columns)})


def dataset(values, columns):
    return xr.Dataset({c: ("obs", v) for c, v in zip(columns, values.T, strict=True)})


TABLES = {
    "pandas": lambda values, columns: pd.DataFrame(values, columns=columns),
    "polars": polars,
    "xarray": data_array,
    "xarray, turned": lambda values, columns: data_array(values, columns).T,
    "xarray, other rows": lambda v, c: data_array(v, c, ("row", "feature")).T,
    "xarray, other columns": lambda v, c: data_array(v, c, ("obs", "column")).T,
    "Dataset": dataset,
}
BUILDERS = [nns.intermediate_noise_mlp, nns.wide_mlp, nns.hierarchical_mlp, nns.bow_tie]


def weights(model):
    rng = np.random.default_rng(1)
    wanted = [rv for rv in model.free_RVs if rv.name[0] in "Wb"]
    names = {
        rv.name: (
            ("chain", "draw", *model.named_vars_to_dims[rv.name]),
            rng.normal(size=(1, 2, *model.initial_point(0)[rv.name].shape)),
        )
        for rv in wanted
    }
    return xr.Dataset(names, {"chain": [0], "draw": [0, 1]})


@pytest.mark.parametrize("kind", TABLES)
def test_columns_are_found_by_name_in_every_table(kind):
    """A kind whose names are not seen has its columns paired by position: a silent wrong answer."""
    kinds = list(TABLES)
    old, new = TABLES[kind], TABLES[kinds[kinds.index(kind) - 1]]
    model = nns.intermediate_noise_mlp(old(X, COLUMNS), Y, hidden=())
    assert model.coords["feature"] == tuple(COLUMNS)
    order = [2, 0, 1]
    turned = new(X[:4, order], [COLUMNS[i] for i in order])
    draws = weights(model)
    expected = draws["W1"].values @ X[:4].T + draws["b1"].values[..., None]
    f = nns.predict(draws, turned, model=model)
    np.testing.assert_allclose(f[..., 0], expected[..., 0, :], rtol=1e-12)
    with pytest.raises(ValueError, match=r"X_new must have the columns \['a', 'b', 'c'\]"):
        nns.predict(draws, new(X, ["a", "b", "d"]), model=model)


TARGETS = {
    "pandas": TABLES["pandas"],
    "polars": polars,
    "xarray": lambda values, columns: data_array(values, columns, ("obs", "output")).T,
    "Dataset": dataset,
}


@pytest.mark.parametrize("table", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("build", BUILDERS)
def test_builders_keep_names(build, table):
    model = build(X, table(X[:, :2], ["left", "mid"]), hidden=(2,))
    assert model.coords["output"] == ("left", "mid")
    np.testing.assert_array_equal(model["targets"].get_value(), X[:, :2])


@pytest.mark.parametrize(
    "labelled",
    [
        pd.DataFrame(X, index=ROWS),
        xr.DataArray(X, dims=DIMS, coords={"obs": ROWS}),
        xr.DataArray(X.T, dims=DIMS[::-1], coords={"obs": ROWS}),
    ],
    ids=["pandas", "xarray", "xarray, turned"],
)
def test_rows_keep_their_labels(labelled):
    model = nns.intermediate_noise_mlp(X, Y, hidden=())
    f = nns.predict(weights(model), labelled, model=model)
    assert list(f["obs"].values) == ROWS


def test_numbers_for_names_of_columns():
    """Those of a table without names of its own stay where they are; chosen ones are looked up."""
    model = nns.intermediate_noise_mlp(pd.DataFrame(X)[[2, 0, 1]], Y, hidden=())
    draws = weights(model)
    expected = nns.predict(draws, X[:, [2, 0, 1]], model=model)
    np.testing.assert_array_equal(nns.predict(draws, pd.DataFrame(X), model=model), expected)
    named = nns.intermediate_noise_mlp(pd.DataFrame(X, columns=COLUMNS), Y, hidden=())
    np.testing.assert_array_equal(
        nns.predict(draws, pd.DataFrame(X), model=named), nns.predict(draws, X, model=named)
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame(X, columns=["a", "b", "a"]), "has several columns 'a'"),
        (sparse.csr_array(X), r"is sparse; pass \w+.toarray\(\)"),
        (sparse.coo_matrix(X), "is sparse"),
        (
            pd.DataFrame({"a": Y, "b": Y, "c": [*"abcde", 1]}),
            r"has objects \(int, str\) in the .* 'c'",
        ),
        (
            pd.DataFrame({"day": pd.to_datetime(["2020-01-01"] * 6)}),
            "has dates .* 'day'; pass numbers",
        ),
        (
            pd.DataFrame({"day": [pd.Timestamp("2020").date()] * 6}),
            "has dates .* 'day'; pass numbers",
        ),
        (pd.DataFrame({"c": [Decimal(1)] * 6}), r"has objects \(Decimal\) in the column 'c'; conv"),
        (
            pd.DataFrame(X, columns=pd.MultiIndex.from_tuples(["aa", "ab", "bb"])),
            "has columns with",
        ),
        (pd.DataFrame(X + 1j), "has complex128 in the column 0"),
    ],
    ids=[
        "twice",
        "sparse array",
        "sparse matrix",
        "mixed",
        "times",
        "dates",
        "decimals",
        "levels",
        "complex",
    ],
)
@pytest.mark.parametrize("argument", ["X", "y", "X_new"])
def test_tables_that_cannot_be_read(argument, table, message):
    model = nns.intermediate_noise_mlp(X, Y, hidden=())
    use = {
        "X": lambda: nns.wide_mlp(table, Y),
        "y": lambda: nns.wide_mlp(X, table),
        "X_new": lambda: nns.predict(weights(model), table, model=model),
    }
    with pytest.raises(ValueError, match=f"^{argument} {message}"):
        use[argument]()


RAW = {"km": [1.0, 7.0, 2.0, 5.0, 4.0, 3.0], "new": [True, False, False, True, True, False]}
DEPOT = ["north", "south", "east", "south", "north", "east"]
LEVELS = ["south", "east", "north", "west"]
BY_HAND = pd.DataFrame(RAW).astype(float)


def encoded_by_hand(levels, standardize=False):
    km = BY_HAND["km"]
    shown = BY_HAND.assign(km=(km - km.mean()) / km.std(ddof=0)) if standardize else BY_HAND
    one = {f"depot[{level}]": [float(depot == level) for depot in DEPOT] for level in levels}
    return shown.assign(**one)


def of_polars(depot):
    polars = pytest.importorskip("polars")
    return polars.DataFrame(RAW | {"depot": polars.Series(DEPOT, dtype=getattr(polars, depot))})


def of_polars_levels():
    polars = pytest.importorskip("polars")
    return polars.DataFrame(RAW | {"depot": polars.Series(DEPOT, dtype=polars.Enum(LEVELS))})


WITH_TEXT = {
    "pandas": (lambda: pd.DataFrame(RAW | {"depot": DEPOT}), sorted(set(DEPOT))),
    "objects": (lambda: pd.DataFrame(RAW | {"depot": pd.Series(DEPOT, dtype=object)}), None),
    "nullable": (lambda: pd.DataFrame(RAW | {"depot": DEPOT}).convert_dtypes(), None),
    "polars": (lambda: of_polars("String"), None),
    "polars, categories": (lambda: of_polars("Categorical"), None),
    "Dataset": (lambda: xr.Dataset.from_dataframe(pd.DataFrame(RAW | {"depot": DEPOT})), None),
    "records": (lambda: pd.DataFrame(RAW | {"depot": DEPOT}).to_records(index=False), None),
    "levels": (lambda: pd.DataFrame(RAW | {"depot": pd.Categorical(DEPOT, LEVELS)}), LEVELS),
    "polars, levels": (of_polars_levels, LEVELS),
}


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("kind", WITH_TEXT)
def test_text_is_encoded_as_by_hand(kind, standardize):
    """Densities and predictions are those of a matrix, whatever the order of new columns."""
    table, levels = WITH_TEXT[kind][0](), WITH_TEXT[kind][1] or sorted(set(DEPOT))
    options = {"hidden": (), "noise": 0.1}
    model = nns.intermediate_noise_mlp(table, Y, standardize=standardize, **options)
    shown = encoded_by_hand(levels, standardize)
    expected = nns.intermediate_noise_mlp(shown, Y, **options)
    assert model.coords == expected.coords
    np.testing.assert_array_equal(model["inputs"].get_value(), encoded_by_hand(levels))
    draws = weights(model)
    point = {name: values[0, 0] for name, values in draws.items()} | expected.initial_point(0)
    of_model, of_expected = (m.compile_logp(mode=AS_WRITTEN)(point) for m in (model, expected))
    assert of_model == of_expected
    f = nns.predict(draws, shown, model=expected)
    other = pd.DataFrame({"depot": DEPOT} | RAW)[3:]
    np.testing.assert_array_equal(nns.predict(draws, other, model=model), f[:, :, 3:])
    assert list(nns.prediction.encode(other, model=model)) == ["inputs"]


@pytest.mark.parametrize("make", [pd.DataFrame, lambda data: polars(data, data)])
def test_measurements_as_text_are_no_levels(make):
    """Those of a unit may be few, such as sizes of bottles."""
    for text in ("160.{} kn", "-{}m/s2", "1 {} °C", "{},5"):
        data = {"speed": [text.format(i % 20) for i in range(30)]}
        with pytest.raises(ValueError, match=r"X has numbers as text in the column 'speed'; .*t"):
            encoded("X", make(data), ("obs", "feature"))
    for text in ("{} ml", "A{}"):
        data = {"size": [text.format(i % 4) for i in range(30)]}
        assert encoded("X", make(data), ("obs", "feature")).values.shape == (30, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"depot": "west"},
            "has 'west' in the column 'depot', but the model knows only 'east', 'no",
        ),
        ({"depot": None}, r"has 6 NaN .* X_new\[0, 2\] \(6 in the column 'depot'\)"),
        ({"depot": 1}, "has '1' in the column 'depot', but"),
        ({"km": "far"}, "has text in the column 'km', but the model's is one of numbers"),
        ({"km": np.nan}, r"has 6 NaN .* X_new\[0, 0\] \(6 in the column 'km'\)"),
    ],
)
def test_new_tables_of_other_columns(change, message):
    table = pd.DataFrame(RAW | {"depot": DEPOT})
    model = nns.intermediate_noise_mlp(table, Y, hidden=())
    with pytest.raises(ValueError, match=f"X_new {message}"):
        nns.predict(weights(model), table.assign(**change), model=model)
    with pytest.raises(ValueError, match=r"X_new must have .*; it lacks \['depot'\]"):
        nns.predict(weights(model), table[["km", "new"]], model=model)


def test_columns_that_a_model_does_not_have_are_left_out():
    """A raw table has keys, dates and targets too; a misspelt column is one that is lacking."""
    table = pd.DataFrame(RAW | {"depot": DEPOT})
    model = nns.intermediate_noise_mlp(table, Y, hidden=())
    beside = {"at": pd.Timestamp("2026-01-01"), "name": "text", "targets of": np.nan}
    wider = table.assign(**beside)[[*beside, *table.columns[::-1]]]
    expected = nns.predict(weights(model), table, model=model)
    np.testing.assert_array_equal(nns.predict(weights(model), wider, model=model), expected)
    numeric = nns.intermediate_noise_mlp(table[["km"]], Y, hidden=())
    expected = nns.predict(weights(numeric), table[["km"]], model=numeric)
    for given in (wider, wider[["at", "km"]].to_xarray(), table[["new", "km"]].to_xarray()):
        np.testing.assert_array_equal(nns.predict(weights(numeric), given, model=numeric), expected)
    with pytest.raises(ValueError, match=r"X_new must have .*; it lacks \['km'\]"):
        nns.predict(weights(numeric), table.rename(columns={"km": "Km"}), model=numeric)


def test_missing_entries_are_nan():
    frame = pd.DataFrame({"a": [1, None], "b": [True, False]}).astype({"a": "Int64"})
    values = numbers("X", frame, DIMS).values
    np.testing.assert_array_equal(values, [[1, 1], [np.nan, 0]])


SHUFFLED = ROWS[::-1]
PAIRS = {
    "same": (pd.DataFrame(X, index=ROWS), pd.Series(Y, index=ROWS), None),
    "numbered targets": (pd.DataFrame(X, index=ROWS), pd.Series(Y), None),
    "numbered inputs": (pd.DataFrame(X), pd.Series(Y, index=ROWS), None),
    "part of a table": (
        pd.DataFrame(X, index=range(1, 12, 2)),
        pd.Series(Y),
        "other row labels than X",
    ),
    "shifted": (
        pd.DataFrame(X),
        pd.Series(Y, index=range(3, 9)),
        "other row labels than X",
    ),
    "arrays": (X, pd.Series(Y, index=ROWS), None),
    "shuffled": (
        pd.DataFrame(X, index=SHUFFLED),
        pd.Series(Y, index=ROWS),
        "the row labels of X in another order",
    ),
    "shuffled numbers": (
        pd.DataFrame(X, index=range(N_OBS)[::-1]),
        pd.Series(Y),
        "the row labels of X in another order",
    ),
    "others": (
        pd.DataFrame(X, index=ROWS),
        pd.DataFrame(Y, index=range(3, 9)),
        "other row labels than X",
    ),
    "two libraries": (
        xr.DataArray(X.T, dims=DIMS[::-1], coords={"obs": ROWS}),
        pd.Series(Y, index=SHUFFLED),
        "the row labels of X in another order",
    ),
}


@pytest.mark.parametrize(("inputs", "targets", "message"), PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("build", [None, *BUILDERS])
def test_rows_of_inputs_and_targets(build, inputs, targets, message):
    """Rows paired by position against their labels make a model of other data."""

    def pair():
        return require_same_rows(inputs, targets) if build is None else build(inputs, targets)

    if message is None:
        pair()
    else:
        with pytest.raises(ValueError, match=re.escape(f"y has {message}; ")):
            pair()
