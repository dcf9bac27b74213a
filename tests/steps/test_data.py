"""Data that were exchanged in part: a clear sentence before sampling, nothing where all is well."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.steps.data import require_matching_data

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 2))
Y = X[:, 0] + 0.1 * RNG.normal(size=8)
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
    require_matching_data(model)
    message = r"(data give it .*5.*|^inputs and targets differ.*); exchange .*inputs.* together"
    pm.set_data({"inputs": X[:5]}, model=model)
    for step in steps(model):
        with pytest.raises((ValueError, AssertionError), match=message):
            step()
    pm.set_data({"inputs": X + 1}, model=model)
    require_matching_data(model)


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
    require_matching_data(model)
