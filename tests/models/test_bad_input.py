"""Every wrong argument is met by one sentence that names it, and nothing is half done."""

from dataclasses import fields

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest
from scipy import sparse

from pymc_nnsteps import Prior
from pymc_nnsteps.activations import Normalize
from pymc_nnsteps.models import (
    Shrinkage,
    bow_tie,
    hierarchical_mlp,
    intermediate_noise_mlp,
    one_hot,
    wide_mlp,
)

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
    "constant column, standardised": (
        {"X": pd.DataFrame({"a": Y, "b": Y * np.nan})},
        r"X has only missing entries in the columns \['b'\]; leave them out",
    ),
    "only missing labels": (
        {"X": pd.DataFrame({"a": Y, "b": pd.Categorical([None] * 6, ["p", "q"])})},
        "X has only missing entries in the column 'b'; leave it out",
    ),
    "inf in X": ({"X": with_entry(X, (0, 0), np.inf)}, r"X\[0, 0\]; remove or impute them\.$"),
    "missing in frame": (
        {"X": pd.DataFrame({"a": [1, 2, None, 4, 5, 6]}, dtype="Int64")},
        r"X has 1 NaN .* X\[2, 0\] \(1 in the column 'a'\)",
    ),
    "masked X": (
        {"X": np.ma.array(X, mask=X[4, 1] == X)},
        r"X has 1 NaN .* X\[4, 1\]",
    ),
    "1-D X": ({"X": Y}, r"X must be 2-D .* shape \(6,\); for a single feature pass X\[:, None\]"),
    "a column of a frame": ({"X": pd.Series(Y)}, r"a single feature pass X.to_frame\(\)"),
    "3-D X": ({"X": X[None]}, r"X must be 2-D .* shape \(1, 6, 2\)"),
    "ragged X": ({"X": [[1.0, 2.0], [3.0]]}, "X must be rectangular"),
    "text X": ({"X": X.astype(str)}, "X must be numeric; got dtype"),
    "sparse X": ({"X": sparse.csr_array(X)}, r"X is sparse; pass X.toarray\(\)"),
    "sparse y": ({"y": sparse.csr_array(X)}, r"y is sparse; pass y.toarray\(\)"),
    "complex X": ({"X": X + 0j}, "X must be numeric; got dtype complex128"),
    "text with gaps": (
        {"X": pd.DataFrame({"a": Y, "city": [*"abcd", None, None]})},
        "X has 2 NaN .* .2 in the column 'city'.; remove or impute them",
    ),
    "numbers as text": (
        {"X": pd.DataFrame({"a": list("121323")})},
        "X has numbers as text in the column 'a'; convert them, such as .* or make them categor",
    ),
    "numbers beside text": (
        {"X": pd.DataFrame({"a": ["1", "2", "?", "2", "1", "3"]})},
        r"X has numbers as text besides '\?' in the column 'a'; convert them",
    ),
    "prices as text": (
        {"X": pd.DataFrame({"a": ["€1,200", "€7", "€9.5"] * 2})},
        "numbers as text in the column 'a'; take the signs, .* out of '€1,200' and convert them",
    ),
    "days before months": (
        {"X": pd.DataFrame({"day": ["01.02.2020", "3.4.2020"] * 3})},
        "X has dates or durations in the column 'day'; pass numbers or categories made of them",
    ),
    "dates as text": (
        {"X": pd.DataFrame({"day": ["2020-01-01", "2020-02-01"] * 3})},
        "X has dates or durations in the column 'day'; pass numbers or categories made of them",
    ),
    "durations as y": (
        {"y": pd.Series(pd.to_timedelta(Y, unit="D"))},
        "y must be numeric; .*; pass numbers made of dates and durations, such as days",
    ),
    "a name of each row": (
        {"X": pd.DataFrame({"id": [f"a{i}" for i in range(30)]}), "y": np.arange(30.0)},
        "X has a different text in each row of the column 'id'.* leave it out",
    ),
    "levels like a column": (
        {"X": pd.DataFrame({"a": list("xyxyxy"), "a[x]": Y})},
        r"X has several columns or levels that are called 'a\[x\]'",
    ),
    "standardize a word": ({"X": X, "standardize": "yes"}, "standardize must be True or"),
    "column levels": (
        {"X": pd.DataFrame(X, columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")]))},
        "X has columns with several levels",
    ),
    "no rows": ({"X": X[:0], "y": Y[:0]}, r"X is empty \(shape \(0, 2\)\)"),
    "no columns": ({"X": X[:, :0]}, r"X is empty \(shape \(6, 0\)\)"),
    "no outputs": ({"y": X[:, :0]}, r"y is empty \(shape \(6, 0\)\)"),
    "rows": ({"y": Y[:5]}, "y must have one row per row of X; got 5 rows in y and 6 in X"),
    "inf in y": ({"y": with_entry(Y, 2, np.inf)}, r"y has 1 NaN .* y\[2\]"),
    "nothing in y": ({"y": Y * np.nan}, "y has only missing values; there is nothing"),
    "nothing in a column of y": (
        {"y": with_entry(X, (slice(None), 1), np.nan)},
        "y has only missing values in column 1",
    ),
    "text y": ({"y": list("abcdef")}, "y must be numeric"),
    "boolean y": ({"y": Y > 0}, 'y is boolean, .* for two classes use likelihood="probit"; for a'),
    "boolean series": ({"y": pd.Series(Y > 0)}, "y is boolean, but this network has real targets"),
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
    **{
        f"binary text {kind.__name__}": (
            {"y": kind(list("ababab")), "likelihood": "probit"},
            'y must be numeric; .* y == "yes"; for several use likelihood="multinomial_probit"',
        )
        for kind in (list, np.array, pd.Series, pd.Categorical)
    },
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
    "hidden huge": (
        {"hidden": (10**12,)},
        r"hidden asks for 6e\+12 numbers in one layer \(1000000000000 units on 2 inputs and 6 rows",
    ),
    "hidden huge between": ({"hidden": (40_000, 40_000)}, r"hidden asks for 1.6e\+09 numbers"),
    "hidden text": ({"hidden": "10"}, "hidden must be a sequence of positive integers"),
    "hidden array": ({"hidden": np.array(10)}, r"such as \(10,\); got array\(10\)"),
    "activation": ({"activation": "tanh"}, "activation must be one of \"relu\", .* got 'tanh'"),
    "likelihood": (
        {"likelihood": "logit"},
        'likelihood must be one of "normal", "probit", "multinomial_probit", "bernoulli", '
        '"categorical", "poisson", "negative_binomial", "gamma", "ordered", "weibull"; got '
        "'logit'; for other laws put a network of nns.blocks",
    ),
    "start": ({"start": "zero"}, 'start must be one of "support_point", "prior"; got \'zero\''),
    "bias text": ({"bias": "yes"}, "bias must be True or False; got 'yes'"),
    "bias number": ({"bias": 2}, "bias must be True or False"),
    "noise negative": ({"noise": -0.1}, "noise is a variance and must not be negative"),
    "sigma negative": ({"sigma": -0.1}, "sigma is a standard deviation and must not be negative"),
    "sigma lost": ({"sigma": 1e-9}, "sigma is too small: a variance below .*; got 1e-09"),
    "sigma infinite": ({"sigma": 1e200}, "sigma is too large: a variance above .*; got 1e.200"),
    "sigma network of classes": (
        {"sigma": "network", "y": [0, 1] * 3, "likelihood": "probit"},
        'noise cannot vary with likelihood="probit"',
    ),
    "hidden noise network": (
        {"noise": {"pre": "network", "post": 0, "output": 1}},
        r'noise\["pre"\] must be a finite number .*; got \'network\'',
    ),
    "noise network alone": ({"noise_network": {}}, 'noise_network is for .* sigma="network" too'),
    "noise network key": (
        {"sigma": "network", "noise_network": {"width": 3}},
        "noise_network must be a mapping with any of the keys hidden, activation, priors; got",
    ),
    "noise network prior": (
        {"sigma": "network", "noise_network": {"priors": {"io": "x"}}},
        r"priors\['io'\] is not a prior",
    ),
    "sigma and noise": ({"sigma": 0.1, "noise": 0.1}, "noise is a variance and sigma .* pass one"),
    "noise zero": ({"noise": 0}, "noise of the output must be positive; .* pass noise="),
    "noise nan": ({"noise": np.nan}, "noise must be a finite number"),
    "noise bool": ({"noise": True}, "noise must be a finite number .*; got True"),
    "noise number as text": ({"noise": "0.1"}, "noise must be a finite number .*; got '0.1'"),
    "noise bool of a layer": (
        {"noise": {"pre": [True], "post": 1, "output": 1}},
        r'noise\["pre"\] must be a finite number',
    ),
    "noise lost": (
        {"noise": 1e-300},
        "noise is too small: a variance below 2.2e-16 is lost in .* of float64; got 1e-300",
    ),
    "noise lost in a layer": (
        {"noise": {"pre": [1e-17], "post": 0, "output": 1}},
        "noise is too small: .*; got {",
    ),
    "weight precision bool": (
        {"weight_precision": [1.0, True]},
        "weight_precision must be a finite number",
    ),
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
    "noise learnt of classes": (
        {"y": CLASSES, "likelihood": "multinomial_probit", "noise": "learnt"},
        "noise of the output cannot be learnt with .*; pass a mapping with a number as its",
    ),
    "noise misspelt": ({"noise": "lernt"}, "noise must be .* \"learnt\" or a Prior; got 'lernt'"),
    "noise of a fixed width": (
        {"noise": Prior(0.1)},
        "whose prior has a width and a finite .*0.1",
    ),
    "noise of units": (
        {"noise": {"pre": Prior(0.1, 4, 4), "post": 1, "output": 1}},
        r'noise\["pre"\] is one variance for a layer',
    ),
    "noise learnt, length": (
        {"noise": {"pre": ["learnt"] * 2, "post": 1, "output": 1}},
        r'noise\["pre"\] must be one number or 1, .*learnt',
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


WIDE_CASES = (
    {
        name: CASES[name]
        for name in (
            "nan in X",
            "1-D X",
            "text X",
            "no rows",
            "rows",
            "inf in y",
            "nothing in y",
            "text y",
            "3-D y",
        )
    }
    | {
        name: CASES[name]
        for name in ("hidden zero", "hidden number", "hidden huge", "sparse X", "sparse y")
    }
    | {
        "start": CASES["start"],
        "activation": (
            {"activation": "swish"},
            "activation must be one of .*\"gelu\".* got 'swish'",
        ),
        "activation function": (
            {"activation": lambda z: z.sum()},
            "activation must return a tensor with as many axes",
        ),
        "weight variance": ({"weight_var": 0}, "weight_var must be a positive number; got 0"),
        "sigma network": ({"sigma": "network"}, 'sigma="network" .* pass reparametrize=False'),
        "weight variances": ({"weight_var": [1, 2]}, "weight_var must be a positive number"),
        "bias variance": (
            {"bias_var": -0.1},
            "bias_var must not be negative; 0 leaves the biases out",
        ),
        "bias variance text": ({"bias_var": "none"}, "bias_var must be a finite number"),
        "readout variance": ({"readout_var": -1}, "readout_var must be a positive number; got -1"),
        "readout variance nan": ({"readout_var": np.nan}, "readout_var must be a positive number"),
        "sigma zero": ({"sigma": 0}, "sigma must be a positive number; got 0"),
        "sigma negative": ({"sigma": -0.1}, "sigma must be a positive number; got -0.1"),
        "sigma lost": ({"sigma": 1e-9}, "sigma is too small: .*; got 1e-09"),
        "sigma infinite": ({"sigma": 1e200}, "sigma is too large: .*; got 1e.200"),
        "sigma array": ({"sigma": np.ones(2)}, "sigma must be a positive number; got array"),
        "bias variance bool": ({"bias_var": True}, "bias_var must be a finite number"),
        "sigma bool": ({"sigma": True}, "sigma must be a positive number; got True"),
        "sigma of layers": ({"sigma": {"output": 0.1}}, "sigma must be a positive number"),
        "gaps": (
            {"y": with_entry(Y, 2, np.nan)},
            "y with missing values does not .*; pass reparametrize=False",
        ),
        "reparametrize": (
            {"reparametrize": "yes"},
            "reparametrize must be True or False; got 'yes'",
        ),
    }
)


def with_priors(priors, message, **options):
    return {"priors": priors, **options}, message


BINARY = {"likelihood": "bernoulli", "y": [0, 1, 0, 1, 0, 1]}
TWO_LAYERS = {"hidden": (4, 3)}
HIERARCHICAL_CASES = {
    name: CASES[name]
    for name in (
        *("nan in X", "1-D X", "text X", "no rows", "rows", "inf in y", "text y", "3-D y"),
        *("hidden zero", "hidden fraction", "hidden bool", "hidden number", "hidden text"),
        *("hidden huge", "sparse X", "sparse y"),
    )
} | {
    "unknown key": with_priors(
        {"ih": 1, "hi": 1},
        "priors has the key 'hi'; with 1 hidden layers and likelihood=\"normal\" the keys are "
        "ih, ho, bh, th, ah, ih1, io, h1o, bh1, bo, ti, th1, ah1, ao, noise[.]$",
    ),
    "unknown key, no layers": with_priors(
        {"ih": 1},
        "the key 'ih'; with 0 hidden layers .* the keys are io, bo, ti, ao, noise[.]$",
        hidden=(),
    ),
    "unknown key, two layers": with_priors(
        {"h2h1": 1},
        "the key 'h2h1'; with 2 hidden layers .* are ih, hh, ho, bh, th, ah, ih1, ih2, h1h2, io, "
        "h1o, h2o, bh1, bh2, bo, ti, th1, th2, ah1, ah2, ao, noise[.]$",
        **TWO_LAYERS,
    ),
    "layer to itself": with_priors({"h1h1": 1}, "the key 'h1h1'"),
    "layer that is not there": with_priors({"ih2": 1}, "the key 'ih2'; with 1 hidden layers"),
    "layers that are not there": with_priors({"hh": None}, "the key 'hh'; with 1 hidden layers"),
    "bias of no layer": with_priors({"bh3": 1}, "the key 'bh3'; with 2 hidden", **TWO_LAYERS),
    "bias of inputs": with_priors({"bi": 1}, "the key 'bi'"),
    "offsets of outputs": with_priors({"to": 1}, "the key 'to'"),
    "adjustments of inputs": with_priors({"ai": 1}, "the key 'ai'"),
    "key of a number": with_priors({1: "1"}, "priors has the key 1; with"),
    "noise of a decision": with_priors(
        {"noise": "1"}, "the key 'noise'; .* likelihood=\"bernoulli\" .* ah1, ao[.]$", **BINARY
    ),
    "no noise of a decision": with_priors({"noise": None}, "the key 'noise'", **BINARY),
    "prior text": with_priors(
        {"io": "0:1"},
        r"priors\['io'\] is not a prior: A prior is written .*; got '0:1': width must be a "
        "positive number",
    ),
    "prior of four alphas": with_priors(
        {"ih1": "1:2:3:4:5"}, r"priors\['ih1'\] is not a prior: A prior is written .*'1:2:3:4:5'"
    ),
    "prior alpha": with_priors(
        {"bo": "1:-2"}, r"priors\['bo'\] is not a prior: .* alpha_common must be a positive number"
    ),
    "prior zero": with_priors(
        {"h1o": 0}, r"priors\['h1o'\] is not a prior: width must be a positive number; got 0"
    ),
    "prior bool": with_priors({"bo": True}, r"priors\['bo'\] is not a prior: .* got True"),
    "prior of a precision without bounds": with_priors(
        {"ho": "x1::0.001"}, r'priors has "x1::0.001", whose precision is out of the range'
    ),
    "prior too narrow": with_priors({"ih": 1e-200}, 'priors has "1e-200", whose precision'),
    "prior too wide": with_priors({"bo": "1e160:1"}, r'priors has "1e\+160:1", whose precision'),
    "adjustment bool": with_priors({"ah": True}, r"priors\['ah'\] must be .* number, .* got True"),
    "prior of a shorthand": with_priors({"bh": "a"}, r"priors\['bh'\] is not a prior"),
    "start": ({"start": "zero"}, 'start must be one of "support_point", "prior"; got .zero.'),
    "activation of no layer": ({"hidden": (), "activation": "none"}, "activation must be one of"),
    "prior infinite": with_priors({"bo": np.inf}, r"priors\['bo'\] .*: width must be finite"),
    "prior pair": with_priors({"bo": (1, 2)}, r"priors\['bo'\] is not a prior: .* got \(1, 2\)"),
    "sigma": ({"sigma": 0}, "sigma must be a positive number; got 0"),
    "sigma array": ({"sigma": np.ones(2)}, "sigma must be a positive number; got array"),
    "sigma of classes": ({"sigma": 1, **BINARY}, 'sigma has no meaning with likelihood="bern'),
    "sigma and noise": with_priors({"noise": 1}, r'sigma fixes what priors\["noise"\]', sigma=1),
    "sigma word": ({"sigma": "net"}, "sigma must be a positive number or \"network\"; got 'net'"),
    "sigma network of classes": (
        {"sigma": "network", **BINARY},
        'sigma has no meaning with likelihood="bern',
    ),
    "no varying noise": with_priors({"hs": 1}, "priors has the key 'hs'"),
    "nothing varies": with_priors({"hs": None}, "leads? into layer s", sigma="network"),
    "prior noise": with_priors({"noise": "-1"}, r"priors\['noise'\] is not a prior"),
    "scaled biases": with_priors({"bo": "x1:2"}, r"priors\['bo'\] must not have scale=True \(x\)"),
    "scaled offsets": with_priors({"ti": "x1"}, r"priors\['ti'\] must not have scale=True"),
    "scaled noise": with_priors({"noise": "x1"}, r"priors\['noise'\] must not have scale=True"),
    "units of biases": with_priors(
        {"bh1": "1:2:3"},
        r"priors\['bh1'\] must have an infinite alpha_unit: .* give alpha_weight, as in \"1:2::4\"",
    ),
    "units of offsets": with_priors({"th1": "1::3"}, r"priors\['th1'\] must .* alpha_unit"),
    "tails of normal noise": with_priors(
        {"noise": "1:2::4"},
        r'priors\["noise"\] has a finite alpha_weight, .*; pass likelihood="student_t"',
    ),
    "no noise": with_priors({"noise": None}, r'priors\["noise"\] must be a prior: real targets'),
    "no t noise": with_priors(
        {"noise": None}, r'priors\["noise"\] must be a prior', likelihood="student_t"
    ),
    "adjustments text": with_priors(
        {"ah1": "x1"}, r"priors\['ah1'\] must be a positive number, the shape alpha .* got 'x1'"
    ),
    "adjustments zero": with_priors({"ao": 0}, r"priors\['ao'\] must be a positive number"),
    "adjustments infinite": with_priors({"ao": np.inf}, r"priors\['ao'\] .* number, .* got inf"),
    "adjustments nan": with_priors({"ao": np.nan}, r"priors\['ao'\] .* number, .* got nan"),
    "adjustments prior": with_priors({"ao": Prior(1)}, r"priors\['ao'\] .* number, .* got Prior"),
    "priors text": with_priors("0.05:0.5", r"priors must be a mapping such as .*; got '0.05:0.5'"),
    "priors list": with_priors(
        [("ih", 1)], r"priors must be a mapping such as .*; got \[\('ih', 1\)"
    ),
    "priors prior": with_priors(Prior(1), r"priors must be a mapping such as .*; got Prior\("),
    "nothing into the outputs": with_priors({"io": None}, "into layer o[.]$", hidden=()),
    "nothing into a layer": with_priors({"ih": None}, "leaves no weights that lead into layer h1"),
    "nothing into the second": with_priors({"hh": None}, "lead into layer h2", **TWO_LAYERS),
    "nothing out of a layer": with_priors({"ho": None, "io": 1}, "that lead out of layer h1[.]$"),
    "nothing out of the first": with_priors(
        {"h1h2": None, "ih2": 1}, "that lead out of layer h1[.]$", **TWO_LAYERS
    ),
    "likelihood": (
        {"likelihood": "probit"},
        'must be one of "normal", "student_t", "bernoulli", "categorical", .*; got \'probit\'',
    ),
    "likelihood list": (
        {"likelihood": ["normal"]},
        r"likelihood must be one of .*; got \['normal'\]",
    ),
    "activation": (
        {"activation": "swish"},
        'activation must be one of .*"gelu", .*"softplus0", .*"softmax".*; got \'swish\'',
    ),
    "activation none": ({"activation": None}, "activation must be one of .*; got None"),
    "activation in a list": ({"activation": ["relu6"]}, "must be one of .*; got 'relu6'"),
    "activations, too few": (
        {"activation": ["tanh"], **TWO_LAYERS},
        "activation must be one, or 2, one per hidden layer; got 1",
    ),
    "activations, too many": ({"activation": ["tanh", "tanh"]}, "must be one, or 1, .* got 2"),
    "activations, none": ({"activation": []}, "must be one, or 1, .* got 0"),
    "activation function": (
        {"activation": lambda z: z.sum(axis=1)},
        "activation must return a tensor with as many axes",
    ),
    "groups of units": (
        {"activation": ["tanh", Normalize(2)], **TWO_LAYERS},
        "activation normalises 2 groups of units, which do not divide the 3 .* layer 2",
    ),
    "binary range": (
        {**BINARY, "y": CLASSES},
        'y must hold only 0 and 1 with likelihood="bernoulli"; got 2; .*"categorical"',
    ),
    "binary fraction": (
        {**BINARY, "y": [0, 1, 0.5, 0, 1, 0]},
        r"y must hold integer class labels; got 0.5 at y\[2\]",
    ),
    "binary table": (
        {**BINARY, "y": [[0, 1], [1, -1]] * 3},
        'y must hold only 0 and 1 with likelihood="bernoulli"; got -1',
    ),
    "binary nan": ({**BINARY, "y": [0, 1, np.nan, 0, 1, 0]}, r"y has 1 NaN .* y\[2\]"),
    "binary text": (
        {**BINARY, "y": list("ababab")},
        'y must be numeric; .* y == "yes"; for several use likelihood="categorical"',
    ),
    "binary 3-D": ({**BINARY, "y": np.ones((6, 1, 1))}, "y must be 1-D"),
    "binary single class": ({**BINARY, "y": np.ones(6)}, "y holds a single class"),
    "class gap": (
        {"y": [0, 2, 0, 2, 0, 2], "likelihood": "categorical"},
        'y must hold the integers 0, ..., K-1, .* with likelihood="categorical"; got 0, 2',
    ),
    "class fraction": (
        {"y": [0, 1, 1.5, 0, 1, 2], "likelihood": "categorical"},
        r"y must hold integer class labels; got 1.5 at y\[2\]",
    ),
    "class single": ({"y": ["a"] * 6, "likelihood": "categorical"}, "y holds a single class"),
    "class 2-D": ({"y": [["a", "b"]] * 6, "likelihood": "categorical"}, "y must be 1-D"),
}


def of_family(shrinkage, message, **options):
    return {"shrinkage": shrinkage, **options}, message


def shrunk(X, y, *, shrinkage="student_t", **options):
    """A bow-tie network with the hyperparameters of its shrinkage among the arguments."""
    names = {field.name for field in fields(Shrinkage)} & set(options)
    given = {name: options.pop(name) for name in names}
    return bow_tie(X, y, shrinkage=Shrinkage(shrinkage, **given), **options)


BOW_TIE_CASES = {
    name: CASES[name]
    for name in (
        *("nan in X", "1-D X", "text X", "no rows", "rows", "inf in y", "text y", "3-D y"),
        *("hidden zero", "hidden fraction", "hidden bool", "hidden number", "hidden text"),
        *("hidden huge", "sparse X", "sparse y"),
    )
} | {
    "temperature zero": ({"temperature": 0}, "temperature must be a positive number; got 0"),
    "temperature text": ({"temperature": "cold"}, "temperature must be a positive number"),
    "temperature nan": ({"temperature": np.nan}, "temperature must be a positive number"),
    "temperatures": ({"temperature": [0.1, 0.2]}, "temperature must be a positive number"),
    "shrinkage": (
        {"shrinkage": "horseshoe"},
        'shrinkage must be one of "student_t", "laplace", "normal_gamma", "nig", "gaussian"; '
        "got 'horseshoe'",
    ),
    "shrinkage none": ({"shrinkage": None}, "shrinkage must be one of .*; got None"),
    "start": (
        {"start": "zero"},
        'start must be one of "data", "prior"; got \'zero\'',
    ),
    "marginalize": (
        {"marginalize_gates": "yes"},
        "marginalize_gates must be True or False; got 'yes'",
    ),
    "marginalize number": ({"marginalize_gates": 1}, "marginalize_gates must be True or False"),
    "rate of student_t": of_family(
        "student_t",
        'lambda_global has no meaning with shrinkage="student_t", which is set by nu_global, '
        "delta_global, nu_local, delta_local; leave it out",
        lambda_global=1.0,
    ),
    "local rate of student_t": of_family(
        "student_t", "lambda_local has no meaning", lambda_local=(1, 2)
    ),
    "order of laplace": of_family(
        "laplace",
        'nu_global has no meaning with shrinkage="laplace", which is set by lambda_global, '
        "lambda_local;",
        nu_global=1.0,
    ),
    "delta of laplace": of_family("laplace", "delta_local has no meaning", delta_local=1.0),
    "local order of laplace": of_family("laplace", "nu_local has no meaning", nu_local=1.0),
    "delta of normal_gamma": of_family(
        "normal_gamma", "delta_global has no meaning", delta_global=1.0
    ),
    "order of nig": of_family("nig", "nu_local has no meaning", nu_local=-0.5),
    "delta of gaussian": of_family(
        "gaussian",
        'delta_global has no meaning with shrinkage="gaussian", which is set by weight_var;',
        delta_global=1.0,
    ),
    "variance of nig": of_family("nig", "weight_var has no meaning", weight_var=1.0),
    "variance of student_t": ({"weight_var": 1.0}, "weight_var has no meaning"),
    "order of student_t": ({"nu_global": 1.5}, "nu_global must be negative; got 1.5"),
    "order zero": ({"nu_global": 0}, "nu_global must be negative; got 0"),
    "local orders": ({"nu_local": [-1, 1]}, r"nu_local must be negative; got \[-1, 1\]"),
    "order of normal_gamma": of_family(
        "normal_gamma", "nu_global must be positive; got -1", nu_global=-1
    ),
    "orders of normal_gamma": of_family(
        "normal_gamma", "nu_local must be positive", nu_local=(0.5, 0)
    ),
    "delta zero": ({"delta_global": 0}, "delta_global must be positive; got 0"),
    "delta nan": ({"delta_global": np.nan}, "delta_global must be a finite number"),
    "deltas": ({"delta_global": [1, 2]}, r"delta_global must be one number; got \[1, 2\]"),
    "local deltas": (
        {"delta_local": [1, 2, 3]},
        r"delta_local must be one number or 2, one per layer; got \[1, 2, 3\]",
    ),
    "local delta": ({"delta_local": (1, -1)}, "delta_local must be positive"),
    "local order text": ({"nu_local": "small"}, "nu_local must be a finite number"),
    "lambda": of_family("nig", "lambda_global must be positive", lambda_global=-1),
    "lambda infinite": of_family("nig", "lambda_global must be a finite", lambda_global=np.inf),
    "local lambda": of_family("laplace", "lambda_local must be positive", lambda_local=[1, 0]),
    "local lambdas": of_family(
        "laplace", "lambda_local must be one number or 2, one per layer", lambda_local=[1]
    ),
    "weight variance": of_family("gaussian", "weight_var must be positive", weight_var=0),
    "weight variances": of_family(
        "gaussian", "weight_var must be one number or 2, one per layer", weight_var=[1, 2, 3]
    ),
    "bias variance": ({"bias_var": 0}, "bias_var must be positive; got 0"),
    "bias variances": ({"bias_var": [1] * 3}, "bias_var must be one number or 2, one per layer"),
    "bias variance text": ({"bias_var": "none"}, "bias_var must be a finite number"),
    "hidden alpha": ({"hidden_alpha": 0}, "hidden_alpha must be a positive number; got 0"),
    "hidden beta": ({"hidden_beta": -1}, "hidden_beta must be a positive number; got -1"),
    "hidden betas": ({"hidden_beta": [1, 2]}, "hidden_beta must be a positive number"),
    "sigma": ({"sigma": -1}, "sigma must be a positive number; got -1"),
    "sigma text": ({"sigma": "net"}, "sigma must be a positive number or \"network\"; got 'net'"),
    "noise network alone": ({"noise_network": {}}, 'noise_network is for .* sigma="network" too'),
    "noise network": (
        {"sigma": "network", "noise_network": 3},
        "noise_network must be a mapping with any of the keys .*; got 3",
    ),
    "sigma lost": ({"sigma": 1e-9}, "sigma is too small: a variance below"),
    "sigma infinite": ({"sigma": 1e200}, "sigma is too large: a variance above"),
    "sigma array": ({"sigma": np.ones(2)}, "sigma must be a positive number; got array"),
    "noise network array": (
        {"sigma": "network", "noise_network": np.ones(2)},
        "noise_network must be a mapping with any of the keys hidden, activation, priors; got",
    ),
    "sigma and noise": (
        {"sigma": 1, "noise_beta": 1},
        "sigma fixes the noise for which noise_beta",
    ),
    "noise alpha": ({"noise_alpha": np.inf}, "noise_alpha must be a positive number; got inf"),
    "noise beta": ({"noise_beta": 0.0}, "noise_beta must be a positive number; got 0.0"),
    "noise beta text": ({"noise_beta": "small"}, "noise_beta must be a positive number"),
}


LABELS = list("ababab")


@pytest.mark.parametrize("labels", [LABELS, pd.Series(LABELS, dtype="category")])
@pytest.mark.parametrize(
    ("builder", "remedy"),
    [
        (intermediate_noise_mlp, 'use likelihood="multinomial_probit"'),
        (hierarchical_mlp, 'use likelihood="categorical"'),
        (bow_tie, 'use likelihood="categorical"'),
        (wide_mlp, 'use likelihood="categorical"'),
    ],
)
def test_labels_without_a_likelihood_for_them(builder, remedy, labels):
    with pytest.raises(ValueError, match=rf"y must be numeric; .*; for class labels {remedy}\.$"):
        builder(X, labels)


def one_layer(X, y, **arguments):
    """A hierarchical network of one hidden layer, if not said otherwise."""
    return hierarchical_mlp(X, y, **{"hidden": (8,), **arguments})


@pytest.mark.parametrize(
    ("builder", "cases", "case"),
    [
        *((intermediate_noise_mlp, CASES, case) for case in CASES),
        *((wide_mlp, WIDE_CASES, case) for case in WIDE_CASES),
        *((one_layer, HIERARCHICAL_CASES, case) for case in HIERARCHICAL_CASES),
        *((shrunk, BOW_TIE_CASES, case) for case in BOW_TIE_CASES),
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
        ({}, "output", r"the names \['output'\], where 'output' is a variable, not the dim"),
    ],
)
def test_clashes_of_a_wide_network(coords, variable, message, reparametrize):
    with pm.Model(coords=coords) as outer:
        pm.Normal(variable)
        before = list(outer.named_vars), dict(outer.coords)
        with pytest.raises(ValueError, match=message):
            wide_mlp(X, Y, hidden=(4,), reparametrize=reparametrize)
    assert (list(outer.named_vars), dict(outer.coords)) == before


@pytest.mark.parametrize(
    ("coords", "variable", "message"),
    [
        ({"feature": range(3)}, "w", 'coords "feature" of the model has length 3, .* needs 2'),
        ({"obs": range(7)}, "w", 'coords "obs" of the model has length 7, .* needs 6'),
        ({"hidden1": range(5)}, "w", 'coords "hidden1" of the model has length 5, .* needs 4'),
        ({"output": range(2)}, "w", 'coords "output" of the model has length 2, .* needs 1'),
        ({"feature": ["b", "a"]}, "w", r'coords "feature" of the model is .* the data say'),
        ({}, "tau_ih1_unit", r"The model already has the names \['tau_ih1_unit'\]"),
        ({}, "tau_noise", r"The model already has the names \['tau_noise'\]"),
        ({}, "sigma", r"The model already has the names \['sigma'\]"),
        ({}, "output", r"the names \['output'\], where 'output' is a variable, not the dim"),
        ({"W_h1o": range(2)}, "w", r"The model already has the names \['W_h1o'\]"),
    ],
)
def test_clashes_of_a_hierarchical_network(coords, variable, message):
    frame = pd.DataFrame(X, columns=["a", "b"])
    with pm.Model(coords=coords) as outer:
        pm.Normal(variable)
        before = list(outer.named_vars), dict(outer.coords)
        with pytest.raises(ValueError, match=message):
            hierarchical_mlp(frame, Y, hidden=(4,))
    assert (list(outer.named_vars), dict(outer.coords)) == before


@pytest.mark.parametrize(
    ("coords", "variable", "message"),
    [
        ({"feature": range(3)}, "w", 'coords "feature" of the model has length 3, .* needs 2'),
        ({"obs": range(7)}, "w", 'coords "obs" of the model has length 7, .* needs 6'),
        ({"hidden1": range(5)}, "w", 'coords "hidden1" of the model has length 5, .* needs 4'),
        ({"feature": ["b", "a"]}, "w", r'coords "feature" of the model is .* the data say'),
        *(
            ({}, name, rf"The model already has the names \['{name}'\]")
            for name in ("tau1", "psi2", "W1", "b2", "gamma1", "eta_sq2", "a1", "y", "hidden1")
        ),
        ({"psi1": range(2)}, "w", r"The model already has the names \['psi1'\]"),
    ],
)
def test_clashes_of_a_bow_tie_network(coords, variable, message):
    frame = pd.DataFrame(X, columns=["a", "b"])
    with pm.Model(coords=coords) as outer:
        pm.Normal(variable)
        before = list(outer.named_vars), dict(outer.coords)
        with pytest.raises(ValueError, match=message):
            bow_tie(frame, Y, hidden=(4,))
    assert (list(outer.named_vars), dict(outer.coords)) == before


def test_names_that_a_bow_tie_network_does_not_need():
    with pm.Model():
        for name in ("gamma1", "tau1", "psi2", "a2"):
            pm.Normal(name)
        bow_tie(X, Y, hidden=(4,), shrinkage="gaussian", marginalize_gates=True)


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
