"""The curvature of a network at the present scales: the source's equations, and who has none."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.steps.metric import Metric

RNG = np.random.default_rng(2)
X = RNG.normal(size=(7, 2))
Y = RNG.normal(size=7)
IN_PYTHON = {"mode": "FAST_COMPILE"}


def moved(model):
    return [rv for rv in model.free_RVs if not rv.name.startswith("tau")]


def by_variable(metric, model, point):
    """The precisions, as arrays of the variables' shapes."""
    precision, *_ = metric(point)
    shapes = {rv.name: point[rv.name].shape for rv in moved(model)}
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes.values()])
    pieces = np.split(precision, ends[:-1])
    return {name: p.reshape(shapes[name]) for name, p in zip(shapes, pieces, strict=True)}


def test_equations():
    """Two layers, all connections, offsets, precisions per unit and adjustments: 58 to 68."""
    priors = {"ih": "1:4:3", "io": 0.7, "ih2": "0.6:2", "h1o": 0.9, "ti": "0.5:2", "ah2": 3}
    model = nns.hierarchical_mlp(X, Y, hidden=(3, 4), priors=priors | {"noise": "0.5:4"})
    metric = Metric(model, moved(model), "auto", IN_PYTHON)
    assert metric.kind == "network"
    start = model.initial_point()
    point = {name: RNG.normal(size=np.shape(value)) for name, value in start.items()}
    tau = {name[:-6]: np.exp(v) for name, v in point.items() if name.startswith("tau")}

    ones = np.ones
    prior = {
        "ti": tau["tau_ti"] * ones(2),
        "W_ih1": tau["tau_ih1_unit"] * ones((3, 2)),
        "bh1": tau["tau_bh1"] * ones(3),
        "W_h1h2": tau["tau_h1h2"] * tau["tau_ah2"][:, None] * ones((4, 3)),
        "W_ih2": tau["tau_ih2"] * tau["tau_ah2"][:, None] * ones((4, 2)),
        "bh2": tau["tau_bh2"] * tau["tau_ah2"],
        "W_h2o": tau["tau_h2o"] * ones((1, 4)),
        "W_h1o": 0.9**-2 * ones((1, 3)),
        "W_io": 0.7**-2 * ones((1, 2)),
    }
    s = {name: 1 / precision for name, precision in prior.items()}
    x = X**2 + s["ti"]
    h1 = np.minimum(1, x @ s["W_ih1"].T + s["bh1"])
    h2 = np.minimum(1, h1 @ s["W_h1h2"].T + x @ s["W_ih2"].T + s["bh2"])
    out = tau["tau_noise"]
    in2 = out * s["W_h2o"][0]
    in1 = in2 @ s["W_h1h2"] + out * s["W_h1o"][0]
    curvature = {
        "ti": 7 * (in1 @ s["W_ih1"] + in2 @ s["W_ih2"] + out * s["W_io"][0]),
        "W_ih1": in1[:, None] * x.sum(0),
        "bh1": 7 * in1,
        "W_h1h2": in2[:, None] * h1.sum(0),
        "W_ih2": in2[:, None] * x.sum(0),
        "bh2": 7 * in2,
        "W_h2o": out * h2.sum(0)[None],
        "W_h1o": out * h1.sum(0)[None],
        "W_io": out * x.sum(0)[None],
    }
    found = by_variable(metric, model, point)
    for name, precision in prior.items():
        np.testing.assert_allclose(found[name], precision + curvature[name], err_msg=name)

    elsewhere = point | {rv.name: point[rv.name] + 1 for rv in moved(model)}
    np.testing.assert_array_equal(metric(elsewhere)[0], metric(point)[0])


@pytest.mark.parametrize(
    ("likelihood", "activation", "at_output"),
    [("student_t", "softplus0", 1.25 / 0.3**2), ("categorical", "erf", 0.25)],
)
def test_targets(likelihood, activation, at_output):
    """The bias of the outputs has the curvature there, once for each row."""
    y = Y if likelihood == "student_t" else Y > 0
    priors = {"bo": 1.0}
    if likelihood == "student_t":
        priors["noise"] = nns.Prior(0.3, alpha_weight=4)
    model = nns.hierarchical_mlp(X, y, activation=activation, likelihood=likelihood, priors=priors)
    metric = Metric(model, moved(model), "network", IN_PYTHON)
    found = by_variable(metric, model, model.initial_point())
    np.testing.assert_allclose(found["bo"], 7 * at_output + 1.0, rtol=1e-5)


def layer():
    return pt.tanh(X @ pm.Normal("W", 0, 2, shape=(2, 3)))


def a_layer_that_is_divided_by_its_sum():
    pm.Normal("y", pt.special.softmax(layer(), axis=1)[:, 0], 1.0, observed=Y)
    return "Softmax"


def a_count():
    pm.Poisson("y", pt.exp(layer()[:, 0]), observed=np.arange(7))
    return "curvature of y"


def a_scale_that_is_moved():
    pm.Normal("y", layer()[:, 0], pm.HalfNormal("s"), observed=Y)
    return "prior of s"


def noise_of_the_network():
    pm.Normal("y", 0, 1 + layer()[:, 0] ** 2, observed=Y)
    return "scale of y"


def a_product_of_two_layers():
    pm.Normal("y", layer()[:, 0] * pm.Normal("v") ** 2, 1.0, observed=Y)
    return "no rule"


def a_potential():
    pm.Potential("p", layer().sum())
    return "curvature of p"


@pytest.mark.parametrize(
    "build",
    [
        a_layer_that_is_divided_by_its_sum,
        a_count,
        a_scale_that_is_moved,
        noise_of_the_network,
        a_product_of_two_layers,
        a_potential,
    ],
)
def test_what_cannot_be_read_is_learnt(build):
    with pm.Model() as model:
        reason = build()
    assert Metric(model, model.free_RVs, "auto", IN_PYTHON).kind == "learnt"
    with pytest.raises(ValueError, match=f"can be read: .*{reason}.*; use"):
        Metric(model, model.free_RVs, "network", IN_PYTHON)
