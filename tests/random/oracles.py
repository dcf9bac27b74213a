"""The distributions of this room, computed by other means than the kernels compute them."""

from typing import NamedTuple

import numpy as np
from scipy import special

NODES, WEIGHTS = special.roots_legendre(20)


def truncated_normal_cdf(z, mu, sigma, lower, upper):
    """CDF at z of a normal restricted to an interval, elementwise and at any distance.

    With t the excess over the bound nearer to the mean and a that bound's distance, both in
    sds, the density is exp(-t (a + t/2)): integrated by quadrature over a narrow interval,
    and by a ratio of scaled complementary error functions over a wide one in the tail.
    """
    z, mu, sigma, lower, upper = np.broadcast_arrays(z, mu, sigma, lower, upper)
    reflect = upper < mu
    a = np.where(reflect, mu - upper, lower - mu) / sigma
    t = np.abs(z - np.where(reflect, upper, lower)) / sigma
    width = (upper - lower) / sigma
    narrow = width * (1 + np.maximum(a, 0)) < 3
    tail = ~narrow & (a > 0)
    bulk = ~narrow & ~tail

    cdf = np.empty(z.shape)
    cdf[narrow] = _area(t[narrow], a[narrow]) / _area(width[narrow], a[narrow])
    cdf[tail] = (1 - _survival(t[tail], a[tail])) / (1 - _survival(width[tail], a[tail]))
    low, at, high = (special.ndtr((v - mu)[bulk] / sigma[bulk]) for v in (lower, z, upper))
    cdf[bulk] = (at - low) / (high - low)
    return np.where(reflect, 1 - cdf, cdf)


def _area(t, a):
    s = 0.5 * t * (NODES[:, None] + 1)
    return 0.5 * t * (WEIGHTS @ np.exp(-s * (a + 0.5 * s)))


def _survival(t, a):
    """P(excess > t) beyond a bound at a distance a > 0, without an upper bound."""
    t = np.minimum(t, 100)
    root2 = np.sqrt(2)
    return np.exp(-t * (a + t / 2)) * special.erfcx((a + t) / root2) / special.erfcx(a / root2)


@np.errstate(over="ignore")
def generalized_inverse_gaussian_cdf(x, nu, delta2, lambda2, cells=2000):
    """CDF at x of the density x^(nu-1) exp(-(delta2/x + lambda2 x)/2), by quadrature in log x.

    The cells reach as far as the density of log x is above exp(-45) of its mode: uniform ones
    for a plateau with steep ends, and ones that are short at the mode. Terms that cancel call
    for extended precision where they are large.
    """
    dtype = np.longdouble if max(abs(nu), delta2 * lambda2) > 1e3 else np.float64
    nu, delta2, lambda2 = (dtype(value) for value in (nu, delta2, lambda2))
    r = np.sqrt(nu**2 + delta2 * lambda2)
    mode = np.log((r + nu) / lambda2 if nu >= 0 else delta2 / (r - nu))

    def log_density(y):
        return nu * y - (delta2 * np.exp(-y) + lambda2 * np.exp(y)) / 2

    def end(direction):
        near, far = dtype(0), dtype(1e-12)
        while log_density(mode + direction * far) > log_density(mode) - 45:
            far *= 2
        for _ in range(60):
            middle = (near + far) / 2
            is_inside = log_density(mode + direction * middle) > log_density(mode) - 45
            near, far = (middle, far) if is_inside else (near, middle)
        return mode + direction * far

    def area(low, high):
        y = low + (high - low) * (NODES[:, None].astype(dtype) + 1) / 2
        return (high - low) / 2 * (WEIGHTS @ np.exp(log_density(y) - log_density(mode)))

    ends = end(-1), end(1)
    graded = np.sinh(np.linspace(-8, 8, cells, dtype=dtype)) / np.sinh(8)
    graded = mode + np.where(graded < 0, mode - ends[0], ends[1] - mode) * graded
    edges = np.unique(np.concatenate([np.linspace(*ends, cells), graded]))
    cumulative = np.concatenate([[0], np.cumsum(area(edges[:-1], edges[1:]))])
    y = np.clip(np.log(np.asarray(x, dtype)), *ends)
    cell = np.clip(np.searchsorted(edges, y) - 1, 0, len(edges) - 2)
    return ((cumulative[cell] + area(edges[cell], y)) / cumulative[-1]).astype(float)


class PiecewiseLinear(NamedTuple):
    """``slopes[k] z + intercepts[k]`` between ``knots[k - 1]`` and ``knots[k]``."""

    knots: np.ndarray
    slopes: np.ndarray
    intercepts: np.ndarray

    def __call__(self, z):
        """Value at z."""
        k = np.searchsorted(self.knots, z)
        return self.slopes[k] * z + self.intercepts[k]


