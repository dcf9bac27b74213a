"""``wide_mlp`` against the network, its marginal likelihood and its readout in NumPy."""

import tracemalloc
from collections import Counter

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from pytensor.compile.mode import Mode
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm

from pymc_nnsteps.activations import PiecewiseLinear
from pymc_nnsteps.compile.compiling import c_by_default, without_blas_notice
from pymc_nnsteps.models import one_hot, wide_mlp
from tests.cases import slow
from tests.laws.graphs import start_of
from tests.modes import AS_WRITTEN
from tests.statistics import assert_moments

RNG = np.random.default_rng(1)
N_FEATURES, N_OUTPUTS = 3, 3
X = RNG.normal(size=(12, N_FEATURES))
Y = RNG.normal(size=(12, N_OUTPUTS))
FAST = {"mode": "FAST_COMPILE"}
VARIANCES = {"weight_var": 1.7, "bias_var": 0.3, "readout_var": 0.8}
NOISE = 0.4
SAMPLING = {
    "tune": 1,
    "chains": 2,
    "cores": 1,
    "random_seed": 1,
    "progressbar": False,
    "quiet": True,
    "compute_convergence_checks": False,
    "compile_kwargs": FAST,
}

ROWS = {"by rows": 4, "by columns": 12}
"""Numbers of observations on both sides of the readout's number of columns."""
FORMS = pytest.mark.parametrize("form", ROWS)
EACH_FORM = pytest.mark.parametrize(
    ("form", "outputs"), [("by rows", N_OUTPUTS), ("by columns", 1)]
)
"""Where the exactness of every combination is another test's."""
OUTPUTS = pytest.mark.parametrize("outputs", [1, N_OUTPUTS])
DEPTHS = pytest.mark.parametrize("depth", [0, 1, 2])
BIASES = pytest.mark.parametrize("bias_var", [0.0, 0.3])


def targets(n_obs, outputs):
    return Y[:n_obs, 0] if outputs == 1 else Y[:n_obs, :outputs]


def build(form="by rows", outputs=1, depth=1, **options):
    n_obs = min(ROWS[form], N_FEATURES) if depth == 0 and form == "by rows" else ROWS[form]
    options = {"hidden": (6, 5)[2 - depth :], "sigma": NOISE} | VARIANCES | options
    return wide_mlp(X[:n_obs], targets(n_obs, outputs), **options)


def random_point(model, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=value.shape) for name, value in start_of(model).items()}


def logp(model, point, variables=None):
    return model.compile_logp(variables, mode=AS_WRITTEN)(point)


def gelu(z):
    return z * ndtr(z)


def design(point, x, depth=1, activation=gelu, *, weight_var=1.7, bias_var=0.3, readout_var=0.8):
    """The matrix ``Psi`` at inputs ``x``."""
    for layer in range(1, depth + 1):
        x = np.sqrt(weight_var / x.shape[1]) * x @ point[f"W{layer}"].T
        if bias_var:
            x = x + np.sqrt(bias_var) * point[f"b{layer}"]
        x = activation(x)
    x = np.sqrt(readout_var / x.shape[1]) * x
    return np.column_stack([x, np.full(len(x), np.sqrt(bias_var))]) if bias_var else x


def psi_of(model, point, depth=1, **options):
    return design(point, model["inputs"].get_value(), depth, **options)


def covariance(psi, noise=NOISE):
    return psi @ psi.T + noise**2 * np.eye(len(psi))


def posterior_of_readout(psi, y, noise=NOISE):
    """``mu`` of shape (n_columns, n_outputs) and ``Sigma``."""
    sigma = np.linalg.inv(np.eye(psi.shape[1]) + psi.T @ psi / noise**2)
    return sigma @ psi.T @ y.reshape(len(y), -1) / noise**2, sigma


def compiled(model, outputs):
    """Values of variables of the model at a point."""
    function = model.compile_fn(outputs, inputs=model.free_RVs, point_fn=False, mode=AS_WRITTEN)
    return lambda point: function(*(point[rv.name] for rv in model.free_RVs))


