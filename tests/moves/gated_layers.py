"""Layers of gates, and one at a random point with its log density without activations.

Given the precisions of logits above, the model's log density is an exact quadratic in a layer's
activations, so that differences of it at unit steps give its gradient and its curvature, and with
these the log density of all else with the activations integrated out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_nnsteps as nns
from pymc_nnsteps.graphs.values import substitute
from pymc_nnsteps.laws.conditional import Conditional, Draw
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves.interwoven_gates import match_interwoven_gates
from tests.laws.graphs import point_of, shapes_of

RNG = np.random.default_rng(6)
N = 3
X = RNG.normal(size=(N, 2))
Y = RNG.normal(size=(N, 3))
SPREAD = np.exp(RNG.normal(size=(N, 3)) / 2)


FIXED = {
    "shrinkage": nns.models.Shrinkage("gaussian", weight_var=0.8),
    "bias_var": 1.2,
    "noise_beta": 0.5,
}
"""Hyperparameters that do not depend on the data."""


def bow_tie(*hidden, y=Y, X=X, **options):
    options = options or FIXED
    return nns.bow_tie(X, y, hidden=hidden, temperature=0.9, start="prior", **options)


def gated(z, sigma, index=1, **options):
    gamma = pm.Bernoulli(f"gamma{index}", logit_p=z / 1.2, **options)
    return pm.Normal(f"a{index}", gamma * z, sigma, **options)


def no_biases():
    """Weights with a prior mean, noise of each sample, and gates by their probability."""
    z = X @ pm.Normal("W1", [[0.3, -0.2], [1.0, 0.5]], [[1.0, 0.6], [0.8, 2.0]])
    gamma = pm.Bernoulli("gamma1", p=pm.math.sigmoid(1.5 * z))
    a = pm.Normal("a1", z * gamma, 0.6)
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)), SPREAD, observed=Y)


def variance_of_each_unit():
    """Offsets: before the gates, behind them, and of the outputs."""
    z = X @ pm.Normal("W1", 0.3, 1.0, shape=(2, 2)) + pm.Normal("b1", -0.4, 0.7, shape=2) + 0.3
    gamma = pm.Bernoulli("gamma1", logit_p=z - 0.2)
    noise = pm.InverseGamma("eta_sq1", 3, 1, shape=2)
    a = pm.Normal("a1", 0.5 + gamma * (2 * z - 0.7), noise**0.5)
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)) + Y[::-1], 0.8, observed=Y)


def seen_twice():
    """Activations that are also seen one by one, and by binary outputs beside others."""
    z = X @ pm.Normal("W1", shape=(2, 2)) + pm.Normal("b1", shape=2)
    a = gated(z, [0.5, 0.9])
    w = pm.Normal("w2", shape=2)
    pm.Normal("u", 0.1 + 2 * a, SPREAD[:, :2], observed=Y[:, :2])
    pm.Bernoulli("v", logit_p=a @ w - 0.2, observed=[1, 0, 1])
    pm.Normal("y", a @ w, 0.7, observed=Y[:, 0])


def weights_with_other_children():
    """Whose inputs are the same for all children, and gates of a fixed probability."""
    z = X @ pm.Normal("W1", shape=(2, 2))
    gamma = pm.Bernoulli("gamma1", p=[[0.2, 0.7]] * N)
    a = pm.Normal("a1", gamma * z, 0.5)
    pm.Normal("u", 0.4 + z, 1.3, observed=Y[:, :2])
    pm.Normal("y", a @ pm.Normal("w2", shape=2), 0.7, observed=Y[:, 0])


def closed_gates_above():
    """Gates of a fixed probability, so that some of the rows above have no weight at all."""
    a = gated(X @ pm.Normal("W1", shape=(2, 2)), 0.5)
    z = a @ pm.Normal("W2", shape=(2, 2)) + 0.3
    a2 = pm.Normal("a2", pm.Bernoulli("gamma2", p=0.5, shape=(N, 2)) * z, 0.5)
    pm.Normal("y", a2 @ pm.Normal("w3", shape=2), 0.7, observed=Y[:, 0])


def closed_gates_free():
    """The level behind closed gates is a variable of its own, and gates know no temperature."""
    z = X @ pm.Normal("W1", 0.3, 1.0, shape=(2, 2)) + pm.Normal("b1", -0.4, 0.7, shape=2)
    gamma = pm.Bernoulli("gamma1", logit_p=z)
    a = pm.Normal("a1", pm.Normal("c", shape=2) - gamma * z, 0.6)
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)), 0.8, observed=Y)


def vector_of_weights():
    """One unit, whose weights have no axis of units."""
    z = X @ pm.Normal("w1", 0.3, 1.0, shape=2) + pm.Normal("b1", 0.2, 0.7)
    pm.Normal("y", gated(z[:, None], 0.5) @ pm.Normal("w2", shape=1), 0.7, observed=Y[:, 0])


def signs_turned():
    """Open gates let less through, and are open where z is small."""
    z = X @ pm.Normal("W1", 0.3, 1.0, shape=(2, 2)) + pm.Normal("b1", -0.4, 0.7, shape=2)
    gamma = pm.Bernoulli("gamma1", logit_p=0.4 - 1.5 * z)
    a = pm.Normal("a1", 0.5 - gamma * z, 0.6)
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)), 0.8, observed=Y)


def factors_of_each_entry():
    z = X @ pm.Normal("W1", 0.3, 1.0, shape=(2, 2)) + pm.Normal("b1", -0.4, 0.7, shape=2)
    gamma = pm.Bernoulli("gamma1", logit_p=z * [0.7, 2.0])
    a = pm.Normal("a1", gamma * (SPREAD[:, :2] * z), 0.6)
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)), 0.8, observed=Y)


def gates_by_chance():
    """Gates of a fixed probability, which weights do not change."""
    z = X @ pm.Normal("W1", shape=(2, 2))
    a = pm.Normal("a1", pm.Bernoulli("gamma1", p=[[0.2, 0.7]] * N) * z, 0.5)
    pm.Normal("y", a @ pm.Normal("w2", shape=2), 0.7, observed=Y[:, 0])


def network(*hidden, **options):
    def build():
        bow_tie(*hidden, **options)

    build.__name__ = "bow_tie_" + "_".join(map(str, hidden))
    return build


LAYERS = {
    f"{build.__name__}-layer{layer}": (build, layer)
    for build, layer in [
        (network(3, y=Y[:, 0]), 1),
        (network(2), 1),
        (network(3, 2, y=Y[:, 0], shrinkage="student_t"), 1),
        (network(2, 3), 2),
        (network(1, 2, 2), 2),
        (network(1), 1),
        (network(1, 2, y=Y[:, 0]), 1),
        (network(2, 1), 1),
        (network(2, 1), 2),
        (network(1, 1, y=Y[:, 0]), 2),
        (no_biases, 1),
        (variance_of_each_unit, 1),
        (seen_twice, 1),
        (closed_gates_above, 1),
        (closed_gates_free, 1),
        (vector_of_weights, 1),
    ]
}
"""Layers whose activations can be integrated out: a model's statement, and the layer."""


