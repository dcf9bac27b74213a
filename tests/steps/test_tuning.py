"""Step sizes that are accepted as often as asked for, and moves repeated within a draw."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.steps.tuning import (
    LARGEST,
    LARGEST_SHIFT,
    DualAveraging,
    Repeats,
    autocorrelation_time,
)
from tests.steps.cases import run
from tests.zoo import hierarchical_network

FAST = {"compile_kwargs": {"mode": "FAST_COMPILE"}}


def adapt(state, acceptance, n):
    for _ in range(n):
        state = state.update(acceptance(state.current))
    return state


def falling(coordinate):
    """Acceptance that falls with the step size, through one half at 0.7."""
    return 1 / (1 + math.exp(coordinate - 0.7))


@pytest.mark.parametrize("target", [0.234, 0.574, 0.9])
@pytest.mark.parametrize("start", [-5.0, 0.0, 5.0])
def test_finds_the_target(target, start):
    """A sign, or an average that forgets neither its start nor its noise."""
    rng = np.random.default_rng(0)
    noisy = adapt(DualAveraging(target, start), lambda c: float(rng.random() < falling(c)), 20_000)
    exact = adapt(DualAveraging(target, start), falling, 20_000)
    shrunk = 0.05 * 10 / math.sqrt(20_000)  # what is left of the pull to a start 10 units away
    assert abs(falling(exact.average) - target) < shrunk
    assert abs(falling(noisy.average) - target) < 0.02


def test_first_updates_are_those_of_the_source():
    """Hoffman and Gelman, Algorithm 5, written out: gamma .05, t0 10, kappa .75."""
    acceptances = [1.0, 0.2, 0.0, 0.7]
    state = DualAveraging(0.6, start=-2.0)
    error, average = 0.0, 0.0
    for t, acceptance in enumerate(acceptances, start=1):
        state = state.update(acceptance)
        error = (1 - 1 / (t + 10)) * error + (0.6 - acceptance) / (t + 10)
        x = -2.0 - math.sqrt(t) / 0.05 * error
        average = t**-0.75 * x + (1 - t**-0.75) * average
        assert state.current == pytest.approx(x, rel=1e-12)
        assert state.average == pytest.approx(average, rel=1e-12)


@pytest.mark.parametrize(("acceptance", "side"), [(1.0, 1), (0.0, -1)])
def test_extremes_stay_finite(acceptance, side):
    """A target that is flat, or a start that is never left, must not overflow."""
    state = adapt(DualAveraging(0.5, 0.0), lambda c: acceptance, 10_000)
    assert state.current == side * LARGEST_SHIFT
    assert math.isfinite(math.exp(state.current))
    assert 0 < side * state.average <= LARGEST_SHIFT


def test_recovers_from_a_bad_start():
    """Nothing is accepted for a while, as far from the typical set, and then all is usual."""
    state = adapt(DualAveraging(0.5, 0.0), lambda c: 0.0, 300)
    assert state.current < -20
    state = adapt(state, falling, 20_000)
    assert abs(falling(state.average) - 0.5) < 0.01


def test_states_are_values():
    """A state that is changed in place is shared by chains."""
    state = DualAveraging(0.5, 1.0)
    assert state.current == state.average == 1.0
    other = state.update(0.9)
    assert state == DualAveraging(0.5, 1.0)
    assert other.count == 1
    assert other.current > 1.0


def autoregressive(rho, n, seed=0):
    rng = np.random.default_rng(seed)
    x = [rng.normal()]
    for noise in np.sqrt(1 - rho**2) * rng.normal(size=n - 1):
        x.append(rho * x[-1] + noise)
    return np.array(x)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_autocorrelation_time_of_a_known_chain(rho):
    """Standard error of some 3 % at 40 000 draws of the slowest; another factor of two is seen."""
    expected = (1 + rho) / (1 - rho)
    assert autocorrelation_time(autoregressive(rho, 40_000)) == pytest.approx(expected, rel=0.1)
    assert autocorrelation_time(np.ones(10)) == 1


def judged(tune, rho, **constant):
    repeats = Repeats.of(tune)
    for x in autoregressive(rho, tune):
        repeats = repeats.update({"x": np.array(x), **constant}, ["x", *constant])
    return repeats.judged()


def test_slow_chains_have_more_repeats():
    """By the second half of tuning; large variables and whole numbers are not judged."""
    others = {"rows": np.zeros((101, 1)), "gate": np.array(1)}
    assert judged(2_000, 0.0) == Repeats(1)
    assert judged(2_000, 0.8, **others).n in (2, 3, 4)  # a time of 9, some 20 % of error
    assert judged(2_000, 0.99) == Repeats(LARGEST)
    assert judged(498, 0.99) == Repeats(1), "too few to judge by"
    assert judged(2_000, 0.99).judged() == Repeats(LARGEST), "it is kept"


def test_slow_gibbs_makes_more_sweeps():
    """Two levels that only their sum is known of; a given number is not changed."""
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        pm.Normal("y", a + b, 0.25, observed=1.0)
    point = model.initial_point()
    for sweeps, expected in (("auto", range(3, LARGEST + 1)), (2, [2])):
        steps = [nns.Gibbs([v], model=model, sweeps=sweeps, **FAST) for v in (a, b)]
        for seed, step in enumerate(steps):
            step.setup_chain(np.random.default_rng(seed), 600, 5)
        for _ in range(600):
            for step in steps:
                point, _ = step.step(point)
        for step in steps:
            step.stop_tuning()
            tuned = step.n_sweeps
            step.step(point)
            assert step.n_sweeps - tuned in expected
            again = step.sampling_state
            step.setup_chain(np.random.default_rng(1), 0, 5)
            assert step.sweeps in expected, "a chain without tuning keeps it"
            step.sampling_state = again
            assert step.sweeps in expected


def test_slow_trajectories_are_repeated(monkeypatch):
    model, limits = hierarchical_network(), []
    move = nns.HMC._move

    def seen(self, *given):
        limits.append(given[-1])
        return move(self, *given)

    monkeypatch.setattr(nns.HMC, "_move", seen)
    step = nns.HMC([v for v in model.free_RVs if "tau" not in v.name], model=model)
    step.setup_chain(np.random.default_rng(0), 0, 5)
    for n, expected in ((1, [400, 50]), (3, [400] * 3)):
        step.repeats, limits[:] = Repeats(n), []
        run(step, model.initial_point(), 1)
        assert limits == expected