def readout_map(model, point, depth=1):
    """``T(phi)``, as columns of ``theta`` for each output, flattened output by output."""
    names = [name for name in (f"W{depth + 1}", f"b{depth + 1}") if name in model.named_vars]
    function = compiled(model, [model[name] for name in names])

    def theta(phi):
        weights, *bias = function(point | {"phi": phi})
        return np.column_stack([weights, *bias]).ravel()

    return theta


def jacobian(theta, shape):
    """Jacobian of an affine map, exactly."""
    origin = theta(np.zeros(shape))
    units = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    return np.stack([theta(unit) - origin for unit in units], axis=1)


# --- exactness -----------------------------------------------------------------------------


@OUTPUTS
@DEPTHS
@BIASES
def test_plain_logp_is_the_joint_density(outputs, depth, bias_var):
    model = build("by columns", outputs, depth, bias_var=bias_var, reparametrize=False)
    point = random_point(model)
    psi = psi_of(model, point, depth, bias_var=bias_var)
    weights = point[f"W{depth + 1}"]
    theta = np.column_stack([weights, point[f"b{depth + 1}"]]) if bias_var else weights
    mean = psi @ theta.T
    expected = sum(norm.logpdf(value).sum() for value in point.values())
    expected += norm.logpdf(targets(12, outputs).reshape(mean.shape), mean, NOISE).sum()
    np.testing.assert_allclose(logp(model, point), expected, rtol=1e-12)
    [f] = compiled(model, [model["f"]])(point)
    np.testing.assert_allclose(f, mean[:, 0] if outputs == 1 else mean, rtol=1e-12)


@OUTPUTS
@BIASES
def test_density_of_noise_that_varies(outputs, bias_var):
    """A readout with biases, of another scale or output, or a level that is left out."""
    options = {"sigma": "network", "reparametrize": False, "bias_var": bias_var}
    model = build("by columns", outputs, **options)
    point = random_point(model)
    psi = psi_of(model, point, bias_var=bias_var)
    hidden = psi[:, :-1] if bias_var else psi
    mean = hidden @ point["W2"].T + np.sqrt(bias_var) * point.get("b2", 0)
    sd = 0.1 * np.exp(point["b_noise"] + point["omega"] * hidden @ point["W_noise"].T)
    expected = sum(norm.logpdf(value).sum() for value in point.values())
    expected += norm.logpdf(targets(12, outputs).reshape(mean.shape), mean, sd).sum()
    np.testing.assert_allclose(logp(model, point), expected, rtol=1e-12)
    _, found = compiled(model, [model["f"], model["sigma"]])(point)
    np.testing.assert_allclose(found.reshape(sd.shape), sd, rtol=1e-12)
    assert model.named_vars_to_dims["sigma"] == model.named_vars_to_dims["y"]


@FORMS
@OUTPUTS
@DEPTHS
@BIASES
def test_y_is_normal_with_covariance_k(form, outputs, depth, bias_var):
    model = build(form, outputs, depth, bias_var=bias_var)
    assert ("MvNormal" in type(model["y"].owner.op).__name__) == (form == "by rows")
    point = random_point(model)
    k = covariance(psi_of(model, point, depth, bias_var=bias_var))
    rows = np.atleast_2d(targets(len(k), outputs).T)
    expected = multivariate_normal(cov=k).logpdf(rows).sum()
    np.testing.assert_allclose(logp(model, point, [model["y"]]), expected, rtol=1e-11)


