"""Effects of new groups have the law of those that are known, at each draw of its parameters."""

from functools import partial

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy.stats import chi2, kstest

import pymc_nnsteps as nns
from pymc_nnsteps.prediction import blocks

RNG = np.random.default_rng(0)
N_OBS, N_GROUPS, N_DRAWS = 12, 4, 4000
X, GROUP = RNG.normal(size=(N_OBS, 2)), np.arange(N_OBS) % N_GROUPS
NEW = {"inputs": X[:5], "group": np.array([2, 4, 5, 4, 0])}
"""Rows of the known groups 2 and 0, two of one new group, and one of another."""


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    monkeypatch.setattr(blocks, "c_by_default", lambda: {"mode": "FAST_COMPILE"})


def model_of(effects):
    """A normal model of the mean ``effects(x, group) + x @ w``."""
    with pm.Model(coords={"groups": range(N_GROUPS)}) as model:
        x, group = pm.Data("inputs", X), pm.Data("group", GROUP)
        w = pm.Normal("w", shape=2)
        pm.Normal("y", effects(x, group) + x @ w, 0.5, observed=np.zeros(N_OBS))
    return model


def draws_of(**values):
    """Draws of the variables, and weights that are the same in all."""
    values["w"] = np.broadcast_to([1.0, -2.0], (N_DRAWS, 2))
    stored = {
        name: (("chain", "draw", *(f"{name}_dim_{i}" for i in range(each.ndim - 1))), each[None])
        for name, each in values.items()
    }
    return xr.Dataset(stored, {"chain": [0], "draw": np.arange(N_DRAWS)})


MU, SD = RNG.normal(3, 1, N_DRAWS), np.exp(RNG.normal(size=N_DRAWS))
EFFECTS = RNG.normal(size=(N_DRAWS, N_GROUPS))


def centred(x, group):
    mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
    return pm.Normal("a", mu, sd, dims="groups")[group]


def not_centred(x, group):
    mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
    return pm.Deterministic("a_of", mu + sd * pm.Normal("a", shape=N_GROUPS))[group]


def about_their_mean(x, group):
    mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
    a = pm.Normal("a", mu, sd, dims="groups")
    return (a - a.mean())[group]


def about_their_mean_by_name(x, group):
    mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
    a = pm.Normal("a", mu, sd, dims="groups")
    return pm.Deterministic("beyond", a - a.mean(0, keepdims=True), dims="groups")[group]


@pytest.mark.parametrize(
    "effects", [centred, not_centred, about_their_mean, about_their_mean_by_name]
)
@pytest.mark.parametrize("kind", ["function", "response"])
def test_law_of_new_effects(effects, kind):
    """Given the hyperparameters of the same draw: not of another, nor the mean, nor a known one."""
    model = model_of(effects)
    draws = draws_of(mu=MU, sd=SD, a=EFFECTS)
    found = nns.predict(
        draws, NEW, model=model, kind=kind, sample_new_groups=True, random_seed=1
    ).values[0, :, :, 0]
    residuals = found - NEW["inputs"] @ [1.0, -2.0]
    known = EFFECTS[:, [2, 0]]
    if effects is not_centred:
        known = MU[:, None] + SD[:, None] * known
    if effects in (
        about_their_mean,
        about_their_mean_by_name,
    ):  # that of the known groups, whatever new ones are drawn
        residuals = residuals + EFFECTS.mean(1, keepdims=True)
    noise = 0.0 if kind == "function" else 0.5
    errors = residuals[:, [0, 4]] - known
    assert np.abs(errors).max() < 1e-9 if noise == 0 else abs(errors.std() / noise - 1) < 0.03
    z = (residuals[:, 1:4] - MU[:, None]) / np.hypot(SD, noise)[:, None]
    assert all(kstest(column, "norm").pvalue > 1e-3 for column in z.T)
    assert abs(np.corrcoef(z[:, 0], z[:, 1])[0, 1]) < 4 / N_DRAWS**0.5
    same = (residuals[:, 1] - residuals[:, 3]) / (2**0.5 * 0.5)
    assert np.abs(same).max() < 1e-9 if noise == 0 else abs(same.std() - 1) < 0.05


