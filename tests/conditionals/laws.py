"""Laws of draws as densities: what a conditional claims against the model's own log density.

A draw is a chain of random nodes. The last of them, or all standard normals, tell the law; what
was drawn before (Polya-Gamma variables, precisions of Student-t cases) is held at given values,
and the densities of the children that these belong to are replaced by the integrands that they
stand for. The drawn variables' own values are NaN meanwhile: a law that uses them shows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.transforms import LogTransform
from pytensor.graph.basic import Apply
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.random.basic import UniformRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.augmentation import BinaryObservation, logit_of
from pymc_nnsteps.conditionals.conditional import Conditional, Shapes
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.random.generalized_inverse_gaussian import GeneralizedInverseGaussianRV
from pymc_nnsteps.random.piecewise_normal import PiecewiseNormalRV
from pymc_nnsteps.random.polya_gamma import PolyaGammaRV
from pymc_nnsteps.random.standard_normal import StandardNormalRV
from pymc_nnsteps.random.truncated_normal import TruncatedNormalRV
from pymc_nnsteps.random.utilities import ArgmaxUtilitiesRV
from pymc_nnsteps.steps.variables import natural_values
from tests.conditionals.graphs import FAST, draw_graph, gaussian_law, logp_of, put, shapes_of

SCALES = (0.3, 1.0, 1.0, 3.0, 30.0, 1e3)
"""Distances from the bulk of a law, in units of its own, at which densities are compared."""


@dataclass(frozen=True)
class Law:
    """A log density up to a constant, and points of its support, as flat vectors."""

    log_density: Callable[[np.ndarray], float]
    sample: Callable[[np.random.Generator, float], np.ndarray]


def assert_exact(model, conditional, point, *, rtol=1e-7, seed=0):
    """Differences of the claimed log density are the model's own, tails included.

    Returns
    -------
    array
        A point of the claimed law's support.
    """
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        claim = _claim(model, conditional)
        held = _held(claim, point, rng)
        law = _law(claim, point, held)
        target = _target(claim, point, held)
        origin = law.sample(rng, 0.5)
        reference, ours_there = target(origin), law.log_density(origin)
        assert np.isfinite(ours_there), f"the claimed log density is {ours_there}"
        assert np.isfinite(reference), (
            f"the model's log density is {reference} where the claimed law is"
        )
        for scale in SCALES:
            other = law.sample(rng, scale)
            theirs = target(other) - reference
            ours = law.log_density(other) - ours_there
            allowed = rtol * (1 + abs(theirs)) + 1e-13 * abs(reference)
            assert ours == theirs or abs(ours - theirs) <= allowed, (
                f"log density of {', '.join(rv.name for rv in conditional.draws)} differs by "
                f"{ours} from one point to another, the model's by {theirs}"
            )
    return origin


@dataclass(frozen=True)
class _Claim:
    """A draw as a graph: random nodes that come first and are held, and those that tell the law."""

    model: pm.Model
    conditional: Conditional
    shapes: Shapes
    first: list[Apply]
    final: list[Apply]
    values: list[TensorVariable]


def _claim(model, conditional):
    shapes = shapes_of(model)
    rng, next_rng, values = draw_graph(model, conditional, shapes)
    nodes = []
    while next_rng is not rng:
        nodes.insert(0, next_rng.owner)
        next_rng = next_rng.owner.inputs[0]
    first = [node for node in nodes if isinstance(node.op, PolyaGammaRV)]
    final = [node for node in nodes if node not in first]
    if isinstance(final[-1].op, GeneralizedInverseGaussianRV):
        first, final = final[:-1], final[-1:]
    return _Claim(model, conditional, shapes, first, final, values)


def _compiled(model, outputs, *others):
    """A function of a point, and of other variables."""
    names = list(model.value_vars)
    function = pytensor.function([*names, *others], outputs, mode=FAST, on_unused_input="ignore")
    return lambda point, *given: function(*(point[v.name] for v in names), *given)


def _natural(model, expressions):
    return graph_replace(list(expressions), natural_values(model), strict=False)


def _known(nodes, held):
    return {n.outputs[1]: pt.as_tensor(v) for n, v in zip(nodes, held.values(), strict=False)}


def _held_children(conditional):
    """Children whose auxiliary variables are drawn before the law is known."""
    seen = getattr(conditional, "observations", ())
    binary = [s.child for s in seen if isinstance(s, BinaryObservation)]
    scaled = getattr(conditional, "scaled", ())
    return binary or [s.child for s in scaled if s.role.mixing is not None]


def _held(claim, point, rng):
    """Values of the auxiliary variables for each child, after a check of their own laws."""
    model, shapes = claim.model, claim.shapes
    held = {}
    for node, child in zip(claim.first, _held_children(claim.conditional), strict=True):
        known = _known(claim.first, held)
        claimed = graph_replace(node.op.dist_params(node), known, strict=False)
        natural = _natural(model, _expected(model, child))
        both = _compiled(model, [*claimed, *natural])(point)
        for ours, theirs in zip(both[: len(natural)], both[len(natural) :], strict=True):
            ours, theirs = _full(ours, shapes[child]), _full(theirs, shapes[child])
            np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        values = rng.gamma(2.0, size=shapes[child])
        held[child] = values.reshape(-1 if node.outputs[1].ndim == 1 else values.shape)
    return held


def _expected(model, child):
    """Parameters of the law of a child's auxiliary variables."""
    logit = logit_of(child)
    if logit is not None:
        return [logit]
    alpha, mu, s = parameters(child)
    value = model.rvs_to_values[child] if child in model.observed_RVs else child
    return [(alpha + 1) / 2, pt.zeros(()), alpha + ((value - mu) / s) ** 2]