def built(build):
    with pm.Model() as model:
        build()
    return model


def named(conditionals, name):
    """The conditional that draws a variable."""
    [found] = [c for c in conditionals if name in [rv.name for rv in c.draws]]
    return found


def names(conditionals):
    return [" ".join(rv.name for rv in c.draws) or c.name for c in conditionals]


@dataclass(frozen=True)
class Given(Conditional):
    """A draw at given Polya-Gamma variables of its layer, held by the draw before."""

    of: Conditional
    omegas: Mapping
    draws: tuple = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "draws", self.of.draws)

    @property
    def name(self):
        return self.of.name

    def draw(self, rng, shapes):
        draw = self.of.draw(rng, shapes)
        fixed = {omega: pt.as_tensor(value) for omega, value in self.omegas.items()}
        new_rng, *values = substitute([draw.rng, *draw.values.values()], fixed)
        return Draw(new_rng, dict(zip(draw.values, values, strict=True)))


class Layer:
    """A layer of a model at a random point, with its log density without activations."""

    def __init__(self, build, index, passes=1, seed=0):
        self.model, self.a = built(build), f"a{index}"
        rng = np.random.default_rng(seed)
        conditionals = find_conditionals(self.model, self.model.free_RVs)
        self.move = match_interwoven_gates(named(conditionals, self.a), conditionals, passes)
        shapes = shapes_of(self.model)
        bits = [rv for rv in self.model.free_RVs if rv.dtype == "int64"]
        given = {rv.name: rng.integers(2, size=shapes[rv]) for rv in bits}
        self.point = point_of(self.model, rng, **given)
        held = {
            omega: seen for draw in self.likelihood.before for omega, seen in draw.fixed.items()
        }
        self.above = {
            omega: rng.gamma(2.0, size=shapes[child.child]) for omega, child in held.items()
        }
        self.children_above = {child.child: self.above[omega] for omega, child in held.items()}

    @property
    def likelihood(self):
        """What the children say of the activations."""
        return self.move.likelihood

    def fresh(self):
        """The draw of the activations, at given precisions of the logits above."""
        return Given(self.likelihood.fresh, self.above)

    @property
    def blind(self):
        return self.point | {self.a: np.full_like(self.point[self.a], np.nan)}