@FORMS
@pytest.mark.parametrize("outputs", [N_OUTPUTS])
@DEPTHS
@BIASES
def test_reparametrisation_is_a_change_of_variables(form, outputs, depth, bias_var):
    """Spec section 2: the log densities differ by the log determinant of the map, exactly."""
    options = {"form": form, "outputs": outputs, "depth": depth, "bias_var": bias_var}
    model, plain = build(**options), build(**options, reparametrize=False)
    point = random_point(model)
    theta = readout_map(model, point, depth)
    readout = theta(point["phi"]).reshape(outputs, -1)
    moved = {name: value for name, value in point.items() if name != "phi"}
    moved[f"W{depth + 1}"] = readout[:, :-1] if bias_var else readout
    if bias_var:
        moved[f"b{depth + 1}"] = readout[:, -1]
    log_det = np.linalg.slogdet(jacobian(theta, point["phi"].shape)).logabsdet
    expected = logp(plain, moved) + log_det
    np.testing.assert_allclose(logp(model, point), expected, rtol=0, atol=1e-8)


@FORMS
@OUTPUTS
@DEPTHS
@BIASES
def test_readout_has_its_conditional_mean_and_covariance(form, outputs, depth, bias_var):
    """``T`` is affine, so that its value at 0 and its matrix are mean and root of covariance."""
    model = build(form, outputs, depth, bias_var=bias_var)
    point = random_point(model)
    theta = readout_map(model, point, depth)
    psi = psi_of(model, point, depth, bias_var=bias_var)
    mu, sigma = posterior_of_readout(psi, targets(len(psi), outputs))
    shape = point["phi"].shape
    np.testing.assert_allclose(theta(np.zeros(shape)), mu.T.ravel(), atol=1e-10)
    root = jacobian(theta, shape)
    np.testing.assert_allclose(root @ root.T, np.kron(np.eye(outputs), sigma), atol=1e-10)
    combined = theta(point["phi"])
    np.testing.assert_allclose(combined, mu.T.ravel() + root @ point["phi"].ravel(), atol=1e-10)


@FORMS
@OUTPUTS
def test_f_is_the_network_of_the_readout(form, outputs):
    model = build(form, outputs)
    point = random_point(model)
    weights, bias, f = compiled(model, [model[name] for name in ("W2", "b2", "f")])(point)
    expected = psi_of(model, point) @ np.column_stack([weights, bias]).T
    np.testing.assert_allclose(f, expected[:, 0] if outputs == 1 else expected, rtol=1e-12)


@FORMS
def test_likelihood_does_not_depend_on_phi(form):
    model = build(form, N_OUTPUTS)
    values = model.rvs_to_values
    assert values[model["phi"]] not in ancestors([model.logp([model["y"]])])
    first, second = random_point(model), random_point(model, 1)
    moved = first | {"phi": second["phi"]}
    expected = norm.logpdf(second["phi"]).sum() - norm.logpdf(first["phi"]).sum()
    np.testing.assert_allclose(logp(model, moved) - logp(model, first), expected, rtol=1e-9)


@FORMS
@OUTPUTS
@pytest.mark.parametrize("noise", [1e-3, 3.0])
def test_scale_of_the_noise(form, outputs, noise):
    model = build(form, outputs, sigma=noise)
    point = random_point(model)
    psi = psi_of(model, point)
    expected = multivariate_normal(cov=covariance(psi, noise)).logpdf(
        np.atleast_2d(targets(len(psi), outputs).T)
    )
    np.testing.assert_allclose(logp(model, point, [model["y"]]), expected.sum(), rtol=1e-8)
    theta = readout_map(model, point)
    mu, sigma = posterior_of_readout(psi, targets(len(psi), outputs), noise)
    np.testing.assert_allclose(theta(np.zeros(point["phi"].shape)), mu.T.ravel(), atol=1e-7)
    root = jacobian(theta, point["phi"].shape)
    np.testing.assert_allclose(root @ root.T, np.kron(np.eye(outputs), sigma), atol=1e-7)


