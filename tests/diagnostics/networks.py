"""Networks of all kinds, and exact draws from their priors."""

import numpy as np
import pymc as pm
import xarray as xr

import pymc_nnsteps as nns

RNG = np.random.default_rng(0)
X, X_NEW = RNG.normal(size=(12, 2)), RNG.normal(size=(5, 2))
Y = np.abs(X[:, 0])


def by_hand():
    with pm.Model() as model:
        inputs = pm.Data("inputs", X)
        W, v = pm.Normal("W", shape=(2, 3)), pm.Normal("v", shape=3)
        s = pm.HalfNormal("s")
        pm.Normal("y", pm.math.tanh(inputs @ W) @ v, s, observed=Y)
    return model


NETWORKS = {
    "by hand": by_hand,
    "intermediate_noise_mlp": lambda: nns.intermediate_noise_mlp(X, Y, hidden=(3,), noise=0.5),
    "hierarchical_mlp": lambda: nns.hierarchical_mlp(X, Y, hidden=(3,)),
    "bow_tie": lambda: nns.bow_tie(X, Y, hidden=(3,)),
    "wide_mlp": lambda: nns.wide_mlp(X, Y, hidden=(8,)),
}


def prior(model, n_chains, n_draws, seed=1):
    """Exact and independent draws from the prior, as chains."""
    with model:
        tree = pm.sample_prior_predictive(
            n_chains * n_draws, random_seed=seed, compile_kwargs={"mode": "FAST_COMPILE"}
        )
    flat = tree["prior"].to_dataset().isel(chain=0, drop=True)
    index = {"chain": range(n_chains), "draw": range(n_draws)}
    stacked = flat.drop_vars("draw").coarsen(draw=n_draws).construct(draw=("chain", "draw"))
    return stacked.assign_coords(index)


def line(slopes):
    """A model ``y = w x`` and given draws of ``w``: ``f`` at 1 is ``w``."""
    with pm.Model() as model:
        x = pm.Data("inputs", np.ones((3, 1)))
        w = pm.Normal("w")
        pm.Normal("y", x[:, 0] * w, 1, observed=np.zeros(3))
    return model, xr.Dataset({"w": (("chain", "draw"), slopes)})


def independent(seed=0, shape=(4, 500)):
    return np.random.default_rng(seed).normal(size=shape)
