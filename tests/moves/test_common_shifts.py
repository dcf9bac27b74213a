"""Levels of correlated effects and of series moved with numbers, against the model's density."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.laws.multivariate import GaussianSeries
from pymc_nnsteps.moves import shifts
from pymc_nnsteps.moves.shifts import Translation
from tests.laws.graphs import sweep_of
from tests.moves.densities import built, draw_beside_model
from tests.planting import plant

RNG = np.random.default_rng(41)
N = 9
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=N)
GROUPS = np.array([0, 1, 1, 0, 2, 2, 1, 3, 3])
SPREAD = np.exp(RNG.normal(size=N))


def correlated():
    """Intercepts and slopes beside a bias and a coefficient of one entry, for two responses."""
    chol = np.array([[1.0, 0.0], [0.5, 0.8]])
    a = pm.MvNormal("a", [0.2, -0.4], chol=chol, shape=(4, 2))
    b, k = pm.Normal("b", 0.3, 2), pm.Normal("k", -0.1, 1.5, shape=(1,))
    mean = a[GROUPS, 0] + a[GROUPS, 1] * X[:, 0] + b + X[:, 1] * k
    pm.Normal("y", mean, SPREAD, observed=Y)
    pm.Bernoulli("u", logit_p=b + k - 2 * a[GROUPS, 0], observed=(Y > 0).astype(int))


def walk():
    a = pm.GaussianRandomWalk("a", 0.2, 0.7, init_dist=pm.Normal.dist(0.3, 1.2), shape=5)
    pm.Normal("y", a[GROUPS] * X[:, 1] + pm.Normal("b"), pm.HalfNormal("s"), observed=Y)


def regressions():
    """Two series that return to a mean."""
    steps = pm.Normal.dist(0.3, 1.2, shape=2)
    a = pm.AR("a", [0.4, 0.6], 0.5, constant=True, init_dist=steps, shape=(2, 5))
    pm.Normal("y", a - pm.Normal("b", 0.5), 0.8, observed=RNG.normal(size=(2, 5)))


CASES = {correlated: ("a", "b", "k"), walk: ("a", "b"), regressions: ("a", "b")}


def shifts_of(model, **options):
    sweep = sweep_of(model, **options)
    return [draw for draw in sweep if isinstance(draw, Translation)]


def compared(function):
    model = built(function)
    [shift] = shifts_of(model)
    assert tuple(rv.name for rv in shift.draws) == CASES[function]
    return draw_beside_model(model, shift, [child for child, _ in shift.seen])


@pytest.mark.parametrize("function", CASES)
def test_law_is_the_models_with_deviations_kept(function):
    theirs, ours, moved = compared(function)
    np.testing.assert_allclose(theirs, ours, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(moved, 0, atol=1e-10)


def half_the_weight(right, *args):
    rng, seen = right(*args)
    return rng, replace(seen, precision=seen.precision / 2)


def moved_alone(right, shift, *args):
    drawn, [series] = right(shift, *args), shift.draws[:1]
    return replace(drawn, values={**drawn.values, series: series})


PLANTS = {
    "no prior of numbers": (
        *(correlated, shifts, "_prior_along"),
        lambda right, *args: [0 * part for part in right(*args)],
    ),
    "no prior of effects": (
        *(walk, GaussianSeries, "about_shift"),
        lambda right, *args: [0 * part for part in right(*args)],
    ),
    "half the weight": (correlated, shifts, "augmented", half_the_weight),
    "moved alone": (regressions, Translation, "draw", moved_alone),
}


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    function, *planted = PLANTS[error]
    plant(monkeypatch, *planted)
    theirs, ours, moved = compared(function)
    assert not (np.allclose(theirs, ours, rtol=1e-3) and np.allclose(moved, 0, atol=1e-3))


def number_seen_elsewhere():
    a = pm.MvNormal("a", np.zeros(2), np.eye(2), shape=(4, 2))
    b = pm.Normal("b")
    pm.Normal("y", a[GROUPS, 0] + a[GROUPS, 1] * X[:, 0] + b, 0.8, observed=Y)
    pm.Normal("u", b, 0.8, observed=Y)


def multiplied_by_it():
    a = pm.GaussianRandomWalk("a", 0, 0.7, init_dist=pm.Normal.dist(), shape=5)
    pm.Normal("y", a[GROUPS] * pm.Normal("b"), 0.8, observed=Y)


@pytest.mark.parametrize("function", [number_seen_elsewhere, multiplied_by_it])
def test_what_is_not_of_this_form_is_left(function):
    assert not shifts_of(built(function))


def test_only_where_rays_are():
    assert not shifts_of(built(correlated), rays=False)


def test_they_are_explained():
    how = {row[0]: row[2] for row in nns.explain(built(walk)).rows}
    assert how["a"] == "shifted with b; children: y"
    assert "; also jointly with the level of a; " in f"; {how['b']}"


@pytest.mark.slow
def test_sweeps_leave_the_posterior_invariant():
    model = built(correlated)
    with model:
        nns.verify(model, sweeps=1000, step=[nns.Gibbs()], random_seed=3)
