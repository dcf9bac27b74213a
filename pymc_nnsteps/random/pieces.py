r"""Pieces of an activation, and the normal that a pre-activation has on each.

The mathematics and its letters are those of :mod:`.piecewise_normal`.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.random.parameters import Array


class Activation(NamedTuple):
    """Pieces of an activation: edges of shape (K + 2,), the others (K + 1,)."""

    edges: Array
    slopes: Array
    intercepts: Array


class Pieces(NamedTuple):
    """What a draw needs of each piece and does not depend on mu and x, shape (K + 1,).

    Piece k has mean ``from_mu[k] mu + from_x[k] (x - c_k)`` and sd ``sd[k]``; crossing its
    lower edge upwards changes the log density by ``jump[k] (x - middle[k])``.
    """

    from_mu: Array
    from_x: Array
    sd: Array
    inv_sd: Array
    width: Array
    jump: Array
    middle: Array


@inline
def set_pieces(sigma: float, tau: float, activation: Activation, pieces: Pieces) -> None:
    """Fill what does not depend on mu and x."""
    edges, slopes, intercepts = activation.edges, activation.slopes, activation.intercepts
    for k in range(slopes.size):
        spread = math.hypot(tau, slopes[k] * sigma)
        share = tau / spread if tau < math.inf else 1.0
        pieces.from_mu[k] = share**2
        pieces.from_x[k] = slopes[k] * (sigma / spread) * (sigma / spread)
        pieces.sd[k] = sigma * share
        pieces.inv_sd[k] = 1.0 / pieces.sd[k]
        pieces.width[k] = (edges[k + 1] - edges[k]) / pieces.sd[k]
        if k > 0:
            left = slopes[k - 1] * edges[k] + intercepts[k - 1]
            right = slopes[k] * edges[k] + intercepts[k]
            pieces.jump[k] = (right - left) / tau / tau
            pieces.middle[k] = 0.5 * (left + right)


@inline
def mean_of(k: int, mu: float, x: float, activation: Activation, pieces: Pieces) -> float:
    """Mean of the normal of a piece."""
    return pieces.from_mu[k] * mu + pieces.from_x[k] * (x - activation.intercepts[k])


@jit
def edges_of(knots: Array) -> Array:
    """Knots, and infinity on both sides."""
    edges = np.empty(knots.size + 2)
    edges[0], edges[knots.size + 1] = -math.inf, math.inf
    for k in range(knots.size):
        edges[k + 1] = knots[k]
    return edges


@inline
def empty_pieces(n: int) -> Pieces:
    """Room for pieces."""
    table = np.empty((7, n))
    return Pieces(table[0], table[1], table[2], table[3], table[4], table[5], table[6])
