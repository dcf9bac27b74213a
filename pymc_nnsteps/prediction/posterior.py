"""What a chain has stored of a model's variables, put in the order that the model has."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.names import describe

SAMPLES = ("chain", "draw")


def posterior_of(idata: Any) -> xr.Dataset:
    """The posterior in the result of ``pm.sample``, or this itself."""
    if isinstance(idata, xr.DataTree):
        idata = idata.children.get("posterior", idata).to_dataset()
    if not isinstance(idata, xr.Dataset) or not {"chain", "draw"} <= set(idata.dims):
        raise ValueError(
            "idata has no posterior with the dimensions chain and draw; pass the result of "
            "pm.sample."
        )
    return idata


def stored_draws(
    posterior: xr.Dataset, model: pm.Model, weights: Mapping[TensorVariable, TensorVariable]
) -> list[np.ndarray]:
    """Draws of variables, with axes and entries in the model's order.

    Axes and entries are found by the names of dimensions and by their labels. Only where no
    dimension of a variable has a name that the model knows are axes taken as they are.

    Parameters
    ----------
    posterior : Dataset
    model : pm.Model
    weights : mapping from TensorVariable to TensorVariable
        Variables of the model, and a variable of the type that their draws are to have.

    Returns
    -------
    list of ndarray, shape (n_draws, ...)

    Raises
    ------
    ValueError
        If a variable is missing, or has other dimensions, labels or lengths than in the model.
    """
    missing = [describe(variable) for variable in weights if variable.name not in posterior]
    if missing:
        raise ValueError(
            f"idata lacks {', '.join(missing)}; store what is needed, with "
            f"pm.sample(var_names={[variable.name for variable in weights]})."
        )
    return [
        _draws(posterior[variable.name], variable, like, model)
        for variable, like in weights.items()
    ]


def _draws(
    stored: xr.DataArray, variable: TensorVariable, like: TensorVariable, model: pm.Model
) -> np.ndarray:
    name = describe(variable)
    own = {dim for dim in stored.dims if dim not in SAMPLES}
    unnamed = [f"{variable.name}_dim_{axis}" for axis in range(variable.ndim)]
    stated = model.named_vars_to_dims.get(variable.name) or (None,) * variable.ndim
    dims = [other if dim is None else dim for dim, other in zip(stated, unnamed, strict=True)]
    if own == set(unnamed):
        dims = unnamed
    if own == set(dims):
        stored = stored.transpose(*SAMPLES, *dims)
        for dim in dims:
            stored = _relabelled(name, stored, dim, model.coords.get(dim))
    elif own.isdisjoint({*model.dim_lengths, *dims}):
        stored = stored.transpose(*SAMPLES, ...)
    else:
        raise ValueError(
            f"idata has {name} with the dimensions {sorted(map(str, own))}, but the model with "
            f"{dims}; pass the model that was sampled."
        )
    shape = stored.shape[2:]
    if not like.type.is_super(like.type.clone(shape=shape)):
        raise ValueError(
            f"idata has {name} of shape {shape}, but the model of shape {like.type.shape}; pass "
            "the model that was sampled."
        )
    return np.asarray(stored.values, variable.dtype).reshape((-1, *shape))


def _relabelled(
    name: str, stored: xr.DataArray, dim: str, labels: Sequence[object] | None
) -> xr.DataArray:
    """Draws whose entries along a dimension are those of the model's labels, in their order."""
    own = stored.indexes.get(dim)
    if own is None:
        return stored
    wanted = pd.RangeIndex(len(own)) if labels is None else pd.Index(labels)
    if own.equals(wanted):
        return stored
    if not own.is_unique or len(own) != len(wanted) or not own.isin(wanted).all():
        raise ValueError(
            f"idata has {name} with other labels of {dim} than the model, {list(wanted)}; got "
            f"{list(own)}; pass the model that was sampled and all of its entries."
        )
    return stored.isel({dim: own.get_indexer(wanted)})