def test_correlated_effects():
    """Intercept and slope of a new group are drawn together."""
    covariance = np.array([[1.0, 0.8], [0.8, 2.0]])

    def effects(x, group):
        B = pm.MvNormal("B", pm.Normal("mu", shape=2), covariance, shape=(N_GROUPS, 2))
        return B[group, 0] + B[group, 1] * x[:, 0]

    mu = RNG.normal(size=(N_DRAWS, 2))
    draws = draws_of(mu=mu, B=RNG.normal(size=(N_DRAWS, N_GROUPS, 2)))
    found = nns.predict(draws, NEW, model=model_of(effects), sample_new_groups=True, random_seed=1)
    residuals = (found.values[0, :, :, 0] - NEW["inputs"] @ [1.0, -2.0])[:, [1, 3]]
    design = np.column_stack([np.ones(2), NEW["inputs"][[1, 3], 0]])
    B = np.linalg.solve(design, residuals.T).T - mu
    squares = np.einsum("ni,ij,nj->n", B, np.linalg.inv(covariance), B)
    assert kstest(squares, chi2(2).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(B.T)[0, 1] - 0.8 / 2**0.5) < 0.03


def zero_sum(x, group):
    return pm.ZeroSumNormal("a", shape=N_GROUPS)[group]


def cut_off(x, group):
    return pm.Normal("a", default_transform=pm.distributions.transforms.log, shape=N_GROUPS)[group]


def with_potential(x, group):
    a = pm.Normal("a", shape=N_GROUPS)
    pm.Potential("sum", -(a.sum() ** 2))
    return a[group]


def process(x, group):
    return pm.MvNormal("a", np.zeros(N_GROUPS), 0.5 + 0.5 * np.eye(N_GROUPS))[group]


def of_parents(x, group):
    return pm.Normal("a", pm.Normal("mu", shape=2)[np.array([0, 1, 1, 0])], 1)[group]


def nested(x, group):
    return pm.Normal("a", shape=2)[pt.as_tensor(np.array([0, 1, 1, 0]))[group]]


def explained(x, group):
    return (pm.Normal("a", shape=N_GROUPS) + pm.Data("level", np.arange(4.0)))[group]


def centred_afterwards(x, group):
    a = pm.Normal("a", shape=N_GROUPS)
    return a[group] - a.mean()


@pytest.mark.parametrize(
    ("effects", "message"),
    [
        (zero_sum, "a is ZeroSumNormal, whose entries for new groups are not known to be"),
        (cut_off, "a is Normal, whose entries for new groups are not known to be independent"),
        (with_potential, "a is Normal, whose entries for new groups are not known to be ind"),
        (process, "a is MultivariateNormal, whose entries for new groups are not known to be"),
        (of_parents, "a has a different distribution for each group, and none for new groups"),
        (nested, "X_new picks entries of .* for new groups, whose distribution is not known"),
        (
            explained,
            "of an expression of a, level for new .* pairs rows with entries of level",
        ),
        (centred_afterwards, "a enters the output other than by the entry of each row's group"),
    ],
)
def test_what_is_not_known_of_new_groups(effects, message):
    """Where they have no law, or entries of known groups would change with them."""
    model = model_of(effects)
    shapes = {"mu": 2, "a": 2 if effects is nested else N_GROUPS}
    draws = draws_of(**{name: RNG.normal(size=(N_DRAWS, n)) for name, n in shapes.items()})
    with pytest.raises(ValueError, match=message):
        nns.predict(draws, NEW, model=model, sample_new_groups=True)
    nns.predict(draws, X, model=model, sample_new_groups=True)
    with pytest.raises(ValueError, match="sample_new_groups must be True or False; got 'yes'"):
        nns.predict(draws, X, model=model, sample_new_groups="yes")
    with pytest.raises(
        ValueError, match=r"X_new picks entry 4 of .* are numbers, or .*new_groups=True"
    ):
        nns.predict(draws, NEW, model=model)


CITIES = ["Aix", "Brest", "Caen", "Dole"]
ASKED = ["Caen", "Aix", "Dole", "Aix", "Brest"]
"""Labels of the groups 2, 0, 3, 0, 1."""
OTHERS = ["X", "Dole", "Y", "X", "Y"]
"""Labels of the group 3 and of two new ones."""


def expressed(x, group):
    mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
    return (mu + sd * pm.Normal("a", dims="groups"))[group]


def by_column(x, group):
    return pm.Normal("a", dims=("kind", "groups"))[1, group]


def of_regions(x, group):
    region = pm.Data("region", np.array([1, 0, 1, 1]), dims="groups")
    return pm.Normal("a", shape=2)[region[group]]


def labelled(effects):
    """A model whose groups have labels, and draws of its prior."""
    with pm.Model(coords={"groups": CITIES, "kind": ["u", "v"]}) as model:
        x, group = pm.Data("inputs", X), pm.Data("group", GROUP)
        pm.Normal("y", effects(x, group) + x @ pm.Normal("w", shape=2), 0.5, observed=X[:, 0])
        options = {"random_seed": 1, "compile_kwargs": {"mode": "FAST_COMPILE"}}
        return model, pm.sample_prior_predictive(3, **options)["prior"].to_dataset()


