"""Networks as parts of a model."""

import re

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.sampling.mcmc import assign_step_methods

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from tests.cases import slow
from tests.modes import AS_WRITTEN

rng = np.random.default_rng(0)
N_OBS = 20
X = rng.normal(size=(N_OBS, 3))
Y = rng.normal(size=(N_OBS, 2))
COUNTS = rng.poisson(np.exp(0.5 + np.tanh(X[:, 0])))
GROUP = np.arange(N_OBS) % 4
IN_PYTHON = {"mode": ONCE}
BLOCKS = (
    nns.blocks.intermediate_noise,
    nns.blocks.hierarchical,
    nns.blocks.bow_tie,
    nns.blocks.wide,
)


def counts():
    """Counts with a level for each group, and a network with hierarchical priors."""
    with pm.Model(coords={"group": range(4), "obs": range(N_OBS)}) as model:
        x = pm.Data("inputs", X, dims=("obs", "feature"))
        level = pm.Normal("level", 0, 1, dims="group")
        f = nns.blocks.hierarchical(x, hidden=(3,))
        pm.NegativeBinomial("y", mu=pm.math.exp(level[GROUP] + f), alpha=3.0, observed=COUNTS)
    return model


def partially_linear(y=Y[:, 0]):
    """A slope beside a network with noise on its layers."""
    with pm.Model() as model:
        x = pm.Data("inputs", X)
        slope = pm.Normal("slope", 0, 1)
        f = nns.blocks.intermediate_noise(x[:, 1:], hidden=(4,), sigma=0.1)
        pm.Normal("y", slope * x[:, 0] + f, pm.HalfNormal("sigma"), observed=y)
    return model


def log_density(model, values):
    """Log density at values of free variables on their own scale, without a block's name."""
    point = {}
    for rv in model.free_RVs:
        value, transform = model.rvs_to_values[rv], model.rvs_to_transforms[rv]
        given = values[rv.name.removeprefix("f::")]
        point[value.name] = given if transform is None else np.log(given)
    return model.compile_logp(mode=AS_WRITTEN)(point)


def of_builder(name):
    """The model of a builder, and a block with the likelihood that the builder has."""
    if name == "intermediate":
        model = nns.intermediate_noise_mlp(X, Y, hidden=(3, 2), noise=0.2, activation="abs")
        with pm.Model() as own:
            f = nns.blocks.intermediate_noise(
                X, hidden=(3, 2), outputs=2, noise=0.2, activation="abs"
            )
            pm.Normal("y", f, 0.2**0.5, observed=Y)
    elif name == "hierarchical":
        options = {"hidden": (3, 2), "priors": {"ah": 3, "io": "1:2:3:4", "th": 1}}
        model = nns.hierarchical_mlp(X, Y, sigma=0.3, **options)
        with pm.Model() as own:
            f = nns.blocks.hierarchical(X, outputs=2, **options)
            pm.Normal("y", f, 0.3, observed=Y)
    elif name == "bow tie":
        shrinkage = nns.models.Shrinkage(delta_global=2.0)
        options = {"hidden": (3, 2), "shrinkage": shrinkage, "bias_var": 3.0}
        model = nns.bow_tie(X, Y, sigma=0.3, **options)
        with pm.Model() as own:
            pm.Normal("y", nns.blocks.bow_tie(X, outputs=2, **options), 0.3, observed=Y)
    else:
        model = nns.wide_mlp(X, Y, hidden=(5,), sigma=0.3, reparametrize=False)
        with pm.Model() as own:
            pm.Normal("y", nns.blocks.wide(X, hidden=(5,), outputs=2), 0.3, observed=Y)
    return model, own


@pytest.mark.parametrize("name", ["intermediate", "bow tie", slow("hierarchical"), slow("wide")])
def test_a_block_is_the_network_of_the_builder(name):
    model, own = of_builder(name)
    names = [rv.name for rv in model.free_RVs]
    assert [rv.name for rv in own.free_RVs] == [f"f::{name}" for name in names]
    for seed in (1, 2):
        drawn = pm.draw(model.free_RVs, random_seed=seed, **IN_PYTHON)
        values = dict(zip(names, drawn, strict=True))
        np.testing.assert_allclose(log_density(own, values), log_density(model, values), rtol=1e-12)


