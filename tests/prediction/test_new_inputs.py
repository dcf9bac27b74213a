"""``predict`` against a forward pass in NumPy."""

import tracemalloc
from functools import partial

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.model.transform.optimization import freeze_dims_and_data
from scipy.special import ndtr
from scipy.stats import kstest, norm

import pymc_nnsteps as nns
from pymc_nnsteps.prediction import blocks
from tests.prediction.draws import made_up

RNG = np.random.default_rng(0)
N_OBS, N_NEW = 9, 7
X = RNG.normal(size=(N_OBS, 3))
X_NEW = RNG.normal(size=(N_NEW, 3))
FIRST_IS_MARKED = r"X_new has 1 NaN or infinite values, the first at X_new\[1, 2\]"
MARK = np.arange(N_NEW * 3).reshape(N_NEW, 3) == 5
TARGETS = {
    "normal": X[:, 0],
    "probit": (X[:, 0] > 0).astype(int),
    "multinomial_probit": np.arange(N_OBS) % 4,
}
ACTIVATIONS = {
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.01 * z),
    "abs": np.abs,
    "sign": np.sign,
    "hard_tanh": lambda z: np.clip(z, -1, 1),
    "identity": lambda z: z,
}
STEP = nns.activations.PiecewiseLinear(knots=[0.3], slopes=[0.5, 0.0], values=[-1.0, 2.0])


def posterior(model, latents=False, n_chains=2, n_draws=3):
    """Made-up draws of the weights, and of the latent layers if asked for."""
    rng = np.random.default_rng(1)
    variables = {}
    for rv in model.free_RVs:
        if latents or rv.name[0] in "Wb":
            shape = model.initial_point()[rv.name].shape
            dims = ("chain", "draw", *(f"{rv.name}_{i}" for i in range(len(shape))))
            variables[rv.name] = dims, rng.normal(size=(n_chains, n_draws, *shape))
    coords = {"chain": np.arange(n_chains) + 2, "draw": np.arange(n_draws) * 10}
    return xr.Dataset(variables, coords=coords)


def forward(draws, x, function, n_layers):
    """Outputs of the network ``draws``, with axes (chain, draw, obs, output)."""
    for layer in range(1, n_layers + 1):
        W = draws[f"W{layer}"].values
        x = np.einsum("...ni,...oi->...no", x, W)
        if f"b{layer}" in draws:
            x = x + draws[f"b{layer}"].values[..., None, :]
        if layer < n_layers:
            x = function(x)
    return x


def build(likelihood="normal", y=None, **options):
    y = TARGETS[likelihood] if y is None else y
    options = {"hidden": (4,), "noise": 0.1} | options
    return nns.intermediate_noise_mlp(X, y, likelihood=likelihood, **options)


@pytest.mark.parametrize("likelihood", TARGETS)
@pytest.mark.parametrize("hidden", [(), (4, 2)])
def test_is_the_forward_pass(likelihood, hidden):
    model = build(likelihood, hidden=hidden)
    draws = posterior(model)
    f = nns.predict(draws, X_NEW, model=model)
    assert f.dims == ("chain", "draw", "obs", "output")
    expected = forward(draws, X_NEW, ACTIVATIONS["relu"], len(hidden) + 1)
    np.testing.assert_allclose(f, expected, rtol=1e-10, atol=1e-12)
    assert f.dtype == np.float64


@pytest.mark.parametrize("activation", [*ACTIVATIONS, STEP], ids=str)
def test_activations(activation):
    model = build(activation=activation)
    draws = posterior(model)
    function = ACTIVATIONS.get(activation) or (lambda z: np.where(z < 0.3, 0.5 * z - 1, 2.0))
    expected = forward(draws, X_NEW, function, 2)
    np.testing.assert_allclose(nns.predict(draws, X_NEW, model=model), expected, atol=1e-12)


@pytest.mark.parametrize(
    "noise",
    [
        {"pre": 0.1, "post": 0, "output": 0.1},
        {"pre": 0, "post": 0.1, "output": 0.1},
        {"pre": 0, "post": 0, "output": 0.1},
    ],
    ids=["stochastic feed-forward", "no pre", "classical"],
)
@pytest.mark.parametrize("likelihood", TARGETS)
def test_networks_without_some_noise(noise, likelihood):
    model = build(likelihood, noise=noise, hidden=(4, 2))
    draws = posterior(model)
    expected = forward(draws, X_NEW, ACTIVATIONS["relu"], 3)
    np.testing.assert_allclose(nns.predict(draws, X_NEW, model=model), expected, atol=1e-12)


def test_several_outputs_without_biases():
    model = build(y=X[:, :2], bias=False)
    draws = posterior(model)
    f = nns.predict(draws, X_NEW, model=model)
    np.testing.assert_allclose(f, forward(draws, X_NEW, ACTIVATIONS["relu"], 2), atol=1e-12)


def test_float32():
    with pytensor.config.change_flags(floatX="float32"):
        model = build(hidden=(4, 2))
        draws = posterior(model)
        f = nns.predict(draws, X_NEW, model=model)
    assert f.dtype == np.float32
    expected = forward(draws, X_NEW, ACTIVATIONS["relu"], 3)
    np.testing.assert_allclose(f, expected, rtol=1e-4, atol=1e-5)


# --- what goes in --------------------------------------------------------------------------


