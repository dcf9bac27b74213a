"""The model that a network is added to: its names and dimensions, and the builder's call.

A builder called inside ``with pm.Model(...)`` adds to that model. Everything that can go wrong
is checked before the first variable is added, so a failed call leaves the model as it was.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple, override
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
from pymc.exceptions import ImputationWarning
from pytensor import config

from pymc_nnsteps.compile.compiling import (
    c_by_default,
    drawing,
    without_blas_notice,
    without_bookkeeping,
)


class Model(pm.Model):
    """A PyMC model whose functions compile faster, with C++ in place of Numba.

    Builders create such models. Use it in place of ``pm.Model`` for a network of your own, or for
    blocks. Before the first draw PyMC compiles the quantities that a trace computes from each draw,
    for which Numba takes some four seconds with a product of matrices and more with a
    factorisation.

    Parameters
    ----------
    *args, **kwargs
        As for :class:`pymc.Model`.

    Notes
    -----
    This applies to functions that PyMC compiles by ``model.compile_fn`` without a mode: those of
    traces, of ``pm.sample_prior_predictive`` and ``pm.sample_posterior_predictive``,
    ``compile_logp`` and ``compile_dlogp``, ``point_logps``. ``pm.sample`` compiles NUTS by
    ``backend=`` and ``compile_kwargs=`` as for any model. If PyTensor's ``mode`` or ``linker`` is
    configured, it takes precedence.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_nnsteps as nns
    >>> x = np.linspace(-1, 1, 20)[:, None]
    >>> with nns.Model() as model:
    ...     f = nns.blocks.hierarchical(x, hidden=(4,))
    ...     y = pm.Normal("y", f, 0.1, observed=x[:, 0] ** 2)
    >>> model.compile_logp()(model.initial_point()).shape
    ()
    """

    @override
    @without_bookkeeping()
    def compile_fn(self, outs: Any, *, mode: Any = None, **kwargs: Any) -> Any:
        """Compile a function of the model's variables, with C++ unless a mode is given."""
        if mode is None and (config.mode, config.linker) == ("Mode", "auto"):
            mode = drawing(c_by_default())["mode"]
        with without_blas_notice():
            return super().compile_fn(outs, mode=mode, **kwargs)


@dataclass(frozen=True)
class Dim:
    """The length of a named dimension and the labels along it, if the data carry any."""

    length: int
    labels: tuple[object, ...] | None = None


def check_names(
    model: pm.Model,
    variables: Iterable[str],
    dims: Iterable[str],
    advice: str = 'build this network in its own model or inside pm.Model(name="...")',
) -> None:
    """Check that new variables, and lengths of dimensions, do not clash with the model's."""
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


def check_dims(
    model: pm.Model, dims: Mapping[str, Dim], advice: str = "rename the dimension"
) -> None:
    """Check that dimensions the model already has agree with those of the data."""
    for name, dim in dims.items():
        if name not in model.dim_lengths:
            continue
        length = int(model.dim_lengths[name].eval())
        if length != dim.length:
            raise ValueError(
                f'coords "{name}" of the model has length {length}, but this network needs '
                f"{dim.length}; pass coords of that length or {advice}."
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
    """What ``build`` adds to a model of its own: its names, or whatever goes wrong outside."""
    with pm.Model(model=None) as alone, warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)  # the model itself warns
        add_dims(alone, dims)
        build()
    return alone


def add_rehearsed(build: Callable[[], object], dims: Mapping[str, Dim], n_obs: int) -> pm.Model:
    """Add a network of these ``dims`` and rows to the model whose context is open, or a new one."""
    alone = rehearsed(build, dims)
    variables = list(alone.named_vars)
    for container in alone.data_vars:  # they would stay until Python looks for cycles
        container.set_value(np.empty((0,) * container.ndim, container.dtype), borrow=True)
    every_dim = {"obs": Dim(n_obs), **dims}
    model = pm.Model.get_context(error_if_none=False) or Model()
    check_names(model, variables, every_dim)
    check_dims(model, every_dim)
    with model:
        add_dims(model, dims)
        build()
    return model


@dataclass(frozen=True)
class Stack:
    """Layers of a network, from the inputs (0) to the outputs."""

    units: tuple[int, ...]  # their widths
    unit_dims: tuple[str, ...]  # their dimensions
    row_dim: str | None  # the dimension of the rows; None if it has no name

    @property
    def n_layers(self) -> int:
        """Number of layers of weights."""
        return len(self.units) - 1

    def of_weights(self, layer: int) -> tuple[tuple[int, int], tuple[str, str]]:
        """Shape (fan_out, fan_in) and dimensions of the weights that lead into a layer."""
        units, dims = self.units, self.unit_dims
        return (units[layer], units[layer - 1]), (dims[layer], dims[layer - 1])

    def row_dims(self, layer: int) -> tuple[str, str] | None:
        """Dimensions of what a layer computes from each row, if they have names."""
        return None if self.row_dim is None else (self.row_dim, self.unit_dims[layer])


BUILDERS: dict[str, Callable[..., pm.Model]] = {}
"""Functions that build models, by their names."""


class Call(NamedTuple):
    """A builder's name, and what it was given: arguments, and labels of the model around."""

    builder: str
    arguments: Mapping[str, Any]
    coords: Mapping[str, Sequence[Any]]


_calls: WeakKeyDictionary[pm.Model, Call] = WeakKeyDictionary()
"""Beside the models and not in them: a copy for another process does without the arguments."""


def recorded[**P](builder: Callable[P, pm.Model]) -> Callable[P, pm.Model]:
    """Make a builder whose calls are remembered as long as the models that it made."""

    @wraps(builder)
    def build(*args: P.args, **kwargs: P.kwargs) -> pm.Model:
        around = pm.Model.get_context(error_if_none=False)
        labels = {} if around is None else around.coords
        coords = {dim: list(own) for dim, own in labels.items() if own is not None}
        model = builder(*args, **kwargs)
        arguments = signature(builder).bind(*args, **kwargs).arguments
        _calls[model] = Call(builder.__name__, arguments, coords)
        return model

    BUILDERS[builder.__name__] = build
    return build


def call_of(model: pm.Model) -> Call | None:
    """The last builder's call that added to a model: what else it holds is not known from it."""
    return _calls.get(model)
