r"""The numerical core of this room: exact, fast draws as Numba kernels.

Every normal draw here is a rejection from a normal restricted to an interval. Let
:math:`z \sim N(m, s^2)` given :math:`l \le z \le u`. In standard units the interval runs
from ``below`` :math:`= (l - m)/s` to ``above`` :math:`= (u - m)/s` and has a ``width``
:math:`= (u - l)/s`, which is passed along because ``above - below`` would lose it far from
the mean. Relative to the density at the mode (the mean, or the bound nearest to it), the
lightest of three proposals is used:

=====  ==========================================  =======================
kind   proposal                                    mass
=====  ==========================================  =======================
BULK   the normal itself                           :math:`\sqrt{2\pi}`
FLAT   uniform on the interval                     ``width``
TAIL   exponential of mean ``r`` beyond the bound  :math:`r \exp(r^2/2)`
=====  ==========================================  =======================

TAIL is Robert's (1995) proposal for a bound at a distance :math:`a > 0` from the mean: the
rate that accepts most is :math:`1/r = (a + \sqrt{a^2 + 4})/2`, and since
:math:`1/r - a = r` a proposal :math:`r E`, E standard exponential, is accepted with
probability :math:`\exp(-r^2 (E - 1)^2/2)`.

The least acceptance is 0.49, at an interval from the mean to 2.5 sds beside it. There is no
distribution function and no special function, hence no distance from the mean at which
accuracy ends. An excess over a bound is generated as such, so that draws beside a distant
bound keep their relative precision. Because the masses are known, a *mixture* of restricted
normals is drawn with the same three proposals.

Where many uniform numbers and standard normals are called for they are made together: streams of
random bits that begin at words of the given generator advance side by side (Blackman and Vigna,
2021), as the processor works on several numbers at once, and a ziggurat (Marsaglia and Tsang, 2000)
of so many layers that few points lie outside them makes normals of them.

The generalised inverse Gaussian and the Polya-Gamma have their own proposals, which
`pymc_nnsteps.random.generalized_inverse_gaussian` and `pymc_nnsteps.random.polya_gamma` derive.

Conventions: arithmetic is in float64 whatever the arrays hold; a parameter has one element
or one for each draw; the last argument is filled and returned; tests are phrased as
rejections, so that a NaN is returned and does not loop. All kernels stand in one file
because Numba's cache stamps a kernel with the text of its own file, not with those of the
functions it calls.

References
----------
Blackman, D., and Vigna, S. (2021). Scrambled linear pseudorandom number generators. ACM
Transactions on Mathematical Software 47.
Marsaglia, G., and Tsang, W. W. (2000). The ziggurat method for generating random variables. Journal
of Statistical Software 5.
Robert, C. P. (1995). Simulation of truncated normal variables. Statistics and Computing 5.
"""

import math

import numpy as np
from numpy.random import Generator

from pymc_nnsteps.kernels.jit import inline, jit

Array = np.ndarray
Constants = tuple[float, float, float, float, float, float, float]

BEND = 0.64
"""Where a Polya-Gamma draw, times 4, turns from one proposal and series to the other."""

BULK, FLAT, TAIL = 0, 1, 2
SQRT_2PI = math.sqrt(2 * math.pi)
WIDEST_TAIL = math.exp(0.5)
NEGLIGIBLE = -100.0
"""Log odds below which a piece is left out."""
OUTSIDE = 1.5
"""How many sds a piece's mode may lie outside it for its whole normal to be proposed."""
AT_A_TIME = 512
"""Numbers that are made together."""
FEW = 2000
"""Numbers that are not worth the start of streams."""
STREAMS = 64
"""Generators that are run side by side: a power of two, which divides AT_A_TIME."""
LAYERS = 1024
"""Of the ziggurat, a power of two."""
LAST_EDGE = 4.038849846109504
"""Where the tail begins below which that many layers, the tail with its own among them, close."""