def test_latents_are_not_looked_at():
    model = build("probit", hidden=(4, 2))
    draws = posterior(model, latents=True)
    assert "Z2" in draws
    f = nns.predict(draws, X_NEW, model=model)
    np.testing.assert_array_equal(
        f, nns.predict(draws[["W1", "b1", "W2", "b2", "W3", "b3"]], X_NEW, model=model)
    )
    np.testing.assert_allclose(f, forward(draws, X_NEW, ACTIVATIONS["relu"], 3), atol=1e-12)


def test_dataset_tree_and_sampled_posterior():
    model = build(hidden=(2,))
    options = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
    idata = pm.sample(5, tune=2, chains=2, cores=1, model=model, random_seed=1, **options)
    f = nns.predict(idata, X_NEW, model=model)
    expected = forward(idata["posterior"], X_NEW, ACTIVATIONS["relu"], 2)
    np.testing.assert_allclose(f, expected, atol=1e-12)
    for given in (idata["posterior"], idata["posterior"].to_dataset()):
        xr.testing.assert_identical(nns.predict(given, X_NEW, model=model), f)


def test_axes_in_another_order():
    model = build()
    draws = posterior(model)
    turned = draws.transpose("W1_1", "draw", "W1_0", "chain", ...)
    # the axes of a weight are those of the model; only chain and draw are found by name
    turned = turned.assign(W1=turned["W1"].transpose("draw", "W1_0", "W1_1", "chain"))
    xr.testing.assert_identical(
        nns.predict(turned, X_NEW, model=model), nns.predict(draws, X_NEW, model=model)
    )


def test_data_of_the_model_stay():
    model = build()
    nns.predict(posterior(model), X_NEW, model=model)
    np.testing.assert_array_equal(model["inputs"].get_value(), X)


# --- names ---------------------------------------------------------------------------------


def test_chains_and_draws_keep_their_names():
    model = build()
    f = nns.predict(posterior(model), X_NEW, model=model)
    np.testing.assert_array_equal(f["chain"], [2, 3])
    np.testing.assert_array_equal(f["draw"], [0, 10, 20])
    assert f.sizes == {"chain": 2, "draw": 3, "obs": N_NEW, "output": 1}


def test_rows_of_a_table():
    table = pd.DataFrame(X_NEW, columns=list("abc"), index=list("tuvwxyz"))
    model = build()
    draws = posterior(model)
    f = nns.predict(draws, table, model=model)
    assert list(f["obs"].values) == list("tuvwxyz")
    named = nns.predict(draws, table.rename_axis("who"), model=model)
    assert list(named["obs"].values) == list("tuvwxyz")
    np.testing.assert_array_equal(f, nns.predict(draws, X_NEW, model=model))
    assert "obs" not in nns.predict(draws, X_NEW, model=model).coords


def test_columns_of_a_table_are_found_by_name():
    """A table with its columns in another order must not be read as if they were in this one."""
    model = nns.intermediate_noise_mlp(pd.DataFrame(X, columns=list("abc")), X[:, 0])
    draws = posterior(model)
    table = pd.DataFrame(X_NEW, columns=list("abc"))
    expected = nns.predict(draws, table, model=model)
    np.testing.assert_array_equal(nns.predict(draws, table[["c", "a", "b"]], model=model), expected)
    unnamed = pd.DataFrame(X_NEW)
    np.testing.assert_array_equal(nns.predict(draws, unnamed, model=model), expected)
    with pytest.raises(
        ValueError, match=r"X_new must have the columns \['a', 'b', 'c'\] .* lacks \['c'\]"
    ):
        nns.predict(draws, table.rename(columns={"c": "d"}), model=model)


def test_index_of_several_levels():
    index = pd.MultiIndex.from_arrays([list("aabbccd"), range(7)], names=["group", "row"])
    model = build()
    f = nns.predict(posterior(model), pd.DataFrame(X_NEW, index=index), model=model)
    assert f.sel(group="b").sizes["row"] == 2


def test_network_with_a_prefix():
    with pm.Model(name="net") as model:
        nns.intermediate_noise_mlp(X, X[:, 0], hidden=(4,))
    draws = posterior(build())
    named = draws.rename({name: f"net::{name}" for name in draws.data_vars})
    f = nns.predict(named, X_NEW, model=model)
    np.testing.assert_array_equal(f, nns.predict(draws, X_NEW, model=build()))


def test_names_of_outputs():
    targets = pd.DataFrame({"north": X[:, 0], "south": X[:, 1]})
    model = build(y=targets)
    f = nns.predict(posterior(model), X_NEW, model=model)
    assert list(f["output"].values) == ["north", "south"]
    np.testing.assert_array_equal(f.sel(output="south"), f[..., 1])


def test_class_labels_are_one_call_away():
    labels = np.array(["ash", "oak", "fir"])[np.arange(N_OBS) % 3]
    model = build("multinomial_probit", y=labels)
    draws = posterior(model)
    f = nns.predict(draws, X_NEW, model=model)
    index = forward(draws, X_NEW, ACTIVATIONS["relu"], 2).argmax(-1)
    np.testing.assert_array_equal(f.argmax("output"), index)
    np.testing.assert_array_equal(f.idxmax("output"), np.array(["ash", "fir", "oak"])[index])


def test_integer_labels():
    model = build("multinomial_probit")
    f = nns.predict(posterior(model), X_NEW, model=model)
    np.testing.assert_array_equal(f.idxmax("output"), f.argmax("output"))


# --- models by hand ------------------------------------------------------------------------


