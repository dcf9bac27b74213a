"""Estimators of scikit-learn: its own checks, units, labels, and what is said of misuse.

Networks are linear where that is enough: these are sampled in a third of a second.
"""

import sys
import warnings
from importlib import import_module

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

import pymc_nnsteps as nns
from pymc_nnsteps.sklearn import NetworkClassifier, NetworkRegressor
from tests.cases import slow

LINEAR = {"hidden": (), "draws": 20, "tune": 10, "chains": 1, "random_state": 0}


@pytest.mark.slow
@parametrize_with_checks([NetworkRegressor("intermediate_noise", **LINEAR)])
def test_checks_of_regressors(estimator, check):
    check(estimator)


@pytest.mark.release
@parametrize_with_checks(
    [NetworkClassifier("intermediate_noise", **LINEAR)],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "shuffled rows draw other utilities"
    },
)
def test_checks_of_classifiers(estimator, check):
    check(estimator)


def test_predictions_are_in_the_units_of_the_targets():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 2))
    function = X @ [[1.0, 0.6], [0.0, 0.8]]
    y = function + 0.5 * rng.normal(size=(400, 2))
    network = NetworkRegressor("intermediate_noise", **LINEAR | {"draws": 100}).fit(X, y)
    mean, std = network.predict(X, return_std=True)
    lower, upper = network.predict_interval(X, coverage=0.8)
    np.testing.assert_allclose(mean, function, atol=0.2)
    np.testing.assert_allclose(std.mean(axis=0), 0.5, rtol=0.1)
    np.testing.assert_allclose(((lower < y) & (y < upper)).mean(axis=0), 0.8, atol=0.06)

    factor, shift = np.array([100.0, 1e-3]), np.array([7.0, -5.0])
    moved = 1e4 * X - 3
    network.fit(moved, pd.DataFrame(factor * y + shift, columns=["left", "right"]))
    assert network.model_.coords["output"] == ("left", "right")
    moved_mean, moved_std = network.predict(moved, return_std=True)
    moved_lower, moved_upper = network.predict_interval(moved, coverage=0.8)
    for plain, other in (
        (mean, (moved_mean - shift) / factor),
        (std, moved_std / factor),
        (lower, (moved_lower - shift) / factor),
        (upper, (moved_upper - shift) / factor),
    ):
        np.testing.assert_allclose(other, plain, rtol=1e-6, atol=1e-6)


def test_missing_inputs_are_drawn_on_request():
    """A second column that tells the first; would catch gaps filled by their mean."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2)) * [0.1, 1]
    X = np.column_stack([50 + 10 * (X[:, 1] + X[:, 0]), X[:, 1]])
    y = X[:, 0].copy()
    X[rng.random(200) < 0.3, 0] = np.nan
    with pytest.raises(ValueError, match=r"X has .* NaN .* pass options=.\"missing\": \"impute\"."):
        NetworkRegressor("intermediate_noise", **LINEAR).fit(X, y)
    with pytest.raises(ValueError, match=r"y has text; .* NetworkClassifier"):
        NetworkRegressor("intermediate_noise", **LINEAR).fit(X, y.astype(str))
    options = LINEAR | {"draws": 100, "options": {"missing": "impute"}}
    network = NetworkRegressor("intermediate_noise", **options).fit(X, y)
    np.testing.assert_allclose(network.predict(X), y, atol=4)


def test_missing_text_is_drawn_by_the_shares_of_its_levels():
    """Would catch indicators that are scaled, and so numbers with a Gaussian law."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"x": rng.normal(size=30), "kind": [*"abc"] * 10})
    table.loc[:2, "kind"] = None
    options = LINEAR | {"options": {"missing": "impute"}}
    network = NetworkRegressor("intermediate_noise", **options).fit(table, table["x"])
    assert {"inputs::kind_shares", "inputs::kind_missing"} <= set(network.model_.named_vars)
    assert np.isin(network.model_["inputs"].get_value()[:, 1:], (0, 1)).all()
    assert np.isfinite(network.predict(table[:5])).all()