BENT, PLATEAU, SQUARED_NORMAL, GAMMA, CONSTANT = 0, 1, 2, 3, 4
INVERSE_E = math.exp(-1.0)
NO_CONSTANTS = (0.0,) * 7
SMALLEST = 5e-324


@jit
def step(length: int, n: int) -> int:
    """Step of the index into a parameter along n draws: 1, or 0 if it has one element."""
    if length == n:
        return 1
    if length == 1:
        return 0
    raise ValueError("a parameter has neither one element nor one for each draw")


@inline
def word(rng: Generator) -> np.uint64:
    """64 random bits."""
    high, low = np.uint64(rng.random() * 2.0**32), np.uint64(rng.random() * 2.0**32)
    return (high << np.uint64(32)) | low


@jit
def begin_streams(rng: Generator) -> Array:
    """States of STREAMS generators xoshiro256++, all at random."""
    state = np.empty(4 * STREAMS, np.uint64)
    for i in range(state.size):
        state[i] = word(rng)
    return state


@jit
def fill_bits(state: Array, bits: Array) -> None:
    """The next AT_A_TIME words, from each stream in turn."""
    for i in range(0, AT_A_TIME, STREAMS):
        for j in range(STREAMS):
            a, b = state[j], state[STREAMS + j]
            c, d = state[2 * STREAMS + j], state[3 * STREAMS + j]
            total = a + d
            bits[i + j] = ((total << np.uint64(23)) | (total >> np.uint64(41))) + a
            shifted = b << np.uint64(17)
            c ^= a
            d ^= b
            state[j], state[STREAMS + j], state[2 * STREAMS + j] = a ^ d, b ^ c, c ^ shifted
            state[3 * STREAMS + j] = (d << np.uint64(45)) | (d >> np.uint64(19))


@jit
def fill_uniform(state: Array, bits: Array, out: Array) -> None:
    """Uniform numbers, at most as many as there are words."""
    fill_bits(state, bits)
    for k in range(out.size):
        out[k] = np.int64(bits[k] >> np.uint64(11)) * 2.0**-53


def ziggurat() -> Array:
    """Where layers of the same area under ``exp(-x^2 / 2)`` end, the lowest first.

    The last of them ends at zero. The lowest is as wide as a rectangle of its area, with the tail.
    """
    height = math.exp(-0.5 * LAST_EDGE**2)
    area = LAST_EDGE * height + math.sqrt(0.5 * math.pi) * math.erfc(LAST_EDGE / math.sqrt(2.0))
    edges = [area / height, LAST_EDGE]
    while len(edges) < LAYERS:
        height += area / edges[-1]
        edges.append(math.sqrt(-2.0 * math.log(height)))
    return np.array([*edges, 0.0])


EDGES = ziggurat()


@inline
def layer_point(bits: np.uint64) -> tuple[np.int64, float]:
    """A layer, and a point between its ends on both sides of zero."""
    layer = np.int64(bits) & (LAYERS - 1)
    return layer, (np.int64(bits) >> 11) * 2.0**-52 * EDGES[layer]


@jit
def outside(rng: Generator, layer: np.int64, z: float) -> float:
    """A standard normal where a point lies beyond the end of the next layer."""
    if layer == 0:
        while True:
            beyond = rng.standard_exponential() / LAST_EDGE
            if not beyond * beyond > 2.0 * rng.standard_exponential():
                return math.copysign(LAST_EDGE + beyond, z)
    below, above = math.exp(-0.5 * EDGES[layer] ** 2), math.exp(-0.5 * EDGES[layer + 1] ** 2)
    if below + rng.random() * (above - below) < math.exp(-0.5 * z * z):
        return z
    return rng.standard_normal()


