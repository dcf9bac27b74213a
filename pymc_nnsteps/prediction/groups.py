"""Predictions as groups of the result of ``pm.sample``, by ArviZ's schema."""

from collections.abc import Mapping

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph.basic import Variable

from pymc_nnsteps.prediction.posterior import SAMPLES


def extend(
    idata: xr.DataTree,
    predicted: xr.DataArray,
    given: Mapping[Variable, object],
    model: pm.Model,
) -> None:
    """Add predictions and their rows to the result of ``pm.sample``."""
    from arviz_base import make_attrs

    rows = {}
    for data, values_given in given.items():
        values, own = np.asarray(values_given), model.named_vars_to_dims.get(str(data.name)) or ()
        more = own[1:] or [f"{data.name}_dim_{axis}" for axis in range(1, values.ndim)]
        dims = ["obs", *map(str, more)][: values.ndim]
        rows[data.name] = xr.DataArray(values, dims=dims)
        for dim in dims[1:]:
            if (labels := model.coords.get(dim)) is not None:
                rows[data.name] = rows[data.name].assign_coords({dim: list(labels)})
    of_rows = {"obs": predicted["obs"]} if "obs" in predicted.coords else {}
    groups = {
        "predictions": (predicted.to_dataset(), SAMPLES),
        "predictions_constant_data": (xr.Dataset(rows).assign_coords(of_rows), ()),
    }
    for name, (group, samples) in groups.items():
        attributes = make_attrs(inference_library=pm, sample_dims=samples)
        idata[name] = xr.DataTree(group.assign_attrs(attributes))
