"""No-U-turn trajectories against a plain leapfrog, and against the criterion written out."""

import numba
import numpy as np
import pytest
from numba import types

from pymc_nnsteps.kernels import no_u_turn as kernels

PRECISION = np.array([0.5, 2.0, 1.3])
NUMBERS, LAYOUT = np.array([0.7]), np.array([0])
START = np.array([0.4, -0.3, 1.1])
SIZE, MAX_DEPTH = 0.12, 7


def density(arguments):
    """Log density and gradient of a quartic with a saddle, as the kernel is given them."""
    q, numbers, _ = arguments
    out = np.empty(1 + len(q))
    out[0] = -np.sum(q**4) / 4 + numbers[0] * q[0] * q[1]
    out[1:] = -(q**3)
    out[1] += numbers[0] * q[1]
    out[2] += numbers[0] * q[0]
    return (out,)


VECTOR, POSITIONS = numba.float64[::1], numba.int64[::1]
SIGNATURE = types.UniTuple(VECTOR, 1)(types.Tuple((VECTOR, VECTOR, POSITIONS)))


def leapfrog(q, p, size):
    """Places and momenta one after another, in plain NumPy."""
    while True:
        slope = density((q, NUMBERS, LAYOUT))[0][1:]
        half = p + size / 2 * slope
        q = q + size * half / PRECISION
        p = half + size / 2 * density((q, NUMBERS, LAYOUT))[0][1:]
        yield q, p


def run(seed, *, compiled=None, size=SIZE):
    """The state that is drawn and the statistics, and the places that Python looked at."""
    visited = []

    def recorded(arguments):
        visited.append(arguments[0].copy())
        return density(arguments)

    q = START.copy()
    start = density((q, NUMBERS, LAYOUT))[0]
    kernel = kernels.no_u_turn if compiled else kernels.no_u_turn.py_func
    evaluate, rng = compiled or recorded, np.random.default_rng(seed)
    stats = kernel(evaluate, q, start, PRECISION, size, MAX_DEPTH, NUMBERS, LAYOUT, rng)
    return q, stats, np.array(visited)


def turned(momenta):
    """The criterion, over the whole of a trajectory."""
    total = np.sum(momenta, axis=0) - (momenta[0] + momenta[-1]) / 2
    return min(momenta[0] @ (total / PRECISION), momenta[-1] @ (total / PRECISION)) <= 0


def any_part_turned(momenta):
    """Of the balanced subtrees that its last leaf ends."""
    n, length = len(momenta), 2
    while n % length == 0:
        if turned(momenta[n - length :]):
            return True
        length *= 2
    return False


@pytest.mark.parametrize("seed", range(12))
def test_trajectory(seed):
    """Places to 1e-12; that it goes on until the criterion says otherwise, and no further."""
    q, (log_density, _, n_steps, depth, diverging), visited = run(seed)
    p = np.sqrt(PRECISION) * np.random.default_rng(seed).standard_normal(3)
    sides = {size: leapfrog(START, p, size) for size in (SIZE, -SIZE)}
    upcoming = {size: next(places) for size, places in sides.items()}
    momenta, seen = [p], [START]
    for level in range(depth):
        first = visited[len(seen) - 1]
        size = min(sides, key=lambda size: np.abs(upcoming[size][0] - first).max())
        part = []
        while not part or (len(part) < 2**level and not any_part_turned(part)):
            place, momentum = upcoming[size]
            np.testing.assert_allclose(visited[len(seen) - 1], place, rtol=1e-12, atol=1e-12)
            seen.append(place)
            part.append(momentum)
            upcoming[size] = next(sides[size])
        whole = len(part) == 2**level and not any_part_turned(part)
        momenta = momenta + part if size > 0 else part[::-1] + momenta
        assert level == depth - 1 or (whole and not turned(momenta))
    assert depth == MAX_DEPTH or not whole or turned(momenta)
    assert len(seen) == n_steps + 1 == len(visited) + 1
    assert not diverging
    assert np.abs(np.array(seen) - q).max(axis=1).min() < 1e-12
    assert log_density == pytest.approx(density((q, NUMBERS, LAYOUT))[0][0], rel=1e-12)


def test_steps_are_reversible():
    q, p = START.copy(), np.array([0.3, 1.0, -2.0])
    slope = density((q, NUMBERS, LAYOUT))[0][1:]
    before = q.copy(), p.copy()
    for size in [SIZE] * 40 + [-SIZE] * 40:
        kernels.drift(q, p, slope, PRECISION, size)
        slope = density((q, NUMBERS, LAYOUT))[0][1:]
        kernels.kick(p, slope, size)
    np.testing.assert_allclose([q, p], before, rtol=1e-12, atol=1e-12)


def test_compiled_is_what_python_does():
    """The same random numbers, and the same places up to the rounding of sums."""
    compiled = numba.cfunc(SIGNATURE)(density)
    for seed in range(5):
        q, stats, _ = run(seed)
        other, other_stats, _ = run(seed, compiled=compiled)
        np.testing.assert_allclose(other, q, rtol=1e-12, atol=1e-12)
        assert other_stats == pytest.approx(stats, rel=1e-12)


def test_divergence():
    """A step that is far too long stays where it is, and says so."""
    q, (_, acceptance, n_steps, depth, diverging), _ = run(0, size=60.0)
    assert diverging
    assert (n_steps, depth) == (1, 1)
    assert acceptance < 1e-100
    np.testing.assert_array_equal(q, START)
