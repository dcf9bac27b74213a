"""Models that tests share, each with what it is for.

A model that a second test module needs, or that a property of all models should be asked of, goes
here: a function with a line that says what it alone brings along. Families of models that one
subject needs many of stand beside its tests (priors in ``steps/gaussian.py``, layers of gates in
``moves/gated_layers.py``, random ones in ``laws/programs.py``).
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt

import pymc_nnsteps as nns
from pymc_nnsteps.graphs.initial_values import begin_at
from tests.moves import gated_layers

X = np.random.default_rng(1).normal(size=(12, 2))

ZOO: dict[str, Callable[[], pm.Model]] = {}
"""Models by name."""


def kept(build):
    """Register a model; what it is for is its docstring."""
    assert build.__doc__
    ZOO[build.__name__] = build
    return build


# --- networks ------------------------------------------------------------------------------


@kept
def relu_network():
    """The smallest network of the builder: one layer, one output, one kink."""
    return nns.intermediate_noise_mlp(X, np.abs(X[:, 0]), hidden=(3,), noise=0.1)


@kept
def network_with_missing_levels():
    """A category of three levels, the first of which are missing."""
    table = pd.DataFrame({"x": X[:, 0], "depot": [None, None, None, *"abc" * 3]})
    return nns.intermediate_noise_mlp(table, X[:, 1], hidden=(3,), noise=0.1, missing="impute")


@kept
def deep_network():
    """Two layers of unequal width, several outputs, two kinks, no biases."""
    return nns.intermediate_noise_mlp(
        X, X, hidden=(3, 2), noise=0.2, activation="hard_tanh", bias=False
    )


@kept
def probit_network():
    """Utilities that a threshold decides on, and a kink that folds."""
    return nns.intermediate_noise_mlp(
        X, X[:, 0] > 0, hidden=(3,), noise=0.5, activation="abs", likelihood="probit"
    )


@kept
def multinomial_network():
    """Utilities of several classes, of which the largest decides."""
    return nns.intermediate_noise_mlp(
        X, np.arange(12) % 3, hidden=(2,), noise=0.5, likelihood="multinomial_probit"
    )


@kept
def by_hand():
    """A network in a user's own words, with a scale that is for another step."""
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0.3, 0.8, shape=(2, 3))
        Z = pm.Normal("Z", pm.math.dot(pm.Data("inputs", X), W1), 0.5)
        A = pm.Normal("A", abs(Z) - 0.5, tau=1.7)
        W2 = pm.Normal("W2", 0, tau=0.8, shape=3)
        b2 = pm.Normal("b2", -1.0, 0.6)
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", (A * W2).sum(axis=-1) + b2, sigma, observed=pm.Data("targets", X[:, 0]))
    return model


@kept
def effects_beside_a_network():
    """Effects of groups, one without rows, beside output weights; scales of both."""
    group = np.arange(12) % 4
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0, 1, shape=(2, 2))
        Z = pm.Normal("Z", pm.math.dot(pm.Data("inputs", X), W1), 0.5)
        A = pm.Normal("A", pm.math.maximum(Z, 0), 0.3)
        W2 = pm.Normal("W2", 0, 1, shape=2)
        a = pm.Normal("a", 0, pm.HalfNormal("tau"), shape=5)
        mean = A @ W2 + pm.Normal("b") + a[group]
        pm.Normal("y", mean, pm.HalfNormal("s"), observed=pm.Data("targets", X[:, 0] + group))
    return model


@kept
def regression():
    """A conjugate regression whose scale, between its coefficients, is for another step."""
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 2, shape=2)
        sigma = pm.LogNormal("sigma", 0, 1)
        intercept = pm.Normal("intercept", 0, 5)
        mean = pm.Data("inputs", X) @ slopes + intercept
        pm.Normal("y", mean, sigma + 1e-9, observed=pm.Data("targets", X[:, 0] - 1))
    return model


