r"""A normal seen through a noisy piecewise-linear activation.

.. math:: p(z) \propto N(z \mid \mu, \sigma^2)\, N(x \mid a(z), \tau^2), \qquad
          a(z) = s_k z + c_k \text{ on piece } k = (t_k, t_{k+1}),\ t_0 = -\infty

is the full conditional of a pre-activation (Piccioli, Troiani and Zdeborova,
arXiv:2306.02729, eq. 10, with :math:`\mu = F`, :math:`\sigma^2 = \Delta_Z`,
:math:`\tau^2 = \Delta_X`) for ReLU, leaky ReLU, absolute value, sign, hard tanh and any
other piecewise-linear :math:`a`, jumps included. On piece k it is a truncated
:math:`N(m_k, v_k)` with

.. math:: m_k = \frac{\tau^2 \mu + s_k \sigma^2 (x - c_k)}{\tau^2 + s_k^2 \sigma^2}, \qquad
          v_k = \frac{\sigma^2 \tau^2}{\tau^2 + s_k^2 \sigma^2}.

The draw rejects from a mixture with one component per piece, the proposal of its truncated
normal (:mod:`.truncated_normal`): choose a piece by the mass of its proposal, propose
there, and accept or begin again with the choice of a piece. At least 0.49 of the proposals
are accepted wherever :math:`\mu` and x are.

What the masses need is the log density at each piece's mode. It is built up from knot to
knot: within a piece it changes by a difference of squared distances from :math:`m_k`, at a
knot by the jump of :math:`a`. Large numbers that all pieces share never enter, so that the
odds between neighbours are as accurate when x is a million noise scales from :math:`a(z)` as
when it is one. Pieces whose density at the mode is :math:`e^{-100}` of the largest are left
out.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.random import Generator
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.random.op import KernelRV, draw_elementwise
from pymc_nnsteps.random.parameters import Array, step
from pymc_nnsteps.random.streams import AT_A_TIME, FEW, begin_streams, fill_normal, fill_uniform
from pymc_nnsteps.random.truncated_normal import draw_truncated_normal, lightest_proposal, propose

NEGLIGIBLE = -100.0
"""Log odds below which a piece is left out."""
OUTSIDE = 1.5
"""How many sds a piece's mode may lie outside it for its whole normal to be proposed."""


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


class Proposals(NamedTuple):
    """Proposals of pieces: their kinds and sizes, and the sum of the masses up to each."""

    kind: Array
    size: Array
    cumulative: Array


class Waiting(NamedTuple):
    """Draws from two pieces that wait to be proposed together.

    Parameters
    ----------
    place : array of int, shape (AT_A_TIME,)
        Where each draw goes; -1 if the slot is free.
    chance : array, shape (AT_A_TIME,)
        Probability that a proposal is of the upper piece.
    mean, sd : array, shape (AT_A_TIME, 2)
        Normal of each piece.
    free : array of int, shape (AT_A_TIME,)
        Free slots come first.
    """

    place: Array
    chance: Array
    mean: Array
    sd: Array
    free: Array


class Streams(NamedTuple):
    """Numbers that are made together: state, bits and beyond as of :func:`fill_normal`."""

    state: Array
    bits: Array
    beyond: Array
    uniform: Array
    normal: Array


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


@inline
def one_of_two(rng: Generator, chance: float, mean: Array, sd: Array, edge: float) -> float:
    """A draw from two pieces whose modes are not far outside them, by their whole normals."""
    while True:
        is_upper = rng.random() < chance
        piece = np.int64(is_upper)
        z = mean[piece] + sd[piece] * rng.standard_normal()
        if (z > edge) == is_upper:
            return z


@jit
def propose_together(
    rng: Generator, streams: Streams, waiting: Waiting, edge: float, out: Array
) -> int:
    """A proposal for each of AT_A_TIME draws from two pieces; those that are accepted leave.

    The others wait for the next turn, with new ones in the slots that are free: a branch that the
    processor cannot foresee costs more than a proposal. Returns the number of free slots.
    """
    fill_uniform(streams.state, streams.bits, streams.uniform)
    fill_normal(rng, streams.state, streams.bits, streams.beyond, streams.normal)
    done = 0
    for k in range(AT_A_TIME):
        is_upper = streams.uniform[k] < waiting.chance[k]
        piece = np.int64(is_upper)
        z = waiting.mean[k, piece] + waiting.sd[k, piece] * streams.normal[k]
        out[waiting.place[k]] = z
        waiting.free[done] = k
        done += (z > edge) == is_upper
    return done


@inline
def wait(waiting: Waiting, slot: int, place: int, chance: float, mean: Array, sd: Array) -> None:
    """Let a draw from two pieces take a free slot."""
    waiting.place[slot], waiting.chance[slot] = place, chance
    waiting.mean[slot, 0], waiting.mean[slot, 1] = mean[0], mean[1]
    waiting.sd[slot, 0], waiting.sd[slot, 1] = sd[0], sd[1]


