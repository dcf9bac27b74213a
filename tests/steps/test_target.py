"""The log density that a step samples from, beside PyMC's."""

import warnings

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg import Cholesky

from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.steps.density_check import Target
from pymc_nnsteps.steps.flat import FlatDensity
from pymc_nnsteps.steps.target import dependent_factors, log_density
from tests.cases import slow

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 3))


def marginal(n_outputs=4, tau=False, batched=False):
    """A Gaussian marginal whose covariance and mean depend on what is sampled."""
    with pm.Model() as model:
        W = pm.Normal("W", shape=(3, 5))
        m = pm.Normal("m", shape=6)
        s = pm.HalfNormal("s")
        features = pm.math.tanh(X @ W)
        K = features @ features.T + s * pt.eye(6)
        if batched:
            K = pt.stack([K, 2 * K])
        spread = {"tau": K} if tau else {"cov": K}
        shape = (2, 6) if batched else (n_outputs, 6) if n_outputs else (6,)
        pm.MvNormal("y", m, **spread, observed=RNG.normal(size=shape))
    return model


def points(model, n=2):
    return [
        {name: RNG.normal(size=np.shape(value)) for name, value in model.initial_point().items()}
        for _ in range(n)
    ]


@pytest.mark.parametrize("n_outputs", [0, slow(1), 4])
@pytest.mark.parametrize(("tau", "batched"), [(False, False), slow(True, False), (False, True)])
def test_value_and_gradient_are_those_of_pymc(n_outputs, tau, batched):
    """A factor 2, a transpose or a missing constant in the gradient by hand."""
    model = marginal(n_outputs, tau, batched)
    ours = log_density(model, model.basic_RVs)
    theirs = model.logp(jacobian=True)
    values = model.value_vars
    both = [ours, theirs, *pt.grad(ours, values), *pt.grad(theirs, values)]
    function = pytensor.function(values, both, **c_by_default())
    for point in points(model):
        value, expected, *slopes = function(*point.values())
        np.testing.assert_allclose(value, expected, rtol=1e-10)
        for slope, other in zip(slopes[:3], slopes[3:], strict=True):
            np.testing.assert_allclose(slope, other, rtol=1e-8, atol=1e-10)


def test_one_factorisation():
    """One for the value, another for the gradient; or one for each output."""
    model = marginal()
    density = log_density(model, model.observed_RVs)
    value = model.value_vars[0]
    function = pytensor.function(
        model.value_vars, [density, pt.grad(density, value)], **c_by_default()
    )
    found = [
        getattr(n.op, "core_op", getattr(n.op, "op", n.op))
        for n in function.maker.fgraph.toposort()
    ]
    assert sum(isinstance(op, Cholesky) for op in found) == 1
    assert not any(
        isinstance(n.op, Blockwise) and isinstance(n.op.core_op, Cholesky)
        for n in function.maker.fgraph.toposort()
    )


def test_a_covariance_that_is_not_positive_definite():
    """A density of NaN or an exception, where a proposal should be refused."""
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.MvNormal("y", np.zeros(2), cov=pt.stack([[1.0, a], [a, 1.0]]), observed=[0.1, 0.2])
    function = pytensor.function(
        model.value_vars, log_density(model, model.observed_RVs), **c_by_default()
    )
    assert np.isfinite(function(0.5))
    assert not function(2.0) > -np.inf


def test_dependent_factors():
    """A potential, a second child, or a grandchild that is counted as a child."""
    with pm.Model() as model:
        a = pm.Normal("a")
        b = pm.Normal("b", a)
        c = pm.Normal("c", b)
        d = pm.Deterministic("d", a + 1)
        e = pm.Normal("e", d, observed=0.3)
        penalty = pm.Potential("penalty", -(a**2))
        pm.Potential("other", -(c**2))
    assert dependent_factors(model, [a]) == [b, e, penalty]
    assert dependent_factors(model, [a, b]) == [c, e, penalty]


Y = RNG.normal(size=(3, 2))
COV = np.array([[1.0, 0.5], [0.5, 1.0]])
PARTLY = [[0, 1], [0, 0], [1, 1]]


