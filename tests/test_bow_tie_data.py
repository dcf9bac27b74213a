"""A bow-tie network on real data: errors and coverage beside a linear fit and published figures.

One random 90/10 split, inputs standardised. Published, of ten other splits: Sheinkman
and Wade, *Variational Bayesian Bow tie Neural Networks with Shrinkage*, Tables 3 and 4.
"""

import numpy as np
import pymc as pm
import pytest
from sklearn.linear_model import LassoCV
from sklearn.model_selection import train_test_split

import pymc_nnsteps as nns
from tests.benchmarks.problems import SHARED

pytestmark = pytest.mark.release


def test_boston():
    """RMSE beside the lasso's and the published one; the share of targets in 95 % intervals."""
    path = SHARED / "data" / "boston.csv"
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    X, X_test, y, y_test = train_test_split(
        table[:, :-1], table[:, -1], test_size=0.1, random_state=42
    )
    mean, sd = X.mean(axis=0), X.std(axis=0)
    X, X_test = (X - mean) / sd, (X_test - mean) / sd
    lasso = LassoCV().fit(X, y).predict(X_test)
    with nns.bow_tie(X, y, hidden=(50,)) as model:
        kept = [rv.name for rv in model.free_RVs if rv.name not in ("gamma1", "a1")]
        idata = pm.sample(
            700,
            tune=700,
            chains=2,
            cores=1,
            var_names=kept,
            random_seed=42,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
        pm.set_data({"inputs": X_test})
        outcomes = pm.sample_posterior_predictive(
            idata, predictions=True, random_seed=0, progressbar=False
        )["predictions"]["y"]
    functions = nns.predict(idata, X_test, model=model).mean(("chain", "draw")).values[:, 0]
    centre = outcomes.mean(("chain", "draw")).values
    within = abs(y_test - centre) < 1.96 * outcomes.std(("chain", "draw")).values
    ours, theirs = (np.sqrt(np.mean((f - y_test) ** 2)) for f in (functions, lasso))
    assert ours < 0.85 * theirs
    assert ours < 3.47 + 0.8
    assert np.mean(within) >= 0.88
