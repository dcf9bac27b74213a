"""The order of a sweep, and the check that an order leaves the posterior invariant."""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_nnsteps.graphs.search import stated_in
from pymc_nnsteps.laws import find_conditionals
from pymc_nnsteps.laws.conditional import Conditional, Draw
from pymc_nnsteps.moves.plan import check_scan, order_scan, refreshed_after
from pymc_nnsteps.steps.sweep import chain_draws
from tests.laws.graphs import shapes_of


def network(probit=False):
    with pm.Model() as model:
        x = pt.as_tensor(np.ones((5, 2)))
        for layer in (1, 2):
            W = pm.Normal(f"W{layer}", shape=(2, 2))
            b = pm.Normal(f"b{layer}", shape=2)
            z = pm.Normal(f"Z{layer + 1}", x @ W.T + b)
            x = pm.Normal(f"X{layer + 1}", pt.maximum(z, 0))
        W = pm.Normal("W3", shape=(1, 2))
        if probit:
            z = pm.Normal("Z4", x @ W.T)
            pm.Bernoulli("y", p=pt.gt(z[:, 0], 0), observed=np.zeros(5))
        else:
            pm.Normal("y", x @ W.T, observed=np.zeros((5, 1)))
    return model


def names(conditionals):
    return [" ".join(rv.name for rv in conditional.draws) for conditional in conditionals]


def test_sequential_goes_from_input_to_output():
    model = network()
    conditionals = find_conditionals(model, model.free_RVs)
    ordered = order_scan(conditionals, "sequential", model)
    assert names(ordered) == ["W1 b1", "Z2", "X2", "W2 b2", "Z3", "X3", "W3"]


def test_sequential_does_not_depend_on_the_order_of_the_request():
    model = network()
    conditionals = find_conditionals(model, model.free_RVs[::-1])
    ordered = order_scan(conditionals, "sequential", model)
    assert names(ordered) == ["W1 b1", "Z2", "X2", "W2 b2", "Z3", "X3", "W3"]


def test_parallel_draws_post_activations_then_weights_then_pre_activations():
    model = network(probit=True)
    conditionals = find_conditionals(model, model.free_RVs)
    ordered = order_scan(conditionals, "parallel", model)
    assert names(ordered) == ["X2", "X3", "W1 b1", "W2 b2", "W3", "Z2", "Z3", "Z4"]


def test_layers_of_a_parallel_group_do_not_depend_on_each_other():
    model = network()
    ordered = order_scan(find_conditionals(model, model.free_RVs), "parallel", model)
    groups = [ordered[:2], ordered[2:5], ordered[5:]]
    rng = pt.random.rng("rng")
    for group in groups:
        drawn = {rv for conditional in group for rv in conditional.draws}
        for conditional in group:
            values = conditional.draw(rng, shapes_of(model)).values
            others = drawn - set(conditional.draws)
            assert not stated_in(values.values(), model.free_RVs) & others


@dataclass(frozen=True)
class Fake(Conditional):
    """Draws variables from N(sum of what it is given, 1)."""

    draws: tuple
    given: tuple = ()
    integrates_out: tuple = ()

    @property
    def name(self):
        return "fake"

    def draw(self, rng, shapes):
        total = sum(self.given, pt.constant(0.0, dtype="float64"))
        rng, value = rng.normal(total, 1.0)
        return Draw(rng, dict.fromkeys(self.draws, value))


@pytest.fixture
def abc():
    with pm.Model() as model:
        a = pm.Normal("a")
        b = pm.Normal("b", a)
        c = pm.Normal("c", b)
        pm.Normal("y", c, observed=0.0)
    return model, a, b, c


def accepted(conditionals):
    try:
        check_scan(conditionals, [c.given for c in conditionals])
    except ValueError:
        return False
    return True


def test_collapsed_draws_and_what_may_follow_them(abc):
    _, a, b, c = abc
    full_b = Fake((b,), (a, c))
    # a given c with b integrated out, then b afresh: a joint draw of (a, b)
    assert accepted([Fake((a,), (c,), integrates_out=(b,)), full_b, Fake((c,), (b,))])
    # c uses the stale b in between
    assert not accepted([Fake((a,), (c,), integrates_out=(b,)), Fake((c,), (b,)), full_b])
    # something that is not given b may run in between
    assert accepted([Fake((a,), (c,), integrates_out=(b,)), Fake((c,), (a,)), full_b])
    # b is never drawn
    assert not accepted([Fake((c,), (b,)), Fake((a,), (c,), integrates_out=(b,))])
    # the fresh draw is at the start of the next sweep: between them a stale b is stored
    assert not accepted([full_b, Fake((c,), (b,)), Fake((a,), (c,), integrates_out=(b,))])
    # a draw of b that is itself given b (a scan within a block) needs a valid b
    assert not accepted([Fake((a,), (c,), integrates_out=(b,)), Fake((b,), (a, b))])
    # drawn and integrated out at once: not conditioned on, hence fresh
    assert accepted([Fake((a, b), (c,)), Fake((c,), (b,))])
    # integrating out b again while it is stale is fine; both must come before its fresh draw
    assert accepted(
        [Fake((a,), (), integrates_out=(b,)), Fake((c,), (a,), integrates_out=(b,)), full_b]
    )


def test_the_message_names_all_three(abc):
    _, a, b, c = abc
    sweep = [Fake((a,), (c,), integrates_out=(b,)), Fake((c,), (b,)), Fake((b,), (a, c))]
    with pytest.raises(ValueError, match=r"c is drawn given b, which was integrated out .* of a "):
        check_scan(sweep, [conditional.given for conditional in sweep])


def test_a_compiled_sweep_is_checked_by_what_its_draws_are_stated_in(abc):
    model, a, b, c = abc
    valid = [Fake((a,), (c,), integrates_out=(b,)), Fake((b,), (a, c)), Fake((c,), (b,))]
    chain_draws(model, valid, pt.random.rng("rng"), shapes_of(model))
    invalid = [valid[0], valid[2], valid[1]]
    with pytest.raises(ValueError, match="has not been drawn afresh"):
        chain_draws(model, invalid, pt.random.rng("rng"), shapes_of(model))


def test_stated_in_stops_at_random_variables_and_shapes(abc):
    model, a, b, c = abc
    assert stated_in([b * 2], model.free_RVs) == {b}
    assert stated_in([b + a, c], model.free_RVs) == {a, b, c}
    assert stated_in([pt.zeros(c.shape)], model.free_RVs) == set()
    assert stated_in([model["y"]], model.free_RVs) == {c}


def test_places_where_all_is_fresh(abc):
    _, a, b, c = abc
    collapsed, full_b = Fake((a,), (c,), integrates_out=(b,)), Fake((b,), (a, c))
    assert refreshed_after([collapsed, full_b, Fake((c,), (b,))]) == [2]
    assert refreshed_after([Fake((c,), (b,)), collapsed, full_b]) == []
    assert refreshed_after([collapsed, Fake((c,), (a,)), full_b, Fake((a,), (b,))]) == [3]
