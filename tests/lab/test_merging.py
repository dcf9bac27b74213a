"""The rule by which chains merge, on chains whose law is known."""

import numpy as np
import pytest

from pymc_nnsteps.lab.merging import LIMIT, merging, windows

SWEEPS = np.arange(1, 4097)


def autoregressive(rho, shape, seed):
    """Chains in equilibrium: normal, with autocorrelation ``rho^t``."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    for t in range(1, shape[-1]):
        x[..., t] = rho * x[..., t - 1] + np.sqrt(1 - rho**2) * x[..., t]
    return x


def test_windows_end_with_the_last_sweep():
    ends = [SWEEPS[window][[0, -1]].tolist() for window in windows(SWEEPS)]
    assert ends[-3:] == [[513, 1024], [1025, 2048], [2049, 4096]]
    assert ends[0] == [17, 32]


def test_chains_in_equilibrium_have_merged():
    """The share of false alarms, and that their differences have the errors that are stated."""
    chains = autoregressive(0.8, (100, 2, len(SWEEPS)), 0)
    found = [merging(SWEEPS, *pair) for pair in chains]
    assert np.mean([m.state == "merged" for m in found]) > 0.97
    late = [m for m in found if m.merged > 256]
    assert len(late) < 10
    z = np.array([m.difference / m.error for m in found if m.merged < 256])
    assert 0.8 < z.std() < 1.4


@pytest.mark.parametrize("time", [10.0, 30.0, 100.0])
def test_time_is_that_of_theory(time):
    """An exponential approach, seen as long as it exceeds the error of a window."""
    offset = 100 * np.exp(-SWEEPS / time)
    tau = (1 + 0.5) / (1 - 0.5)
    parts = windows(SWEEPS)
    seen = [offset[w].mean() > LIMIT * np.sqrt(2 * tau / w.sum()) for w in parts]
    expected = SWEEPS[parts[np.flatnonzero(seen)[-1]]][-1]
    for seed in range(10):
        x = autoregressive(0.5, (2, len(SWEEPS)), seed)
        found = merging(SWEEPS, x[0] + offset, x[1])
        assert found.state == "merged"
        assert found.merged in (expected / 2, expected, 2 * expected)
        assert found.apart == found.merged / 2


def test_two_modes_are_stuck_and_a_slow_approach_is_moving():
    x = autoregressive(0.5, (2, len(SWEEPS)), 0)
    stuck = merging(SWEEPS, x[0] + 1, x[1])
    assert (stuck.state, stuck.apart) == ("stuck", 4096)
    assert np.isnan(stuck.merged)
    assert abs(stuck.difference - 1) < LIMIT * stuck.error < 0.6
    assert merging(SWEEPS, x[0] + 100 * np.exp(-SWEEPS / 3000), x[1]).state == "moving"


def test_a_small_difference_is_seen_in_several_windows():
    """It is below the limit in many a window by itself, but not in several together."""
    sweeps = np.concatenate([np.arange(1, 65), *(2**k * np.arange(33, 65) for k in range(1, 14))])
    x = autoregressive(0.0, (2, len(sweeps)), 1)
    assert merging(sweeps, x[0], x[1]).merged <= 64
    assert merging(sweeps, x[0] + 0.6, x[1]).state != "merged"


def test_constants():
    zeros = np.zeros(len(SWEEPS))
    same, other = merging(SWEEPS, zeros, zeros), merging(SWEEPS, zeros + 1, zeros)
    assert (same.state, same.difference, same.error) == ("merged", 0, 0)
    assert other.state == "stuck"


def test_too_few_records():
    with pytest.raises(ValueError, match="records must leave at least 16 in the last half"):
        merging(np.arange(1, 21), np.zeros(20), np.zeros(20))
