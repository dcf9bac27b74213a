"""Units that a model does not tell apart: found in all models that have them, and in no others."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.network.exchangeable import exchangeable_units
from tests.zoo import ZOO, X

RNG = np.random.default_rng(0)


def found(model):
    """Names and axes, and names of what changes sign together, for each layer."""
    return [
        (
            {rv.name: place.axis for rv, place in units.axes.items()},
            [{rv.name for rv in s} for s in units.signs],
        )
        for units in exchangeable_units(model)
    ]


FOUND = {
    "relu_network": [["W1", "b1", "Z2", "X2", "W2"]],
    "deep_network": [["W1", "Z2", "X2", "W2"], ["W2", "Z3", "X3", "W3"]],
    "hierarchical_network": [["tau_ah1", "W_ih1", "bh1", "W_h1o"]],
    "bow_tie_network": [
        ["psi1", "W1", "b1", "gamma1", "eta_sq1", "a1", "psi2", "W2"],
        ["psi2", "W2", "b2", "gamma2", "eta_sq2", "a2", "psi3", "W3"],
    ],
    "variance_of_each_unit": [["W1", "b1", "gamma1", "eta_sq1", "a1", "W2"]],
    "signs_turned": [["W1", "b1", "gamma1", "a1", "W2"]],
}


def test_some_of_the_inputs():
    """Columns of learnt rows, with the weights and scales that see them."""
    depot, kind, _ = exchangeable_units(embedded())
    assert [rv.name for rv in depot.axes] == ["depot::E", "tau_ih1_unit", "W_ih1"]
    for units, part in ((depot, (1, 2)), (kind, (3, 3))):
        rows, *others = units.axes.values()
        assert rows.within is None
        assert {place.within for place in others} == {part}
        assert [len(signs) for signs in units.signs] == [2]


@pytest.mark.parametrize("name", FOUND)
def test_layers(name):
    assert [list(axes) for axes, _ in found(ZOO[name]())] == FOUND[name]


def relabelled(model, point, units, forget=None):
    """The point with units in another order and other signs, one variable left out."""
    new = dict(point)
    for rv, place in units.axes.items():
        name = model.rvs_to_values[rv].name
        first, n_units = place.within or (0, new[name].shape[place.axis])
        order = np.arange(new[name].shape[place.axis])
        order[first : first + n_units] = np.roll(order[first : first + n_units], 1)
        sign = np.ones(len(order))
        sign[first : first + n_units : 2] = -1
        if rv is forget:
            continue
        new[name] = np.take(new[name], order, axis=place.axis)
        for turned in units.signs:
            if rv in turned:
                along = [-1 if each == place.axis else 1 for each in range(new[name].ndim)]
                new[name] = new[name] * sign.reshape(along)
    return new


def odd_by_hand():
    """A clipped layer with an offset that is zero, and weights that an even one ends."""
    with pm.Model() as model:
        s = pm.HalfNormal("s", shape=(1, 3))
        w = pm.Laplace("w", 0, s, shape=(2, 3))
        z = pm.Normal("z", 2 * pt.clip(X @ w, -1, 1) / s, 0.3)
        v = pm.StudentT("v", 4, mu=0, sigma=1, shape=3)
        u, g = pm.Normal("u", shape=(2, 4)), pm.Normal("g", shape=4)
        bent = pt.sum(pt.cosh(X @ u) * g[None], axis=1)
        pm.Normal("y", z @ v + bent, observed=X[:, 0])
    return model


def embedded():
    """Learnt rows of two categories are some of the inputs of a network."""
    depot, kind = np.resize(["n", "s", "e"], len(X)), np.resize(["a", "b"], len(X))
    table = pd.DataFrame({"x": X[:, 0], "depot": depot, "kind": kind})
    return nns.hierarchical_mlp(table, X[:, 0], hidden=(3,), embed={"depot": 2, "kind": 3})


BUILDS = {**ZOO, "odd_by_hand": odd_by_hand, "embedded": embedded}


@pytest.mark.parametrize("name", BUILDS)
def test_density(name):
    """It stays the same under permutations and signs, and not if one variable is left out."""
    model = BUILDS[name]()
    layers = exchangeable_units(model)
    if not layers:
        return
    logp = model.compile_logp(mode="FAST_COMPILE")
    for _ in range(100):
        point = {
            k: (v + RNG.normal(size=v.shape)).astype(v.dtype) if v.dtype.kind == "f" else v
            for k, v in model.initial_point().items()
        }
        before = logp(point)
        if np.isfinite(before):
            break
    for units in layers if np.isfinite(before) else ():
        assert logp(relabelled(model, point, units)) == pytest.approx(before, rel=1e-9)
        for rv in units.axes:
            there = logp(relabelled(model, point, units, forget=rv))
            assert rv.dtype[:5] != "float" or abs(there - before) > 1e-6, rv


def test_signs():
    """Odd and even functions, products, means that are zero, symmetric priors."""
    tanh = nns.hierarchical_mlp(X, X[:, 0], hidden=(3, 2))
    assert [signs for _, signs in found(tanh)] == [
        [{"W_ih1", "bh1", "W_h1h2"}],
        [{"W_h1h2", "bh2", "W_h2o"}],
    ]
    folded = nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1, activation="abs")
    assert found(folded)[0][1] == [{"W1", "b1", "Z2"}]
    relu = nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1)
    assert found(relu)[0][1] == []
    assert [signs for _, signs in found(odd_by_hand())] == [[{"w", "z", "v"}], [{"u"}]]


@pytest.mark.parametrize(
    "term",
    [
        lambda w, v: 2 * v,
        lambda w, v: w.sum(axis=1),
        lambda w, v: pm.math.exp(v),
        lambda w, v: pt.linalg.det(w[:, :, None, None] * np.eye(2)[:1, :1]),
    ],
)
def test_potentials_that_see_signs(term):
    """Sums, other functions, and functions of matrices; they may not see the places."""
    with pm.Model() as model:
        w, v = pm.Normal("w", shape=(2, 3)), pm.Normal("v", shape=3)
        pm.Potential("term", term(w, v))
        pm.Normal("y", pt.tanh(X @ w) @ v, observed=X[:, 0])
    assert found(model) == [({"w": 1, "v": 0}, [])]


def a_prior_for_each_unit():
    return pm.Normal("w", 0, [1.0, 2.0, 3.0], shape=(2, 3)), pm.Normal("v", shape=3)


def an_ordered_prior():
    ordered = pm.distributions.transforms.ordered
    v = pm.Normal("v", np.arange(3.0), shape=3, transform=ordered)
    return pm.Normal("w", shape=(2, 3)), v


def a_potential_that_names_a_unit():
    w, v = pm.Normal("w", shape=(2, 3)), pm.Normal("v", shape=3)
    pm.Potential("first", -(v[0] ** 2))
    return w, v


def correlated_units():
    return pm.Normal("w", shape=(2, 3)), pm.MvNormal("v", np.zeros(3), np.eye(3) + 0.5)


def a_density_of_their_own():
    def logp(value, scale):
        return -((value * np.arange(3)) ** 2).sum() / scale

    v = pm.CustomDist("v", 1.0, logp=logp, shape=3)
    return pm.Normal("w", shape=(2, 3)), v


def observed_units():
    w, v = pm.Normal("w", shape=(2, 3)), pm.Normal("v", shape=3)
    pm.Normal("seen", v, observed=[1.0, 2.0, 3.0])
    return w, v


@pytest.mark.parametrize(
    "weights",
    [
        a_prior_for_each_unit,
        an_ordered_prior,
        a_potential_that_names_a_unit,
        correlated_units,
        observed_units,
        a_density_of_their_own,
    ],
)
def test_units_that_are_told_apart(weights):
    with pm.Model() as model:
        w, v = weights()
        pm.Normal("y", pt.tanh(X @ w) @ v, observed=X[:, 0])
    assert found(model) == []


def test_shared_weights():
    """Connections pick weights by numbers."""
    kernel = np.array([[0, 1], [1, 0]])
    model = nns.hierarchical_mlp(X, X[:, 0], hidden=(2,), connections={"ih": kernel})
    assert found(model) == []
