r"""Pieces of an activation, and normals seen through one of two, hundreds of elements at a time.

The mathematics and its letters are those of :mod:`.piecewise_normal`; of two pieces the density has
one knot. A piece is chosen by the mass of its proposal, which is made, and accepted or begun anew
with the choice. If a piece's mode is in it, or d < 0.37 sds outside, the proposal is its whole
normal, of mass :math:`\sqrt{2\pi} \exp(d^2 / 2)` beside the density at the knot. Otherwise it is
Marsaglia's of a normal's tail, :math:`\sqrt{d^2 + 2 E}` sds from the mode with E exponential, of
mass :math:`1/d`: a point r sds from the mode is accepted with probability d/r. At least 0.35 of the
proposals are accepted.

References
----------
Marsaglia, G. (1964). Generating a variable from the tail of the normal distribution. Technometrics
6.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from pymc_nnsteps.compile.error_functions import exp_negative
from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.random.op import Array, entry
from pymc_nnsteps.random.standard_normal import AT_A_TIME, begin_streams, fill_normal, fill_uniform
from pymc_nnsteps.random.truncated_normal import SQRT_2PI


class Activation(NamedTuple):
    """Pieces of an activation: edges of shape (K + 2,), the others (K + 1,)."""

    edges: Array
    slopes: Array
    intercepts: Array


class PieceTerms(NamedTuple):
    """What a draw needs of each piece beside mu and x, shape (K + 1,).

    Piece k has mean ``from_mu[k] mu + from_x[k] (x - c_k)`` and sd ``sd[k]``; crossing its lower
    edge changes the log density by ``jump[k] (x - middle[k])``.
    """

    from_mu: Array
    from_x: Array
    sd: Array
    inv_sd: Array
    width: Array
    jump: Array
    middle: Array


@inline
def set_pieces(sigma: float, tau: float, activation: Activation, pieces: PieceTerms) -> None:
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
def mean_of(k: int, mu: float, x: float, activation: Activation, pieces: PieceTerms) -> float:
    """Mean of the normal of a piece."""
    return pieces.from_mu[k] * mu + pieces.from_x[k] * (x - activation.intercepts[k])


ENOUGH = 200
"""Draws from two pieces that are worth the start of streams."""
WORTH_A_TURN = 100
"""Draws that take longer one by one than a turn of all."""
NEGLIGIBLE = -300.0
"""Log odds below which a piece is never chosen; the processor is slow where numbers underflow."""
ROOM = 2 * AT_A_TIME
MU, X, CHANCE, POINT, STAYS = 0 * ROOM, 1 * ROOM, 2 * ROOM, 3 * ROOM, 4 * ROOM
CENTER_0, SCALE_0, DISTANCE_0 = 5 * ROOM, 6 * ROOM, 7 * ROOM
CENTER_1, SCALE_1, DISTANCE_1 = 8 * ROOM, 9 * ROOM, 10 * ROOM
KEPT = (CHANCE, CENTER_0, SCALE_0, DISTANCE_0, CENTER_1, SCALE_1, DISTANCE_1)
NEAR = 0.37
"""How many sds a piece's mode may lie outside it: there two proposals have the same mass."""
BEYOND_BOUNDS = 1e100
"""Distances, means and sds that are not proposed with."""


class Waiting(NamedTuple):
    """Draws that wait to be proposed together.

    One flat table holds their numbers, so that a compiler sees that rows do not overlap. Each
    has a place in rows of ROOM, which begin at:

    - MU, X: parameters of a draw that has just come
    - CHANCE: probability that a proposal is of the upper piece
    - CENTER_0, SCALE_0, DISTANCE_0, and the same with 1: proposals of the lower and of the upper
      piece. A normal is ``center + scale * normal``, and its distance is zero. A tail begins that
      many sds from the mode at the edge, which is its center, in the scale's direction.
    - POINT, STAYS: a proposal, and one where the draw is to be proposed (again)
    """

    table: Array  # shape (11 ROOM,)
    place: Array  # where each draw goes, shape (ROOM,)
    order: Array  # those that stay come first, shape (ROOM,)


