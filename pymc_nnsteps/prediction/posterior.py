"""Stored draws in the model's order, and predictions with their labels, as ArviZ has them."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pymc.backends.arviz import coords_and_dims_for_inferencedata
from pytensor.graph.basic import Variable
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import in_type, positive_integer
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.tables import Table

SAMPLES = ("chain", "draw")


def posterior_of(idata: Any) -> xr.Dataset:
    """The posterior in the result of ``pm.sample``, or this itself."""
    if isinstance(idata, pm.Model):
        raise ValueError(
            "idata must be the result of pm.sample; got a model, which is to be passed as model=."
        )
    if isinstance(idata, xr.DataTree):
        idata = idata.children.get("posterior", idata).to_dataset()
    if not isinstance(idata, xr.Dataset) or not {"chain", "draw"} <= set(idata.dims):
        is_trace = isinstance(idata, pm.backends.base.MultiTrace)
        raise ValueError(
            "idata has no posterior with the dimensions chain and draw; pass the result of "
            f"pm.sample{' without return_inferencedata=False' if is_trace else ''}."
        )
    return idata


def posterior_with_draws(idata: Any) -> xr.Dataset:
    """The posterior, for readers to which one without draws tells nothing."""
    posterior = posterior_of(idata)
    n_chains, n_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    if n_chains * n_draws == 0:
        raise ValueError(
            f"idata has no draws: its posterior has {n_chains} chains of {n_draws}; pass the "
            "result of pm.sample, or a part of it that keeps draws."
        )
    return posterior


def others_of(idata: Any) -> dict[str, xr.Dataset]:
    """The groups beside the posterior in the result of ``pm.sample``."""
    if not isinstance(idata, xr.DataTree) or "posterior" not in idata.children:
        return {}
    return {name: node.to_dataset() for name, node in idata.children.items() if name != "posterior"}


def sampled_rows(idata: Any, model: pm.Model, container: TensorSharedVariable) -> NDArray[Any]:
    """Values of a data container when the model was sampled, where the result tells, or now."""
    values: NDArray[Any] = container.get_value()
    stored: Any = others_of(idata).get("constant_data", {})
    if container.name not in stored:
        return values
    sampled = with_columns_of(model, stored[container.name]).values
    if sampled.shape[1:] != values.shape[1:]:
        raise ValueError(
            f"idata has {container.name} of shape {sampled.shape}, but the model of shape "
            f"{values.shape}; pass the model that was sampled."
        )
    return in_type(sampled, container.dtype)


def with_columns_of(model: pm.Model, stored: xr.DataArray, rows: int = 0) -> xr.DataArray:
    """Stored data with axes, and entries but those of rows, in the model's order, if named."""
    dims = model.named_vars_to_dims.get(str(stored.name)) or ()
    if set(stored.dims) != set(dims):
        return stored
    stored = stored.transpose(*dims)
    for dim in set(dims) - {dims[rows]}:
        stored = _relabelled(str(stored.name), stored, dim, model.coords.get(dim))
    return stored


