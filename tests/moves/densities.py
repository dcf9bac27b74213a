"""Models, points and log densities that tests of joint moves share."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace

from pymc_nnsteps.graphs.values import natural_values
from pymc_nnsteps.kernels.compiling import ONCE
from pymc_nnsteps.network.gates import logit_of
from tests.laws.graphs import logp_of, point_of, shapes_of, start_of


def built(build, **options):
    with pm.Model() as model:
        build(**options)
    return model


def random_point(model, seed):
    """On the right side of hard constraints."""
    rng = np.random.default_rng(seed)
    shapes = shapes_of(model)
    bits = [rv for rv in model.free_RVs if rv.dtype == "int64"]
    given = {rv.name: rng.integers(2, size=shapes[rv]) for rv in bits}
    point = point_of(model, rng, **given)
    if not np.isfinite(logp_of(model)(point)):
        point["Z3"] = start_of(model)["Z3"]
    return point


def density_of(model, rvs, omegas, mode=ONCE):
    """Log density and its gradient by some variables, as a function of the point.

    Densities of Bernoulli variables are replaced by Polya-Gamma integrands at given variables.
    """
    natural = natural_values(model)
    others = [rv for rv in model.basic_RVs if rv not in omegas]
    total = sum(term.sum() for term in model.logp(vars=others, sum=False))
    for child, omega in omegas.items():
        value, psi = graph_replace([natural[child], logit_of(child)], natural, strict=False)
        total += ((value - 0.5) * psi - omega * psi**2 / 2).sum()
    gradient = pt.concatenate(
        [part.ravel() for part in pt.grad(total, [model.rvs_to_values[rv] for rv in rvs])]
    )
    inputs = list(model.value_vars)
    function = pytensor.function(inputs, [total, gradient], mode=mode, on_unused_input="ignore")
    return lambda point: function(*(point[v.name] for v in inputs))


def integrated_density(model, name, omegas):
    """The same log density with a variable integrated out, in which it is quadratic."""
    density = density_of(model, [model[name]], omegas)

    def integrated(point):
        shape = point[name].shape

        def at(x):
            return density({**point, name: x.reshape(shape)})

        size = int(np.prod(shape))
        value, gradient = at(np.zeros(size))
        precision = np.stack([gradient - at(step)[1] for step in np.eye(size)])
        mean = np.linalg.solve(precision, gradient)
        return value + gradient @ mean / 2 - np.linalg.slogdet(precision)[1] / 2

    return integrated
