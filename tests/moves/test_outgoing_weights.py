"""Draws of the weights that outputs see a layer through, against the model's own density.

The oracle is the gradient of the model's log density. Given the precisions of logits above, it is
affine in all activations at fixed outgoing weights, and in the outgoing weights of a unit and the
activations of all other units at fixed activations of its own: so its differences are the precision
matrices of the two Gaussians that a unit's activations and its outgoing weights are drawn from.
Activations themselves are NaN in the draw.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import graph_replace

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves.interweaving import match_interweaving
from pymc_nnsteps.moves.loops import outgoing_weights as kernels
from pymc_nnsteps.moves.outgoing_weights import find_outgoing
from tests.laws.graphs import random_nodes, shapes_of
from tests.moves.densities import built, density_of, random_point
from tests.moves.in_python import in_python
from tests.planting import plant

RNG = np.random.default_rng(11)
N, UNITS = 4, 3
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=(N, 3))
SPREAD = np.exp(RNG.normal(size=(N, 1)) / 2)


def relu(z):
    return pt.maximum(z, 0)


def network(y=Y[:, 0], **options):
    nns.intermediate_noise_mlp(X, y, hidden=(UNITS,), noise=0.3, **options)


def logistic():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", abs(z), 0.5)
    v = pm.Normal("v", shape=UNITS)
    pm.Bernoulli("y", p=pm.math.sigmoid(a @ v - 0.2), observed=[1, 0, 0, 1])


def offsets_and_means():
    """An offset before the activations and behind them, a prior of each weight, a column."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    skip = X @ pm.Normal("skip", shape=(2, UNITS))
    a = pm.Normal("X2", abs(z) - 0.4 + skip, [0.5, 0.9, 0.4])
    v = pm.Normal("v", [[0.4], [-0.2], [0.9]], [[0.3], [1.2], [0.8]], shape=(UNITS, 1))
    pm.Normal("y", a @ v + 0.7, SPREAD, observed=Y[:, :1])


def several_outputs():
    """In rows of unlike factors, with an offset and a prior of each weight, noise of each entry."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", abs(z) - 0.4, [0.5, 0.9, 0.4])
    v = pm.Normal("v", [[0.4, -0.3], [-0.2, 1], [0.9, 0]], [[0.3], [1.2], [0.8]])
    pm.Normal("y", SPREAD * (a @ v) + 0.7, SPREAD[::-1] * [0.8, 1.3], observed=Y[:, :2])


def rows_of_weights():
    """Weights by output, and outputs in another order."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a, v = pm.Normal("X2", relu(z), 0.5), pm.Normal("v", 0.1, [0.3, 0.6, 0.9], shape=(3, UNITS))
    pm.Normal("y", a @ v.T[:, [2, 0, 1]], 0.7, observed=Y)


def turned_weights():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a, v = pm.Normal("X2", relu(z), 0.5), pm.Normal("v", [0.1, 0.2, 0.3], shape=UNITS)
    pm.Normal("y", a @ v[::-1], 0.7, observed=Y[:, 0])


