"""The part of the metric of HMC that is read off the model's graph."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.steps.compiled import PointFunction
from pymc_nnsteps.steps.network_curvature import (
    NetworkCurvature,
    network_curvature,
    prior_precision,
)
from pymc_nnsteps.steps.target import gradient_of, log_density, moved_with

Kind = Literal["network", "learnt", "prior"]
Choice = Literal["auto", "network", "learnt", "prior"]
Point = Mapping[str, np.ndarray]


class Metric:
    """Prior precisions and curvatures at the present values of all variables.

    They depend neither on the variables that are moved nor on those that are integrated out.
    """

    def __init__(
        self,
        model: pm.Model,
        rvs: Sequence[TensorVariable],
        metric: Choice,
        compile_kwargs: Mapping[str, Any],
        integrated_out: Sequence[TensorVariable] = (),
    ) -> None:
        values = [model.rvs_to_values[rv] for rv in rvs]
        moved = [*rvs, *integrated_out]
        network = _network(model, moved, metric)
        weights = {} if network is None else network.likelihoods
        self.kind: Kind = "network" if weights else "learnt" if metric == "auto" else metric
        priors = {rv: prior_precision(model, rv, moved_with(model, moved)) for rv in rvs}
        precisions: dict[Any, Any] = {rv: 1.0 if p is None else p for rv, p in priors.items()}
        places: Mapping[Any, Any] = {}
        if network is not None:
            precisions |= {rv: network.priors[rv] + c for rv, c in weights.items()}
            places = network.references
        natural = natural_values(model)
        read = substitute([pt.as_tensor(precisions[rv]) for rv in rvs], natural)
        outputs = [_flat(read, values)]
        learnt = [] if self.kind == "prior" else [rv for rv in rvs if rv not in weights]
        if learnt:
            included = log_density(model, [rv for rv in learnt if priors[rv] is not None])
            outputs.append(_flat(gradient_of(included, values, values), values))
            outputs.append(_flat([pt.constant(float(rv in learnt)) for rv in rvs], values))
        typical = substitute(places.values(), natural)
        # What the precisions are evaluated at in the place of what is moved.
        self._references = PointFunction(model, (), typical, compile_kwargs)
        self._precisions = PointFunction(model, list(places), outputs, compile_kwargs)
        self.of_data = self._references, self._precisions
        self.references = self._references.at

    def __call__(self, point: Point, references: Sequence[np.ndarray] = ()) -> list[np.ndarray]:
        """Precisions (n,) and, where some are learnt, the gradient of their priors and a mask.

        The gradient is of the priors that are included in those to be learnt, whose mask is one.
        """
        return self._precisions.at(point, *references)


def _network(
    model: pm.Model, moved: Sequence[TensorVariable], metric: Choice
) -> NetworkCurvature | None:
    """Curvature read off the graph, if that is asked for, or possible and not excluded."""
    if metric not in ("auto", "network"):
        return None
    try:
        return network_curvature(model, moved)
    except NotConjugate as reason:
        if metric == "auto":
            return None
        raise ValueError(
            f'metric="network" needs a network that can be read: {reason}; use "learnt".'
        ) from reason


def _flat(parts: Sequence[Any], values: Sequence[Any]) -> TensorVariable:
    whole = (pt.broadcast_to(part, v.shape) for part, v in zip(parts, values, strict=True))
    return pt.concatenate([each.ravel().astype("float64") for each in whole])
