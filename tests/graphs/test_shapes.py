"""Shapes at the time of compilation: those of the model, and data that do not fit."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.graphs.shapes import refuse_random_data, require_fitting_data, shapes_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 2))
Y = X[:, 0] + 0.1 * RNG.normal(size=8)

MISFITS = {
    "a column of targets": lambda b: pm.Normal("y", X @ b, 1, observed=Y[:, None]),
    "exchangeable targets": lambda b: pm.Normal("y", X @ b, 1, observed=pm.Data("t", Y[:, None])),
    "a column of scales": lambda b: pm.Normal("y", X @ b, np.ones((8, 1)), observed=Y[:, None]),
    "an explicit shape": lambda b: pm.Normal("y", b[0], 1, shape=(1,), observed=Y),
    "labels": lambda b: pm.Bernoulli("y", logit_p=X @ b, observed=(Y > 0)[:, None]),
}


@pytest.mark.parametrize("name", MISFITS)
def test_data_that_do_not_fit_are_refused(name):
    """A sampler for another model than PyMC's, which pairs every number with every parameter."""
    with pm.Model() as model:
        MISFITS[name](pm.Normal("b", shape=2))
    reason = r"y is observed with shape \(8.*\), but its distribution has shape \(.*\); give both"
    with pytest.raises(ValueError, match=reason):
        nns.Gibbs("b", model=model)
    for refuse in (nns.explain, lambda model: nns.Gibbs(model=model)):
        with pytest.raises(ValueError, match=reason):
            refuse(model)


def test_shapes_of_values():
    with pm.Model(coords={"unit": range(3)}) as model:
        w = pm.Normal("w", dims="unit")
        s = pm.Gamma("s", 2, 2, shape=(2, 1))
        u = pm.Normal("u", 0, w * s)
        pm.Normal("y", u.sum(0), 1, observed=pm.Data("t", np.ones((4, 3))))
        pm.Dirichlet("p", np.ones((2, 3)))
    shapes = shapes_of(model)
    known = [w, s, u, model["y"], model["p"]]
    assert [shapes[rv] for rv in known] == [(3,), (2, 1), (2, 3), (4, 3), (2, 3)]
    assert shapes_of(model, model.initial_point()) == shapes


NAN = np.where(X.max() - 1e-9 < X, np.nan, X)
NAN_MODELS = {
    "design": lambda b: pm.Normal("y", NAN @ b, 1, observed=Y),
    "noise": lambda b: pm.Normal("y", X @ b, abs(NAN[:, 0] + NAN[:, 1]), observed=Y),
    "prior": lambda b: pm.Normal("c", NAN @ b, 1),
}


@pytest.mark.parametrize("name", NAN_MODELS)
def test_nan_is_named(name):
    """The start is blamed for what is wrong with the data."""
    with pm.Model() as model:
        NAN_MODELS[name](pm.Normal("b", shape=2))
    with pytest.raises(ValueError, match=r"an array of shape \(8.*\), which . depends on, has NaN"):
        nns.Gibbs(model=model)


# --- data that were exchanged in part -------------------------------------------------------------

LABELS = list("abcabcab")


def by_hand(targets):
    def build():
        with pm.Model() as model:
            inputs = pm.Data("inputs", X)
            W1 = pm.Normal("W1", 0, 1, shape=(3, 2))
            Z2 = pm.Normal("Z2", inputs @ W1.T, 0.3)
            W2 = pm.Normal("W2", 0, 1, shape=3)
            observed = pm.Data("targets", Y) if targets else Y
            pm.Normal("y", pm.math.maximum(Z2, 0) @ W2, 0.1, observed=observed)
        return model

    return build


MODELS = {
    "by hand": by_hand(True),
    "by hand, fixed targets": by_hand(False),
    "noise": lambda: nns.intermediate_noise_mlp(X, Y),
    "noise, two outputs": lambda: nns.intermediate_noise_mlp(X, X),
    "probit": lambda: nns.intermediate_noise_mlp(X, Y > 0, likelihood="probit", start="prior"),
    "classes": lambda: nns.intermediate_noise_mlp(X, LABELS, likelihood="multinomial_probit"),
    "hierarchical": lambda: nns.hierarchical_mlp(X, Y),
    "categorical": lambda: nns.hierarchical_mlp(X, LABELS, likelihood="categorical"),
    "bow tie": lambda: nns.bow_tie(X, Y),
    "bow tie, prior": lambda: nns.bow_tie(X, Y, start="prior"),
    "wide": lambda: nns.wide_mlp(X, Y, hidden=(16,)),
    "wide, by columns": lambda: nns.wide_mlp(X, Y, hidden=(2,)),
    "wide, as it is": lambda: nns.wide_mlp(X, Y, hidden=(2,), reparametrize=False),
}


def steps(model):
    """Steps that need the observations, each on what it can draw."""
    yield lambda: nns.Gibbs(model=model)
    yield lambda: nns.PCN(["W1" if "W1" in model.named_vars else "bo"], model=model)
    continuous = [rv for rv in model.free_RVs if rv.dtype.startswith("float")]
    yield lambda: nns.MALA(continuous, model=model)


@pytest.mark.parametrize("name", MODELS)
def test_inputs_alone_were_exchanged(name):
    """Each step, before anything is compiled; and other inputs of the old size."""
    model = MODELS[name]()
    require_fitting_data(model)
    message = (
        r"its distribution has shape .*5.*; (replace inputs and .* together|give both)"
        r"|^inputs and targets differ.*; replace .*inputs.* together"
    )
    pm.set_data({"inputs": X[:5]}, model=model)
    for step in steps(model):
        with pytest.raises((ValueError, AssertionError), match=message):
            step()
    pm.set_data({"inputs": X + 1}, model=model)
    require_fitting_data(model)


