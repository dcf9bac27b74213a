"""Effects of groups with a MvNormal prior, each vector of them drawn with a matrix of its own."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.laws import multivariate

RNG = np.random.default_rng(6)
GROUPS = np.array([0, 1, 2, 3, 0, 1, 1, -1])
x = RNG.normal(size=8)


def test_laws_are_those_of_the_model(monkeypatch):
    """Effects of another group, a prior mean or matrix that is lost, rows of a dense design."""
    with pm.Model() as model:
        sd = pm.Exponential.dist(1.0, shape=2)
        chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sd)
        mu = pm.Normal("mu", shape=2)
        b = pm.MvNormal("b", mu, chol=chol, shape=(4, 2))
        pm.Normal("y", b[GROUPS, 0] + b[GROUPS, 1] * x, 0.5, observed=x)
        pm.Bernoulli("z", logit_p=(b[GROUPS] * RNG.normal(size=(8, 2))).sum(-1), observed=x > 0)
        factor = np.tril(RNG.normal(size=(3, 3))) + 2 * np.eye(3)
        c = pm.MvNormal("c", [0.0, 1, 2], chol=factor, shape=(5, 3))
        pm.Normal("of c", c @ RNG.normal(size=(3, 2)), 0.7, observed=RNG.normal(size=(5, 2)))
        d = pm.MvNormal("d", np.zeros(2), np.eye(2), shape=(3, 2))
        pm.Normal("of d", d.sum(0), 1, observed=[0.0, 1.0])
    found = {name: law for name, law, _ in nns.verify(model, random_seed=0).rows}
    by_label = "multivariate Gaussian by label"
    assert found == {
        "mu": "multivariate Gaussian",
        "b": by_label,
        "c": by_label,
        "d": "multivariate Gaussian",
    }
    exact = multivariate.evidence_of
    monkeypatch.setattr(
        multivariate,
        "evidence_of",
        lambda members, seen: exact(members, replace(seen, precision=2 * seen.precision)),
    )
    with pytest.raises(AssertionError, match="b: the log density of its conditional differs"):
        nns.verify(model, random_seed=0)
