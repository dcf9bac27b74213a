"""Levels exchanged between effects and biases, against the model's own density."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_nnsteps.moves import levels
from pymc_nnsteps.moves.levels import LevelExchange
from tests.laws.graphs import gaussian_law, put, sweep_of
from tests.moves.densities import built, density_of, random_point

RNG = np.random.default_rng(37)
N = 7
GROUPS, X = np.array([0, 1, 1, 2, 0, 3, 2]), RNG.normal(size=N)
Y, COLUMNS = RNG.normal(size=N), RNG.normal(size=(N, 2))


def two_outcomes():
    """Effects with a mean of their own beside a Normal and a logistic child."""
    a = pm.Normal("a", pm.Normal("mu"), [0.3, 0.5, 1.0, 0.8])
    b, c = pm.Normal("b", 0.4, 1.5), pm.Normal("c", -0.2, 0.7, shape=1)
    pm.Normal("y", a[GROUPS] + b + X * pm.Normal("v"), 0.6, observed=Y)
    pm.Bernoulli("k", logit_p=a[GROUPS[::-1]] + c, observed=Y > 0)


def one_number():
    """An intercept of two children, one of them of several columns."""
    a, b = pm.Normal("a", 0.3, 0.9), pm.Normal("b", shape=())
    pm.Normal("y", a + b + X * pm.Normal("v"), 0.6, observed=Y)
    pm.Normal("u", a + pm.Normal("c") + COLUMNS[::-1], [0.4, 0.9], observed=COLUMNS)


CASES = {two_outcomes: ("a", "b", "c"), one_number: ("a", "b", "c")}


def exchange_of(model, **options):
    found = [draw for draw in sweep_of(model, **options) if isinstance(draw, LevelExchange)]
    assert len(found) < 2
    return found[0] if found else None


def gains(model):
    """Log densities beside that at the mean, the draw's and the model's; what else has moved."""
    exchange = exchange_of(model)
    point = random_point(model, 5)
    law = gaussian_law(model, exchange, point, uses_own_values=True)
    density = density_of(model, exchange.draws, {})
    line = law.factor[:, 0]
    here = np.concatenate([point[rv.name].ravel() for rv in exchange.draws]) - law.mean
    values = [
        density(put(point, model, exchange.draws, law.mean + t * line))[0] for t in (-2, 0, 1)
    ]
    return (
        np.subtract(values, values[1]),
        np.array([-2, 0, -0.5]),
        here - line * (here @ line / (line @ line)),
    )


@pytest.mark.parametrize("function", CASES)
def test_law_is_the_models_along_the_line(function):
    """A prior that is not in it, a bias that is not moved, a child that sees a change."""
    model = built(function)
    assert tuple(rv.name for rv in exchange_of(model).draws) == CASES[function]
    found, expected, beside = gains(model)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(beside, 0, atol=1e-12)


def test_lost_priors_are_seen(monkeypatch):
    exact = levels.normal_prior
    monkeypatch.setattr(levels, "normal_prior", lambda *of: (exact(*of)[0], pt.constant(1.0)))
    found, expected, _ = gains(built(two_outcomes))
    assert not np.allclose(found, expected, rtol=1e-2)


def two_children(of_a=lambda a: a[GROUPS], of_b=lambda b: b, more=None):
    a, b = pm.Normal("a", shape=4), pm.Normal("b")
    pm.Normal("y", of_a(a) + of_b(b) + X * pm.Normal("v"), 0.6, observed=Y)
    pm.Normal("u", a[GROUPS] + pm.Normal("c") + X, 0.6, observed=Y[::-1])
    if more is not None:
        more(a, b)


def one_child():
    pm.Normal("y", pm.Normal("a", shape=4)[GROUPS] + pm.Normal("b"), 0.6, observed=Y)


DECLINED = {
    "twice": {"of_a": lambda a: 2 * a[GROUPS]},
    "sum": {"of_a": lambda a: a.sum() * np.ones(N)},
    "bias times inputs": {"of_b": lambda b: b * X},
    "half of the bias": {"of_b": lambda b: b / 2},
    "bias elsewhere": {"more": lambda a, b: pm.Normal("w", b, observed=0.3)},
    "effects elsewhere": {"more": lambda a, b: pm.Normal("w", a[0] * b, observed=0.3)},
}


@pytest.mark.parametrize("case", DECLINED)
def test_where_a_child_would_see_it(case):
    assert exchange_of(built(two_children)) is not None
    assert exchange_of(built(two_children, **DECLINED[case])) is None


def test_where_one_draw_holds_all():
    assert exchange_of(built(one_child)) is None
    assert exchange_of(built(two_children), rays=False) is None
