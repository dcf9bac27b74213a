"""Hyperparameters of bow-tie networks for joint distribution tests."""

from pymc_nnsteps.models import Shrinkage

_NUMBERS = {
    "student_t": {"nu_global": -3, "nu_local": -3, "delta_global": 2, "delta_local": 2},
    "laplace": {"lambda_global": 1.5, "lambda_local": 1.5},
    "normal_gamma": {"nu_global": 2, "nu_local": 1.5, "lambda_global": 2, "lambda_local": 2},
    "nig": {"delta_global": 1, "delta_local": 1.2, "lambda_global": 1.4, "lambda_local": 1},
    "gaussian": {"weight_var": 0.8},
}

LIGHT = {family: Shrinkage(family, **numbers) for family, numbers in _NUMBERS.items()}
"""Priors under which weights, gates and the data are all in doubt."""
