"""The curvature of a network at the present scales: the source's equations, and who has none."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import ordered

import pymc_nnsteps as nns
from pymc_nnsteps.steps.network_curvature import Metric

RNG = np.random.default_rng(2)
X = RNG.normal(size=(7, 2))
Y = RNG.normal(size=7)
IN_PYTHON = {"mode": "FAST_COMPILE"}


def moved(model):
    return [rv for rv in model.free_RVs if not rv.name.startswith("tau")]


def by_variable(metric, model, point):
    """The precisions, as arrays of the variables' shapes."""
    precision, *_ = metric(point, metric.references(point))
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
    np.testing.assert_array_equal(metric(elsewhere, [])[0], metric(point, [])[0])


@pytest.mark.parametrize(
    ("likelihood", "activation", "at_output"),
    [("student_t", "softplus0", 5 / 7 / 0.3**2), ("categorical", "erf", 0.25)],
)
def test_targets(likelihood, activation, at_output):
    """The bias of the outputs has the curvature there, once for each row."""
    y = Y if likelihood == "student_t" else Y > 0
    options = {"hidden": (8,), "activation": activation, "likelihood": likelihood}
    priors = {"bo": 1.0}
    if likelihood == "student_t":
        priors["noise"] = nns.Prior(0.3, alpha_weight=4)
    model = nns.hierarchical_mlp(X, y, priors=priors, **options)
    metric = Metric(model, moved(model), "network", IN_PYTHON)
    found = by_variable(metric, model, model.initial_point())
    np.testing.assert_allclose(found["bo"], 7 * at_output + 1.0, rtol=1e-5)


HAT = nns.activations.PiecewiseLinear(knots=(0, 1), slopes=(0.5, 3, 0), values=(0, 3))


@pytest.mark.parametrize(
    ("activation", "largest", "slope"),
    [
        ("gelu", lambda u: u, lambda u: 1 + u / 8),
        (lambda z: z * pt.sigmoid(z), lambda u: u, lambda u: 1 + u),
        ("leaky_relu", lambda u: u, lambda u: 1.0001),
        ("hard_tanh", lambda u: np.minimum(u, 1), lambda u: 1.0),
        (HAT, lambda u: np.maximum(9 * u, 9), lambda u: 9.25),
    ],
)
def test_activations(activation, largest, slope):
    """Squares behind an activation, and of its slopes: catches a piece or a factor left out."""
    priors = {"ih": 0.5, "bh": 0.4, "ho": 0.7, "bo": 1.0, "noise": 0.3}
    model = nns.hierarchical_mlp(X, Y, hidden=(3,), activation=activation, priors=priors)
    metric = Metric(model, moved(model), "network", IN_PYTHON)
    found = by_variable(metric, model, model.initial_point())
    u = (0.25 * X**2).sum(axis=1) + 0.16
    at_unit = np.sum(slope(u) * np.ones(7)) * 0.49 / 0.09
    np.testing.assert_allclose(found["bh1"], at_unit + 0.4**-2, rtol=1e-6)
    np.testing.assert_allclose(found["W_h1o"], largest(u).sum() / 0.09 + 0.7**-2, rtol=1e-6)


def layer():
    return pt.tanh(X @ pm.Normal("W", 0, 2, shape=(2, 3)))


# --- links ---------------------------------------------------------------------------------

CUTPOINTS = np.array([-0.5, 0.7])
GROUP = np.array([0, 1, 1, 2, 0, 2, 2])


def two_outputs_of_one_network():
    """Mean and logarithm of the standard deviation, with a level."""
    V = pm.Normal("V", 0, 0.5, shape=(3, 2))
    f = layer() @ V
    level = pm.Normal("level", 0, 0.3)
    pm.Normal("y", f[..., 0], pt.exp(f[..., 1] + level), observed=Y)
    scale = np.exp(2 * (H @ AT["V"][:, 1] + AT["level"]))
    return {
        "V": H2.T @ np.stack([1 / scale, 2 * np.ones(7)], axis=1),
        "level": 2 * 7,
    }


def two_networks():
    """The scale is a softplus of another one."""
    v, w = pm.Normal("v", 0, 0.5, shape=3), pm.Normal("w", 0, 0.4, shape=2)
    g = X @ w
    pm.Normal("y", layer() @ v, 0.1 + pt.softplus(g), observed=Y)
    at = X @ AT["w"]
    scale, slope = 0.1 + np.log1p(np.exp(at)), 1 / (1 + np.exp(-at))
    return {"v": H2.T @ scale**-2, "w": (X**2).T @ (2 * slope**2 / scale**2)}


def counts_of_groups():
    """Effects and exposures beside a network, under an overdispersion that is moved too."""
    v, a = pm.Normal("v", 0, 0.5, shape=3), pm.Normal("a", 0, 0.8, shape=3)
    alpha = pm.HalfNormal("alpha")
    mu = pt.exp(layer() @ v + a[GROUP]) * np.arange(1.0, 8)
    pm.NegativeBinomial("y", mu, alpha, observed=np.arange(7))
    mu = np.exp(H @ AT["v"] + AT["a"][GROUP]) * np.arange(1.0, 8)
    each = mu * np.exp(AT["alpha_log__"]) / (mu + np.exp(AT["alpha_log__"]))
    return {"v": H2.T @ each, "a": np.bincount(GROUP, each)}