@FORMS
def test_forward_draws_have_covariance_k(form):
    """Given hidden weights; whitened outputs, of which there are many, are standard normals."""
    n_obs, n_draws = ROWS[form], 40_000
    many = np.random.default_rng(2).normal(size=(n_obs, n_draws))
    model = wide_mlp(X[:n_obs], many, hidden=(5,), sigma=NOISE, **VARIANCES)
    point = random_point(model)
    given = {model[name]: pt.constant(point[name]) for name in ("W1", "b1")}
    draws = pm.draw(clone_replace(model["y"], given), random_seed=1, **FAST)
    root = np.linalg.cholesky(covariance(psi_of(model, point)))
    white = np.linalg.solve(root, draws.T).T
    assert_moments(white.ravel(), 0.0, 1.0)
    assert_moments(white, 0.0, 1.0)
    first, second = np.triu_indices(white.shape[1], 1)
    assert_moments((white[:, first] + white[:, second]) / np.sqrt(2), 0.0, 1.0)


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("gelu", gelu),
        ("relu", lambda z: np.maximum(z, 0)),
        ("tanh", np.tanh),
        ("hard_tanh", lambda z: np.clip(z, -1, 1)),
        (PiecewiseLinear([0.2], [0, 0], [-1, 1]), lambda z: np.where(z < 0.2, -1, 1)),
        (lambda z: pt.sin(z) + z, lambda z: np.sin(z) + z),
    ],
)
@pytest.mark.parametrize("depth", [1, 2])
def test_activations(activation, function, depth):
    model = build("by columns", depth=depth, activation=activation)
    point = random_point(model)
    k = covariance(psi_of(model, point, depth, activation=function))
    expected = multivariate_normal(cov=k).logpdf(Y[:, 0])
    np.testing.assert_allclose(logp(model, point, [model["y"]]), expected, rtol=1e-10)


def test_defaults_are_the_reference_setting():
    model = wide_mlp(X, Y)
    assert model["W1"].type.shape == (512, N_FEATURES)
    point = random_point(model)
    psi = design(point, X, weight_var=2.0, bias_var=0.01, readout_var=1.0)
    expected = multivariate_normal(cov=covariance(psi, 0.1)).logpdf(Y.T).sum()
    np.testing.assert_allclose(logp(model, point, [model["y"]]), expected, rtol=1e-11)


# --- what is computed ----------------------------------------------------------------------


def operations(model, gradient):
    hidden = [value for value in model.value_vars if value.name != "phi"]
    value = model.logp([model["y"]])
    outputs = [value, *pt.grad(value, hidden)] if gradient else value
    as_in_c = Mode("py", c_by_default()["mode"].provided_optimizer)
    with without_blas_notice():
        function = pytensor.function(hidden, outputs, mode=as_in_c)
    nodes = function.maker.fgraph.toposort()
    assert not any(isinstance(node.op, Blockwise) for node in nodes)
    return Counter(type(getattr(node.op, "op", node.op)).__name__ for node in nodes)


@FORMS
@pytest.mark.parametrize(("gradient", "solves"), [slow(False, 1), (True, 4)])
def test_one_factorisation_serves_all_outputs(form, gradient, solves):
    """The gradient solves once for ``K^-1 y`` and twice for that of the factor."""
    for outputs in (1, N_OUTPUTS):
        count = operations(build(form, outputs), gradient)
        assert count["Cholesky"] == 1
        assert count["SolveTriangular"] == solves


def test_no_matrix_of_the_observations_by_columns():
    n_obs = 3000
    x = np.random.default_rng(0).normal(size=(n_obs, 2))
    model = wide_mlp(x, x, hidden=(4,))
    evaluate = model.compile_logp(**FAST)
    theta = compiled(model, model.deterministics)
    point = random_point(model)
    tracemalloc.start()
    try:
        evaluate(point)
        theta(point)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * n_obs**2 / 20


@pytest.mark.parametrize("reparametrize", [True, False])
def test_scaled_inputs_are_a_graph_of_data_only(reparametrize):
    """Samplers compute what depends on data alone once per chain."""
    model = build(reparametrize=reparametrize)
    weights = model["W1"]
    products = {
        variable.owner
        for variable in ancestors([model["f"]])
        if variable.owner is not None
        and variable.ndim == 2
        and any(
            operand.owner is not None and weights in operand.owner.inputs
            for operand in variable.owner.inputs[1:]
        )
    }
    [product] = products
    scaled = product.inputs[0]
    np.testing.assert_allclose(scaled.eval(), np.sqrt(1.7 / N_FEATURES) * X[:4])


