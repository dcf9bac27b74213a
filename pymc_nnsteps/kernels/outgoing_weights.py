"""Outgoing weights of a layer with its activations integrated out, one at a time.

:mod:`pymc_nnsteps.moves.outgoing_weights` derives the draw.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.kernels.interweaving import Pieces, read_pieces
from pymc_nnsteps.kernels.jit import jit
from pymc_nnsteps.kernels.linear_algebra import Array, copy


class Outgoing[Of](NamedTuple):
    """Weights of one output, and their prior: arrays of shape (units,).

    Parameters
    ----------
    outgoing, prior, prior_linear : array
        ``v_a``, the precision of its prior, and precision times mean.
    """

    outgoing: Of
    prior: Of
    prior_linear: Of


class AboveOne[Of](NamedTuple):
    """What one output says of a layer's activations.

    Parameters
    ----------
    weight : array, shape (n_obs,) or (1,)
        Precision of the response given the activations.
    response : array, shape (n_obs,)
    variance : array, shape (units,)
        Of the activations' noise.
    """

    weight: Of
    response: Of
    variance: Of


@jit
def draw_outgoing(
    pre: Array,
    activation: Pieces,
    offset: Array,
    weights: Outgoing,
    above: AboveOne,
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
    activation : Pieces
    offset : array, shape (units, n_obs) or (units, 1)
        Of the activations' mean.
    weights : Outgoing
    above : AboveOne
    noise : array, shape (units, n_obs)
    normal : array, shape (units,)
        Standard normals.
    """
    units, n_obs = pre.shape
    outgoing, variance, weight = weights.outgoing.copy(), above.variance, above.weight
    # Means of the activations, and the response without all units' part.
    slope, intercept = np.empty(n_obs), np.empty(n_obs)
    levels = np.empty((units, n_obs))
    residual = above.response.copy()
    for a in range(units):
        read_pieces(pre[a], activation, slope, intercept)
        copy(slope * pre[a] + intercept + offset[a], levels[a])
        residual -= outgoing[a] * levels[a]
    for a in range(units):
        # Variance of the response by the noise of the other units.
        others = 0.0
        for b in range(units):
            if b != a:
                others += outgoing[b] * outgoing[b] * variance[b]
        # Draw the unit's activations, and sum what they tell of its weight.
        v, level = outgoing[a], levels[a]
        precision, linear = weights.prior[a], weights.prior_linear[a]
        for n in range(n_obs):
            known = 1.0 / (1.0 / weight[n if len(weight) > 1 else 0] + others)
            sharpness = 1.0 / variance[a] + v * v * known
            shift = v * known * residual[n] / sharpness + noise[a, n] / math.sqrt(sharpness)
            activation_n = level[n] + shift
            precision += known * activation_n * activation_n
            linear += known * activation_n * (residual[n] + v * level[n])
        outgoing[a] = linear / precision + normal[a] / math.sqrt(precision)
        for n in range(n_obs):
            residual[n] -= (outgoing[a] - v) * level[n]
    return outgoing
