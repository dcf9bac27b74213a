import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest
from scipy.stats import invgamma, norm

from pymc_nnsteps import Prior
from pymc_nnsteps.activations import PiecewiseLinear
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.models import intermediate_noise_mlp
from tests.laws.graphs import start_of
from tests.modes import AS_WRITTEN

N_OBS, N_FEATURES = 9, 3
X = np.random.default_rng(1).normal(size=(N_OBS, N_FEATURES))
TARGETS = {
    "normal": X[:, 0] - X[:, 1],
    "probit": (X[:, 0] > 0).astype(int),
    "multinomial_probit": np.arange(N_OBS) % 4,
}
IN_PYTHON = {"mode": ONCE}


def build(likelihood="normal", **options):
    options = options if "sigma" in options else {"noise": 1e-2} | options
    return intermediate_noise_mlp(X, TARGETS[likelihood], likelihood=likelihood, **options)


def random_point(model, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=value.shape) for name, value in start_of(model).items()}


def logp(model, point):
    return model.compile_logp(mode=AS_WRITTEN)(point)


def names(model):
    return [variable.name for variable in model.free_RVs]


def log_normal(x, mean, variance):
    return norm.logpdf(x, mean, np.sqrt(variance)).sum()


def expected_logp(point, targets, *, sigma, pre, post, output, lambda_w, lambda_b, agrees=None):
    """The joint density of spec section 1, written with NumPy and SciPy."""
    x, total = X, 0.0
    n_layers = len(pre) + 1
    for layer in range(1, n_layers + 1):
        W, b = point[f"W{layer}"], point[f"b{layer}"]
        total += log_normal(W, 0, 1 / lambda_w[layer - 1])
        total += log_normal(b, 0, 1 / lambda_b[layer - 1])
        mean = np.einsum("ni,oi->no", x, W) + b
        if layer < n_layers:
            z, x = point[f"Z{layer + 1}"], point[f"X{layer + 1}"]
            total += log_normal(z, mean, pre[layer - 1])
            total += log_normal(x, sigma(z), post[layer - 1])
    if agrees is None:
        return total + log_normal(targets.reshape(mean.shape), mean, output)
    z = point[f"Z{n_layers + 1}"]
    return total + log_normal(z, mean, output) + (0.0 if agrees(z) else -np.inf)


@pytest.mark.parametrize("likelihood", TARGETS)
@pytest.mark.parametrize("hidden", [(4,), (4, 2)])
def test_logp_is_the_joint_density(likelihood, hidden):
    n_hidden, targets = len(hidden), TARGETS[likelihood]
    settings = {
        "pre": (0.3, 0.7)[:n_hidden],
        "post": (0.2, 1.1)[:n_hidden],
        "output": 0.4,
    }
    lambda_w, lambda_b = (2.0, 0.5, 3.0)[: n_hidden + 1], (1.5, 4.0, 0.7)[: n_hidden + 1]
    model = build(
        likelihood,
        hidden=hidden,
        activation="leaky_relu",
        noise=settings,
        weight_precision=lambda_w,
        bias_precision=lambda_b,
    )
    point = random_point(model)
    agrees = None
    if likelihood == "probit":
        latent = f"Z{n_hidden + 2}"
        agrees = lambda z: np.array_equal(z[:, 0] > 0, targets == 1)  # noqa: E731
        point[latent] = np.abs(point[latent]) * np.where(targets == 1, 1, -1)[:, None]
    elif likelihood == "multinomial_probit":
        latent = f"Z{n_hidden + 2}"
        agrees = lambda z: np.array_equal(z.argmax(1), targets)  # noqa: E731
        point[latent][np.arange(N_OBS), targets] = point[latent].max(1) + 0.1

    def expected(point):
        return expected_logp(
            point,
            targets,
            sigma=lambda z: np.where(z > 0, z, 0.01 * z),
            **settings,
            lambda_w=lambda_w,
            lambda_b=lambda_b,
            agrees=agrees,
        )

    assert np.isfinite(expected(point))
    np.testing.assert_allclose(logp(model, point), expected(point), rtol=1e-12)
    if agrees is not None:
        point[latent] = -point[latent]
        assert logp(model, point) == expected(point) == -np.inf