class Streams(NamedTuple):
    """Numbers that are made together: state, bits and beyond as of :func:`fill_normal`."""

    state: Array
    bits: Array
    beyond: Array
    uniform: Array
    threshold: Array
    normal: Array
    other: Array


@jit
def compare_two(table: Array, count: int, activation: Activation, pieces: PieceTerms) -> None:
    """Fill proposals of the two pieces, and the chance of the upper one, without branches."""
    edge, jump, middle = activation.edges[1], pieces.jump[1], pieces.middle[1]
    from_mu_0, from_x_0, c_0 = pieces.from_mu[0], pieces.from_x[0], activation.intercepts[0]
    from_mu_1, from_x_1, c_1 = pieces.from_mu[1], pieces.from_x[1], activation.intercepts[1]
    sd_0, inv_sd_0, sd_1, inv_sd_1 = pieces.sd[0], pieces.inv_sd[0], pieces.sd[1], pieces.inv_sd[1]
    sd_ratio = sd_1 * inv_sd_0
    are_sds = min(sd_0, sd_1) > 0.0 and max(sd_0, sd_1) < BEYOND_BOUNDS
    for k in range(count):
        mu, x = table[MU + k], table[X + k]
        mean_0 = from_mu_0 * mu + from_x_0 * (x - c_0)
        mean_1 = from_mu_1 * mu + from_x_1 * (x - c_1)
        beyond_0, beyond_1 = (mean_0 - edge) * inv_sd_0, (edge - mean_1) * inv_sd_1
        is_tail_0, is_tail_1 = beyond_0 > NEAR, beyond_1 > NEAR
        step_up = jump * (x - middle)
        gain_0 = 0.0 if is_tail_0 else 0.5 * beyond_0 * beyond_0
        gain_1 = 0.0 if is_tail_1 else 0.5 * beyond_1 * beyond_1
        log_odds = step_up + (gain_1 - gain_0)
        smaller = exp_negative(max(-abs(log_odds), NEGLIGIBLE))
        lower = (1.0 / beyond_0 if is_tail_0 else SQRT_2PI) * (smaller if log_odds > 0.0 else 1.0)
        upper = (1.0 / beyond_1 if is_tail_1 else SQRT_2PI) * (1.0 if log_odds > 0.0 else smaller)
        upper *= sd_ratio
        table[CHANCE + k] = upper / (lower + upper)
        table[CENTER_0 + k] = edge if is_tail_0 else mean_0
        table[SCALE_0 + k] = -sd_0 if is_tail_0 else sd_0
        table[DISTANCE_0 + k] = beyond_0 if is_tail_0 else 0.0
        table[CENTER_1 + k] = edge if is_tail_1 else mean_1
        table[SCALE_1 + k] = sd_1
        table[DISTANCE_1 + k] = beyond_1 if is_tail_1 else 0.0
        sizes = abs(beyond_0) + abs(beyond_1) + abs(step_up) + abs(mean_0) + abs(mean_1)
        is_good = (sizes + lower + upper < BEYOND_BOUNDS) & (lower + upper > 0.0) & are_sds
        table[STAYS + k] = 1.0 if is_good else 0.0


@jit
def keep(waiting: Waiting, first: int, last: int) -> int:
    """Move those that stay together, and return where they end."""
    table, end = waiting.table, first
    for k in range(first, last):
        waiting.order[end] = k
        end += table[STAYS + k] == 1.0
    if end < last:
        for j in range(first, end):
            k = waiting.order[j]
            waiting.place[j] = waiting.place[k]
            for row in KEPT:
                table[row + j] = table[row + k]
    return end


@jit
def propose_each(table: Array, count: int, streams: Streams, edge: float) -> None:
    """A proposal for each draw."""
    for k in range(count):
        is_upper = streams.uniform[k] < table[CHANCE + k]
        center = table[CENTER_1 + k] if is_upper else table[CENTER_0 + k]
        scale = table[SCALE_1 + k] if is_upper else table[SCALE_0 + k]
        distance = table[DISTANCE_1 + k] if is_upper else table[DISTANCE_0 + k]
        normal = streams.normal[k]
        square = normal * normal + streams.other[k] * streams.other[k]
        far = math.sqrt(distance * distance + square)
        tail = square / (far + distance)
        z = center + scale * (tail if distance > 0.0 else normal)
        above = z - edge if is_upper else edge - z
        is_tail = 0.0 if streams.threshold[k] * far < distance else 1.0
        is_outside = 0.0 if above >= 0.0 else 1.0
        table[POINT + k] = z
        table[STAYS + k] = is_tail if distance > 0.0 else is_outside


