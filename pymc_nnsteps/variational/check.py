"""Whether a network was read as its model states it: by the model's own log density.

The differences between log densities at random points have to be the same, by what was read and
by PyMC. Where they are not, a part of the model was misread, and nothing is fitted.
"""

from collections.abc import Mapping

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray
from pytensor.compile.mode import Mode
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.values import natural_values
from pymc_nnsteps.variational.laws import GIG
from pymc_nnsteps.variational.reading import LayerNames, Reading

__all__ = ["require_density"]

Numbers = NDArray[np.float64]
Point = Mapping[str, Numbers]

STABLE = Mode("py", RewriteDatabaseQuery(include=["fast_compile", "stabilize"]))

N_POINTS = 3


def require_density(model: pm.Model, reading: Reading) -> None:
    """Check what was read."""
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    natural = natural_values(model)
    evaluate = pytensor.function(
        values,
        [*model.logp(jacobian=False, sum=False), *(natural[rv] for rv in model.free_RVs)],
        mode=STABLE,
        on_unused_input="ignore",
    )
    rng = np.random.default_rng(0)
    initial = model.initial_point(0)
    scales = {name for names in reading.names for name in (names.tau, names.psi, names.eta_sq)}
    stated, read = [], []
    for _ in range(N_POINTS):
        at = (_random(rng, initial[v.name], positive=v.name in scales) for v in values)
        found = evaluate(*at)
        n_terms = len(found) - len(values)
        log_densities, drawn = found[:n_terms], found[n_terms:]
        point = {rv.name: np.asarray(x, float) for rv, x in zip(model.free_RVs, drawn, strict=True)}
        stated.append(float(sum(np.sum(each) for each in log_densities)))
        read.append(_log_density(reading, point))
    tolerance = np.sqrt(np.finfo(pytensor.config.floatX).eps) * max(map(abs, [*stated, *read]))
    differences = np.diff(stated) - np.diff(read)
    if not np.all(np.abs(differences) <= tolerance):
        raise NotConjugate(
            "the log density of the model is not that of the bow-tie network that fit reads in it: "
            f"between two points they differ by {np.diff(stated)[0]:g} and {np.diff(read)[0]:g}; "
            "draw from its posterior by pm.sample"
        )


def _random(
    rng: np.random.Generator, like: NDArray[np.generic], *, positive: bool
) -> NDArray[np.generic]:
    """A value for a variable: 0 and 1 for a gate, positive for a scale without a transform."""
    if np.issubdtype(like.dtype, np.floating):
        value = rng.normal(size=like.shape).astype(like.dtype)
        return np.abs(value) if positive else value
    return rng.integers(0, 2, like.shape).astype(like.dtype)


def _log_density(reading: Reading, point: Point) -> float:
    """Log density of all variables and the targets, up to a constant."""
    a, total = reading.inputs, 0.0
    for prior, names in zip(reading.network.layers, reading.names, strict=True):
        W, b, noise = (point[name] for name in (names.W, names.b, names.eta_sq))
        variance = prior.weight_var
        for law, name in ((prior.tau, names.tau), (prior.psi, names.psi)):
            if law is not None and name is not None:
                variance = variance * point[name]
                total += _gig(point[name], law)
        total += _normal(W, 0.0, variance) + _normal(b, 0.0, prior.bias_var)
        total += _gig(noise, GIG(0.0, 2 * prior.beta, np.zeros(()))) - float(
            np.sum(prior.alpha * np.log(noise))
        )
        z = a @ W.T + b
        a, total = _activations(reading, names, point, z, noise, total)
    return total


def _activations(
    reading: Reading, names: LayerNames, point: Point, z: Numbers, noise: Numbers, total: float
) -> tuple[Numbers, float]:
    """Activations after a linear map, and the log density with theirs added."""
    if names.gamma is None or names.a is None:
        return reading.targets, total + _normal(reading.targets, z, noise)
    gates, a, logit = point[names.gamma], point[names.a], z / reading.network.temperature
    total += float(np.sum(gates * logit - np.logaddexp(0, logit)))
    return a, total + _normal(a, gates * z, noise)


def _normal(x: Numbers, mean: Numbers | float, variance: Numbers) -> float:
    each = -0.5 * (x - mean) ** 2 / variance - 0.5 * np.log(variance)
    return float(np.sum(np.broadcast_to(each, np.shape(x))))


def _gig(x: Numbers, law: GIG) -> float:
    return float(np.sum((law.nu - 1) * np.log(x) - (law.delta2 / x + law.lambda2 * x) / 2))