def test_intervals_through_a_pipeline():
    """The recipe of the page: what comes before the network, and its own method."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"x": rng.normal(size=60), "kind": rng.choice(["a", "b"], size=60)})
    y = table["x"] + 3 * (table["kind"] == "b") + 0.1 * rng.normal(size=60)
    encoded = make_column_transformer(
        (OneHotEncoder(drop="first"), ["kind"]), remainder="passthrough"
    )
    network = NetworkRegressor("intermediate_noise", **LINEAR | {"draws": 100, "tune": 100})
    pipeline = make_pipeline(encoded, network).fit(table, y)
    lower, upper = pipeline[-1].predict_interval(pipeline[:-1].transform(table), coverage=0.8)
    assert 0.7 < np.mean((lower < y) & (y < upper)) < 0.9
    mean, std = pipeline.predict(table, return_std=True)
    np.testing.assert_allclose(mean, (lower + upper) / 2, atol=std.max() / 2)


def test_text_is_encoded():
    """As by hand, by the levels that were seen."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"x": rng.normal(size=30), "kind": rng.choice(["a", "b"], size=30)})
    by_hand = pd.DataFrame(
        {"x": table["x"]} | {f"kind[{each}]": (table["kind"] == each) * 1.0 for each in "ab"}
    )
    y = table["x"] + 3 * (table["kind"] == "b")
    network, expected = (NetworkRegressor("intermediate_noise", **LINEAR) for _ in range(2))
    mean = expected.fit(by_hand, y).predict(by_hand[:3])
    np.testing.assert_array_equal(network.fit(table, y).predict(table[:3]), mean)
    assert network.feature_names_in_.tolist() == ["x", "kind"]
    assert network.model_.coords == expected.model_.coords
    with pytest.raises(ValueError, match="X has 'c' in the column 'kind', but the model knows"):
        network.predict(table.assign(kind="c"))
    with pytest.raises(ValueError, match=r"X must be a table with the columns \['x', 'kind'\]"):
        network.predict(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="X has dates or durations in the column 'x'"):
        network.fit(table.assign(x=pd.Timestamp("2020")), y)


@pytest.mark.parametrize("estimator", [NetworkRegressor, NetworkClassifier])
def test_weights_are_powers_of_the_likelihood(estimator):
    """Rows that are there as often; none of weight zero, whose classes are not there either."""
    rng = np.random.default_rng(1)
    X, times = rng.normal(size=(30, 1)), rng.integers(3, size=30)
    y = np.where(times == 0, 2, X[:, 0] > 0)
    network = estimator("intermediate_noise", **LINEAR)
    weighted = network.fit(X, y, sample_weight=times).predict(X)
    np.testing.assert_array_equal(
        weighted, network.fit(X.repeat(times, 0), y.repeat(times)).predict(X)
    )
    assert estimator is NetworkRegressor or network.classes_.tolist() == [0, 1]
    with pytest.raises(
        ValueError, match="sample_weight must be whole numbers, how often a row cou"
    ):
        network.fit(X, y, sample_weight=times / 2)


def test_likelihoods_that_the_builder_has():
    """Student-t targets in their own units; classes are another estimator's."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 1))
    y = 1e3 * (X[:, 0] + 0.1 * rng.standard_t(3, size=60))
    network = NetworkRegressor(likelihood="student_t", **LINEAR | {"tune": 100}).fit(X, y)
    assert np.corrcoef(network.predict(X), y)[0, 1] > 0.9
    assert network.model_["y"].owner.op.name == "t"


@pytest.mark.slow
def test_predictions_are_for_an_exposure_of_one():
    X, exposure = np.linspace(-1, 1, 60)[:, None], np.linspace(1, 9, 60)
    options = LINEAR | {"options": {"exposure": exposure}}
    network = NetworkRegressor("hierarchical", likelihood="poisson", **options)
    y = np.random.default_rng(1).poisson(exposure)
    predicted = network.fit(X, y).predict(X)
    assert abs(predicted.mean() - 1) < 0.3
    twice = np.full(60, 2)
    network.set_params(options={"exposure": pd.Series(exposure, range(1, 61))})
    network.fit(X, y, sample_weight=twice)
    np.testing.assert_array_equal(network.model_["exposure"].get_value(), exposure.repeat(twice))


def test_progress_is_for_somebody_who_sees_it(monkeypatch, caplog):
    """A line that says what was sampled, in a terminal and on request."""
    X = np.linspace(-1, 1, 9)[:, None]
    network = NetworkRegressor("intermediate_noise", **LINEAR)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    lines = []
    for verbose, terminal in ((None, False), (None, True), (True, False), (False, True)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        caplog.clear()
        with caplog.at_level("INFO", logger="pymc.nnsteps"):
            network.set_params(verbose=verbose).fit(X, X[:, 0])
        lines.append([line for line in caplog.messages if line.startswith("NetworkRegressor: ")])
    assert list(map(len, lines)) == [0, 1, 1, 0]
    said = (
        "intermediate_noise_mlp given 9 rows of 1 inputs, 1 chains of 20 draws after 10 of tuning"
    )
    assert said in lines[1][0]


def test_verdict_on_convergence():
    """A warning of scikit-learn's kind, by the rule of `diagnose`; none of one chain."""
    X = np.random.default_rng(1).normal(size=(60, 1))
    few = LINEAR | {"chains": 2}
    with pytest.warns(ConvergenceWarning, match=r"^Not converged: .* of 200 wanted"):
        network = NetworkRegressor("intermediate_noise", **few).fit(X, X[:, 0])
    assert not network.diagnosis_.converged
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        many = few | {"draws": 1_000, "tune": 200}
        network = NetworkRegressor("intermediate_noise", options={"noise": 0.5}, **many)
        assert network.fit(X, X[:, 0]).diagnosis_.converged
        NetworkRegressor("intermediate_noise", **LINEAR).fit(X, X[:, 0])