# --- the model -----------------------------------------------------------------------------


@FORMS
def test_names_shapes_and_dims(form):
    model = build(form, N_OUTPUTS, depth=2)
    assert [rv.name for rv in model.free_RVs] == ["W1", "b1", "W2", "b2", "phi"]
    assert [v.name for v in model.deterministics] == ["W3", "b3", "f"]
    expected = {
        "W1": ((6, 3), ("hidden1", "feature")),
        "b1": ((6,), ("hidden1",)),
        "W2": ((5, 6), ("hidden2", "hidden1")),
        "b2": ((5,), ("hidden2",)),
        "phi": ((3, 6), ("output", "readout")),
        "W3": ((3, 5), ("output", "hidden2")),
        "b3": ((3,), ("output",)),
        "f": ((ROWS[form], 3), ("obs", "output")),
        "y": ((3, ROWS[form]), ("output", "obs")),
        "inputs": ((ROWS[form], 3), ("obs", "feature")),
        "targets": ((ROWS[form], 3), ("obs", "output")),
    }
    shapes = {name: tuple(n.eval() for n in model[name].shape) for name in expected}
    assert {k: (shapes[k], model.named_vars_to_dims[k]) for k in expected} == expected
    plain = build(form, N_OUTPUTS, depth=2, reparametrize=False)
    assert [rv.name for rv in plain.free_RVs] == ["W1", "b1", "W2", "b2", "W3", "b3"]
    for name in ("W1", "b1", "W2", "b2", "W3", "b3", "f", "inputs", "targets"):
        assert plain.named_vars_to_dims[name] == expected[name][1]
        assert tuple(n.eval() for n in plain[name].shape) == expected[name][0]
    assert plain.named_vars_to_dims["y"] == ("obs", "output")


@FORMS
@pytest.mark.parametrize("reparametrize", [True, False])
def test_one_output(form, reparametrize):
    model = build(form, reparametrize=reparametrize)
    for name in ("y", "f", "targets"):
        assert model.named_vars_to_dims[name] == ("obs",)
    assert model["W2"].type.shape == (1, 5)
    if reparametrize:
        assert model["phi"].type.shape == (1, 6)


@FORMS
def test_a_column_of_targets_stays_a_column(form):
    model = wide_mlp(X[: ROWS[form]], Y[: ROWS[form], :1], hidden=(5,))
    flat = wide_mlp(X[: ROWS[form]], Y[: ROWS[form], 0], hidden=(5,))
    assert model["f"].ndim == model["y"].ndim == 2
    point = random_point(model)
    np.testing.assert_allclose(logp(model, point), logp(flat, point), rtol=1e-13)


def test_without_biases():
    model = build(bias_var=0)
    assert [rv.name for rv in model.free_RVs] == ["W1", "phi"]
    assert [v.name for v in model.deterministics] == ["W2", "f"]
    assert model["phi"].type.shape == (1, 5)


def test_the_form_is_the_cheaper_one():
    for n_obs, bias_var, name in ((6, 0.1, "MvNormalRV"), (6, 0, "LinearNormal")):
        model = wide_mlp(X[:n_obs], Y[:n_obs], hidden=(5,), bias_var=bias_var)
        assert type(model["y"].owner.op).__name__ == name


@FORMS
@OUTPUTS
@pytest.mark.parametrize("n_obs", [3, 12])
def test_other_data_later(form, outputs, n_obs):
    """Also across the number at which the other form would be chosen."""
    model = build(form, outputs)
    fresh = wide_mlp(X[:n_obs], targets(n_obs, outputs), hidden=(5,), sigma=NOISE, **VARIANCES)
    with model:
        pm.set_data({"inputs": X[:n_obs], "targets": targets(n_obs, outputs)})
    point = random_point(model)
    np.testing.assert_allclose(logp(model, point), logp(fresh, point), rtol=1e-10)
    point["phi"] = np.zeros_like(point["phi"])
    names = ["W2", "b2", "f"]
    values = compiled(model, [model[name] for name in names])(point)
    expected = compiled(fresh, [fresh[name] for name in names])(point)
    for value, other in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, other, atol=1e-10)


