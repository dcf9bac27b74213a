"""Draws of a layer's gates, and their density beside the smooth one of the response.

:mod:`pymc_nnsteps.moves.gated_trajectories` derives both.
"""

import math

import numpy as np

from pymc_nnsteps.kernels.error_functions import exp_negative
from pymc_nnsteps.kernels.gated_density import (
    GatedPosition,
    GatedWorkspace,
    fill_noise,
    invert_at,
    log_likelihood,
)
from pymc_nnsteps.kernels.interwoven_gates import logistic
from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.kernels.linear_algebra import Array, sum_of


@inline
def log_chance(gates: Array, logit: Array) -> float:
    """Log probability of gates."""
    total, product = 0.0, 1.0
    for n in range(len(gates)):
        against = logit[n] * (1.0 - 2.0 * gates[n])
        total -= max(against, 0.0)
        product *= 1.0 + exp_negative(-abs(against))
        if n % 512 == 511:
            total -= math.log(product)
            product = 1.0
    return total - math.log(product)


@jit
def spread_by_unit(weights: GatedPosition, scene: GatedWorkspace) -> Array:
    """Sums over samples of the variance of outputs that each unit's gates leave open."""
    m, units = weights.outgoing.shape
    spread = np.zeros(units)
    for a in range(units):
        for i in range(m):
            v = weights.outgoing[i, a]
            spread[a] += v * v * sum_of(scene.unsure[a])
    return spread


@jit
def open_behind(weights: GatedPosition, scene: GatedWorkspace, order: Array) -> Array:
    """Covariance of the response given the gates of units before one, from the last in an order.

    The covariances are (units + 1, m (m + 1) / 2, n_obs); the last one is given all gates.
    """
    (units, n_obs), m, n_pairs = scene.logit.shape, len(scene.mean), len(scene.total)
    behind = np.empty((units + 1, n_pairs, n_obs))
    fill_noise(weights, scene, behind[units])
    for i in range(units - 1, -1, -1):
        a, pair = order[units - 1 - i], 0
        for j in range(m):
            for k in range(j, m):
                product = weights.outgoing[j, a] * weights.outgoing[k, a]
                for n in range(n_obs):
                    behind[i, pair, n] = behind[i + 1, pair, n] + product * scene.unsure[a, n]
                pair += 1
    return behind


@jit
def add_gains(
    scene: GatedWorkspace, pairs: Array, residual: Array, outgoing: Array, unit: int, odds: Array
) -> None:
    """Add to log odds what residuals of covariance ``pairs`` (m (m + 1) / 2, n_obs) say."""
    (m, n_obs), active = residual.shape, scene.active[unit]
    own, known = np.empty(m), np.empty((m, m))
    if m == 1:
        v = outgoing[0, unit]
        for n in range(n_obs):
            seen = v * active[n] if scene.own[0, n] > 0.0 else 0.0
            odds[n] += seen * (residual[0, n] - 0.5 * seen) / pairs[0, n]
        return
    for n in range(n_obs):
        invert_at(scene, pairs, n, own, known)
        for i in range(m):
            for j in range(m):
                rest = residual[j, n] - 0.5 * outgoing[j, unit] * active[n]
                odds[n] += outgoing[i, unit] * active[n] * known[i, j] * rest


@jit
def log_ratio_gates(
    weights: GatedPosition, scene: GatedWorkspace, uniform: Array, gates: Array, draws: bool
) -> float:
    """Log of the exact density of response and gates over the smooth one and that of their draw.

    Gates are drawn, or else weighed as they are, unit by unit, each given those before it and the
    moments of those behind it. Those that leave most open come first, since of these a Gaussian
    says least. After :func:`look`.
    """
    (units, n_obs), m = gates.shape, len(scene.mean)
    residual, own, known = scene.response - scene.mean, np.empty(m), np.empty((m, m))
    log_factor, before, after = -log_likelihood(scene), np.empty(n_obs), np.empty(n_obs)
    order = np.argsort(spread_by_unit(weights, scene), kind="mergesort")
    behind = open_behind(weights, scene, order)
    for i in range(units):
        a = order[units - 1 - i]
        # Log odds of the unit by its weights, and by what is left of the response too.
        by_weights = np.dot(scene.inputs, weights.rows[a])
        for n in range(n_obs):
            before[n] = scene.logit[a, n] + scene.logit_factor[a, n] * by_weights[n]
            after[n] = before[n]
        for j in range(m):
            v = weights.outgoing[j, a]
            for n in range(n_obs):
                residual[j, n] += v * scene.expected[a, n]
        add_gains(scene, behind[i + 1], residual, weights.outgoing, a, after)
        # The gates, and what they leave of the response.
        if draws:
            for n in range(n_obs):
                gates[a, n] = 1.0 if uniform[a, n] < logistic(after[n]) else 0.0
        log_factor += log_chance(gates[a], before) - log_chance(gates[a], after)
        for j in range(m):
            v = weights.outgoing[j, a]
            for n in range(n_obs):
                residual[j, n] -= gates[a, n] * v * scene.active[a, n]
    # Density of the response given all gates.
    for n in range(n_obs):
        log_factor -= 0.5 * invert_at(scene, behind[units], n, own, known)
        for i in range(m):
            for j in range(m):
                log_factor -= 0.5 * residual[i, n] * known[i, j] * residual[j, n]
    return log_factor
