"""Small networks of each family, and laws of their weights some sweeps after a start."""

import numpy as np

import pymc_nnsteps as nns
from pymc_nnsteps.variational.ascent import start_layers, update_layers, update_scales
from pymc_nnsteps.variational.reading import read_model
from pymc_nnsteps.variational.rows import forward_gates, sweep_rows

FAMILIES = {
    "student_t": {"nu_global": -2.2, "nu_local": -1.7, "delta_global": 1.3, "delta_local": 0.8},
    "laplace": {"lambda_global": 1.5, "lambda_local": 1.1},
    "normal_gamma": {"nu_global": 2, "nu_local": 0.7, "lambda_global": 1.8, "lambda_local": 1.2},
    "nig": {"delta_global": 1, "delta_local": 1.2, "lambda_global": 1.4, "lambda_local": 0.9},
    "gaussian": {"weight_var": 0.8},
}


def small_model(family, hidden, *, n_obs=12, n_outputs=1, seed=0, **options):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_obs, 2))
    y = np.abs(X[:, :n_outputs]) + 0.3 * rng.normal(size=(n_obs, n_outputs))
    options = {"temperature": 0.5, "bias_var": 0.7, "hidden_beta": 0.2, "noise_beta": 0.3} | options
    shrinkage = nns.models.Shrinkage(family, **FAMILIES[family])
    return nns.bow_tie(X, y, hidden=hidden, shrinkage=shrinkage, **options)


def some_sweeps(model, sweeps=3, seed=1):
    """The reading of a model, laws of its layers and gates, and the sums over rows."""
    reading = read_model(model)
    network, x, y = reading.network, reading.inputs, reading.targets
    layers = start_layers(network, x, y, "laplace", np.random.default_rng(seed), len(x))
    gates, sums = forward_gates(network, layers, x), None
    for _ in range(sweeps):
        gates, sums = sweep_rows(network, layers, x, y, gates)
        layers = update_layers(network, layers, sums)
        layers = [update_scales(*pair) for pair in zip(network.layers, layers, strict=True)]
    return reading, layers, gates, sums