def test_starts():
    model = build()
    first, second = model.initial_point(1), model.initial_point(2)
    assert all(np.abs(first[name] - second[name]).min() > 0 for name in first)
    zeros = build(start="support_point").initial_point(1)
    assert not any(value.any() for value in zeros.values())
    for reparametrize in (True, False):
        model = build(reparametrize=reparametrize)
        assert np.isfinite(logp(model, model.initial_point(3)))


def test_data_frames_name_the_dimensions():
    frame = pd.DataFrame(X, columns=["age", "bmi", "bp"])
    outputs = pd.DataFrame(Y, columns=["left", "mid", "right"])
    model = wide_mlp(frame, outputs, hidden=(5,))
    assert model.coords["feature"] == ("age", "bmi", "bp")
    assert model.coords["output"] == ("left", "mid", "right")
    series = wide_mlp(frame, outputs["left"], hidden=(5,))
    assert series.named_vars_to_dims["y"] == ("obs",)


def test_outer_model_and_its_coords():
    coords = {"obs": list("abcdefghijkl"), "hidden1": ["h", "k"], "readout": ["h", "k", "bias"]}
    with pm.Model(coords=coords) as outer:
        scale = pm.HalfNormal("scale")
        inner = wide_mlp(X, Y, hidden=(2,))
    assert inner is outer
    assert scale in outer.free_RVs
    assert {name: outer.coords[name] for name in coords} == {
        name: tuple(values) for name, values in coords.items()
    }
    with outer:
        pm.set_data({"inputs": X[:2], "targets": Y[:2]}, coords={"obs": ["x", "y"]})
    assert np.isfinite(logp(outer, random_point(outer)))


def test_two_networks_in_one_model():
    with pm.Model() as outer:
        for name in ("left", "right"):
            with pm.Model(name=name):
                wide_mlp(X, Y, hidden=(2,))
    assert "left::phi" in outer.named_vars
    assert "right::W2" in outer.named_vars


@FORMS
@pytest.mark.parametrize("reparametrize", [True, False])
def test_float32(form, reparametrize):
    with pytensor.config.change_flags(floatX="float32"):
        model = build(form, N_OUTPUTS, reparametrize=reparametrize)
        variables = [*model.free_RVs, *model.deterministics, *model.observed_RVs]
        assert {v.dtype for v in variables} == {"float32"}
        point = model.initial_point(1)
        value = logp(model, point)
    double = build(form, N_OUTPUTS, reparametrize=reparametrize)
    expected = logp(double, {name: v.astype("float64") for name, v in point.items()})
    np.testing.assert_allclose(value, expected, rtol=1e-4)


# --- sampling and prediction ---------------------------------------------------------------


@EACH_FORM
def test_sampling_stores_readout_and_function(form, outputs):
    with build(form, outputs) as model:
        idata = pm.sample(4, step=pm.Metropolis(compile_kwargs=FAST), **SAMPLING)
    posterior = idata["posterior"]
    assert set(posterior.data_vars) == {"W1", "b1", "phi", "W2", "b2", "f"}
    last = {name: posterior[name].values[1, -1] for name in posterior.data_vars}
    theta = np.column_stack([last["W2"], last["b2"]])
    f = psi_of(model, last) @ theta.T
    np.testing.assert_allclose(last["f"], f[:, 0] if outputs == 1 else f, rtol=1e-10)
    np.testing.assert_array_equal(idata["observed_data"]["y"], targets(ROWS[form], outputs).T)
    assert len(az.summary(idata, var_names=["b2"])) == outputs


