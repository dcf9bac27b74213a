"""Functions of a model's variables at stored draws, and results that print as a table."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, override

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import xarray as xr
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.compiling import c_by_default, without_blas_notice
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.graphs.values import substitute
from pymc_nnsteps.prediction.forward import stand_in_for
from pymc_nnsteps.prediction.posterior import SAMPLES, posterior_with_draws, stored_draws

FEWEST_DRAWS = 4
"""Draws of a chain that ArviZ needs to estimate anything."""


def at_draws(
    model: pm.Model, posterior: xr.Dataset, expressions: Sequence[TensorVariable]
) -> list[np.ndarray]:
    """Values (chain, draw, ...) of expressions of value variables, transformed, at stored draws."""
    natural = {rv: stand_in_for(model, rv) for rv in model.free_RVs}
    values: dict[Variable, Variable] = {}
    for rv, draw in natural.items():
        transform = model.rvs_to_transforms[rv]
        value: Variable = draw
        if transform is not None:
            value = transform.forward(draw, *substitute(rv.owner.inputs, natural))
        values[model.rvs_to_values[rv]] = value
    outputs = substitute(expressions, values)
    entered = set(graph_inputs(outputs))
    stored = {rv: draw for rv, draw in natural.items() if draw in entered}
    draws = stored_draws(posterior, model, stored)
    with without_blas_notice():
        function = pytensor.function(list(stored.values()), outputs, **c_by_default())
    sizes = [posterior.sizes[dim] for dim in SAMPLES]
    points = [function(*(draw[i] for draw in draws)) for i in range(np.prod(sizes))]
    return [
        np.reshape(values, (*sizes, *np.shape(values[0]))) for values in zip(*points, strict=True)
    ]


def opened(idata: Any, model: pm.Model | None, n_chains: int) -> tuple[pm.Model, xr.Dataset]:
    """The model, or that of the context, and what its chains have stored."""
    posterior = posterior_with_draws(idata)
    model = model_to_read(model)
    if posterior.sizes["chain"] < n_chains:
        raise ValueError(
            "idata has one chain, but R-hat compares chains; sample several, with "
            "pm.sample(chains=4)."
        )
    n_draws = posterior.sizes["draw"]
    if n_draws < FEWEST_DRAWS:
        raise ValueError(
            f"idata must have at least {FEWEST_DRAWS} draws in each chain; it has {n_draws}."
        )
    return model, posterior


def require_finite(quantities: xr.Dataset) -> None:
    """Check that quantities are finite at all draws."""
    for name, values in quantities.items():
        others = [dim for dim in values.dims if dim not in SAMPLES]
        is_finite: xr.DataArray = xr.apply_ufunc(np.isfinite, values)
        n_wrong = int((~is_finite).any(others).sum())
        if n_wrong:
            raise ValueError(
                f"{name} is infinite or NaN at {n_wrong} draws of idata; leave these draws out, or "
                "sample again."
            )


class Tabulated(ABC):
    """A result that is shown as its table, in a console and in a notebook."""

    formats: ClassVar[Mapping[str, str]]
    """Number formats of the columns."""

    @property
    @abstractmethod
    def table(self) -> pd.DataFrame:
        """One row per quantity."""

    def _formatted(self) -> pd.DataFrame:
        def written(column: pd.Series) -> pd.Series:
            return column.map(self.formats[column.name].format, na_action="ignore").fillna("-")

        return self.table.apply(written)

    @override
    def __str__(self) -> str:
        return self._formatted().to_string()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._formatted().to_html()


def tagged(statistics: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Several statistics of the same quantities, along the dim ``statistic``."""
    together = xr.concat(list(statistics.values()), dim="statistic")
    return together.assign_coords(statistic=list(statistics))