@pytest.mark.parametrize("effects", [centred, about_their_mean, expressed, by_column, of_regions])
def test_groups_by_their_labels(effects):
    """The label of another group; another order of new ones."""
    model, draws = labelled(effects)

    def predicted(group, **options):
        given = {"inputs": X[:5], "group": group}
        return nns.predict(draws, given, model=model, random_seed=1, **options).values

    by_number = predicted([2, 0, 3, 0, 1])
    polars = pytest.importorskip("polars")
    for table in (list, np.array, pd.Series, pd.Categorical, polars.Series):
        np.testing.assert_array_equal(predicted(table(ASKED)), by_number)
    if effects in (centred, about_their_mean):
        new = [predicted(each, sample_new_groups=True) for each in (OTHERS, [4, 3, 5, 4, 5])]
        np.testing.assert_array_equal(*new)
    with pytest.raises(ValueError, match=r"'group'\] has the labels 'X', 'Y', but .* 'Aix', 'Bre"):
        predicted(OTHERS)
    for missing in (None, np.nan):
        with pytest.raises(ValueError, match=r"'group'\] has 1 missing labels; remove"):
            predicted([missing, *ASKED[1:]], sample_new_groups=True)


@pytest.mark.parametrize("dtype", ["datetime64[D]", "datetime64[ns]", object])
def test_groups_by_dates(dtype):
    """NumPy makes numbers of a list of nanoseconds."""
    days = pd.date_range("2020-01-01", periods=N_GROUPS)
    with pm.Model(coords={"day": days}) as model:
        x, day = pm.Data("inputs", X), pm.Data("day_of_row", GROUP)
        f = pm.Deterministic("f", pm.Normal("a", dims="day")[day] + x[:, 0])
        pm.Potential("p", pm.logp(pm.Normal.dist(f, 1), X[:, 0]))
    draws = xr.Dataset({"a": (("chain", "draw", "day"), RNG.normal(size=(1, 3, N_GROUPS)))})
    expected = nns.predict(draws, X[:2], groups=[2, 0], model=model)
    asked = days[[2, 0]].to_numpy().astype(dtype) if dtype is not object else list(days[[2, 0]])
    np.testing.assert_array_equal(nns.predict(draws, X[:2], groups=asked, model=model), expected)


def test_groups_beside_a_table():
    """As an argument, by name, as a column, and as numbers for ``pm.set_data``."""
    polars = pytest.importorskip("polars")
    table = pd.DataFrame(X, columns=["u", "v"])
    with pm.Model(coords={"feature": ["u", "v"], "groups": CITIES}) as model:
        x, group = pm.Data("inputs", table, dims=(None, "feature")), pm.Data("group", GROUP)
        mean = pm.Normal("a", dims="groups")[group] + pm.Data("time", X[:, 1]) + x @ [1.0, -2.0]
        pm.Normal("y", mean, 1, observed=X[:, 0])
    draws = xr.Dataset({"a": (("chain", "draw", "groups"), RNG.normal(size=(1, 3, N_GROUPS)))})
    new, time = table[["v", "u"]][:5], np.arange(5.0)
    timed = new.assign(time=time)
    rows = {"inputs": X[:5], "time": time, "group": [2, 0, 3, 0, 1]}
    expected = nns.predict(draws, rows, model=model)
    column = polars.DataFrame(timed.to_dict("list") | {"group": ASKED})
    ways = [(timed, ASKED), (timed.to_xarray(), {"group": ASKED}), (column, None)]
    ways.append(({"inputs": new, "time": time}, ASKED))
    for given, groups in ways:
        found = nns.predict(draws, given, groups=groups, model=model)
        np.testing.assert_array_equal(found, expected)
    encoded = nns.prediction.encode(column, model=model)
    np.testing.assert_array_equal(encoded["inputs"], X[:5])
    np.testing.assert_array_equal(encoded["group"], [2, 0, 3, 0, 1])
    with pytest.raises(ValueError, match="has the labels 'X', 'Y', but the model knows 'Aix'"):
        nns.prediction.encode({"inputs": new, "group": OTHERS}, model=model)
    with pytest.raises(ValueError, match="groups must be left out, as"):
        nns.predict(draws, X, groups=ASKED, model=nns.intermediate_noise_mlp(X, X[:, 0]))