def posterior_for(model, point, n_draws, seed=1):
    """Exact draws given the hidden weights of ``point``, with what ``pm.sample`` would store."""
    phi = np.random.default_rng(seed).normal(size=(1, n_draws, *point["phi"].shape))
    variables = {
        name: (
            ("chain", "draw", *model.named_vars_to_dims[name]),
            np.broadcast_to(value, (1, n_draws, *value.shape)),
        )
        for name, value in point.items()
    }
    variables["phi"] = variables["phi"][0], phi
    free = xr.Dataset(variables)
    return free.merge(
        pm.compute_deterministics(free, model=model, progressbar=False, compile_kwargs=FAST)
    )


@pytest.mark.slow
@EACH_FORM
def test_plain_form_samples_the_posterior_predictive(form, outputs):
    """Given hidden weights: ``N(Psi_new mu, Psi_new Sigma Psi_new^T + sigma^2 I)``."""
    model, plain = build(form, outputs), build(form, outputs, reparametrize=False)
    point = random_point(model)
    n_draws = 4_000
    idata = posterior_for(model, point, n_draws)
    new = np.random.default_rng(5).normal(size=(3, N_FEATURES))
    with plain:
        pm.set_data({"inputs": new})
        predictions = pm.sample_posterior_predictive(
            idata, predictions=True, random_seed=1, progressbar=False, compile_kwargs=FAST
        )["predictions"]["y"]
    psi = psi_of(model, point)
    mu, sigma = posterior_of_readout(psi, targets(len(psi), outputs))
    psi_new = design(point, new)
    mean = psi_new @ mu
    root = np.linalg.cholesky(psi_new @ sigma @ psi_new.T + NOISE**2 * np.eye(3))
    drawn = predictions.values.reshape(n_draws, 3, -1)
    white = np.linalg.solve(root, drawn - mean)
    assert_moments(white.ravel(), 0.0, 1.0)
    assert_moments(white.reshape(n_draws, -1), 0.0, 1.0)
    assert_moments((white[:, 0] + white[:, 1]) / np.sqrt(2), 0.0, 1.0)
    assert_moments((white[:, 1] - white[:, 2]) / np.sqrt(2), 0.0, 1.0)


@pytest.fixture(scope="module")
def sampled():
    with build(outputs=N_OUTPUTS):
        return pm.sample(7, step=pm.Metropolis(compile_kwargs=FAST), **SAMPLING)


@pytest.mark.parametrize(
    "choose",
    [
        lambda idata: idata,
        lambda idata: idata["posterior"].to_dataset()[["W1", "b1", "W2", "b2"]],
        lambda idata: idata.sel(draw=slice(None, None, 3)),
    ],
    ids=["all", "weights only", "thinned"],
)
@pytest.mark.parametrize("new_inputs", [True, False])
def test_posterior_predictive_uses_the_stored_readout(sampled, choose, new_inputs):
    chosen = choose(sampled)
    x = np.random.default_rng(5).normal(size=(9, N_FEATURES)) if new_inputs else X[:4]
    with build(outputs=N_OUTPUTS, reparametrize=False):
        pm.set_data({"inputs": x})
        predictions = pm.sample_posterior_predictive(
            chosen,
            predictions=True,
            var_names=["y", "f"],
            random_seed=1,
            progressbar=False,
            compile_kwargs=FAST,
        )["predictions"]
    draws = chosen["posterior"] if isinstance(chosen, xr.DataTree) else chosen
    for chain, draw in ((0, 0), (1, draws.sizes["draw"] - 1)):
        point = {name: draws[name].values[chain, draw] for name in ("W1", "b1", "W2", "b2")}
        expected = design(point, x) @ np.column_stack([point["W2"], point["b2"]]).T
        np.testing.assert_allclose(predictions["f"].values[chain, draw], expected, rtol=1e-9)
    residuals = (predictions["y"] - predictions["f"]).values
    assert 0.8 < residuals.std() / NOISE < 1.2


