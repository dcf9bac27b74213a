"""Networks are read from the graphs of models, or declined with the reason."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from pymc.distributions.transforms import Interval, Ordered, log

import pymc_nnsteps as nns
from pymc_nnsteps.variational.reading import read_model, require_density
from tests.graphs.foreign import Tempered

X = np.random.default_rng(0).normal(size=(20, 2))


def network_by_hand(**parts):
    """A network in the builder's operations, with parts exchanged."""
    with pm.Model() as model:
        inputs = pm.Data("X", X)
        scale = parts.get("scale", lambda: np.array([[1.0, 2.0]] * 3))()
        W = parts.get("W", lambda: pm.Normal("W", parts.get("centre", 0.0), scale, shape=(3, 2)))()
        b = parts.get("b", lambda: pm.Normal("b", 0, 2.0, shape=3))()
        z = b + inputs @ W.T
        probability = parts.get("probability", lambda z: pm.math.sigmoid(z / 0.25))(z)
        gates = pm.Bernoulli("gates", probability, shape=(20, 3))
        eta = parts.get("eta", lambda: pm.InverseGamma("eta", 3, np.array([1.0, 2, 3]), shape=3))()
        a = pm.Normal("a", parts.get("mean", lambda z, g: z * g)(z, gates), pm.math.sqrt(eta))
        V = parts.get("V", lambda: pm.Normal("V", 0, 0.7, shape=(1, 3)))()
        c = pm.Normal("c", 0, 1, shape=1)
        noise = parts.get("noise", lambda: pm.InverseGamma("noise", 2, 0.5, shape=1))()
        mean = (parts.get("last", lambda a: a)(a) @ V.T + c)[:, 0]
        pm.Normal("y", mean, pm.math.sqrt(noise), observed=X[:, 0])
        parts.get("more", lambda model: None)(model)
    return model


def test_a_network_by_hand():
    """Hyperparameters of its own, also one for each unit or weight."""

    def scale():
        tau = pm.Gamma("tau", 2, 3)
        psi = pm.InverseGamma("psi", 1.5, np.array([[1.0, 2.0]] * 3))
        return pm.math.sqrt(tau * psi * 4.0)

    reading = read_model(network_by_hand(scale=scale))
    hidden, last = reading.network.layers
    assert reading.network.temperature == 0.25
    assert (hidden.tau.nu, hidden.tau.lambda2, hidden.psi.nu) == (2, 6, -1.5)
    np.testing.assert_array_equal(hidden.psi.delta2, [[2, 4]] * 3)
    np.testing.assert_array_equal(hidden.weight_var, np.full((3, 2), 4.0))
    np.testing.assert_array_equal(hidden.bias_var, [4, 4, 4])
    np.testing.assert_array_equal(hidden.beta, [1, 2, 3])
    np.testing.assert_allclose(last.weight_var, np.full((1, 3), 0.49))
    assert reading.names[0]["gamma"] == "gates"
    known = read_model(network_by_hand()).network.layers[0]
    np.testing.assert_array_equal(known.weight_var, [[1, 4]] * 3)


def test_data_that_were_exchanged():
    model = nns.bow_tie(X, X[:, 0], hidden=(3,))
    with model:
        pm.set_data({"inputs": X[:5] + 1, "targets": X[:5, 1]})
    reading = read_model(model)
    np.testing.assert_array_equal(reading.inputs, X[:5] + 1)
    np.testing.assert_array_equal(reading.targets, X[:5, 1:])


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"mean": lambda z, g: z * g + 1}, "mean of a is not recognised as gamma"),
        ({"probability": lambda z: pm.math.sigmoid(2 * z + 1)}, "not recognised as sigmoid"),
        ({"probability": lambda z: pm.math.sigmoid(z / pm.Gamma("T", 1, 1))}, "depends on random"),
        ({"eta": lambda: pm.Gamma("eta", 1, 1, shape=3)}, "must be InverseGamma"),
        ({"eta": lambda: pm.InverseGamma("eta", 1, 1)}, "an entry for each unit"),
        ({"scale": lambda: pm.HalfNormal("s")}, "product of s; fit supports"),
        ({"scale": lambda: pm.Gamma("t", 2, 1) * psi()}, "log density of the model differs"),
        ({"scale": lambda: pm.math.sqrt(pm.Gamma("t", 2, 1) * psi()[::-1])}, "log density of"),
        ({"scale": lambda: pm.math.sqrt(pm.Gamma("s", 1, 1))}, "product of s; fit supports"),
        ({"last": lambda a: a**2}, "no part"),
        ({"centre": 1.0}, "mean of W is not zero"),
        ({"more": lambda model: pm.Normal("other")}, "other of the model has no part"),
        ({"more": lambda model: pm.Potential("p", model["W"].sum())}, "without potentials"),
        ({"more": lambda model: pm.Normal("t", model["V"].sum(), 1, observed=1)}, "one observed"),
    ],
)
def test_what_is_declined(parts, reason):
    with pytest.raises(nns.laws.NotConjugate, match=reason):
        nns.fit(network_by_hand(**parts), progressbar=False)


