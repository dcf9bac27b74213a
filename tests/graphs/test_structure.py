"""Direct children, lengths, dependence and constants read off a model's graph."""

import gc
import weakref

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import log

from pymc_nnsteps.graphs.known import describe, distribution
from pymc_nnsteps.graphs.search import children, depends_on, once_per_model
from pymc_nnsteps.graphs.shapes import known_shape, lengths, stated_lengths
from pymc_nnsteps.graphs.values import scalar_constant
from tests.laws.graphs import evaluate


def names(variables):
    return [variable.name for variable in variables]


def test_children_are_the_direct_ones():
    with pm.Model() as model:
        a = pm.Normal("a")
        s = pm.HalfNormal("s")
        b = pm.Normal("b", a, s)
        d = pm.Deterministic("d", pt.exp(a) + b)
        pm.Normal("c", d, s, observed=1.0)
        pm.Normal("unrelated")
    assert names(children(model, a)) == ["b", "c"]
    assert names(children(model, b)) == ["c"]
    assert names(children(model, s)) == ["b", "c"]
    assert children(model, model["c"]) == ()
    assert children(model, model["unrelated"]) == ()


@pytest.mark.parametrize(
    "child",
    [
        lambda a: pm.Mixture("y", [0.5, 0.5], pm.Normal.dist([a, a + 1], 1), observed=[1.0]),
        lambda a: pm.NormalMixture("y", [0.5, 0.5], mu=[0.0, a], sigma=1, observed=[1.0]),
        lambda a: pm.Truncated("y", pm.Normal.dist(a, 1), lower=0, observed=[1.0]),
        lambda a: pm.Censored("y", pm.Normal.dist(a, 1), lower=0, upper=9, observed=[1.0]),
        lambda a: pm.Normal("y", 0, pt.exp(a), observed=[1.0]),
        lambda a: pm.GaussianRandomWalk(
            "y", mu=a, init_dist=pm.Normal.dist(), steps=3, observed=np.zeros(4)
        ),
        lambda a: pm.ZeroInflatedPoisson("y", 0.5, pt.exp(a), observed=[1]),
        lambda a: pm.CustomDist("y", a, dist=lambda a, size: pm.Normal.dist(a, 1, size=size),
                                observed=[1.0]),
        lambda a: pm.CustomDist("y", a, logp=lambda value, a: -((value - a) ** 2), observed=[1.0]),
        lambda a: pm.MvNormal("y", pt.stack([a, 0]), np.eye(2), observed=[1.0, 2.0]),
        lambda a: pm.Uniform("y", a, 10),
    ],
)  # fmt: skip
def test_children_with_symbolic_distributions(child):
    """A child that is overlooked would be left out of the full conditional."""
    with pm.Model() as model:
        a = pm.Normal("a")
        child(a)
    assert names(children(model, a)) == ["y"]


def test_the_shape_of_a_variable_is_not_its_value():
    with pm.Model() as model:
        a = pm.Normal("a", shape=3)
        b = pm.Normal("b", 0, 1 / pt.sqrt(a.shape[0]), shape=a.shape)
        pm.Normal("c", b.sum() + a.size, 1, observed=0.0)
    assert children(model, a) == ()
    assert names(children(model, b)) == ["c"]


def test_dependence_stops_at_barriers():
    with pm.Model():
        a = pm.Normal("a")
        b = pm.Normal("b", a)
        c = b + 1
        d = b + a
    assert depends_on(c, {a})
    assert not depends_on(c, {a}, {b})
    assert depends_on(c, {b}, {b})
    assert depends_on(d, {a}, {b})
    assert not depends_on(pt.constant(1.0), {a})