def activation(knots, slopes, intercepts):
    """A `PiecewiseLinear` of arrays."""
    return PiecewiseLinear(*(np.array(part, float) for part in (knots, slopes, intercepts)))


ACTIVATIONS = {
    "identity": activation([], [1], [0]),
    "relu": activation([0], [0, 1], [0, 0]),
    "leaky_relu": activation([0], [0.1, 1], [0, 0]),
    "abs": activation([0], [-1, 1], [0, 0]),
    "sign": activation([0], [0, 0], [-1, 1]),
    "hard_tanh": activation([-1, 1], [0, 1, 0], [-1, 0, 1]),
    "steps": activation([-0.4, 0.1, 0.3, 1.2], [0.5, -2, 0, 3, 0.2], [1, 0, -0.5, -1, 2]),
}


def piecewise_normal_cdf(mu, sigma, x, tau, act, points=8001):
    """CDF of the density N(z | mu, sigma^2) N(x | act(z), tau^2) on a grid.

    Returns the grid, one row per piece, the CDF on it, and the probability of each piece. The
    density is integrated in log space, in extended precision, by the trapezoidal rule on a
    grid that reaches as far from each piece's mode as the density is above exp(-45) of it.
    """
    mu, sigma, x, tau = (np.longdouble(value) for value in (mu, sigma, x, tau))
    edges = np.concatenate([[-np.inf], act.knots, [np.inf]]).astype(np.longdouble)
    grids, log_densities = [], []
    for k, (s, c) in enumerate(zip(act.slopes, act.intercepts, strict=True)):
        v = 1 / (1 / sigma**2 + s**2 / tau**2)
        m = v * (mu / sigma**2 + s * (x - c) / tau**2)
        lower, upper = edges[k], edges[k + 1]
        mode = np.clip(m, lower, upper)
        a = abs(mode - m) / np.sqrt(v)
        reach = np.sqrt(v) * 90 / (a + np.sqrt(a**2 + 90))
        unit = np.linspace(0, 1, points).astype(np.longdouble)
        low, high = max(lower - mode, -reach), min(upper - mode, reach)
        z = mode + (low + (high - low) * unit)
        grids.append(z)
        log_densities.append(-(((z - mu) / sigma) ** 2) / 2 - ((x - (s * z + c)) / tau) ** 2 / 2)
    largest = max(f.max() for f in log_densities)
    rows, total = [], np.longdouble(0)
    masses = []
    for z, f in zip(grids, log_densities, strict=True):
        density = np.exp(f - largest)
        area = np.concatenate([[0], np.cumsum(np.diff(z) * (density[1:] + density[:-1]) / 2)])
        rows.append(total + area)
        masses.append(area[-1])
        total += area[-1]
    cdf = np.array([row / total for row in rows], float)
    return np.array(grids, float), cdf, np.array(masses, float) / float(total)


def piecewise_normal_pit(z, mu, sigma, x, tau, act):
    """Draws transformed by their CDF, and the probability of each piece."""
    grids, cdf, probabilities = piecewise_normal_cdf(mu, sigma, x, tau, act)
    piece = np.searchsorted(act.knots, z)
    u = np.empty_like(z)
    for k in range(len(grids)):
        u[piece == k] = np.interp(z[piece == k], grids[k], cdf[k])
    return u, probabilities


def polya_gamma_cdf(x, z, cells=4000):
    """CDF at x of PG(1, z), by quadrature in log x of the density's alternating series.

    The tilt is completed to a square, which leaves nothing that overflows or cancels.
    """
    z = abs(z)
    mean = np.tanh(z / 2) / (2 * z) if z > 1e-4 else 0.25
    reach = min(4.5, 10 * np.sqrt(2 / z)) if z > 0 else 4.5
    edges = np.log(mean) + np.linspace(-reach, reach, cells + 1)
    low, high = edges[:-1], edges[1:]
    at = np.exp(low + (high - low) * (NODES[:, None] + 1) / 2)
    n = np.arange(80)[:, None, None]
    series = np.sum((-1.0) ** n * (2 * n + 1) * np.exp(-n * (n + 1) / (2 * at)), axis=0)
    square = np.exp(-((1 - 2 * z * at) ** 2) / (8 * at))
    density = (1 + np.exp(-z)) / 2 * square * series / np.sqrt(2 * np.pi * at)
    areas = (high - low) / 2 * (WEIGHTS @ density)
    np.testing.assert_allclose(areas.sum(), 1.0, rtol=1e-9)
    return np.interp(np.log(x), edges, np.concatenate([[0.0], np.cumsum(areas)]))
