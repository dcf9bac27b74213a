"""What is a latent layer and what is not, in networks of builders and by hand."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.distributions.transforms import Ordered, log

import pymc_nnsteps as nns
from pymc_nnsteps.activations import Normalize
from pymc_nnsteps.prediction import blocks
from pymc_nnsteps.prediction.forward import forward_pass, noisy_pass
from tests.cases import quick
from tests.graphs.foreign import Tempered

RNG = np.random.default_rng(0)
N_OBS = 4
X, Y = RNG.normal(size=(N_OBS, 4)), RNG.normal(size=N_OBS)
X_NEW = RNG.normal(size=(9, 4))


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    monkeypatch.setattr(blocks, "c_by_default", lambda: {"mode": "FAST_COMPILE"})


def drawn(model, **fixed):
    """A draw from the prior of everything that the model has stored."""
    with model:
        names = [v.name for v in [*model.free_RVs, *model.deterministics]]
        mode = {"mode": "FAST_COMPILE"}
        prior = pm.sample_prior_predictive(2, var_names=names, random_seed=1, compile_kwargs=mode)
    return prior["prior"].to_dataset().assign(fixed)


def hand_written(f):
    """``f(x, w)`` is the mean of y."""
    with pm.Model() as model:
        x = pm.Data("inputs", X)
        pm.Normal("y", f(x, pm.Normal("w", shape=4)), 1, observed=Y)
    return model


def normal(*args, **options):
    return pm.Normal("v", *args, **options)


DECLINED = {
    "scale of the data": (
        lambda x, w: x @ normal(0, 10 / x.std(axis=0)) + x @ w,
        "v depends on the inputs, but its mean does not",
    ),
    "location of the data": (
        lambda x, w: x @ normal(x.mean(axis=0) * w, 1),
        "Sum of inputs acts across the rows",
    ),
    "scale of each entry": (
        lambda x, w: x @ normal(w, 1 + pt.exp(x[0])),
        "v depends on the inputs, but its mean does not",
    ),
    "latent scale alone": (
        lambda x, w: x @ w + normal(w[0], pt.exp(x @ w), shape=(N_OBS,)),
        "v depends on the inputs, but its mean does not",
    ),
    "noise of each row": (
        lambda x, w: x @ w + normal(0, 1, shape=(x.shape[0],)),
        "Add of [^ ]+ pairs rows with entries of v, which new rows do not have",
    ),
    "noise of each training row": (
        lambda x, w: x @ w + normal(0, 1, shape=N_OBS),
        "pairs rows with entries of v",
    ),
    "what is observed": (lambda x, w: x @ w + Y, "pairs rows with entries of"),
    "repeated mean": (
        lambda x, w: normal((x @ w)[:, None], 1, shape=(N_OBS, 4)).sum(axis=1),
        r"predict needs a mean of v for each of its entries; its mean has the shape \(None, 1\)",
    ),
    "repeated mean by its scale": (
        lambda x, w: normal((x @ w)[:, None], np.ones(4)).sum(axis=1),
        "predict needs a mean of v for each of its entries",
    ),
    "process over the rows": (
        lambda x, w: pm.MvNormal("v", 0, x @ x.T + pt.eye(x.shape[0])) + x @ w,
        "v depends on the inputs and is MultivariateNormal",
    ),
    "no dependence": (lambda x, w: w + 0 * x.shape[1], "one observed variable that depends on"),
    "only the spread of y": (lambda x, w: w, "one observed variable that depends on"),
    "not of the model": (
        lambda x, w: x @ w + pm.Normal.dist(),
        "NormalRV is random, but not a free variable",
    ),
    "named statistic": (
        lambda x, w: (x - pm.Deterministic("centre", x.mean(axis=0))) @ w,
        "Sum of inputs acts across the rows",
    ),
}


@pytest.mark.parametrize(("f", "reason"), DECLINED.values(), ids=DECLINED)
def test_what_is_no_layer_is_declined(f, reason):
    """Replaced by its prior mean, or read from the training rows, it answers in silence."""
    model = hand_written(f)
    with pytest.raises(ValueError, match=reason):
        nns.predict(drawn(model), X, model=model)


def test_a_mean_without_the_inputs():
    with pm.Model() as model:
        x = pm.Data("inputs", X)
        pm.Normal("y", pm.Normal("w", shape=4), pt.exp(x[:, 0]), observed=Y)
    with pytest.raises(ValueError, match="y depends on the inputs, but its mean does not"):
        nns.predict(drawn(model), X, model=model)


@pytest.mark.parametrize("law", ["Bernoulli", "Categorical"])
def test_a_logit_of_weights_is_no_latent_utility(law):
    """Its only parent is the weight, whose prior mean was the answer."""
    with pm.Model() as model:
        logit = pm.Data("inputs", X) @ pm.Normal("w", shape=(4, 4))
        if law == "Bernoulli":
            pm.Bernoulli("y", logit_p=logit, observed=np.ones((N_OBS, 4)))
        else:
            pm.Categorical("y", logit_p=logit, observed=np.ones(N_OBS))
    with pytest.raises(ValueError, match=r"not a decision on one latent variable; name the netw"):
        nns.predict(drawn(model), X, model=model)


def test_a_decision_on_other_rows():
    with pm.Model() as model:
        z = pm.Normal("z", pm.Data("inputs", X) @ pm.Normal("w", shape=4), 1)
        pm.Bernoulli("y", p=pt.gt(z[::-1], 0).astype("float64"), observed=np.ones(N_OBS))
    with pytest.raises(ValueError, match="Subtensor of z selects or reorders rows"):
        nns.predict(drawn(model), X, model=model)


def test_what_the_output_does_not_need_may_be_anything():
    """Scales of the data in the noise, counts on the side."""
    with pm.Model() as model:
        x = pm.Data("inputs", X)
        w = pm.Normal("w", shape=4)
        sigma = pm.HalfNormal("sigma", x.std())
        pm.Poisson("counts", pt.exp(x @ w))
        pm.Normal("y", x @ w, sigma, observed=Y)
    draws = drawn(model)
    f = nns.predict(draws[["w"]], X_NEW, model=model)
    np.testing.assert_allclose(f[..., 0], draws["w"].values @ X_NEW.T, rtol=1e-12)


def test_the_mean_is_that_of_the_layer_before():
    """Two layers with bias and an activation that mixes units, and their draws left aside."""
    with pm.Model() as model:
        x = pm.Data("inputs", X)
        W, b = pm.Normal("W", shape=(4, 4)), pm.Normal("b", shape=4)
        z = pm.Normal("z", x @ W + b, 0.1)
        a = pm.Normal("a", pt.special.softmax(z, axis=1), 0.1)
        pm.Normal("y", a @ b, 1, observed=Y)
    draws = drawn(model)
    f = nns.predict(draws, X_NEW, model=model)
    z = X_NEW @ draws["W"].values + draws["b"].values[..., None, :]
    a = np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)
    expected = np.einsum("cdnu,cdu->cdn", a, draws["b"].values)
    np.testing.assert_allclose(f[..., 0], expected, rtol=1e-10)


NETWORKS = {
    **{
        f"hierarchical, {activation}": (
            lambda X, y, activation=activation: nns.hierarchical_mlp(
                X, y, hidden=(4, 2), activation=activation
            )
        )
        for activation in ("normalize", Normalize(2), "softmax", "tanh", "softplus0")
    },
    "hierarchical, all priors": lambda X, y: nns.hierarchical_mlp(
        X,
        y,
        hidden=(4, 4),
        priors={"io": 1, "ih2": 1, "h1o": 1, "ti": 1, "th": 1, "ah": 5, "ao": 5},
    ),
    "hierarchical, bernoulli": lambda X, y: nns.hierarchical_mlp(
        X, y > 0, hidden=(4,), likelihood="bernoulli"
    ),
    "wide": lambda X, y: nns.wide_mlp(X, y, hidden=(4,), reparametrize=False),
    "wide, by rows": lambda X, y: nns.wide_mlp(X, y, hidden=(4, 4)),
    "wide, by columns": lambda X, y: nns.wide_mlp(X, y, hidden=(2,)),
    "wide, mixed units": lambda X, y: nns.wide_mlp(X, y, hidden=(4,), activation=Normalize(2)),
}
QUICK = {
    "hierarchical, normalize", "hierarchical, softmax", "hierarchical, softplus0",
    "hierarchical, bernoulli", "wide, by rows", "wide, mixed units",
}  # fmt: skip


@pytest.mark.parametrize("name", quick(NETWORKS, QUICK))
def test_functions_of_builders(name):
    """At the inputs of the model, the ``f`` that it stores; elsewhere, row by row."""
    model = NETWORKS[name](X, Y)
    draws = drawn(model)
    f = nns.predict(draws, X, model=model)
    np.testing.assert_allclose(f[..., 0], draws["f"].values, rtol=1e-9)
    some = [2, 0, 3]
    np.testing.assert_allclose(nns.predict(draws, X[some], model=model), f[:, :, some], rtol=1e-9)
    more = nns.predict(draws, np.concatenate([X_NEW, X]), model=model)
    np.testing.assert_allclose(more[:, :, len(X_NEW) :], f, rtol=1e-9)


@pytest.mark.parametrize("marginalize_gates", [False, True])
@pytest.mark.parametrize("hidden", [(2, 1)])
def test_layers_of_one_unit(hidden, marginalize_gates):
    """A layer whose length is one by its dimension, not by its type, is not a repeated mean."""
    model = nns.bow_tie(X, Y, hidden=hidden, marginalize_gates=marginalize_gates)
    rng = np.random.default_rng(1)
    stored = {
        rv.name: (
            ("chain", "draw", *model.named_vars_to_dims[rv.name]),
            rng.normal(size=(1, 2, *model.initial_point(0)[rv.name].shape)),
        )
        for rv in model.free_RVs
        if rv.name[0] in "Wb"
    }
    draws = xr.Dataset(stored, {"chain": [0], "draw": [0, 1]})
    f = nns.predict(draws, X_NEW, model=model)
    one_by_one = [nns.predict(draws, row[None], model=model)[:, :, 0] for row in X_NEW]
    np.testing.assert_allclose(f, np.stack(one_by_one, axis=2), rtol=1e-10)
    assert f.std("obs").min() > 0


CUT_OFF = {
    "positive": lambda mean: pm.Normal("z", mean, 0.1, transform=log),
    "ordered": lambda mean: pm.Normal("z", mean, 0.1, transform=Ordered()),
    "foreign": lambda mean: Tempered("z", mean, 0.1),
}


@pytest.mark.parametrize("layer", CUT_OFF.values(), ids=CUT_OFF)
@pytest.mark.parametrize("read", [forward_pass, noisy_pass])
def test_layers_whose_law_is_not_what_it_is_called(layer, read):
    """Their mean is another, and so is the integral over them."""
    with pm.Model() as model:
        inputs = pm.Data("inputs", np.ones((4, 2)))
        z = layer(inputs @ pm.Normal("W", shape=(2, 3)))
        pm.Normal("y", z @ pm.Normal("v", shape=3), 1, observed=np.zeros(4))
    with pytest.raises(
        ValueError, match=r"z depends on the inputs and is .*(transform|not PyMC's)"
    ):
        read(model, inputs)