@pytest.mark.filterwarnings("ignore:Data in:pymc.exceptions.ImputationWarning")
def test_other_inputs_where_targets_are_missing():
    """PyMC's IndexError about a mask, or targets of rows that are others."""
    model = nns.intermediate_noise_mlp(X, np.where(X > 0.5, np.nan, X), hidden=(2,))
    require_fitting_data(model)
    reason = r"y, which has missing .* shape \(8, 2\), but .* shape \({}, 2\); give inputs as many"
    for n_rows in (5, 16):
        pm.set_data({"inputs": np.resize(X, (n_rows, 2))}, model=model)
        for call in (lambda: nns.explain(model), *steps(model)):
            with pytest.raises(ValueError, match=reason.format(n_rows)):
                call()
    pm.set_data({"inputs": X + 1}, model=model)
    require_fitting_data(model)


def test_shapes_that_broadcast():
    """A common mean, a scalar, unknown shapes: none of these is wrong."""
    with pm.Model(coords={"row": range(8), "column": range(2)}) as model:
        a = pm.Normal("a")
        pm.Normal("scalar", a, 1, observed=1.0)
        pm.Normal("vector", a, 1, observed=Y)
        pm.Normal("rows", pm.math.stack([a, a]), 1, observed=X, dims=("row", "column"))
        pm.MvNormal("joint", [0.0, 1.0], np.eye(2), observed=X)
        pm.Multinomial("counts", 3, [0.5, 0.5], observed=[[1, 2], [3, 0]])
        pm.GaussianRandomWalk("walk", init_dist=pm.Normal.dist(a), observed=Y)
        pm.Mixture("mixture", [0.5, 0.5], [pm.Normal.dist(a), pm.Normal.dist(1)], observed=Y)
        pm.Censored("censored", pm.Normal.dist(a), lower=-1, upper=None, observed=np.maximum(Y, -1))
    require_fitting_data(model)


INPUTS = np.random.default_rng(0).normal(size=(20, 2))
TOTALS = INPUTS.sum(axis=1)


def minibatch(**options):
    x, y = pm.Minibatch(INPUTS, TOTALS, batch_size=5)
    pm.Normal("y", x @ pm.Normal("b", shape=2), 1, observed=y, **options)


def minibatch_of_a_vector():
    x, y = pm.Minibatch(INPUTS, INPUTS, batch_size=5)
    pm.MvNormal("y", x * pm.Normal("b", shape=2), np.eye(2), observed=y)


def prior_of_a_minibatch():
    b = pm.Normal("b", pm.Minibatch(INPUTS, batch_size=5).mean(0), 1, shape=2)
    pm.Normal("y", INPUTS @ b, 1, observed=TOTALS)


def mean():
    pm.Normal("y", INPUTS @ pm.Normal("b", shape=2) + pm.Normal.dist(shape=20), 1, observed=TOTALS)


def scale():
    pm.Normal("y", INPUTS @ pm.Normal("b", shape=2), pm.Gamma.dist(2, 2), observed=TOTALS)


def symbolic():
    noise = pm.Censored.dist(pm.Normal.dist(0, 1), -1, 1, shape=20)
    pm.Normal("y", INPUTS @ pm.Normal("b", shape=2) + noise, 1, observed=TOTALS)


def potential():
    pm.Potential("y", -((pm.Normal("b", shape=2) * pm.Normal.dist(shape=2)) ** 2).sum())


RANDOM = {
    "minibatch": (minibatch, "y"),
    "minibatch of a larger sample": (lambda: minibatch(total_size=20), "y"),
    "minibatch of a vector": (minibatch_of_a_vector, "y"),
    "prior": (prior_of_a_minibatch, "b"),
    "mean": (mean, "y"),
    "scale": (scale, "y"),
    "symbolic": (symbolic, "y"),
    "potential": (potential, "y"),
}


@pytest.mark.filterwarnings("ignore:total_size not provided")
@pytest.mark.parametrize("name", RANDOM)
def test_random_data(name):
    """Data that are drawn once for a whole chain, or again for each try."""
    build, where = RANDOM[name]
    with pm.Model() as model:
        build()
    message = f"^The log density of {where} is random: .* is redrawn"
    for kind in (nns.PCN, nns.PCNL, nns.MALA):
        with pytest.raises(ValueError, match=message):
            kind(["b"], model=model)
    for bound in ({}, {"log_bound": 0.0}):
        with pytest.raises(ValueError, match=message):
            nns.lab.rejection_sample(model, 1, progressbar=False, **bound)


@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
def test_what_a_distribution_is_made_of_is_no_random_data():
    """Components, a vector of which some entries are observed, and a shape are refused."""
    with pm.Model() as model:
        b = pm.Normal("b", shape=pm.Normal.dist(shape=2).shape)
        pm.Mixture(
            "m", [0.5, 0.5], [pm.Normal.dist(b[0], 1), pm.Normal.dist(0, 1)], observed=TOTALS
        )
        pm.Censored("c", pm.Normal.dist(INPUTS @ b, 1), -1, 1, observed=TOTALS.clip(-1, 1))
        pm.GaussianRandomWalk("w", init_dist=pm.Normal.dist(), steps=2)
        pm.MvNormal("y", b, np.eye(2), observed=np.ma.masked_array([0.0, 1.0], [False, True]))
    refuse_random_data(model)


def test_classes_of_which_some_are_missing():
    """Parameters have an axis of classes, which the observed entries have not."""
    classes = np.ma.masked_equal(np.arange(8) % 3, 1)
    with pm.Model() as model:
        utilities = X @ pm.Normal("W", shape=(2, 3))
        with pytest.warns(match="missing"):
            pm.Categorical("y", logit_p=utilities, observed=classes)
    require_fitting_data(model)
