"""Draws that no sampler made, to predict with."""

import numpy as np
import pytensor
import xarray as xr


def made_up(model, n_draws=2, scale=1.0):
    """Draws of all that is no latent variable."""
    rng = np.random.default_rng(4)
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        point = model.initial_point(0)
    stored = {}
    for rv in model.free_RVs:
        value = model.rvs_to_values[rv].name
        unnamed = [f"{rv.name}_dim_{axis}" for axis in range(rv.ndim)]
        dims = model.named_vars_to_dims.get(rv.name, unnamed)
        if "obs" not in dims:
            numbers = scale * rng.normal(size=(1, n_draws, *point[value].shape))
            numbers = numbers if value == rv.name else np.exp(numbers)
            stored[rv.name] = ("chain", "draw", *dims), numbers
    return xr.Dataset(stored, {"chain": [0], "draw": np.arange(n_draws)})
