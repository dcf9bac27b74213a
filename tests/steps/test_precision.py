"""Draws have the dtype of their variable: what the graph declares, nothing else checks."""

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.laws.recognition import recognise
from tests.cases import quick
from tests.modes import AS_WRITTEN
from tests.zoo import ZOO

NONE = {"wide_network", "gaussian_process"}
"""Models that Gibbs draws nothing of."""

OFTEN = {"integers_beside_weights", "relu_network", "multinomial_network", "no_biases"}


def require_dtypes(model, **options):
    """That of each draw, and of the point, over a few sweeps."""
    step = nns.Gibbs(list(recognise(model)[0]), model=model, **options)
    step.setup_chain(np.random.default_rng(0), 2, 2)
    point = model.initial_point()
    expected = {name: value.dtype for name, value in point.items()}
    for _ in range(3):
        point, _ = step.step(point)
        assert {name: value.dtype for name, value in point.items()} == expected
        assert all(np.all(np.isfinite(value)) for value in point.values())


@pytest.mark.parametrize("name", quick(sorted(set(ZOO) - NONE), OFTEN))
def test_draws_in_single_precision(name):
    with pytensor.config.change_flags(floatX="float32"):
        require_dtypes(ZOO[name](), compile_kwargs={"mode": AS_WRITTEN})


@pytest.mark.slow
def test_compiled_draws_in_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        require_dtypes(ZOO["integers_beside_weights"]())


def test_a_variable_in_single_precision():
    """Beside others in double precision."""
    with pm.Model() as model:
        level = pm.StudentT("level", nu=4, mu=0, sigma=1, shape=6)
        b = pm.Normal("b")
        w = pm.Normal("w", shape=2, dtype="float32")
        X = np.random.default_rng(0).normal(size=(6, 2))
        pm.Normal("y", X @ w + b + level, 0.5, observed=X[:, 0])
        pm.Bernoulli("label", logit_p=X @ w + level, observed=X[:, 1] > 0)
    require_dtypes(model, compile_kwargs={"mode": AS_WRITTEN})
