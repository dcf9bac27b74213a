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

Two pieces, as ReLU has, are drawn many elements at a time (:mod:`.two_pieces`).

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

from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.random.op import Array, KernelRV, draw_elementwise, entry
from pymc_nnsteps.random.truncated_normal import draw_truncated_normal, lightest_proposal, propose
from pymc_nnsteps.random.two_pieces import (
    Activation,
    PieceTerms,
    draw_from_two,
    mean_of,
    set_pieces,
)

NEGLIGIBLE = -100.0
"""Log odds below which a piece is left out."""


class PieceProposals(NamedTuple):
    """Proposals of pieces: their kinds and sizes, and the sum of the masses up to each."""

    kind: Array
    size: Array
    cumulative: Array


@inline
def log_density_of_pieces(
    mu: float, x: float, activation: Activation, pieces: PieceTerms, mean: Array, log_density: Array
) -> tuple[int, float, float]:
    """Fill each piece's mean and log density at its mode; return the two largest densities."""
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
    rng: Generator, largest: float, edges: Array, pieces: PieceTerms, mean: Array,
    log_density: Array, proposals: PieceProposals,
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
def draw_one(
    rng: Generator, mu: float, x: float, activation: Activation, pieces: PieceTerms, mean: Array,
    log_density: Array, proposals: PieceProposals,
) -> float:  # fmt: skip
    """A draw, wherever the modes of pieces are."""
    edges = activation.edges
    best, largest, second = log_density_of_pieces(mu, x, activation, pieces, mean, log_density)
    if second - largest < NEGLIGIBLE:
        return draw_truncated_normal(rng, mean[best], pieces.sd[best], edges[best], edges[best + 1])
    return draw_of_mixture(rng, largest, edges, pieces, mean, log_density, proposals)


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
    edges = np.empty(n_pieces + 1)
    edges[0], edges[n_pieces] = -math.inf, math.inf
    for k in range(n_pieces - 1):
        edges[k + 1] = knots[k]
    from_mu, from_x, sd, inv_sd, width, jump, middle = np.empty((7, n_pieces))
    pieces = PieceTerms(from_mu, from_x, sd, inv_sd, width, jump, middle)
    activation = Activation(edges, slopes, intercepts)
    mean, log_density = np.empty(n_pieces), np.empty(n_pieces)
    proposals = PieceProposals(np.empty(n_pieces, np.int64), np.empty(n_pieces), np.empty(n_pieces))
    if n_pieces == 2:
        draw_from_two(rng, mu, sigma, x, tau, activation, pieces, out)
    for i in range(n):
        if n_pieces == 2 and not math.isnan(out[i]):
            continue
        if i == 0 or n_pieces == 2 or max(sigma.size, tau.size) > 1:
            set_pieces(entry(sigma, i), entry(tau, i), activation, pieces)
        mu_i, x_i = entry(mu, i), entry(x, i)
        out[i] = draw_one(rng, mu_i, x_i, activation, pieces, mean, log_density, proposals)
    return out


class PiecewiseNormalRV(KernelRV):
    """Draws over raveled parameters; used through `piecewise_normal`."""

    name = "piecewise_normal"
    signature = "(n),(s),(x),(t),(k),(p),(p)->(n)"
    kernel = piecewise_normal_kernel


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

    ``tau`` is infinite where nothing is seen; a is ``slopes[k] * z + intercepts[k]`` between
    ``knots[k - 1]`` and ``knots[k]``, (K,). A draw is NaN where a parameter is NaN.
    """
    shared = (pt.cast(pt.as_tensor(vector), "float64") for vector in (knots, slopes, intercepts))
    return draw_elementwise(PiecewiseNormalRV(), rng, (mu, sigma, x, tau), *shared, size=size)
