"""Layers whose weights move with their pre-activations, and the move as it should be.

The oracle is the model's log density and its gradient, nothing else. Given the precisions of
logits above, both are quadratic and affine in what a move integrates out, and on the present
pieces also in a row W_a of the weights that the pre-activations follow. So the gradient's
differences are the matrices of the joint Gaussian of W_a and what is integrated out: completed to
squares, it gives the log density without that; the marginal of W_a gives the proposal's mean and
precision. The whole move is then done again, slowly, with the densities of SciPy. What is
integrated out is NaN in the draw.
"""

from dataclasses import dataclass

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace
from pytensor.tensor.random.basic import UniformRV
from scipy import linalg, stats

from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves.interweaving import match_interweaving, match_kernels
from pymc_nnsteps.random.standard_normal import StandardNormalRV
from tests.laws.graphs import flat, random_nodes, shapes_of
from tests.modes import FAST
from tests.moves.densities import density_of, random_point

PASSES = 2


def matched(model, z="Z2", passes=PASSES, without=()):
    rvs = [rv for rv in model.free_RVs if rv.name not in without]
    match = match_interweaving if model[z].ndim == 2 else match_kernels
    return match(model, model[z], find_conditionals(model, rvs), passes)


@dataclass
class Local:
    """At a point: log density without activations, and the Gaussian of a row on its pieces."""

    log_density: float
    mean: np.ndarray
    precision: np.ndarray


class Layer:
    """A layer of a model at a random point: its move as drawn, and as it should be."""

    def __init__(self, model, z="Z2", seed=0):
        self.model = model
        self.move = matched(self.model, z)
        *weights, z = self.move.draws
        out = self.move.integrates_out
        self.weights, self.z = [rv.name for rv in weights], z.name
        self.out = [rv.name for rv in out]
        self.point = random_point(self.model, seed)
        held = {}
        for before in self.move.likelihood.before:
            held |= before.fixed
        rng, shapes = np.random.default_rng(seed + 1), shapes_of(self.model)
        self.omegas = {omega: rng.gamma(2.0, size=shapes[c.child]) for omega, c in held.items()}
        self.density = density_of(
            self.model,
            [*weights, z, *out],
            {child.child: self.omegas[omega] for omega, child in held.items()},
            mode=FAST,
        )
        # Pooled pre-activations follow the weights through those that they are the means of.
        between = {rv: parameters(rv)[0] for rv in out[1:]}
        [mean] = substitute([parameters(z)[0]], between)
        [mean] = graph_replace([mean], natural_values(self.model), strict=False)
        self._mean = pytensor.function(
            list(self.model.value_vars), mean, mode=FAST, on_unused_input="ignore"
        )
        self.jacobian = self._jacobian()
        axis = self.move.likelihood.units
        self.units = self.point[self.z].shape[axis]
        entries = np.indices(self.point[self.z].shape)[axis].ravel()
        self.rows = [np.flatnonzero(self.jacobian[entries == u].any(0)) for u in range(self.units)]
        self.d = len(self.rows[0])

    def _jacobian(self):
        """Jacobian of the mean of the pre-activations, by all weights."""
        size = self.block(self.point).size
        zero = np.zeros(size)

        def mean(vector):
            point = self._put(self.point, self.weights, vector)
            return self._mean(*(point[v.name] for v in self.model.value_vars)).ravel()

        return np.stack([mean(unit) - mean(zero) for unit in np.eye(size)], axis=1)

    def block(self, point):
        return flat([point[name] for name in self.weights])

    @staticmethod
    def _put(point, names, vector):
        new, start = dict(point), 0
        for name in names:
            size = new[name].size
            new[name] = vector[start : start + size].reshape(new[name].shape)
            start += size
        return new

    def moved(self, point, step):
        """The point with other weights, that the pre-activations follow."""
        new = self._put(point, self.weights, self.block(point) + step)
        new[self.z] = point[self.z] + (self.jacobian @ step).reshape(point[self.z].shape)
        return new

    def marginal(self, point):
        """Log density of the point without what is integrated out."""
        return self._completed(point, np.zeros((0, self.jacobian.shape[1]))).log_density

    def local(self, point, unit):
        """Around a point, by differences of the model's gradient."""
        return self._completed(point, np.eye(self.jacobian.shape[1])[self.rows[unit]])

    def _completed(self, point, directions):
        """What is integrated out is completed to squares; the Gaussian is that of weights."""
        d, n = len(directions), sum(point[name].size for name in self.out)
        row = directions @ self.block(point)

        def at(shift):
            new = self.moved(point, shift[:d] @ directions)
            new = self._put(new, self.out, shift[d:])
            value, gradient = self.density(new)
            by_weights, by_z, by_out = np.split(gradient, [self.jacobian.shape[1], -n])
            return value, np.r_[directions @ (by_weights + self.jacobian.T @ by_z), by_out]

        value, gradient = at(np.zeros(d + n))
        units = np.eye(d + n)
        cross = np.stack([at(unit)[1] - gradient for unit in units[d:]])
        among = -cross[:, d:]
        own = np.array([_slope(lambda x: at(x)[1][:d], unit) for unit in units[:d]]).reshape(d, d)
        precision = -own - cross[:, :d].T @ np.linalg.solve(among, cross[:, :d])
        slope, half = gradient[:d], np.linalg.solve(among, gradient[d:])
        log_density = value + gradient[d:] @ half / 2 - np.linalg.slogdet(among)[1] / 2
        mean = row + np.linalg.solve(precision, slope + cross[:, :d].T @ half)
        return Local(log_density, mean, (precision + precision.T) / 2)

    def propose(self, point, unit, rho, normal):
        """The point proposed for a row, and the probability that it is accepted."""
        here, row = self.local(point, unit), self.block(point)[self.rows[unit]]
        root = linalg.cholesky(here.precision)
        step = linalg.solve_triangular(root, normal)
        new_row = here.mean + rho * (row - here.mean) + np.sqrt(1 - rho**2) * step
        shift = np.zeros(self.jacobian.shape[1])
        shift[self.rows[unit]] = new_row - row
        new = self.moved(point, shift)
        there = self.local(new, unit)

        def transition(around, start, end):
            mean = around.mean + rho * (start - around.mean)
            covariance = (1 - rho**2) * np.linalg.inv(around.precision)
            return stats.multivariate_normal(mean, covariance).logpdf(end)

        log_ratio = there.log_density - here.log_density
        log_ratio += transition(there, new_row, row) - transition(here, row, new_row)
        return new, np.exp(min(0.0, log_ratio))

    def all_moves(self, rho, normal, uniform):
        """The whole move: the point, and the mean of each row's probabilities."""
        point, probabilities = self.point, np.empty(uniform.shape)
        for i, unit in np.ndindex(uniform.shape):
            new, probabilities[i, unit] = self.propose(point, unit, rho[unit], normal[i, unit])
            point = new if uniform[i, unit] < probabilities[i, unit] else point
        return point, probabilities.mean(0)