@FORMS
@DEPTHS
@pytest.mark.parametrize("new_inputs", [True, False])
def test_posterior_predictive_of_the_marginal_form_is_refused(form, depth, new_inputs):
    """It would be of a readout from the prior, whatever the chain has learnt."""
    model = build(form, depth=depth)
    with model:
        pm.sample_prior_predictive(2, var_names=["y"], compile_kwargs=FAST)
    idata = posterior_for(model, random_point(model), 2)
    if new_inputs:
        pm.set_data({"inputs": -X[: ROWS[form]]}, model=model)
    with model, pytest.raises(ValueError, match=r"y cannot be drawn .* reparametrize=False"):
        pm.sample_posterior_predictive(idata, progressbar=False, compile_kwargs=FAST)


@FORMS
def test_the_function_is_not_of_other_targets(form):
    """After set_data it would be that of a readout given the new targets; stored, it is itself."""
    model = build(form)
    idata = posterior_for(model, random_point(model), 2)
    options = {"progressbar": False, "compile_kwargs": FAST}
    with model:
        assert pm.sample_prior_predictive(2, var_names=["f"], compile_kwargs=FAST).prior["f"].size
        pm.sample_posterior_predictive(idata, var_names=["phi"], **options)
        pm.set_data({"inputs": -X[: ROWS[form]]})
        for name in ("f", "W2"):
            with pytest.raises(ValueError, match=r"are those given the data .* use nns.predict"):
                pm.sample_posterior_predictive(idata, var_names=[name], **options)
        pm.compute_deterministics(idata, progressbar=False, compile_kwargs=FAST)


def test_prior_predictive_sampling():
    for form in ROWS:
        with build(form, N_OUTPUTS):
            prior = pm.sample_prior_predictive(5, random_seed=1, compile_kwargs=FAST)
        assert prior["prior_predictive"]["y"].dims == ("chain", "draw", "output", "obs")


def test_log_likelihood_of_each_output():
    model = build(outputs=N_OUTPUTS)
    point = random_point(model)
    draws = xr.Dataset(
        {
            name: (("chain", "draw", *model.named_vars_to_dims[name]), v[None, None])
            for name, v in point.items()
        }
    )
    logliks = pm.compute_log_likelihood(
        xr.DataTree.from_dict({"posterior": draws}),
        model=model,
        progressbar=False,
        extend_inferencedata=False,
    )["y"].values
    k = covariance(psi_of(model, point))
    np.testing.assert_allclose(
        logliks[0, 0], multivariate_normal(cov=k).logpdf(Y[:4].T), rtol=1e-10
    )


# --- class labels --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "n_classes", "codes", "k"),
    [
        ([2, 0, 1, 1], None, [2, 0, 1, 1], 3),
        (np.array([7, 3, 7]), 10, [7, 3, 7], 10),
        ([1.0, 0.0], None, [1, 0], 2),
        ([5, 5], 6, [5, 5], 6),
        ([True, False], None, [1, 0], 2),
        (["b", "a", "c", "a"], None, [1, 0, 2, 0], 3),
        (["b", "a", "c", "a"], 3, [1, 0, 2, 0], 3),
        (pd.Series([1, 0, 1], dtype="Int64"), None, [1, 0, 1], 2),
        (pd.Categorical(["lo", "hi"], ["lo", "mid", "hi"]), None, [0, 2], 3),
    ],
)
def test_one_hot(labels, n_classes, codes, k):
    code = one_hot(labels, n_classes)
    assert code.shape == (len(codes), k)
    assert code.dtype == "float64"
    np.testing.assert_allclose(code, (np.arange(k) == np.array(codes)[:, None]) - 1 / k)
    np.testing.assert_allclose(code.sum(axis=1), 0, atol=1e-15)


def test_one_hot_targets_make_a_network_of_classes():
    with pytensor.config.change_flags(floatX="float32"):
        assert one_hot([0, 1]).dtype == "float32"
    model = wide_mlp(X, one_hot(np.arange(12) % 10), hidden=(4,))
    assert model["phi"].type.shape == (10, 5)