@kept
def hierarchical_network():
    """Three levels of precisions, adjustments, Student-t weights and noise."""
    priors = {"ih": "1:4:3:5", "ah": 4, "noise": "0.5:4::6"}
    return nns.hierarchical_mlp(X, X[:, 0], hidden=(2,), priors=priors, likelihood="student_t")


@kept
def bow_tie_network(hidden=(3, 2)):
    """Two layers of gates, scales from generalised inverse Gaussians, a start that is fixed."""
    model = nns.bow_tie(X, X[:, 0], hidden=hidden, shrinkage="nig", temperature=0.5)
    for variable in model.free_RVs:  # not at random: tests compare chains from the same start
        begin_at(variable, None)
    return model


@kept
def gaussian_process():
    """A latent function whose prior has a parameter that is for another step."""
    with pm.Model() as model:
        x = pm.Data("inputs", X)[:, 0]
        scale = pm.HalfNormal("scale", initval=0.9)
        kernel = pm.math.exp(-((x[:, None] - x) ** 2)) + 0.1 * pt.eye(x.shape[0])
        f = pm.MvNormal("f", 0.1 * pt.ones_like(x), cov=scale * kernel)
        pm.Normal("y", pm.math.tanh(f), 0.5, observed=pm.Data("targets", X[:, 1]))
    return model


@kept
def smooth_network():
    """Normal and MvNormal variables of several shapes, and a scale with a transform."""
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0.3, 0.8, shape=(2, 3))
        w2 = pm.MvNormal("w2", np.zeros(3), tau=0.5 + np.eye(3))
        b2 = pm.Normal("b2", -1.0, 0.6)
        sigma = pm.HalfNormal("sigma")
        mean = pm.math.tanh(pm.Data("inputs", X) @ W1) @ w2 + b2
        pm.Normal("y", mean, sigma, observed=pm.Data("targets", X[:, 0]))
    return model


@kept
def wide_network():
    """Reparametrised weights, a covariance that depends on weights: nothing that Gibbs draws."""
    return nns.wide_mlp(X, X[:, 0], hidden=(4,))


@kept
def gates_and_pieces():
    """Rows behind kinks in a network some of whose layers are gated."""
    with nns.bow_tie(X, X[:, 0], hidden=(2,)) as model:
        z = pm.Normal("z", X @ pm.Normal("v", shape=(2, 3)), 0.1)
        a = pm.Normal("a", pm.math.maximum(z, 0), 0.1)
        pm.Normal("u", a @ pm.Normal("w", shape=3), 0.3, observed=X[:, 1])
    return model


@kept
def integers_beside_weights():
    """Gates, counts and rows of whole numbers in the mean of weights, beside a Student-t part."""
    with pm.Model() as model:
        gates = pm.Bernoulli("gates", 0.4, shape=len(X))
        level = pm.StudentT("level", nu=4, mu=0, sigma=1)
        around = pm.Bernoulli("around", 0.3, shape=2)
        w = pm.Normal("w", around, 1, shape=2)
        units = pm.Normal("units", 0, 1, shape=(2, 3))
        counts = pm.Data("counts", np.arange(2 * len(X)).reshape(-1, 2) % 5)
        seen = gates + level + counts @ w
        pm.Normal("y", seen, 0.5, observed=pm.Data("targets", X[:, 0]))
        pm.Bernoulli("label", logit_p=counts @ w + gates, observed=X[:, 1] > 0)
        pm.Normal("z", X @ units + gates[:, None], 0.5, observed=np.repeat(X[:, :1], 3, axis=1))
    return model


for statement in (
    gated_layers.no_biases,
    gated_layers.variance_of_each_unit,
    gated_layers.seen_twice,
    gated_layers.weights_with_other_children,
    gated_layers.closed_gates_above,
    gated_layers.closed_gates_free,
    gated_layers.vector_of_weights,
    gated_layers.signs_turned,
    gated_layers.factors_of_each_entry,
    gated_layers.gates_by_chance,
):
    ZOO[statement.__name__] = partial(gated_layers.built, statement)
