"""Draws of the weights that one output sees a layer through, against the model's own density.

The oracle is the gradient of the model's log density. Given the precisions of logits above, it is
affine in all activations at fixed outgoing weights, and in one outgoing weight and the activations
of all other units at fixed activations of its own: so its differences are the precision matrices
of the two Gaussians that a unit's activations and its outgoing weight are drawn from. Activations
themselves are NaN in the draw.
"""

import inspect

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import graph_replace

import pymc_nnsteps as nns
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.kernels import outgoing_weights as kernels
from pymc_nnsteps.kernels.jit import of_arrays
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves.interweaving import match_interweaving
from pymc_nnsteps.moves.outgoing_weights import find_outgoing
from tests.laws.graphs import FAST, random_nodes, shapes_of
from tests.moves.densities import built, density_of, random_point

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


CASES = {
    "relu": (network, {}),
    "abs": (network, {"activation": "abs"}),
    "no bias": (network, {"bias": False}),
    "precisions": (network, {"weight_precision": [0.6, 1.7]}),
    "probit": (network, {"y": [1, 0, 0, 1], "likelihood": "probit"}),
    "logistic": (logistic, {}),
    "offsets": (offsets_and_means, {}),
}


def build(case):
    function, options = CASES[case]
    return built(function, **options)


class Layer:
    """A layer at a random point: the draw of its outgoing weights, and as it should be."""

    def __init__(self, model, seed=0):
        rng, shapes = np.random.default_rng(seed + 1), shapes_of(model)
        conditionals = find_conditionals(model, model.free_RVs)
        self.rows = match_interweaving(model, model["Z2"], conditionals, 1)
        self.outgoing = find_outgoing(model, self.rows, conditionals)
        [v], [a] = self.outgoing.draws, self.outgoing.integrates_out
        self.v, self.a, self.point = v.name, a.name, random_point(model, seed)
        held = {}
        for before in self.rows.likelihood.before:
            held |= before.held
        omegas = {omega: rng.gamma(2.0, size=shapes[c.child]) for omega, c in held.items()}
        children = {child.child: omegas[omega] for omega, child in held.items()}
        self._density = density_of(model, [v, a], children)
        self.units, self.n_obs = self.point[self.v].size, self.point[self.a].shape[0]
        self.noise = rng.normal(size=(self.units, self.n_obs))
        self.normal = rng.normal(size=self.units)
        self._draw = self._compiled(model, omegas)

    def _compiled(self, model, omegas):
        rng = pt.random.rng("rng")
        draw = self.outgoing.draw(rng, shapes_of(model))
        fixed = {omega: pt.as_tensor(value) for omega, value in omegas.items()}
        [*results] = substitute([draw.rng, *draw.values.values()], fixed | natural_values(model))
        nodes = random_nodes(rng, results[0], results[1:])
        noises = [node.outputs[1] for node in nodes]
        given = [noise.type() for noise in noises]
        [value] = graph_replace(results[1:], dict(zip(noises, given, strict=True)), strict=False)
        names = list(model.value_vars)
        function = pytensor.function([*names, *given], value, mode=FAST, on_unused_input="ignore")
        return lambda point: function(*(point[v.name] for v in names), self.noise, self.normal)

    def drawn(self):
        return self._draw(self.point | {self.a: np.full_like(self.point[self.a], np.nan)}).ravel()

    def _law(self, weights, activations, chosen):
        """Mean and covariance of the chosen entries of (weights, activations), the others given."""
        start = np.concatenate([weights, activations.ravel()])
        start[chosen] = 0

        def gradient(shift):
            at = start + shift
            values = {self.v: at[: self.units], self.a: at[self.units :]}
            new = {name: x.reshape(self.point[name].shape) for name, x in values.items()}
            return self._density(self.point | new)[1][chosen]

        zero, steps = gradient(0 * start), np.eye(len(start))[chosen]
        covariance = np.linalg.inv(-np.stack([gradient(step) - zero for step in steps]))
        return covariance @ zero, covariance

    def expected(self):
        """One unit after another: its activations, and then its weight."""
        weights, n, units = self.point[self.v].ravel().copy(), self.n_obs, self.units
        place = np.arange(n)[:, None] * units + np.arange(units)
        for unit in range(units):
            activations = np.zeros((n, units))
            everywhere = np.arange(units, units + n * units)
            mean, covariance = self._law(weights, activations, everywhere)
            own = place[:, unit]
            spread = np.sqrt(np.diag(covariance)[own])
            activations[:, unit] = mean[own] + spread * self.noise[unit]
            chosen = np.r_[unit, units + np.delete(place, unit, axis=1).ravel()]
            mean, covariance = self._law(weights, activations, chosen)
            weights[unit] = mean[0] + np.sqrt(covariance[0, 0]) * self.normal[unit]
        return weights


@pytest.mark.parametrize("case", CASES)
def test_weights_are_drawn_as_the_model_says(case):
    """A lost prior mean or offset, a variance for a precision, units in another order."""
    layer = Layer(build(case))
    np.testing.assert_allclose(layer.drawn(), layer.expected(), rtol=1e-8)


PLANTS = {
    "own noise not left out": ("if b != a:", "if True:"),
    "activations at their mean": ("noise[a, n] / math.sqrt(sharpness)", "0.0"),
    "activations not told of the output": ("v * known * residual[n] / sharpness", "0.0"),
    "residual not kept": ("residual[n] -= (outgoing[a] - v) * level[n]", "pass"),
    "own part not removed": ("(residual[n] + v * level[n])", "residual[n]"),
}
"""Code of the kernel, and what it is exchanged for."""


@pytest.mark.parametrize("plant", PLANTS)
def test_planted_errors_are_seen(plant, monkeypatch):
    right, wrong = PLANTS[plant]
    source = inspect.getsource(kernels.draw_outgoing.__wrapped__).replace("@jit", "")
    assert source.count(right) == 1
    namespace = dict(vars(kernels))
    exec(source.replace(right, wrong), namespace)
    monkeypatch.setattr(kernels, "draw_outgoing", of_arrays(namespace["draw_outgoing"]))
    layer = Layer(build("offsets"))
    assert not np.allclose(layer.drawn(), layer.expected(), rtol=1e-3)


def several_outputs():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    pm.Normal("y", a @ pm.Normal("v", shape=(UNITS, 2)), 0.7, observed=Y[:, :2])


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


def turned_weights():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a, v = pm.Normal("X2", relu(z), 0.5), pm.Normal("v", shape=UNITS)
    pm.Normal("y", a @ v[::-1], 0.7, observed=Y[:, 0])


def fixed_weights():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    pm.Normal("y", a @ Y[0], 0.7, observed=Y[:, 0])


@pytest.mark.parametrize(
    "build_model",
    [
        several_outputs,
        another_child_of_activations,
        another_child_of_weights,
        weights_seen_twice,
        scaled_weights,
        turned_weights,
        fixed_weights,
    ],
)
def test_others_are_left_to_their_own_draw(build_model):
    model = built(build_model)
    conditionals = find_conditionals(model, model.free_RVs)
    rows = match_interweaving(model, model["Z2"], conditionals, 1)
    assert find_outgoing(model, rows, conditionals) is None
    assert "also with" not in str(nns.explain(model))


def test_it_is_explained():
    rows = {row[0]: row[2] for row in nns.explain(build("relu")).rows}
    assert rows["W2"] == (
        "jointly with b2; also with X2 integrated out; along rays of units; children: y"
    )
