"""Variables as values: what stands for a random variable when a step reads a model."""

import numpy as np
import pymc as pm
import pytest
from pymc.exceptions import ImputationWarning

import pymc_nnsteps as nns
from pymc_nnsteps.graphs.values import natural_values
from pymc_nnsteps.steps.step import chosen
from tests.statistics import assert_chain_moments
from tests.steps.chains import chain

RNG = np.random.default_rng(0)
X = RNG.normal(size=30)
Y = 2 * X + 0.3 * RNG.normal(size=30)


def test_natural_values_are_those_of_pymc():
    """An observed variable that is drawn at random, or a bound that is not where it is."""
    with pm.Model() as model:
        a = pm.HalfNormal("a")
        b = pm.Uniform("b", -a, pm.math.exp(a))
        x = pm.Normal("x", b, observed=pm.Data("data", X))
        c = pm.Normal("c", x.sum())
        d = pm.Uniform("d", c, c + a)
        y = pm.Normal("y", d, observed=Y)
    rvs = [a, b, x, c, d, y]
    natural = natural_values(model)
    assert set(natural) == set(rvs)
    point = {name: value + 0.3 for name, value in model.initial_point().items()}
    how = {"mode": "FAST_COMPILE", "on_unused_input": "ignore", "point_fn": True}
    values = model.compile_fn([natural[rv] for rv in rvs], **how)(point)
    expected = model.compile_fn(model.replace_rvs_by_values(rvs), **how)(point)
    for value, other in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, other)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nns.Gibbs, {}),
        (nns.PCN, {"beta": 0.05, "steps": 5}),
        (nns.PCNL, {"delta": 0.002, "steps": 5}),
        (nns.MALA, {"step_size": 0.05, "steps": 5}),
    ],
)
def test_covariate_that_is_an_observed_variable(kind, options):
    """A model of the inputs, too: they are what was observed, not a draw from that model."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, observed=X)
        slope = pm.Normal("slope", 0, 1)
        pm.Normal("y", slope * x, 0.3, observed=Y)
    step = kind([slope], model=model, **options)
    draws = chain(step, model.initial_point(), 4_000, burn=200)[0]
    precision = X @ X / 0.09 + 1
    assert_chain_moments(draws, [X @ Y / 0.09 / precision], [[1 / precision]])


@pytest.mark.parametrize("kind", [nns.Gibbs, nns.PCN])
def test_prior_mean_that_is_an_observed_variable(kind):
    """A mean that is another one in every sweep."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, observed=[3.0, 4.0])
        f = pm.Normal("f", x, 1, shape=2)
        pm.Normal("y", f, 1, observed=[1.0, 2.0])
    step = kind([f], model=model, **({} if kind is nns.Gibbs else {"beta": 0.7, "steps": 3}))
    draws = chain(step, model.initial_point(), 5_000, burn=100)[0]
    assert_chain_moments(draws, [2.0, 3.0], np.eye(2) / 2)


def test_covariate_with_missing_values():
    """Observed and imputed entries are joined; the former must not be drawn anew."""
    missing = np.ma.array(X, mask=X > 1)
    with pm.Model() as model:
        with pytest.warns(ImputationWarning):
            x = pm.Normal("x", 0, 1, observed=missing)
        slope = pm.Normal("slope", 0, 1)
        pm.Normal("y", slope * x, 0.3, observed=Y)
    point = model.initial_point()
    point["x_unobserved"] = X[X > 1] + 0.2
    completed = np.where(X > 1, X + 0.2, X)
    draws = chain(nns.Gibbs([slope], model=model), point, 4_000)[0]
    precision = completed @ completed / 0.09 + 1
    assert_chain_moments(draws, [completed @ Y / 0.09 / precision], [[1 / precision]])


def test_chosen_variables_are_taken_once():
    with pm.Model() as model:
        a = pm.HalfNormal("a")
        pm.Normal("b")
    assert chosen(model, [a, "a", model.rvs_to_values[a]]) == [a]


def test_what_is_not_a_free_variable():
    """Each kind of thing, by itself and by its name, to every step, with what to do instead."""
    with pm.Model():
        foreign = pm.Normal("a")
    with pm.Model() as model:
        data = pm.Data("data", [1.0, 2.0])
        a, b = pm.Normal("a"), pm.Normal("b", shape=2)
        d = pm.Deterministic("d", a * b)
        follows = pm.Deterministic("follows", d + 1)
        y = pm.Normal("y", d * data, observed=[0.3, 0.4])
        potential = pm.Potential("potential", -b.sum())
    wrong = {
        "d is computed from a, b: name these": [d, "d", [a, d], (d,)],
        "follows is computed from a, b": [follows, "follows"],
        "potential is computed from b": [potential],
        "is computed from b:": [b[0], [b.sum()]],
        "y is observed": [y, "y", model.rvs_to_values[y]],
        "data is data": [data, "data"],
        "a does not belong to this model": [foreign, [a, foreign]],
        "got 'c'": ["c", ["a", "c"]],
        "got 3": [3],
        "got None": [[None]],
        "got array": [np.zeros(2)],
    }
    for message, cases in wrong.items():
        for vars in cases:
            for kind in (nns.Gibbs, nns.PCN, nns.PCNL, nns.MALA):
                with pytest.raises(ValueError, match=rf"^vars must .* \(a, b\); .*{message}.*[.]$"):
                    kind(vars, model=model)