def test_noise_is_learnt_by_default():
    """Inverse gamma variances, of which each enters the normal density of its layer alone."""
    model = intermediate_noise_mlp(X, TARGETS["normal"], hidden=(4,))
    kinds = {"noise_Z2": "pre", "noise_X2": "post", "noise_y": "output"}
    assert names(model) == ["W1", "b1", "noise_Z2", "Z2", "noise_X2", "X2", "W2", "b2", "noise_y"]
    values = {"noise_Z2": 0.3, "noise_X2": 0.2, "noise_y": 0.7}
    point = random_point(model) | {f"{k}_log__": np.array(np.log(v)) for k, v in values.items()}
    expected = expected_logp(
        point,
        TARGETS["normal"],
        sigma=lambda z: np.maximum(z, 0),
        **{kinds[k]: np.atleast_1d(v) for k, v in values.items()},
        lambda_w=(3, 4),
        lambda_b=(3, 4),
    )
    shapes = {"noise_Z2": 10, "noise_X2": 10, "noise_y": 1}
    widths = {"noise_Z2": 0.035, "noise_X2": 0.035, "noise_y": 0.1}
    for name, value in values.items():
        a = shapes[name]
        expected += invgamma.logpdf(value, a, scale=a * widths[name] ** 2) + np.log(value)
    np.testing.assert_allclose(logp(model, point), expected, rtol=1e-12)


def test_learnt_and_known_noise_of_each_layer():
    noise = {"pre": ["learnt", 0.1], "post": [0, Prior(0.2, 6)], "output": 0.3}
    model = build(hidden=(4, 2), noise=noise)
    latents = [name for name in names(model) if name[0] not in "Wb"]
    assert latents == ["noise_Z2", "Z2", "Z3", "noise_X3", "X3"]
    sigma = build(hidden=(4, 2), sigma={"pre": 1, "post": 1, "output": "learnt"})
    assert "noise_y" in names(sigma)
    classes = {"pre": "learnt", "post": "learnt", "output": 1.0}
    assert "noise_X2" in names(build("probit", noise=classes, start="prior"))
    assert "noise_y" not in names(intermediate_noise_mlp(X, TARGETS["probit"], likelihood="probit"))


def test_fan_in_is_the_default_precision():
    kwargs = {"hidden": (4, 2), "noise": 0.3}
    explicit = build(weight_precision=[3, 4, 2], bias_precision=[3, 4, 2], **kwargs)
    point = random_point(explicit)
    np.testing.assert_allclose(logp(build(**kwargs), point), logp(explicit, point), rtol=1e-13)
    one = build(weight_precision=2.0, bias_precision=5.0, **kwargs)
    each = build(weight_precision=(2, 2, 2), bias_precision=(5, 5, 5), **kwargs)
    np.testing.assert_allclose(logp(one, point), logp(each, point), rtol=1e-13)


def test_one_noise_for_all():
    layered = build(noise={"pre": 0.3, "post": [0.3], "output": np.float64(0.3)})
    point = random_point(layered)
    np.testing.assert_allclose(logp(build(noise=0.3), point), logp(layered, point), rtol=1e-13)


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("relu", lambda z: np.maximum(z, 0)),
        ("abs", np.abs),
        ("sign", np.sign),
        ("hard_tanh", lambda z: np.clip(z, -1, 1)),
        ("identity", lambda z: z),
        (PiecewiseLinear([0.2], [0, 0], [-1, 1]), lambda z: np.where(z < 0.2, -1, 1)),
    ],
)
def test_activations_enter_the_mean_of_the_post_activation(activation, function):
    model = build(activation=activation, noise={"pre": 1.0, "post": 0.25, "output": 1.0})
    z = random_point(model)["Z2"]
    mean = model["X2"].owner.op.dist_params(model["X2"].owner)[0]
    np.testing.assert_allclose(mean.eval({model["Z2"]: z}), function(z))