@jit
def propose_together(
    rng: Generator, streams: Streams, waiting: Waiting, end: int, edge: float, out: Array
) -> int:
    """Propose the last AT_A_TIME draws that wait; those accepted leave, and others wait again."""
    fill_uniform(streams.state, streams.bits, streams.uniform)
    fill_uniform(streams.state, streams.bits, streams.threshold)
    fill_normal(rng, streams.state, streams.bits, streams.beyond, streams.normal)
    fill_normal(rng, streams.state, streams.bits, streams.beyond, streams.other)
    first = max(end - AT_A_TIME, 0)
    propose_each(waiting.table[first:], end - first, streams, edge)
    for k in range(first, end):
        out[waiting.place[k]] = waiting.table[POINT + k]
    return keep(waiting, first, end)


@inline
def propose_alone(rng: Generator, waiting: Waiting, end: int, edge: float, out: Array) -> None:
    """Propose what waits one by one."""
    table = waiting.table
    for k in range(end):
        accepted = False
        while not accepted:
            is_upper = rng.random() < table[CHANCE + k]
            center = table[CENTER_1 + k] if is_upper else table[CENTER_0 + k]
            scale = table[SCALE_1 + k] if is_upper else table[SCALE_0 + k]
            distance = table[DISTANCE_1 + k] if is_upper else table[DISTANCE_0 + k]
            if distance > 0.0:
                square = 2.0 * rng.standard_exponential()
                far = math.sqrt(distance * distance + square)
                out[waiting.place[k]] = center + scale * (square / (far + distance))
                accepted = rng.random() * far < distance
            else:
                z = center + scale * rng.standard_normal()
                out[waiting.place[k]] = z
                accepted = z >= edge if is_upper else z <= edge


@jit
def draw_from_two(
    rng: Generator, mu: Array, sigma: Array, x: Array, tau: Array, activation: Activation,
    pieces: PieceTerms, out: Array,
) -> None:  # fmt: skip
    """Draw what the proposals here can; the others become NaN."""
    n = out.size
    many, edge, end = n >= ENOUGH, activation.edges[1], 0
    bits, beyond = np.empty(AT_A_TIME, np.uint64), np.empty(AT_A_TIME, np.bool_)
    state = begin_streams(rng) if many else bits
    uniform, threshold, normal, other = np.empty((4, AT_A_TIME))
    streams = Streams(state, bits, beyond, uniform, threshold, normal, other)
    waiting = Waiting(np.empty(11 * ROOM), np.empty(ROOM, np.int64), np.empty(ROOM, np.int64))
    if n > 0:
        set_pieces(entry(sigma, 0), entry(tau, 0), activation, pieces)
    for first in range(0, n, AT_A_TIME):
        count = min(AT_A_TIME, n - first)
        for k in range(count):
            waiting.place[end + k] = first + k
            waiting.table[MU + end + k] = entry(mu, first + k)
            waiting.table[X + end + k] = entry(x, first + k)
        if max(sigma.size, tau.size) > 1:
            for k in range(count):
                sigma_i, tau_i = entry(sigma, first + k), entry(tau, first + k)
                set_pieces(sigma_i, tau_i, activation, pieces)
                compare_two(waiting.table[end + k :], 1, activation, pieces)
        else:
            compare_two(waiting.table[end:], count, activation, pieces)
        # Those that have proposals wait.
        for k in range(end, end + count):
            if waiting.table[STAYS + k] == 0.0:
                out[waiting.place[k]] = math.nan
        end = keep(waiting, end, end + count)
        while many and end >= AT_A_TIME:
            end = propose_together(rng, streams, waiting, end, edge, out)
        if not many:
            propose_alone(rng, waiting, end, edge, out)
            end = 0
    while end > WORTH_A_TURN:
        end = propose_together(rng, streams, waiting, end, edge, out)
    propose_alone(rng, waiting, end, edge, out)