@pytest.mark.parametrize("block", BLOCKS)
def test_names_and_dimensions(block):
    """Two networks in one model, of data with dimensions and of an expression without."""
    with pm.Model(coords={"obs": range(N_OBS)}) as model:
        x = pm.Data("inputs", X, dims=("obs", "feature"))
        embedding = pm.Normal("embedding", shape=(4, 2))
        columns = pt.concatenate([x, embedding[GROUP]], axis=1)
        f = block(x, hidden=(3,))
        g = block(columns, hidden=(3,), name="g", outputs=2, dims=("obs", "kind"))
        h = block(columns, hidden=(), name="h", outputs=1)
        pm.Gamma("y", pt.exp(f + h[:, 0]), pt.exp(g[:, 1]), observed=np.exp(Y[:, 0]))
    assert (f.name, g.name, h.name) == ("f", "g", "h")
    assert (f.ndim, g.ndim, h.ndim) == (1, 2, 2)
    dims = model.named_vars_to_dims
    assert (dims["f"], dims["g"], "h" in dims) == (("obs",), ("obs", "kind"), False)
    weights = next(rv.name for rv in model.free_RVs if rv.name.startswith("f::W"))
    other = weights.replace("f::", "g::")
    assert dims[weights] == ("f::hidden1", "feature")
    assert dims[other] == ("g::hidden1", "g::input")
    assert model.initial_point()[other].shape == (3, 5)
    for rv in model.free_RVs:
        assert rv.name == "embedding" or rv.name.partition("::")[0] in ("f", "g", "h")


BAD = {
    "x a vector": ({"x": X[:, 0]}, "x must be 2-D .*; it has 1 axes; .* pass x"),
    "x NaN": ({"x": np.where(X > 1, np.nan, X)}, "x has .* NaN or infinite values, the first at"),
    "x of dates": ({"x": pd.DataFrame({"a": pd.to_datetime(["2020"])})}, "x has dates .* 'a'"),
    "x text": ({"x": "data"}, "x must be numeric; got dtype <U4; pass a tensor or an array"),
    "x objects": ({"x": [[None]]}, "x must be numeric; got dtype object; pass a tensor"),
    "x masked": ({"x": np.ma.masked_array(X, X > 1)}, "x has .* NaN or infinite values, the fi"),
    "outputs": ({"outputs": 0}, "outputs must be a positive integer; got 0"),
    "name empty": ({"name": ""}, "name must be a name"),
    "name nested": ({"name": "a::b"}, 'name must be a name such as "f", without "::"'),
    "name taken": (
        {"name": "other"},
        r'already has the names \[.other.\]; give this block .* name="other2"',
    ),
    "name of a dimension": ({"name": "three"}, r"\['three'\], where 'three' is a dimension; give"),
    "dims of two": ({"dims": ("obs", "kind")}, "dims must be one name, of the rows; got"),
    "dims of one": ({"dims": "obs", "outputs": 2}, "dims must be two names"),
    "dims unknown": ({"dims": "row"}, 'dims names "row", which the model does not have'),
    "dims of another length": (
        {"dims": ("obs", "three"), "outputs": 2},
        'coords "three" of the model has length 3, but this network needs 2',
    ),
    "hidden": ({"hidden": (0,)}, "hidden must be a sequence of positive integers"),
    "start": ({"start": "zero"}, "start must be one of"),
}


def test_indicators_beside_numbers():
    """A frame with columns of booleans, which PyTensor refuses."""
    frame = pd.DataFrame({"a": X[:, 0], "is_new": X[:, 1] > 0})
    with pm.Model() as model:
        nns.blocks.hierarchical(frame, hidden=(2,))
        nns.blocks.hierarchical(frame.to_numpy(float), hidden=(2,), name="g")
    point = model.initial_point()
    assert point["f::W_ih1"].shape == point["g::W_ih1"].shape == (2, 2)