def test_names_shapes_and_dims():
    model = build("multinomial_probit", hidden=(4, 2))
    expected = {
        "W1": ((4, 3), ("hidden1", "feature")),
        "b1": ((4,), ("hidden1",)),
        "Z2": ((9, 4), ("obs", "hidden1")),
        "X2": ((9, 4), ("obs", "hidden1")),
        "W2": ((2, 4), ("hidden2", "hidden1")),
        "b2": ((2,), ("hidden2",)),
        "Z3": ((9, 2), ("obs", "hidden2")),
        "X3": ((9, 2), ("obs", "hidden2")),
        "W3": ((4, 2), ("output", "hidden2")),
        "b3": ((4,), ("output",)),
        "Z4": ((9, 4), ("obs", "output")),
    }
    start = model.initial_point()
    assert list(start) == list(expected)
    assert {k: (v.shape, model.named_vars_to_dims[k]) for k, v in start.items()} == expected
    assert model.named_vars_to_dims["y"] == model.named_vars_to_dims["targets"] == ("obs",)
    assert model.named_vars_to_dims["inputs"] == ("obs", "feature")
    assert [v.name for v in model.observed_RVs] == ["y"]


def test_without_biases():
    assert names(build(bias=False)) == ["W1", "Z2", "X2", "W2"]


def test_linear_model():
    model = build(hidden=(), noise=0.5)
    assert names(model) == ["W1", "b1"]
    assert model.named_vars_to_dims["W1"] == ("output", "feature")
    assert names(build("probit", hidden=())) == ["W1", "b1", "Z2"]


def test_several_outputs():
    y = np.stack([X[:, 0], X[:, 1]], axis=1)
    model = intermediate_noise_mlp(X, y, hidden=(4,), noise=0.3)
    assert model.named_vars_to_dims["y"] == ("obs", "output")
    assert model["targets"].get_value().shape == (N_OBS, 2)
    point = random_point(model)
    settings = {"pre": [0.3], "post": [0.3], "output": 0.3, "lambda_w": [3, 4]}
    expected = expected_logp(point, y, sigma=lambda z: z * (z > 0), lambda_b=[3, 4], **settings)
    np.testing.assert_allclose(logp(model, point), expected, rtol=1e-12)


def test_a_column_of_targets_stays_a_column():
    model = intermediate_noise_mlp(X, TARGETS["normal"][:, None])
    assert model["targets"].get_value().shape == (N_OBS, 1)
    assert model["y"].ndim == 2


@pytest.mark.parametrize(
    ("pre", "post", "free", "determined"),
    [
        (0.1, 0, ["W1", "b1", "Z2", "W2", "b2"], ["X2"]),
        (0, 0.1, ["W1", "b1", "X2", "W2", "b2"], ["Z2"]),
        (0, 0, ["W1", "b1", "W2", "b2"], ["Z2", "X2"]),
    ],
)
def test_zero_noise_makes_a_deterministic(pre, post, free, determined):
    model = build(noise={"pre": pre, "post": post, "output": 0.1})
    assert names(model) == free
    assert [v.name for v in model.deterministics] == determined
    assert model.named_vars_to_dims["X2"] == ("obs", "hidden1")
    assert np.isfinite(logp(model, model.initial_point()))


def test_classical_posterior():
    model = build(hidden=(4,), noise={"pre": 0, "post": 0, "output": 0.2})
    point = random_point(model)
    hidden = np.maximum(X @ point["W1"].T + point["b1"], 0)
    mean = hidden @ point["W2"][0] + point["b2"]
    expected = log_normal(TARGETS["normal"], mean, 0.2)
    expected += sum(log_normal(point[f"{v}1"], 0, 1 / 3) for v in "Wb")
    expected += sum(log_normal(point[f"{v}2"], 0, 1 / 4) for v in "Wb")
    np.testing.assert_allclose(logp(model, point), expected, rtol=1e-12)


def test_zero_noise_in_one_layer_only():
    model = build(hidden=(4, 2), noise={"pre": [0.1, 0], "post": [0, 0.2], "output": 0.1})
    assert [v.name for v in model.deterministics] == ["X2", "Z3"]