@pytest.mark.parametrize(
    ("labels", "given", "picked"),
    [
        ([101, 102, 105, 109], [105, 101], [2, 0]),
        ([101, 102, 105, 109], pd.Series([109, 102]), [3, 1]),
        ([101, 102, 105, 109], [2, 0], [2, 0]),
        ([1, 2, 3, 4], [4.0, 1.0], [3, 0]),
        ([1, 2, 3, 4], [0, 3], [0, 3]),
        ([1, 2, 3, 4], np.array([2, 1], object), [1, 0]),
        ([1, 2, 3, 4], [1, 2], "holds 1, 2, which are labels of groups and numbers of other ones"),
        ([1, 2, 3, 4], [0, 4], "has the labels 0, but the model knows 1, 2, 3, 4;"),
        ([0, 1, 2, 3], [3, 1], [3, 1]),
        ([1.0, 2.0, 3.0, 4.0], [4.0, 1.0], [3, 0]),
        ([0.5, 2.0, 2.5, 4.0], [2.5, 0.5], [2, 0]),
        (["12", "13", "14", "15"], [14, 12], [2, 0]),
        ([12, 13, 14, 15], ["14", "12"], [2, 0]),
        (["1", "2", "3", "4"], [1, 2], "holds 1, 2, which are labels of groups and numbers of"),
        (["07", "7", "8", "9"], ["7", "07"], [1, 0]),
        ([0, 1, 2, 3], [True, False], [1, 0]),
        ([True, False, None, "x"], [True, False], [0, 1]),
        ([1, 2, 3, 4], [True], "has the labels True, but the model knows 1, 2, 3, 4;"),
        (["a", "b", "c", "d"], [True, False], "has the labels True, False, but .* 'a', 'b'"),
    ],
)
def test_integers_are_labels_where_they_cannot_be_numbers(labels, given, picked):
    with pm.Model(coords={"site": labels}) as model:
        x = pm.Data("inputs", np.zeros((4, 1)))
        w, a = pm.Normal("w", 0, 1, shape=1), pm.Normal("a", 0, 1, dims="site")
        pm.Normal("y", x @ w + a[pm.Data("row", [0, 1, 2, 3])], 1, observed=np.zeros(4))
    values = {"w": np.zeros((1, 1, 1)), "a": np.array([[[10.0, 11.0, 12.0, 13.0]]])}
    draws = az.from_dict({"posterior": values})
    inputs = np.zeros((len(given), 1))
    predict = partial(nns.predict, draws, inputs, model=model, groups={"row": given})
    if isinstance(picked, str):
        with pytest.raises(ValueError, match=picked):
            predict()
    else:
        np.testing.assert_array_equal(predict().values.ravel(), 10 + np.array(picked))


@pytest.mark.parametrize(
    "effects", [not_centred, lambda x, group: pm.Normal("a", dims="groups")[::-1][group]]
)
def test_labels_of_what_has_none(effects):
    """Effects without a dimension, or in another order than that of its labels."""
    model, draws = labelled(effects)
    with pytest.raises(ValueError, match=r"group'\] must be numeric; .* labels by coords="):
        nns.predict(draws, {"inputs": X[:5], "group": ASKED}, model=model)


def test_numbers_of_new_groups_that_leave_some_out():
    """A mistyped number is no new group; what other data have of them counts too."""

    def effects(x, group):
        a = pm.Normal("a", dims="groups")
        return a[group] - a[pm.Data("other", GROUP)]

    model, draws = labelled(effects)
    given = {"inputs": X[:2], "group": [4, 6], "other": [0, 5]}
    assert nns.predict(draws, given, model=model, sample_new_groups=True).sizes["obs"] == 2
    given["other"] = [0, 1]
    with pytest.raises(ValueError, match=r"the new group 6 of a, but none of 5; .* from 4"):
        nns.predict(draws, given, model=model, sample_new_groups=True)
    given["group"] = [10**9, 10**9]
    with pytest.raises(
        ValueError, match=r"1000000000 of a, but none of 4, 5, 6, 7, 8, \.\.\.; num"
    ):
        nns.predict(draws, given, model=model, sample_new_groups=True)


@pytest.mark.parametrize("kind", ["function", "response", "probability"])
def test_no_rows(kind):
    """Nothing to reshape."""
    with pm.Model(coords={"groups": CITIES}) as model:
        x, group = pm.Data("inputs", X), pm.Data("group", GROUP)
        f = pm.Deterministic("f", x @ pm.Normal("w", shape=2) + centred(x, group))
        pm.Bernoulli("y", logit_p=f, observed=GROUP % 2)
        options = {"random_seed": 1, "compile_kwargs": {"mode": "FAST_COMPILE"}}
        draws = pm.sample_prior_predictive(3, **options)["prior"].to_dataset()
    given = {"inputs": X[:0], "group": []}
    found = nns.predict(draws, given, model=model, kind=kind, sample_new_groups=True)
    assert found.shape == (1, 3, 0, 1)