def _full(array, shape):
    """A parameter of a flat or of a broadcasting law, with all entries."""
    return array.reshape(shape) if array.size == np.prod(shape) else np.broadcast_to(array, shape)


def _target(claim, point, held):
    """The model's log density as a function of the natural values of what is drawn."""
    model, conditional = claim.model, claim.conditional
    log_density = _integrand(model, held, claim.shapes) if held else logp_of(model)
    transforms = [model.rvs_to_transforms[rv] for rv in conditional.draws]
    assert all(t is None or isinstance(t, LogTransform) for t in transforms)

    def target(vector):
        if not any(transforms):
            return float(log_density(put(point, model, conditional.draws, vector)))
        logs = np.log(vector)
        return float(log_density(put(point, model, conditional.draws, logs))) - np.sum(logs)

    return target


def _integrand(model, held, shapes):
    """The log density with those of some children replaced by what their auxiliaries stand for."""
    parts = model.logp(vars=[rv for rv in model.basic_RVs if rv not in held], sum=False)
    natural = natural_values(model)
    for child, auxiliary in held.items():
        value = natural[child]
        auxiliary = auxiliary.reshape(shapes[child])
        logit = logit_of(child)
        if logit is not None:
            [psi] = _natural(model, [logit])
            parts.append((value - 0.5) * psi - auxiliary * psi**2 / 2)
        else:
            _, mu, s = _natural(model, parameters(child))
            parts.append(-pt.log(s) - auxiliary * ((value - mu) / s) ** 2 / 2)
    return _compiled(model, pt.add(*(part.sum() for part in parts), 0.0))


def _law(claim, point, held):
    model, conditional, final = claim.model, claim.conditional, claim.final
    if all(isinstance(node.op, StandardNormalRV) for node in final):
        gaussian = gaussian_law(model, conditional, point, claim.shapes, list(held.values()))
        _assert_numbers([gaussian.mean, gaussian.factor])
        return _gaussian(gaussian.mean, gaussian.factor)
    [node] = final
    known = _known(claim.first, held)
    blind = dict(point)
    for rv in conditional.draws:
        value = model.rvs_to_values[rv]
        if not isinstance(node.op, ArgmaxUtilitiesRV) and value.dtype.startswith("float"):
            blind[value.name] = np.full_like(point[value.name], np.nan)
    [drawn] = conditional.draws
    own = model.rvs_to_values[drawn]
    if isinstance(node.op, UniformRV):
        [logit] = graph_replace(
            [_logit_of_gates(claim.values[0], node.outputs[1])], known, strict=False
        )
        return _gates(_compiled(model, logit)(blind), point[own.name].shape)
    raw = node.outputs[1].type()
    placed = graph_replace(claim.values, {node.outputs[1]: raw}, strict=False)
    stated = graph_replace(node.op.dist_params(node), known, strict=False)
    given = [np.float64(v) for v in _compiled(model, stated)(blind)]
    _assert_numbers(given)
    shape = point[own.name].shape
    size = int(np.prod(shape))
    order = np.arange(float(size)).astype(raw.dtype)
    rows = (-1, *shape[-1:])
    order = order.reshape({1: -1, len(shape): shape}.get(raw.ndim, rows))
    [entries] = _compiled(model, placed, raw)(point, order)
    np.testing.assert_array_equal(entries, order.reshape(shape), "entries are out of place")
    return LAWS[type(node.op)](shape, *given)


