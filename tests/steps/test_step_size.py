"""Does dual averaging find the step size that is accepted as often as asked for?"""

import math

import numpy as np
import pytest

from pymc_nnsteps.steps.step_size import LARGEST_SHIFT, DualAveraging


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
