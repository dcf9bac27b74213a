"""Labels drawn at random: of which step, of what, and that the law stays as it is."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.steps import networks
from tests.planting import plant
from tests.zoo import ZOO

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))
Y = np.abs(X[:, 0])


def with_noise(**options):
    return nns.intermediate_noise_mlp(X, Y, hidden=(3,), noise=0.3, **options)


def names(model, step):
    """Names of what a step relabels."""
    moved = [model.values_to_rvs[value] for value in step.vars]
    return [[rv.name for rv in units.axes] for units in networks.relabelled_units(model, moved)]


def test_which_layers():
    """Those of networks that the step moves whole, scales along; factors of a matrix are none."""
    model = ZOO["hierarchical_network"]()
    moved = nns.HMC(["W_ih1", "bh1", "W_h1o", "bo"], model=model)
    assert list(moved._relabelled._layers[0][0]) == ["tau_ah1_log__", "W_ih1", "bh1", "W_h1o"]
    model = with_noise()
    assert names(model, nns.Gibbs(model=model)) == [["W1", "b1", "Z2", "X2", "W2"]]
    assert names(model, nns.Gibbs(["Z2", "X2"], model=model)) == []
    with pm.Model() as factors:
        u, v = pm.Normal("u", shape=(4, 2)), pm.Normal("v", shape=(2, 3))
        pm.Normal("y", u @ v, observed=np.zeros((4, 3)))
    assert names(factors, nns.Gibbs(model=factors)) == []


def test_explained():
    """Layers, signs, scales that go along; or why there are none."""
    assert nns.explain(ZOO["hierarchical_network"]()).notes == (
        "HMC also moves tau_ah1, tau_ih1, tau_ih1_unit, tau_bh1, tau_h1o, "
        "with weights multiplied by the same factors",
        (
            "hidden units relabelled at random: tau_ah1, W_ih1, bh1, W_h1o; with the signs of "
            "W_h1o, W_ih1, bh1"
        ),
    )
    assert nns.explain(with_noise()).notes == (
        "hidden units relabelled at random: W1, b1, Z2, X2, W2",
    )
    with pm.Model() as model:
        w = pm.Normal("w", 0, pm.HalfNormal("s"), shape=(2, 3))
        v = pm.Normal("v", 0, [1.0, 2.0, 3.0], shape=3)
        pm.Normal("y", pm.math.tanh(X @ w) @ v, 0.3, observed=Y)
    assert nns.explain(model).notes == ()
    with pm.Model() as model:
        w = pm.Normal("w", 0, tau=pm.Gamma("t", 2, 1), shape=(2, 3))
        v = pm.Normal("v", 0, [1.0, 2.0, 3.0], shape=3)
        pm.Normal("y", pm.math.tanh(X @ w) @ v, 0.3, observed=Y)
    assert nns.explain(model).notes[1].startswith("units behind w not relabelled: along axis 0 Dot")
    assert nns.explain(model).notes[1].endswith("v has different parameters for different units")


@pytest.mark.parametrize("build", [with_noise, ZOO["hierarchical_network"], ZOO["bow_tie_network"]])
def test_labels(build):
    """The state is another labelling of the same network; each unit is at each place at times."""
    model = build()
    draw = networks.Relabelling(model, model.free_RVs)
    logp = model.compile_logp(mode="FAST_COMPILE")
    point = {
        k: (v + RNG.normal(size=v.shape)).astype(v.dtype) if v.dtype.kind == "f" else v
        for k, v in model.initial_point().items()
    }
    [(axes, signs), *_] = draw._layers
    [name, axis] = next((n, place.axis) for n, place in axes.items() if n.startswith("W"))
    places, turned = [], []
    for _ in range(200):
        new = {**point, **draw(RNG, point)}
        moved, before = (np.moveaxis(p[name], axis, 0)[:, 0] for p in (new, point))
        places.append(np.argmin(abs(abs(moved[:, None]) - abs(before)), axis=0))
        turned.append(np.sign(moved[places[-1]] * before))
    assert logp(new) == pytest.approx(logp(point), rel=1e-9)
    counts = np.array([(np.array(places) == k).mean(axis=0) for k in range(len(before))])
    assert abs(counts - 1 / len(before)).max() < 5 * np.sqrt(0.25 / 200)
    is_free = any(name in group for group in signs)
    assert (abs(np.mean(turned, axis=0)) < 0.3).all() == is_free


@pytest.mark.slow
def test_a_variable_that_is_left_out_is_seen(monkeypatch):
    """Stein's identities of the weights, which then belong to other units' entries."""
    model = with_noise()

    def without_the_last(right, model, moved):
        return [
            networks.ExchangeableUnits(dict(list(units.axes.items())[:-1]))
            for units in right(model, moved)
        ]

    plant(monkeypatch, networks, "relabelled_units", without_the_last)
    with pytest.raises(AssertionError, match="fails, z ="):
        nns.verify(model, sweeps=500, random_seed=1)
