"""The same parts are found in networks of builders and in those written by hand."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.network.layers import dense_layers
from pymc_nnsteps.network.network import network_of

X = np.random.default_rng(0).normal(size=(6, 2))
LABELS = np.array([0, 1, 2, 0, 1, 2])


def names(variables):
    return " ".join(rv.name for rv in variables)


def by_hand():
    with pm.Model() as model:
        inputs = pm.Data("inputs", X)
        W, v = pm.Normal("W", shape=(2, 3)), pm.Normal("v", shape=3)
        a = pm.Normal("a", pm.math.tanh(inputs @ W), pm.HalfNormal("s"))
        pm.Normal("y", a @ v, 1, observed=X[:, 0])
    return model


@pytest.mark.parametrize(
    ("build", "latents", "weights"),
    [
        (by_hand, "a", "W v s"),
        (
            lambda: nns.intermediate_noise_mlp(
                X, LABELS, hidden=(3,), noise=0.1, likelihood="multinomial_probit"
            ),
            "Z2 X2 Z3",
            "W1 b1 W2 b2",
        ),
        (
            lambda: nns.bow_tie(X, X[:, 0], hidden=(3,), marginalize_gates=False),
            "gamma1 a1",
            "tau1 psi1 eta_sq1 W1 b1 tau2 psi2 eta_sq2 W2 b2",
        ),
        (lambda: nns.hierarchical_mlp(X, X[:, 0], hidden=(3,)), "", None),
    ],
    ids=["by hand", "classes", "gates", "functions"],
)
def test_parts(build, latents, weights):
    model = build()
    network = network_of(model, model["inputs"])
    assert names(network.latents) == latents
    assert weights is None or set(names(network.weights).split()) == set(weights.split())
    assert {*network.latents, *network.weights} == set(model.free_RVs)
    assert network.response.name == "y"


def test_utilities():
    model = nns.intermediate_noise_mlp(X, LABELS % 2, hidden=(3,), noise=0.1, likelihood="probit")
    assert network_of(model, model["inputs"]).utilities().name == "Z3"


def test_dense_layers_from_the_inputs_on():
    model = nns.bow_tie(X, X[:, 0], hidden=(3, 2), temperature=0.3, marginalize_gates=False)
    first, second, last = dense_layers(model, model["y"])
    assert [layer.weights.name for layer in (first, second, last)] == ["W1", "W2", "W3"]
    assert [layer.bias.name for layer in (first, second, last)] == ["b1", "b2", "b3"]
    assert first.inputs is model["inputs"]
    assert second.inputs is first.post_activation
    assert last.inputs is second.post_activation
    assert first.temperature.eval() == 0.3
    assert (first.gates.name, last.gates, last.post_activation.name) == ("gamma1", None, "y")
