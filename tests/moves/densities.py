"""Models, points and log densities that tests of joint moves share."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace

from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.values import natural_values
from pymc_nnsteps.network.activations import logit_of
from tests.laws.graphs import gaussian_law, logp_of, point_of, put, shapes_of, start_of


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


def draw_beside_model(model, draw, observations):
    """Log densities beside that at a draw's mean, its own and the model's; what else it moves.

    Of a Gaussian draw along some directions; Polya-Gamma variables of children are held.
    """
    rng = np.random.default_rng(31)
    point = random_point(model, 5)
    logistic = [seen.child for seen in observations if hasattr(seen, "logit")]
    omegas = {child: rng.gamma(2.0, size=shapes_of(model)[child]) for child in logistic}
    law = gaussian_law(model, draw, point, held=[*omegas.values()], uses_own_values=True)
    density = density_of(model, draw.draws, omegas)

    def at(vector):
        return density(put(point, model, draw.draws, vector))[0]

    information = np.linalg.pinv(law.factor @ law.factor.T)
    here = np.concatenate([point[rv.name].ravel() for rv in draw.draws]) - law.mean
    others = (law.factor @ rng.normal(size=(law.factor.shape[1], 40))).T
    found = [at(law.mean + other) - at(law.mean) for other in others]
    ours = -0.5 * np.sum(others @ information * others, axis=1)
    return found, ours, here - law.factor @ np.linalg.lstsq(law.factor, here)[0]
