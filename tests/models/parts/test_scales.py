"""Data on a scale that no default prior is made for are met by a warning, by every builder."""

import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytest

from pymc_nnsteps.models import (
    blocks,
    bow_tie,
    hierarchical_mlp,
    intermediate_noise_mlp,
    wide_mlp,
)

BUILDERS = [bow_tie, hierarchical_mlp, intermediate_noise_mlp, wide_mlp]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = X[:, 0] + 0.1 * RNG.normal(size=40)
PIXELS = np.where(np.arange(40)[:, None] % 20 == 0, [0.0625, 0.0, 1.0], 0.0)

STRANGE = {
    "X huge": (X * 1e12, Y, r"^X has a scale far from 1 in 3 of 3 columns"),
    "X beyond squares": (X * 1e200, Y, r"^X has a scale far from 1 in 3 of 3 columns"),
    "X far off": (
        X + np.array([0, 1e12, 0]),
        Y,
        r"^X has .* 1 of 3 columns \(column 1: .* mean 1e\+12",
    ),
    "X tiny": (X * [1, 1, 1e-12], Y, r"^X has .* 1 of 3 columns \(column 2"),
    "X named": (
        pd.DataFrame(X * [1, 1e12, 1], columns=["age", "cost", "size"]),
        Y,
        r"^X has .* 1 of 3 columns \(column cost",
    ),
    "X constant": (np.ones((40, 2)), Y, r"^X is constant in 2 of 2 columns \(column 0: 1\)"),
    "y huge": (X, Y * 1e12, r"^y has a scale far from 1 in 1 of 1 columns"),
    "y tiny": (X, Y * 1e-12, r"^y has a scale far from 1 in 1 of 1 columns"),
    "y far off": (X, Y + 1e12, r"^y has a scale far from 1 .* mean 1e\+12"),
    "y constant": (X, np.full(40, 3), r"^y is constant in 1 of 1 columns \(column 0: 3\)"),
    "an output": (X, np.stack([Y, Y * 0], 1), r"^y is constant in 1 of 2 columns \(column 1: 0\)"),
}


@pytest.mark.parametrize("case", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("builder", BUILDERS)
def test_strange_scales(builder, case):
    """One warning, which points at the builder's caller; as an error it leaves no trace."""
    x, y, message = case
    with pytest.warns(UserWarning, match=message) as caught:
        builder(x, y, hidden=(2,))
    assert [warning.filename for warning in caught] == [__file__]
    with pm.Model() as outer, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            builder(x, y, hidden=(2,))
    assert not outer.named_vars


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (X, Y),
        (0.2 * X + 3, 5 * Y - 4),
        (np.column_stack([X, np.ones(40), np.full(40, 1e6)]), Y),
        (np.column_stack([X, PIXELS, 0.001 * PIXELS]), Y),
        (X[:1], Y[:1]),
    ],
    ids=["standard", "moderate", "intercept", "rare pixels", "one row"],
)
@pytest.mark.parametrize("builder", BUILDERS)
def test_usual_scales(builder, x, y):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        builder(x, y, hidden=(2,))


@pytest.mark.parametrize(
    ("builder", "likelihood"),
    [(intermediate_noise_mlp, "multinomial_probit"), (hierarchical_mlp, "categorical")],
)
def test_numbers_of_classes_have_no_scale(builder, likelihood):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        builder(X, np.arange(40), likelihood=likelihood)


def test_targets_of_a_bow_tie_network_keep_their_units():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bow_tie(X, 150 + 80 * Y)


@pytest.mark.parametrize(
    "block", [blocks.bow_tie, blocks.hierarchical, blocks.intermediate_noise, blocks.wide]
)
def test_inputs_of_blocks(block):
    """One warning at the caller, whatever holds the inputs; none of what is not known."""
    big = X * [1, 1083, 1]
    with pm.Model(coords={"kind": ["age", "cost", "size"]}) as model:
        data = pm.Data("data", big, dims=("row", "kind"))
        for x, column in ((big, 1), (pd.DataFrame(big), 1), (data, "cost"), (data[:, 1:], 0)):
            message = rf"^x has .* \(column {column}: standard deviation 886,"
            with pytest.warns(UserWarning, match=message) as caught:
                block(x, hidden=(2,), name=f"f{len(model.named_vars)}")
            assert [warning.filename for warning in caught] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            block(X, hidden=(2,), name="usual")
            block(np.zeros((4, 2)), hidden=(2,), name="to_be_exchanged")
            block(data * pm.Normal("scale"), hidden=(2,), name="random")
            known = list(model.named_vars)
            with pytest.raises(UserWarning):
                block(big, hidden=(2,), name="error")
    assert list(model.named_vars) == known