def ordered_levels():
    """Cutpoints are moved, in coordinates of their own."""
    v = pm.Normal("v", 0, 0.5, shape=3)
    c = pm.Normal("c", CUTPOINTS, 1, shape=2, transform=ordered, initval=CUTPOINTS)
    pm.OrderedLogistic("y", layer() @ v, c, observed=np.arange(7) % 3)
    eta = (H @ AT["v"])[:, None]
    cut = np.cumsum([AT["c_ordered__"][0], np.exp(AT["c_ordered__"][1])])
    below = 1 / (1 + np.exp(eta - cut))
    p = np.diff(below, axis=1, prepend=0, append=1)
    slopes = np.diff(below * (1 - below), axis=1, prepend=0, append=0)
    return {"v": H2.T @ (slopes**2 / p).sum(axis=1)}


def a_scale_that_all_rows_share():
    """Moved beside the network, and no weight of it: learnt."""
    v, s = pm.Normal("v", 0, 0.5, shape=3), pm.HalfNormal("s")
    pm.Normal("y", layer() @ v, s, observed=Y)
    return {"v": H2.sum(axis=0) * np.exp(-2 * AT["s_log__"])}


def a_scale_of_weights_that_moves_with_them():
    """They have the width that is typical of it."""
    level = pm.Normal("level", 0, 0.3)
    v = pm.Normal("v", 0, pt.exp(level), shape=3)
    pm.Normal("y", layer() @ v, 0.5, observed=Y)
    return {"v": 4 * H2.sum(axis=0) + np.exp(-2 * AT["level"]) - 4.0, "level": 2 * 3}


LINKS = [two_outputs_of_one_network, two_networks, counts_of_groups, ordered_levels,
         a_scale_that_all_rows_share, a_scale_of_weights_that_moves_with_them]  # fmt: skip
AT = {
    "W": RNG.normal(size=(2, 3)),
    "V": RNG.normal(size=(3, 2)),
    "level": np.array(0.3),
    "v": np.array([0.4, -0.7, 0.9]),
    "w": np.array([0.4, -0.2]),
    "a": np.array([0.2, 0.5, -0.8]),
    "alpha_log__": np.array(0.6),
    "s_log__": np.array(-0.2),
    "c_ordered__": np.array([-0.4, 0.1]),
}
H = np.tanh(X @ AT["W"])
H2 = np.minimum(1, 4 * (X**2).sum(axis=1))[:, None] * np.ones(3)


@pytest.mark.parametrize("build", LINKS)
def test_links(build):
    """Curvatures at a place, of the weights that outputs are linear in; all others are learnt."""
    with pm.Model() as model:
        expected = build()
    metric = Metric(model, model.free_RVs, "auto", IN_PYTHON)
    assert metric.kind == "network"
    start = model.initial_point()
    references = metric.references({name: AT[name] for name in start})
    shapes = {rv.name: start[model.rvs_to_values[rv].name].shape for rv in model.free_RVs}
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes.values()])
    precision, *learnt = metric(start, references)
    found = dict(zip(shapes, np.split(precision, ends[:-1]), strict=True))
    read = {"V": 4, "level": 0.3**-2, "v": 4, "w": 0.4**-2, "a": 0.8**-2}
    for name, curvature in expected.items():
        wanted = np.ravel(read[name] + curvature)
        np.testing.assert_allclose(found[name], wanted, rtol=1e-6, err_msg=name)
    if learnt:
        is_learnt = dict(zip(shapes, np.split(learnt[1], ends[:-1]), strict=True))
        names = [name for name in shapes if is_learnt[name].all()]
        assert names == [name for name in shapes if name not in {"W", *expected}]


def test_typical_information_is_its_mean():
    """And not the information at mean outputs, where rows that are certain either way are not."""
    with pm.Model() as model:
        v = pm.Normal("v", 0, 0.5, shape=2)
        pm.Bernoulli("y", logit_p=X @ v, observed=np.arange(7) % 2)
    metric = Metric(model, [v], "auto", IN_PYTHON)
    places = [np.array([6.0, -2.0]), np.array([-5.0, 3.0])]
    references = np.mean([metric.references({"v": place}) for place in places], axis=0)
    precision, *_ = metric(model.initial_point(), references)
    p = 1 / (1 + np.exp(-X @ np.transpose(places)))
    np.testing.assert_allclose(precision, 4 + (X**2).T @ (p * (1 - p)).mean(axis=1))


def a_potential():
    pm.Potential("p", layer().sum())
    return "curvature of p"


def layers_of_a_recurrence():
    pm.Normal("y", pt.cumsum(layer() @ pm.Normal("v", shape=3)), 1.0, observed=Y)
    return "is not supported"


def nothing_but_a_scale():
    pm.Normal("y", 0, pm.HalfNormal("s"), observed=Y)
    return "none of s is a weight"


@pytest.mark.parametrize("build", [a_potential, layers_of_a_recurrence, nothing_but_a_scale])
def test_what_cannot_be_read_is_learnt(build):
    with pm.Model() as model:
        reason = build()
    assert Metric(model, model.free_RVs, "auto", IN_PYTHON).kind == "learnt"
    with pytest.raises(ValueError, match=f"can be read: .*{reason}.*; use"):
        Metric(model, model.free_RVs, "network", IN_PYTHON)
