"""`monomial`: how a scale enters, against numerical evaluation, and what is declined."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import graph_replace

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.monomial import monomial
from pymc_nnsteps.graphs.search import parameters

TAU = pt.vector("tau", shape=(3,))
SCALAR = pt.scalar("s")
GROUP = np.array([0, 2, 2, 1, 0])
X = pt.as_tensor(np.linspace(1.0, 2.0, 15).reshape(5, 3))

CARRIED = {
    "itself": (TAU, TAU, 1.0),
    "sigma of a tau": (1 / pt.sqrt(TAU), TAU, -0.5),
    "power of an absolute value": (pt.abs(TAU) ** -0.5 * pt.sign(TAU), TAU, -0.5),
    "squared": (pt.sqr(2 * TAU), TAU, 2.0),
    "per column": (X / pt.sqrt(TAU), TAU, -0.5),
    "per row": (pt.reciprocal(TAU)[:, None] * X.T, TAU, -1.0),
    "per group": (pt.sqrt(TAU[GROUP]) * 3, TAU, 0.5),
    "per group and column": (TAU[GROUP][:, None] * X, TAU, 1.0),
    "product of two scales": (SCALAR * TAU, TAU, 1.0),
    "the other of two scales": (SCALAR * TAU, SCALAR, 1.0),
    "scalar for a matrix": (X * SCALAR**-2, SCALAR, -2.0),
    "twice": (TAU * pt.sqrt(TAU), TAU, 1.5),
    "cancelled": (TAU * X / TAU, TAU, 0.0),
}


def evaluated(expression, values):
    [replaced] = graph_replace([expression], values, strict=False)
    return pytensor.function([], replaced, mode="FAST_COMPILE", on_unused_input="ignore")()


@pytest.mark.parametrize("name", CARRIED)
def test_form_equals_the_expression(name):
    """Catches a wrong exponent, a lost factor, and axes carried to the wrong place."""
    expression, rv, exponent = CARRIED[name]
    values = {TAU: pt.as_tensor([0.5, 2.0, 3.0]), SCALAR: pt.as_tensor(1.7)}
    form = monomial(expression, rv)
    assert form.exponent == exponent
    entries = values[rv] ** form.exponent
    for link in form.term.links:
        if link is not None and link.index is not None:
            entries = pt.take(entries, link.index, axis=link.axis)
    carried = pt.ones((1,) * expression.ndim)
    if exponent != 0:
        order = [None if link is None else link.axis for link in form.term.links]
        carried = entries.dimshuffle(*("x" if axis is None else axis for axis in order))
    out_axes = range(expression.ndim)
    coefficient = form.term.coefficient.dimshuffle(*out_axes)
    expected = evaluated(expression, values)
    np.testing.assert_allclose(
        np.broadcast_to(evaluated(coefficient * carried, values), expected.shape),
        expected,
        rtol=1e-12,
    )


@pytest.mark.parametrize("argument", ["sigma", "tau"])
def test_reads_the_scale_of_a_normal(argument):
    """Catches a form that misses how PyMC turns ``tau`` into ``sigma``."""
    with pm.Model() as model:
        v = pm.Gamma("v", 2, 1, shape=3)
        y = pm.Normal("y", 0, **{argument: v[None, :]}, shape=(4, 3))
    form = monomial(parameters(y)[1], v, model.basic_RVs)
    assert form.exponent == (1.0 if argument == "sigma" else -0.5)
    assert [link and link.axis for link in form.term.links] == [None, 0]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (TAU + 1, "is not a power"),
        (pt.exp(TAU), "is not a power"),
        (TAU**SCALAR, "is not a power"),
        (TAU.sum(), "does not keep"),
        (TAU[:, None] * TAU[None, :], "along different axes"),
        (X[pt.cast(TAU, "int64")], "is not a power"),
    ],
)
def test_declines(expression, reason):
    """Catches a scale that is taken for a power although it is none."""
    with pytest.raises(NotConjugate, match=reason):
        monomial(expression, TAU)