@inline
def draw_waiting(rng: Generator, waiting: Waiting, n_free: int, edge: float, out: Array) -> None:
    """Draw what still waits, one by one."""
    for k in range(n_free):
        waiting.place[waiting.free[k]] = -1
    for k in range(AT_A_TIME):
        if waiting.place[k] >= 0:
            out[waiting.place[k]] = one_of_two(
                rng, waiting.chance[k], waiting.mean[k], waiting.sd[k], edge
            )


@inline
def compare_two(
    mu: float, x: float, activation: Activation, pieces: Pieces, log_sd_ratio: float, mean: Array
) -> tuple[float, float, bool]:
    """Fill the means of two pieces, and compare them.

    Returns by how much the log density at the mode of the upper one is larger, the log odds of
    proposals by their whole normals, and whether both modes are near their pieces.
    """
    mean[0] = mean_of(0, mu, x, activation, pieces)
    mean[1] = mean_of(1, mu, x, activation, pieces)
    above = (activation.edges[1] - mean[0]) * pieces.inv_sd[0]
    below = (activation.edges[1] - mean[1]) * pieces.inv_sd[1]
    step_up = pieces.jump[1] * (x - pieces.middle[1])
    upward = step_up + 0.5 * (min(below, 0.0) ** 2 - max(above, 0.0) ** 2)
    log_odds = step_up + 0.5 * (below * below - above * above) + log_sd_ratio
    return upward, log_odds, above > -OUTSIDE and below < OUTSIDE


@inline
def weigh_pieces(
    mu: float, x: float, activation: Activation, pieces: Pieces, mean: Array, log_density: Array
) -> tuple[int, float, float]:
    """Fill each piece's mean, and the log density at its mode beside the first edge.

    Returns the piece of the largest, that density, and the second largest.
    """
    edges = activation.edges
    mean[0] = mean_of(0, mu, x, activation, pieces)
    reach = max((edges[1] - mean[0]) * pieces.inv_sd[0], 0.0)
    largest = 0.5 * reach * reach
    log_density[0] = largest
    second = -math.inf
    best = 0
    at_lower = at_upper = 0.0
    for k in range(1, len(mean)):
        at_lower = at_upper + pieces.jump[k] * (x - pieces.middle[k])
        mean[k] = mean_of(k, mu, x, activation, pieces)
        below = (edges[k] - mean[k]) * pieces.inv_sd[k]
        above = (edges[k + 1] - mean[k]) * pieces.inv_sd[k]
        at_upper = at_lower - 0.5 * pieces.width[k] * (below + above)
        if above < 0.0:
            density = at_upper
        else:
            reach = min(below, 0.0)
            density = at_lower + 0.5 * reach * reach
        log_density[k] = density
        second = max(second, min(density, largest))
        best = k if density > largest else best
        largest = max(density, largest)
    return best, largest, second


@inline
def draw_of_mixture(
    rng: Generator, largest: float, edges: Array, pieces: Pieces, mean: Array, log_density: Array,
    proposals: Proposals,
) -> float:  # fmt: skip
    """Choose a piece by the mass of its proposal and propose there, until one is accepted."""
    kind, size, cumulative = proposals.kind, proposals.size, proposals.cumulative
    total = reference = 0.0
    for k in range(len(mean)):
        if log_density[k] - largest > NEGLIGIBLE:
            below = (edges[k] - mean[k]) * pieces.inv_sd[k]
            above = (edges[k + 1] - mean[k]) * pieces.inv_sd[k]
            kind[k], size[k], gain = lightest_proposal(below, above, pieces.width[k])
            weight = size[k] * pieces.sd[k]
            if total > 0.0:
                weight *= math.exp(log_density[k] - reference + gain)
            else:
                reference = log_density[k] + gain
            total += weight
        cumulative[k] = total
    if not 0.0 < total < math.inf:
        return math.nan
    while True:
        k = 0
        u = total * rng.random()
        for j in range(len(mean) - 1):
            k += u >= cumulative[j]
        accepted, z = propose(rng, kind[k], size[k], mean[k], pieces.sd[k], edges[k], edges[k + 1])
        if accepted:
            return z


@inline
def draw_piece(rng: Generator, k: int, edges: Array, mean: Array, pieces: Pieces) -> float:
    """A draw from one piece."""
    return draw_truncated_normal(rng, mean[k], pieces.sd[k], edges[k], edges[k + 1])


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


@inline
def empty_proposals(n: int) -> Proposals:
    """Room for proposals of pieces."""
    return Proposals(np.empty(n, np.int64), np.empty(n), np.empty(n))


@inline
def no_draws() -> Waiting:
    """Slots that are all free."""
    return Waiting(
        np.zeros(AT_A_TIME, np.int64), np.empty(AT_A_TIME), np.empty((AT_A_TIME, 2)),
        np.empty((AT_A_TIME, 2)), np.arange(AT_A_TIME),
    )  # fmt: skip


@inline
def begin(rng: Generator, many: bool) -> Streams:
    """Streams at the generator's next words, if there are many draws."""
    bits, beyond = np.empty(AT_A_TIME, np.uint64), np.empty(AT_A_TIME, np.bool_)
    state = begin_streams(rng) if many else bits
    return Streams(state, bits, beyond, np.empty(AT_A_TIME), np.empty(AT_A_TIME))


