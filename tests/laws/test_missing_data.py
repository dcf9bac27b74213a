"""Missing entries: PyMC's own imputation, of targets and of inputs, in the laws that there are."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns

RNG = np.random.default_rng(0)
pytestmark = pytest.mark.filterwarnings("ignore:Data in:pymc.exceptions.ImputationWarning")


def holed(array, share=0.2):
    """An array with missing entries."""
    return np.where(RNG.random(array.shape) < share, np.nan, array)


def factor_model(n=20, p=4):
    loadings = RNG.normal(size=p)
    Y = np.outer(RNG.normal(size=n), loadings) + 0.3 * RNG.normal(size=(n, p))
    with pm.Model() as model:
        F, L = pm.Normal("F", shape=(n, 1)), pm.Normal("L", shape=(p, 1))
        variance = pm.InverseGamma("variance", 2, 0.2)
        pm.Normal("y", F @ L.T, pt.sqrt(variance), observed=holed(Y))
    return model


def inputs_and_targets():
    X = RNG.normal(size=(9, 3))
    y = np.stack([X @ [1.0, -1.0, 0.5], X @ [0.0, 1.0, 1.0]], axis=1)
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", shape=3), pm.Gamma("tau", 2, 1, shape=3)
        inputs = pm.Normal("X", mu, tau=tau, observed=holed(X))
        w, b = pm.Normal("w", shape=(2, 3)), pm.Normal("b", shape=2)
        pm.Normal("y", inputs @ w.T + b, 0.3, observed=holed(y))
        u = pm.Normal("u", shape=9)
        pm.Bernoulli(
            "z", logit_p=u, observed=np.ma.masked_array(np.arange(9) % 2, np.arange(9) < 1)
        )
    return model


@pytest.mark.parametrize("build", [factor_model, inputs_and_targets])
def test_imputed_entries_and_what_they_depend_on(build):
    """An entry of another row or column, an observed entry that is left out."""
    model = build()
    drawn = {name for row in nns.verify(model, random_seed=0).rows for name in row[0].split(", ")}
    assert {rv.name for rv in model.free_RVs} - drawn <= {"z_unobserved"}