def test_lengths_are_stated_without_the_variables_value_where_possible():
    """Otherwise a sweep would be given the variable that it is about to draw."""
    with pm.Model(coords={"unit": range(3)}) as model:
        X = pm.Data("X", np.zeros((6, 2)))
        a = pm.Normal("a", shape=(4, 2))
        b = pm.Normal("b", dims="unit")
        c = pm.Normal("c", X @ np.ones((2, 3)), shape=(X.shape[0], 3))
        d = pm.Normal("d", X.sum(1))
        e = pm.Normal("e")
    assert lengths(a) == [4, 2]
    assert lengths(e) == []
    for rv, expected in ((b, [3]), (c, [6, 3])):
        found = lengths(rv)
        assert [int(n) for n in evaluate([pt.as_tensor(n) for n in found])] == expected
        assert not any(depends_on(pt.as_tensor(n), {rv}) for n in found)
    assert stated_lengths(d) == [None]
    assert known_shape(model, b) == (3,)
    assert known_shape(model, a) == (4, 2)
    assert known_shape(model, d) == (None,)


def test_lengths_follow_set_data():
    with pm.Model() as model:
        X = pm.Data("X", np.zeros((6, 2)))
        c = pm.Normal("c", 0, 1, shape=(X.shape[0],))
        found = [pt.as_tensor(n) for n in lengths(c)]
        assert evaluate(found) == [6]
        pm.set_data({"X": np.zeros((9, 2))}, model=model)
        assert evaluate(found) == [9]


CONSTANTS = [
    (pt.constant(2.0), 2.0),
    (pt.constant(3), 3.0),
    (pt.constant(np.full((3, 2), 0.5)), 0.5),
    (pt.constant(np.array([1.0, 2.0])), None),
    (pt.constant(np.array([])), None),
    (pt.zeros((3, 4)), 0.0),
    (pt.ones((3, 4)).dimshuffle(1, "x", 0), 1.0),
    (pt.broadcast_to(pt.constant(7.0), (3,)), 7.0),
    (pt.cast(pt.constant(2), "float64"), 2.0),
    (pt.cast(pt.constant(0.5), "int64"), None),
    (pt.cast(pt.constant(2.5), "bool"), None),
    (pt.cast(pt.constant(300), "int8"), None),
    (pt.constant(np.nan), None),
    (pt.scalar("unknown"), None),
    (pt.constant(1.0) + 1, None),
]


@pytest.mark.parametrize(("variable", "value"), CONSTANTS)
def test_scalar_constant(variable, value):
    """A cast that changes a constant's value must not be looked through."""
    found = scalar_constant(variable)
    assert found == value or (found is not None and value is None and _is_value(variable, found))


def _is_value(variable, found):
    [value] = evaluate([variable])
    return value.size > 0 and np.all(value == found)


def test_names():
    with pm.Model():
        a = pm.Normal("a")
    assert describe(a) == "a"
    assert "Mul" in describe(a * 2)
    assert distribution(a) == "Normal"
    with pm.Model():
        assert distribution(pm.StudentT("t", nu=3)) == "StudentT"
        assert distribution(pm.HalfNormal("h")) == "HalfNormal"


def count():
    """A reader that counts its calls."""
    calls = []

    @once_per_model
    def names(model, suffix):
        calls.append(suffix)
        return [rv.name + suffix for rv in model.basic_RVs]

    return names, calls


def test_a_model_is_read_again_once_it_has_changed():
    """What was read of other variables, transforms, lengths or numbers, or for another argument."""
    names, calls = count()
    with pm.Model(coords={"unit": range(2)}) as model:
        a = pm.Normal("a", dims="unit")
        assert names(model, "!") == names(model, "!") == ["a!"]
        assert names(model, "?") == ["a?"]
        assert calls == ["!", "?"]
        assert children(model, a) == ()
        b = pm.Normal("b", a, dims="unit")
        assert names(model, "!") == ["a!", "b!"]
        assert children(model, a) == (b,)
        model.set_dim("unit", 3, range(3))
        names(model, "!")
        with pytensor.config.change_flags(floatX="float32"):
            names(model, "!")
        model.rvs_to_transforms[a] = log
        names(model, "!")
    assert calls == ["!", "?", "!", "!", "!", "!"]


def test_what_is_remembered_keeps_no_model():
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("b", a, observed=0.0)
    children(model, a)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None
