"""The regression case of Neal's Flexible Bayesian Modelling software, ``rdata``.

100 cases of a function of one input; data and figures are read from the folder that is shared
beside the project.
"""

from pathlib import Path

import numpy as np

import pymc_nnsteps as nns

FOLDER = Path(__file__).parents[2] / "shared" / "reference" / "fbm"

MAIN_MODE = {"tau_ih1": 0.55, "tau_bh1": 0.04, "tau_h1o": 22.0, "tau_noise": 0.1}
"""Typical standard deviations. A chain from zero ends in the other mode, of mass 0.036."""

PARAMETERS = {"tau_ih1": "W_ih1", "tau_bh1": "bh1", "tau_h1o": "W_h1o"}


def rdata():
    x, y = np.loadtxt(FOLDER / "rdata_train.csv", delimiter=",", skiprows=1, unpack=True)
    priors = {"ih": "0.05:0.5", "bh": "0.05:0.5", "ho": "x0.05:0.5", "noise": "0.05:0.5", "bo": 100}
    return nns.hierarchical_mlp(x[:, None], y, hidden=(8,), priors=priors)


def start(model, seed):
    """Precisions of the main mode, and parameters at random to match."""
    rng = np.random.default_rng(seed)
    shapes = model.eval_rv_shapes()
    point = {name: sd**-2 for name, sd in MAIN_MODE.items()}
    for tau, name in PARAMETERS.items():
        point[name] = MAIN_MODE[tau] * rng.standard_normal(shapes[name])
    return point
