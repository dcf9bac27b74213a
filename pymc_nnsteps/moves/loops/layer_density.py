"""Density of what outputs see of a layer, its activations integrated out, and its slopes.

:mod:`pymc_nnsteps.moves.layer_trajectories` has it in formulas.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.compile.linear_algebra import (
    Array,
    copy,
    inner_product,
    put,
    rows_are_equal,
    sum_of,
)
from pymc_nnsteps.moves.loops.interweaving import ActivationPieces, read_pieces
from pymc_nnsteps.moves.loops.outgoing_weights import GaussianPrior
from pymc_nnsteps.moves.loops.residual_scales import pattern_of
from pymc_nnsteps.moves.loops.rows import Above, LayerWeights


class LayerPosition(NamedTuple):
    """What a trajectory moves, or the momenta, or slopes of the log density."""

    rows: Array  # shape (units, d)
    # shape (m * width,), width units or units + 1: outgoing weights of each of m outputs, and its
    # bias if that is moved.
    above: Array
    shift: Array  # shape (k,): changes of the logs of variances of the response


class Noise(NamedTuple):
    """Covariance V of what the response is beside its mean, for samples of the same weights."""

    scaled: Array  # shape (k, m): 1 where a variance that is moved is that of an output, else 0
    moves: Array  # shape (k,): 1 for each variance that is moved, 0 where there is none
    own: Array  # shape (m,): variances of the response given the activations
    spread: Array  # shape (m, m): what the layer's noise adds
    known: Array  # shape (m, m): ``V^{-1}``, zero where an output is not seen
    products: Array  # shape (m, m): sums of products of residuals
    by_covariance: Array  # shape (m, m): slope of the log density in V, summed over samples
    by_shift: Array  # shape (k,): slope in the logs of the variances


class LayerWorkspace(NamedTuple):
    """What stays on a trajectory, and room for what is computed at a place."""

    inputs: Array  # shape (n_obs, d)
    # prior, prior_linear of shape (units, d).
    prior: Array
    prior_linear: Array
    # of_above, of_above_linear of shape (m * width,): precision of the prior of outgoing weights
    # and biases, and precision times mean.
    of_above: Array
    of_above_linear: Array
    noise: Array  # shape (units, n_obs)
    target: Array  # shape (m, n_obs): the response with the biases of the outputs
    weight: Array  # shape (1, m) or (n_obs, m)
    variance: Array  # shape (units,)
    # slope, active of shape (units, n_obs): of the activation.
    slope: Array
    active: Array
    # residual, score of shape (m, n_obs): residuals, and these times ``V^{-1}``.
    residual: Array
    score: Array


@inline
def fill_spread(place: LayerPosition, scene: LayerWorkspace, spread: Array) -> None:
    """Fill the covariance that the layer's noise adds to the response."""
    m, units = len(spread), len(scene.variance)
    width = len(place.above) // m
    for i in range(m):
        for j in range(i, m):
            total = 0.0
            for a in range(units):
                v = place.above[i * width + a]
                total += v * place.above[j * width + a] * scene.variance[a]
            spread[i, j] = total
            spread[j, i] = total


@jit
def forward(place: LayerPosition, scene: LayerWorkspace, activation: ActivationPieces) -> None:
    """Fill slopes and activations at a place, and residuals."""
    pre = np.dot(place.rows, scene.inputs.T)
    units, n_obs = scene.noise.shape
    for a in range(units):
        for n in range(n_obs):
            pre[a, n] += scene.noise[a, n]
        read_pieces(pre[a], activation, scene.slope[a], scene.active[a])
        for n in range(n_obs):
            scene.active[a, n] += scene.slope[a, n] * pre[a, n]
    m = len(scene.target)
    width = len(place.above) // m
    for i in range(m):
        seen = np.dot(place.above[i * width : i * width + units], scene.active)
        bias = place.above[i * width + units] if width > units else 0.0
        for n in range(n_obs):
            scene.residual[i, n] = scene.target[i, n] - bias - seen[n]


@inline
def end_of_run(weight: Array, first: int, n_obs: int) -> int:
    """The end of the samples from one on that have the same weights as it has."""
    end = n_obs if len(weight) == 1 else first + 1
    while end < n_obs and rows_are_equal(weight, first, end):
        end += 1
    return end


@inline
def change_of(scaled: Array, shift: Array, i: int) -> float:
    """Factor of the variances of an output where log variances are shifted."""
    change = 0.0
    for k in range(len(shift)):
        change += scaled[k, i] * shift[k]
    return math.exp(change)


@inline
def fill_own(scene: LayerWorkspace, shift: Array, n: int, noise: Noise) -> None:
    """Fill the variances of the response at a sample given the activations, zero if not seen."""
    for i in range(len(noise.own)):
        weight = scene.weight[n, i]
        noise.own[i] = change_of(noise.scaled, shift, i) / weight if weight > 0.0 else 0.0