def hand_written(observe=True):
    with pm.Model() as model:
        x = pm.Data("covariates", X)
        offset = pm.Data("offset", np.linspace(0, 1, 4))
        W1 = pm.Normal("W1", 0, 1, shape=(3, 4))
        z = pm.Normal("z", x @ W1 + offset, 0.1)
        active = pm.Deterministic("active", pt.abs(z))
        h = pm.Normal("h", active, tau=100.0)
        W2 = pm.Normal("W2", 0, 1, shape=4)
        f = pm.Deterministic("f", 2 * (h * W2).sum(-1) - 1)
        pm.Normal("y", f, 0.1, observed=X[:, 0])
    return model


def test_model_by_hand():
    """Deterministics in between, another container, transposed weights, a scalar output."""
    model = hand_written()
    draws = posterior(model)
    f = nns.predict(draws, X_NEW, model=model, inputs="covariates")
    h = np.abs(np.einsum("ni,...io->...no", X_NEW, draws["W1"]) + np.linspace(0, 1, 4))
    expected = 2 * np.einsum("...no,...o->...n", h, draws["W2"]) - 1
    np.testing.assert_allclose(f, expected[..., None], atol=1e-12)
    xr.testing.assert_identical(f, nns.predict(draws, X_NEW, model=model))


def test_scale_in_the_posterior_is_not_needed():
    with pm.Model() as model:
        slope = pm.Normal("slope", shape=3)
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", pm.Data("inputs", X) @ slope, sigma, observed=X[:, 0])
    slopes = np.random.default_rng(1).normal(size=(2, 4, 3))
    draws = xr.Dataset({"slope": (("chain", "draw", "i"), slopes)}, {"chain": [0, 1]})
    draws = draws.assign_coords(draw=np.arange(4))
    f = nns.predict(draws, X_NEW, model=model)
    np.testing.assert_allclose(f[..., 0], slopes @ X_NEW.T, atol=1e-12)


def test_transformed_parameter():
    """A positive weight is stored on its own scale, whatever the sampler's."""
    with pm.Model() as model:
        gain = pm.HalfNormal("gain", shape=3)
        pm.Normal("y", pm.Data("inputs", X) @ gain, 1, observed=X[:, 0])
    gains = np.random.default_rng(1).gamma(1, size=(1, 4, 3))
    draws = xr.Dataset({"gain": (("chain", "draw", "i"), gains)})
    draws = draws.assign_coords(chain=[0], draw=np.arange(4))
    f = nns.predict(draws, X_NEW, model=model)
    np.testing.assert_allclose(f[..., 0], gains @ X_NEW.T, atol=1e-12)


def test_a_potential_in_the_place_of_a_likelihood():
    """Function values are known by their name, and nothing else is."""
    with pm.Model() as model:
        x = pm.Data("inputs", X)
        w, s = pm.Normal("w", shape=3), pm.Normal("s")
        f = pm.Deterministic("mean", pt.tanh(x @ w))
        pm.Potential("fit", pm.logp(pm.Laplace.dist(f, pt.exp(s)), X[:, 0]).sum())
    draws = made_up(model)
    expected = np.tanh(draws["w"].values @ X_NEW.T)
    found = nns.predict(draws, X_NEW, model=model, output="mean")
    np.testing.assert_allclose(found[..., 0], expected, rtol=1e-12)
    nns.plot_predictions(draws, model=model, output="mean", kind="function", backend="none")
    several = posterior(model, latents=True, n_draws=9)
    table = nns.diagnose(several, X, model=model, output="mean")
    assert "log_likelihood" in str(table)
    for function in (nns.log_likelihood, partial(nns.predict, X_new=X_NEW)):
        with pytest.raises(ValueError, match=r"only the potential fit, .* such as pm\.CustomDist;"):
            function(draws, model=model)
    with pytest.raises(ValueError, match="depends on inputs, one of mean; got 'f'"):
        nns.predict(draws, X_NEW, model=model, output="f")
    with pytest.raises(ValueError, match="has only the potential fit, which defines no dist"):
        nns.predict(draws, X_NEW, model=model, output="mean", kind="response")


# --- inputs of integers and booleans -------------------------------------------------------


def of_whole_numbers(values):
    """Numbers, groups and flags in one container; the flags are used as integers."""
    with pm.Model() as model:
        x = pm.Data("inputs", values)
        w, a = pm.Normal("w", shape=2), pm.Normal("a", shape=3)
        group, flag = x.astype("int64")[:, 2], x[:, 1].astype("int64")
        mean = pm.Deterministic("f", w[0] * x[:, 0] ** 2 + w[1] * flag + a[group])
        pm.Normal("y", mean, 1, observed=np.zeros(len(values)), shape=x.shape[0])
    return model