@pytest.mark.parametrize(
    "model",
    [
        lambda: nns.bow_tie(X, X[:, 0], hidden=(3,), marginalize_gates=True),
        lambda: nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,)),
        lambda: nns.wide_mlp(X, X[:, 0], hidden=(3,)),
    ],
)
def test_other_networks_are_declined(model):
    with pytest.raises(
        nns.laws.NotConjugate, match=r"^fit takes networks like those of nns.bow_tie"
    ):
        nns.fit(model(), progressbar=False)


def test_data_in_the_place_of_a_model():
    with pytest.raises(ValueError, match=r"^model must be a pm.Model; got ndarray\.$"):
        nns.fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r'^method must be one of "cavi", "svi"; got array'):
        nns.fit(network_by_hand(), X[:, 0])


@pytest.mark.filterwarnings("ignore:Data in:pymc.exceptions.ImputationWarning")
def test_missing_targets_are_named():
    model = nns.bow_tie(X, np.where(X[:, 0] > 1, np.nan, X[:, 0]), hidden=(3,))
    with pytest.raises(
        nns.laws.NotConjugate, match=r"y has missing entries, .* leave out the rows"
    ):
        nns.fit(model, progressbar=False)


def test_names_of_columns():
    frame = pd.DataFrame(X, columns=["u", "v"])
    targets = pd.DataFrame({"left": X[:, 0], "right": X[:, 1]})
    fitted = nns.fit(nns.bow_tie(frame, targets, hidden=(3,)), sweeps=5, progressbar=False)
    assert list(fitted.mean["W1"].coords["feature"].values) == ["u", "v"]
    swapped = fitted.predict(frame[["v", "u"]], method="iteration")
    same = fitted.predict(X, method="iteration")
    np.testing.assert_array_equal(swapped["mean"], same["mean"])
    assert list(swapped.coords["output"].values) == ["left", "right"]
    with pytest.raises(ValueError, match="X must have the columns"):
        fitted.predict(frame.rename(columns={"u": "w"}))


CUT_OFF = {
    "b": lambda: pm.Normal("b", 0, 2.0, shape=3, transform=log),
    "W": lambda: pm.Normal("W", 0, 1.0, shape=(3, 2), transform=Ordered()),
    "eta": lambda: pm.InverseGamma("eta", 3, 1.0, shape=3, default_transform=Interval(0.5, 9)),
    "V": lambda: Tempered("V", 0, 0.7, shape=(1, 3)),
}


@pytest.mark.parametrize("name", CUT_OFF)
def test_laws_that_are_cut_off(name):
    """All draws of a fit would have no density."""
    model = network_by_hand(**{name: CUT_OFF[name]})
    with pytest.raises(nns.laws.NotConjugate, match=rf"{name}\b.*(with the transform|not PyMC's)"):
        read_model(model)


def test_scales_without_a_transform():
    """They are compared where they are positive."""

    def scale():
        tau = pm.Gamma("tau", 2, 3, default_transform=None)
        return pm.math.sqrt(
            tau * pm.InverseGamma("psi", 2, 1.0, shape=(3, 2), default_transform=None)
        )

    def noise():
        return pm.InverseGamma("noise", 2, 0.5, shape=1, default_transform=None)

    model = network_by_hand(scale=scale, noise=noise)
    reading = read_model(model)
    assert reading.network.layers[1].alpha == 2
    require_density(model, reading)


@pytest.mark.slow
def test_a_reading_is_compared_with_the_model():
    """What was misread is noticed: a variance, a mean, a temperature, an order, a law."""
    model = network_by_hand(scale=lambda: pm.math.sqrt(pm.Gamma("tau", 2, 3) * psi()))
    reading = read_model(model)
    require_density(model, reading)
    hidden, last = reading.network.layers
    wrong = [
        replace(reading, inputs=reading.inputs[::-1]),
        replace(reading, targets=2 * reading.targets),
        replace(reading, network=replace(reading.network, temperature=0.3)),
    ]
    for layer in (
        replace(hidden, bias_var=hidden.bias_var * 1.01),
        replace(hidden, alpha=hidden.alpha + 0.01),
        replace(hidden, beta=hidden.beta * 1.01),
        replace(hidden, tau=replace(hidden.tau, nu=hidden.tau.nu + 0.01)),
        replace(hidden, psi=replace(hidden.psi, delta2=hidden.psi.delta2 * 1.01)),
        replace(hidden, weight_var=hidden.weight_var * 1.01),
    ):
        network = replace(reading.network, layers=(layer, last))
        wrong.append(replace(reading, network=network))
    for misread in wrong:
        with pytest.raises(nns.laws.NotConjugate, match="differs from that of the bow-tie network"):
            require_density(model, misread)


def psi():
    return pm.InverseGamma("psi", 1.5, 1.0, shape=(3, 2))


def test_the_comparison_where_gates_are_all_but_certain():
    """Inputs on a large scale: their log probabilities are not lost."""
    model = nns.bow_tie(100 * X, X[:, :1], hidden=(2,), temperature=0.01)
    require_density(model, read_model(model))


def test_the_comparison_of_many_layers():
    """More log densities than are added at once in Python."""
    model = nns.bow_tie(X, X[:, :1], hidden=(2, 2, 2, 2, 2))
    require_density(model, read_model(model))
