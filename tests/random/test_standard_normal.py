"""Standard normals made many at a time: their law, far tails included, and independence."""

import numpy as np
import pytest
from scipy import special, stats

from pymc_nnsteps.random.standard_normal import (
    AT_A_TIME,
    FEW,
    LAST_EDGE,
    STREAMS,
    begin_streams,
    fill_bits,
    outside,
    standard_normal_kernel,
)
from tests.statistics import P_LIMIT, Z_LIMIT, assert_moments, assert_proportion, assert_uniform

N = 4_000_000


def draw(n, seed=0, dtype=np.float64):
    out = np.empty(n, dtype)
    return standard_normal_kernel(np.random.default_rng(seed), np.array([n]), out)


@pytest.fixture(scope="module")
def normals():
    return draw(N)


def test_they_have_their_cdf(normals):
    """A layer of the ziggurat that is too wide, a bit used twice, a sign that is not a coin."""
    assert_uniform(special.ndtr(normals))
    assert_moments(normals**2, 1.0, 2.0)
    assert_moments(normals**3, 0.0, 15.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tails_have_their_mass(normals, dtype):
    """A tail left out, or continued with the wrong law, behind the last edge."""
    z = np.abs(normals.astype(dtype))
    last = LAST_EDGE
    for bound in (2.5, 3.5, last - 0.05, last, last + 0.2, last + 0.6):
        assert_proportion(z > bound, 2 * stats.norm.sf(bound))


def test_the_tail_has_its_cdf():
    """Another rate, or sign, of the few that are drawn behind the last edge."""
    rng = np.random.default_rng(1)
    for sign in (1, -1):
        z = sign * np.array([outside(rng, np.int64(0), sign * 4.1) for _ in range(20_000)])
        assert_uniform(special.ndtr(-z) / special.ndtr(-LAST_EDGE))


def test_float32_is_float64_rounded(normals):
    """A coarser grid of points in float32."""
    np.testing.assert_array_equal(draw(N, dtype=np.float32), normals.astype(np.float32))


@pytest.mark.parametrize("lag", [1, 2, STREAMS, AT_A_TIME])
def test_they_are_independent(normals, lag):
    """A stream that repeats another, or a word read twice."""
    for power in (1, 2):
        values = normals**power - (power == 2)
        products = values[lag:] * values[:-lag] / power
        assert abs(np.mean(products) * np.sqrt(len(products))) < Z_LIMIT
    assert np.unique(normals).size > 0.999 * N


def test_streams_are_those_of_xoshiro():
    """A shift or rotation that is off: against the generator's definition in plain integers."""
    state = begin_streams(np.random.default_rng(0))
    words = [[int(word) for word in row] for row in state.reshape(4, -1).T]
    bits = np.empty(AT_A_TIME, np.uint64)
    found = np.concatenate([fill_bits(state, bits) or bits.copy() for _ in range(2)])
    expected = [_xoshiro(words[k % STREAMS]) for k in range(2 * AT_A_TIME)]
    assert found.tolist() == expected


def _xoshiro(s, mask=(1 << 64) - 1):
    """The next word of xoshiro256++, with its state."""

    def turned(x, k):
        return (x << k | x >> (64 - k)) & mask

    result = (turned((s[0] + s[3]) & mask, 23) + s[0]) & mask
    t = s[1] << 17 & mask
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= t
    s[3] = turned(s[3], 45)
    return result


def test_few_and_the_last_few_are_drawn():
    """Numbers left unwritten where they do not fill a turn; a generator that does not move on."""
    for n in (0, 1, FEW - 1, FEW, FEW + 1, 5 * AT_A_TIME + 3):
        out = np.full((n, 1), np.nan)
        rng = np.random.default_rng(n)
        standard_normal_kernel(rng, np.array(out.shape), out)
        assert np.isfinite(out).all()
        again = standard_normal_kernel(rng, np.array(out.shape), np.empty_like(out))
        assert not np.any(out == again)
        if n > 1000:
            assert stats.kstest(out[:, 0], "norm").pvalue > P_LIMIT