@jit
def fill_normal(rng: Generator, state: Array, bits: Array, beyond: Array, out: Array) -> None:
    """Standard normals by a ziggurat, at most as many as there are words."""
    fill_bits(state, bits)
    for k in range(out.size):
        layer, z = layer_point(bits[k])
        out[k] = z
        beyond[k] = not abs(z) < EDGES[layer + 1]
    for k in range(out.size):
        if beyond[k]:
            layer, z = layer_point(bits[k])
            out[k] = outside(rng, layer, z)


@jit
def standard_normal_kernel(rng: Generator, shape: Array, out: Array) -> Array:
    """Standard normals, of any shape."""
    flat = out.reshape(-1)
    n = flat.size
    if n < FEW:
        for i in range(n):
            flat[i] = rng.standard_normal()
        return out
    state, bits = begin_streams(rng), np.empty(AT_A_TIME, np.uint64)
    beyond = np.empty(AT_A_TIME, np.bool_)
    for begin in range(0, n, AT_A_TIME):
        end = min(begin + AT_A_TIME, n)
        fill_normal(rng, state, bits, beyond, flat[begin:end])
    return out


@inline
def lightest_proposal(below: float, above: float, width: float) -> tuple[int, float, float]:
    """The lightest proposal: its kind, and its mass as ``size * exp(gain)``."""
    if below <= 0.0 and above >= 0.0:
        if width < SQRT_2PI:
            return FLAT, width, 0.0
        return BULK, SQRT_2PI, 0.0
    distance = max(below, -above)
    r = 2.0 / (distance + math.sqrt(distance * distance + 4.0))
    gain = 0.5 * r * r
    if width < WIDEST_TAIL and width < r * math.exp(gain):
        return FLAT, width, 0.0
    return TAIL, r, gain


@inline
def propose(
    rng: Generator, kind: int, size: float, mean: float, sd: float, lower: float, upper: float
) -> tuple[bool, float]:
    """One point of a proposal: (accepted, z)."""
    if kind == BULK:
        z = mean + sd * rng.standard_normal()
        return not (z < lower or z > upper), z
    if upper < mean:
        bound, direction, distance = upper, -sd, (mean - upper) / sd
    else:
        bound, direction, distance = lower, sd, (lower - mean) / sd
    accepted = False
    if kind == TAIL:
        exponential = rng.standard_exponential()
        excess = size * exponential
        slack = size * (exponential - 1.0)
        accepted = not (slack * slack > 2.0 * rng.standard_exponential())
    else:
        excess = size * rng.random()
        beyond = distance > 0.0
        drop = excess * (2.0 * distance + excess) if beyond else (distance + excess) ** 2
        accepted = not (drop > 2.0 * rng.standard_exponential())
    z = bound + direction * excess
    return accepted and not (z < lower or z > upper), z


@inline
def truncated_normal(rng: Generator, mu: float, sigma: float, lower: float, upper: float) -> float:
    """One draw; NaN where the bounds are in the wrong order or sigma is not positive."""
    if not (lower <= upper and sigma > 0.0):
        return math.nan
    kind, size, _ = lightest_proposal(
        (lower - mu) / sigma, (upper - mu) / sigma, (upper - lower) / sigma
    )
    while True:
        accepted, z = propose(rng, kind, size, mu, sigma, lower, upper)
        if accepted:
            return z


@jit
def truncated_normal_kernel(
    rng: Generator, mu: Array, sigma: Array, lower: Array, upper: Array, out: Array
) -> Array:
    """Independent truncated normals."""
    n = out.size
    i_mu, i_sigma = step(mu.size, n), step(sigma.size, n)
    i_lower, i_upper = step(lower.size, n), step(upper.size, n)
    for i in range(n):
        out[i] = truncated_normal(
            rng,
            np.float64(mu[i * i_mu]),
            np.float64(sigma[i * i_sigma]),
            np.float64(lower[i * i_lower]),
            np.float64(upper[i * i_upper]),
        )
    return out