def _assert_numbers(arrays):
    assert not any(np.isnan(array).any() for array in arrays), (
        "the claimed law is not a number where the drawn variable's own value is hidden"
    )


def _logit_of_gates(value, level):
    """The logit that uniform numbers are compared with."""
    [probability] = {
        v.owner.inputs[1] for v in ancestors([value]) if v.owner and level in v.owner.inputs
    }
    assert isinstance(probability.owner.op.scalar_op, Sigmoid)
    return probability.owner.inputs[0]


def _gates(logit, shape):
    logit = np.broadcast_to(logit, shape).ravel()
    return Law(
        lambda gates: float(gates @ logit),
        lambda rng, scale: rng.integers(2, size=logit.size).astype(float),
    )


def _gaussian(mean, factor):
    def log_density(v):
        return -0.5 * np.sum(np.linalg.lstsq(factor, v - mean)[0] ** 2)

    return Law(
        log_density, lambda rng, scale: mean + factor @ (scale * rng.normal(size=factor.shape[1]))
    )


def _generalized_inverse_gaussian(shape, *stated):
    nu, delta2, lambda2 = (np.broadcast_to(p, shape).ravel() for p in stated)

    def log_density(x):
        return np.sum((nu - 1) * np.log(x) - (delta2 / x + lambda2 * x) / 2)

    return Law(log_density, lambda rng, scale: np.exp(min(scale, 3.0) * rng.normal(size=nu.size)))


def _piecewise_normal(shape, mu, sigma, x, tau, knots, slopes, intercepts):
    def log_density(z):
        k = np.searchsorted(knots, z)
        return np.sum(
            -0.5 * ((z - mu) / sigma) ** 2 - 0.5 * ((x - slopes[k] * z - intercepts[k]) / tau) ** 2
        )

    return Law(log_density, lambda rng, scale: scale * rng.normal(size=int(np.prod(shape))))


def _truncated_normal(shape, *stated):
    mu, sigma, lower, upper = (np.broadcast_to(p, int(np.prod(shape))) for p in stated)
    inside = np.where(np.isfinite(lower), 1.0, -1.0)
    bound = np.where(np.isfinite(lower), lower, upper)

    def log_density(z):
        within = np.all((z > lower) & (z < upper))
        return np.sum(-0.5 * ((z - mu) / sigma) ** 2) if within else -np.inf

    def sample(rng, scale):
        away = np.abs(scale * rng.normal(size=mu.size))
        if scale == 1.0 and mu.size:
            away[rng.integers(mu.size)] *= -1
        return bound + inside * away

    return Law(log_density, sample)


def _argmax_utilities(shape, mu, sigma, labels, current):
    sigma = np.broadcast_to(sigma, mu.shape)
    rows = np.arange(len(mu))

    def log_density(vector):
        z = vector.reshape(mu.shape)
        if not np.array_equal(z.argmax(1), labels):
            return -np.inf
        return np.sum(-0.5 * ((z - mu) / sigma) ** 2)

    def sample(rng, scale):
        z = scale * rng.normal(size=mu.shape)
        if scale != 1.0:
            largest = z.argmax(1)
            swap = z[rows, labels.astype(int)].copy()
            z[rows, labels.astype(int)] = z[rows, largest]
            z[rows, largest] = np.where(largest == labels, z[rows, largest], swap)
        return z.ravel()

    return Law(log_density, sample)


LAWS = {
    GeneralizedInverseGaussianRV: _generalized_inverse_gaussian,
    PiecewiseNormalRV: _piecewise_normal,
    TruncatedNormalRV: _truncated_normal,
    ArgmaxUtilitiesRV: _argmax_utilities,
}
