"""Shapes at the time of compilation: those of the model, and data that do not fit."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.conditionals.shapes import shapes_of

X = np.random.default_rng(0).normal(size=(6, 2))
Y = X[:, 0]

MISFITS = {
    "a column of targets": lambda b: pm.Normal("y", X @ b, 1, observed=Y[:, None]),
    "exchangeable targets": lambda b: pm.Normal("y", X @ b, 1, observed=pm.Data("t", Y[:, None])),
    "a column of scales": lambda b: pm.Normal("y", X @ b, np.ones((6, 1)), observed=Y[:, None]),
    "an explicit shape": lambda b: pm.Normal("y", b[0], 1, shape=(1,), observed=Y),
    "labels": lambda b: pm.Bernoulli("y", logit_p=X @ b, observed=(Y > 0)[:, None]),
}


@pytest.mark.parametrize("name", MISFITS)
def test_data_that_do_not_fit_are_refused(name):
    """A sampler for another model than PyMC's, which pairs every number with every parameter."""
    with pm.Model() as model:
        MISFITS[name](pm.Normal("b", shape=2))
    reason = r"y is observed with shape \(6.*\), but its distribution has shape \(.*\); give both"
    with pytest.raises(ValueError, match=reason):
        nns.Gibbs("b", model=model)
    for refuse in (nns.explain, lambda model: nns.Gibbs(model=model)):
        with pytest.raises(ValueError, match=reason):
            refuse(model)


def test_shapes_are_those_of_the_initial_point():
    with pm.Model(coords={"unit": range(3)}) as model:
        w = pm.Normal("w", dims="unit")
        s = pm.Gamma("s", 2, 2, shape=(2, 1))
        u = pm.Normal("u", 0, w * s)
        pm.Normal("y", u.sum(0), 1, observed=pm.Data("t", np.ones((4, 3))))
        pm.Dirichlet("p", np.ones((2, 3)))
    shapes = shapes_of(model)
    start = shapes_of(model, model.initial_point())
    assert [shapes[rv] for rv in (w, s, u, model["y"])] == [(3,), (2, 1), (2, 3), (4, 3)]
    assert all(shapes[rv] == start[rv] for rv in (w, s, u, model["y"]))
