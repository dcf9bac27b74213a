"""Finding the PyMC model to add a network to, and checking that its names and dims fit.

A builder called inside ``with pm.Model(...)`` adds to that model. Everything that can go wrong
is checked before the first variable is added, so a failed call leaves the model as it was.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
from pymc.exceptions import ImputationWarning

from pymc_nnsteps.models.model import Model

__all__ = [
    "Dim",
    "add_dims",
    "add_rehearsed",
    "check_dims",
    "check_names",
    "current_or_new_model",
    "layer_dims",
    "rehearsed",
]


@dataclass(frozen=True)
class Dim:
    """The length of a named dimension and the labels along it, if the data carry any."""

    length: int
    labels: tuple[object, ...] | None = None


def layer_dims(
    units: Sequence[int],
    features: tuple[object, ...] | None,
    outputs: tuple[object, ...] | None,
) -> dict[str, Dim]:
    """Dimensions of a network's layers: ``"feature"``, ``"hidden1"``, ..., ``"output"``.

    ``units`` are the widths of the layers, ``features`` and ``outputs`` labels of the outer ones.
    """
    n_hidden = len(units) - 2
    names = ("feature", *(f"hidden{layer}" for layer in range(1, n_hidden + 1)), "output")
    labels = (features, *(None,) * n_hidden, outputs)
    return dict(zip(names, map(Dim, units, labels), strict=True))


def current_or_new_model() -> pm.Model:
    """Return the model whose context is open, or a new one."""
    return pm.Model.get_context(error_if_none=False) or Model()


def check_names(
    model: pm.Model,
    variables: Iterable[str],
    dims: Iterable[str],
    advice: str = 'build this network in its own model or inside pm.Model(name="...")',
) -> None:
    """Check that new variables and dimensions do not clash with names the model has.

    A dimension may exist already, a variable may not. ``advice`` is what to do about a clash.
    """
    known, variables = model.named_vars, list(variables)
    of_dims = [name for name in variables if model.name_for(name) in model.coords]
    of_variables = [name for name in dims if known.tree_contains(name)]
    taken = [n for n in variables if n in of_dims or known.tree_contains(model.name_for(n))]
    taken += of_variables
    if taken:
        kinds = [f"{name!r} is a dimension" for name in of_dims]
        kinds += [f"{name!r} is a variable, not the dimension needed" for name in of_variables]
        where = f", where {', '.join(kinds)}" if kinds else ""
        raise ValueError(f"The model already has the names {taken}{where}; {advice}.")


def check_dims(model: pm.Model, dims: Mapping[str, Dim]) -> None:
    """Check that dimensions the model already has agree with those of the data."""
    for name, dim in dims.items():
        if name not in model.dim_lengths:
            continue
        length = int(model.dim_lengths[name].eval())
        if length != dim.length:
            raise ValueError(
                f'coords "{name}" of the model has length {length}, but this network needs '
                f"{dim.length}; pass coords of that length or rename the dimension."
            )
        given = model.coords[name]
        if given is not None and dim.labels is not None and tuple(given) != dim.labels:
            raise ValueError(
                f'coords "{name}" of the model is {list(given)}, but the data say '
                f"{list(dim.labels)}; make them equal or leave one out."
            )


def add_dims(model: pm.Model, dims: Mapping[str, Dim]) -> None:
    """Add the dimensions that the model does not have yet; ArviZ numbers those without labels."""
    for name, dim in dims.items():
        if name not in model.dim_lengths:
            model.add_coord(name, dim.labels, length=dim.length)


def rehearsed(build: Callable[[], object], dims: Mapping[str, Dim]) -> pm.Model:
    """What ``build`` adds to a model, added to one of its own with these dimensions.

    Its names are known then, and whatever goes wrong has gone wrong outside of the model around.
    """
    with pm.Model(model=None) as alone, warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)  # the model itself warns
        add_dims(alone, dims)
        build()
    return alone


def _forget_data(model: pm.Model) -> None:
    """Free a model's data, which would stay until Python looks for cycles of references."""
    for container in model.data_vars:
        container.set_value(np.empty((0,) * container.ndim, container.dtype), borrow=True)


def add_rehearsed(build: Callable[[], object], dims: Mapping[str, Dim], n_obs: int) -> pm.Model:
    """Add a network to the model whose context is open, or to a new one.

    ``dims`` are the dimensions that it needs beside that of the ``n_obs`` rows.
    """
    alone = rehearsed(build, dims)
    variables = list(alone.named_vars)
    _forget_data(alone)
    every_dim = {"obs": Dim(n_obs), **dims}
    model = current_or_new_model()
    check_names(model, variables, every_dim)
    check_dims(model, every_dim)
    with model:
        add_dims(model, dims)
        build()
    return model
