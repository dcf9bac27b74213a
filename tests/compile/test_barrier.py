"""Sums that take the place of a term."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.elemwise import Elemwise

from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.compile.elementwise import Loop
from pymc_nnsteps.compile.ops import plus

NOISE, MEAN = np.random.default_rng(0).normal(size=(2, 5, 3))


def moved(sum_of, mode):
    """An array that something else is told too, and moved by it; whether in its own memory."""
    noise, mean = pt.matrices("noise", "mean")
    start = noise * 0.5 + mean
    change = start.sum(axis=1, keepdims=True) * pt.constant([[1.0, 2.0, 3.0]])
    function = pytensor.function([noise, mean], sum_of(start, change), mode=mode)
    ops = [node.op for node in function.maker.fgraph.toposort()]
    last = [op for op in ops if isinstance(op, Elemwise | Loop)][-1]
    return function(NOISE, MEAN), bool(last.destroy_map)


@pytest.mark.parametrize("mode", [c_by_default()["mode"], "NUMBA"], ids=["C", "NUMBA"])
def test_the_sum_is_right(mode):
    start = NOISE * 0.5 + MEAN
    expected = start + start.sum(axis=1, keepdims=True) * [1.0, 2.0, 3.0]
    np.testing.assert_allclose(moved(plus, mode)[0], expected, rtol=1e-12)


def test_it_is_in_place_where_a_plain_sum_is_not():
    mode = c_by_default()["mode"]
    assert moved(plus, mode)[1]
    assert not moved(lambda start, change: start + change, mode)[1]
