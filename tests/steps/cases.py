"""What the conformance suite runs over: each step on the models that exercise it.

A new step class is one more entry of ``CASES``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_nnsteps as nns

X = np.random.default_rng(1).normal(size=(12, 2))


@dataclass(frozen=True)
class Case:
    """A step on a model, with its arguments. ``variables`` are those it takes; None: all."""

    step: Callable[..., Any]
    build: Callable[[], pm.Model]
    variables: tuple[str, ...] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def make(self, model, **options):
        variables = self.variables and [model[name] for name in self.variables]
        return self.step(variables, model=model, **self.arguments, **options)


def relu_network():
    return nns.intermediate_noise_mlp(X, np.abs(X[:, 0]), hidden=(3,), noise=0.1)


def deep_network():
    return nns.intermediate_noise_mlp(
        X, X, hidden=(3, 2), noise=0.2, activation="hard_tanh", bias=False
    )


def probit_network():
    return nns.intermediate_noise_mlp(
        X, X[:, 0] > 0, hidden=(3,), noise=0.5, activation="abs", likelihood="probit"
    )


def multinomial_network():
    return nns.intermediate_noise_mlp(
        X, np.arange(12) % 3, hidden=(2,), noise=0.5, likelihood="multinomial_probit"
    )


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


def regression():
    """A conjugate regression whose scale, between its coefficients, is for another step."""
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 2, shape=2)
        sigma = pm.HalfCauchy("sigma", 1)
        intercept = pm.Normal("intercept", 0, 5)
        mean = pm.Data("inputs", X) @ slopes + intercept
        pm.Normal("y", mean, sigma, observed=pm.Data("targets", X[:, 0] - 1))
    return model


def hierarchical_network():
    """Three levels of precisions, adjustments, Student-t weights and noise."""
    priors = {"ih": "1:4:3:5", "ah": 4, "noise": "0.5:4::6"}
    return nns.hierarchical_mlp(X, X[:, 0], hidden=(2,), priors=priors, likelihood="student_t")


def bow_tie_network():
    model = nns.bow_tie(X, X[:, 0], hidden=(3, 2), shrinkage="nig", temperature=0.5)
    for variable in model.free_RVs:  # not at random: tests compare chains from the same start
        model.set_initval(variable, None)
    return model


def gaussian_process():
    """A latent function whose prior has a parameter that is for another step."""
    with pm.Model() as model:
        x = pm.Data("inputs", X)[:, 0]
        scale = pm.HalfNormal("scale", initval=0.9)
        kernel = pm.math.exp(-((x[:, None] - x) ** 2)) + 0.1 * pt.eye(x.shape[0])
        f = pm.MvNormal("f", 0.1 * pt.ones_like(x), cov=scale * kernel)
        pm.Normal("y", pm.math.tanh(f), 0.5, observed=pm.Data("targets", X[:, 1]))
    return model


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


PRECISIONS = ("tau_ah1", "tau_ih1", "tau_ih1_unit", "tau_bh1", "tau_h1o", "tau_noise")

CASES = {
    "gibbs-relu": Case(nns.Gibbs, relu_network),
    "gibbs-plain": Case(nns.Gibbs, relu_network, None, {"interweave": False}),
    "gibbs-deep": Case(nns.Gibbs, deep_network),
    "gibbs-parallel": Case(
        nns.Gibbs, deep_network, None, {"interweave": True, "passes": 2, "scan": "parallel"}
    ),
    "gibbs-probit": Case(nns.Gibbs, probit_network),
    "gibbs-multinomial": Case(nns.Gibbs, multinomial_network),
    "gibbs-by-hand": Case(nns.Gibbs, by_hand, ("W1", "Z", "A", "W2", "b2")),
    "gibbs-regression": Case(nns.Gibbs, regression, ("slopes", "intercept")),
    "gibbs-precisions": Case(nns.Gibbs, hierarchical_network, PRECISIONS),
    "gibbs-bow-tie": Case(nns.Gibbs, bow_tie_network, None, {"collapse": True}),
    "pcn-process": Case(nns.PCN, gaussian_process, ("f",), {"beta": 0.1}),
    "pcn-network": Case(nns.PCN, smooth_network, None, {"steps": 3}),
    "pcnl-process": Case(nns.PCNL, gaussian_process, ("f",)),
    "pcnl-network": Case(nns.PCNL, smooth_network, ("W1", "w2", "b2"), {"delta": 0.001}),
    "mala-process": Case(nns.MALA, gaussian_process, None, {"step_size": 0.02}),
    "mala-network": Case(nns.MALA, smooth_network, None, {"preconditioner": {"W1": 0.5}}),
}


def run(step, point, n):
    """Points and statistics of ``n`` steps."""
    points, stats = [], []
    for _ in range(n):
        point, [stat] = step.step(point)
        points.append(point)
        stats.append(stat)
    return points, stats


def assert_same(points, others):
    """Fail unless the points are the same, bit by bit."""
    for point, other in zip(points, others, strict=True):
        assert list(point) == list(other)
        for name, value in point.items():
            np.testing.assert_array_equal(value, other[name], strict=True, err_msg=name)