WHOLE = np.column_stack([np.arange(6) % 2, np.arange(6) // 2 % 2, np.arange(6) % 2])


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float64"])
@pytest.mark.parametrize("kind", ["function", "response"])
def test_fractions_are_not_cut_off(dtype, kind):
    model = of_whole_numbers(WHOLE.astype(dtype))
    draws = made_up(model)
    w, a = draws["w"].values[0, :, :, None], draws["a"].values[0]
    for new in ([[0.5, 0, 2], [1.9, 1, 0]], [[1, 0, 2], [3, 1, 1]]):
        x = np.array(new)
        flags = x[:, 1]
        expected = w[:, 0] * x[:, 0] ** 2 + w[:, 1] * flags + a[:, x[:, 2].astype(int)]
        f = nns.predict(draws, x, model=model, kind=kind, random_seed=1)
        f = f - nns.predict(draws, 0 * x, model=model, kind=kind, random_seed=1)
        np.testing.assert_allclose(f[0, ..., 0], expected - a[:, :1], rtol=1e-12)
    if dtype != "float64":
        f = nns.predict(draws, [[0.0, 0.25, 0]], model=model)
        np.testing.assert_allclose(f[0, :, 0, 0], w[:, 1, 0] / 4 + a[:, 0], rtol=1e-12)


@pytest.mark.parametrize("entry", [3, -1, 1.7, -4])
@pytest.mark.parametrize("dtype", ["int64", "float64"])
@pytest.mark.parametrize("kind", ["function", "response"])
def test_entries_that_there_are_not(entry, dtype, kind):
    """-1 would be the last group, 1.7 the one before."""
    model = of_whole_numbers(WHOLE.astype(dtype))
    message = rf"^X_new picks entry {entry} of a, which has the entries from 0 to 2; "
    with pytest.raises(ValueError, match=message):
        nns.predict(made_up(model), [[1, 0, 0], [0, 0, entry]], model=model, kind=kind)


def test_entries_as_the_model_takes_them():
    """Numbers that it rounds, groups that it counts from the end."""
    model = of_whole_numbers(WHOLE + np.array([0, 0, 0.5]) - 2 * (WHOLE == 1) * [0, 0, 1])
    draws = made_up(model)
    f = nns.predict(draws, [[0, 0, 1.7], [0, 0, -2]], model=model)
    np.testing.assert_array_equal(f[0, ..., 0], draws["a"].values[0][:, [1, 1]])
    with pytest.raises(ValueError, match="picks entry -4 of a"):
        nns.predict(draws, [[0, 0, -4]], model=model)
    with model:
        pm.set_data({"inputs": [[0.0, 0.0, 3.0]]})
    with pytest.raises(ValueError, match=r"^inputs picks entry 3 of a"):
        nns.log_likelihood(draws, model)


def test_operations_on_integers_alone():
    with pm.Model() as model:
        w = pm.Normal("w", shape=3)
        pm.Normal("y", ~pm.Data("inputs", WHOLE > 0) @ w, 1, observed=np.zeros(6))
    f = nns.predict(made_up(model), [[1, 0, 0]], model=model)
    np.testing.assert_allclose(f[0, :, 0, 0], made_up(model)["w"].values[0, :, 1:].sum(-1))
    with pytest.raises(ValueError, match="Invert of inputs needs integers, but new rows are not"):
        nns.predict(made_up(model), [[0.5, 0, 0]], model=model)


# --- what the chain has learnt from inputs and targets -------------------------------------

WIDE = {"by rows": {"hidden": (9,)}, "by columns": {"hidden": (4,)}}
"""Widths on both sides of the number of observations."""


def posterior_of_wide(model):
    """Made-up draws, also of the readout, as if it had been stored."""
    draws = posterior(model)
    rng = np.random.default_rng(2)
    for variable in model.deterministics:
        if variable.name != "f":
            shape = tuple(length.eval() for length in variable.shape)
            dims = ("chain", "draw", *(f"{variable.name}_{i}" for i in range(len(shape))))
            draws[variable.name] = dims, rng.normal(size=(2, 3, *shape))
    return draws


def forward_wide(draws, x, n_layers, bias_var=0.01):
    """With GELU, in NTK scaling and the default variances."""
    for layer in range(1, n_layers + 1):
        variance = 1.0 if layer == n_layers else 2.0
        W = draws[f"W{layer}"].values
        x = np.sqrt(variance / x.shape[-1]) * np.einsum("...ni,...oi->...no", x, W)
        if bias_var:
            x = x + np.sqrt(bias_var) * draws[f"b{layer}"].values[..., None, :]
        if layer < n_layers:
            x = x * ndtr(x)
    return x


@pytest.mark.parametrize("form", WIDE)
@pytest.mark.parametrize("y", [X[:, 0], X[:, :2]], ids=["1-D", "2-D"])
@pytest.mark.parametrize(("depth", "bias_var"), [(0, 0.01), (1, 0), (2, 0.01)])
def test_readout_is_what_was_learnt(form, y, depth, bias_var):
    hidden = (5, *WIDE[form]["hidden"])[2 - depth :]
    model = nns.wide_mlp(X, y, hidden=hidden, bias_var=bias_var)
    draws = posterior_of_wide(model)
    for x in (X_NEW, X, X[::-1]):
        f = nns.predict(draws, x, model=model)
        expected = forward_wide(draws, x, depth + 1, bias_var)
        np.testing.assert_allclose(f, expected, rtol=1e-10, atol=1e-12)
    plain = nns.wide_mlp(X, y, hidden=hidden, bias_var=bias_var, reparametrize=False)
    xr.testing.assert_allclose(f, nns.predict(draws, x, model=plain))


def test_stored_function_values_are_those_predicted():
    with nns.wide_mlp(X, X[:, :2], hidden=(4,)) as model:
        fast = {"compile_kwargs": {"mode": "FAST_COMPILE"}}
        options = {"progressbar": False, "quiet": True, "compute_convergence_checks": False} | fast
        step = pm.Metropolis(**fast)
        idata = pm.sample(5, tune=2, chains=2, cores=1, step=step, random_seed=1, **options)
    f = nns.predict(idata, X, model=model)
    np.testing.assert_allclose(f, idata["posterior"]["f"], rtol=1e-10)
    with model:
        pm.set_data({"inputs": X[:4], "targets": X[:4, :2]})
    np.testing.assert_allclose(nns.predict(idata, X, model=model), f, rtol=1e-12)


def test_missing_readout():
    model = nns.wide_mlp(X, X[:, 0], hidden=(4,))
    draws = posterior_of_wide(model)
    with pytest.raises(ValueError, match=r"idata lacks W2; .*\['W1', 'b1', 'W2', 'b2'\]"):
        nns.predict(draws.drop_vars("W2"), X_NEW, model=model)
    assert "phi" not in draws
    nns.predict(draws, X_NEW, model=model)


def test_readout_of_another_shape():
    model, other = (nns.wide_mlp(X, y, hidden=(4,)) for y in (X[:, 0], X[:, :2]))
    with pytest.raises(ValueError, match=r"idata has W2 of shape \(2, 4\), .* \(1, 4\)"):
        nns.predict(posterior_of_wide(other), X_NEW, model=model)


def test_wide_network_with_a_prefix():
    with pm.Model(name="net") as model:
        nns.wide_mlp(X, X[:, 0], hidden=(4,))
    draws = posterior_of_wide(nns.wide_mlp(X, X[:, 0], hidden=(4,)))
    named = draws.rename({name: f"net::{name}" for name in draws.data_vars})
    expected = forward_wide(draws, X_NEW, 2)
    np.testing.assert_allclose(nns.predict(named, X_NEW, model=model), expected, atol=1e-12)


def marginal_by_hand(observed, names=("gram", "moments", "coefficients", "hidden", "f")):
    """Linear regression with its coefficients integrated out of a multivariate normal."""

    def named(name, expression):
        return pm.Deterministic(name, expression) if name in names else expression

    with pm.Model() as model:
        x = pm.Data("inputs", X)
        y = observed()
        scale = pm.HalfNormal("scale")
        psi = scale * x
        gram = named("gram", psi.T @ psi + pt.eye(3))
        moments = named("moments", psi.T @ y)
        hidden = named("hidden", psi * named("coefficients", pt.linalg.solve(gram, moments)))
        named("f", hidden.sum(axis=1))
        pm.MvNormal("y", 0, psi @ psi.T + pt.eye(psi.shape[0]), observed=y)
    return model


OBSERVED = {
    "container": lambda: pm.Data("targets", X[:, 0]),
    "cast": lambda: pm.Data("targets", np.arange(N_OBS)).astype("float64"),
    "array": lambda: X[:, 0].copy(),
}


@pytest.mark.parametrize("observed", OBSERVED.values(), ids=OBSERVED)
def test_marginal_model_by_hand(observed):
    """Only the last of what was learnt is looked at: what it is made of, it was made of then."""
    model = marginal_by_hand(observed)
    rng = np.random.default_rng(1)
    stored = {
        "scale": (("chain", "draw"), rng.gamma(1, size=(2, 3))),
        "coefficients": (("chain", "draw", "i"), rng.normal(size=(2, 3, 3))),
    }
    draws = xr.Dataset(stored, {"chain": [0, 1], "draw": [0, 1, 2]})
    expected = draws["scale"].values[..., None] * (draws["coefficients"].values @ X_NEW.T)
    f = nns.predict(draws, X_NEW, model=model)
    np.testing.assert_allclose(f[..., 0], expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"idata lacks coefficients; .*'scale', 'coefficients'"):
        nns.predict(draws[["scale"]], X_NEW, model=model)


def test_marginal_model_without_a_named_output():
    model = marginal_by_hand(OBSERVED["container"], ["coefficients"])
    with pytest.raises(
        ValueError,
        match=r'y depends .* is MultivariateNormal, .* with pm.Deterministic\("f", ...\)',
    ):
        nns.predict(posterior(model), X_NEW, model=model)


@pytest.mark.parametrize("named", [["f"], ["f", "moments"]], ids=["nothing", "a part"])
@pytest.mark.parametrize("observed", OBSERVED.values(), ids=OBSERVED)
def test_what_was_learnt_has_no_name(observed, named):
    """Coefficients would be found anew, from new inputs and old targets."""
    model = marginal_by_hand(observed, named)
    with pytest.raises(ValueError, match="predict cannot tell what f computes from each row"):
        nns.predict(posterior(model), X_NEW, model=model)


@pytest.mark.parametrize("observed", OBSERVED.values(), ids=OBSERVED)
def test_learnt_values_with_rows(observed):
    """The dual form of a regression: one coefficient per row, and a matrix of old and new rows."""
    with pm.Model() as model:
        x, y = pm.Data("inputs", X), observed()
        gram = x @ x.T
        k = gram + pt.eye(x.shape[0])
        pm.Deterministic("f", gram @ pm.Deterministic("alpha", pt.linalg.solve(k, y)))
        pm.MvNormal("y", 0, k, observed=y)
    with pytest.raises(ValueError, match="predict cannot tell what f computes from each row"):
        nns.predict(posterior(model), X_NEW, model=model)


def test_output_that_sees_the_targets_row_by_row():
    with pm.Model() as model:
        x, y = pm.Data("inputs", X), pm.Data("targets", X[:, 0])
        pm.Deterministic("f", x @ pm.Normal("slope", shape=3) + 0.5 * y)
        pm.MvNormal("y", 0, x @ x.T + pt.eye(x.shape[0]), observed=y)
    with pytest.raises(ValueError, match="predict cannot tell what f computes from each row"):
        nns.predict(posterior(model), X_NEW, model=model)


def test_deterministics_of_targets_alone_are_computed():
    """As are those of inputs alone: nothing but the two together was learnt."""
    with pm.Model() as model:
        x, y = pm.Data("inputs", X), pm.Data("targets", X[:, 0])
        level = pm.Deterministic("level", y.mean())
        slope = pm.Normal("slope", shape=3)
        pm.Normal("y", level + x @ slope, 1, observed=y)
    slopes = np.random.default_rng(1).normal(size=(1, 4, 3))
    draws = xr.Dataset({"slope": (("chain", "draw", "i"), slopes)}, {"chain": [0]})
    draws = draws.assign_coords(draw=np.arange(4))
    f = nns.predict(draws, X_NEW, model=model)
    np.testing.assert_allclose(f[..., 0], X[:, 0].mean() + slopes @ X_NEW.T, atol=1e-12)


# --- memory --------------------------------------------------------------------------------


@pytest.mark.parametrize("block_bytes", [1, 200, 1000])
def test_blocks_do_not_show(block_bytes, monkeypatch):
    model = build("multinomial_probit", hidden=(4, 2))
    draws = posterior(model, n_draws=11)
    expected = nns.predict(draws, X_NEW, model=model)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", block_bytes)
    np.testing.assert_allclose(
        nns.predict(draws, X_NEW, model=model), expected, rtol=1e-12, atol=1e-13
    )


def test_memory_is_bounded():
    """500 draws x 20 000 inputs x 20 units are 1.6 GB if formed at once; the result is 80 MB."""
    model = build(hidden=(20,))
    draws = posterior(model, n_draws=250)
    many = np.random.default_rng(2).normal(size=(20_000, 3))
    nns.predict(draws.isel(draw=slice(1)), many[:2], model=model)
    tracemalloc.start()
    try:
        f = nns.predict(draws, many, model=model)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * f.nbytes + 4 * blocks.BLOCK_BYTES
    some = [0, 10_000, 19_999]
    expected = forward(draws, many[some], ACTIVATIONS["relu"], 2)
    np.testing.assert_allclose(f[:, :, some], expected, rtol=1e-10, atol=1e-12)


# --- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X_new", "message"),
    [
        (X_NEW[:, :2], r"X_new must have shape \(n_obs, 3\) .* got \(7, 2\)"),
        (X_NEW[0], r"X_new must have shape \(n_obs, 3\) .* got \(3,\)"),
        (X_NEW[None], r"X_new must have shape \(n_obs, 3\)"),
        (np.where(MARK, np.nan, X_NEW), FIRST_IS_MARKED),
        (np.where(MARK, -np.inf, X_NEW), FIRST_IS_MARKED),
        ([["a", "b", "c"]], "X_new must be numeric"),
        ([[1.0, 2.0, 3.0], [1.0]], "X_new must be rectangular"),
        (np.ma.masked_array(X_NEW, mask=MARK), FIRST_IS_MARKED),
        ([["1", "2", "3"]], "X_new must be numeric"),
        (None, "X_new must"),
        (1j * X_NEW, "X_new must be numeric"),
        (
            pd.DataFrame({"a": ["x", "y"], "b": 1.0, "c": 2.0}),
            r"X_new has non-numeric columns \['a'\]",
        ),
    ],
    ids=[
        "columns",
        "1-D",
        "3-D",
        "nan",
        "inf",
        "strings",
        "ragged",
        "masked",
        "digits",
        "None",
        "complex",
        "table",
    ],
)
def test_bad_inputs(X_new, message):
    model = build()
    with pytest.raises(ValueError, match=message):
        nns.predict(posterior(model), X_new, model=model)


@pytest.mark.parametrize("function", [nns.predict, nns.diagnose])
def test_swapped_arguments(function):
    model = build()
    with pytest.raises(ValueError, match=r"^idata must be the result of pm.sample; got a model"):
        function(model, X_NEW, model=posterior(model))


def test_no_model():
    with pytest.raises(TypeError, match=r"^No model is given and none is open; pass model="):
        nns.predict(posterior(build()), X_NEW)


def test_no_rows():
    model = build()
    f = nns.predict(posterior(model), X_NEW[:0], model=model)
    assert f.shape == (2, 3, 0, 1)


def test_no_draws():
    model = build()
    f = nns.predict(posterior(model, n_draws=0), X_NEW, model=model)
    assert f.shape == (2, 0, N_NEW, 1)


def test_missing_weights():
    model = build(hidden=(4, 2))
    draws = posterior(model).drop_vars(["W2", "b3"])
    with pytest.raises(ValueError, match=r"idata lacks W2, b3; .*'W1', 'b1', 'W2'"):
        nns.predict(draws, X_NEW, model=model)


def test_weights_of_another_shape():
    draws = posterior(build(hidden=(5,)))
    with pytest.raises(ValueError, match=r"W1.*\(5, 3\).*\(4, 3\)"):
        nns.predict(draws, X_NEW, model=build(hidden=(4,)))


@pytest.mark.parametrize(
    "mangle",
    [
        lambda draws: xr.DataTree.from_dict({"prior": draws}),
        lambda draws: draws.isel(chain=0),
        dict,
        lambda draws: None,
        lambda draws: pm.backends.base.MultiTrace([]),
    ],
    ids=["prior only", "one chain", "dict", "None", "a trace of old"],
)
def test_no_posterior(mangle):
    model = build()
    with pytest.raises(ValueError, match="idata has no posterior with the dimensions chain and"):
        nns.predict(mangle(posterior(model)), X_NEW, model=model)


@pytest.mark.parametrize("inputs", ["foo", None])
def test_unknown_container(inputs):
    model = build()
    if inputs is None:  # two tables that the output depends on
        with pm.Model() as model:
            tables = pm.Data("one", X) + pm.Data("other", X)
            pm.Normal("y", tables @ pm.Normal("w", shape=X.shape[1]), 1, observed=X[:, 0])
    with pytest.raises(
        ValueError, match=r'inputs must name the pm.Data container .* the model has .* inputs="\w+"'
    ):
        nns.predict(posterior(model), X_NEW, model=model, inputs=inputs)


def test_model_without_containers():
    with pm.Model() as model:
        W1 = pm.Normal("W1", shape=3)
        pm.Normal("y", X @ W1, 1, observed=X[:, 0])
    with pytest.raises(ValueError, match=r"inputs must name .* the model has none"):
        nns.predict(posterior(model), X_NEW, model=model)


def test_frozen_model():
    model = build()
    with pytest.raises(ValueError, match="inputs is a constant of the model"):
        nns.predict(posterior(model), X_NEW, model=freeze_dims_and_data(model))


def test_container_that_nothing_observed_depends_on():
    model = build()
    with model:
        pm.Data("idle", X)
    with pytest.raises(ValueError, match=r"one observed variable that depends on idle; .* none"):
        nns.predict(posterior(model), X_NEW, model=model, inputs="idle")


def test_a_named_output_of_several_observed_variables():
    """Function values need no response: they are those of the model with one of them."""
    with pm.Model() as model:
        W = pm.Normal("W", shape=(X.shape[1], 2))
        f = pm.Deterministic("f", pm.math.tanh(pm.Data("inputs", X) @ W).sum(axis=-1))
        pm.Normal("y", f, 1.0, observed=X[:, 0])
    draws = posterior(model)
    alone = nns.predict(draws, X_NEW, model=model, output="f")
    with model:
        pm.Poisson("counts", pm.math.exp(2 * f), observed=np.ones(len(X), int))
    np.testing.assert_array_equal(nns.predict(draws, X_NEW, model=model, output="f"), alone)


def test_two_observed_variables():
    with build() as model:
        pm.Normal("second", model["inputs"][:, 0], 1, observed=X[:, 0])
    with pytest.raises(ValueError, match=r"one observed variable .* the model has .*y, second"):
        nns.predict(posterior(model), X_NEW, model=model)


def test_responses_of_one_of_two_observed_variables():
    """Its law, in which the other has no part: they share a noisy layer at the rows of the data."""
    with pm.Model() as model:
        x = pm.Data("inputs", X, dims=("obs", "feature"))
        w, n = pm.Normal("w", shape=3), x.shape[0]
        z = pm.Normal("z", x @ w, 2.0, shape=n, dims="obs")
        y = pm.Normal("y", z, 0.1, observed=X[:, 0])
        pm.Bernoulli("label", pm.math.invprobit(3 * z), observed=X[:, 0] > 0)
        pm.Normal("after", w[0] * y + x[:, 0], 1.0, observed=X[:, 0])
    drawn = np.broadcast_to([0.5, -1.0, 0.3], (1, 4000, 3))
    draws = xr.Dataset({"w": (("chain", "draw", "w_dim_0"), drawn)})
    mean, sd = X_NEW @ drawn[0, 0], 2.0
    draws = draws.assign_coords(chain=[0], draw=np.arange(4000))
    predict = partial(nns.predict, draws, X_NEW, model=model, random_seed=1)
    y = predict(kind="response", output="y").values[0, :, :, 0]
    for row, at in zip(y.T, mean, strict=True):
        assert kstest(row, norm(at, np.hypot(sd, 0.1)).cdf).pvalue > 1e-3
    one = ndtr(mean / np.hypot(sd, 1 / 3))
    label = predict(kind="response", output="label").values[0, :, :, 0]
    assert np.abs(label.mean(axis=0) - one).max() < 4 * 0.5 / 4000**0.5
    probability = predict(kind="probability", output="label", num_samples=1, noise_draws=4000)
    assert np.abs(probability.values.ravel() - one).max() < 4 * 0.5 / 4000**0.5
    with pytest.raises(ValueError, match="states y for its own rows alone; put a value"):
        predict(kind="response", output="after")
    with pytest.raises(ValueError, match=r"output must name .* of y, label, after; got"):
        predict(kind="response", output="z")


def test_layer_of_unknown_mean():
    with pm.Model() as model:
        W1 = pm.Normal("W1", shape=3)
        rate = pm.math.exp(pm.Data("inputs", X) @ W1)
        pm.Poisson("y", rate, observed=np.arange(N_OBS))
    with pytest.raises(ValueError, match="y depends on the inputs and is Poisson"):
        nns.predict(posterior(model), X_NEW, model=model)


def test_a_table_of_targets_is_not_taken_for_the_inputs():
    """Several targets of a hand-written model are a 2-D container beside the inputs."""
    with pm.Model() as model:
        x = pm.Data("x", np.ones((5, 3)))
        targets = pm.Data("targets", np.zeros((5, 2)))
        w = pm.Normal("w", shape=(2, 3))
        pm.Normal("y", x @ w.T, 1, observed=targets)
    idata = xr.Dataset({"w": (("chain", "draw", "a", "b"), np.ones((1, 4, 2, 3)))})
    assert (nns.predict(idata, np.ones((6, 3)), model=model) == 3).all()


def test_the_order_of_variables_in_the_model_does_not_matter():
    """PyMC's model transformations list them in another order."""
    model = build()
    idata = posterior(model)
    expected = nns.predict(idata, X_NEW, model=model)
    model.free_RVs.reverse()
    xr.testing.assert_allclose(nns.predict(idata, X_NEW, model=model), expected)


def test_gates_pass_on_their_average():
    """A gate left at its draw, or rounded; a temperature or a bias that is lost."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(5, 2))
    for marginal in (False, True):
        model = nns.bow_tie(x, x[:, 0], hidden=(3, 2), temperature=0.7, marginalize_gates=marginal)
        names = [f"{kind}{layer}" for kind in "Wb" for layer in (1, 2, 3)]
        draws = {name: rng.normal(size=(2, 3, *model[name].type.shape)) for name in names}
        posterior = xr.Dataset(
            {
                name: (("chain", "draw", *(f"{name}_{i}" for i in range(value.ndim - 2))), value)
                for name, value in draws.items()
            }
        )
        new = rng.normal(size=(4, 2))
        found = nns.predict(posterior, new, model=model)
        layer = new
        for i in (1, 2, 3):
            bias = draws[f"b{i}"][..., None, :]
            z = layer @ np.swapaxes(draws[f"W{i}"], -1, -2) + bias
            layer = z / (1 + np.exp(-z / 0.7)) if i < 3 else z
        np.testing.assert_allclose(found, layer, rtol=1e-12)


def test_indicators_that_are_no_gates():
    """An average over a function that is not linear in the indicator."""
    with pm.Model() as model:
        x = pm.Data("inputs", np.zeros((3, 2)))
        w = pm.Normal("w", shape=2)
        gate = pm.Bernoulli("gate", logit_p=x @ w)
        pm.Normal("y", pm.math.exp(gate), 1.0, observed=np.zeros(3))
    posterior = xr.Dataset({"w": (("chain", "draw", "i"), np.zeros((1, 1, 2)))})
    with pytest.raises(ValueError, match="predict cannot average over gate"):
        nns.predict(posterior, np.zeros((1, 2)), model=model)


def test_labels_and_the_group_of_predictions():
    """Labels of the model's own rows and outputs, whatever their dimensions are called."""
    coords = {"day": ["mon", "tue"], "kind": ["a", "b"], "column": ["u", "v"]}
    X = np.arange(4.0).reshape(2, 2)
    with pm.Model(coords=coords) as model:
        inputs = pm.Data("inputs", X, dims=("day", "column"))
        level = pm.Data("level", np.zeros(2), dims="day")
        w = pm.Normal("w", dims=("column", "kind"))
        mean = inputs @ w + level[:, None]
        pm.Normal("y", mean, 1, observed=np.zeros((2, 2)), dims=("day", "kind"))
    draws = xr.Dataset({"w": (("chain", "draw", "column", "kind"), np.ones((1, 4, 2, 2)))})
    idata = xr.DataTree.from_dict({"posterior": draws})
    own = nns.predict(idata, X, model=model, kind="response", extend_inferencedata=True)
    assert own["obs"].values.tolist() == coords["day"]
    assert own["output"].values.tolist() == coords["kind"]
    xr.testing.assert_identical(idata.predictions["y"], own)
    assert idata.predictions.attrs["inference_library"] == "pymc"
    assert idata.predictions.attrs["sample_dims"] == ["chain", "draw"]

    new = pd.DataFrame([[7.0, 5.0]], columns=["v", "u"], index=["next"])
    rows = {"inputs": new, "level": pd.Series([1.0], index=["next"])}
    nns.predict(idata, rows, model=model, extend_inferencedata=True)
    assert list(idata.predictions) == ["f"]
    assert idata.predictions["f"]["obs"].values.tolist() == ["next"]
    constant = idata.predictions_constant_data
    assert constant["inputs"].sel(obs="next", column="v") == 7
    assert constant["level"].dims == ("obs",)
    with pytest.raises(ValueError, match="extend_inferencedata needs the DataTree"):
        nns.predict(draws, X, model=model, extend_inferencedata=True)


def test_an_output_tells_which_container_is_replaced():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(12, 2)), rng.normal(size=(9, 3))
    with pm.Model() as model:
        for name, x in (("f", a), ("g", b)):
            w = pm.Normal(f"w of {name}", 0, 1, shape=x.shape[1])
            f = pm.Deterministic(name, pm.math.tanh(pm.Data(f"of {name}", x) @ w))
            pm.Normal(f"y {name}", f, 0.3, observed=x[:, 0])
    weights = {f"w of {name}": rng.normal(size=(1, 4, k)) for name, k in (("f", 2), ("g", 3))}
    posterior = az.from_dict({"posterior": weights})
    found = nns.predict(posterior, b[:4], model=model, output="g")
    expected = np.tanh(weights["w of g"] @ b[:4].T)
    np.testing.assert_allclose(found.values.reshape(expected.shape), expected)
    assert nns.partial_dependence(posterior, 2, model=model, output="g", points=3)
    logs = nns.log_likelihood(posterior, model, var_names=["y g"])
    assert list(logs["log_likelihood"].data_vars) == ["y g"]
    with pytest.raises(ValueError, match=r"inputs must name the pm.Data container"):
        nns.predict(posterior, b[:4], model=model)