@inline
def bent_normal(p: float, omega2: float) -> Constants:
    """Constants of the proposal BENT."""
    lean = p / math.sqrt(p * p + omega2)
    skew = max(p - lean / 3.0, 0.0)
    rho = math.sqrt(skew * skew + omega2)
    lean = skew / rho
    tilt = p - skew - lean / 3.0
    root = math.sqrt(rho)
    a = 0.5 * (rho + skew)
    b = 0.25 * omega2 / a
    return a, b, tilt, tilt / root, 1.0 / root, lean / (3.0 * root), 3.0 / lean


@inline
def draw_bent_normal(rng: Generator, constants: Constants) -> float:
    """exp(t), where t has the density exp(-a (e^t - 1 - t) - b (e^-t - 1 + t)) e^(t/k + tilt t)."""
    a, b, tilt, shift, narrow, bend, k = constants
    while True:
        z = shift + rng.standard_normal()
        growth = bend * z
        if growth <= -1.0:
            continue
        small = abs(growth) < 1e-8
        t = narrow * z * (1.0 - 0.5 * growth) if small else k * math.log1p(growth)
        if abs(t) < 0.01:
            rise = math.expm1(t)
            g = 1.0 + rise
        else:
            g = math.exp(t)
            rise = g - 1.0
        slack = a * (rise - t) + b * (t - rise / g) - tilt * t - z * (0.5 * z - shift)
        if not slack > rng.standard_exponential():
            return g


@inline
def plateau(p: float, omega: float) -> Constants:
    """Constants of the proposal PLATEAU."""
    half = 0.5 * omega
    reach = -math.log(half)
    fall = 2.0 * p * reach
    if fall < 1e-16:
        return p, half, reach, 0.0, 2.0 * reach, 1.0, 0.0
    drop = -math.expm1(-fall)
    return p, half, reach, drop, drop / p, 1.0 - drop, 0.0


@inline
def draw_plateau(rng: Generator, constants: Constants) -> float:
    """exp(y), where y has the density exp(p y - omega cosh y)."""
    p, half, reach, drop, middle, left, _ = constants
    total = middle + INVERSE_E * (1.0 + left)
    while True:
        u, g, slack = total * rng.random(), 1.0, 0.0
        if u < middle:
            u /= middle
            below = math.log1p(-drop * u) / p if drop > 0.0 else -2.0 * reach * u
            g = math.exp(reach + below)
            slack = half * (g + 1.0 / g)
        else:
            beyond = 1.0 + rng.standard_exponential()
            if u < middle + INVERSE_E:
                g = beyond / half
                slack = (1.0 - p) * math.log(beyond) + half / g
            else:
                g = half / beyond
                slack = (1.0 + p) * math.log(beyond) + half * g
        if not slack > rng.standard_exponential():
            return g