def partly_observed_vectors(mask):
    mu = pm.Normal("mu", shape=2)
    s = pm.LogNormal("s")
    y = pm.MvNormal("y", mu, s * pt.constant(COV), observed=np.ma.masked_array(Y, mask))
    pm.Normal("z", y.sum(), s, observed=1.0)


def partly_observed_counts():
    p = pm.Dirichlet("p", [1.0, 2.0, 3.0])
    pm.Multinomial("y", 6, p, observed=np.ma.masked_array([1, 2, 3], [0, 1, 1]))


def partly_observed_numbers():
    mu, s = pm.Normal("mu"), pm.HalfNormal("s")
    component = pm.Normal.dist(mu, s)
    observed = np.ma.masked_array([0.3, -1.0, 0.2], [0, 1, 0])
    pm.Censored("y", component, lower=-1, upper=1, observed=observed)


def bounds_that_move():
    low = pm.Normal("low")
    x = pm.Uniform("x", low, low + pm.Exponential("width", 1))
    pm.Uniform("z", low, x)
    pm.Potential("p", -(x**2) * low)


def named_dimensions():
    pm.modelcontext(None).add_coords({"a": range(3), "b": range(2)})
    mu = pmd.Normal("mu", 0, 1, dims="a")
    s = pmd.HalfNormal("s", dims="b")
    pmd.Normal("y", mu, s, observed=pmd.as_xtensor(Y, dims=("a", "b")), dims=("a", "b"))


SPLIT = {
    "part of a vector": lambda: partly_observed_vectors(PARTLY),
    "whole vectors": lambda: partly_observed_vectors([[0, 0], [1, 1], [1, 1]]),
    "counts": partly_observed_counts,
    "numbers": partly_observed_numbers,
    "bounds": bounds_that_move,
    "dims": named_dimensions,
}


@pytest.mark.filterwarnings("ignore:Data in .* contains missing values")
@pytest.mark.parametrize("name", SPLIT)
def test_factors_of_a_block_change_as_the_model_does(name):
    """A factor that moves with a block and is left out: its step samples another law.

    Blocks are each variable by itself, and the rest of the model beside it.
    """
    with pm.Model() as model:
        SPLIT[name]()
    free = model.free_RVs
    blocks = [[rv] for rv in free] + [[other for other in free if other is not rv] for rv in free]
    blocks = [block for block in blocks if block]
    values = model.value_vars
    factors = [[*block, *dependent_factors(model, block)] for block in blocks]
    densities = [log_density(model, each) for each in factors]
    whole = pt.as_tensor(model.logp(), allow_xtensor_conversion=True)
    function = pytensor.function(
        values, [whole, *densities], mode="FAST_COMPILE", on_unused_input="ignore"
    )

    def at(point):
        return np.array(function(*(point[value.name] for value in values)))

    here = {
        value.name: start if value.dtype == "int64" else start + RNG.normal(0, 0.2, np.shape(start))
        for value, start in zip(values, model.initial_point().values(), strict=True)
    }
    for number, block in enumerate(blocks, start=1):
        moved = dict(here)
        for value in map(model.rvs_to_values.get, block):
            by = (1, -1) if value.dtype == "int64" else RNG.normal(0, 0.2, here[value.name].shape)
            moved[value.name] = here[value.name] + by
        changes = at(moved) - at(here)
        assert np.isfinite(changes).all()
        assert changes[0] != 0
        np.testing.assert_allclose(changes[number], changes[0], rtol=1e-9)


@pytest.mark.parametrize(
    "compiled", [Target, lambda model: FlatDensity(model, model.free_RVs, {})], ids=["c", "cpp"]
)
def test_compiling_says_nothing_of_blas(compiled, monkeypatch):
    """PyTensor asks for a BLAS at ``z - a * X @ w``, once, and warns where it finds none."""
    asked = []

    def ask():
        asked.append(warnings.warn("PyTensor could not link to a BLAS installation.", stacklevel=2))
        return ""

    parameter = type(pytensor.config).__dict__["blas__ldflags"]
    monkeypatch.setattr(parameter, "_default", ask)
    monkeypatch.delattr(parameter, "val", raising=False)
    with pm.Model() as model:
        w, a = pm.Normal("w", shape=3), pm.Normal("a")
        pm.Normal("y", a * (X @ w), observed=X[:, 0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled(model)
    assert asked
    assert not caught