@inline
def invert_seen(own: Array, matrix: Array) -> float:
    """Invert a covariance matrix of what is seen, by Gauss and Jordan; return its log determinant.

    Rows of variance zero become zero; the log determinant is NaN if it is not positive definite.
    """
    m, log_det = len(own), 0.0
    for i in range(m):
        for j in range(m):
            matrix[i, j] = matrix[i, j] if own[i] > 0.0 and own[j] > 0.0 else 0.0
    for k in range(m):
        if own[k] > 0.0:
            pivot = matrix[k, k]
            log_det += math.log(pivot) if pivot > 0.0 else math.nan
            matrix[k, k] = 1.0
            for j in range(m):
                matrix[k, j] /= pivot
            for i in range(m):
                if i != k:
                    factor = matrix[i, k]
                    matrix[i, k] = 0.0
                    for j in range(m):
                        matrix[i, j] -= factor * matrix[k, j]
    return log_det


@inline
def know(noise: Noise) -> float:
    """Fill ``V^{-1}`` of the outputs that are seen, and return ``log det V``."""
    put(noise.spread, noise.known, 0, 0)
    for i in range(len(noise.own)):
        noise.known[i, i] += noise.own[i]
    return invert_seen(noise.own, noise.known)


@inline
def product_of(x: Array, y: Array, first: int, end: int) -> float:
    """Inner product of some samples."""
    return x[first] * y[first] if end == first + 1 else inner_product(x[first:end], y[first:end])


@inline
def add_slopes(noise: Noise, count: int) -> float:
    """Add slopes in V and in log variances for some samples, and return ``trace V^{-1} R``."""
    m, known, products, trace = len(noise.own), noise.known, noise.products, 0.0
    for i in range(m):
        for j in range(m):
            total = -count * known[i, j]
            trace += known[i, j] * products[i, j]
            for k in range(m):
                for h in range(m):
                    total += known[i, k] * products[k, h] * known[h, j]
            noise.by_covariance[i, j] += 0.5 * total
            if i == j:
                for k in range(len(noise.by_shift)):
                    noise.by_shift[k] += 0.5 * noise.scaled[k, i] * total * noise.own[i]
    return trace


@jit
def log_likelihood_of_one(place: LayerPosition, scene: LayerWorkspace, noise: Noise) -> float:
    """The same as :func:`log_likelihood` of one output whose noise varies with the sample."""
    density, change = 0.0, change_of(noise.scaled, place.shift, 0)
    for n in range(scene.residual.shape[1]):
        own = change / scene.weight[n, 0] if scene.weight[n, 0] > 0.0 else math.inf
        total, error = own + noise.spread[0, 0], scene.residual[0, n]
        scene.score[0, n] = error / total
        if own < math.inf:
            slope = 0.5 * (error * scene.score[0, n] - 1.0) / total
            density -= 0.5 * (math.log(total) + error * scene.score[0, n])
            noise.by_covariance[0, 0] += slope
            noise.by_shift[0] += noise.scaled[0, 0] * slope * own
    return density


@jit
def log_likelihood(place: LayerPosition, scene: LayerWorkspace, noise: Noise) -> float:
    """Fill scores, and return the log density of the response; fills its slopes in V."""
    m, n_obs = scene.residual.shape
    noise.by_covariance[:], noise.by_shift[:] = 0.0, 0.0
    fill_spread(place, scene, noise.spread)
    if m == 1 and len(scene.weight) > 1:
        return log_likelihood_of_one(place, scene, noise)
    density, first = 0.0, 0
    while first < n_obs:
        end = end_of_run(scene.weight, first, n_obs)
        fill_own(scene, place.shift, first, noise)
        density -= 0.5 * (end - first) * know(noise)
        # Products of residuals, and these times the inverse covariance.
        for i in range(m):
            for j in range(i, m):
                product = product_of(scene.residual[i], scene.residual[j], first, end)
                noise.products[i, j] = product
                noise.products[j, i] = product
            for j in range(m):
                known = noise.known[i, j]
                for n in range(first, end):
                    before = scene.score[i, n] if j > 0 else 0.0
                    scene.score[i, n] = before + known * scene.residual[j, n]
        density -= 0.5 * add_slopes(noise, end - first)
        first = end
    return density


@inline
def add_prior(value: Array, prior: Array, linear: Array, slope: Array) -> float:
    """Add the slope of a Gaussian log density, and return it."""
    density = 0.0
    for j in range(len(value)):
        density += value[j] * (linear[j] - 0.5 * prior[j] * value[j])
        slope[j] += linear[j] - prior[j] * value[j]
    return density


