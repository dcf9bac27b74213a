"""Initial values that belong to a model's graph."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.initial_point import make_initial_point_fn, make_initial_point_fns_per_chain
from pymc.model.fgraph import clone_model
from pymc.model.transform.conditioning import do, observe
from pymc.model.transform.optimization import freeze_dims_and_data

import pymc_nnsteps as nns
from pymc_nnsteps.graphs.initial_values import at_support_points, begin_at
from tests.cases import quick

X = np.random.default_rng(0).normal(size=(6, 2))


@pytest.fixture
def model():
    """A start that is transformed, one from the prior, one at random beside the data."""
    with pm.Model() as model:
        x, t = pm.Data("x", X), pm.Data("t", X[:, 0])
        s = begin_at(pm.HalfNormal("s"), pt.constant(3.0))
        w = begin_at(pm.Normal("w", 100, s, shape=2), "prior")
        noise = pm.Uniform.dist(0, 0.1, shape=t.shape)
        begin_at(pm.Normal("z", x @ w, 1), 7 * t + noise)
    return model


def test_points(model):
    first, again, other = (model.initial_point(seed) for seed in (1, 1, 2))
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert first["s_log__"] == np.log(3)
    assert 0 < abs(first["w"] - 100).max() < 12
    assert (first["w"] != other["w"]).all()
    assert (abs(first["z"] - 7 * X[:, 0] - 0.05) < 0.05).all()


def test_each_chain_begins_at_its_own(model):
    functions = make_initial_point_fns_per_chain(model=model, overrides=None, chains=2)
    first, second = (function(seed) for seed, function in enumerate(functions))
    assert (first["z"] != second["z"]).all()


def test_what_a_user_says_comes_first(model):
    overrides = {"s": 2.0, "z": np.zeros(6), "w": "prior"}
    point = make_initial_point_fn(model=model, overrides=overrides)(1)
    assert point["s_log__"] == np.log(2)
    assert point["z"].tolist() == [0] * 6
    assert 0 < abs(point["w"] - 100).max() < 8
    model.set_initval(model["s"], 4.0)
    assert model.initial_point()["s_log__"] == np.log(4)


def test_support_points_where_they_are_wanted(model):
    with at_support_points([model["w"], model["z"]]):
        point = model.initial_point(1)
    assert point["w"].tolist() == [100, 100]
    np.testing.assert_allclose(point["z"], X @ [100, 100])
    assert (model.initial_point(1)["w"] != 100).all()


@pytest.mark.parametrize(
    "transform",
    [
        clone_model,
        freeze_dims_and_data,
        lambda model: cloudpickle.loads(cloudpickle.dumps(model)),
        lambda model: observe(model, {"s": np.array(3.0)}),
        lambda model: do(model, {"s": np.array(3.0)}),
    ],
)
def test_transformations_keep_them(model, transform):
    """PyMC's seeds follow the order of variables, which may be another one."""
    point = transform(model).initial_point(1)
    assert "s_log__" not in point or point["s_log__"] == np.log(3)
    assert 0 < abs(point["w"] - 100).max() < 12
    assert (abs(point["z"] - 7 * X[:, 0] - 0.05) < 0.05).all()


def test_a_copy_has_its_own_data(model):
    copy = clone_model(model)
    with copy:
        pm.set_data({"x": X[:3], "t": np.ones(3)})
    assert (abs(copy.initial_point(1)["z"] - 7.05) < 0.05).all()
    assert model.initial_point(1)["z"].shape == (6,)


BUILDERS = {
    "probit": lambda: nns.intermediate_noise_mlp(X, X[:, 0] > 0, hidden=(2,), likelihood="probit"),
    "multinomial": lambda: nns.intermediate_noise_mlp(
        X, np.arange(6) % 3, hidden=(2,), likelihood="multinomial_probit", start="prior"
    ),
    "hierarchical": lambda: nns.hierarchical_mlp(X, X[:, 0], hidden=(2,), start="prior"),
    "wide": lambda: nns.wide_mlp(X, X[:, 0], hidden=(2,), start="prior"),
    "bow tie": lambda: nns.bow_tie(X, X[:, 0], hidden=(2,)),
}


@pytensor.config.change_flags(mode="FAST_COMPILE")
@pytest.mark.parametrize("name", quick(BUILDERS, {"probit", "hierarchical", "bow tie"}))
def test_models_of_builders_can_be_transformed(name):
    """``pm.do``, ``pm.observe`` and ``pm.compute_log_likelihood``, with the starts as they were."""
    model = BUILDERS[name]()
    weights = next(rv.name for rv in model.free_RVs if rv.name.startswith("W"))
    value = np.zeros_like(model.initial_point()[weights])
    assert weights not in do(model, {weights: value}).initial_point(1)
    assert weights not in observe(model, {weights: value}).initial_point(1)
    copy = clone_model(model)
    density = copy.compile_logp(mode="FAST_COMPILE")
    first, second = copy.initial_point(1), copy.initial_point(2)
    assert np.isfinite([density(first), density(second)]).all()
    assert name == "probit" or (first[weights] != second[weights]).any()
    natural = make_initial_point_fn(model=model, return_transformed=False)(1)
    posterior = {
        key: ((*("chain", "draw"), *(f"{key}{axis}" for axis in range(v.ndim))), v[None, None])
        for key, v in ((key, np.asarray(v)) for key, v in natural.items())
    }
    stored = xr.DataTree.from_dict({"posterior": xr.Dataset(posterior)})
    log_likelihood = pm.compute_log_likelihood(
        stored, model=model, extend_inferencedata=False, progressbar=False
    )
    assert np.isfinite(log_likelihood["y"]).all()