def test_inputs_of_no_rows_hold_a_place():
    with pm.Model():
        f = nns.blocks.hierarchical(pm.Data("inputs", X[:0]), hidden=(2,))
        pm.set_data({"inputs": X})
    assert f.eval(mode="FAST_COMPILE").shape == (len(X),)


LEVELS = ["north", "south", "east"]
TABLE = pd.DataFrame({"a": X[:, 0], "depot": pd.Categorical.from_codes(GROUP % 3, LEVELS)})


def embedded():
    """A network of a table, with rows of a learnt matrix for a category."""
    with pm.Model() as model:
        x = nns.blocks.table(TABLE, standardize=True, embed={"depot": 2})
        pm.Normal(
            "y", nns.blocks.intermediate_noise(x, hidden=(3,), sigma=0.1), 1, observed=Y[:, 0]
        )
    return model


def test_embedded_categories_are_rows_of_a_matrix():
    model = embedded()
    with pm.Model() as own:
        rows = pm.Normal("depot::E", shape=(3, 2))
        a = ((X[:, 0] - X[:, 0].mean()) / X[:, 0].std())[:, None]
        f = nns.blocks.intermediate_noise(
            pt.concatenate([a, rows[GROUP % 3]], axis=1), hidden=(3,), sigma=0.1
        )
        pm.Normal("y", f, 1, observed=Y[:, 0])
    assert model.coords["depot::level"] == tuple(LEVELS)
    assert model.named_vars_to_dims["inputs"] == ("obs", "feature")
    drawn = pm.draw(model.free_RVs, random_seed=1, **IN_PYTHON)
    values = {
        rv.name.removeprefix("f::"): each for rv, each in zip(model.free_RVs, drawn, strict=True)
    }
    np.testing.assert_allclose(log_density(own, values), log_density(model, values), rtol=1e-12)


def test_a_builder_embeds_categories(tmp_path):
    """Predictions of a frame with its columns in another order, before and after saving."""
    model = nns.hierarchical_mlp(TABLE, Y[:, 0], hidden=(2,), embed={"depot": 2})
    assert model.coords["feature"] == ("a", *(f"depot[{level}]" for level in LEVELS))
    assert model.coords["input"] == ("a", "depot::E[0]", "depot::E[1]")
    options = {"random_seed": 1, "model": model, "compile_kwargs": {"mode": AS_WRITTEN}}
    prior = pm.sample_prior_predictive(2, **options)["prior"]
    new = TABLE[["depot", "a"]][:4]
    found = nns.predict(prior.to_dataset(), new, model=model)
    np.testing.assert_allclose(found[..., 0], prior["f"].values[..., :4], rtol=1e-6)
    nns.save(tmp_path / "saved", xr.DataTree.from_dict({"posterior": prior.to_dataset()}), model)
    loaded, draws = nns.load(tmp_path / "saved")
    np.testing.assert_array_equal(nns.predict(draws, new, model=loaded), found)


