"""Which draws are of rows, in which rounds, and models whose rows cannot be told apart."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.sharded.rounds import rounds_of

RNG = np.random.default_rng(20)
X = RNG.normal(size=(6, 3))
Y = RNG.normal(size=6)
NAMES = ("inputs", "targets")


@pytest.mark.parametrize(
    ("scan", "expected"),
    [
        ("sequential", [("Z2 X2", "W2 b2"), ("Z3 X3", "W3 b3 W1 b1")]),
        ("parallel", [("Z2 Z3 X2 X3", "W1 b1 W2 b2 W3 b3")]),
    ],
)
def test_rounds_of_a_network(scan, expected):
    model = nns.intermediate_noise_mlp(X, Y, hidden=(2, 3), noise=0.1)
    found = [
        tuple(
            " ".join(rv.name for conditional in part for rv in conditional.draws)
            for part in (each.rows, each.shared)
        )
        for each in rounds_of(model, NAMES, scan).rounds
    ]
    assert found == expected


def test_means_of_effects_are_drawn_given_the_effects():
    """A joint draw of both, which sums over rows do not tell the law of."""
    with pm.Model() as model:
        groups, targets = pm.Data("groups", [0, 1, 1, 2, 0, 2]), pm.Data("targets", Y)
        a = pm.Normal("a", pm.Normal("mu"), 0.5, shape=3)
        pm.Normal("y", a[groups], 1, observed=targets)
    [found] = rounds_of(model, ("groups", "targets")).rounds
    assert [rv.name for drawn in found.shared for rv in drawn.draws] == ["mu", "a"]


def latent_offsets(X, y):
    with pm.Model() as model:
        inputs, targets = pm.Data("inputs", X), pm.Data("targets", y)
        offset = pm.Normal("offset", 0, 1, shape=len(X))
        Z = pm.Normal("Z", inputs @ pm.Normal("w", 0, 1, shape=X.shape[1]) + offset, 1)
        pm.Normal("y", Z, 1, observed=targets)
    return model


def of_a_stated_length(X, y):
    with pm.Model() as model:
        inputs, targets = pm.Data("inputs", X), pm.Data("targets", y)
        w = pm.Normal("w", 0, 1, shape=X.shape[1])
        pm.Normal("y", pm.Normal("Z", inputs @ w, 1, shape=len(X)), 1, observed=targets)
    return model


def centred(X, y):
    with pm.Model() as model:
        inputs, targets = pm.Data("inputs", X), pm.Data("targets", y)
        w = pm.Normal("w", 0, 1, shape=X.shape[1])
        pm.Normal("y", (inputs - inputs.mean(0)) @ w, 1, observed=targets)
    return model


def observed_for_all(X, y):
    with pm.Model() as model:
        inputs = pm.Data("inputs", X)
        pm.Data("targets", y)
        w = pm.Normal("w", 0, 1, shape=X.shape[1])
        pm.Normal("y", inputs @ w, 1, observed=y)
    return model


def constant_of_all(X, y):
    with pm.Model() as model:
        inputs, targets = pm.Data("inputs", X), pm.Data("targets", y)
        w = pm.Normal("w", 0, 1, shape=X.shape[1])
        pm.Normal("y", inputs @ w + np.arange(len(X)), 1, observed=targets)
    return model


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (latent_offsets, "offset has an entry for each row of Z"),
        (of_a_stated_length, "Z has an entry for each row, but is fixed at 6 rows"),
        (centred, "y of a row depends on other rows"),
        (observed_for_all, "y is observed with values that belong to no shard"),
        (constant_of_all, "is fixed at 6 rows"),
    ],
)
def test_what_is_not_of_rows_is_declined(build, message):
    with pytest.raises(nns.laws.NotConjugate, match=message):
        rounds_of(build(X[:6], Y[:6]), NAMES)