def two_responses():
    """With weights of their own, the second for some samples and with its own noise."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z), [0.5, 0.9, 0.4])
    v, w = pm.Normal("v", 0.4, 1.2, shape=UNITS), pm.Normal("w", shape=(2, UNITS))
    pm.Normal("y", a @ w[::-1].T, 0.4, observed=Y[:, 1:])
    pm.Normal("u", (a @ v)[1:] + 0.7, 0.7, observed=Y[1:, 0])


BY_UNIT, BY_OUTPUT = (
    np.arange(UNITS)[:, None],
    UNITS * np.array([[2, 0, 1]]) + np.arange(3)[:, None],
)
"""Where the weights of each unit stand, shape (units, outputs)."""

CASES = {
    "relu": (network, {}, BY_UNIT),
    "abs": (network, {"activation": "abs"}, BY_UNIT),
    "no bias": (network, {"bias": False}, BY_UNIT),
    "precisions": (network, {"weight_precision": [0.6, 1.7]}, BY_UNIT),
    "probit": (network, {"y": [1, 0, 0, 1], "likelihood": "probit"}, BY_UNIT),
    "logistic": (logistic, {}, BY_UNIT),
    "offsets": (offsets_and_means, {}, BY_UNIT),
    "turned weights": (turned_weights, {}, BY_UNIT[::-1]),
    "two outputs": (network, {"y": Y[:, :2]}, np.arange(2 * UNITS).reshape(2, UNITS).T),
    "outputs of each row": (several_outputs, {}, np.arange(2 * UNITS).reshape(UNITS, 2)),
    "rows of weights": (rows_of_weights, {}, BY_OUTPUT),
    "two responses": (two_responses, {}, np.arange(3 * UNITS).reshape(3, UNITS)[::-1].T),
}
"""Model, its options, and where the weights of each unit stand, shape (units, outputs)."""


def build(case):
    function, options, _ = CASES[case]
    return built(function, **options)


class Layer:
    """A layer at a random point: the draw of its outgoing weights, and as it should be."""

    def __init__(self, case, seed=0):
        model, self.places = build(case), CASES[case][2]
        rng, shapes = np.random.default_rng(seed + 1), shapes_of(model)
        conditionals = find_conditionals(model, model.free_RVs)
        self.rows = match_interweaving(model, model["Z2"], conditionals, 1)
        self.outgoing = find_outgoing(model, self.rows, conditionals)
        vs, [a] = self.outgoing.draws, self.outgoing.integrates_out
        self.vs, self.a, self.point = [v.name for v in vs], a.name, random_point(model, seed)
        held = {}
        for before in self.rows.likelihood.before:
            held |= before.fixed
        omegas = {omega: rng.gamma(2.0, size=shapes[c.child]) for omega, c in held.items()}
        children = {child.child: omegas[omega] for omega, child in held.items()}
        self._density = density_of(model, [*vs, a], children)
        self.n_obs, self.units = self.point[self.a].shape
        self.noise = rng.normal(size=(self.units, self.n_obs))
        self.normal = rng.normal(size=self.places.shape)
        self._draw = self._compiled(model, omegas)

    def _compiled(self, model, omegas):
        rng = pt.random.rng("rng")
        draw = self.outgoing.draw(rng, shapes_of(model))
        fixed = {omega: pt.as_tensor(value) for omega, value in omegas.items()}
        [*results] = substitute([draw.rng, *draw.values.values()], fixed | natural_values(model))
        nodes = random_nodes(rng, results[0], results[1:])
        noises = [node.outputs[1] for node in nodes]
        given = [noise.type() for noise in noises]
        values = graph_replace(results[1:], dict(zip(noises, given, strict=True)), strict=False)
        value = pt.concatenate([value.flatten() for value in values])
        names = list(model.value_vars)
        function = pytensor.function([*names, *given], value, mode=ONCE, on_unused_input="ignore")
        return lambda point: function(*(point[v.name] for v in names), self.noise, self.normal)

    def drawn(self):
        return self._draw(self.point | {self.a: np.full_like(self.point[self.a], np.nan)}).ravel()

    def _law(self, weights, activations, chosen):
        """Mean and covariance of the chosen entries of (weights, activations), the others given."""
        start = np.concatenate([weights, activations.ravel()])
        start[chosen] = 0

        def gradient(shift):
            at = start + shift
            names = [*self.vs, self.a]
            ends = np.cumsum([self.point[name].size for name in names])
            values = dict(zip(names, np.split(at, ends[:-1]), strict=True))
            new = {name: x.reshape(self.point[name].shape) for name, x in values.items()}
            return self._density(self.point | new)[1][chosen]

        zero, steps = gradient(0 * start), np.eye(len(start))[chosen]
        covariance = np.linalg.inv(-np.stack([gradient(step) - zero for step in steps]))
        return covariance @ zero, covariance

    def expected(self):
        """One unit after another: its activations, and then its weights."""
        weights = np.concatenate([self.point[v].ravel() for v in self.vs])
        n, units = self.n_obs, self.units
        place = len(weights) + np.arange(n)[:, None] * units + np.arange(units)
        for unit, own in enumerate(self.places):
            activations = np.zeros((n, units))
            mean, covariance = self._law(weights, activations, place.ravel())
            spread = np.sqrt(np.diag(covariance).reshape(n, units)[:, unit])
            activations[:, unit] = mean.reshape(n, units)[:, unit] + spread * self.noise[unit]
            chosen = np.r_[own, np.delete(place, unit, axis=1).ravel()]
            mean, covariance = self._law(weights, activations, chosen)
            m = len(own)
            root = np.linalg.cholesky(np.linalg.inv(covariance[:m, :m]))
            weights[own] = mean[:m] + np.linalg.solve(root.T, self.normal[unit])
        return weights


@pytest.mark.parametrize("case", CASES)
def test_weights_are_drawn_as_the_model_says(case):
    """A lost prior mean or offset, a variance for a precision, units in another order."""
    layer = Layer(case)
    np.testing.assert_allclose(layer.drawn(), layer.expected(), rtol=1e-8)


@cache
def layer_in_python():
    """A layer whose weights the kernel draws in Python, and what it should draw."""
    layer = Layer("outputs of each row")
    return layer, layer.expected()


def activations_at_their_mean(
    right, above, unit, before, spread, told, level, residual, noise, *to
):
    right(above, unit, before, spread, told, level, residual, 0 * noise, *to)


PLANTS = {
    "own noise not left out": (
        "noise_of_others",
        lambda right, design, variance, unit, spread: right(design, variance, -1, spread),
    ),
    "activations at their mean": ("tell_outputs", activations_at_their_mean),
    "weights of the first sample": (
        "know",
        lambda right, spread, above, sample, told: right(spread, above, 0, told),
    ),
    "residual not kept": ("update_residual", lambda right, *args: None),
    "root turned": ("solve", lambda right, *args: kernels.solve_transposed(*args)),
}
"""Parts of the kernel, and what stands in their place."""


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    in_python(monkeypatch, kernels)
    layer, expected = layer_in_python()
    np.testing.assert_allclose(layer.drawn(), expected, rtol=1e-8)
    plant(monkeypatch, kernels, *PLANTS[error])
    assert not np.allclose(layer.drawn(), expected, rtol=1e-3)


def another_child_of_activations():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    pm.Normal("u", a, 1.0, observed=Y)
    pm.Normal("y", a @ pm.Normal("v", shape=UNITS), 0.7, observed=Y[:, 0])


def another_child_of_weights():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a, v = pm.Normal("X2", relu(z), 0.5), pm.Normal("v", shape=UNITS)
    pm.Normal("u", v, 1.0, observed=Y[0])
    pm.Normal("y", a @ v, 0.7, observed=Y[:, 0])


def weights_seen_twice():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a, v = pm.Normal("X2", relu(z), 0.5), pm.Normal("v", shape=UNITS)
    pm.Normal("y", a @ v + Y @ v, 0.7, observed=Y[:, 0])


def scaled_weights():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a, v = pm.Normal("X2", relu(z), 0.5), pm.Normal("v", shape=UNITS)
    pm.Normal("y", a @ (2 * v), 0.7, observed=Y[:, 0])


def repeated_weights():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a, v = pm.Normal("X2", relu(z), 0.5), pm.Normal("v", shape=UNITS)
    pm.Normal("y", a @ pt.stack([v, v], 1), 0.7, observed=Y[:, :2])


def many_outputs_of_each_sample():
    """As many matrices are inverted as there are units and samples."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a, v = pm.Normal("X2", relu(z), 0.5), pm.Normal("v", shape=(UNITS, 5))
    pm.Normal("y", a @ v, SPREAD, observed=RNG.normal(size=(N, 5)))


def latent_outputs():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    y = pm.Normal("y", a @ pm.Normal("v", shape=(UNITS, 2)), 0.7)
    pm.Normal("u", y, 0.7, observed=Y[:, :2])


def fixed_weights():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    pm.Normal("y", a @ Y[0], 0.7, observed=Y[:, 0])


@pytest.mark.parametrize(
    "build_model",
    [
        another_child_of_activations,
        another_child_of_weights,
        weights_seen_twice,
        scaled_weights,
        repeated_weights,
        many_outputs_of_each_sample,
        latent_outputs,
        fixed_weights,
    ],
)
def test_others_are_left_to_their_own_draw(build_model):
    model = built(build_model)
    conditionals = find_conditionals(model, model.free_RVs)
    rows = match_interweaving(model, model["Z2"], conditionals, 1)
    assert find_outgoing(model, rows, conditionals) is None
    assert "also with" not in str(nns.explain(model, details=True))


def test_it_is_explained():
    rows = {row[0]: row[2] for row in nns.explain(build("relu")).rows}
    assert rows["W2"] == (
        "jointly with b2; also with X2 integrated out; along rays of units; along trajectories; "
        "children: y"
    )