def test_a_block_of_a_frame_has_data_of_its_own():
    """Two blocks of frames: new rows of both are read by their names."""
    with pm.Model() as model:
        f = nns.blocks.hierarchical(TABLE, hidden=())
        g = nns.blocks.hierarchical(TABLE[["depot"]], hidden=(), name="g")
        pm.Normal("y", f + g, 1, observed=Y[:, 0])
    assert model.named_vars_to_dims["f::inputs"] == (None, "f::input")
    assert model.coords["g::input"] == tuple(f"depot[{level}]" for level in LEVELS)
    options = {"random_seed": 1, "model": model, "compile_kwargs": {"mode": AS_WRITTEN}}
    draws = pm.sample_prior_predictive(2, **options)
    new = {"f::inputs": TABLE[["depot", "a"]][:2], "g::inputs": TABLE[["depot"]][:2]}
    both = nns.predict(draws["prior"].to_dataset(), new, model=model, inputs="f::inputs")
    expected = draws["prior"]["f"].values + draws["prior"]["g"].values
    np.testing.assert_allclose(both[..., 0], expected[..., :2])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"embed": {"a": 2}}, r"embed must name .* of which X has \['depot'\]; got 'a'"),
        ({"embed": {"depot": 0}}, r"embed\['depot'\] must be a positive integer; got 0"),
        ({"name": "other"}, r"already has the names \['other'\]"),
        ({"dims": "obs"}, "dims must be two names, of the rows and of the columns"),
        ({"dims": ("three", "feature")}, 'coords "three" of the model has length 3'),
        ({"standardize": 1}, "standardize must be True or False; got 1"),
    ],
)
def test_a_bad_table_leaves_the_model_as_it_was(given, message):
    with pm.Model(coords={"three": range(3)}) as model:
        pm.Normal("other")
        with pytest.raises(ValueError, match=message):
            nns.blocks.table(TABLE, **given)
    assert list(model.named_vars) == ["other"]
    assert list(model.coords) == ["three"]


@pytest.mark.parametrize("case", BAD)
def test_bad_input_leaves_the_model_as_it_was(case):
    given, message = BAD[case]
    for block in BLOCKS:
        with pm.Model(coords={"obs": range(N_OBS), "three": range(3)}) as model:
            pm.Normal("other")
            with pytest.raises(ValueError, match=message):
                block(**{"x": X, **given})
        assert list(model.named_vars) == ["other"]
        assert list(model.coords) == ["obs", "three"]


def test_noise_of_a_hierarchical_block_is_the_likelihood():
    with pm.Model(), pytest.raises(ValueError, match="the key 'noise'; with 1 hidden layers the"):
        nns.blocks.hierarchical(X, hidden=(3,), priors={"noise": 1})


def test_noisy_output():
    """All weights have conditionals under a likelihood that is not normal."""
    noise = {"pre": 0.1, "post": 0.1, "output": 0.1}
    with pm.Model() as model:
        f = nns.blocks.intermediate_noise(X, hidden=(3,), noise=noise)
        pm.Poisson("y", pm.math.exp(f), observed=COUNTS)
    table = str(nns.explain(model, details=True))
    for name in ("f::W1", "f::b1", "f::Z2", "f::X2", "f::W2", "f::b2"):
        assert re.search(rf"\n{name} +Gibbs +(piecewise )?Gaussian", table)
    assert re.search(r"\nf::Z3 +\w+ +- ", table)


@pytest.mark.parametrize("build", [counts, partially_linear])
def test_laws_of_blocks_are_exact(build):
    table = nns.verify(build(), random_seed=1)
    assert max(difference for _, _, difference in table.rows) < 1


def test_steps_of_a_count_regression():
    """Scales are drawn by Gibbs, weights and levels by NUTS."""
    model = counts()
    with model:
        _, chosen = assign_step_methods(model)
    taken = {variable.name for variable in chosen[nns.Gibbs]}
    assert taken == {v.name for v in model.value_vars if v.name.startswith("f::tau")}


def test_predictions_of_a_count_regression():
    """The network alone at new inputs, against NumPy."""
    model = counts()
    names = ["f::W_ih1", "f::bh1", "f::W_h1o", "f::bo"]
    drawn = pm.draw([model[name] for name in names], draws=7, random_seed=1, **IN_PYTHON)
    posterior = xr.Dataset(
        {
            name: (("chain", "draw", *model.named_vars_to_dims[name]), value[None])
            for name, value in zip(names, drawn, strict=True)
        }
    )
    new = rng.normal(size=(5, 3))
    f = nns.predict(posterior, new, model=model)
    W1, b1, W2, b2 = drawn
    hidden = np.tanh(np.einsum("of,shf->soh", new, W1) + b1[:, None])
    expected = np.einsum("soh,skh->sok", hidden, W2) + b2[:, None]
    np.testing.assert_allclose(f.values[0], expected, rtol=1e-12)


