"""Trajectories against a plain leapfrog, and against the no-U-turn criterion written out."""

from inspect import unwrap

import numba
import numpy as np
import pytest
from numba import types

from pymc_nnsteps.moves.loops.leapfrog import leapfrog
from pymc_nnsteps.steps import trajectories as kernels

PRECISION = np.array([0.5, 2.0, 1.3])
NUMBERS, LAYOUTS = np.array([0.3, 0.4]), np.array([[0], [1]])
START = np.array([0.4, -0.3, 1.1])
SIZE, MAX_DEPTH = 0.12, 7


def block(arguments):
    """What one of two blocks adds to a quartic with a saddle, as the kernel is given it."""
    q, numbers, layout, _ = arguments
    out, coupling = np.empty(1 + len(q)), numbers[layout[0]]
    out[0] = -np.sum(q**4) / 8 + coupling * q[0] * q[1]
    out[1:] = -(q**3) / 2
    out[1] += coupling * q[1]
    out[2] += coupling * q[0]
    return (out,)


def density(q):
    """Log density and gradient."""
    return sum(block((q, NUMBERS, layout, NUMBERS))[0] for layout in LAYOUTS)


VECTOR, POSITIONS = numba.float64[::1], numba.int64[::1]
SIGNATURE = types.UniTuple(VECTOR, 1)(types.Tuple((VECTOR, VECTOR, POSITIONS, VECTOR)))


def alone(function):
    """A density that is a sum over blocks, as kernels are given it."""
    return kernels.Density(function, function, function, 0.0, NUMBERS, LAYOUTS)


def leapfrog_steps(q, p, size):
    """Places and momenta one after another, in plain NumPy."""
    while True:
        slope = density(q)[1:]
        half = p + size / 2 * slope
        q = q + size * half / PRECISION
        p = half + size / 2 * density(q)[1:]
        yield q, p


def run(seed, *, compiled=None, size=SIZE):
    """The state that is drawn and the statistics, and the places that Python looked at."""
    visited = []

    def recorded(arguments):
        if arguments[2][0] == 0:
            visited.append(arguments[0].copy())
        return block(arguments)

    q = START.copy()
    start = density(q)
    kernel = kernels.no_u_turn.numba if compiled else unwrap(kernels.no_u_turn)
    evaluate, rng = alone(compiled or recorded), np.random.default_rng(seed)
    stats = kernel(evaluate, q, start, PRECISION, size, MAX_DEPTH, rng)
    return q, stats, np.array(visited)


def turned(momenta):
    """The criterion, over the whole of a trajectory."""
    total = np.sum(momenta, axis=0) - (momenta[0] + momenta[-1]) / 2
    return min(momenta[0] @ (total / PRECISION), momenta[-1] @ (total / PRECISION)) <= 0


def any_part_turned(momenta):
    """Whether a balanced subtree that the last leaf ends has turned."""
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
    sides = {size: leapfrog_steps(START, p, size) for size in (SIZE, -SIZE)}
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
    assert log_density == pytest.approx(density(q)[0], rel=1e-12)


def test_steps_are_reversible():
    metric, target = kernels.diagonal(PRECISION), alone(block)
    q, p, velocity = START.copy(), np.array([0.3, 1.0, -2.0]), np.empty(3)
    slope = density(q)[1:]
    before = q.copy(), p.copy()
    for size in [SIZE] * 40 + [-SIZE] * 40:
        leapfrog(kernels.evaluate, target, metric, size, q, p, slope, velocity)
    np.testing.assert_allclose([q, p], before, rtol=1e-12, atol=1e-12)


LONGEST = 4


def run_random_length(seed, *, compiled=None, size=SIZE):
    """The place and the statistics."""
    q = START.copy()
    start = density(q)
    kernel = kernels.random_length.numba if compiled else unwrap(kernels.random_length)
    rng = np.random.default_rng(seed)
    return q, kernel(alone(compiled or block), q, start, PRECISION, size, LONGEST, rng)


def test_random_length():
    """The end of a leapfrog, or the place itself."""
    lengths, rejections, scale = set(), 0, np.sqrt(PRECISION)
    for seed in range(40):
        q, (log_density, acceptance, n_steps, diverging) = run_random_length(seed, size=0.6)
        noise = np.random.default_rng(seed).standard_normal(3)
        path = leapfrog_steps(START, scale * noise, 0.6)
        end, momentum = [next(path) for _ in range(n_steps)][-1]
        energies = [
            np.sum(v**2) / 2 - density(x)[0] for x, v in ((START, noise), (end, momentum / scale))
        ]
        assert acceptance == pytest.approx(min(1.0, np.exp(energies[0] - energies[1])))
        rejected = np.array_equal(q, START)
        np.testing.assert_allclose(q, START if rejected else end, rtol=1e-12, atol=1e-12)
        assert log_density == pytest.approx(density(q)[0], rel=1e-12)
        assert not diverging
        lengths.add(n_steps)
        rejections += rejected
    assert lengths == {1, 2, 3, 4}
    assert 3 < rejections < 35


@pytest.mark.slow
def test_compiled_is_what_python_does():
    """The same random numbers, and the same places up to the rounding of sums."""
    compiled = numba.cfunc(SIGNATURE)(block)
    for seed in range(5):
        q, stats, _ = run(seed)
        other, other_stats, _ = run(seed, compiled=compiled)
        np.testing.assert_allclose(other, q, rtol=1e-12, atol=1e-12)
        assert other_stats == pytest.approx(stats, rel=1e-12)
        ends = (run_random_length(seed, compiled=evaluate) for evaluate in (None, compiled))
        (place, stats), (other, other_stats) = ends
        np.testing.assert_allclose(other, place, rtol=1e-12, atol=1e-12)
        assert other_stats == pytest.approx(stats, rel=1e-12)


def test_divergence():
    """A step that is far too long stays where it is, and says so."""
    q, (_, acceptance, n_steps, depth, diverging), _ = run(0, size=60.0)
    assert diverging
    assert (n_steps, depth) == (1, 1)
    assert acceptance < 1e-100
    np.testing.assert_array_equal(q, START)
    q, (_, acceptance, n_steps, diverging) = run_random_length(0, size=60.0)
    assert (acceptance, n_steps, diverging) == (0.0, 1, True)
    np.testing.assert_array_equal(q, START)
