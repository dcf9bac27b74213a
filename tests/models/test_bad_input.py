"""Every wrong argument is met by one sentence that names it, and nothing is half done."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest

from pymc_nnsteps.models import intermediate_noise_mlp, one_hot, wide_mlp

X = np.random.default_rng(1).normal(size=(6, 2))
Y = X[:, 0]
CLASSES = [0, 1, 2, 0, 1, 2]


def with_entry(array, index, value):
    copy = np.array(array, dtype=float)
    copy[index] = value
    return copy


CASES = {
    "nan in X": (
        {"X": with_entry(X, ([3, 5], [1, 0]), np.nan)},
        r"X has 2 NaN or infinite values, the first at X\[3, 1\]",
    ),
    "inf in X": ({"X": with_entry(X, (0, 0), np.inf)}, r"X has 1 NaN .* X\[0, 0\]"),
    "missing in frame": (
        {"X": pd.DataFrame({"a": [1, 2, None, 4, 5, 6]}, dtype="Int64")},
        r"X has 1 NaN .* X\[2, 0\]",
    ),
    "masked X": (
        {"X": np.ma.array(X, mask=X[4, 1] == X)},
        r"X has 1 NaN .* X\[4, 1\]",
    ),
    "1-D X": ({"X": Y}, r"X must be 2-D .* shape \(6,\); for a single feature pass X\[:, None\]"),
    "3-D X": ({"X": X[None]}, r"X must be 2-D .* shape \(1, 6, 2\)"),
    "ragged X": ({"X": [[1.0, 2.0], [3.0]]}, "X must be rectangular"),
    "text X": ({"X": X.astype(str)}, "X must be numeric; got dtype"),
    "complex X": ({"X": X + 0j}, "X must be numeric; got dtype complex128"),
    "text column": (
        {"X": pd.DataFrame({"a": Y, "city": list("abcdef")})},
        r"X has non-numeric columns \['city'\]",
    ),
    "column levels": (
        {"X": pd.DataFrame(X, columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")]))},
        "X has columns with several levels",
    ),
    "no rows": ({"X": X[:0], "y": Y[:0]}, r"X is empty \(shape \(0, 2\)\)"),
    "no columns": ({"X": X[:, :0]}, r"X is empty \(shape \(6, 0\)\)"),
    "no outputs": ({"y": X[:, :0]}, r"y is empty \(shape \(6, 0\)\)"),
    "rows": ({"y": Y[:5]}, "y must have one row per row of X; got 5 rows in y and 6 in X"),
    "nan in y": ({"y": with_entry(Y, 2, np.nan)}, r"y has 1 NaN .* y\[2\]"),
    "text y": ({"y": list("abcdef")}, "y must be numeric"),
    "scalar y": ({"y": 1.0}, r"y must have shape \(n_obs,\) or"),
    "3-D y": ({"y": X[None]}, r"y must have shape \(n_obs,\) or"),
    "binary range": (
        {"y": CLASSES, "likelihood": "probit"},
        'y must hold only 0 and 1 with likelihood="probit"; got 2; .*"multinomial_probit"',
    ),
    "binary fraction": (
        {"y": [0, 1, 0.5, 0, 1, 0], "likelihood": "probit"},
        r"y must hold integer class labels; got 0.5 at y\[2\]",
    ),
    "binary 2-D": (
        {"y": np.array(CLASSES)[:, None], "likelihood": "probit"},
        r"y must be 1-D, one label per row of X; got shape \(6, 1\)",
    ),
    "binary nan": (
        {"y": [0, 1, np.nan, 0, 1, 0], "likelihood": "probit"},
        r"y has 1 NaN .* y\[2\]",
    ),
    "binary text": ({"y": list("ababab"), "likelihood": "probit"}, "y must be numeric"),
    "binary single class": ({"y": np.ones(6), "likelihood": "probit"}, "y holds a single class"),
    "class single": (
        {"y": np.zeros(6), "likelihood": "multinomial_probit"},
        "y holds a single class",
    ),
    "class single label": (
        {"y": ["a"] * 6, "likelihood": "multinomial_probit"},
        "y holds a single class",
    ),
    "class negative": (
        {"y": [-1, 0, 1, 0, 1, 0], "likelihood": "multinomial_probit"},
        r"y must hold the integers 0, ..., K-1, .* got -1, 0, 1",
    ),
    "class gap": (
        {"y": [0, 2, 0, 2, 0, 2], "likelihood": "multinomial_probit"},
        r"y must hold the integers 0, ..., K-1, .* got 0, 2; .*pandas.Categorical",
    ),
    "class huge": (
        {"y": [0, 1, 0, 1, 0, 1e30], "likelihood": "multinomial_probit"},
        "got 0, 1, 1000000",
    ),
    "class fraction": (
        {"y": [0, 1, 1.5, 0, 1, 2], "likelihood": "multinomial_probit"},
        "y must hold integer class labels; got 1.5",
    ),
    "class missing": (
        {"y": pd.Series(["a", None, "b", "a", "b", None]), "likelihood": "multinomial_probit"},
        r"y has 2 missing labels, the first at y\[1\]",
    ),
    "class 2-D": (
        {"y": [["a", "b"]] * 6, "likelihood": "multinomial_probit"},
        "y must be 1-D",
    ),
    "class rows": (
        {"y": list("abc"), "likelihood": "multinomial_probit"},
        "y must have one row per row of X; got 3 rows",
    ),
    "hidden zero": ({"hidden": (4, 0)}, "hidden must be a sequence of positive integers"),
    "hidden fraction": ({"hidden": (4.0,)}, "hidden must be a sequence of positive integers"),
    "hidden bool": ({"hidden": (True,)}, "hidden must be a sequence of positive integers"),
    "hidden number": ({"hidden": 10}, r"such as \(10,\); got 10"),
    "hidden text": ({"hidden": "10"}, "hidden must be a sequence of positive integers"),
    "activation": ({"activation": "tanh"}, "activation must be one of \"relu\", .* got 'tanh'"),
    "likelihood": (
        {"likelihood": "logit"},
        'likelihood must be one of "normal", "probit", "multinomial_probit"; got \'logit\'',
    ),
    "start": ({"start": "zero"}, 'start must be one of "support_point", "prior"; got \'zero\''),
    "bias text": ({"bias": "yes"}, "bias must be True or False; got 'yes'"),
    "bias number": ({"bias": 2}, "bias must be True or False"),
    "noise negative": ({"noise": -0.1}, "noise is a variance and must not be negative"),
    "noise zero": ({"noise": 0}, "noise of the output must be positive; .* pass noise="),
    "noise nan": ({"noise": np.nan}, "noise must be a finite number"),
    "noise text": ({"noise": "small"}, "noise must be a finite number"),
    "noise list": ({"noise": [0.1, 0.2]}, "noise must be one number"),
    "noise unknown key": (
        {"noise": {"pre": 1, "post": 1, "output": 1, "input": 1}},
        'noise must have exactly the keys "pre", "post" and "output"; got .*input',
    ),
    "noise missing key": (
        {"noise": {"pre": 1, "output": 1}},
        'noise must have exactly the keys "pre", "post" and "output"',
    ),
    "noise length": (
        {"noise": {"pre": [1, 1], "post": 1, "output": 1}},
        r'noise\["pre"\] must be one number or 1, one per hidden layer',
    ),
    "noise layer negative": (
        {"noise": {"pre": 1, "post": [-1], "output": 1}},
        "noise is a variance and must not be negative",
    ),
    "noise output length": (
        {"noise": {"pre": 1, "post": 1, "output": [1, 2]}},
        r'noise\["output"\] must be one number',
    ),
    "weight precision": ({"weight_precision": 0}, "weight_precision must be positive"),
    "weight precisions": (
        {"weight_precision": [1, 2, 3]},
        "weight_precision must be one number or 2, one per layer",
    ),
    "bias precision": ({"bias_precision": [1, -2]}, "bias_precision must be positive"),
    "bias precision infinite": (
        {"bias_precision": np.inf},
        "bias_precision must be a finite number",
    ),
    "bias precision unused": (
        {"bias": False, "bias_precision": 1.0},
        "bias_precision has no meaning with bias=False",
    ),
}


WIDE_CASES = {
    name: CASES[name]
    for name in ("nan in X", "1-D X", "text X", "no rows", "rows", "nan in y", "text y", "3-D y")
} | {
    "hidden zero": CASES["hidden zero"],
    "hidden number": CASES["hidden number"],
    "start": CASES["start"],
    "activation": ({"activation": "swish"}, "activation must be one of .*\"gelu\".* got 'swish'"),
    "activation function": (
        {"activation": lambda z: z.sum()},
        "activation must return a tensor with as many axes",
    ),
    "weight variance": ({"weight_var": 0}, "weight_var must be positive; got 0"),
    "weight variances": ({"weight_var": [1, 2]}, "weight_var must be one number"),
    "bias variance": ({"bias_var": -0.1}, "bias_var must not be negative; 0 leaves the biases out"),
    "bias variance text": ({"bias_var": "none"}, "bias_var must be a finite number"),
    "readout variance": ({"readout_var": -1}, "readout_var must be positive; got -1"),
    "readout variance nan": ({"readout_var": np.nan}, "readout_var must be a finite number"),
    "noise zero": ({"noise": 0}, "noise is a standard deviation and must be positive; got 0"),
    "noise negative": ({"noise": -0.1}, "noise is a standard deviation and must be positive"),
    "noise of layers": ({"noise": {"output": 0.1}}, "noise must be a finite number"),
    "reparametrize": ({"reparametrize": "yes"}, "reparametrize must be True or False; got 'yes'"),
}


@pytest.mark.parametrize(
    ("builder", "cases", "case"),
    [
        *((intermediate_noise_mlp, CASES, case) for case in CASES),
        *((wide_mlp, WIDE_CASES, case) for case in WIDE_CASES),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", ""),
)
def test_message_and_untouched_outer_model(builder, cases, case):
    changed, message = cases[case]
    arguments = {"X": X, "y": Y, **changed}
    with pm.Model(coords={"group": range(3)}) as outer:
        pm.Normal("other", dims="group")
        before = list(outer.named_vars), dict(outer.coords)
        with pytest.raises(ValueError, match=message) as caught:
            builder(arguments.pop("X"), arguments.pop("y"), **arguments)
    assert str(caught.value).endswith(".")
    assert (list(outer.named_vars), dict(outer.coords)) == before


@pytest.mark.parametrize(
    ("coords", "variable", "message"),
    [
        ({"feature": range(3)}, "w", 'coords "feature" of the model has length 3, .* needs 2'),
        ({"obs": range(7)}, "w", 'coords "obs" of the model has length 7, .* needs 6'),
        ({"hidden1": range(5)}, "w", 'coords "hidden1" of the model has length 5, .* needs 10'),
        ({"feature": ["b", "a"]}, "w", r'coords "feature" of the model is .* the data say'),
        ({}, "W1", r"The model already has the names \['W1'\]"),
        ({}, "targets", r"The model already has the names \['targets'\]"),
        ({}, "hidden1", r"The model already has the names \['hidden1'\]"),
        ({"Z2": range(2)}, "w", r"The model already has the names \['Z2'\]"),
    ],
)
def test_clashes_with_the_outer_model(coords, variable, message):
    frame = pd.DataFrame(X, columns=["a", "b"])
    with pm.Model(coords=coords) as outer:
        pm.Normal(variable)
        before = list(outer.named_vars), dict(outer.coords)
        with pytest.raises(ValueError, match=message):
            intermediate_noise_mlp(frame, Y)
    assert (list(outer.named_vars), dict(outer.coords)) == before


@pytest.mark.parametrize("reparametrize", [True, False])
@pytest.mark.parametrize(
    ("coords", "variable", "message"),
    [
        ({"feature": range(3)}, "w", 'coords "feature" of the model has length 3, .* needs 2'),
        ({"obs": range(7)}, "w", 'coords "obs" of the model has length 7, .* needs 6'),
        ({"hidden1": range(5)}, "w", 'coords "hidden1" of the model has length 5, .* needs 4'),
        ({}, "W2", r"The model already has the names \['W2'\]"),
        ({}, "f", r"The model already has the names \['f'\]"),
        ({}, "output", r"The model already has the names \['output'\]"),
    ],
)
def test_clashes_of_a_wide_network(coords, variable, message, reparametrize):
    with pm.Model(coords=coords) as outer:
        pm.Normal(variable)
        before = list(outer.named_vars), dict(outer.coords)
        with pytest.raises(ValueError, match=message):
            wide_mlp(X, Y, hidden=(4,), reparametrize=reparametrize)
    assert (list(outer.named_vars), dict(outer.coords)) == before


def test_names_of_the_reparametrised_form_only():
    with pm.Model(coords={"readout": range(3)}):
        pm.Normal("phi")
        wide_mlp(X, Y, hidden=(4,), reparametrize=False)
    for coords, message in (({"readout": range(3)}, "length 3, .* needs 5"), ({}, r"\['phi'\]")):
        with pm.Model(coords=coords):
            pm.Normal("phi" if not coords else "w")
            with pytest.raises(ValueError, match=message):
                wide_mlp(X, Y, hidden=(4,))


@pytest.mark.parametrize(
    ("labels", "n_classes", "message"),
    [
        ([0, 2], None, r"labels must hold the integers 0, ..., K-1, .* pass n_classes .* got 0, 2"),
        ([-1, 0, 1], None, "labels must hold the integers 0, ..., K-1"),
        ([0, 1, 4], 4, "labels must hold integers from 0 to 3 with n_classes=4; got 4"),
        ([0, -1], 4, "labels must hold integers from 0 to 3 .* got -1"),
        ([0, 0.5], None, r"labels must hold integer class labels; got 0.5 at labels\[1\]"),
        ([0, np.nan], 3, r"labels has 1 NaN .* labels\[1\]"),
        (["a", None], None, r"labels has 1 missing labels, the first at labels\[1\]"),
        (["a", "b"], 3, "n_classes is 3, but labels has 2 classes; .*pandas.Categorical"),
        ([0, 0], None, "labels holds a single class"),
        (["a", "a"], None, "labels holds a single class"),
        ([[0, 1]], None, r"labels must be 1-D, one label per row of X; got shape \(1, 2\)"),
        ([], 3, r"labels is empty \(shape \(0,\)\)"),
        ([0, 1], 1, "n_classes must be an integer of at least 2; got 1"),
        ([0, 1], 2.0, "n_classes must be an integer of at least 2; got 2.0"),
        ([0, 1], True, "n_classes must be an integer of at least 2; got True"),
    ],
)
def test_bad_class_labels(labels, n_classes, message):
    with pytest.raises(ValueError, match=message) as caught:
        one_hot(labels, n_classes)
    assert str(caught.value).endswith(".")


def test_float32_overflow_is_seen():
    with (
        pytensor.config.change_flags(floatX="float32"),
        pytest.raises(ValueError, match=r"X has 1 NaN or infinite values"),
    ):
        intermediate_noise_mlp(with_entry(X, (0, 0), 1e60), Y)