@jit
def piecewise_normal_kernel(
    rng: Generator,
    mu: Array,
    sigma: Array,
    x: Array,
    tau: Array,
    knots: Array,
    slopes: Array,
    intercepts: Array,
    out: Array,
) -> Array:
    """Independent normals seen through a piecewise-linear activation."""
    n_pieces, n = slopes.size, out.size
    if knots.size != n_pieces - 1 or intercepts.size != n_pieces:
        raise ValueError("K knots need K + 1 slopes and K + 1 intercepts")
    i_mu, i_sigma = step(mu.size, n), step(sigma.size, n)
    i_x, i_tau = step(x.size, n), step(tau.size, n)
    activation, pieces = Activation(edges_of(knots), slopes, intercepts), empty_pieces(n_pieces)
    mean, log_density = np.empty(n_pieces), np.empty(n_pieces)
    proposals = empty_proposals(n_pieces)
    many = n >= FEW and n_pieces == 2
    streams, waiting, n_free = begin(rng, many), no_draws(), AT_A_TIME
    edge, log_sd_ratio = activation.edges[1], 0.0

    for i in range(n):
        mu_i, x_i = np.float64(mu[i * i_mu]), np.float64(x[i * i_x])
        if i == 0 or i_sigma + i_tau > 0:
            sigma_i, tau_i = np.float64(sigma[i * i_sigma]), np.float64(tau[i * i_tau])
            set_pieces(sigma_i, tau_i, activation, pieces)
            log_sd_ratio = math.log(pieces.sd[n_pieces - 1] * pieces.inv_sd[0])
        if n_pieces == 2:
            upward, log_odds, is_near = compare_two(
                mu_i, x_i, activation, pieces, log_sd_ratio, mean
            )
            # One of them has all of the mass.
            if abs(upward) > -NEGLIGIBLE:
                k = 1 if upward > 0.0 else 0
                out[i] = draw_piece(rng, k, activation.edges, mean, pieces)
                continue
            # Proposals by the whole normals, of many draws together.
            if is_near and abs(log_odds) < -NEGLIGIBLE:
                odds = math.exp(log_odds)
                chance = odds / (1.0 + odds)
                if not many:
                    out[i] = one_of_two(rng, chance, mean, pieces.sd, edge)
                    continue
                n_free -= 1
                wait(waiting, waiting.free[n_free], i, chance, mean, pieces.sd)
                while n_free == 0:
                    n_free = propose_together(rng, streams, waiting, edge, out)
                continue
        best, largest, second = weigh_pieces(mu_i, x_i, activation, pieces, mean, log_density)
        if second - largest < NEGLIGIBLE:
            out[i] = draw_piece(rng, best, activation.edges, mean, pieces)
            continue
        out[i] = draw_of_mixture(
            rng, largest, activation.edges, pieces, mean, log_density, proposals
        )
    draw_waiting(rng, waiting, n_free, edge, out)
    return out


class PiecewiseNormalRV(KernelRV):
    """Draws over raveled parameters; used through `piecewise_normal`."""

    name = "piecewise_normal"
    signature = "(n),(s),(x),(t),(k),(p),(p)->(n)"
    kernel = staticmethod(piecewise_normal_kernel)


_piecewise_normal = PiecewiseNormalRV()


def piecewise_normal(
    rng: Variable,
    mu: TensorLike,
    sigma: TensorLike,
    x: TensorLike,
    tau: TensorLike,
    knots: TensorLike,
    slopes: TensorLike,
    intercepts: TensorLike,
    *,
    size: Sequence[Any] | None = None,
) -> tuple[Variable, TensorVariable]:
    """Draw z given ``z ~ N(mu, sigma^2)`` and ``x ~ N(a(z), tau^2)``, elementwise.

    Parameters
    ----------
    rng : RandomGeneratorVariable
        The generator to draw with.
    mu, sigma : tensor_like
        Mean and standard deviation of z before x is seen.
    x, tau : tensor_like
        What is seen of ``a(z)``, and the standard deviation of its noise: infinite where nothing
        is seen.
    knots : tensor_like, shape (K,)
        Where the pieces of the activation meet, increasing; K may be zero.
    slopes, intercepts : tensor_like, shape (K + 1,)
        The activation is ``slopes[k] * z + intercepts[k]`` between ``knots[k - 1]`` and
        ``knots[k]``. The same activation serves all elements.
    size : sequence of int or scalar variables, optional
        The broadcast shape of mu, sigma, x and tau, where the caller knows it.

    Returns
    -------
    next_rng : RandomGeneratorVariable
        The generator after the draw.
    draw : TensorVariable
        Draws of the broadcast shape and common dtype of mu, sigma, x and tau; NaN where one
        of these is NaN.
    """
    shared = (pt.cast(pt.as_tensor(vector), "float64") for vector in (knots, slopes, intercepts))
    return draw_elementwise(_piecewise_normal, rng, (mu, sigma, x, tau), *shared, size=size)
