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
from typing import Any

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


@jit
def set_pieces(
    sigma: float, tau: float, edges: Array, slopes: Array, intercepts: Array, table: Array
) -> None:
    """Fill what does not depend on mu and x.

    Piece k has mean ``from_mu[k] mu + from_x[k] (x - c_k)`` and sd ``sd[k]``; crossing its
    lower edge upwards changes the log density by ``jump[k] (x - middle[k])``.
    """
    from_mu, from_x, sd, inv_sd, width, jump, middle = table
    for k in range(slopes.size):
        spread = math.hypot(tau, slopes[k] * sigma)
        share = tau / spread if tau < math.inf else 1.0
        from_mu[k] = share**2
        from_x[k] = slopes[k] * (sigma / spread) * (sigma / spread)
        sd[k] = sigma * share
        inv_sd[k] = 1.0 / sd[k]
        width[k] = (edges[k + 1] - edges[k]) / sd[k]
        if k > 0:
            left = slopes[k - 1] * edges[k] + intercepts[k - 1]
            right = slopes[k] * edges[k] + intercepts[k]
            jump[k] = (right - left) / tau / tau
            middle[k] = 0.5 * (left + right)


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
def two_pieces(
    rng: Generator,
    state: Array,
    bits: Array,
    beyond: Array,
    numbers: Array,
    place: Array,
    chance: Array,
    mean: Array,
    sd: Array,
    free: Array,
    edge: float,
    out: Array,
) -> int:
    """A proposal for each of AT_A_TIME draws from two pieces; those that are accepted leave.

    The others wait for the next turn, with new ones in the slots that are free: a branch that the
    processor cannot foresee costs more than a proposal.

    Parameters
    ----------
    rng : Generator
    state, bits, beyond : array
        Of :func:`fill_normal`.
    numbers : array, shape (2, AT_A_TIME)
        Scratch.
    place : array of int, shape (AT_A_TIME,)
        Where each draw goes.
    chance : array, shape (AT_A_TIME,)
        Of a proposal of the upper piece.
    mean, sd : array, shape (AT_A_TIME, 2)
        Of each piece's normal.
    free : array of int, shape (AT_A_TIME,)
        Filled with the slots of draws that are done.
    edge : float
        Between the pieces.
    out : array
        Filled at the places.

    Returns
    -------
    int
        Number of slots that are free.
    """
    uniform, normal = numbers
    fill_uniform(state, bits, uniform)
    fill_normal(rng, state, bits, beyond, normal)
    done = 0
    for k in range(AT_A_TIME):
        is_upper = uniform[k] < chance[k]
        piece = np.int64(is_upper)
        z = mean[k, piece] + sd[k, piece] * normal[k]
        out[place[k]] = z
        free[done] = k
        done += (z > edge) == is_upper
    return done


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
    pieces = slopes.size
    if knots.size != pieces - 1 or intercepts.size != pieces:
        raise ValueError("K knots need K + 1 slopes and K + 1 intercepts")
    n = out.size
    i_mu, i_sigma = step(mu.size, n), step(sigma.size, n)
    i_x, i_tau = step(x.size, n), step(tau.size, n)
    edges = np.empty(pieces + 1)
    edges[0], edges[pieces] = -math.inf, math.inf
    for k in range(1, pieces):
        edges[k] = knots[k - 1]
    table = np.empty((7, pieces))
    from_mu, from_x, sd, inv_sd, width, jump, middle = table
    mean, log_density, size, cumulative = np.empty((4, pieces))
    kind = np.empty(pieces, np.int64)
    numbers, place = np.empty((2, AT_A_TIME)), np.zeros(AT_A_TIME, np.int64)
    chances, means, sds = np.empty(AT_A_TIME), np.empty((AT_A_TIME, 2)), np.empty((AT_A_TIME, 2))
    bits, beyond = np.empty(AT_A_TIME, np.uint64), np.empty(AT_A_TIME, np.bool_)
    many = n >= FEW and pieces == 2
    state = begin_streams(rng) if many else bits
    free, n_free = np.arange(AT_A_TIME), AT_A_TIME
    log_sd_ratio = 0.0

    for i in range(n):
        mu_i, x_i = np.float64(mu[i * i_mu]), np.float64(x[i * i_x])
        if i == 0 or i_sigma + i_tau > 0:
            sigma_i, tau_i = np.float64(sigma[i * i_sigma]), np.float64(tau[i * i_tau])
            set_pieces(sigma_i, tau_i, edges, slopes, intercepts, table)
            log_sd_ratio = math.log(sd[pieces - 1] * inv_sd[0])

        if pieces == 2:
            mean[0] = from_mu[0] * mu_i + from_x[0] * (x_i - intercepts[0])
            mean[1] = from_mu[1] * mu_i + from_x[1] * (x_i - intercepts[1])
            above = (edges[1] - mean[0]) * inv_sd[0]
            below = (edges[1] - mean[1]) * inv_sd[1]
            step_up = jump[1] * (x_i - middle[1])
            upward = step_up + 0.5 * (min(below, 0.0) ** 2 - max(above, 0.0) ** 2)
            if abs(upward) > -NEGLIGIBLE:
                k = 1 if upward > 0.0 else 0
                out[i] = draw_truncated_normal(rng, mean[k], sd[k], edges[k], edges[k + 1])
                continue
            log_odds = step_up + 0.5 * (below * below - above * above) + log_sd_ratio
            if above > -OUTSIDE and below < OUTSIDE and abs(log_odds) < -NEGLIGIBLE:
                odds = math.exp(log_odds)
                chance = odds / (1.0 + odds)
                if not many:
                    out[i] = one_of_two(rng, chance, mean, sd, edges[1])
                    continue
                n_free -= 1
                k = free[n_free]
                place[k], chances[k] = i, chance
                means[k, 0], means[k, 1], sds[k, 0], sds[k, 1] = mean[0], mean[1], sd[0], sd[1]
                while n_free == 0:
                    n_free = two_pieces(
                        rng, state, bits, beyond, numbers, place, chances, means, sds, free,
                        edges[1], out,
                    )  # fmt: skip
                continue

        mean[0] = from_mu[0] * mu_i + from_x[0] * (x_i - intercepts[0])
        reach = max((edges[1] - mean[0]) * inv_sd[0], 0.0)
        largest = 0.5 * reach * reach
        log_density[0] = largest
        second = -math.inf
        best = 0
        at_lower = at_upper = 0.0
        for k in range(1, pieces):
            at_lower = at_upper + jump[k] * (x_i - middle[k])
            mean[k] = from_mu[k] * mu_i + from_x[k] * (x_i - intercepts[k])
            below = (edges[k] - mean[k]) * inv_sd[k]
            above = (edges[k + 1] - mean[k]) * inv_sd[k]
            at_upper = at_lower - 0.5 * width[k] * (below + above)
            if above < 0.0:
                density = at_upper
            else:
                reach = min(below, 0.0)
                density = at_lower + 0.5 * reach * reach
            log_density[k] = density
            second = max(second, min(density, largest))
            best = k if density > largest else best
            largest = max(density, largest)

        if second - largest < NEGLIGIBLE:
            out[i] = draw_truncated_normal(rng, mean[best], sd[best], edges[best], edges[best + 1])
            continue

        total = reference = 0.0
        for k in range(pieces):
            if log_density[k] - largest > NEGLIGIBLE:
                below = (edges[k] - mean[k]) * inv_sd[k]
                above = (edges[k + 1] - mean[k]) * inv_sd[k]
                kind[k], size[k], gain = lightest_proposal(below, above, width[k])
                weight = size[k] * sd[k]
                if total > 0.0:
                    weight *= math.exp(log_density[k] - reference + gain)
                else:
                    reference = log_density[k] + gain
                total += weight
            cumulative[k] = total
        if not 0.0 < total < math.inf:
            out[i] = math.nan
            continue

        accepted = False
        while not accepted:
            k = 0
            u = total * rng.random()
            for j in range(pieces - 1):
                k += u >= cumulative[j]
            accepted, z = propose(rng, kind[k], size[k], mean[k], sd[k], edges[k], edges[k + 1])
            out[i] = z
    for k in range(n_free):
        place[free[k]] = -1
    for k in range(AT_A_TIME):
        if place[k] >= 0:
            out[place[k]] = one_of_two(rng, chances[k], means[k], sds[k], edges[1])
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