@inline
def gig_proposal(nu: float, delta2: float, lambda2: float) -> tuple[int, bool, float, Constants]:
    """Proposal for a generalised inverse Gaussian: its kind, whether to invert, scale, constants.

    A draw is ``scale * g``, or ``scale / g`` if inverted, where g has a density of the kind.
    """
    inverted = nu < 0.0
    p = abs(nu)
    rate, other = (delta2, lambda2) if inverted else (lambda2, delta2)
    omega2 = rate * other
    finite = p < math.inf and rate < math.inf and other < math.inf
    if not (rate > 0.0 and other >= 0.0 and p + other > 0.0 and finite):
        return CONSTANT, inverted, math.nan, NO_CONSTANTS
    if other == 0.0:
        scale = 0.5 * rate if inverted else 2.0 / rate
        return GAMMA, inverted, scale, (p, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    if p == 0.5 or (p < 0.4 and omega2 < 0.04):
        omega = math.sqrt(rate) * math.sqrt(other)
        scale = math.sqrt(delta2) / math.sqrt(lambda2)
        if p == 0.5:
            return SQUARED_NORMAL, inverted, scale, (omega, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        return PLATEAU, inverted, scale, plateau(p, omega)
    if p < 1e32 and omega2 < 1e64:
        kind, constants = BENT, bent_normal(p, omega2)
        a = constants[0]
    else:
        kind, constants = CONSTANT, NO_CONSTANTS
        a = 0.5 * p + math.hypot(0.5 * p, 0.5 * math.sqrt(rate) * math.sqrt(other))
    return kind, inverted, 0.5 * (rate / a) if inverted else 2.0 * (a / rate), constants


@inline
def draw_gig(
    rng: Generator, kind: int, inverted: bool, scale: float, constants: Constants
) -> float:
    """One draw by a proposal."""
    if kind == BENT:
        g = draw_bent_normal(rng, constants)
    elif kind == PLATEAU:
        g = draw_plateau(rng, constants)
    elif kind == SQUARED_NORMAL:
        omega = constants[0]
        z = rng.standard_normal()
        excess = 0.5 * z * z
        g = 1.0 + (excess + math.sqrt(excess * (2.0 * omega + excess))) / omega
        if rng.random() * (1.0 + g) > g:
            g = 1.0 / g
    elif kind == GAMMA:
        g = max(rng.standard_gamma(constants[0]), SMALLEST)
    else:
        g = 1.0
    return scale / g if inverted else scale * g


@inline
def generalized_inverse_gaussian(rng: Generator, nu: float, delta2: float, lambda2: float) -> float:
    """One draw; NaN where the parameters are not finite or the density has no integral."""
    kind, inverted, scale, constants = gig_proposal(
        np.float64(nu), np.float64(delta2), np.float64(lambda2)
    )
    return draw_gig(rng, kind, inverted, scale, constants)


@jit
def generalized_inverse_gaussian_kernel(
    rng: Generator, nu: Array, delta2: Array, lambda2: Array, out: Array
) -> Array:
    """Independent generalised inverse Gaussians."""
    n = out.size
    i_nu, i_delta2, i_lambda2 = step(nu.size, n), step(delta2.size, n), step(lambda2.size, n)
    if n == 0:
        return out
    kind, inverted, scale, constants = gig_proposal(
        np.float64(nu[0]), np.float64(delta2[0]), np.float64(lambda2[0])
    )
    for i in range(n):
        if i > 0 and i_nu + i_delta2 + i_lambda2 > 0:
            kind, inverted, scale, constants = gig_proposal(
                np.float64(nu[i * i_nu]),
                np.float64(delta2[i * i_delta2]),
                np.float64(lambda2[i * i_lambda2]),
            )
        out[i] = draw_gig(rng, kind, inverted, scale, constants)
    return out


@inline
def is_right_of_bend(rng: Generator, c: float, rate: float) -> bool:
    """Whether a Polya-Gamma proposal is to be drawn from the exponential beyond BEND."""
    u = rng.random()
    right = math.pi / (2.0 * rate) * math.exp(c - rate * BEND)
    if c * BEND >= 1.0 and u >= right:  # the mass on the left is at least one
        return False
    root = math.sqrt(2.0 * BEND)
    left = math.erfc((1.0 - BEND * c) / root)
    if c < 300.0:
        left += math.exp(2.0 * c) * math.erfc((1.0 + BEND * c) / root)
    return u * (left + right) < right


@inline
def inverse_gaussian_left_of_bend(rng: Generator, c: float) -> float:
    """Inverse Gaussian of mean 1/c and shape 1, restricted to values below BEND."""
    if c * BEND < 1.0:
        while True:
            y = truncated_normal(rng, 0.0, 1.0, 1.0 / math.sqrt(BEND), math.inf)
            x = 1.0 / (y * y)
            if not rng.random() > math.exp(-0.5 * c * c * x):
                return x
    while True:
        half = 0.5 * rng.standard_normal() ** 2 / c
        ratio = 1.0 / (1.0 + half + math.sqrt(half * (2.0 + half)))
        x = (ratio if rng.random() * (1.0 + ratio) <= 1.0 else 1.0 / ratio) / c
        if not x > BEND:
            return x


@inline
def is_below_series(rng: Generator, x: float) -> bool:
    """Whether a uniform is below the density of J*(1) over its first term, at ``x``."""
    u = rng.random()
    if u < 0.994:  # less than one minus the second term, wherever x is
        return True
    rate = 2.0 / x if x <= BEND else 0.5 * math.pi**2 * x
    total, sign, n = 1.0, -1.0, 1
    while True:
        total += sign * (2 * n + 1) * math.exp(-rate * n * (n + 1))
        if sign < 0.0 and u <= total:
            return True
        if sign > 0.0 and u > total:
            return False
        sign, n = -sign, n + 1


@inline
def polya_gamma(rng: Generator, z: float) -> float:
    """Polya-Gamma PG(1, z)."""
    c = 0.5 * abs(z)
    if not c < math.inf:
        return math.nan
    rate = 0.125 * math.pi**2 + 0.5 * c * c
    while True:
        if is_right_of_bend(rng, c, rate):
            x = BEND + rng.standard_exponential() / rate
        else:
            x = inverse_gaussian_left_of_bend(rng, c)
        if is_below_series(rng, x):
            return 0.25 * x


@jit
def polya_gamma_kernel(rng: Generator, z: Array, out: Array) -> Array:
    """One draw per element of ``out``; ``z`` has as many."""
    for i in range(out.size):
        out[i] = polya_gamma(rng, np.float64(z[i]))
    return out


@jit
def polya_gamma_sum_kernel(rng: Generator, z: Array, n: Array, out: Array) -> Array:
    """Sums of ``n`` draws of PG(1, z); NaN where n is no count."""
    i_n = step(n.size, out.size)
    for i in range(out.size):
        count = np.int64(n[i * i_n])
        out[i] = 0.0 if count >= 0 and count == n[i * i_n] else math.nan
        for _ in range(count):
            out[i] += polya_gamma(rng, np.float64(z[i]))
    return out


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
                out[i] = truncated_normal(rng, mean[k], sd[k], edges[k], edges[k + 1])
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
            out[i] = truncated_normal(rng, mean[best], sd[best], edges[best], edges[best + 1])
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


@jit
def argmax_utilities_kernel(
    rng: Generator, mu: Array, sigma: Array, labels: Array, current: Array, out: Array
) -> Array:
    """Rows of normals whose largest element stands at the row's label, never tied."""
    rows, classes = out.shape
    if labels.size != rows or current.shape != out.shape:
        raise ValueError("mu, labels and current do not have the same number of rows or classes")
    i_sigma, a_sigma = step(sigma.shape[0], rows), step(sigma.shape[1], classes)
    infinity = out.dtype.type(math.inf)
    for i in range(rows):
        y = labels[i]
        if y < 0 or y >= classes:
            raise ValueError("a label is not the index of a class")
        runner_up = -infinity
        for a in range(classes):
            if a != y:
                runner_up = max(runner_up, out.dtype.type(current[i, a]))
        out[i, y] = truncated_normal(
            rng,
            np.float64(mu[i, y]),
            np.float64(sigma[i * i_sigma, y * a_sigma]),
            np.float64(np.nextafter(runner_up, infinity)),
            math.inf,
        )
        upper = np.float64(np.nextafter(out[i, y], -infinity))
        for a in range(classes):
            if a != y:
                out[i, a] = truncated_normal(
                    rng,
                    np.float64(mu[i, a]),
                    np.float64(sigma[i * i_sigma, a * a_sigma]),
                    -math.inf,
                    upper,
                )
    return out


@inline
def log_concave_side(
    nu: float, d: float, e: float, room: float, sign: float
) -> tuple[float, float]:
    """Where the flat top of the proposal ends on one side of the mode, and the slope beyond it.

    The log density relative to that at the mode is ``nu s - d (exp(-s) - 1) - e (exp(s) - 1)`` at a
    distance s. Beyond the flat top runs the tangent at a point where it has fallen by one to two;
    a slope of zero means that there is no beyond.
    """
    slope = max(-sign * (nu + d - e), 0.0)
    at = 2.0 / (slope + math.sqrt(slope * slope + 2.0 * (d + e)))
    if not at < room:
        at = room
    drop = math.inf
    while at > 0.0:
        s = sign * at
        drop = -(nu * s - d * math.expm1(-s) - e * math.expm1(s))
        if drop <= 2.0:
            break
        at *= 0.5
    if at >= room:
        return room, 0.0
    s = sign * at
    steepness = -sign * (nu + d * math.exp(-s) - e * math.exp(s))
    if not steepness > 0.0:
        return room, 0.0
    return min(max(at - drop / steepness, 0.0), room), steepness


@inline
def truncated_generalized_inverse_gaussian(
    rng: Generator, nu: float, delta2: float, lambda2: float, lower: float, upper: float
) -> float:
    """One draw between two bounds: its logarithm has a log-concave density."""
    root = math.sqrt(nu * nu + delta2 * lambda2)
    if nu > 0.0:
        mode = (nu + root) / lambda2 if lambda2 > 0.0 else math.inf
    elif root > nu:
        mode = delta2 / (root - nu)
    else:
        mode = math.inf if lambda2 == 0.0 else 0.0
    mode = min(max(mode, lower), upper)
    if not (0.0 <= lower < upper and 0.0 < mode < math.inf):
        return math.nan
    d, e = delta2 / mode / 2.0, lambda2 * mode / 2.0
    room_below = math.log(mode / lower) if lower > 0.0 else math.inf
    room_above = math.log(upper / mode)
    below, slope_below = log_concave_side(nu, d, e, room_below, -1.0)
    above, slope_above = log_concave_side(nu, d, e, room_above, 1.0)
    if not below + above < math.inf:
        return math.nan
    tail_below = -math.expm1(-slope_below * (room_below - below)) if slope_below > 0.0 else 0.0
    tail_above = -math.expm1(-slope_above * (room_above - above)) if slope_above > 0.0 else 0.0
    mass_below = tail_below / slope_below if slope_below > 0.0 else 0.0
    mass_above = tail_above / slope_above if slope_above > 0.0 else 0.0
    s = 0.0
    while True:
        u = (mass_below + below + above + mass_above) * rng.random() - mass_below
        if u < 0.0:
            fallen = -math.log1p(-tail_below * rng.random())
            s = -below - fallen / slope_below
        elif u < below + above:
            fallen = 0.0
            s = u - below
        else:
            fallen = -math.log1p(-tail_above * rng.random())
            s = above + fallen / slope_above
        log_ratio = nu * s - d * math.expm1(-s) - e * math.expm1(s) + fallen
        if not log_ratio < -rng.standard_exponential():
            break
    inside = min(mode * math.exp(s), np.nextafter(upper, 0.0))
    return max(inside, np.nextafter(lower, math.inf))


@jit
def truncated_generalized_inverse_gaussian_kernel(
    rng: Generator,
    nu: Array,
    delta2: Array,
    lambda2: Array,
    lower: Array,
    upper: Array,
    out: Array,
) -> Array:
    """Independent generalised inverse Gaussians between bounds."""
    n = out.size
    i_nu, i_delta2, i_lambda2 = step(nu.size, n), step(delta2.size, n), step(lambda2.size, n)
    i_lower, i_upper = step(lower.size, n), step(upper.size, n)
    for i in range(n):
        out[i] = truncated_generalized_inverse_gaussian(
            rng,
            np.float64(nu[i * i_nu]),
            np.float64(delta2[i * i_delta2]),
            np.float64(lambda2[i * i_lambda2]),
            np.float64(lower[i * i_lower]),
            np.float64(upper[i * i_upper]),
        )
    return out