def test_a_partially_linear_model_is_sampled():
    """All by Gibbs; the slope and the bend are found."""
    X_new = np.zeros((2, 3))
    X_new[:, 1] = 0, 1.5
    y = 2 * X[:, 0] + np.abs(X[:, 1])
    with partially_linear(y) as model:
        idata = pm.sample(
            200,
            tune=200,
            chains=1,
            cores=1,
            random_seed=1,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    assert set(idata["sample_stats"].data_vars) >= {"n_sweeps"}
    assert abs(idata["posterior"]["slope"].mean() - 2) < 0.15
    f = nns.predict(idata, X_new, model=model, output="f")
    zero, beyond = f.mean(("chain", "draw")).values[:, 0]
    assert abs(beyond - zero - 1.5) < 0.5
    X_new[:, 0] = 1
    mean = nns.predict(idata, X_new, model=model)
    slope = idata["posterior"]["slope"].values[..., None, None]
    np.testing.assert_allclose(mean, f.values + slope, rtol=1e-10)
    for wrong in ({"output": "slope"}, {"output": "f", "kind": "response"}):
        with pytest.raises(ValueError, match=r"^output "):
            nns.predict(idata, X_new, model=model, **wrong)


@pytest.mark.parametrize("block", ["bow_tie", "hierarchical", "intermediate_noise", "wide"])
def test_a_block_outside_of_a_model(block):
    with pytest.raises(TypeError, match=r'none is open; a block .* inside of "with pm.Model'):
        getattr(nns.blocks, block)(np.zeros((3, 2)))


@pytest.mark.slow
def test_a_line_beside_a_smooth_effect_of_space():
    """Function values at new places, whose law is known in closed form."""
    rng = np.random.default_rng(1)
    X, place = rng.normal(size=(60, 2)), rng.uniform(-1, 1, size=(60, 2))
    y = X[:, 0] + np.sin(3 * place[:, 0]) * place[:, 1] + 0.3 * rng.normal(size=60)
    process = pm.gp.HSGP(m=[4, 4], L=[2.0, 2.0], cov_func=pm.gp.cov.ExpQuad(2, ls=0.7))
    basis, sd = (each.eval() for each in process.prior_linearized(place))
    with nns.Model() as model:
        weights = pm.Normal("weights", size=len(sd))
        f = nns.blocks.hierarchical(pm.Data("inputs", X), hidden=(), priors={"io": 1, "bo": 1})
        mean = pm.Deterministic("mean", f + pm.Data("basis", basis) @ (weights * sd))
        pm.Normal("y", mean, 0.3, observed=y, shape=f.shape)
        step = nns.HMC(rng=3)
        idata = pm.sample(
            1000, tune=500, chains=2, cores=1, random_seed=2, step=step, progressbar=False
        )
    new = {
        "inputs": X[:5] + 1,
        "basis": process.prior_linearized(rng.uniform(-1, 1, size=(5, 2)))[0].eval(),
    }
    found = nns.predict(idata, new, model=model, output="mean")[..., 0]
    rows = {"inputs": X, "basis": basis}, new
    A, B = (
        np.column_stack([each["inputs"], np.ones(len(each["inputs"])), each["basis"] * sd])
        for each in rows
    )

    def law(noise):
        covariance = np.linalg.inv(np.eye(A.shape[1]) + A.T @ A / noise**2)
        return B @ covariance @ A.T @ y / noise**2, np.sqrt(np.diag(B @ covariance @ B.T))

    errors = np.array([az.mcse(found[..., i].values) for i in range(5)])
    off = [np.abs(found.mean(("chain", "draw")) - law(noise)[0]) / errors for noise in (0.3, 1.0)]
    assert off[0].max() < 4 < off[1].max() / 2
    np.testing.assert_allclose(found.std(("chain", "draw")), law(0.3)[1], rtol=0.12)