def stored_draws(
    posterior: xr.Dataset, model: pm.Model, weights: Mapping[TensorVariable, TensorVariable]
) -> list[np.ndarray]:
    """Draws (n_draws, ...) of variables, with axes and entries in the model's order.

    These are found by the names of dimensions and by labels, where the model knows any.
    """
    missing = [describe(variable) for variable in weights if variable.name not in posterior]
    if missing:
        raise ValueError(
            f"idata lacks {', '.join(missing)}; store what is needed, with "
            f"pm.sample(var_names={[variable.name for variable in weights]}), or pass the model "
            "that was sampled."
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
    draws = stored.values.reshape((-1, *shape))
    if n_wrong := int(np.isnan(draws).any(axis=tuple(range(1, draws.ndim))).sum()):
        raise ValueError(
            f"idata has NaN in {name} at {n_wrong} draws; leave these draws out, and merge chains "
            'of different lengths by xr.concat(..., "chain", join="inner").'
        )
    return np.asarray(draws, variable.dtype)


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


def thinned(
    posterior: xr.Dataset, num_samples: int | None, name: str = "num_samples"
) -> xr.Dataset:
    """Evenly spaced draws of each chain, at most this many of all chains together; None: all."""
    if num_samples is None or posterior.sizes["chain"] == 0:
        return posterior
    wanted = positive_integer(name, num_samples) // posterior.sizes["chain"]
    if wanted == 0:
        raise ValueError(
            f"{name} must be at least the number of chains, {posterior.sizes['chain']}; got "
            f"{num_samples}."
        )
    kept = np.linspace(0, posterior.sizes["draw"] - 1, min(wanted, posterior.sizes["draw"]))
    return posterior.isel(draw=np.unique(kept.round().astype(int)))


def unstacked(idata: Any) -> tuple[xr.Dataset, pd.Index | None]:
    """The posterior with dimensions chain and draw, and the labels of stacked samples."""
    if isinstance(idata, xr.DataArray) and idata.name is not None:
        idata = idata.to_dataset()
    if not isinstance(idata, xr.Dataset) or "sample" not in idata.dims:
        return posterior_of(idata), None
    samples = idata["sample"].to_index()
    bare = idata.drop_vars(["sample", *SAMPLES], errors="ignore").rename(sample="draw")
    coords = {"chain": [0], "draw": np.arange(len(samples))}
    return bare.expand_dims("chain").assign_coords(coords), samples


def stacked(values: xr.DataArray, samples: pd.Index | None, posterior: xr.Dataset) -> xr.DataArray:
    """Undo :func:`unstacked` for what was computed (chain, draw, ...) from the posterior."""
    if samples is None:
        return values
    flat = values.isel(chain=0, drop=True).drop_vars("draw").rename(draw="sample")
    kept = samples[posterior["draw"].values]
    if isinstance(kept, pd.MultiIndex):
        return flat.assign_coords(xr.Coordinates.from_pandas_multiindex(kept, "sample"))
    return flat.assign_coords(sample=kept)


def as_tree(model: pm.Model, groups: Mapping[str, Mapping[str, Any]]) -> xr.DataTree:
    """Groups of a trace, of arrays (chain, draw, ...), with the model's dimensions and labels."""
    from arviz_base import from_dict

    coords, dims = coords_and_dims_for_inferencedata(model)
    found = {name: group for name, group in groups.items() if group}
    return from_dict(found, coords=coords, dims=dims)


def holds(own: NDArray[Any], X: NDArray[Any]) -> bool:
    """Whether rows are those of a data container, which has numbers for missing entries too."""
    return X.shape == own.shape and np.array_equal(
        np.where(np.isnan(X), own, X), own, equal_nan=True
    )


def labelled(
    values: np.ndarray,
    name: str,
    model: pm.Model,
    table: Table,
    posterior: xr.Dataset,
    container: TensorSharedVariable,
) -> xr.DataArray:
    """Values of all draws, rows and outputs with the labels of each."""
    shape = posterior.sizes["chain"], posterior.sizes["draw"], *values.shape[1:]
    values = values.reshape(shape if values.ndim == 3 else (*shape, 1))
    coords: dict[Hashable, Any] = {
        "chain": posterior["chain"].values,
        "draw": posterior["draw"].values,
    }
    [of_rows, *_] = model.named_vars_to_dims.get(str(container.name)) or (None,)
    rows = table.rows
    if rows is None and holds(container.get_value(borrow=True), table.values):
        labels = model.coords.get(of_rows)
        rows = None if labels is None else pd.Index(labels)
    if rows is not None:
        coords["obs"] = rows if rows.nlevels > 1 else rows.rename("obs")
    seen = [str(rv.name) for rv in model.observed_RVs] if len(model.observed_RVs) == 1 else []
    tables = [model.named_vars_to_dims.get(each) or () for each in (name, *seen)]
    dims = [dim for own in tables if len(own) == 2 and of_rows in own for dim in own]
    for dim in ("output", *(["class"] if name == "p" else ()), *dims):
        labels = None if dim == of_rows else model.coords.get(dim)
        if labels is not None and len(labels) == values.shape[-1]:
            coords["output"] = list(labels)
            break
    return xr.DataArray(values, dims=("chain", "draw", "obs", "output"), coords=coords, name=name)


def add_predictions(
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
        labels = {dim: list(model.coords[dim]) for dim in dims[1:] if model.coords.get(dim)}
        rows[data.name] = xr.DataArray(values, labels, dims)
    of_rows = {"obs": predicted["obs"]} if "obs" in predicted.coords else {}
    groups = {
        "predictions": (predicted.to_dataset(), SAMPLES),
        "predictions_constant_data": (xr.Dataset(rows).assign_coords(of_rows), ()),
    }
    for name, (group, samples) in groups.items():
        attributes = make_attrs(inference_library=pm, sample_dims=samples)
        idata[name] = xr.DataTree(group.assign_attrs(attributes))
