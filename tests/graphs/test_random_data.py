"""Random data: log densities that are another at each evaluation are refused by all."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.graphs.random_data import refuse_random_data

X = np.random.default_rng(0).normal(size=(20, 2))
Y = X.sum(axis=1)


def minibatch(**options):
    x, y = pm.Minibatch(X, Y, batch_size=5)
    pm.Normal("y", x @ pm.Normal("b", shape=2), 1, observed=y, **options)


def minibatch_of_a_vector():
    x, y = pm.Minibatch(X, X, batch_size=5)
    pm.MvNormal("y", x * pm.Normal("b", shape=2), np.eye(2), observed=y)


def prior_of_a_minibatch():
    b = pm.Normal("b", pm.Minibatch(X, batch_size=5).mean(0), 1, shape=2)
    pm.Normal("y", X @ b, 1, observed=Y)


def mean():
    pm.Normal("y", X @ pm.Normal("b", shape=2) + pm.Normal.dist(shape=20), 1, observed=Y)


def scale():
    pm.Normal("y", X @ pm.Normal("b", shape=2), pm.Gamma.dist(2, 2), observed=Y)


def symbolic():
    noise = pm.Censored.dist(pm.Normal.dist(0, 1), -1, 1, shape=20)
    pm.Normal("y", X @ pm.Normal("b", shape=2) + noise, 1, observed=Y)


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
    message = f"^The log density of {where} is random: .* is drawn anew"
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
        pm.Mixture("m", [0.5, 0.5], [pm.Normal.dist(b[0], 1), pm.Normal.dist(0, 1)], observed=Y)
        pm.Censored("c", pm.Normal.dist(X @ b, 1), -1, 1, observed=Y.clip(-1, 1))
        pm.GaussianRandomWalk("w", init_dist=pm.Normal.dist(), steps=2)
        pm.MvNormal("y", b, np.eye(2), observed=np.ma.masked_array([0.0, 1.0], [False, True]))
    refuse_random_data(model)