def _slope(function, direction):
    """Derivative of a function that is affine around zero, where a step is as large as it may be.

    Over a kink, steps forward and back differ.
    """
    here, step = function(0 * direction), 1.0
    while step > 1e-6:
        forward = (function(step * direction) - here) / step
        back = (here - function(-step * direction)) / step
        if np.abs(forward - back).max() <= 1e-9 * np.abs(forward).max():
            return (forward + back) / 2
        step /= 4
    raise AssertionError("a kink too close to the point")


# --- the draw -------------------------------------------------------------------------------------


def stated(model, conditional, omegas):
    """A draw in terms of value variables at given held variables, and its random inputs."""
    rng = pt.random.rng("rng")
    draw = conditional.draw(rng, shapes_of(model))
    fixed = {omega: pt.as_tensor(value) for omega, value in omegas.items()}
    results = [draw.rng, *(draw.values[rv] for rv in conditional.draws), draw.acceptance]
    next_rng, *results = substitute(results, fixed | natural_values(model))
    normal, uniform = random_nodes(rng, next_rng, results)
    assert isinstance(normal.op, StandardNormalRV)
    assert isinstance(uniform.op, UniformRV)
    for rv, value in zip(conditional.draws, results, strict=False):
        assert value.dtype == rv.dtype
    return results, [normal.outputs[1], uniform.outputs[1]]


def compiled(model, conditional, omegas):
    """A draw as a function of the point, rho, normals and uniforms: point and acceptance."""
    results, noises = stated(model, conditional, omegas)
    given = [noise.type() for noise in noises]
    results = graph_replace(results, dict(zip(noises, given, strict=True)), strict=False)
    names = list(model.value_vars)
    inputs = [*names, conditional.tuning, *given]
    function = pytensor.function(inputs, results, mode=FAST, on_unused_input="ignore")
    out = [rv.name for rv in conditional.integrates_out]

    def draw(point, rho, normal, uniform):
        blind = point | {name: np.full_like(point[name], np.nan) for name in out}
        noises = [np.asarray(n, v.dtype) for n, v in zip((normal, uniform), given, strict=True)]
        *values, acceptance = function(*(blind[v.name] for v in names), rho, *noises)
        drawn = dict(zip([rv.name for rv in conditional.draws], values, strict=True))
        assert all(value.shape == point[name].shape for name, value in drawn.items())
        return point | drawn, acceptance

    return draw


def assert_same_point(found, expected, rtol=1e-9):
    for name, value in expected.items():
        scale = max(1.0, np.abs(value).max(initial=0))
        np.testing.assert_allclose(found[name], value, rtol=0, atol=rtol * scale, err_msg=name)


def rhos_of(layer):
    return np.linspace(0.0, 0.8, layer.units)


def noises_of(layer, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(PASSES, layer.units, layer.d)), rng.random((PASSES, layer.units))


def check_acceptance(layer, draw):
    """A row is moved just below the probability of its acceptance, and no other is."""
    rho = rhos_of(layer)
    for unit in range(layer.units):
        normal, _ = noises_of(layer, unit)
        new, probability = layer.propose(layer.point, unit, rho[unit], normal[0, unit])
        assert probability > 0
        uniform = np.ones((PASSES, layer.units))
        uniform[0, unit] = probability * (1 - 1e-8)
        drawn, _ = draw(layer.point, rho, normal, uniform)
        assert_same_point(drawn, new)
        uniform[0, unit] = min(1.0, probability * (1 + 1e-8))
        drawn, _ = draw(layer.point, rho, normal, uniform)
        assert_same_point(drawn, layer.point, 0.0)


def check_turns(layer, draw, accept):
    """Rows are moved one after another, all of them or as their probabilities say."""
    normal, uniform = noises_of(layer, 3)
    uniform = 0 * uniform if accept == "all" else uniform
    drawn, acceptance = draw(layer.point, rhos_of(layer), normal, uniform)
    expected, probabilities = layer.all_moves(rhos_of(layer), normal, uniform)
    assert_same_point(drawn, expected)
    np.testing.assert_allclose(acceptance, probabilities, rtol=1e-9, atol=1e-12)
