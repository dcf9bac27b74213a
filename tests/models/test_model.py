"""The model that builders make leaves its functions to the C++ compiler."""

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import Machine
from tests.zoo import X


@pytest.fixture(scope="module", params=["builder", "blocks"])
def model(request):
    if request.param == "builder":
        return nns.wide_mlp(X, X[:, 0], hidden=(3,))
    with nns.Model() as model:
        pm.Normal("y", nns.blocks.hierarchical(X, hidden=(2,)), 1, observed=X[:, 0])
    return model


def compiled(model, **options):
    outs = model.unobserved_value_vars
    return model.compile_fn(outs, inputs=model.value_vars, point_fn=False, **options)


def test_functions_are_those_of_a_plain_model(model):
    """Another compiler, or other numbers than Python's."""
    outs, inputs = model.unobserved_value_vars, model.value_vars
    found = compiled(model)
    plain = pm.Model.compile_fn(model, outs, inputs=inputs, point_fn=False, mode="FAST_COMPILE")
    assert isinstance(found.maker.linker, Machine)
    assert not isinstance(plain.maker.linker, Machine)
    point = [np.asarray(model.initial_point()[value.name]) for value in model.value_vars]
    for ours, numbers in zip(found(*point), plain(*point), strict=True):
        np.testing.assert_allclose(ours, numbers, rtol=1e-9, atol=1e-12)


def test_a_mode_that_is_asked_for_is_used(model):
    fast = pytensor.compile.mode.get_mode("FAST_COMPILE").linker
    assert type(compiled(model, mode="FAST_COMPILE").maker.linker) is type(fast)
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        assert type(compiled(model).maker.linker) is type(fast)