@pytest.mark.slow
def test_noise_that_varies_with_the_inputs():
    """Constant noise, or noise of standardised targets that is not scaled."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, size=(300, 1))
    y = 10 * X[:, 0] + 3 * np.exp(X[:, 0]) * rng.normal(size=300)
    network = NetworkRegressor(
        "intermediate_noise", sigma="network", **LINEAR | {"draws": 200, "tune": 200}
    ).fit(X, y)
    at = np.array([[-1.5], [0.0], [1.5]])
    _, std = network.predict(at, return_std=True)
    np.testing.assert_allclose(std, 3 * np.exp(at[:, 0]), rtol=0.25)


def test_tables_pass_through_pipelines_and_grids():
    """Columns of text too, inside the context of another model, whose network stays its own."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"x": 50 * rng.normal(size=60), "kind": rng.choice(["a", "b"], size=60)})
    y = table["x"] + 30 * (table["kind"] == "b")
    encoded = make_column_transformer(
        (OneHotEncoder(drop="first", sparse_output=False), ["kind"]),
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    pipeline = make_pipeline(encoded, NetworkRegressor("intermediate_noise", **LINEAR))
    precise, vague = {"noise": 1e-2}, {"noise": 100.0}
    grid = GridSearchCV(pipeline, {"networkregressor__options": [vague, precise]}, cv=2)
    with pm.Model() as around:
        grid.fit(table, y)
    assert not around.named_vars
    assert grid.best_params_ == {"networkregressor__options": precise}
    assert grid.score(table, y) > 0.99
    encoder, network = grid.best_estimator_
    assert network.model_.coords["feature"] == ("kind_b", "x")
    standardised = network.input_scaler_.transform(encoder.transform(table))
    function = nns.predict(network.idata_, standardised, model=network.model_)
    np.testing.assert_allclose(
        y.std(ddof=0) * function.mean(("chain", "draw"))[:, 0] + y.mean(), grid.predict(table)
    )


@pytest.mark.parametrize("network", ["intermediate_noise", slow("hierarchical")])
@pytest.mark.parametrize("labels", [["no", "yes"], [30, 10, 20]])
def test_probabilities_are_in_the_order_of_the_labels(network, labels):
    rng = np.random.default_rng(1)
    codes = rng.integers(len(labels), size=60)
    X = np.eye(3)[codes] + 0.1 * rng.normal(size=(60, 3))
    y = np.array(labels)[codes]
    classifier = NetworkClassifier(network, **LINEAR | {"tune": 100}).fit(X, y)
    assert classifier.classes_.tolist() == sorted(labels)
    probability = classifier.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-6)
    assert np.all(classifier.classes_[probability.argmax(axis=1)] == y)
    assert classifier.score(X, y) == 1


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (NetworkRegressor("deep"), 'network must be one of "hierarchical", "bow_tie"'),
        (NetworkClassifier("bow_tie"), 'network must be one of "hierarchical", "intermediate'),
        (NetworkRegressor(draws=0), "draws must be a positive integer; got 0"),
        (NetworkClassifier(chains="2"), "chains must be a positive integer; got '2'"),
        (NetworkRegressor(tune=-1), "tune must be a non-negative integer; got -1"),
        (NetworkClassifier(tune=2.5), "tune must be a non-negative integer; got 2.5"),
        (NetworkRegressor(n_jobs="all"), "n_jobs must be an integer, or None; got 'all'"),
        (NetworkRegressor(likelihood="probit"), 'probit" is for classes: NetworkClassifier'),
        (NetworkRegressor(verbose=2), "verbose must be True or False; got 2"),
        (NetworkRegressor(options=3), "options must be a mapping from arguments to values; got 3"),
        (
            NetworkRegressor("bow_tie", options={"activation": "relu"}),
            "options has 'activation', which .* bow_tie does not have; it may have hidden, temper",
        ),
        (
            NetworkRegressor(sigma=0.1, options={"sigma": 0.2}),
            "options has 'sigma', which the estimator sets itself or .* does not have; it may have",
        ),
        (
            NetworkClassifier(options={"likelihood": "normal"}),
            "options has 'likelihood', which the",
        ),
    ],
)
def test_wrong_arguments(estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit([[0.0], [1.0], [2.0]], [0, 1, 0])


def test_missing_labels():
    with pytest.raises(ValueError, match="y has 1 missing labels; leave those rows out"):
        NetworkClassifier().fit([[0.0], [1.0], [2.0]], np.array(["a", None, "b"], object))


def test_coverage_of_an_interval():
    with pytest.raises(ValueError, match="coverage must be a positive number below 1; got 95"):
        NetworkRegressor().predict_interval([[0.0]], coverage=95)


def test_without_scikit_learn(monkeypatch):
    monkeypatch.delitem(sys.modules, "pymc_nnsteps.sklearn")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(ImportError, match=r'pip install "pymc_nnsteps\[sklearn\]"'):
        import_module("pymc_nnsteps.sklearn")
