"""Sums over rows of groups, and what rows see of theirs, against NumPy."""

from itertools import product

import numpy as np
import pytest

from pymc_nnsteps.gaussian import groups

RNG = np.random.default_rng(1)
N, GROUPS, K, D = 7, 4, 3, 2
INDEX = RNG.integers(GROUPS, size=N)


def rows(n, width, dtype):
    """Rows of which one in three entries is zero."""
    return (RNG.normal(size=(n, width)) * (RNG.random((n, width)) < 2 / 3)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shared", list(product([False, True], repeat=3)))
def test_sums_are_those_of_products(shared, dtype):
    """Weights and both factors are those of rows, or the same in all rows."""
    weight, first, second = (
        rows(1 if same else N, width, dtype) for same, width in zip(shared, (1, K, D), strict=True)
    )
    start = rows(GROUPS, K * D, dtype)
    found = groups.add_products(start, INDEX, weight[:, 0], first, second)
    each = np.zeros((N, K, D)) + weight[:, :, None] * first[:, :, None] * second[:, None, :]
    wanted = start.reshape(GROUPS, K, D).astype(float)
    np.add.at(wanted, INDEX, each)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted.reshape(GROUPS, -1), atol=10 * np.finfo(dtype).eps)


@pytest.mark.parametrize("n", [1, N])
def test_what_rows_see(n):
    design, entries = rows(n, K, float), RNG.normal(size=(GROUPS, K * D))
    found = groups.see_groups(INDEX, design, entries)
    by_group = entries.reshape(GROUPS, K, D)[INDEX]
    np.testing.assert_allclose(found, (design[:, :, None] * by_group).sum(1), atol=1e-14)


@pytest.mark.parametrize("group", [-1, GROUPS])
def test_a_group_that_is_not_there(group):
    """No memory of others is read or written, and what depends on the row is no number."""
    index = np.array([0, group, 1])
    one = np.ones((3, 1))
    assert np.isnan(groups.add_products(np.zeros((GROUPS, 1)), index, np.ones(1), one, one)).all()
    seen = groups.see_groups(index, one, np.arange(4.0)[:, None])
    np.testing.assert_array_equal(seen[:, 0], [0, np.nan, 1])