@inline
def pull_back(place: LayerPosition, scene: LayerWorkspace, unit: int) -> None:
    """Multiply the slopes of a unit's activations by those of the density in these."""
    m, n_obs = scene.score.shape
    width = len(place.above) // m
    if m == 1:
        v = place.above[unit]
        for n in range(n_obs):
            scene.slope[unit, n] *= v * scene.score[0, n]
        return
    for n in range(n_obs):
        total = 0.0
        for i in range(m):
            total += place.above[i * width + unit] * scene.score[i, n]
        scene.slope[unit, n] *= total


class LayerDensity(NamedTuple):
    """What the density depends on, and room."""

    scene: LayerWorkspace
    noise: Noise
    activation: ActivationPieces


@inline
def place_in(q: Array, density: LayerDensity) -> LayerPosition:
    """Parts of a vector of coordinates."""
    units, d = density.scene.prior.shape
    rows, last = units * d, len(q) - len(density.noise.moves)
    return LayerPosition(q[:rows].reshape((units, d)), q[rows:last], q[last:])


@jit
def evaluate_layer(density: LayerDensity, q: Array, gradient: Array) -> float:
    """Log density at coordinates; fills its slope."""
    scene, noise = density.scene, density.noise
    place, slope = place_in(q, density), place_in(gradient, density)
    m, units = len(scene.target), len(scene.variance)
    width = len(place.above) // m
    forward(place, scene, density.activation)
    log_density = log_likelihood(place, scene, noise)
    # Slopes in outgoing weights and biases, in rows, and in log variances.
    for i in range(m):
        seen = np.dot(scene.active, scene.score[i])
        for a in range(units):
            by_spread = 0.0
            for j in range(m):
                by_spread += noise.by_covariance[i, j] * place.above[j * width + a]
            slope.above[i * width + a] = seen[a] + 2.0 * scene.variance[a] * by_spread
        if width > units:
            slope.above[i * width + units] = sum_of(scene.score[i])
    for a in range(units):
        pull_back(place, scene, a)
    put(np.dot(scene.slope, scene.inputs), slope.rows, 0, 0)
    for a in range(units):
        prior, linear = scene.prior[a], scene.prior_linear[a]
        log_density += add_prior(place.rows[a], prior, linear, slope.rows[a])
    log_density += add_prior(place.above, scene.of_above, scene.of_above_linear, slope.above)
    for k in range(len(place.shift)):
        slope.shift[k] = noise.by_shift[k] + 0.5 * noise.moves[k]
        log_density += 0.5 * noise.moves[k] * place.shift[k]
    return log_density


@jit
def set_noise(scaled: Array) -> Noise:
    """Room for covariances of the response."""
    n_scales, m = scaled.shape
    moves = np.zeros(n_scales)
    for k in range(n_scales):
        for i in range(m):
            moves[k] = max(moves[k], scaled[k, i])
    spread, known, products, by_covariance = np.empty((4, m, m))
    own, by_shift = np.empty(m), np.empty(n_scales)
    return Noise(scaled, moves, own, spread, known, products, by_covariance, by_shift)


@jit
def order_by_weights(weight: Array, n_obs: int) -> Array:
    """An order of samples in which those of the same weights, if these are few, are neighbours."""
    if len(weight) == 1:
        return np.arange(n_obs)
    pattern, first, n_patterns = np.zeros(n_obs), np.zeros(n_obs), 0
    for n in range(n_obs):
        p = pattern_of(weight, n, first, n_patterns)
        pattern[n] = p
        if p == n_patterns:
            first[p] = n
            n_patterns += 1
    return np.argsort(pattern, kind="mergesort")


@jit
def set_scene(
    weights: LayerWeights, noise: Array, prior: GaussianPrior, above: Above
) -> LayerWorkspace:
    """What stays on a trajectory, and room; samples have another order."""
    (units, n_obs), m = noise.shape, above.response.shape[1]
    order = order_by_weights(above.weight, n_obs)
    inputs, kept = np.empty_like(weights.inputs), np.empty((units, n_obs))
    weight, target = np.empty_like(above.weight), np.empty((m, n_obs))
    for n in range(n_obs):
        k = order[n]
        copy(weights.inputs[k], inputs[n])
        for a in range(units):
            kept[a, n] = noise[a, k]
        for i in range(m):
            target[i, n] = above.response[k, i]
        if n < len(weight):
            copy(above.weight[k], weight[n])
    return LayerWorkspace(
        inputs,
        weights.prior,
        weights.prior_linear,
        prior.precision.reshape(-1),
        prior.linear.reshape(-1),
        kept,
        target,
        weight,
        above.variance,
        np.empty((units, n_obs)),
        np.empty((units, n_obs)),
        np.empty((m, n_obs)),
        np.empty((m, n_obs)),
    )
