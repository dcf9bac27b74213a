"""Loops of this package in place of PyTensor's."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_nnsteps.kernels.compiling import c_by_default
from pymc_nnsteps.kernels.elementwise import Loop
from tests.modes import AS_WRITTEN

RNG = np.random.default_rng(0)
CUBE = RNG.normal(size=(4, 3, 5))


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (CUBE[0], RNG.normal(size=5)),
        (CUBE[0].T, RNG.normal(size=3)),
        (CUBE[:, ::2, 1], RNG.normal(size=2)),
        (CUBE[0, :0], RNG.normal(size=5)),
    ],
    ids=["rows", "columns", "parts", "none"],
)
def test_loops_over_arrays_in_any_order(X, y):
    """Of several results, with sums of rows, columns and numbers, some of them in place."""
    matrix, vector, integers = pt.matrix("matrix"), pt.vector("vector"), pt.lvector("integers")
    z = pt.exp(-abs(matrix)) * vector + integers[:, None]
    outputs = [z + z.T.T.sum(), pt.switch(matrix > vector, z, -matrix), pt.sqrt(vector**2 + 1)]
    given = X, y, np.arange(len(X))
    loops, plain = (
        pytensor.function([matrix, vector, integers], outputs, mode=mode)
        for mode in (c_by_default()["mode"], AS_WRITTEN)
    )
    assert any(isinstance(node.op, Loop) for node in loops.maker.fgraph.toposort())
    for _ in range(2):
        for found, expected in zip(loops(*given), plain(*given), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_lengths_that_do_not_fit():
    x, y = pt.vectors("x", "y")
    function = pytensor.function([x, y], pt.exp(x) + y, **c_by_default())
    with pytest.raises(ValueError, match="Input dimension mismatch"):
        function(np.zeros(3), np.zeros(1))
