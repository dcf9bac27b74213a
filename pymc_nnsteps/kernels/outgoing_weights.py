"""Outgoing weights of a layer with its activations integrated out, one at a time.

:mod:`pymc_nnsteps.moves.outgoing_weights` derives the draw.
"""

import math

import numpy as np

from pymc_nnsteps.kernels.interweaving import read_pieces
from pymc_nnsteps.kernels.jit import jit
from pymc_nnsteps.kernels.linear_algebra import Array, copy


@jit
def draw_outgoing(
    pre: Array,
    knots: Array,
    slopes: Array,
    intercepts: Array,
    offset: Array,
    outgoing: Array,
    prior: Array,
    prior_linear: Array,
    weight: Array,
    response: Array,
    variance: Array,
    noise: Array,
    normal: Array,
) -> Array:
    r"""Draw the weights that one output sees a layer through in turn.

    Each is drawn given activations of its unit that are drawn for it, and with those of the other
    units integrated out (:mod:`pymc_nnsteps.moves.outgoing_weights`).

    Parameters
    ----------
    pre : array, shape (units, n_obs)
        ``z_a``.
    knots : array, shape (K,)
    slopes, intercepts : array, shape (K + 1,)
        Of the activation's pieces.
    offset : array, shape (units, n_obs) or (units, 1)
        Of the activations' mean.
    outgoing, prior, prior_linear : array, shape (units,)
        ``v_a``, the precision of its prior, and precision times mean.
    weight : array, shape (n_obs,) or (1,)
        Precision of the response given the activations.
    response : array, shape (n_obs,)
    variance : array, shape (units,)
        Of the activations' noise.
    noise : array, shape (units, n_obs)
    normal : array, shape (units,)
        Standard normals.
    """
    units, n_obs = pre.shape
    outgoing = outgoing.copy()
    slope, intercept = np.empty(n_obs), np.empty(n_obs)
    levels = np.empty((units, n_obs))
    residual = response.copy()
    for a in range(units):
        read_pieces(pre[a], knots, slopes, intercepts, slope, intercept)
        copy(slope * pre[a] + intercept + offset[a], levels[a])
        residual -= outgoing[a] * levels[a]
    for a in range(units):
        others = 0.0
        for b in range(units):
            if b != a:
                others += outgoing[b] * outgoing[b] * variance[b]
        v, level, precision, linear = outgoing[a], levels[a], prior[a], prior_linear[a]
        for n in range(n_obs):
            known = 1.0 / (1.0 / weight[n if len(weight) > 1 else 0] + others)
            sharpness = 1.0 / variance[a] + v * v * known
            shift = v * known * residual[n] / sharpness + noise[a, n] / math.sqrt(sharpness)
            activation = level[n] + shift
            precision += known * activation * activation
            linear += known * activation * (residual[n] + v * level[n])
        outgoing[a] = linear / precision + normal[a] / math.sqrt(precision)
        for n in range(n_obs):
            residual[n] -= (outgoing[a] - v) * level[n]
    return outgoing
