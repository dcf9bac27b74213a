"""Means of effects drawn with the effects' deviations kept, against the model's own density."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.graphs.centred import Deviations
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.values import substitute_given
from pymc_nnsteps.moves.shifts import Shift, shift_of
from tests.laws.graphs import sweep_of
from tests.moves.densities import built, draw_beside_model

RNG = np.random.default_rng(31)
N, UNITS = 9, 2
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=N)
GROUPS, OTHERS = np.array([0, 1, 1, 0, 2, 2, 1, 3, 3]), np.array([0, 0, 1, 1, 0, 1, 0, 1, 2])
REGIONS, OF_GROUPS = np.array([0, 0, 1, 1]), RNG.normal(size=(4, 2))
SPREAD, COLUMNS = np.exp(RNG.normal(size=N)), RNG.normal(size=(N, 2))


def network():
    """A mean beside the weights and the bias of a network."""
    a = pm.Normal("a", pm.Normal("mu", 0.3, 2), pm.HalfNormal("tau"), shape=4)
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    v, c = pm.Normal("v", shape=UNITS), pm.Normal("c", -0.2, 1.5)
    mean = pm.Normal("X2", pt.maximum(z, 0), 0.5) @ v + c - 2 * a[GROUPS]
    pm.Normal("y", mean, SPREAD, observed=Y)


def slopes():
    """Intercepts and slopes in one matrix, each kind of its own mean, which rows see too."""
    mu = pm.Normal("mu", [0.1, 0.5], [1.0, 2.0], shape=2)
    a = pm.Normal("a", mu - 0.7, [0.5, 0.9], shape=(4, 2))
    pm.Normal("y", (a[GROUPS] * X).sum(1) + X @ mu, 0.8, observed=Y)


def of_groups():
    """What is known of groups, and a coefficient of inputs."""
    level, gamma = pm.Normal("level", 0, 3), pm.Normal("gamma", shape=2)
    a = pm.Normal("a", level + OF_GROUPS @ gamma, [0.3, 0.5, 0.7, 0.9])
    pm.Normal("y", a[GROUPS] + pm.Normal("beta") * X[:, 0], 0.8, observed=Y)


def crossed():
    """Two kinds of groups, and a child of one of them alone."""
    a = pm.Normal("a", pm.Normal("mu"), 0.4, shape=4)
    b = pm.Normal("b", pm.Normal("nu", 1, 2), 0.6, shape=3)
    pm.Normal("y", a[GROUPS] + b[OTHERS], 0.8, observed=Y)
    pm.Normal("u", 3 * b[OTHERS], 1.8, observed=Y[::-1])


def outputs():
    a = pm.Normal("a", pm.Normal("mu", [0.3, 1.0], shape=2), 0.4, shape=(4, 2))
    pm.Normal("y", a[GROUPS] + pm.Normal("c", shape=2), [0.5, 0.9], observed=COLUMNS)


def logistic():
    a = pm.Normal("a", pm.Normal("mu", 0.3), 0.8, shape=4)
    pm.Bernoulli("y", logit_p=a[GROUPS] + X @ pm.Normal("beta", shape=2), observed=Y > 0)


def levels():
    """Groups in regions, whose means have a mean."""
    mu = pm.Normal("mu", pm.Normal("level", 0.3, 3), 0.7, shape=2)
    a = pm.Normal("a", 2 * mu[REGIONS], 0.4, shape=4)
    pm.Normal("y", a[GROUPS] + pm.Normal("beta") * X[:, 0], 0.8, observed=Y)


def coefficients():
    """Coefficients of inputs about a mean of their own, beside an intercept."""
    b = pm.Normal("b", pm.Normal("mu", 0.3, 2), [0.4, 0.6], shape=2)
    pm.Normal("y", X @ b + pm.Normal("c", -0.2, 1.5), SPREAD, observed=Y)


def coefficients_of_outputs():
    """Coefficients of each output about a mean of their own, which have a mean too."""
    mu = pm.Normal("mu", pm.Normal("level", 0.3, 3), 0.7, shape=2)
    b = pm.Normal("b", 0.2 + mu, [[0.4, 0.6], [0.5, 0.3]], shape=(2, 2))
    pm.Normal("y", X @ b + pm.Normal("c", [-0.2, 0.4], 1.5), SPREAD[:, None], observed=COLUMNS)


def rows_of_outputs():
    """The same with outputs first, beside other coefficients about the same means."""
    mu = pm.Normal("mu", [0.3, -0.5, 1.0], 2.0)
    b = pm.Normal("b", -2 * mu[:, None], 0.4, shape=(3, 2))
    d = pm.Normal("d", mu[:, None], 0.7, shape=(3, UNITS))
    mean = X @ b.T + np.abs(X) @ d.T
    pm.Normal("y", mean, [0.5, 0.9, 0.6], observed=np.append(COLUMNS, X[:, :1], axis=1))


CASES = {
    network: [("mu", "v", "c", "a")],
    slopes: [("mu", "a")],
    of_groups: [("gamma", "level", "beta", "a")],
    crossed: [("nu", "b"), ("mu", "a")],
    outputs: [("mu", "c", "a")],
    coefficients: [("mu", "c", "b")],
    coefficients_of_outputs: [("mu", "c", "b"), ("level", "mu", "b")],
    rows_of_outputs: [("mu", "b", "d")],
    logistic: [("mu", "beta", "a")],
    levels: [("mu", "a"), ("level", "beta", "mu", "a")],
}


def shifts_of(model):
    return [draw for draw in sweep_of(model) if isinstance(draw, Shift)]


@pytest.mark.parametrize("function", CASES)
def test_law_is_the_models_with_deviations_kept(function):
    model = built(function)
    found = shifts_of(model)
    assert [tuple(rv.name for rv in shift.draws) for shift in found] == CASES[function]
    for shift in found:
        theirs, ours, moved = draw_beside_model(model, shift, shift.block.observations)
        np.testing.assert_allclose(theirs, ours, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(moved, 0, atol=1e-10)


def effects_stay(deviations, drawn):
    return {rv: rv for rv in deviations.means}


def means_of_means_stay(deviations, drawn):
    """Effects do not follow the means that go along with others."""
    [means] = [substitute_given([*deviations.means.values()], drawn)]
    return {
        rv: rv + new - old for (rv, old), new in zip(deviations.means.items(), means, strict=True)
    }


@pytest.mark.parametrize(
    ("plant", "function"),
    [
        (effects_stay, of_groups),
        (effects_stay, rows_of_outputs),
        (means_of_means_stay, levels),
        (means_of_means_stay, coefficients_of_outputs),
    ],
)
def test_planted_errors_are_seen(plant, function, monkeypatch):
    monkeypatch.setattr(Deviations, "values", plant)
    model = built(function)
    seen = []
    for shift in shifts_of(model):
        theirs, ours, moved = draw_beside_model(model, shift, shift.block.observations)
        seen.append(np.allclose(theirs, ours, rtol=1e-3) and np.allclose(moved, 0, atol=1e-3))
    assert not all(seen)


def scale_given_the_mean():
    mu = pm.Normal("mu")
    pm.Normal("y", pm.Normal("a", mu, pt.exp(mu), shape=4)[GROUPS], 0.8, observed=Y)


def noise_given_the_effects():
    a = pm.Normal("a", pm.Normal("mu"), 0.4, shape=4)
    pm.Normal("y", a[GROUPS], pt.exp(a)[GROUPS], observed=Y)


def bent():
    a = pm.Normal("a", pt.exp(pm.Normal("mu")), 0.4, shape=4)
    pm.Normal("y", a[GROUPS], 0.8, observed=Y)


def seen_elsewhere():
    """A count that depends on the mean alone."""
    mu = pm.Normal("mu")
    pm.Normal("y", pm.Normal("a", mu, 0.4, shape=4)[GROUPS], 0.8, observed=Y)
    pm.Poisson("k", pt.exp(mu), observed=3)


def rows_of_their_own():
    """A latent variable of each row, which other moves take along with its weights."""
    z = pm.Normal("z", X @ pm.Normal("w", shape=2), 0.6)
    pm.Normal("y", z * SPREAD, 0.8, observed=Y)


def pooled():
    """Latent variables of a row, of which another one sees sums."""
    z = pm.Normal("z", (X @ pm.Normal("w", shape=2))[:, None], 0.6, shape=(N, 3))
    pm.Normal("y", z.sum(1), 0.8, observed=Y)


def means_of_rows():
    """Latent variables of one unit about those of another layer, whose means are sums."""
    z = pm.Normal("z", X @ pm.Normal("w", shape=(2, 1)), 0.6, shape=(N, 1))
    x = pm.Normal("a", z, 0.3, shape=(N, 1))
    pm.Normal("y", x @ pm.Normal("v", shape=(1, 2)), 0.8, observed=COLUMNS)


@pytest.mark.parametrize(
    "function", [bent, seen_elsewhere, rows_of_their_own, pooled, means_of_rows]
)
def test_others_are_drawn_given_the_effects(function):
    model = built(function)
    drawn = [rv for rv in model.free_RVs if rv.name in ("a", "z", "w")]
    sweep = sweep_of(model, drawn, interweave=False, collapse=False)
    assert not [draw for draw in sweep if isinstance(draw, Shift)]


def test_only_where_rays_are():
    assert not [draw for draw in sweep_of(built(slopes), rays=False) if isinstance(draw, Shift)]


def test_scales_must_stay():
    """Deviations that grow with the mean, and noise that grows with the effects."""
    model = built(scale_given_the_mean)
    with pytest.raises(NotConjugate, match="the scale of child a depends on it"):
        shift_of(model, [model["mu"]], [model["a"]])
    model = built(noise_given_the_effects)
    with pytest.raises(NotConjugate, match="the scale of child y depends on it"):
        shift_of(model, [model["mu"]], [model["a"]])


def test_the_table_says_what_is_kept():
    how = {row[0]: row[2] for row in nns.explain(built(of_groups)).rows}
    assert "also jointly with gamma, beta where a is shifted" in how["level"]
    assert "shifted with its mean" in how["a"]