@pytest.mark.parametrize("start", ["support_point", "prior"])
@pytest.mark.parametrize("likelihood", TARGETS)
def test_starts_are_usable_also_after_set_data(likelihood, start):
    model = build(likelihood, start=start)
    logps = [logp(model, model.initial_point(seed)) for seed in (1, 2)]
    assert np.isfinite(logps).all()
    reordered = np.roll(TARGETS[likelihood], 1)[: N_OBS - 2]
    with model:
        pm.set_data({"inputs": X[: N_OBS - 2], "targets": reordered})
    assert np.isfinite(logp(model, model.initial_point(3)))


def test_prior_start_is_a_consistent_draw_for_each_seed():
    delta = 1e-6
    model = build(start="prior", hidden=(6,), activation="abs", noise=delta)
    first, second = model.initial_point(1), model.initial_point(2)
    assert np.abs(first["W1"] - second["W1"]).min() > 0
    residuals = [
        first["Z2"] - X @ first["W1"].T - first["b1"],
        first["X2"] - np.abs(first["Z2"]),
    ]
    for residual in residuals:
        assert 0.5 < residual.std() / np.sqrt(delta) < 1.5
    zeros = build(hidden=(6,)).initial_point()
    assert not any(value.any() for value in zeros.values())


@pytest.mark.parametrize("likelihood", ["probit", "multinomial_probit"])
def test_prior_start_spreads_the_last_pre_activations(likelihood):
    model = build(likelihood, start="prior", noise=1e-4)
    first, second = (model.initial_point(seed)["Z3"] for seed in (1, 2))
    assert first.std() > 0.3
    assert not np.isclose(first, second).any()


def test_data_frames_name_the_dimensions():
    frame = pd.DataFrame(X, columns=["age", "bmi", "bp"], index=list("abcdefghi"))
    targets = pd.DataFrame({"left": X[:, 0], "right": X[:, 1]})
    model = intermediate_noise_mlp(frame, targets)
    assert model.coords["feature"] == ("age", "bmi", "bp")
    assert model.coords["output"] == ("left", "right")
    series = intermediate_noise_mlp(frame, targets["left"])
    assert series.named_vars_to_dims["y"] == ("obs",)


def test_mixed_and_nullable_columns():
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [True, False, True], "c": [0.5, 1.5, 2.5]})
    model = intermediate_noise_mlp(frame.convert_dtypes(), pd.Series([1, 2, 3], dtype="Int64"))
    np.testing.assert_array_equal(model["inputs"].get_value(), frame.to_numpy(dtype=float))
    assert model["targets"].get_value().dtype == "float64"


def test_lists():
    model = intermediate_noise_mlp([[1, 2], [3, 4]], [0.5, 1.5])
    assert model["inputs"].get_value().dtype == "float64"


@pytest.mark.parametrize(
    ("labels", "classes", "codes"),
    [
        (["b", "a", "c", "a"], ("a", "b", "c"), [1, 0, 2, 0]),
        (np.array(["no", "yes", "no", "yes"]), ("no", "yes"), [0, 1, 0, 1]),
        (pd.Series(["b", "a", "b", "a"]), ("a", "b"), [1, 0, 1, 0]),
        (pd.Categorical(["lo", "hi", "lo", "hi"], ["lo", "mid", "hi"]), None, [0, 2, 0, 2]),
        (pd.Series(["x", "y", "x", "y"], dtype="category"), ("x", "y"), [0, 1, 0, 1]),
        (pd.Categorical([7, 3, 7, 3]), (3, 7), [1, 0, 1, 0]),
        ([2, 0, 1, 1], (0, 1, 2), [2, 0, 1, 1]),
        ([True, False, True, False], (0, 1), [1, 0, 1, 0]),
    ],
)
def test_class_labels(labels, classes, codes):
    model = intermediate_noise_mlp(X[:4], labels, likelihood="multinomial_probit")
    assert model.coords["output"] == (classes or ("lo", "mid", "hi"))
    np.testing.assert_array_equal(model["targets"].get_value(), codes)


@pytest.mark.parametrize("y", [[True, False], [1, 0], [1.0, 0.0], pd.Series([1, 0])])
def test_binary_targets(y):
    model = intermediate_noise_mlp(X[:2], y, likelihood="probit")
    np.testing.assert_array_equal(model["targets"].get_value(), [1, 0])


