"""The part of the metric of HMC that is read off the model's graph."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.steps.compiled import Compiled
from pymc_nnsteps.steps.network_curvature import network_curvature
from pymc_nnsteps.steps.prior_precision import prior_precision
from pymc_nnsteps.steps.target import gradient_of, log_density, moved_with

Kind = Literal["network", "learnt", "prior"]


class Metric:
    """Prior precisions and curvatures at the present values of all variables.

    Parameters
    ----------
    model : pm.Model
    rvs : sequence of TensorVariable
        The free variables that are moved.
    metric : {"auto", "network", "learnt", "prior"}
        As for :class:`~pymc_nnsteps.HMC`.
    compile_kwargs : mapping
        Options of :func:`pymc.pytensorf.compile`.
    integrated_out : sequence of TensorVariable
        Variables integrated out of the density; the metric must not depend on them either.

    Attributes
    ----------
    kind : {"network", "learnt", "prior"}

    Raises
    ------
    ValueError
        If ``metric`` is "network" and the graph does not tell the curvature.
    """

    def __init__(
        self,
        model: pm.Model,
        rvs: Sequence[TensorVariable],
        metric: Literal["auto", "network", "learnt", "prior"],
        compile_kwargs: Mapping[str, Any],
        integrated_out: Sequence[TensorVariable] = (),
    ) -> None:
        values = [model.rvs_to_values[rv] for rv in rvs]
        moved = moved_with(model, [*rvs, *integrated_out])
        known = {rv: prior_precision(model, rv, moved) for rv in rvs}
        precisions: list[Any] = [pt.ones(()) if p is None else p for p in known.values()]
        self.kind: Kind = "learnt" if metric == "auto" else metric
        if metric in ("auto", "network"):
            try:
                curvatures = network_curvature(model, [*rvs, *integrated_out])[: len(rvs)]
            except NotConjugate as reason:
                if metric == "network":
                    raise ValueError(
                        f'metric="network" needs a network that can be read: {reason}; use '
                        '"learnt".'
                    ) from reason
            else:
                self.kind = "network"
                precisions = [p + c for p, c in zip(precisions, curvatures, strict=True)]
        read = substitute(precisions, natural_values(model))
        outputs = [_flat([pt.broadcast_to(p, v.shape) for p, v in zip(read, values, strict=True)])]
        if self.kind == "learnt":
            priors = log_density(model, [rv for rv in rvs if known[rv] is not None])
            outputs.append(_flat(gradient_of(priors, values, values)))
        used = set(ancestors(outputs))
        read_off = [value for value in model.value_vars if value in used]
        self._dtypes = {value.name: value.dtype for value in read_off}
        self._compiled = Compiled(read_off, outputs, compile_kwargs)

    def refresh(self) -> None:
        """Compute again what depends on the model's data only."""
        self._compiled.refresh()

    def distrust(self) -> None:
        """Treat the model's data as exchanged."""
        self._compiled.distrust()

    def __call__(self, point: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Precisions and, for "learnt", the gradient of the priors included in them.

        Returns
        -------
        list of array, shape (n,)
        """
        self._compiled.refresh_if_data_changed()
        return self._compiled(
            *(np.asarray(point[name], dtype=dtype) for name, dtype in self._dtypes.items())
        )


def _flat(parts: Sequence[TensorVariable]) -> TensorVariable:
    return pt.concatenate([part.ravel().astype("float64") for part in parts])
