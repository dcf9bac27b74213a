"""Levels exchanged between effects and biases, against the model's own density."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.moves import shifts
from pymc_nnsteps.moves.shifts import Translation
from tests.laws.graphs import sweep_of
from tests.moves.densities import built, draw_beside_model
from tests.planting import plant

RNG = np.random.default_rng(37)
N = 7
GROUPS, X = np.array([0, 1, 1, 2, 0, 3, 2]), RNG.normal(size=N)
ITEMS = np.array([0, 4, 3, 2, 1, 0, 2])
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


def matrix(of_b=lambda b: b[:, None], of_c=lambda c: c):
    """Beside a number, effects of rows and of columns."""
    U, V = pm.Normal("U", 0.2, [0.5, 2.0], shape=(4, 2)), pm.Normal("V", [0.3, -1], shape=(3, 2))
    b, c = pm.Normal("b", 0.4, 0.7, shape=4), pm.Normal("c", pm.Normal("m"), 1.2, shape=3)
    mean = pm.Normal("mu", 1) + of_b(b) + of_c(c) + U @ V.T
    pm.Normal("y", mean, 0.6, observed=RNG.normal(size=(4, 3)))


def ratings(picked=GROUPS):
    """In long form, with half of a difference; rows of one factor are its last axis."""
    U, V = pm.Normal("U", shape=(2, 4)), pm.Normal("V", 0.3, shape=(5, 2))
    b = pm.Normal("b", 0, [0.3, 0.5, 1.0, 0.8])
    mean = (U.T[GROUPS] * V[ITEMS]).sum(-1) - b[picked] / 2
    pm.Normal("y", mean, 0.6, observed=Y)


def responses():
    """Of two parameters: a slope and a level of each item."""
    ability, slope = pm.Normal("ability", shape=4), pm.Normal("slope", 1, 0.5, shape=5)
    logit = slope[ITEMS] * ability[GROUPS] - pm.Normal("c", shape=5)[ITEMS]
    pm.Bernoulli("y", logit_p=logit, observed=Y > 0)


CASES = {
    "two outcomes": (two_outcomes, "a b c"),
    "one number": (one_number, "a b c"),
    "number and rows": (matrix, "b mu"),
    "number and columns": (matrix, "c mu"),
    "rows": (matrix, "V b"),
    "columns": (matrix, "U c"),
    "ratings": (ratings, "V b"),
    "responses": (responses, "ability c"),
}


def exchanges_of(model, **options):
    found = [draw for draw in sweep_of(model, **options) if isinstance(draw, Translation)]
    return {" ".join(rv.name for rv in draw.draws): draw for draw in found}


def exchange_of(model, **options):
    found = exchanges_of(model, **options)
    assert len(found) < 2
    return next(iter(found.values()), None)


def differ(case):
    """Whether log densities beside that at the mean differ, or what the draw leaves as it is."""
    function, names = CASES[case]
    model = built(function)
    found, expected, beside = draw_beside_model(model, exchanges_of(model)[names], [])
    return not (np.allclose(found, expected, atol=1e-9) and np.allclose(beside, 0, atol=1e-9))


@pytest.mark.parametrize("case", CASES)
def test_law_is_the_models_along_the_lines(case):
    """A prior that is not in it, a bias that is not moved, a child that sees a change."""
    assert not differ(case)


def lost_prior(right, model, rv):
    return right(model, rv)[0], pt.constant(1.0)


def turned(right, *args):
    first, second = right(*args).items()
    return dict([first, (second[0], -second[1])])


PLANTS = {
    "prior lost": ("two outcomes", shifts, "normal_prior", lost_prior),
    "prior of a factor lost": ("columns", shifts, "normal_prior", lost_prior),
    "wrong sign": ("ratings", shifts, "_columns", turned),
}


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    case, *planted = PLANTS[error]
    plant(monkeypatch, *planted)
    assert differ(case)


@pytest.mark.parametrize(
    "function",
    [
        lambda: ratings(picked=GROUPS[::-1]),
        lambda: matrix(lambda b: X[:4, None] * b[:, None], lambda c: c[::-1]),
    ],
)
def test_effects_of_other_rows_answer_no_columns(function):
    assert not {"V b", "U c"} & exchanges_of(built(function)).keys()


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


@pytest.mark.slow
@pytest.mark.parametrize("function", [ratings, responses])
def test_sweeps_leave_the_posterior_invariant(function):
    with built(function) as model:
        nns.verify(model, sweeps=1000, step=[nns.Gibbs()], random_seed=3)