def test_outer_model_and_its_coords():
    coords = {"obs": list("abcdefghi"), "feature": ["u", "v", "w"], "hidden1": ["h", "k"]}
    with pm.Model(coords=coords) as outer:
        scale = pm.HalfNormal("scale")
        inner = build(hidden=(2,))
    assert inner is outer
    assert scale in outer.free_RVs
    assert {name: outer.coords[name] for name in coords} == {
        name: tuple(values) for name, values in coords.items()
    }
    with outer:
        pm.set_data({"inputs": X[:2], "targets": [0.0, 1.0]}, coords={"obs": ["x", "y"]})
    assert outer.initial_point()["Z2"].shape == (2, 2)


def test_two_networks_in_one_model():
    with pm.Model() as outer:
        for name in ("left", "right"):
            with pm.Model(name=name):
                build(hidden=(2,))
    assert "left::W1" in outer.named_vars
    assert "right::W1" in outer.named_vars


def test_float32():
    with pytensor.config.change_flags(floatX="float32"):
        for likelihood in TARGETS:
            model = build(likelihood, activation="leaky_relu", start="prior")
            assert {v.dtype for v in model.free_RVs} == {"float32"}
            assert model["inputs"].dtype == "float32"
            assert {v.dtype for v in model.initial_point(1).values()} == {np.dtype("float32")}
            assert np.isfinite(logp(model, model.initial_point(1)))


@pytest.mark.parametrize("likelihood", TARGETS)
def test_predictive_sampling_also_at_new_inputs(likelihood):
    model = build(likelihood, hidden=(4,))
    with model:
        prior = pm.sample_prior_predictive(300, random_seed=1, compile_kwargs=IN_PYTHON)
    assert prior["prior_predictive"]["y"].dims == ("chain", "draw", "obs")
    drawn = prior["prior_predictive"]["y"].values
    if likelihood != "normal":
        latent = prior["prior"]["Z3"].values
        chosen = latent[..., 0] > 0 if likelihood == "probit" else latent.argmax(-1)
        np.testing.assert_array_equal(drawn, chosen)

    weights = prior["prior"].to_dataset()[["W1", "b1", "W2", "b2"]]
    new = np.random.default_rng(2).normal(size=(4, N_FEATURES))
    with model:
        pm.set_data({"inputs": new})
        predictions = pm.sample_posterior_predictive(
            weights, predictions=True, random_seed=1, progressbar=False, compile_kwargs=IN_PYTHON
        )["predictions"]["y"]
    assert predictions.sizes["obs"] == 4
    W1, b1, W2, b2 = (weights[name].values for name in ("W1", "b1", "W2", "b2"))
    hidden = np.maximum(np.einsum("nf,cdhf->cdnh", new, W1) + b1[:, :, None], 0)
    mean = np.einsum("cdnh,cdoh->cdno", hidden, W2) + b2[:, :, None]
    if likelihood == "normal":
        assert abs(predictions.values - mean[..., 0]).mean() < 0.3
    else:
        noise_free = mean[..., 0] > 0 if likelihood == "probit" else mean.argmax(-1)
        assert (predictions.values == noise_free).mean() > 0.75


def test_sampled_weights_predict_at_new_inputs():
    model = build(hidden=(2,), noise={"pre": 0.1, "post": 0.1, "output": 0.1})
    with model:
        idata = pm.sample(
            draws=5,
            tune=5,
            chains=1,
            var_names=["W1", "b1", "W2", "b2"],
            step=pm.Metropolis(compile_kwargs=IN_PYTHON),
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
        assert not {"Z2", "X2"} & set(idata["posterior"].data_vars)
        pm.set_data({"inputs": X[:4]})
        pm.sample_posterior_predictive(
            idata,
            predictions=True,
            extend_inferencedata=True,
            progressbar=False,
            compile_kwargs=IN_PYTHON,
        )
    assert idata["predictions"]["y"].shape == (1, 5, 4)
    assert len(az.summary(idata, var_names=["W2"])) == 2
